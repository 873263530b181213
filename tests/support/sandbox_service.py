"""A service of the remote sandbox's protocol: a real HTTP server with a backend behind it."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import AsyncIterator
from dataclasses import asdict

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pulse.sandbox.records import Limits, SandboxBackend, SandboxRequest
from tests.support.http_server import plain, running

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
    async with running(plain(app)) as served:
        yield f"{served.url}/run"
