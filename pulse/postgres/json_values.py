r"""JSON values that the database stores without loss.

`jsonb` refuses the character U+0000 and lone surrogates, and rewrites numbers such as -0.0 and 1e22; `json` refuses NaN
and the infinities. Such values are stored as an object with the one key ``$hippocampus``, and read back from it::

    "a\0b"              {"$hippocampus": ["text", "a\\u0000b"]}   the string's JSON escapes
    float("nan")        {"$hippocampus": ["float", "nan"]}        Python's repr of the float
    {"\0": 1}           {"$hippocampus:\\u0000": 1}               a key's JSON escapes; also of a key with our prefix
    {"key": DELETED}    {"key": {"$hippocampus": ["deleted"]}}    of a state or its delta: the key is not there

An event's body is `json`, which keeps the text as it is, so only what `json` refuses is escaped there.
"""

from __future__ import annotations

import enum
import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final

from pulse.errors import InvalidInputError

#: The one key of an escape's object.
MARK = "$hippocampus"


class Deletion(enum.Enum):
    """The type of `DELETED`, which stands for a value in a delta."""

    DELETED = "deleted"


#: ``{"key": DELETED}`` removes a key from a state; ``{"key": None}`` sets it to null.
DELETED: Final = Deletion.DELETED
#: `DELETED` as it is stored and sent.
DELETED_ESCAPE: Final = {MARK: [DELETED.value]}
_REFUSED_TEXT = re.compile("[\x00\ud800-\udfff]")
_DEPTH_MAX = 200
_AS_WRITTEN = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_IN_ASCII = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_INTEGER_BITS_MAX = 14_000  # 4,215 digits; Python refuses to write or read more than 4,300


def escape_state(value: Any, *, where: str = "state") -> Any:
    """Return a copy of a JSON value that `jsonb` stores without loss.

    Raises:
        InvalidInputError: a value is not JSON (`where` names it), or is nested more than 200 deep.
    """
    return _escape(value, where, 0, stored_as_text=False, deletable_depth=1)


