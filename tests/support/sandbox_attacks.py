"""What hostile code tries. Each attack is code, the statuses with which it may end, and what its output must not hold.

The same attacks are run on every backend. One that prints REACHED reached something outside.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from pulse.sandbox.records import Limits, SandboxBackend, SandboxRequest
from tests.support.waiting import WAIT_SECONDS

LIMITS = Limits(seconds=4, cpu_seconds=3, memory_mb=96, processes=8, output_bytes=20_000, disk_mb=8)
#: Limits for what only ends by them, where code starts at once.
SHORT = replace(LIMITS, seconds=1, cpu_seconds=1)


@dataclass(frozen=True)
class Attack:
    code: str
    ends: tuple[str, ...] = ("ok", "failed")


def attacks(marker: Path) -> Mapping[str, Attack]:
    """The attacks; `marker` is a file of the host that any user may read and write."""
    tried = "try:\n    {}\n    print('REACHED')\nexcept Exception as error:\n    print(type(error).__name__)\n"
    return {
        "the password file": Attack(tried.format("open('/etc/passwd').read()")),
        "a file of the host": Attack(tried.format(f"print(open({str(marker)!r}).read())")),
        "writing a file of the host": Attack(tried.format(f"open({str(marker)!r}, 'w').write('x')")),
        "a path through /proc": Attack(tried.format("print(open('/proc/1/root/etc/passwd').read())")),
        "the host's environment": Attack(
            "import os\nfound = dict(os.environ)\nprint(found)\n"
            "for name in ('/proc/1/environ', '/proc/self/environ'):\n    print(open(name).read())\n"
        ),
        "a TCP socket": Attack(tried.format("import socket; socket.create_connection(('127.0.0.1', 22), 1)")),
        "a UNIX socket of the host": Attack(
            tried.format("import socket; s = socket.socket(socket.AF_UNIX); s.connect('/run/docker.sock')")
        ),
        "AF_VSOCK": Attack(tried.format("import socket; socket.socket(40, socket.SOCK_STREAM)")),
        "AF_NETLINK": Attack(tried.format("import socket; socket.socket(16, socket.SOCK_RAW)")),
        "other processes": Attack(
            "import os\nnames = [n for n in os.listdir('/proc') if n.isdigit()]\n"
            "print('REACHED' if len(names) > 3 else 'own')"
        ),
        "forks": Attack(
            "import os, time\nmade = 0\nfor _ in range(100):\n    try:\n        pid = os.fork()\n    except OSError:\n"
            "        break\n    if pid == 0:\n        time.sleep(600)\n        os._exit(0)\n    made += 1\n"
            "print('REACHED' if made > 16 else made)"
        ),
        "a full disk": Attack(
            "import os\nfor folder in ('/work', '/tmp', '/dev/shm', '/run', '.'):\n    for n in range(40):\n"
            "        try:\n            with open(folder + '/f%d' % n, 'wb') as f: f.write(bytes(1 << 20))\n"
            "            if n > 16: print('REACHED')\n        except OSError as e: print(type(e).__name__)\n",
            ("ok", "failed", "memory"),
        ),
        "memory outside of processes": Attack(tried.format("import os; fd = os.memfd_create('x')")),
        "spinning": Attack("while True:\n    pass", ("timeout",)),
        "sleeping": Attack("import time\ntime.sleep(600)", ("timeout",)),
        "memory at once": Attack("x = bytearray(1 << 30)\nprint('REACHED')", ("memory", "failed")),
        "memory by steps": Attack("x = []\nwhile True:\n    x.append('a' * 1000000)", ("memory",)),
        "memory of children": Attack(
            "import os, time\nfor _ in range(5):\n    if os.fork() == 0:\n        x = bytearray(40 << 20)\n"
            "        time.sleep(600)\ntime.sleep(600)",
            ("memory", "failed"),
        ),
        "recursion": Attack("def f():\n    return f()\nf()", ("failed", "memory")),
        "a flood": Attack("while True:\n    print('x' * 1000)", ("output",)),
        "a daemon": Attack(
            "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(600)\n"
            "    os._exit(0)\nprint('left')"
        ),
        "killing its parent": Attack(
            "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nos.kill(1, signal.SIGKILL)\nprint('alive')",
            ("ok", "failed", "crashed"),
        ),
        "killing everything": Attack(
            "import os, signal\nos.kill(-1, signal.SIGKILL)\nprint('alive')", ("ok", "failed", "crashed")
        ),
        "mounting": Attack(
            "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
            "print('REACHED' if libc.mount(b'none', b'/work', b'tmpfs', 0, None) == 0 else 'refused')"
        ),
        "a namespace of its own": Attack(
            "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
            "print('REACHED' if libc.unshare(0x10000000) == 0 else 'refused')"
        ),
        "ptrace": Attack(
            "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
            "print('REACHED' if libc.ptrace(0, 0, 0, 0) == 0 else 'refused')"
        ),
        "io_uring": Attack(
            "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
            "print('REACHED' if libc.syscall(425, 8, ctypes.create_string_buffer(256)) >= 0 else 'refused')"
        ),
        "a setuid program": Attack(tried.format("import os; os.setuid(0); open('/usr/x', 'w')")),
        "the interpreter's own classes": Attack(
            tried.format("print([c for c in ().__class__.__base__.__subclasses__()]); raise ValueError")
        ),
    }


async def run_attacks(
    backend: SandboxBackend,
    marker: Path,
    secret: str,
    *,
    seconds: float = LIMITS.seconds,
    patience: float = WAIT_SECONDS,
    also: Mapping[str, str] = MappingProxyType({}),
    is_subset: bool = False,
) -> None:
    """Each attack ends as it must, in time; nothing was reached, and the host's secret was not read.

    `also` are ends that an attack may have on this backend besides: the kernel may kill a child and not its parent. Of
    Python that `is_subset`, calls may not exist. `patience` are the seconds of attacks that end before the limit: a
    start may take long on a busy machine.
    """
    limits = replace(LIMITS, seconds=seconds)
    patient = replace(LIMITS, seconds=patience)
    reached = {}
    for name, attack in attacks(marker).items():
        began = time.monotonic()
        bounds = limits if "timeout" in (*attack.ends, also.get(name)) else patient
        if attack.ends == ("timeout",) and limits == LIMITS:
            bounds = SHORT
        result = await backend.execute(SandboxRequest(code=attack.code, limits=bounds))
        spent = time.monotonic() - began
        output = result.stdout + result.stderr
        # Code whose calls do not exist here fails before it tries anything.
        lacks = result.status == "failed" and (is_subset or backend.isolation == "language")
        if result.status not in (*attack.ends, also.get(name)) and not lacks:
            reached[name] = f"{result.status}: {result.error}"
        if "REACHED" in result.stdout or secret in output or len(output) > LIMITS.output_bytes + 5000:
            reached[name] = output[:300]
        if spent > bounds.seconds + WAIT_SECONDS:
            reached[name] = f"{spent:.1f} s"
    assert reached == {}, reached
    assert marker.read_text() == secret
    good = await backend.execute(SandboxRequest(code="sum([1, 2])", limits=patient))
    assert (good.status, good.value, good.exit_code) == ("ok", 3, 0)
