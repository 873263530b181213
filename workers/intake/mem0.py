"""Memories as mem0's ``get_all`` returns them, or one of them per record.

{"results": [{"id": "…", "memory": "Lives in Oslo", "created_at": "…", "updated_at": "…", "user_id": "ann",
              "metadata": {…}}, …], "relations": […]}
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from workers.intake.documents import Parse, Record
from workers.intake.moments import moment
from workers.intake.records import BadRecordError, Given, Item, LeftOut, Naming, Rejected, given, listed

_KEPT = ("agent_id", "run_id", "app_id", "actor_id", "role", "categories", "created_at", "updated_at")


def parser_of(value: Any) -> Parse | None:
    """Return the parser of a list of memories, or of one."""
    if not isinstance(value, Mapping):
        return None
    if "memory" in value and "id" in value and "content" not in value:
        return _one
    results = value.get("results")
    if results is None or isinstance(results, str | Mapping):
        return None
    first = results[0] if isinstance(results, list) and results else None
    return memories if first is None or (isinstance(first, Mapping) and "memory" in first) else None


def memories(record: Record, naming: Naming) -> Iterator[Item]:
    """Read the results of ``get_all``."""
    for number, each in enumerate(listed(record.value["results"], "results"), 1):
        try:
            yield _memory(each, record.line)
        except BadRecordError as error:
            yield Rejected(line=record.line, error=f"memory {number}: {error}", record=each)
    relations = record.value.get("relations")
    if isinstance(relations, list) and relations:
        yield LeftOut("relations of mem0's graph", len(relations))
    if record.value.get("next"):
        yield Rejected(
            line=record.line,
            error="the results have a next page, which is not in this file: get all pages",
            record={"next": record.value["next"]},
        )


def _one(record: Record, naming: Naming) -> Iterator[Item]:
    yield _memory(record.value, record.line)


def _memory(each: Any, line: int) -> Given | LeftOut:
    if not isinstance(each, Mapping) or not each.get("id"):
        raise BadRecordError("a memory needs an id and a text, as its members id and memory")
    expires = each.get("expiration_date")
    try:
        if expires is not None and moment(expires) < time.time():
            return LeftOut("memories that have expired")
    except ValueError as error:
        raise BadRecordError(str(error)) from None
    metadata = each.get("metadata")
    own = dict(metadata) if isinstance(metadata, Mapping) else {}
    return given(
        line,
        each.get("memory"),
        name=f"mem0:{each['id']}",
        occurred_at=each.get("updated_at") or each.get("created_at"),
        user_id=each.get("user_id"),
        metadata={**own, "imported_from": "mem0", **{key: each.get(key) for key in _KEPT}},
    )
