"""Processes that are forked from one which has imported the program.

Importing is most of what a role needs to start: over a second of processor time for the API. The fork server is itself
forked before this process has an event loop, a connection or a thread, and imports while this process starts the
database. It ends when its socket does, that is with this process, however that ends.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Self

from pulse.process import gc_pause

_REQUEST_BYTES_MAX = 1 << 20
_REPLY_BYTES_MAX = 1 << 10
#: Ignored by the fork server, which ends with its socket instead.
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: A process's main function: it takes the arguments and returns the exit code.
Main = Callable[[], int]


class NoForkServerError(Exception):
    """The fork server has ended, or the environment is too large for it. Start the process by its command line."""


class ForkedProcess:
    """One forked process, with the part of `asyncio.subprocess.Process` that its supervisor uses."""

    def __init__(self, stdin: int, stdout: asyncio.StreamReader) -> None:
        self.pid = 0
        self.stdout = stdout
        self.returncode: int | None = None
        self._stdin = stdin
        self._started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ended = asyncio.Event()

    async def wait(self) -> int:
        """Wait until the process has ended, and return its exit code, negative for a signal."""
        await self._ended.wait()
        assert self.returncode is not None  # noqa: S101 - set before the event
        return self.returncode

    async def wait_for_start(self) -> None:
        """Wait until the process has its id; a caller that is cancelled meanwhile leaves none behind."""
        try:
            await self._started
        except BaseException:
            self._close_stdin()
            raise

    def note_start(self, pid: int) -> None:
        """Record the process's id."""
        self.pid = pid
        if not self._started.done():
            self._started.set_result(None)

    def note_failure(self) -> None:
        """Record that there will be no process."""
        if not self._started.done():
            self._started.set_exception(NoForkServerError())

    def note_end(self, code: int) -> None:
        """Record that the process has ended."""
        self._close_stdin()
        self.returncode = code
        self._ended.set()

    def _close_stdin(self) -> None:
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1


