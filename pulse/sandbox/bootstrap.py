"""Runs inside the namespace, before the code: limits itself, runs the code, and reports its value and its files.

It is passed as text to the sandbox's own Python and imports the standard library alone. What it reports the code can
forge, and it is only the code's own result.
"""

import ast
import base64
import contextlib
import json
import os
import pathlib
import resource
import sys
import traceback

FILES_BYTES_MAX = 8 << 20


def main() -> None:
    """Run the code that was passed."""
    report = os.fdopen(int(sys.argv[1]), "w")
    given = json.loads(pathlib.Path("/run/given.json").read_text())
    report.write('{"started": true}\n')
    report.flush()
    os.set_inheritable(report.fileno(), False)
    memory = (given["memory_mb"] + 64) << 20
    seconds = max(1, round(given["cpu_seconds"] + 0.5))
    for kind, limit in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_NPROC, given["processes"]),
        (resource.RLIMIT_NOFILE, 256),
        (resource.RLIMIT_FSIZE, given["disk_mb"] << 20),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
    ):
        resource.setrlimit(kind, (limit, limit))
    os.chdir("/work")
    sys.path[:0] = ["/work"]
    sys.argv = ["main.py"]
    names = {"__name__": "__main__", "__file__": "main.py", **given["inputs"]}
    value, code = None, 0
    try:
        tree = ast.parse(given["code"], "main.py")
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "main.py", "exec"), names)  # noqa: S102 - what this is for
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "main.py", "eval"), names)  # noqa: S307
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except MemoryError:
        names.clear()
        sys.stderr.write("MemoryError\n")
        code = 1
    except BaseException as error:  # noqa: BLE001 - whatever the code raises
        frames = error.__traceback__.tb_next if error.__traceback__ else None
        sys.stderr.write("".join(traceback.format_exception(type(error), error, frames)))
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    report.write(json.dumps({"code": code, "value": shown(value), "files": written(given["files"])}) + "\n")
    report.flush()
    os._exit(code & 0xFF)


def shown(value: object) -> object:
    """Return a value as JSON, or as text, or what it is: the code's own classes may refuse both."""
    try:
        return json.loads(json.dumps(value, default=lambda other: repr(other)[:2000]))
    except Exception:  # noqa: BLE001 - of the code
        with contextlib.suppress(Exception):
            return repr(value)[:2000]
        return f"<{type(value).__name__}>"


def written(before: dict[str, str]) -> dict[str, str]:
    """Return the files that are new or changed, up to a size."""
    found: dict[str, str] = {}
    left = FILES_BYTES_MAX
    for folder, _, names in os.walk("/work"):
        for name in names:
            path = pathlib.Path(folder) / name
            try:
                if path.is_symlink() or not path.is_file() or path.stat().st_size > left:
                    continue
                content = path.read_bytes()
            except OSError:
                continue  # the code has closed it, or a process of its own has removed it
            encoded = base64.b64encode(content).decode()
            key = str(path.relative_to("/work"))
            if before.get(key) != encoded:
                found[key] = encoded
                left -= len(content)
    return found


main()
