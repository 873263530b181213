"""What an error response of an HTTP API means. Pure: reads status, headers and body, knows no client library.

429                         RateLimitedError, with the requested delay; `daily` if the message names a daily quota
429, quota or balance used  PermanentProviderError: no wait helps
408, 409, 5xx               TransientProviderError
400, a content filter       BlockedReplyError
3xx, other 4xx, 501         PermanentProviderError, saying what to do

The bodies of errors differ from server to server: ``{"error": {"message", "type", "code", "param"}}`` with ``code`` a
text or a number, ``{"error": "text"}``, the same without the wrapper, in a list of one, ``{"detail": …}``, HTML.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from hippocampus.errors import (
    BlockedReplyError,
    PermanentProviderError,
    ProviderError,
    RateLimitedError,
    TransientProviderError,
)
from hippocampus.providers.calls import WAIT_SECONDS_MAX

#: With 501 and 505 the server will never do it.
_HOPELESS = frozenset({501, 505})
#: Characters of an error's own text: a proxy may send a page of HTML.
_MESSAGE_CHARACTERS_MAX = 500
_EVIDENCE_CHARACTERS_MAX = 100_000

_ADVICE = {
    400: "check the model's name and its limits against the message; the same request will fail again",
    401: "the key is not accepted: check the API key and the base URL that it is sent to",
    402: "the account has no balance",
    403: "the key may not use this model or API",
    404: "there is no such model or path: check the model's name, and whether the base URL should end in /v1",
    413: "the request is too large for this server",
    501: "the server does not offer this: start it with this function enabled, or choose another model",
}
_CONTEXT_ADVICE = (
    "the text does not fit the model's context: enlarge the context of the server, or lower HIPPOCAMPUS_SLICE_TOKENS"
    " or HIPPOCAMPUS_GENERATOR_OUTPUT_TOKENS_MAX"
)

_QUOTA_USED = re.compile(r"insufficient_quota|billing_hard_limit|billing_not_active|credit balance is too low", re.I)
_CONTEXT_USED = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum context length|context size"
    # Anthropic has no code for it. Some models count max_tokens too.
    r"|prompt is too long|exceed context limit",
    re.I,
)
_CONTENT_REFUSED = re.compile(r"content_filter|content_policy|content management policy", re.I)
_DAILY = re.compile(r"\bper[ _-]day\b|\bdaily\b|\((?:RPD|TPD)\)|PerDay", re.I)
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """What an error's body says, whatever its shape. Each is empty if it says nothing."""

    message: str
    words: str  # type, code and param, separated by spaces

    @property
    def text(self) -> str:
        """All of it, to be searched."""
        return f"{self.words} {self.message}"


def read_body(body: Any) -> ErrorBody:
    """Read the decoded body of an error; text if it was not JSON."""
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, Mapping):
        return ErrorBody(_one_line(body), "")
    error = body.get("error", body)
    if not isinstance(error, Mapping):
        return ErrorBody(_one_line(error), "")
    message = next((error[name] for name in ("message", "detail", "error", "msg") if error.get(name)), "")
    words = " ".join(str(error[name]) for name in ("type", "code", "param", "status") if error.get(name) is not None)
    return ErrorBody(_one_line(message), words)


def from_response(who: str, status: int, headers: Mapping[str, str], body: Any) -> ProviderError:
    """Return the error for a status, lower-case header names and a decoded body.

    Args:
        who: the provider and its address, as messages name it.
    """
    error = read_body(body)
    says = f" It says: {error.message}" if error.message else ""
    evidence = json.dumps(body, ensure_ascii=False, default=str)[:_EVIDENCE_CHARACTERS_MAX]
    code = str(status)
    if 300 <= status < 400:
        return PermanentProviderError(
            f"{who}: {code}, redirects to {headers.get('location', 'nowhere')!r}, and redirects are not followed:"
            " set the base URL to the final address",
            code=code,
            raw_reply=evidence,
        )
    if _QUOTA_USED.search(error.text):
        return PermanentProviderError(
            f"{who}: {code}, the account's quota or balance is used up: add credit, then run the failed jobs again."
            f"{says}",
            code="insufficient_quota",
            raw_reply=evidence,
        )
    requested = retry_after_seconds(headers)
    if status == 429:
        daily = bool(_DAILY.search(error.text))
        quota = "the day's quota is used up" if daily else "the rate limit is reached"
        return RateLimitedError(
            f"{who}: 429, {quota}.{says}", raw_reply=evidence, retry_after_seconds=requested, daily=daily
        )
    should_retry = headers.get("x-should-retry", "").lower()
    if should_retry == "true" or status in (408, 409) or (status >= 500 and status not in _HOPELESS):
        if should_retry == "false":
            # Not at once: the queue runs the job again later.
            requested = max(requested or 0.0, 2 * WAIT_SECONDS_MAX)
        return TransientProviderError(
            f"{who}: {code}.{says}", code=code, raw_reply=evidence, retry_after_seconds=requested
        )
    if _CONTENT_REFUSED.search(error.text):
        return BlockedReplyError(f"{who}: the content was refused.{says}", code="blocked", raw_reply=evidence)
    if _CONTEXT_USED.search(error.text):
        advice = _CONTEXT_ADVICE
    else:
        advice = _ADVICE.get(status, "the same request will fail again")
    return PermanentProviderError(f"{who}: {code}, {advice}.{says}", code=code, raw_reply=evidence)


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """Return the delay that the headers request; None if they request none that can be parsed.

    Retry-After-Ms, then Retry-After in seconds or as a date, then the time until an exhausted limit is reset.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    after = headers.get("retry-after")
    seconds = _number(after)
    if seconds is None and after:
        seconds = _until(after)
    if seconds is not None:
        return seconds
    resets = [
        _duration(headers.get(f"x-ratelimit-reset-{kind}", ""))
        for kind in ("requests", "tokens")
        if headers.get(f"x-ratelimit-remaining-{kind}") == "0"
    ]
    return max((each for each in resets if each is not None), default=None)


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if 0 <= number < math.inf else None


def _until(date: str) -> float | None:
    try:
        moment = parsedate_to_datetime(date)
    except ValueError:
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (aware - datetime.now(UTC)).total_seconds())


def _duration(text: str) -> float | None:
    """Return the seconds of ``1s``, ``6m0s``, ``20ms``, ``1h2m3s`` or ``1d2h``."""
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        return _number(text)
    days, hours, minutes, seconds, milliseconds = (float(group or 0) for group in match.groups())
    return days * 86_400 + hours * 3600 + minutes * 60 + seconds + milliseconds / 1000


def _one_line(message: Any) -> str:
    text = message if isinstance(message, str) else json.dumps(message, ensure_ascii=False, default=str)
    return " ".join(text.split())[:_MESSAGE_CHARACTERS_MAX]
