"""`hippocampus keys`."""

from __future__ import annotations

import json

import pytest

from tests.support.cli_commands import Run


@pytest.fixture(autouse=True)
def _on_this_database(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", dsn)


def test_keys_are_created_listed_and_revoked(run: Run) -> None:
    """The key is printed once and is never listed. Revoking it again changes nothing."""
    code, out, err = run(
        "keys", "create", "--app", "shop", "--role", "append", "--role", "read", "--expires", "90d", "--json"
    )
    assert code == 0, err
    key = json.loads(out)
    assert (key["app_name"], key["roles"], key["status"]) == ("shop", ["append", "read"], "good")
    listed = run("keys", "list")[1]
    assert key["id"] in listed
    assert key["key"].removeprefix(f"hip_{key['id']}_") not in listed
    ended, again = (json.loads(run("keys", "revoke", key["id"], "--json")[1]) for _ in range(2))
    assert ended["status"] == "revoked"
    assert again == ended


def test_a_wrong_key_is_refused(run: Run) -> None:
    for arguments in (("revoke", "nobody"), ("create", "--role", "read"), ("create", "--app", "a")):
        code, _, err = run("keys", *arguments)
        assert code in (1, 2)
        assert err
    assert "90d" in run("keys", "create", "--app", "a", "--role", "read", "--expires", "soon")[2]
