"""Secrets in texts: found by their form, masked or refused, in linear time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.errors import InvalidInputError, SecretRefusedError
from pulse.event_rows import event_input
from pulse.events import Event, EventActions
from pulse.redaction import Secret, SecretRedactor, mask_and_cut, observe_redactions, redact, use_redactor
from tests.support.pace import cpu_seconds

#: Made up for these tests; split, so that no scanner takes this file for a leak.
PEM = "-----BEGIN RSA PRIVATE " + "KEY-----\nMIIEpAIBAAKCAQEA7bq3\nq8Zc==\n-----END RSA PRIVATE " + "KEY-----"
SECRETS = {
    "aws_key": "AKIA" + "IOSFODNN7EXAMPLE",
    "google_key": "AIza" + "SyA1234567890abcdefghijklmnopqrstuv",
    "github_token": "ghp_" + "0123456789abcdefghijklmnopqrstuvwxyz",
    "gitlab_token": "glpat-" + "0123456789abcdefghij",
    "slack_token": "xoxb-" + "123456789012-abcdefghijkl",
    "api_key": "sk-proj-" + "0123456789abcdefghijABCDEFGHIJ",
    "jwt": "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0." + "dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    "bearer_token": "Bearer " + "AbCdEf0123456789ghijkl",
    "url_credentials": "postgresql://shop:" + "hunter2-long@db.internal:5432/shop",
    "password": "password: " + "hunter2secret",
    "card_number": "4111 1111 1111 1111",
    "private_key": PEM,
}
INNOCENT = (
    "3f2504e0-4f89-41d3-9a0c-0305e82c3301",  # a UUID
    "订单号是 202611221320081234567,请尽快处理。密码忘记了怎么办?",
    "The order 4111111111111112 has a wrong check digit, and 1763817608123 is a time.",
    "max_tokens: 4096, token_count=123456 and the password: required",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "see https://example.com/a/b?c=d and mailto:mei@example.com at 10:30:45",
    "He told me that the secret is kindness, and the bearer of this letter is basic in manners.",
    "Connect with postgresql://${USER}:[redacted:url_credentials]@db/shop and password=${DB_PASSWORD_1}",
    "version 1.2.3-rc.4, build 2026.11.22, +44 20 7946 0958, IBAN DE89 3704 0044 0532 0130 00",
)


@pytest.mark.parametrize("kind", SECRETS)
def test_each_form_is_masked_within_a_text_and_once(kind: str) -> None:
    """What is around a secret stays, and a masked text holds no secret any more."""
    text = f"你好, here it is: {SECRETS[kind]}\nthank you"
    masked = redact(text, "mask")
    assert masked.startswith("你好, here it is: ")
    assert masked.endswith("\nthank you")
    assert f"[redacted:{kind}]" in masked
    secret = max(SECRETS[kind].replace("@", " ").replace("/", " ").split(), key=len)
    assert secret not in masked
    assert redact(masked, "mask") == masked
    assert redact(masked, "refuse") == masked
    with pytest.raises(SecretRefusedError) as refused:
        redact(text, "refuse")
    assert kind in str(refused.value)
    assert secret not in str(refused.value)
    assert redact(text, "off") is text


@pytest.mark.parametrize("text", INNOCENT)
def test_what_is_no_secret_stays_the_same_object(text: str) -> None:
    """Ids, times, numbers, prose and templates in two languages are not taken for secrets."""
    assert SecretRedactor().find(text) == []
    value = {"text": text, "more": [text, {"max_tokens": 7, "note": None}]}
    assert redact(value, "mask") is value


def test_values_under_secret_names_are_masked_whatever_they_are() -> None:
    """Names are compared without case, signs and a state's prefix; numbers and objects are walked, not masked."""
    given_value = {
        "Authorization": "x",
        "user:api-key": "short",
        "headers": {"Set-Cookie": "a=b"},
        "token": 7,
        "n": "x",
    }
    counted: list[tuple[str, str, int]] = []
    end = observe_redactions(lambda *each: counted.append(each))
    masked = redact(given_value, "mask")
    end()
    mask = "[redacted:named]"
    assert masked == {
        "Authorization": mask,
        "user:api-key": mask,
        "headers": {"Set-Cookie": mask},
        "token": 7,
        "n": "x",
    }
    assert counted == [("named", "masked", 3)]
    assert redact(masked, "refuse") is masked


