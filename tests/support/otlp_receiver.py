"""An OTLP endpoint over real HTTP: keeps the spans that it was sent, or refuses, fails or hangs."""

from __future__ import annotations

import contextlib
import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class OtlpReceiver:
    """What arrived at ``url``; `status` is answered, and `hang` holds every answer back until the end."""

    def __init__(self) -> None:
        self.status = 200
        self.hang = False
        self.headers: list[dict[str, str]] = []
        self.spans: list[Any] = []
        self.services: set[str] = set()
        self.url = ""
        self.ended = threading.Event()

    def take(self, body: bytes, headers: dict[str, str]) -> None:
        request = ExportTraceServiceRequest()
        request.ParseFromString(gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body)
        for group in request.resource_spans:
            self.services |= {
                each.value.string_value for each in group.resource.attributes if each.key == "service.name"
            }
            for scope in group.scope_spans:
                self.spans.extend(scope.spans)
        self.headers.append(headers)

    def attributes(self, name: str) -> dict[str, Any]:
        """The attributes of the one span of this name."""
        (span,) = (each for each in self.spans if each.name == name)
        return {
            each.key: getattr(each.value, each.value.WhichOneof("value") or "string_value") for each in span.attributes
        }


@contextlib.contextmanager
def otlp_receiver() -> Iterator[OtlpReceiver]:
    receiver = OtlpReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if receiver.hang:
                receiver.ended.wait()
                return
            if receiver.status == 200:
                receiver.take(body, {name.lower(): value for name, value in self.headers.items()})
            self.send_response(receiver.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_port}/v1/traces"
    try:
        yield receiver
    finally:
        receiver.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()
