"""Gemini API errors, parsed from status code and body."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from hippocampus import errors
from hippocampus.providers.gemini import faults
from hippocampus.providers.gemini.answers import read_answer

RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"


def body(*details: Any) -> dict[str, Any]:
    return {"error": {"code": 429, "message": "m", "status": "S", "details": list(details)}}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (429, errors.RateLimitedError),
        (408, errors.TransientProviderError),
        (500, errors.TransientProviderError),
        (503, errors.TransientProviderError),
        (529, errors.TransientProviderError),
        (501, errors.PermanentProviderError),
        (400, errors.PermanentProviderError),
        (403, errors.PermanentProviderError),
        (413, errors.PermanentProviderError),
        (302, errors.PermanentProviderError),
    ],
)
def test_the_code_decides_the_kind(code: int, kind: type[errors.ProviderError]) -> None:
    """Temporary faults are transient, all others permanent; the code is kept for the metrics."""
    error = faults.from_response(code, body())
    assert type(error) is kind
    assert error.code == str(code)


@pytest.mark.parametrize(
    ("delay", "seconds"),
    [("3s", 3.0), ("0.25s", 0.25), ("42.5s", 42.5), ("soon", None), ("", None), (None, None), ("-1s", None), (7, None)],
)
def test_the_retry_delay_is_parsed(delay: Any, seconds: float | None) -> None:
    """RetryInfo's duration in seconds; an invalid one is ignored."""
    error = faults.from_response(429, body({"@type": "other"}, {"@type": RETRY_INFO, "retryDelay": delay}))
    assert isinstance(error, errors.RateLimitedError)
    assert error.retry_after_seconds == seconds


def test_an_error_in_a_list_is_parsed() -> None:
    """Some responses wrap the error in a list."""
    error = faults.from_response(429, [body({"@type": RETRY_INFO, "retryDelay": "3s"})])
    assert isinstance(error, errors.RateLimitedError)
    assert error.retry_after_seconds == 3.0


@pytest.mark.parametrize("reason", ["API_KEY_INVALID", "API_KEY_EXPIRED"])
def test_a_bad_key_is_distinguished_from_a_bad_request(reason: str) -> None:
    """The API answers a bad key with 400: the message still names the key."""
    detail = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason}
    assert "GOOGLE_API_KEY" in str(faults.from_response(400, body(detail)))
    assert "GOOGLE_API_KEY" not in str(faults.from_response(400, body()))


def test_an_html_page_is_cut_in_the_message_and_kept_as_evidence() -> None:
    """A proxy's error page does not flood the log."""
    error = faults.from_response(502, {"message": "<p>" * 10_000, "status": "Bad Gateway"})
    assert len(str(error)) < 600
    assert error.raw_reply is not None
    assert len(error.raw_reply) > 30_000


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["error", "details", "message", "@type", "violations"]), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(st.integers(300, 599), json_values)
def test_any_body_yields_an_error(code: int, value: Any) -> None:
    """No body, however strange, hides the fault behind another error."""
    assert isinstance(faults.from_response(code, value), errors.ProviderError)


def test_a_reply_with_half_a_character_is_kept_as_evidence() -> None:
    """Found by fuzzing: it ended in an error of the serialiser, and not in one of the provider."""
    part = {"text": "Ly\ud800on"}
    response = types.GenerateContentResponse.model_validate({"candidates": [{"content": {"parts": [part]}}]})
    answer = read_answer(response)
    assert (answer.text, json.loads(answer.raw)["candidates"][0]["content"]["parts"]) == ("Ly\ud800on", [part])
