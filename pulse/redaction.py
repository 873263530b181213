"""Secrets in what users and agents write: found, and masked or refused, before anything is stored.

An app's policy decides (`redaction`: ``off``, ``mask`` or ``refuse``). The statement gateway applies it to the
arguments that a statement declares, so that nothing bypasses it. `SecretRedactor` is the default; a
process may use another by `use_redactor`, or by HIPPOCAMPUS_REDACTOR.

What was found is counted by kind, and is never logged: neither is its length nor a hash of it.
"""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from pulse.errors import InvalidInputError, SecretRefusedError

#: What an app's policy says: store as it is, store with masks, or refuse the whole call.
RedactionMode: TypeAlias = Literal["off", "mask", "refuse"]
#: Called with the kind of a secret, ``masked`` or ``refused``, and how many there were.
RedactionObserver: TypeAlias = Callable[[str, str, int], None]

Given = TypeVar("Given")

#: The greatest length of a JSON member's secret that is found by the member's name alone.
_NAMED_LENGTH_MAX: Final = 4096
_DEPTH_MAX: Final = 250
#: Read beyond a cut: longer than most secrets. Of a private key the rest is found without its end.
_CUT_MARGIN: Final = 512
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_IN_ASCII = json.JSONEncoder(separators=(",", ":"))
_observers: list[RedactionObserver] = []


class Secret(NamedTuple):
    """A secret in a text: its kind, and where it starts and ends, in characters."""

    kind: str
    start: int
    end: int


class Redactor(Protocol):
    """Finds secrets in a text. It must be fast, thread-safe, and linear in the text's length."""

    def find(self, text: str) -> Sequence[Secret]:
        """Return the secrets of a text in any order; they may overlap."""

    def is_secret_name(self, name: str) -> bool:
        """Return whether the text value of a JSON member of this name is a secret, whatever it looks like."""


@dataclass(frozen=True, slots=True)
class _Form:
    """A form of secrets: searched only in texts that hold one of its marks. Group 1, if any, is the secret itself."""

    kind: str
    marks: tuple[str, ...]
    pattern: re.Pattern[str]
    ignores_case: bool = False


def _form(kind: str, marks: str, pattern: str, *, ignores_case: bool = False) -> _Form:
    flags = re.IGNORECASE | re.ASCII if ignores_case else re.ASCII
    return _Form(kind, tuple(marks.split()), re.compile(pattern, flags), ignores_case)


