"""The functions of the schema that programs call: `python -m tests.support.signatures` adds new ones to the list.

`schema/released_functions.txt` has a line for each: the contract, the name, the arguments (`?`: has a default) and the
result. A program of that contract may be running while a newer release migrates.
"""

from __future__ import annotations

import asyncio
import re
import sys
from dataclasses import dataclass
from typing import Self

import asyncpg

from pulse import database
from tests.support.paths import ROOT
from workers.migrate import CONTRACT

LIST = ROOT / "schema" / "released_functions.txt"
PROGRAMS = ("pulse", "hippocampus", "workers")
# Input arguments alone: the columns of a result are part of it.
QUERY = """
SELECT p.proname AS name,
       ARRAY(SELECT concat_ws(' ', a.name, format_type(a.type, NULL))
                    || CASE WHEN a.number > p.pronargs - p.pronargdefaults THEN '?' ELSE '' END
             FROM unnest(p.proargtypes::oid[], p.proargnames) WITH ORDINALITY AS a (type, name, number)
             WHERE a.number <= p.pronargs
             ORDER BY a.number) AS arguments,
       CASE WHEN 'o' = ANY (p.proargmodes)
            THEN (SELECT 'OUT(' || string_agg(concat_ws(' ', o.name, format_type(o.type, NULL)), ', ' ORDER BY o.number)
                         || ')'
                  FROM unnest(p.proallargtypes, p.proargmodes, p.proargnames)
                       WITH ORDINALITY AS o (type, mode, name, number)
                  WHERE o.mode = 'o')
            ELSE pg_get_function_result(p.oid)
       END AS result
FROM pg_proc AS p
WHERE p.pronamespace = current_schema()::regnamespace AND p.prokind = 'f'
  AND p.prorettype <> 'trigger'::regtype
  AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.objid = p.oid AND d.deptype = 'e')
ORDER BY p.proname, arguments
"""
_LINE = re.compile(r"^(\d+) (\w+)\((.*?)\) -> (.+)$")


@dataclass(frozen=True, slots=True)
class Signature:
    """A function as its callers know it."""

    name: str
    arguments: tuple[str, ...]
    result: str

    @classmethod
    def of(cls, row: asyncpg.Record) -> Self:
        return cls(row["name"], tuple(row["arguments"]), row["result"])

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.arguments)}) -> {self.result}"

    def serves(self, released: Signature) -> bool:
        """Whether every call of the released function is a call of this one, and reads its result.

        Further arguments with a default, a default for a former argument, and further columns at the end break nothing.
        """
        ours, theirs = self.arguments[: len(released.arguments)], released.arguments
        return (
            self.name == released.name
            and [each.rstrip("?") for each in ours] == [each.rstrip("?") for each in theirs]
            and all(our.endswith("?") >= their.endswith("?") for our, their in zip(ours, theirs, strict=True))
            and all(each.endswith("?") for each in self.arguments[len(theirs) :])
            and (self.result == released.result or self.result.startswith(released.result.removesuffix(")") + ", "))
        )


def released() -> list[tuple[int, Signature]]:
    """The list's functions, each with the contract that promises it."""
    found = []
    for line in LIST.read_text(encoding="utf-8").splitlines():
        parts = _LINE.match(line)
        assert parts, line
        arguments = tuple(parts[3].split(", ")) if parts[3] else ()
        found.append((int(parts[1]), Signature(parts[2], arguments, parts[4])))
    return found


async def called(connection: asyncpg.Connection) -> list[Signature]:
    """The functions of a migrated database that the programs name."""
    files = [path for package in PROGRAMS for end in ("sql", "py") for path in (ROOT / package).rglob(f"*.{end}")]
    words = {word for path in files for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    # Extensions' and procrastinate's functions are not ours.
    ours = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "schema").rglob("*.sql"))
    defined = set(re.findall(r"CREATE (?:OR REPLACE )?FUNCTION (\w+)", ours))
    return [Signature.of(row) for row in await connection.fetch(QUERY) if row["name"] in words & defined]


async def main(dsn: str) -> None:
    """Add what the programs of this contract call, and take nothing away."""
    connection = await database.connect(dsn, prepare=False)
    try:
        lines = {f"{CONTRACT} {each}" for each in await called(connection)}
    finally:
        await connection.close()
    before = LIST.read_text(encoding="utf-8").splitlines() if LIST.exists() else []
    LIST.write_text("\n".join(sorted(lines.union(before))) + "\n", encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
