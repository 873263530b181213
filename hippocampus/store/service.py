"""Items in namespaces, in batches of one round trip: put, get, searched, deleted, and their namespaces listed.

An item is a JSON object under a key in a namespace, a tuple of labels such as ``("users", "ann", "notes")``. Unlike a
memory it is not extracted, does not fade and is never merged: what was put is what is returned. Items below ``("users",
user_label(U))`` belong to user U, and are erased with that user.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from pgvector import Vector as PgVector

from hippocampus.errors import BY_SQLSTATE
from hippocampus.names import check_app_name, check_count
from hippocampus.records import Vector, has_direction
from pulse.errors import InvalidInputError
from pulse.names import check_app
from pulse.postgres.json_values import clean_text, escape_state, unescape
from pulse.postgres.limits import check_limit
from pulse.postgres.statements import Statements

if TYPE_CHECKING:
    import asyncpg

    from pulse.database import Pool
    from pulse.postgres.statements import Session

Namespace: TypeAlias = tuple[str, ...]

#: Rows of one search or list, at most.
LIMIT_MAX: Final = 10_000
#: UTF-8 bytes of a namespace and a key together, and labels of a namespace: an index holds them.
NAME_BYTES_MAX: Final = 1500
LABELS_MAX: Final = 50
#: A time to live is at most a century.
TTL_SECONDS_MAX: Final = 100 * 366 * 86_400.0
#: The first label of the namespaces that belong to users.
USERS: Final = "users"
COMPARISONS: Final = ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte")
EQUALITIES: Final = ("$eq", "$ne")

# An item that is moved may meet another with its names.
_STATEMENTS = Statements("hippocampus.store", "store.sql", errors={**BY_SQLSTATE, "23505": InvalidInputError})
# No label is longer, so that no namespace is greater.
_BEYOND_ALL = ["\U0010ffff" * NAME_BYTES_MAX]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredItem:
    """An item.

    Attributes:
        updated_at: the time of the last put; reading changes `expires_at` alone.
        expires_at: None: it has no time to live.
        score: the cosine similarity of the best of its vectors to the query's, -1 to 1; None without a query.
    """

    namespace: Namespace
    key: str
    value: Mapping[str, Any]
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None = None
    score: float | None = None


class Get(NamedTuple):
    """One item to get. `refresh`: its time to live begins again."""

    namespace: Sequence[str]
    key: str
    refresh: bool = True


class Put(NamedTuple):
    """One item to put, or to delete if it has no value.

    Attributes:
        ttl_seconds: after the last write or read; None: it stays until it is deleted.
        vectors: by the path of what they were made of; they replace the item's former ones.
    """

    namespace: Sequence[str]
    key: str
    value: Mapping[str, Any] | None
    ttl_seconds: float | None = None
    vectors: Mapping[str, Vector] = {}


class Search(NamedTuple):
    """A search below a namespace, newest first, or by the similarity to a vector.

    Attributes:
        prefix: whole labels; () is every namespace.
        where: what the value has at each key: a value, or comparisons by ``$eq $ne $gt $gte $lt $lte``. An object
            without comparisons is searched by its own keys. Numbers compare as numbers, texts by their code points. A
            key that is not there is null.
        vector: only items with a vector of the same model are found.
        refresh: the time to live of what is found begins again.
    """

    prefix: Sequence[str] = ()
    where: Mapping[str, Any] | None = None
    limit: int = 10
    offset: int = 0
    vector: Vector | None = None
    refresh: bool = True


class ListNamespaces(NamedTuple):
    """Namespaces with items, in order. In `prefix` and `suffix` the label ``*`` stands for any one label.

    Attributes:
        depth: longer namespaces are cut to this many labels.
    """

    prefixes: Sequence[Sequence[str]] = ()
    suffixes: Sequence[Sequence[str]] = ()
    depth: int | None = None
    limit: int = 100
    offset: int = 0


class ItemStore:
    """The items of one app.

    Each of the `_many` methods is one round trip; a read that lets times to live begin again is one more, at most once
    in a hundredth of the time.

    Raises, from every method:
        InvalidInputError: an argument is out of its bounds; nothing was changed.
    """

    def __init__(self, db: Session, app: str, *, omit_expired: bool = True) -> None:
        """Serve an app.

        Args:
            db: a pool, or a connection, in whose transaction the operations are.
            omit_expired: leave out items whose time to live is over. Otherwise they are found until they are deleted.
        """
        self._db = db
        self._app = check_app_name(app)
        self._omit_expired = omit_expired

    async def get_many(self, operations: Sequence[Get]) -> list[StoredItem | None]:
        """Return each item, or None where there is none."""
        wanted = [
            {"place": place, **_names(operation.namespace, operation.key)} for place, operation in enumerate(operations)
        ]
        if not wanted:
            return []
        rows = await _STATEMENTS.fetch(self._db, "get", self._app, wanted, self._omit_expired)
        await self._refresh(rows, [operation.refresh for operation in operations])
        found = {row["place"]: _item(row) for row in rows}
        return [found.get(place) for place in range(len(wanted))]

    async def put_many(self, operations: Sequence[Put], *, model: str | None = None) -> None:
        """Put and delete items, all or none; of two with the same names the last counts.

        Args:
            model: the name of the model of all vectors.
        """
        last = {(tuple(operation.namespace), operation.key): operation for operation in operations}
        if not last:
            return
        if any(operation.value is not None for operation in last.values()):
            check_app(self._app)
        items, places, paths, vectors = [], [], [], []
        for place, operation in enumerate(last.values()):
            items.append(_checked_put(operation))
            for path, vector in operation.vectors.items():
                places.append(place)
                paths.append(path)
                vectors.append(_checked_vector(vector))
        if vectors and not model:
            raise InvalidInputError("vectors need the name of their model: two models are never compared")
        await _STATEMENTS.execute(self._db, "put", self._app, json.dumps(items), model, places, paths, vectors)

    async def search_many(self, operations: Sequence[Search], *, model: str | None = None) -> list[list[StoredItem]]:
        """Return what each search finds.

        Args:
            model: the name of the model of all vectors.
        """
        asked = [_search(place, operation) for place, operation in enumerate(operations)]
        if not asked:
            return []
        vectors = [None if each.vector is None else _checked_vector(each.vector) for each in operations]
        if not model and any(vector is not None for vector in vectors):
            raise InvalidInputError("a vector needs the name of its model: two models are never compared")
        rows = await _STATEMENTS.fetch(self._db, "search", self._app, asked, self._omit_expired, vectors, model)
        await self._refresh(rows, [operation.refresh for operation in operations])
        found: list[list[StoredItem]] = [[] for _ in asked]
        for row in rows:
            found[row["place"]].append(_item(row))
        return found

    async def list_namespaces_many(self, operations: Sequence[ListNamespaces]) -> list[list[Namespace]]:
        """Return the namespaces that each operation asks for."""
        asked = [_list(place, operation) for place, operation in enumerate(operations)]
        if not asked:
            return []
        rows = await _STATEMENTS.fetch(self._db, "list_namespaces", self._app, asked, self._omit_expired)
        found: list[list[Namespace]] = [[] for _ in asked]
        for row in rows:
            found[row["place"]].append(tuple(row["namespace"]))
        return found

    async def get(self, namespace: Sequence[str], key: str) -> StoredItem | None:
        """Return an item, or None; its time to live begins again."""
        return (await self.get_many([Get(namespace, key)]))[0]

    async def put(
        self, namespace: Sequence[str], key: str, value: Mapping[str, Any], *, ttl_seconds: float | None = None
    ) -> None:
        """Put an item in place of the one with these names."""
        await self.put_many([Put(namespace, key, value, ttl_seconds)])

    async def delete(self, namespace: Sequence[str], key: str) -> None:
        """Delete an item, if it exists."""
        await self.put_many([Put(namespace, key, None)])

    async def search(
        self, prefix: Sequence[str] = (), *, where: Mapping[str, Any] | None = None, limit: int = 10, offset: int = 0
    ) -> list[StoredItem]:
        """Return items below a namespace, newest first; see `Search`."""
        return (await self.search_many([Search(prefix, where, limit, offset)]))[0]

    async def delete_below(self, prefix: Sequence[str]) -> int:
        """Delete every item of a namespace and of those below it; return how many there were."""
        tag = await _STATEMENTS.execute(self._db, "delete_below", self._app, *_below(_labels(prefix)))
        return int(tag.split()[-1])

    async def move_below(self, prefix: Sequence[str], to: Sequence[str]) -> int:
        """Move every item of a namespace and of those below it; return how many there were.

        Raises:
            InvalidInputError: an item with the same names exists there, or a namespace would be too long.
        """
        old, new = _labels(prefix), _labels(to)
        if not new:
            raise InvalidInputError("an item needs a namespace of at least one label")
        tag = await _STATEMENTS.execute(self._db, "move_below", self._app, *_below(old), len(old), list(new))
        return int(tag.split()[-1])

    async def expire(self, limit: int = 1000) -> int:
        """Delete at most `limit` items of every app whose time to live is over; return how many.

        The workers do the same every minute.
        """
        count: int = await _STATEMENTS.fetchval(self._db, "expire", check_count("limit", limit, 1, LIMIT_MAX))
        return count

    async def _refresh(self, rows: Sequence[asyncpg.Record], asked: Sequence[bool]) -> None:
        due = sorted({row["id"] for row in rows if row["expires_at"] is not None and asked[row["place"]]})
        if due:
            await _STATEMENTS.execute(self._db, "refresh", due)


@contextlib.asynccontextmanager
async def exclusive(pool: Pool, app: str, namespace: Sequence[str]) -> AsyncIterator[ItemStore]:
    """Enter a transaction in which no other caller of this function changes the same namespace.

    Callers that read before they write, such as an edit of a file, do not lose each other's changes.
    """
    labels = list(_labels(namespace))
    async with pool.acquire() as connection, connection.transaction():
        await _STATEMENTS.execute(connection, "lock", app, labels)
        yield ItemStore(connection, app)


def user_label(user_id: str) -> str:
    """Return the label that stands for a user: it has no period, which a label of LangGraph must not have.

    Items below ``("users", user_label(user_id))`` belong to the user.
    """
    return user_id.replace("%", "%25").replace(".", "%2E")


def user_of(label: str) -> str:
    """Undo `user_label`."""
    return label.replace("%2E", ".").replace("%25", "%")


def _labels(namespace: Sequence[str]) -> Namespace:
    """Return a namespace as a tuple of labels that can be stored."""
    if isinstance(namespace, str):
        raise InvalidInputError(f"a namespace must be a tuple of labels, not {namespace!r:.80}")
    labels = tuple(namespace)
    for label in labels:
        if not isinstance(label, str) or not label or clean_text(label) != label:
            raise InvalidInputError(
                f"a label of a namespace must be a non-empty text without U+0000 and lone surrogates, not {label!r:.80}"
            )
    _check_size(labels, "")
    return labels


def _check_size(labels: Namespace, key: str) -> None:
    size = sum(len(each.encode()) for each in (*labels, key))
    if len(labels) > LABELS_MAX or size > NAME_BYTES_MAX:
        raise InvalidInputError(
            f"a namespace must have at most {LABELS_MAX} labels, and with its key {NAME_BYTES_MAX} bytes of UTF-8,"
            f" not {len(labels)} labels and {size} bytes"
        )


def _names(namespace: Sequence[str], key: str) -> dict[str, Any]:
    labels = _labels(namespace)
    if not labels:
        raise InvalidInputError("an item needs a namespace of at least one label")
    if not isinstance(key, str) or not key or clean_text(key) != key:
        raise InvalidInputError(f"a key must be a non-empty text without U+0000 and lone surrogates, not {key!r:.80}")
    _check_size(labels, key)
    return {"namespace": list(labels), "key": key}


def _below(labels: Namespace) -> tuple[list[str], list[str]]:
    """Return the first namespace that begins with these labels, and the first that comes after all of them.

    Namespaces are ordered label by label, by their bytes; no label holds U+0000.
    """
    if not labels:
        return [], _BEYOND_ALL
    return list(labels), [*labels[:-1], labels[-1] + "\x01"]


def _checked_put(operation: Put) -> dict[str, Any]:
    row = _names(operation.namespace, operation.key)
    if operation.value is None:
        return row
    if not isinstance(operation.value, Mapping):
        raise InvalidInputError(f"the value of an item must be an object, not {type(operation.value).__name__}")
    row["value"] = escape_state(dict(operation.value), where=f"value of {operation.key!r:.80}")
    seconds = operation.ttl_seconds
    if seconds is not None:
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= TTL_SECONDS_MAX:
            raise InvalidInputError(
                f"a time to live must be above 0 and at most {TTL_SECONDS_MAX:g} seconds, not {seconds!r:.80}"
            )
        row["ttl"] = seconds
    return row


def _checked_vector(vector: Vector) -> PgVector:
    """Return a vector as the driver takes it in a list: a list of lists would be an array of two dimensions."""
    if not has_direction(vector):
        raise InvalidInputError("a vector has no direction: it must be finite and not all zeros")
    return PgVector(vector)


def _search(place: int, operation: Search) -> dict[str, Any]:
    lowest, beyond = _below(_labels(operation.prefix))
    return {
        "place": place,
        "lowest": lowest,
        "beyond": beyond,
        "conditions": list(_conditions(operation.where, [])) if operation.where else None,
        **_page(operation.limit, operation.offset),
    }


def _conditions(where: Mapping[str, Any], above: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the comparisons of a filter, each with the path of the value that it compares."""
    for key, wanted in where.items():
        ((stored_key, _),) = escape_state({key: None}, where="filter").items()
        path = [*above, stored_key]
        if not isinstance(wanted, Mapping) or not wanted:
            yield _condition(path, "$eq", wanted)
        elif not any(isinstance(each, str) and each.startswith("$") for each in wanted):
            yield from _conditions(wanted, path)
        else:
            for operator, operand in wanted.items():
                yield _condition(path, operator, operand)


