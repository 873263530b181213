"""The program `hippocampus` for a shell's PATH: each call is forked from a process that has imported it.

Python starts in 20 ms without a site. It passes the call and its streams to the test, and waits for its end.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.support.forked import ForkedProcess

#: For each call: a session of an MCP client is one.
CALL_SECONDS = 240.0
CALL = """
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as test:
    test.connect(sys.argv[1])
    socket.send_fds(test, [b" "], [0, 1, 2])
    test.sendall(json.dumps([os.getcwd(), dict(os.environ), sys.argv[2:]]).encode() + b"\\n")
    code = int(test.recv(16))
sys.exit(code)
"""


class _Call(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        _, (stdin, stdout, stderr), _, _ = socket.recv_fds(self.request, 1, 3)
        try:
            cwd, environment, arguments = json.loads(self.rfile.readline())
            files = {"stdin": stdin, "log": stdout, "errors": stderr}
            process = ForkedProcess("workers", *arguments, environment=environment, cwd=Path(cwd), **files)
        finally:
            for each in (stdin, stdout, stderr):
                os.close(each)
        try:
            code = process.wait(CALL_SECONDS)
        except subprocess.TimeoutExpired:
            code = 124  # as timeout(1) has it
        finally:
            process.kill()
        self.wfile.write(str(code).encode())


@contextlib.contextmanager
def served(folder: Path) -> Iterator[Path]:
    """Yield the path of a `hippocampus` in this folder, which can be called within the block, one call at a time."""
    call, program = folder / "call.py", folder / "hippocampus"
    call.write_text(CALL)
    # The name of a socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        address = Path(short) / "calls"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {call} {address} "$@"\n')
        program.chmod(0o755)
        with socketserver.UnixStreamServer(str(address), _Call) as server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
            thread.start()
            try:
                yield program
            finally:
                server.shutdown()
                thread.join()
