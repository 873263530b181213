"""Items of a LangGraph store: the rows of its table ``store`` as lines of JSON, or items as ``Item.dict()`` gives them.

{"prefix": "memories.ann", "key": "…", "value": {…}, "created_at": "…", "updated_at": "…", "expires_at": null}
{"namespace": ["memories", "ann"], "key": "…", "value": {…}, "created_at": "…", "updated_at": "…"}

``psql -At -c 'SELECT row_to_json(s) FROM store AS s'`` writes the rows.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

from workers.intake.documents import Parse, Record
from workers.intake.moments import moment
from workers.intake.records import BadRecordError, Item, LeftOut, Naming, given

#: Members of a value that hold its text, if it is a string and the only one of them.
_TEXTS = ("text", "content", "memory", "data", "fact", "kwargs")


def parser_of(value: Any) -> Parse | None:
    """Return the parser of an item."""
    is_item = isinstance(value, Mapping) and {"key", "value"} <= value.keys() and value.keys() & {"prefix", "namespace"}
    return item if is_item else None


def item(record: Record, naming: Naming) -> Iterator[Item]:
    """Read an item as a memory: its text is that of its value, or the value as JSON.

    Raises:
        BadRecordError: its value, its namespace or a time is not one.
    """
    row = record.value
    namespace, value = row.get("namespace", row.get("prefix")), row["value"]
    path = ".".join(map(str, namespace)) if isinstance(namespace, list | tuple) else namespace
    if not isinstance(path, str):
        raise BadRecordError("an item needs a prefix such as memories.ann, or a namespace as a list")
    if isinstance(value, str):
        try:
            value = json.loads(value)  # as a dump of the column has it
        except ValueError:
            raise BadRecordError("the value of an item must be a JSON object") from None
    if not isinstance(value, Mapping):
        raise BadRecordError("the value of an item must be a JSON object")
    try:
        is_expired = row.get("expires_at") is not None and moment(row["expires_at"]) < time.time()
    except ValueError as error:
        raise BadRecordError(str(error)) from None
    if is_expired:
        yield LeftOut("items that have expired")
        return
    yield given(
        record.line,
        _text(value),
        name=f"langgraph:{path}/{row['key']}",
        occurred_at=row.get("updated_at") or row.get("created_at"),
        metadata={"imported_from": "langgraph", "namespace": path, "key": row["key"], "value": value},
    )


def _text(value: Mapping[str, Any]) -> str:
    # langmem stores {"kind": "Memory", "content": {"content": "…"}}.
    inner = value.get("content")
    if isinstance(inner, Mapping) and value.keys() <= {"kind", "content"}:
        return _text(inner)
    texts = [value[key] for key in _TEXTS if isinstance(value.get(key), str) and value[key].strip()]
    if len(value) == 1 and len(texts) == 1:
        return str(texts[0])
    return json.dumps(value, ensure_ascii=False)
