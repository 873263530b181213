"""A small service that the agent knows by its OpenAPI document alone: the papers of a library."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

PAPERS = [
    {"id": 1, "title": "Tides of the northern fjords", "topic": "tides", "heights_cm": [112, 131, 96, 125]},
    {"id": 2, "title": "Tides of the southern bays", "topic": "tides", "heights_cm": [55, 61, 58]},
    {"id": 3, "title": "Winds over the plateau", "topic": "winds", "heights_cm": []},
]
DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "Library", "version": "1"},
    "paths": {
        "/papers": {
            "get": {
                "operationId": "find_papers",
                "summary": "Find papers by their topic.",
                "parameters": [{"name": "topic", "in": "query", "required": True, "schema": {"type": "string"}}],
                "responses": {
                    "200": {
                        "description": "The papers.",
                        "content": {"application/json": {"schema": {"type": "array", "items": {"type": "object"}}}},
                    }
                },
            }
        }
    },
}


class Library(BaseHTTPRequestHandler):
    """Answers `GET /openapi.json` and `GET /papers?topic=…`."""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        topic = parse_qs(url.query).get("topic", [""])[0]
        found: object = [paper for paper in PAPERS if paper["topic"] == topic]
        if url.path == "/openapi.json":
            host, port = self.server.server_address[:2]
            found = {**DOCUMENT, "servers": [{"url": f"http://{host!s}:{port}"}]}
        body = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep the terminal for the agent."""


@contextmanager
def running() -> Iterator[str]:
    """Serve on a free port; yield the address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Library) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
