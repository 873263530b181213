"""JSON Schemas of arguments and results: checked once, then applied in microseconds, even to hostile values.

jsonschema-rs has patterns in linear time, and no limit of recursion that a value could reach. By default it would open
``http://`` and ``file://`` references: ours are refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pulse.errors import InvalidInputError
from pulse.process.extras import install_command

try:
    import jsonschema_rs
except ImportError as error:  # pragma: no cover - a test imports this module without the extra
    raise ImportError(f"tools need {error.name}, which is not installed: {install_command('tools')}") from error

SCHEMA_BYTES_MAX = 262_144
SCHEMA_DEPTH_MAX = 64
ERRORS_SHOWN_MAX = 5


def refuse_reference(uri: str) -> Any:
    """Refuse a reference out of the schema.

    Raises:
        ValueError: always.
    """
    raise ValueError(f"a schema may not refer to {uri[:80]}: only to its own $defs")


class SchemaCheck:
    """A schema, compiled.

    Raises:
        InvalidInputError: it is not a JSON Schema (draft 2020-12), refers to something outside, or is too large.
    """

    __slots__ = ("_validator",)

    def __init__(self, schema: Mapping[str, Any], *, what: str = "the schema") -> None:
        check_depth(schema, what)
        try:
            if len(json.dumps(schema)) > SCHEMA_BYTES_MAX:
                raise InvalidInputError(f"{what} is over {SCHEMA_BYTES_MAX:,} bytes: shorten it")
            jsonschema_rs.meta.validate(dict(schema))
            self._validator = jsonschema_rs.Draft202012Validator(
                dict(schema), validate_formats=True, retriever=refuse_reference
            )
        except jsonschema_rs.ValidationError as error:
            raise InvalidInputError(f"{what} is not a JSON Schema at {pointer(error.instance_path)!r}") from None
        except (ValueError, TypeError, RecursionError, jsonschema_rs.ReferencingError) as error:
            if isinstance(error, InvalidInputError):
                raise
            raise InvalidInputError(f"{what} is not a JSON Schema: {str(error)[:200]}") from None

    def problems(self, value: Any) -> list[str]:
        """Return what is wrong with a value: at most 5 errors, each a path and a rule, never the value itself."""
        try:
            if self._validator.is_valid(value):
                return []
            return list(_shown(self._validator.iter_errors(value)))
        except (ValueError, TypeError, RecursionError, OverflowError):
            return ["/: it is not JSON"]


def pointer(path: Any) -> str:
    """Return a path as a JSON Pointer (RFC 6901), at most 200 characters of it."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)[:200] or "/"


def check_depth(value: Any, what: str, *, depth_max: int = SCHEMA_DEPTH_MAX) -> None:
    """Refuse a value that is nested more deeply, without recursion.

    Raises:
        InvalidInputError: it is.
    """
    level: list[Any] = [value]
    for _ in range(depth_max + 1):
        following: list[Any] = []
        for each in level:
            if isinstance(each, Mapping):
                following.extend(item for item in each.values() if isinstance(item, Mapping | list | tuple))
            elif isinstance(each, list | tuple):
                following.extend(item for item in each if isinstance(item, Mapping | list | tuple))
        if not following:
            return
        level = following
    raise InvalidInputError(f"{what} is nested more than {depth_max} deep")


def _shown(errors: Iterator[Any]) -> Iterator[str]:
    for number, error in enumerate(errors):
        if number == ERRORS_SHOWN_MAX:
            return
        yield f"{pointer(error.instance_path)}: {_rule(error)}"


def _rule(error: Any) -> str:
    """Name the rule that a value breaks: the keyword, and its own value if that is short."""
    kind = error.kind
    keyword = str(error.schema_path[-1]) if error.schema_path else "schema"
    named = {name: getattr(kind, name, None) for name in ("property", "types", "limit", "format", "pattern", "options")}
    for name, value in named.items():
        if value is not None:
            return f"{'required property' if name == 'property' else keyword} {_short(value)}"
    return {"additionalProperties": "it has a property that is not described"}.get(keyword, f"breaks '{keyword}'")


def _short(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)[:120]
    except (TypeError, ValueError):
        return str(value)[:120]