def _condition(path: list[str], operator: str, operand: Any) -> dict[str, Any]:
    if operator not in COMPARISONS:
        raise InvalidInputError(f"a filter compares by {', '.join(COMPARISONS)}, not {operator!r:.80}")
    is_number = isinstance(operand, int | float) and not isinstance(operand, bool) and math.isfinite(operand)
    if operator not in EQUALITIES and not is_number and not isinstance(operand, str):
        raise InvalidInputError(f"{operator} compares with a finite number or a text, not {operand!r:.80}")
    return {
        "path": path,
        "operator": operator,
        "operand": escape_state(operand, where="filter"),
        "number": str(operand) if is_number else None,
        "text": clean_text(operand) if isinstance(operand, str) else None,
    }


def _page(limit: int, offset: int) -> dict[str, int]:
    return {"limit": check_limit(limit, LIMIT_MAX), "offset": check_count("offset", offset, 0, 2**31 - 1)}


def _list(place: int, operation: ListNamespaces) -> dict[str, Any]:
    matches = [
        {"labels": list(_labels(labels)), "at_end": at_end}
        for given, at_end in ((operation.prefixes, False), (operation.suffixes, True))
        for labels in given
    ]
    literal: list[str] = []
    for labels in operation.prefixes:
        known = list(labels[: labels.index("*")] if "*" in labels else labels)
        literal = max(literal, known, key=len)
    lowest, beyond = _below(tuple(literal))
    if operation.depth is not None:
        check_count("depth", operation.depth, 1, 2**31 - 1)
    return {
        "place": place,
        "lowest": lowest,
        "beyond": beyond,
        "matches": matches,
        "depth": operation.depth,
        **_page(operation.limit, operation.offset),
    }


def _item(row: asyncpg.Record) -> StoredItem:
    return StoredItem(
        namespace=tuple(row["namespace"]),
        key=row["key"],
        value=unescape(json.loads(row["value"])),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        expires_at=row["expires_at"],
        score=row.get("score"),
    )
