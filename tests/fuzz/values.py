"""Hostile values: what JSON, HTTP and files can carry, and programs rarely expect. All come from one `Random`."""

from __future__ import annotations

import json
import random
from typing import Any

#: Bounds, lone surrogates, marks of direction, what other programs treat as syntax.
TEXTS = (
    "", " ", "\t", "a", "null", "0", "-1", "1e999", "NaN", "\u0000", "\ud800", "\udfff\ud800", "\u202eabc\u202c",
    "\u2067x\u2069",    "\ufeff", "e\u0301", "İ", "ß", "🙂" * 3, "'; DROP TABLE events; --", '"',
    "\\", "%00", "%ff", "../..", "{}", "[]",
    "user:a", "app:b", "temp:c", "x" * 255, "x" * 256, "é" * 300, "2024-02-30", "9999-12-31T23:59:59.999999Z",
    "-infinity", "infinity", "00000000-0000-0000-0000-000000000000", "$ne", "a.b.c", "*", "a\nb", "a\r\nb",
)  # fmt: skip
NUMBERS = (
    0, 1, -1, 2**31 - 1, 2**31, 2**53, 2**63 - 1, 2**63, -(2**63) - 1, 10**40, 0.1, -0.0, 1e308, 1e-320, 62135596800,
    -62135596800, 253402300800,
)  # fmt: skip
_DEPTH_MAX = 4


class Values:
    """Draws values."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def text(self) -> str:
        """Return a hostile text, or some of random characters."""
        rng = self.rng
        if rng.random() < 0.6:
            return rng.choice(TEXTS)
        alphabet = rng.choice(
            ((32, 126), (0, 0x2FF), (0x590, 0x6FF), (0x4E00, 0x4EFF), (0x1F300, 0x1F6FF), (0, 0x10FFFF))
        )
        return "".join(chr(rng.randint(*alphabet)) for _ in range(rng.choice((1, 3, 12, 60))))

    def json(self, depth: int = 0) -> Any:
        """Return any JSON value; seldom one that is very deep."""
        rng = self.rng
        kind = rng.random()
        if depth >= _DEPTH_MAX or kind < 0.3:
            return self.text()
        if kind < 0.5:
            return rng.choice(NUMBERS)
        if kind < 0.6:
            return rng.choice((None, True, False))
        if kind < 0.61:
            value: Any = {}
            for _ in range(rng.choice((50, 400))):
                value = [value] if rng.random() < 0.5 else {"a": value}
            return value
        if kind < 0.8:
            return [self.json(depth + 1) for _ in range(rng.randint(0, 4))]
        return {self.text(): self.json(depth + 1) for _ in range(rng.randint(0, 4))}

    def mutated(self, value: Any) -> Any:
        """Return a JSON value with one of its parts replaced, removed, repeated or wrapped."""
        rng = self.rng
        if not isinstance(value, dict | list) or not value or rng.random() < 0.15:
            return rng.choice((self.json(2), [value], {"a": value}, str(value)))
        if isinstance(value, list):
            place = rng.randrange(len(value))
            changed = (
                [*value[:place], *value[place + 1 :]],
                [*value, value[place]],
                [*value[:place], self.mutated(value[place]), *value[place + 1 :]],
            )
            return rng.choices(changed, (1, 1, 4))[0]
        key = rng.choice(list(value))
        rest = {each: item for each, item in value.items() if each != key}
        return rng.choices(
            (rest, {**value, self.text(): self.json(2)}, {**value, key: self.mutated(value[key])}), (1, 1, 5)
        )[0]

    def bytes(self, content: bytes) -> bytes:
        """Return content with some bytes flipped, cut out, repeated or put in."""
        rng = self.rng
        changed = bytearray(content)
        for _ in range(rng.choice((1, 1, 2, 8))):
            place = rng.randrange(len(changed) + 1)
            length = rng.choice((1, 2, 16, 200))
            kind = rng.randrange(4)
            if kind == 0 and place < len(changed):
                changed[place] ^= 1 << rng.randrange(8)
            elif kind == 1:
                del changed[place : place + length]
            elif kind == 2:
                changed[place:place] = changed[place : place + length]
            else:
                changed[place:place] = self.text().encode("utf-8", "surrogatepass")
        return bytes(changed)

    def body(self, value: Any) -> bytes:
        """Return a value as a request's body: seldom broken as text."""
        sent = json.dumps(value, ensure_ascii=self.rng.random() < 0.5).encode("utf-8", "surrogatepass")
        return self.bytes(sent) if self.rng.random() < 0.1 else sent
