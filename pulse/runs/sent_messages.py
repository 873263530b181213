"""A client's messages, compared with the stored ones: texts, images and files, calls of tools and their results.

A client has a message as it sent it, or as it received it, where a large image is only named and the forms of other
frameworks are shown as AG-UI's. Of images and files, identities are compared (`pulse.message_parts.identity`), so that
the stored bytes stay in the database. Arguments and results that are JSON are compared as JSON: a client may write them
again. What cannot be compared counts as the same: a client that changed nothing is never refused.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pulse.agui import types as agui
from pulse.agui.messages import shown_arguments, shown_result, valid_parts
from pulse.events import message_text
from pulse.message_parts import is_known, may_be_same, media_identities, parts_of_outline
from pulse.postgres.json_values import clean_text, decode_body

#: What stands in place of a secret: see `pulse.redaction`.
_MASK: Final = re.compile(r"\[redacted:[^\]]*\]")
_NO_JSON: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class SentMessage:
    """What is compared of a client's message.

    Attributes:
        text: None if it is not compared.
        media: what identifies its images and files; None if they are not compared.
        is_list: it has parts.
        is_result: it is a tool's; its text is compared if the client has no parts of it.
        may_be_cut: the client may have received its text alone, which is streamed before the snapshot that has its
            images: no answer follows it.
    """

    text: str | None
    media: Sequence[str] | None = None
    is_list: bool = False
    is_result: bool = False
    may_be_cut: bool = False

    @property
    def digest(self) -> str | None:
        """The MD5 of its text."""
        return None if self.text is None else _digest(self.text)

    @property
    def media_lines(self) -> str | None:
        """Its images and files as `media_outline` in schema/functions/media.sql returns them."""
        return None if self.media is None else "\n".join(self.media)


@dataclass(frozen=True, slots=True, kw_only=True)
class SentCall:
    """What is compared of a call of a tool in a client's message.

    Attributes:
        message_id: the message's.
        calls: how many the message has.
    """

    message_id: str
    id: str
    arguments: str
    calls: int

    @property
    def digest(self) -> str:
        """The MD5 of its arguments."""
        return _digest(self.arguments)


def compared(messages: Sequence[agui.Message]) -> dict[str, SentMessage]:
    """Return what is compared of a client's messages, by their ids."""
    pairs = itertools.zip_longest(messages, messages[1:])
    return {each.id: found for each, following in pairs if (found := _compared(each, following)) is not None}


def compared_calls(messages: Sequence[agui.Message]) -> list[SentCall]:
    """Return what is compared of the calls in a client's messages."""
    return [
        SentCall(
            message_id=message.id,
            id=clean_text(call.id),
            arguments=clean_text(call.function.arguments),
            calls=len(message.tool_calls or ()),
        )
        for message in messages
        if isinstance(message, agui.AssistantMessage)
        for call in message.tool_calls or ()
    ]


def _compared(message: agui.Message, following: agui.Message | None) -> SentMessage | None:
    """Return what is compared of a message; None for nothing."""
    if isinstance(message, agui.AssistantMessage):
        text = message_text(message.content)
        return None if text is None else SentMessage(text=text)
    if not isinstance(message, agui.UserMessage | agui.ToolMessage):
        return None
    is_result = isinstance(message, agui.ToolMessage)
    if isinstance(message.content, str):
        # A client that followed the run has a result as text, whatever the tool returned.
        if is_result:
            return SentMessage(text=clean_text(message.content), is_result=True)
        may_be_cut = following is None or isinstance(following, agui.UserMessage)
        return SentMessage(text=message_text(message.content), media=(), may_be_cut=may_be_cut)
    parts = [part.model_dump(by_alias=True, mode="json") for part in message.content]
    text = None if is_result else message_text({"parts": parts}) or ""
    return SentMessage(text=text, media=media_identities(parts), is_list=True, is_result=is_result)


def difference(sent: SentMessage, row: Mapping[str, Any]) -> str | None:
    """Return what a stored message has that the client's has not; None if it may be the same."""
    is_answer = row["role"] == "assistant"
    if sent.is_result != (row["event_type"] == "observe") or (sent.is_list and row["outline"] is None):
        return None
    if sent.is_result and sent.text is not None:
        return None if _is_result(sent.text, row["result"]) else "another result"
    found = "another text"
    for text, media in _forms(sent, row):
        if sent.text is None or _continues(sent.text, text, is_answer=is_answer):
            if sent.media is None or media is None or _may_be_same(sent.media, media):
                return None
            found = "other images or files"
    return found


