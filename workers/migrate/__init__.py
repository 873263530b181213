"""Bringing a database to this program's schema, and checking at start-up that the two fit.

`migrate` makes one run at a time: pgvector, the schema, procrastinate's own SQL from the installed package, then our
migrations in the order of their numbers, each in its own transaction, then, in one transaction, the files of functions
that changed. Each file is recorded with the hash of its text, the version of the program that applied it, and the least
contract that a program needs once it is applied. Each object is recorded with the file that made it
(`hippocampus_catalogue`), so that the check can name what was dropped or changed by hand, and a function that is no
longer in its file is dropped.

A program works with a database that a newer release migrated as long as its `CONTRACT` is not below the greatest
contract recorded there.
"""

from workers.migrate.files import (
    PROCRASTINATE_SCHEMA,
    Migration,
    Schema,
    default_folder,
    read_migrations,
    read_procrastinate,
    read_schema,
)
from workers.migrate.records import CONTRACT, program_version
from workers.migrate.run import check_schema, migrate, require_supported_pgvector, version_ahead

__all__ = [
    "CONTRACT",
    "PROCRASTINATE_SCHEMA",
    "Migration",
    "Schema",
    "check_schema",
    "default_folder",
    "migrate",
    "program_version",
    "read_migrations",
    "read_procrastinate",
    "read_schema",
    "require_supported_pgvector",
    "version_ahead",
]
