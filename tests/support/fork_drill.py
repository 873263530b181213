"""A program with a fork server, which tells what became of its processes: `python -m tests.support.fork_drill`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path

from workers.process.forking import ForkedProcess, ForkServer, NoForkServerError
from workers.process.roles import Role, RoleFailedError, RoleSupervisor

LINE_BYTES_MAX = 1 << 16


def main() -> int:
    """What is forked: it tells its surroundings, and ends as its argument says."""
    fields = {
        "pid": os.getpid(),
        "session": os.getsid(0),
        "name": Path("/proc/self/comm").read_text().strip(),
        "arguments": sys.argv[1:],
        "environment": dict(os.environ),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "is_imported": "tabnanny" in sys.modules,
    }
    print(json.dumps(fields), flush=True)
    match sys.argv[1]:
        case "exit":
            sys.exit(3)
        case "raise":
            raise ValueError("quokka")
        case "sleep":
            time.sleep(60)
        case "read":
            os.read(0, 1)
    return 0


async def read(process: ForkedProcess) -> list[str]:
    return (await process.stdout.read()).decode().splitlines()


async def drill(forks: ForkServer) -> None:
    found: dict[str, object] = {}
    with forks.attached():

        async def fork(word: str, **environment: str) -> ForkedProcess:
            return await forks.fork(f"drill-{word}", [word], environment, line_bytes_max=LINE_BYTES_MAX)

        told = await fork("tell", QUOKKA="1")
        (line,) = await read(told)
        found["told"] = json.loads(line) | {"given_pid": told.pid, "code": await told.wait()}
        ended = await asyncio.gather(*(fork("exit") for _ in range(3)))
        found["exits"] = [await each.wait() for each in ended]
        failed = await fork("raise")
        found["raised"] = [(await read(failed))[-1], await failed.wait()]

        killed = await fork("sleep")
        await killed.stdout.readline()
        os.killpg(killed.pid, signal.SIGKILL)
        found["killed"] = await killed.wait()

        left = await fork("sleep")
        await left.stdout.readline()
        os.kill(forks.pid, signal.SIGKILL)
        found["left"] = await left.wait()
        with contextlib.suppress(NoForkServerError):
            await fork("tell")
            found["forked_without_server"] = True
        try:
            roles = [Role("role", ("--version",))]
            async with RoleSupervisor(dict(os.environ), grace_seconds=1, roles=roles, forks=forks) as supervisor:
                await supervisor.wait()
        except RoleFailedError as error:
            found["by_command_line"] = str(error)
    print(json.dumps(found))


async def leave_one(forks: ForkServer) -> None:
    """End by SIGKILL while a process runs, whose line says its id."""
    with forks.attached():
        process = await forks.fork("drill-read", ["read"], {}, line_bytes_max=LINE_BYTES_MAX)
        fields = json.loads(await process.stdout.readline())
        print(json.dumps([forks.pid, fields["pid"]]), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    act = leave_one if sys.argv[1:] == ["die"] else drill
    with ForkServer(["tabnanny", "no_such_module"], main) as server:
        asyncio.run(act(server))
