"""A small schema for tests of `migrate`: two migrations, two files of functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pulse import database
from workers.migrate import PROCRASTINATE_SCHEMA, check_schema

FIRST = """
CREATE TABLE notes (id bigint PRIMARY KEY, body text NOT NULL, at vector(3), CHECK (body <> ''));
CREATE INDEX notes_body ON notes (body);
"""
SECOND = "CREATE TABLE topics (name text PRIMARY KEY);"
COUNT = """
CREATE OR REPLACE FUNCTION count_notes() RETURNS bigint LANGUAGE sql STABLE
RETURN (SELECT count(*) FROM notes);
"""
SHOUT = """
CREATE OR REPLACE FUNCTION shout() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN NEW.body := upper(NEW.body); RETURN NEW; END $$;
CREATE OR REPLACE TRIGGER shout BEFORE INSERT ON notes FOR EACH ROW EXECUTE FUNCTION shout();
CREATE OR REPLACE VIEW loud AS SELECT id, body FROM notes WHERE body = upper(body);
"""
EVERYTHING = [
    PROCRASTINATE_SCHEMA,
    "0001_notes.sql",
    "0002_topics.sql",
    "functions/count.sql",
    "functions/shout.sql",
]


def write(folder: Path) -> Path:
    """Write the schema's files into the folder."""
    for name, text in {
        "migrations/0001_notes.sql": FIRST,
        "migrations/0002_topics.sql": SECOND,
        "functions/count.sql": COUNT,
        "functions/shout.sql": SHOUT,
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


async def check(dsn: str, folder: Path | None = None, schema: str = "public") -> None:
    connection = await database.connect(dsn, schema=schema, prepare=False)
    try:
        await check_schema(connection, schema=schema, folder=folder)
    finally:
        await connection.close()


async def run_sql(dsn: str, statement: str, schema: str = "public") -> Any:
    connection = await database.connect(dsn, schema=schema, prepare=False)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()
