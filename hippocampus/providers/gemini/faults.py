"""What an error of the Gemini API means. Pure: reads the code and the body, knows no client library.

429                         RateLimitedError, with the delay of RetryInfo, or of the headers; `daily` by QuotaFailure
408, 5xx                    TransientProviderError
400, 401, 403, 404, other   PermanentProviderError, saying what to do
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from hippocampus.errors import (
    PermanentProviderError,
    ProviderError,
    RateLimitedError,
    TransientProviderError,
)
from hippocampus.providers import http_faults

#: What an operator can do about it.
_ADVICE = {
    400: "check the model's name and its limits against the message; the same request will fail again",
    401: "the key is not accepted: set a valid GOOGLE_API_KEY",
    403: "the key may not use this model or API: check the key's project, its restrictions and its billing",
    404: "the model does not exist for this key: check the model's name",
}
_REDIRECTED = "it redirects, and no redirect is followed: set the base URL to the address where the API is"
_WRONG_KEY = "the key is not valid: set a valid GOOGLE_API_KEY"

#: With 501 and 505 the server will never do it.
_HOPELESS = frozenset({501, 505})

_DURATION = re.compile(r"(\d{1,9}(?:\.\d+)?)s")

#: Characters of an error's own text: a proxy may send a page of HTML.
_MESSAGE_CHARACTERS_MAX = 500


def from_response(code: int, body: Any, headers: Mapping[str, str] | None = None) -> ProviderError:
    """Return the error for an HTTP status, its decoded body and lower-case header names.

    A gateway before the API, which knows nothing of RetryInfo, requests its delay by Retry-After.
    """
    error = _error_of(body)
    detail = _message_of(error)
    evidence = _evidence_of(body)
    requested = retry_after_seconds(error)
    if requested is None:
        requested = http_faults.retry_after_seconds(headers or {})
    if code == 429:
        daily = is_daily(error)
        quota = "the day's quota is used up" if daily else "the rate limit is reached"
        return RateLimitedError(
            f"Gemini: 429, {quota}. {detail}",
            raw_reply=evidence,
            retry_after_seconds=requested,
            daily=daily,
        )
    if code == 408 or (code >= 500 and code not in _HOPELESS):
        return TransientProviderError(
            f"Gemini: {code}. {detail}", code=str(code), raw_reply=evidence, retry_after_seconds=requested
        )
    advice = _WRONG_KEY if _is_key_problem(error) else _ADVICE.get(code, "the same request will fail again")
    if 300 <= code < 400:
        advice = _REDIRECTED
    return PermanentProviderError(f"Gemini: {code}, {advice}. {detail}", code=str(code), raw_reply=evidence)


def _evidence_of(body: Any) -> str | None:
    try:
        return json.dumps(body, ensure_ascii=False, default=str)
    except RecursionError:
        return None


def retry_after_seconds(error: Mapping[str, Any]) -> float | None:
    """Return the delay that RetryInfo requests; None if there is none, or none that can be parsed."""
    for detail in _details(error, "google.rpc.RetryInfo"):
        match = _DURATION.fullmatch(str(detail.get("retryDelay", "")))
        if match:
            return float(match.group(1))
    return None


def is_daily(error: Mapping[str, Any]) -> bool:
    """Return whether QuotaFailure names a daily quota."""
    return any(
        "PerDay" in str(violation.get("quotaId", ""))
        for detail in _details(error, "google.rpc.QuotaFailure")
        for violation in _mappings(detail.get("violations"))
    )


def _is_key_problem(error: Mapping[str, Any]) -> bool:
    reasons = {str(detail.get("reason")) for detail in _details(error, "google.rpc.ErrorInfo")}
    return bool(reasons & {"API_KEY_INVALID", "API_KEY_EXPIRED"})


def _error_of(body: Any) -> Mapping[str, Any]:
    """Return the error object of a body; streaming calls wrap it in a list of one."""
    if isinstance(body, list) and len(body) == 1:
        body = body[0]
    if not isinstance(body, Mapping):
        return {}
    inner = body.get("error")
    return inner if isinstance(inner, Mapping) else body


def _message_of(error: Mapping[str, Any]) -> str:
    message = " ".join(str(error.get("message") or "no message").split())
    return f"It says: {message[:_MESSAGE_CHARACTERS_MAX]}"


def _details(error: Mapping[str, Any], kind: str) -> Iterable[Mapping[str, Any]]:
    return (detail for detail in _mappings(error.get("details")) if str(detail.get("@type", "")).endswith(kind))


def _mappings(value: Any) -> Iterable[Mapping[str, Any]]:
    return (item for item in value if isinstance(item, Mapping)) if isinstance(value, list) else ()
