"""Which files are meant by paths of files and folders, what their sessions are called, and where rejects go."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from workers.intake.records import FileFormatError, Rejected
from workers.intake.source import stem_of

ENDINGS = (".json", ".jsonl", ".ndjson", ".txt", ".md", ".log")
REJECTS_ENDING = ".rejects.jsonl"


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file, and the name of those of its sessions and users that it leaves without one."""

    path: Path
    name: str


def find(paths: Sequence[Path]) -> list[InputFile]:
    """Return the files meant: those given, and of folders, at any depth, those with a known ending, by name.

    A file is named by itself; where two would have one name, by its folder too.

    Raises:
        FileFormatError: a folder holds no such file, or two files can't be told apart.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if not path.is_dir():
            found[path] = None
            continue
        inside = [each for each in sorted(path.rglob("*")) if each.is_file() and _is_meant(each)]
        if not inside:
            raise FileFormatError(
                f"{path} is a folder without a file that ends in {', '.join(ENDINGS)} (or these and .gz)."
            )
        found.update(dict.fromkeys(inside))
    return list(_named(list(found)))


def _is_meant(path: Path) -> bool:
    name = path.name.removesuffix(".gz")
    return name.endswith(ENDINGS) and not name.endswith(REJECTS_ENDING) and not name.startswith(".")


def _named(paths: Sequence[Path]) -> Iterator[InputFile]:
    stems = Counter(stem_of(path) for path in paths)
    names: dict[str, Path] = {}
    for path in paths:
        stem = stem_of(path)
        name = stem if stems[stem] == 1 else f"{path.resolve().parent.name}/{stem}"
        if name in names:
            raise FileFormatError(f"{names[name]} and {path} would be sessions of one name: ingest them one by one.")
        names[name] = path
        yield InputFile(path, name)


class Rejects:
    """A file of what did not go in, made by the first of it: a JSON object a line of file, line, error, record."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, source: Path, rejected: Rejected) -> None:
        """Write one.

        Raises:
            FileFormatError: the file can't be written; it is named.
        """
        row = {"file": str(source), "line": rejected.line, "error": rejected.error, "record": rejected.record}
        try:
            if self._file is None:
                self._file = self.path.open("w", encoding="utf-8", errors="backslashreplace")
            self._file.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")
            self._file.flush()
        except OSError as error:
            raise FileFormatError(
                f"{self.path} can't be written ({error.strerror}): name another with --rejects."
            ) from error
