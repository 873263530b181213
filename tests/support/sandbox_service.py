"""A service of the remote sandbox's protocol: a real HTTP server with a backend behind it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import asdict

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pulse.sandbox.records import Limits, SandboxBackend, SandboxRequest

TOKEN = "token-of-the-service"


@contextlib.asynccontextmanager
async def sandbox_service(backend: SandboxBackend) -> AsyncIterator[str]:
    """Serve a backend, and return the service's URL."""

    async def run(request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return Response(status_code=401)
        given = await request.json()
        files = {path: base64.b64decode(content) for path, content in given["files"].items()}
        asked = SandboxRequest(**{**given, "files": files, "limits": Limits(**given["limits"])})
        result = asdict(await backend.execute(asked))
        del result["resource_usage"]
        result["files"] = {path: base64.b64encode(content).decode() for path, content in result["files"].items()}
        return JSONResponse(result)

    app = Starlette(routes=[Route("/run", run, methods=["POST"])])
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", timeout_graceful_shutdown=1))
        task = asyncio.create_task(server._serve([listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/run"
        finally:
            server.should_exit = True
            await task