def unescape(value: Any) -> Any:
    """Undo `escape_state`."""
    if isinstance(value, list):
        return [unescape(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {MARK}:
        kind, *content = value[MARK]
        if kind == DELETED.value:
            return DELETED
        return _unescape_text(content[0]) if kind == "text" else float(content[0])
    return {_unescape_key(key): unescape(item) for key, item in value.items()}


def read_escaped(value: Any) -> Any:
    """Undo `escape_state` for a value of a client, whose escapes may be malformed.

    Raises:
        InvalidInputError: an object or a key has the form of an escape and is not one.
    """
    if isinstance(value, list):
        return [read_escaped(item) for item in value]
    if not isinstance(value, dict):
        return value
    try:
        if value.keys() == {MARK}:
            return _read_escape(value[MARK])
        return {_read_key(key): read_escaped(item) for key, item in value.items()}
    except InvalidInputError:
        raise
    except ValueError:
        raise InvalidInputError(
            f'malformed escape: write {{"{MARK}": ["float", "nan"]}}, with nan, inf, -inf or a number,'
            f' {{"{MARK}": ["text", "JSON escapes"]}}, or {{"{MARK}:JSON escapes of the key": value}}'
        ) from None


def encode_body(value: Any, *, where: str, deletable_depth: int = 0) -> str:
    """Return the JSON text of an event's body, with non-ASCII characters as they are where UTF-8 has them.

    Args:
        value: the body.
        where: the name of the body in an error.
        deletable_depth: the depth of a delta's values in it; 0 for a body without a delta.

    Raises:
        InvalidInputError: as `escape_state`.
    """
    escaped = value
    if not _is_plain(value, 0):
        escaped = _escape(value, where, 0, stored_as_text=True, deletable_depth=deletable_depth)
    text = _AS_WRITTEN.encode(escaped)
    # A lone surrogate has no UTF-8; its escape is valid JSON.
    return _IN_ASCII.encode(escaped) if _has_surrogate(text) else text


def decode_body(text: str) -> Any:
    """Undo `encode_body`."""
    value = json.loads(text)
    return unescape(value) if MARK in text else value


def clean_text(text: str) -> str:
    """Return a text that PostgreSQL can store: U+0000 and lone surrogates are replaced by U+FFFD."""
    return _REFUSED_TEXT.sub("\ufffd", text)


def _has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _is_plain(value: Any, depth: int) -> bool:
    """Whether `json` takes a value as it is, which holds for nearly every event's body. Makes no copy."""
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return True
    if depth > _DEPTH_MAX:
        return False
    if kind is dict:
        return all(
            type(key) is str and not key.startswith(MARK) and _is_plain(item, depth + 1) for key, item in value.items()
        )
    if kind is list:
        return all(_is_plain(item, depth + 1) for item in value)
    return (kind is int and -(2**63) <= value < 2**63) or (kind is float and math.isfinite(value))


def _escape(value: Any, where: str, depth: int, *, stored_as_text: bool, deletable_depth: int) -> Any:
    if depth > _DEPTH_MAX:
        raise InvalidInputError(f"{where[:200]}: nested more than {_DEPTH_MAX} deep; flatten it")
    if value is None or isinstance(value, bool | int):
        if isinstance(value, int) and value.bit_length() > _INTEGER_BITS_MAX:
            raise InvalidInputError(f"{where[:200]}: an integer of more than 4,200 digits; give it as a string")
        return value
    if isinstance(value, str):
        return _escape_text(value, stored_as_text=stored_as_text)
    if isinstance(value, float):
        return _escape_float(value, stored_as_text=stored_as_text)
    if isinstance(value, list | tuple):
        return [
            _escape(item, f"{where}[{index}]", depth + 1, stored_as_text=stored_as_text, deletable_depth=0)
            for index, item in enumerate(value)
        ]
    if isinstance(value, Mapping):
        return _escape_object(value, where, depth, stored_as_text=stored_as_text, deletable_depth=deletable_depth)
    if value is DELETED:
        if depth and depth == deletable_depth:
            return DELETED_ESCAPE
        raise InvalidInputError(f"{where[:200]}: only a key of the state can be deleted; set the whole value instead")
    raise InvalidInputError(
        f"{where}: {type(value).__name__} is not a JSON value; give a string, number, boolean, null, list or object"
    )


def _escape_text(value: str, *, stored_as_text: bool) -> Any:
    if stored_as_text or not _REFUSED_TEXT.search(value):
        return value
    return {MARK: ["text", json.dumps(value)[1:-1]]}


def _escape_float(value: float, *, stored_as_text: bool) -> Any:
    written = repr(value)
    refused = written in ("nan", "inf", "-inf")
    rewritten = "e+" in written or written == "-0.0"
    return {MARK: ["float", written]} if refused or (rewritten and not stored_as_text) else value


def _escape_object(
    value: Mapping[Any, Any], where: str, depth: int, *, stored_as_text: bool, deletable_depth: int
) -> dict[str, Any]:
    escaped: dict[str, Any] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise InvalidInputError(f"{where}: the key {key!r} is not a string; JSON objects have string keys")
        stored_key = _escape_key(key, stored_as_text=stored_as_text)
        escaped[stored_key] = _escape(
            item, f"{where}.{key}", depth + 1, stored_as_text=stored_as_text, deletable_depth=deletable_depth
        )
    return escaped


def _escape_key(key: str, *, stored_as_text: bool) -> str:
    refused = not stored_as_text and _REFUSED_TEXT.search(key)
    return f"{MARK}:{json.dumps(key)[1:-1]}" if refused or key.startswith(MARK) else key


def _read_escape(escape: Any) -> Any:
    match escape:
        case ["text", str(content)]:
            return _unescape_text(content)
        case ["float", str(content)]:
            return float(content)
        case ["deleted"]:
            return DELETED
    raise ValueError


def _read_key(key: str) -> str:
    if key.startswith(MARK) and not key.startswith(f"{MARK}:"):
        raise ValueError
    return _unescape_key(key)


def _unescape_key(key: str) -> str:
    return _unescape_text(key[len(MARK) + 1 :]) if key.startswith(f"{MARK}:") else key


def _unescape_text(escaped: str) -> str:
    text = json.loads(f'"{escaped}"')
    assert isinstance(text, str)  # noqa: S101  # a JSON string is a string
    return text