def differs(sent: SentCall, stored: str) -> bool:
    """Whether the arguments of a call are others than those in the content of its event."""
    content = _content(stored)
    text = shown_arguments(content)
    # A client that followed the run in part has the beginning; of a call that was cut off, the event may have less.
    if content.get("partial") is True or _continues(sent.arguments, text, is_answer=True):
        return False
    one, other = _json(sent.arguments), _json(text.strip() or "{}")
    # What clients send in place of arguments that are no object, or that they have in part.
    if one is None or one == {}:
        return False
    # A client may have repaired what is not JSON.
    return one is _NO_JSON if other is _NO_JSON else not _is_same_json(one, other)


def _is_result(sent: str, stored: str) -> bool:
    content = _content(stored)
    text = shown_result(content)
    if any(_is_same_text(*pair) for pair in itertools.product(_readings(sent), _readings(text))):
        return True
    # Of a result that it sent as parts, a client may have made a text of its own.
    parts = content.get("observation")
    has_parts = isinstance(parts, list) and any(isinstance(each, Mapping) and "type" in each for each in parts)
    return has_parts and not isinstance(_json(sent), list)


def _readings(result: str) -> Sequence[str]:
    """Return a result, and the string that it is as JSON: clients that parse results send a string without quotes."""
    value = _json(result)
    return (result, value) if isinstance(value, str) else (result,)


def _is_same_text(sent: str, stored: str) -> bool:
    """Whether two results are the same text, or the same JSON, but for secrets that were masked."""
    if _continues(sent, stored, is_answer=False):
        return True
    one, other = _json(sent), _json(stored)
    return one is not _NO_JSON and other is not _NO_JSON and _is_same_json(one, other)


def _content(stored: str) -> Mapping[str, Any]:
    content = decode_body(stored)
    return content if isinstance(content, Mapping) else {}


def _is_same_json(sent: Any, stored: Any) -> bool:
    """Whether two JSON values are the same, but for secrets that were masked."""
    try:
        return same(sent, stored, are_same_texts=_is_masked_as)
    except RecursionError:
        return True


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _NO_JSON


def same(one: Any, other: Any, *, are_same_texts: Callable[[str, str], bool] = operator.eq) -> bool:
    """Whether two JSON values are the same to a client that has all numbers as doubles."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return _double(one) == _double(other) or (one != one and other != other)  # noqa: PLR0124  # not a number
    if isinstance(one, str) and isinstance(other, str):
        return are_same_texts(one, other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        # A member's name may have been masked.
        renamed = zip((key for key in one if key not in other), (key for key in other if key not in one), strict=False)
        pairs = [*((key, key) for key in one if key in other), *renamed]
        return len(one) == len(other) and all(
            (key == name or are_same_texts(key, name)) and same(one[key], other[name], are_same_texts=are_same_texts)
            for key, name in pairs
        )
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(
            same(*pair, are_same_texts=are_same_texts) for pair in zip(one, other, strict=True)
        )
    return type(one) is type(other) and bool(one == other)


def _double(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _digest(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _forms(sent: SentMessage, row: Mapping[str, Any]) -> Iterator[tuple[str, Sequence[str] | None]]:
    """Yield the text and the media of a stored message in each form that a client may have it: as it was sent, and as
    clients receive it."""
    text = row["content"]
    if row["outline"] is None:
        yield text, None
        return
    parts = json.loads(row["outline"])["parts"]
    media = [part["identity"] for part in parts if "identity" in part]
    yield text, media
    if sent.is_result:
        # A list that a tool returned need not be of parts.
        yield text, [each for each in media if is_known(each)]
        return
    shown = parts_of_outline(parts) if row["role"] == "user" else []
    if not shown or valid_parts(shown) is None:
        yield text, ()
        return
    yield message_text({"parts": shown}) or "", [part["source"]["value"] for part in shown if part["type"] != "text"]
    if sent.may_be_cut:
        yield text, ()


def _may_be_same(some: Sequence[str], others: Sequence[str]) -> bool:
    return len(some) == len(others) and all(map(may_be_same, some, others))


def _continues(sent: str, stored: str, *, is_answer: bool) -> bool:
    """Whether a stored text is the client's; of an answer that it followed only in part, the beginning is enough."""
    one, other = (" ".join(text.split()) for text in (sent, stored))
    return one == other or (is_answer and other.startswith(one)) or _fits_masks(one, other)


def _is_masked_as(sent: str, stored: str) -> bool:
    return sent == stored or _fits_masks(sent, stored)


def _fits_masks(sent: str, stored: str) -> bool:
    """Whether a stored text is the client's but for secrets that were masked."""
    first, *others = _MASK.split(stored)
    if not others or not sent.startswith(first):
        return False
    position = len(first)
    *inner, last = others
    for piece in inner:
        found = sent.find(piece, position)
        if found < 0:
            return False
        position = found + len(piece)
    return sent.endswith(last) and position + len(last) <= len(sent)
