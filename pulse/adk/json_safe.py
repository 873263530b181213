"""Any Python value as a JSON value, as ADK stores state: values without a JSON form become their ``repr``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic_core import to_jsonable_python

from pulse.errors import InvalidInputError

_PLAIN = (str, int, float, bool, type(None))


def json_safe(value: Any, *, bytes_mode: Literal["utf8", "base64"] = "utf8") -> Any:
    """Return a copy of plain JSON values; strings, numbers and the order of keys are unchanged.

    Datetimes, pydantic models, sets and the like take their JSON form; a value without one, such as a function, becomes
    its ``repr``.

    Args:
        bytes_mode: how bytes are written; bytes that are not valid UTF-8 are always base64.

    Raises:
        InvalidInputError: a value contains itself, or is nested too deeply.
    """
    try:
        return _safe(value, bytes_mode)
    except RecursionError as error:
        raise InvalidInputError("a value contains itself, or is nested too deeply: flatten it") from error


def _safe(value: Any, bytes_mode: Literal["utf8", "base64"]) -> Any:
    # Subclasses, such as enumerations, are not plain.
    if type(value) in _PLAIN:
        return value
    if isinstance(value, list | tuple):
        return [_safe(item, bytes_mode) for item in value]
    if (type(value) is dict or isinstance(value, Mapping)) and all(isinstance(key, str) for key in value):
        return {str(key): _safe(item, bytes_mode) for key, item in value.items()}
    return _converted(value, bytes_mode)


def _converted(value: Any, bytes_mode: Literal["utf8", "base64"]) -> Any:
    try:
        return to_jsonable_python(value, bytes_mode=bytes_mode, inf_nan_mode="constants", serialize_unknown=True)
    except UnicodeDecodeError:
        return to_jsonable_python(value, bytes_mode="base64", inf_nan_mode="constants", serialize_unknown=True)
