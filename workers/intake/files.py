"""The files that paths of files and folders name, the names of their sessions, and the file of rejects."""

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

ENDINGS = (".json", ".jsonl", ".ndjson", ".txt", ".md", ".log", ".af")
REJECTS_ENDING = ".rejects.jsonl"


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file, and the name of its sessions and users that have none of their own."""

    path: Path
    name: str


def find(paths: Sequence[Path]) -> list[InputFile]:
    """Return the given files and, of folders, the files with a known ending at any depth, by name.

    A file has its own name; where two would have the same, its folder's is added.

    Raises:
        FileFormatError: a folder has no such file, or two files would have the same name.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if not path.is_dir():
            found[path] = None
            continue
        inside = [each for each in sorted(path.rglob("*")) if each.is_file() and _is_input(each)]
        if not inside:
            raise FileFormatError(
                f"{path} is a folder without a file that ends in {', '.join(ENDINGS)}, or in one of these and .gz."
            )
        found.update(dict.fromkeys(inside))
    return list(_named(list(found)))


def count_others(paths: Sequence[Path]) -> int:
    """Return how many files of the given folders `find` leaves out, apart from hidden ones and files of rejects."""
    found = (each for path in paths if path.is_dir() for each in path.rglob("*") if each.is_file())
    return sum(
        not _is_input(each) and not each.name.startswith(".") and not each.name.endswith(REJECTS_ENDING)
        for each in found
    )


def _is_input(path: Path) -> bool:
    name = path.name.removesuffix(".gz")
    return name.endswith(ENDINGS) and not name.endswith(REJECTS_ENDING) and not name.startswith(".")


def _named(paths: Sequence[Path]) -> Iterator[InputFile]:
    stems = Counter(stem_of(path) for path in paths)
    names: dict[str, Path] = {}
    for path in paths:
        stem = stem_of(path)
        name = stem if stems[stem] == 1 else f"{path.resolve().parent.name}/{stem}"
        if name in names:
            raise FileFormatError(
                f"{names[name]} and {path} would give their sessions the same name: ingest them one by one."
            )
        names[name] = path
        yield InputFile(path, name)


class Rejects:
    """A file of the records that were not stored, created by the first: JSON lines of file, line, error, record."""

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
        """Write one record.

        Raises:
            FileFormatError: the file can't be written.
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