class ForkServer:
    """A process that imports modules once, and forks this program's roles.

    Args:
        preload: the modules; one that is not installed is left to the role, which says so.
        main: what each forked process runs, with its arguments in `sys.argv`.
    """

    def __init__(self, preload: Sequence[str], main: Main) -> None:
        self._preload = preload
        self._main = main
        self.pid = 0
        self._socket: socket.socket | None = None
        self._asked: deque[ForkedProcess] = deque()
        self._running: dict[int, ForkedProcess] = {}

    def __enter__(self) -> Self:
        """Fork the server. Call it while this process has one thread, and before it opens what no child may have."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for each in (ours, theirs):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _REQUEST_BYTES_MAX)
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            ours.close()
            _serve(theirs, self._preload, self._main)
        theirs.close()
        ours.setblocking(False)
        self._socket = ours
        return self

    def __exit__(self, *_: object) -> None:
        """End the server, even while it imports, and wait for it. Its processes have been stopped before."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    @contextlib.contextmanager
    def attached(self) -> Iterator[None]:
        """Take the server's messages in the running event loop, for the length of a block."""
        loop = asyncio.get_running_loop()
        assert self._socket is not None  # noqa: S101 - inside its block
        loop.add_reader(self._socket, self._receive)
        try:
            yield
        finally:
            if self._socket is not None:
                loop.remove_reader(self._socket)

    async def fork(
        self, name: str, arguments: Sequence[str], environment: Mapping[str, str], *, line_bytes_max: int
    ) -> ForkedProcess:
        """Fork a process with a session of its own, and pipes as its standard input and output.

        Args:
            name: the process's name, as `ps -o comm` shows it.

        Raises:
            NoForkServerError: the server is gone, or cannot be reached.
        """
        if self._socket is None:
            raise NoForkServerError
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=line_bytes_max)
        stdin_read, stdin_write = os.pipe()
        stdout_read, stdout_write = os.pipe()
        process = ForkedProcess(stdin_write, reader)
        try:
            await loop.connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(stdout_read, "rb", buffering=0)
            )
            request = json.dumps([name, list(arguments), dict(environment)]).encode()
            socket.send_fds(self._socket, [request], [stdin_read, stdout_write])
            self._asked.append(process)
        except OSError:
            process.note_failure()
        finally:
            os.close(stdin_read)
            os.close(stdout_write)
        await process.wait_for_start()
        return process

    def _receive(self) -> None:
        assert self._socket is not None  # noqa: S101 - it was readable
        try:
            message = self._socket.recv(_REPLY_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if not message:
            self._lose()
            return
        pid, code = json.loads(message)
        if code is None:
            process = self._asked.popleft()
            process.note_start(pid)
            self._running[pid] = process
        else:
            self._running.pop(pid).note_end(code)

    def _lose(self) -> None:
        """End what a killed server has forked: no other process would learn that it has ended."""
        assert self._socket is not None  # noqa: S101 - it was readable
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        self._socket = None
        for asked in self._asked:
            asked.note_failure()
        for pid, process in self._running.items():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            process.note_end(-signal.SIGKILL)
        self._running.clear()


def _serve(control: socket.socket, preload: Sequence[str], main: Main) -> NoReturn:
    """Import, then fork at each request, until the socket ends. Never returns."""
    try:
        _close_others(control.fileno())
        # As a program finds them that is started by its command line.
        handlers = {number: _as_started(number) for number in _ENDING}
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)
        with gc_pause.paused():
            for module in preload:
                with contextlib.suppress(ImportError):
                    importlib.import_module(module)
            # Collecting garbage would write to, and so copy, the pages that all processes share.
            gc.freeze()
        woken, waker = os.pipe()
        os.set_blocking(woken, False)
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker)
        signal.signal(signal.SIGCHLD, _ignore)
        while True:
            readable: list[Any] = [control, woken]
            ready, _, _ = select.select(readable, [], [])
            if woken in ready:
                os.read(woken, 1 << 16)
                _report_ended(control)
            if control in ready:
                request, inherited, _, _ = socket.recv_fds(control, _REQUEST_BYTES_MAX, 2)
                if not request:
                    os._exit(0)
                leading, led = os.pipe()
                pid = os.fork()
                if pid == 0:
                    os.setsid()
                    for number, handler in handlers.items():
                        signal.signal(number, handler)
                    os.close(led)
                    _become(request, inherited, main)
                for each in (*inherited, led):
                    os.close(each)
                # Until it leads its own group, or has ended: from now on it can be sent signals.
                os.read(leading, 1)
                os.close(leading)
                control.send(json.dumps([pid, None]).encode())
    except BaseException:  # noqa: BLE001 - this process has no caller
        # The other end of the socket is gone: with it, what all of this is for.
        os._exit(1)


def _report_ended(control: socket.socket) -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            control.send(json.dumps([ended[0], os.waitstatus_to_exitcode(ended[1])]).encode())


def _become(request: bytes, inherited: Sequence[int], main: Main) -> NoReturn:
    """Run the main function as a process that was started with these arguments. Never returns."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        stdin, stdout = inherited
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        os.dup2(stdout, 2)
        _close_others()
        name, arguments, environment = json.loads(request)
        with contextlib.suppress(OSError):
            Path("/proc/self/comm").write_text(name, encoding="ascii")
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = [sys.argv[0], *arguments]
        code = main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - as Python does at the end of a program
        traceback.print_exc()
    finally:
        # Not by returning: what called the fork server is this process's parent's.
        with contextlib.suppress(Exception):
            atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _close_others(kept: int = 2) -> None:
    """Close every descriptor but standard input, output, error and one more."""
    os.closerange(3, kept)
    os.closerange(max(kept, 2) + 1, os.sysconf("SC_OPEN_MAX"))


def _as_started(number: signal.Signals) -> Any:
    if signal.getsignal(number) == signal.SIG_IGN:
        return signal.SIG_IGN
    return signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL


def _ignore(_number: int, _frame: object) -> None:
    pass
