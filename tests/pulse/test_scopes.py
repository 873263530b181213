"""Which scope a state key belongs to."""

from __future__ import annotations

import pytest

from pulse.scopes import Scope, merge_state, parse_state_prefix, split_delta


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("theme", (Scope.SESSION, "theme")),
        ("user:lang", (Scope.USER, "lang")),
        ("app:model", (Scope.APP, "model")),
        ("temp:step", (Scope.TEMP, "step")),
        ("user:a:b", (Scope.USER, "a:b")),
        ("users:x", (Scope.SESSION, "users:x")),
        ("user", (Scope.SESSION, "user")),
        (":x", (Scope.SESSION, ":x")),
        ("", (Scope.SESSION, "")),
        ("user:", (Scope.USER, "")),
    ],
)
def test_the_prefix_decides_the_scope(key: str, expected: tuple[Scope, str]) -> None:
    assert parse_state_prefix(key) == expected


def test_split_and_merge_are_inverse_except_for_temp() -> None:
    delta = {"a": 1, "user:b": 2, "app:c": 3, "temp:d": 4}
    split = split_delta(delta)
    assert split.temp == {"d": 4}
    assert merge_state(split.session, split.user, split.app) == {"a": 1, "user:b": 2, "app:c": 3}
