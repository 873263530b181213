"""Any Python value as a JSON value, as ADK stores state: what has no JSON form becomes its ``repr``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import to_jsonable_python


def json_safe(value: Any) -> Any:
    """Return a copy of plain JSON values; strings, numbers and the order of keys as they were.

    Datetimes, pydantic models, sets and the like take their JSON form; bytes are text, or base64 where they are not
    UTF-8; what has no form at all, such as a function, is its ``repr``.

    Raises:
        ValueError: a value holds itself.
    """
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, list | tuple):
        return [json_safe(item) for item in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: json_safe(item) for key, item in value.items()}
    return _converted(value)


def _converted(value: Any) -> Any:
    try:
        return to_jsonable_python(value, inf_nan_mode="constants", serialize_unknown=True)
    except UnicodeDecodeError:
        return to_jsonable_python(value, bytes_mode="base64", inf_nan_mode="constants", serialize_unknown=True)