def test_the_fields_of_an_event_are_masked_and_its_names_are_not() -> None:
    """Body, message and deltas lose the secret, also where JSON escapes hide it; ids and authors stay."""
    secret = SECRETS["aws_key"]
    event = Event(
        id=secret,
        author=secret,
        content={"text": f"key {secret}", "half \ud83d": 1},
        actions=EventActions(state_delta={"note": secret, "user:keys": [secret]}),
    )
    row = redact(event_input(event), "mask")
    assert (row.id, row.author) == (secret, secret)
    assert secret not in "".join(map(str, row[4:]))
    assert json.loads(row.content) == {"text": "key [redacted:aws_key]", "half \ud83d": 1}
    assert row.session_delta == {"note": "[redacted:aws_key]"}
    assert row.user_delta == {"keys": ["[redacted:aws_key]"]}
    hidden = json.dumps({"text": secret}).replace("A", "\\u0041")
    assert secret not in json.loads(redact(hidden, "mask", as_json=True))["text"]
    unreadable = f'{{"n": {"9" * 5000}, "text": "{secret}"}}'
    assert secret not in redact(unreadable, "mask", as_json=True)
    with pytest.raises(InvalidInputError):
        redact(json.loads("[" * 300 + "]" * 300), "mask")


def test_a_redactor_of_the_process_replaces_the_default() -> None:
    """Overlapping finds become one mask, and what it finds is counted by its own kinds."""

    class Names:
        def find(self, text: str) -> Sequence[Secret]:
            at = text.find("Rumpelstiltskin")
            return [] if at < 0 else [Secret("name", at, at + 15), Secret("part", at + 3, at + 9)]

        def is_secret_name(self, name: str) -> bool:
            return False

    use_redactor(Names())
    try:
        assert redact(["I am Rumpelstiltskin!", SECRETS["aws_key"]], "mask") == [
            "I am [redacted:name]!",
            SECRETS["aws_key"],
        ]
    finally:
        use_redactor(SecretRedactor())


#: Texts that make a backtracking or restarting search quadratic.
HOSTILE = (
    "eyJ", "eyJaaaaaaaa.", "eyJaaaaaaaa.aaaaaaaa.", "-----BEGIN PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\nA",
    "-----END PRIVATE KEY----------BEGIN PRIVATE KEY-----", "4", "4 ", "4444 ", "4111-", "://", "://a:", "bearer ",
    "bearer a",
    "password=", "password: ", "secret_key", "sk-", "SG.", "SG.aaaaaaaaaaaaaaaaaaaaaaaa ", "ya29.", "glpat-.", "a",
    "密码",
    "hooks.slack.com/services/", "xoxb-", "secret is ", "\\n", " ", "-", "[redacted:", "A1",
)  # fmt: skip


def test_a_megabyte_of_anything_takes_linear_time() -> None:
    """Twice the text takes about twice the time, for each form's worst text, and a megabyte under two seconds."""
    redactor = SecretRedactor()

    def seconds(text: str) -> float:
        return cpu_seconds(lambda: redactor.find(text))

    for part in HOSTILE:
        for start in ("", "-----BEGIN PRIVATE KEY-----", "sk-", "://a:", "password="):
            small, large = (start + part * (size // len(part)) for size in (10_000, 100_000))
            assert seconds(large) < max(0.4, 40 * seconds(small)), (start, part)
    assert seconds(max(HOSTILE[:5]) * 100_000) < 2


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda each: st.lists(each) | st.dictionaries(st.text(), each),
    )
)
def test_any_json_value_without_secrets_is_unchanged_and_masking_is_idempotent(value: Any) -> None:
    """Masking never fails on a JSON value, and masking again changes nothing."""
    once = redact(value, "mask")
    assert redact(once, "mask") == once


def test_no_secret_is_left_at_a_cut() -> None:
    """Neither of one across the cut, nor of one beyond it that shorter masks have moved forward."""
    key = "AKIAABCDEFGHIJKLMNOP"
    token = "ghp_" + "a1" * 120
    for before in ("", f"{token} " * 4):
        for at in range(980, 1700, 7):
            text = before + "x" * (at - len(before) - 1) + f" {key} " + "y" * 2000
            shown = mask_and_cut(text, 1000, "[redacted]")
            assert len(shown) <= 1000
            assert "AKIA" not in shown, (before, at)
    assert mask_and_cut(f"a {key}", 1000, "[redacted]") == "a [redacted]"
