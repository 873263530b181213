"""The files of the schema: migrations by number, files of functions by name, and procrastinate's own."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.util
import re
from pathlib import Path

import hippocampus
from pulse.errors import SchemaError

PROCRASTINATE_SCHEMA = "procrastinate/schema.sql"
FUNCTIONS = "functions/"
_NAME = re.compile(r"^(\d{4})_[a-z0-9_]+\.sql$")
_CONTRACT = re.compile(r"^-- contract: (\d+)$", re.MULTILINE)


@dataclasses.dataclass(frozen=True, slots=True)
class Migration:
    """One file of SQL: its recorded name, its text, and the hash of its text."""

    name: str
    sql: str

    @property
    def sha256(self) -> str:
        """The hash of the text, in hexadecimal."""
        return sha256(self.sql)

    @property
    def contract(self) -> int:
        """The least contract of a program that works once this is applied."""
        found = _CONTRACT.search(self.sql)
        return int(found[1]) if found else 1


@dataclasses.dataclass(frozen=True, slots=True)
class Schema:
    """The two halves of the schema: numbered migrations, and files of functions and views."""

    migrations: list[Migration]
    functions: list[Migration]


def default_folder() -> Path:
    """Return the folder of this program's schema: inside the wheel, or at the root of a checkout."""
    packed = Path(next(iter(hippocampus.__path__))) / "_schema"
    return packed if packed.is_dir() else Path(__file__).parents[2] / "schema"


def schema_below(folder: Path | None) -> Schema:
    """Read the schema; this program's own once in a process."""
    return _own_schema() if folder is None else read_schema(folder)


@functools.cache
def _own_schema() -> Schema:
    return read_schema(default_folder())


def read_schema(folder: Path) -> Schema:
    """Read both halves of the schema below the folder: migrations by number, files of functions by name."""
    return Schema(
        read_migrations(folder / "migrations"),
        [
            Migration(FUNCTIONS + file.name, file.read_text(encoding="utf-8"))
            for file in sorted((folder / "functions").glob("*.sql"))
        ],
    )


def read_migrations(folder: Path) -> list[Migration]:
    """Read the folder's migrations, numbered from 0001 on without a gap."""
    files = sorted(folder.glob("*.sql"))
    if not files:
        raise SchemaError(f"There is no migration in {folder}: this installation is incomplete; install it again.")
    for number, file in enumerate(files, start=1):
        found = _NAME.match(file.name)
        if found is None:
            raise SchemaError(f"The migration {file.name} must be called NNNN_what.sql, in lower case.")
        if int(found[1]) < number:
            raise SchemaError(f"Two migrations have one number: {files[number - 2].name} and {file.name}.")
        if int(found[1]) > number:
            raise SchemaError(f"There is no migration {number:04}, but there is {file.name}: number it {number:04}.")
    return [Migration(file.name, file.read_text(encoding="utf-8")) for file in files]


@functools.cache
def read_procrastinate() -> tuple[Migration, list[Migration]]:
    """Read the installed procrastinate's whole schema, and the migrations that are contained in it."""
    # Found without importing it: a writer checks the schema, and needs nothing else of procrastinate.
    package = importlib.util.find_spec("procrastinate")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("procrastinate is not installed", name="procrastinate")
    root = Path(package.origin).parent / "sql"
    whole = Migration(PROCRASTINATE_SCHEMA, (root / "schema.sql").read_text(encoding="utf-8"))
    files = sorted((root / "migrations").iterdir(), key=lambda each: each.name)
    steps = [
        Migration(f"procrastinate/{each.name}", each.read_text(encoding="utf-8"))
        for each in files
        if each.name.endswith(".sql")
    ]
    return whole, steps


def sha256(text: str) -> str:
    """Return the hash of a text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()
