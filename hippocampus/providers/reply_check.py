"""The checks of a model's reply: one JSON object, and values of the requested types and ranges.

`hippocampus.providers.extraction` says which reply must hold what.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from hippocampus.errors import MalformedReplyError

CONFIDENCE_TOLERANCE = 0.01
#: Problems that a message lists; a repair needs the kinds, not a thousand repetitions.
PROBLEMS_LISTED_MAX = 20


def refuse(reply: str, problems: Iterable[str]) -> NoReturn:
    """Raise `MalformedReplyError` with the whole reply as evidence."""
    listed = list(problems)
    more = len(listed) - PROBLEMS_LISTED_MAX
    shown = listed[:PROBLEMS_LISTED_MAX] + ([f"and {more} more"] if more > 0 else [])
    raise MalformedReplyError(
        "the model's reply breaks the schema: " + "; ".join(shown), code="malformed", raw_reply=reply
    )


def read_object(reply: str) -> Any:
    """Return the one JSON object of a reply, without harmless packaging around it.

    Raises:
        MalformedReplyError: no JSON object, more than one, or one that is broken.
    """
    text = reply.strip("\ufeff \t\r\n")
    start = text.find("{")
    if start < 0:
        refuse(reply, ["it holds no JSON object"])
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError) as error:
        # The parser's message quotes a position, never the text; so do ours for duplicate keys and NaN.
        refuse(reply, [f"it is not valid JSON: {error}"])
    if re.search(r"[\[\]{}]", text[:start] + text[end:]):
        refuse(reply, ["it must be one JSON object and nothing else: there is more JSON around it"])
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice in one object")
    return found


def _no_constant(_name: str) -> NoReturn:
    raise ValueError("NaN and Infinity are not JSON numbers")


def _finite_float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError("a number is too large")
    return number


_DECODER = json.JSONDecoder(object_pairs_hook=_unique_keys, parse_constant=_no_constant, parse_float=_finite_float)


class ReplyCheck:
    """The problems of one reply, collected so that one repair can address all of them.

    After a problem, a method returns a substitute so that the remaining checks still run; `finish` then raises.
    """

    def __init__(self, reply: str, turns: frozenset[int] = frozenset()) -> None:
        self._reply = reply
        self._turns = turns
        self.problems: list[str] = []

    def finish(self) -> None:
        """Raise `MalformedReplyError` if there was any problem."""
        if self.problems:
            refuse(self._reply, self.problems)

    def object(self, value: Any, path: str, keys: tuple[str, ...], optional: tuple[str, ...] = ()) -> Mapping[str, Any]:
        """Return an object of exactly these keys and any of the optional ones; empty if it is not one."""
        if not isinstance(value, dict):
            self.problems.append(f"{path} must be an object, it is {_kind(value)}")
            return {}
        if missing := [key for key in keys if key not in value]:
            self.problems.append(f"{path} lacks {', '.join(missing)}")
        if extra := len(value.keys() - {*keys, *optional}):
            asked = ", ".join((*keys, *optional))
            self.problems.append(f"{path} has {extra} keys that were not asked for; only {asked}")
        return value if not missing else {}

    def items(self, root: Mapping[str, Any], name: str) -> list[tuple[str, Any]]:
        """Return the items of a list, each with its path."""
        if name not in root:
            return []
        if not isinstance(root[name], list):
            self.problems.append(f"{name} must be a list, it is {_kind(root[name])}")
            return []
        return [(f"{name}[{number}]", item) for number, item in enumerate(root[name])]

    def text(self, fields: Mapping[str, Any], name: str, path: str, characters_max: int | None = None) -> str:
        """Return a text that is not blank, stripped."""
        value, where = fields.get(name), f"{path}.{name}".lstrip(".")
        if name not in fields:
            return ""
        if not isinstance(value, str):
            self.problems.append(f"{where} must be a text, it is {_kind(value)}")
            return ""
        text = value.strip()
        if not text:
            self.problems.append(f"{where} is blank")
        if characters_max is not None and len(text) > characters_max:
            self.problems.append(f"{where} has {len(text)} characters; at most {characters_max} are allowed")
        self._storable(text, where)
        return text

    def word(self, fields: Mapping[str, Any], name: str, path: str, allowed: tuple[str, ...]) -> Any:
        """Return one of a few words. Case and surrounding spaces are ignored."""
        value = fields[name]
        word = value.strip().lower() if isinstance(value, str) else None
        if word not in allowed:
            self.problems.append(f"{path}.{name} must be one of {', '.join(allowed)}")
        return word

    def flag(self, fields: Mapping[str, Any], name: str, path: str) -> bool:
        """Return true or false; false if it was left out or is null."""
        value = fields.get(name)
        if not isinstance(value, bool | None):
            self.problems.append(f"{path}.{name} must be true or false, it is {_kind(value)}")
        return value is True

    def number(self, fields: Mapping[str, Any], name: str, path: str, highest: int) -> int | None:
        """Return a whole number from 1 to `highest`; None if it was left out or is null."""
        value: Any = fields.get(name)
        if value is None:
            return None
        if not _is_whole(value) or not 1 <= value <= highest:
            self.problems.append(f"{path}.{name} must be a whole number from 1 to {highest}, or left out")
            return None
        return int(value)

    def value(self, fields: Mapping[str, Any], path: str, *, may_lack: bool = False) -> Any:
        """Return a JSON value that is not empty; None if it may be left out and is."""
        value = fields.get("value")
        if may_lack and value is None:
            return None
        if value is None or value in ([], {}) or (isinstance(value, str) and not value.strip()):
            self.problems.append(f"{path}.value is null or empty")
        for text in _texts(value):
            self._storable(text, f"{path}.value")
        return value.strip() if isinstance(value, str) else value

    def confidence(self, fields: Mapping[str, Any], path: str) -> float:
        """Return a number from 0 to 1. A rounding error beyond the range is clamped."""
        value = fields["confidence"]
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.problems.append(f"{path}.confidence must be a number from 0 to 1, it is {_kind(value)}")
            return 0.0
        if not -CONFIDENCE_TOLERANCE <= value <= 1 + CONFIDENCE_TOLERANCE:
            self.problems.append(f"{path}.confidence must be from 0 to 1")
        return float(min(max(value, 0), 1))

    def sources(self, fields: Mapping[str, Any], path: str) -> tuple[int, ...]:
        """Return the numbers of at least one turn of this slice."""
        value, where = fields["source_turns"], f"{path}.source_turns"
        if not isinstance(value, list) or not value:
            self.problems.append(f"{where} must be a list of at least one turn number")
            return ()
        numbers = [number for number in value if _is_whole(number)]
        if len(numbers) < len(value):
            self.problems.append(f"{where} must hold whole numbers only")
        if not self._turns.issuperset(numbers):
            self.problems.append(f"{where} names turns that are not in the conversation")
        return tuple(sorted({int(number) for number in numbers}))

    def whole_numbers(self, fields: Mapping[str, Any], name: str) -> tuple[int, ...]:
        """Return a list of whole numbers, each once, in their order."""
        items = [item for _, item in self.items(fields, name)]
        if not all(map(_is_whole, items)):
            self.problems.append(f"{name} must hold whole numbers only")
            return ()
        return tuple(dict.fromkeys(map(int, items)))

    def _storable(self, text: str, where: str) -> None:
        if re.search("[\x00\ud800-\udfff]", text):
            self.problems.append(f"{where} holds a NUL or a lone surrogate, which cannot be stored")


def _is_whole(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, (int, float)) and value == int(value)


def _texts(value: Any) -> Iterable[str]:
    """Yield every text in a JSON value, including keys of objects."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        yield from value
        for item in value.values():
            yield from _texts(item)


_KINDS: tuple[tuple[type, str], ...] = (
    (bool, "true or false"),
    (str, "text"),
    (int, "a number"),
    (float, "a number"),
    (list, "a list"),
    (dict, "an object"),
)


def _kind(value: Any) -> str:
    return next((name for kind, name in _KINDS if isinstance(value, kind)), "null")
