"""A client's messages, compared with the stored ones: texts, and the images and files of users and tools.

A client has a message as it sent it, or as it received it, where a large image is only named and the forms of other
frameworks are shown as AG-UI's. Of images and files, identities are compared (`pulse.message_parts.identity`), so that
the stored bytes stay in the database. What cannot be compared counts as the same: a client that changed nothing is
never refused.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final

from pulse.agui import types as agui
from pulse.agui.messages import valid_parts
from pulse.events import message_text
from pulse.message_parts import is_known, may_be_same, media_identities, parts_of_outline

#: What stands in place of a secret: see `pulse.redaction`.
_MASK: Final = re.compile(r"\[redacted:[^\]]*\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class SentMessage:
    """What is compared of a client's message.

    Attributes:
        text: None if it is not compared.
        media: what identifies its images and files; None if they are not compared.
        is_list: it has parts.
        is_result: it is a tool's.
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
        return None if self.text is None else hashlib.md5(self.text.encode(), usedforsecurity=False).hexdigest()

    @property
    def media_lines(self) -> str | None:
        """Its images and files as `media_outline` in schema/functions/media.sql returns them."""
        return None if self.media is None else "\n".join(self.media)


def compared(messages: Sequence[agui.Message]) -> dict[str, SentMessage]:
    """Return what is compared of a client's messages, by their ids."""
    pairs = zip_longest(messages, messages[1:])
    return {each.id: found for each, following in pairs if (found := _compared(each, following)) is not None}


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
            return None
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
    found = "another text"
    for text, media in _forms(sent, row):
        if sent.text is None or _continues(sent.text, text, is_answer=is_answer):
            if sent.media is None or media is None or _may_be_same(sent.media, media):
                return None
            found = "other images or files"
    return found


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
