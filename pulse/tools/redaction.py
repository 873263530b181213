"""What is stored of arguments and results: without secrets, and of bounded size."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from pulse.postgres.json_values import escape_state
from pulse.redaction import mask_secrets

STORED_BYTES_MAX = 16_384
HIDDEN = "[redacted]"
_SECRET_LENGTH_MIN = 6
_DEPTH_MAX = 100
#: How far a text is read beyond where it is cut: longer than most secrets.
_CUT_MARGIN = 512

#: Not `max_tokens`, `tokens_used` or `next_page_token`.
_KEY = re.compile(
    r"(?:^|[-_. ])(?:authorization|cookie|passw(?:or)?d|passphrase|secret|token|api[-_]?key|private[-_]?key"
    r"|credentials?)$",
    re.IGNORECASE,
)
_NOT_SECRET = re.compile(r"(?:max|next|page|continuation|sync|stop)[-_.]?(?:page[-_.]?)?token$", re.IGNORECASE)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
#: Whatever follows is the secret, even if it does not look like one.
_BEARER = re.compile(r"\b(bearer )[0-9A-Za-z._~+/-]{8,}=*", re.IGNORECASE)


class Stored(NamedTuple):
    """A value as it is stored, and the size and the hash of the whole."""

    value: Any
    size: int
    sha256: bytes


def stored(value: Any, *, secrets: Collection[str] = (), schema: Mapping[str, Any] | None = None) -> Stored:
    """Return what is stored of a JSON value: its beginning, without secrets."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) <= STORED_BYTES_MAX:
        kept = redacted(value, secrets=secrets, schema=schema)
    else:
        margin = max(_CUT_MARGIN, *(len(each) for each in secrets), 0)
        begun = _beginning(value, [STORED_BYTES_MAX], margin)
        shown = json.dumps(redacted(begun, secrets=secrets, schema=schema), ensure_ascii=False, separators=(",", ":"))
        kept = {"cut": shown.encode("utf-8", "surrogatepass")[:STORED_BYTES_MAX].decode("utf-8", "ignore")}
    return Stored(escape_state(kept, where="value"), len(raw), hashlib.sha256(raw).digest())


def redacted(value: Any, *, secrets: Collection[str] = (), schema: Mapping[str, Any] | None = None) -> Any:
    """Return a copy of a JSON value without what is secret by its key, its schema, its form, or because it is known."""
    root = schema or {}
    return _hidden(value, [root], root, secrets, 0)


def _hidden(value: Any, schemas: Sequence[Any], root: Mapping[str, Any], secrets: Collection[str], depth: int) -> Any:
    if depth > _DEPTH_MAX:
        return HIDDEN
    if value is None:
        return None
    described: Sequence[Mapping[str, Any]] = _applied(schemas, root) if schemas else ()
    if described and any(map(_is_sensitive, described)):
        return HIDDEN
    if isinstance(value, str):
        return _text(value, secrets)
    if isinstance(value, Mapping):
        return {
            _text(str(key), secrets): HIDDEN
            if item is not None and is_secret_key(str(key))
            else _hidden(item, _of_property(described, key), root, secrets, depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_hidden(item, _of_item(described, index), root, secrets, depth + 1) for index, item in enumerate(value)]
    return value


def _applied(schemas: Sequence[Any], root: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return schemas with those that they refer to, and those that they are made of."""
    found: list[Mapping[str, Any]] = []
    seen: set[int] = set()
    waiting = list(schemas)
    while waiting:
        each = waiting.pop()
        if not isinstance(each, Mapping) or id(each) in seen:
            continue
        seen.add(id(each))
        found.append(each)
        if isinstance(reference := each.get("$ref"), str):
            waiting.append(_referred(root, reference))
        for name in ("allOf", "anyOf", "oneOf"):
            waiting.extend(each[name] if isinstance(each.get(name), list) else ())
        waiting.extend(each.get(name) for name in ("if", "then", "else"))
        dependent = each.get("dependentSchemas")
        waiting.extend(dependent.values() if isinstance(dependent, Mapping) else ())
    return found


def _referred(root: Mapping[str, Any], reference: str) -> Any:
    found: Any = root
    for part in reference.removeprefix("#").split("/")[1:]:
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found


def _of_property(described: Sequence[Mapping[str, Any]], key: Any) -> list[Any]:
    """Return the schemas of a property."""
    found: list[Any] = []
    for each in described:
        properties = each.get("properties")
        if isinstance(properties, Mapping) and key in properties:
            found.append(properties[key])
        else:
            found.extend(each[name] for name in ("additionalProperties", "unevaluatedProperties") if name in each)
        patterns = each.get("patternProperties")
        # Whichever of them matches: hiding too much leaks nothing.
        found.extend(patterns.values() if isinstance(patterns, Mapping) else ())
    return found


def _of_item(described: Sequence[Mapping[str, Any]], index: int) -> list[Any]:
    found = [each[name] for each in described for name in ("items", "contains", "unevaluatedItems") if name in each]
    listed = [each["prefixItems"] for each in described if "prefixItems" in each]
    return found + [each[index] for each in listed if isinstance(each, list) and index < len(each)]


def _beginning(value: Any, left: list[int], margin: int) -> Any:
    """Return the beginning of a JSON value, with keys as they are; `left` is the count of characters, which it lowers.

    A text that is cut loses its last characters, too: a secret may lie across the cut.
    """
    left[0] -= 4
    if isinstance(value, str):
        kept = value if len(value) <= left[0] else value[: max(0, left[0] - margin)]
        left[0] -= len(value)
        return kept
    if isinstance(value, Mapping):
        begun: dict[str, Any] = {}
        for key, item in value.items():
            if left[0] <= 0:
                break
            name = str(key)
            left[0] -= len(name)
            if len(name) > STORED_BYTES_MAX:
                name = name[: max(0, STORED_BYTES_MAX - margin)]
            begun[name] = _beginning(item, left, margin)
        return begun
    if isinstance(value, list | tuple):
        items: list[Any] = []
        for item in value:
            if left[0] <= 0:
                break
            items.append(_beginning(item, left, margin))
        return items
    return value if value is None or isinstance(value, bool | int | float) else str(value)[:STORED_BYTES_MAX]


def without(value: Any, secrets: Collection[str]) -> Any:
    """Return a value without these secrets, and otherwise as it is: what a model is shown."""
    known = [each for each in secrets if len(each) >= _SECRET_LENGTH_MIN]
    if not known:
        return value
    if isinstance(value, str):
        for secret in known:
            value = value.replace(secret, HIDDEN)
        return value
    if isinstance(value, Mapping):
        return {without(key, known): without(item, known) for key, item in value.items()}
    if isinstance(value, list):
        return [without(item, known) for item in value]
    return value


def is_secret_key(key: str) -> bool:
    """Return whether a key names a secret: ``api_key``, ``X-Auth-Token``, ``clientSecret``; not ``max_tokens``."""
    spelled = _CAMEL.sub("_", key)
    return bool(_KEY.search(spelled)) and not _NOT_SECRET.search(spelled)


def _is_sensitive(schema: Mapping[str, Any]) -> bool:
    return schema.get("format") == "password" or schema.get("writeOnly") is True or schema.get("x-sensitive") is True


def _text(text: str, secrets: Collection[str]) -> str:
    for secret in secrets:
        if len(secret) >= _SECRET_LENGTH_MIN:
            text = text.replace(secret, HIDDEN)
    return mask_secrets(_BEARER.sub(rf"\1{HIDDEN}", text), HIDDEN)