def _is_card(found: str) -> bool:
    """Whether digits are a card's number: of a known issuer and length, with the right check digit."""
    digits = [int(sign) for sign in found if sign.isdigit()]
    head, length = int("".join(map(str, digits[:4]))), len(digits)
    known = (
        (head // 1000 == 4 and length in (13, 16, 19))
        or (length == 16 and (5100 <= head <= 5599 or 2221 <= head <= 2720 or 3528 <= head <= 3589))
        or (length == 15 and head // 100 in (34, 37))
        or (length == 14 and (head // 10 in range(300, 306) or head // 100 in (36, 38, 39)))
        or (16 <= length <= 19 and (head == 6011 or head // 10 in range(644, 650) or head // 100 in (62, 65)))
    )
    return known and len(set(digits)) > 1 and _has_check_digit(digits)


def _has_check_digit(digits: Sequence[int]) -> bool:
    doubled = [2 * digit - 9 * (digit > 4) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


# Each pattern is linear: repetitions are possessive or bounded, and what may be long starts only where a word starts,
# so that no character is read again from each of its neighbours.
_START = r"(?<![A-Za-z0-9_-])"
# Ahead of a value: letters and digits, and neither a mask nor a template. What is written in prose has no digits.
_VALUE = r"[^\s\"'`,;&<>]"
_MIXED = rf"(?!\[redacted:|\$[{{(]|{{{{)(?={_VALUE}{{0,64}}?\d)(?={_VALUE}{{0,64}}?[a-z])"
_FORMS: Final = (
    _form("aws_key", "AKIA ASIA ABIA ACCA", _START + r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}(?![A-Z0-9])"),
    _form("google_key", "AIza GOCSPX- ya29.", _START + r"(?:AIza[\w-]{35}|GOCSPX-[\w-]{28}|ya29\.[\w.-]{20,}+)"),
    _form("github_token", "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
          _START + r"(?:gh[pousr]_[A-Za-z0-9]{36,255}+|github_pat_\w{22,255}+)"),
    _form("gitlab_token", "glpat-", _START + r"glpat-[\w.-]{20,}+"),
    _form("slack_token", "xox hooks.slack.com",
          _START + r"(?:xox[abeoprs]-[\w-]{10,}+|hooks\.slack\.com/services/[\w/]{20,}+)"),
    _form("api_key", "sk- sk_ pk_ rk_ whsec_ hf_ npm_ pypi- SG. dop_v1_ hip_ gsk_ xai- r8_ shpat_ lin_api_",
          _START + r"(?:sk-[\w-]{20,}+|[spr]k_(?:live|test)_\w{16,}+|whsec_[\w+/=]{24,}+|hf_[A-Za-z0-9]{30,}+"
          r"|npm_[A-Za-z0-9]{36}|pypi-[\w-]{50,}+|SG\.[\w-]{16,}+\.[\w-]{16,}+|dop_v1_[a-f0-9]{64}"
          r"|hip_[a-z0-9]{12}_[\w-]{43}|gsk_\w{40,}+|xai-\w{40,}+|r8_\w{30,}+|shpat_[a-fA-F0-9]{32}"
          r"|lin_api_\w{30,}+)"),
    _form("jwt", "eyJ", _START + r"eyJ[\w-]{8,}+\.[\w-]{8,}+(?:\.[\w-]*+){1,3}"),
    _form("bearer_token", "bearer basic token",
          rf"\b(?:bearer|basic|token)[ \t]{{1,4}}{_MIXED}([\w.~+/=-]{{16,}}+)", ignores_case=True),
    _form("url_credentials", "://", r"://[^\s/:@\"'<>]{0,256}+:(?!\[redacted:)([^\s/@\"'<>]{1,256}+)@"),
    _form("password", "passw passphrase pwd secret api_key apikey api-key access_token auth_token access_key",
          r"(?:passw(?:or)?d|passphrase|pwd|secret(?:[_-]?(?:access[_-]?)?key)?|api[_-]?key|access[_-]?token|auth[_-]?token"
          r"|access[_-]?key)[\"']?[ \t]{0,4}(?::|=>?|\bis\b)[ \t]{0,4}[\"']?" + _MIXED + rf"({_VALUE}{{6,512}}+)",
          ignores_case=True),
)  # fmt: skip
# Groups of digits with one kind of separator, as they are printed on cards, or none.
_CARD = re.compile(
    r"(?<![\d.,])(?<!\d[ -])(?:\d{13,19}|\d{4}([ -])\d{4}\1\d{4}\1\d{1,7}|\d{4}([ -])\d{6}\2\d{4,5})(?![\d]|[.,]\d)",
    re.ASCII,
)
_PEM_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----", re.ASCII)
_PEM_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----", re.ASCII)
# The lines of a key that was cut short, with line ends as in text, in JSON or in a shell.
_PEM_BODY = re.compile(r"(?:[A-Za-z0-9+/=\s]|\\n|\\r|(?:Proc-Type|DEK-Info|Version|Comment):[^\n]{0,100}+)*+", re.ASCII)
_DIGITS = re.compile(r"\d{4}", re.ASCII)
_SECRET_NAMES: Final = frozenset(
    "authorization proxyauthorization cookie setcookie password passwd passphrase pwd secret clientsecret secretkey"
    " secretaccesskey token accesstoken refreshtoken idtoken authtoken sessiontoken bearertoken apikey xapikey"
    " accesskey privatekey signingkey credential credentials connectionstring".split()
)
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]", re.ASCII)


class SecretRedactor:
    """The default: keys and tokens of known forms, private keys, JWTs, credentials in URLs, passwords, card numbers.

    It reads a text once for each form whose mark the text holds, so a text without secrets costs little.
    """

    def find(self, text: str) -> list[Secret]:
        """Return the secrets of a text."""
        found: list[Secret] = []
        lower: str | None = None
        for form in _FORMS:
            if form.ignores_case:
                lower = text.lower() if lower is None else lower
                if not any(mark in lower for mark in form.marks):
                    continue
            elif not any(mark in text for mark in form.marks):
                continue
            group = form.pattern.groups
            for match in form.pattern.finditer(text):
                found.append(Secret(form.kind, *match.span(group)))
        if _DIGITS.search(text):
            found += [Secret("card_number", *match.span()) for match in _CARD.finditer(text) if _is_card(match[0])]
        if "PRIVATE KEY" in text:
            found += _private_keys(text)
        return found

    def is_secret_name(self, name: str) -> bool:
        """Return whether a member is named like a secret: ``Authorization``, ``api_key``, ``clientSecret`` …"""
        return len(name) <= 40 and _NOT_IN_NAMES.sub("", name.rpartition(":")[2].lower()) in _SECRET_NAMES


def _private_keys(text: str) -> Iterator[Secret]:
    at = 0
    ends = _PEM_END.search(text)
    while begin := _PEM_BEGIN.search(text, at):
        while ends is not None and ends.start() < begin.end():
            ends = _PEM_END.search(text, ends.end())
        body = _PEM_BODY.match(text, begin.end())
        at = body.end() if body else begin.end()
        if ends is not None and ends.start() == at:
            at = ends.end()
        yield Secret("private_key", begin.start(), at)


_redactor: Redactor = SecretRedactor()


def use_redactor(redactor: Redactor) -> None:
    """Have this process find secrets by another redactor from now on."""
    global _redactor  # noqa: PLW0603 - one of the process, as the observers are
    _redactor = redactor


def observe_redactions(observer: RedactionObserver) -> Callable[[], None]:
    """Report what this process masks and refuses to `observer` from now on; return the function that ends it."""
    _observers.append(observer)
    return functools.partial(_observers.remove, observer)


def redact(value: Given, mode: RedactionMode, *, as_json: bool = False) -> Given:
    """Return a value without its secrets; the value itself if it has none.

    Args:
        value: texts in lists, tuples and objects of any depth. A named tuple may say in `REDACTED` which of its fields
            hold words of users, and in `REDACTED_JSON` which of them are JSON texts.
        mode: ``mask`` writes ``[redacted:KIND]`` in place of each secret.
        as_json: texts are JSON texts.

    Raises:
        SecretRefusedError: the mode is ``refuse``, and there is a secret.
    """
    if mode == "off":
        return value
    walk = _Walk(_redactor)
    redacted = walk.json(value) if as_json else walk.value(value)
    if walk.counts:
        outcome = "masked" if mode == "mask" else "refused"
        for observer in list(_observers):
            for kind, count in walk.counts.items():
                observer(kind, outcome, count)
        if mode == "refuse":
            raise SecretRefusedError(
                f"the text holds secrets ({', '.join(sorted(walk.counts))}), and the app's policy refuses them:"
                " remove them; nothing was stored"
            )
    return cast("Given", redacted)


def mask_secrets(text: str, mask: str) -> str:
    """Return a text with `mask` in place of each secret that the process's redactor finds; nothing is counted."""
    return "".join(piece if kind is None else mask for kind, piece in _pieces(_redactor, text))


def mask_and_cut(text: str, limit: int, mask: str) -> str:
    """Return at most `limit` characters of a text with masks, one of them for a secret that lies across the cut."""
    head = text[: limit + _CUT_MARGIN]
    shown = mask_secrets(head, mask)
    if len(head) < len(text):
        # The end may be the beginning of a secret, and masks that are shorter than secrets have moved it forward.
        shown = shown[:-_CUT_MARGIN]
    return shown[:limit]


def _pieces(redactor: Redactor, text: str) -> Iterator[tuple[str | None, str]]:
    """Cut a text into what is shown (None) and secrets, with their kinds; overlapping ones are one."""
    at = 0
    for kind, start, end in sorted(redactor.find(text), key=lambda secret: (secret.start, -secret.end)):
        if start >= at:
            yield None, text[at:start]
            yield kind, text[start:end]
        at = max(at, end)
    yield None, text[at:]


class _Walk:
    """One pass over a value, and what it found by kind."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self.counts: Counter[str] = Counter()

    def value(self, value: Any, depth: int = 0) -> Any:
        """Return a copy without secrets, or the value itself."""
        if isinstance(value, str):
            return self._text(value)
        if value is None or isinstance(value, int | float | bytes):
            return value
        if depth > _DEPTH_MAX:
            raise InvalidInputError(f"nested more than {_DEPTH_MAX} deep: flatten it; nothing was stored")
        if isinstance(value, Mapping):
            return self._object(value, depth)
        if isinstance(value, tuple) and hasattr(value, "_replace"):
            return self._record(value, depth)
        if isinstance(value, list | tuple):
            items = [self.value(item, depth + 1) for item in value]
            return value if all(map(_is, items, value)) else type(value)(items)
        return value

    def json(self, value: Any) -> Any:
        """As `value`, but each text is a JSON text."""
        if isinstance(value, str):
            return self._json(value)
        if isinstance(value, list | tuple):
            items = [self.json(item) for item in value]
            return value if all(map(_is, items, value)) else type(value)(items)
        return value

    def _json(self, text: str) -> str:
        # Decoded, since an escape of JSON may hide a form.
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            # Such as a number of 5,000 digits. A mask is valid within a string of JSON, and so where secrets are.
            return self._text(text)
        redacted = self.value(value)
        if redacted is value:
            return text
        written = _JSON.encode(redacted)
        try:
            written.encode()
        except UnicodeEncodeError:
            return _IN_ASCII.encode(redacted)
        return written

    def _record(self, record: Any, depth: int) -> Any:
        fields = getattr(record, "REDACTED", record._fields)
        texts = {name: self.value(getattr(record, name), depth + 1) for name in fields}
        texts |= {name: self.json(getattr(record, name)) for name in getattr(record, "REDACTED_JSON", ())}
        changed = {name: text for name, text in texts.items() if text is not getattr(record, name)}
        return record._replace(**changed) if changed else record

    def _object(self, value: Mapping[Any, Any], depth: int) -> Any:
        redacted: dict[Any, Any] = {}
        is_same = True
        for key, item in value.items():
            name = self._text(key) if isinstance(key, str) else key
            while name is not key and name in redacted:
                name += "_"
            if (
                isinstance(item, str)
                and 0 < len(item) <= _NAMED_LENGTH_MAX
                and isinstance(key, str)
                and self._redactor.is_secret_name(key)
            ):
                new: Any = self._named(item)
            else:
                new = self.value(item, depth + 1)
            is_same = is_same and name is key and new is item
            redacted[name] = new
        return value if is_same else redacted

    def _named(self, text: str) -> str:
        if text.startswith("[redacted:") and text.endswith("]"):
            return text
        self.counts["named"] += 1
        return "[redacted:named]"

    def _text(self, text: str) -> str:
        if len(text) < 8:
            return text
        pieces = list(_pieces(self._redactor, text))
        if len(pieces) == 1:
            return text
        self.counts.update(kind for kind, _ in pieces if kind is not None)
        return "".join(piece if kind is None else f"[redacted:{kind}]" for kind, piece in pieces)


def _is(one: Any, other: Any) -> bool:
    return one is other
