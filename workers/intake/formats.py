"""The formats of files: each is a module with a parser, and one entry here, in the order in which they are recognised.

A file of JSON is recognised record by record; a file of text by its first lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from workers.intake import (
    adk_sessions,
    chats,
    claude,
    exported,
    langgraph_store,
    letta,
    locomo,
    mem0,
    openai_items,
    transcript,
    whatsapp,
    zep,
)
from workers.intake.documents import Parse
from workers.intake.records import Item, Naming
from workers.intake.source import Source


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """A format of JSON.

    Attributes:
        name: for `--format`.
        parser_of: returns the parser of a value, or None if the value is not in this format.
    """

    name: str
    title: str
    parser_of: Callable[[Any], Parse | None]


@dataclass(frozen=True, slots=True)
class TextFormat:
    """A format of lines of text.

    Attributes:
        name: for `--format`.
        is_known: whether a file that begins with this text is in this format.
        items: reads the file; the text is its beginning.
    """

    name: str
    title: str
    is_known: Callable[[str], bool]
    items: Callable[[Source, str, Naming], Iterator[Item]]


RECORD_FORMATS = (
    RecordFormat("chatgpt", "exported conversations", exported.parser_of),
    RecordFormat("claude", "Claude conversations", claude.parser_of),
    RecordFormat("locomo", "LoCoMo JSON", locomo.parser_of),
    RecordFormat("letta", "Letta agent file", letta.parser_of),
    RecordFormat("adk", "ADK sessions", adk_sessions.parser_of),
    RecordFormat("mem0", "mem0 memories", mem0.parser_of),
    RecordFormat("zep", "Zep messages or graph", zep.parser_of),
    RecordFormat("langgraph", "LangGraph store", langgraph_store.parser_of),
    RecordFormat("openai", "OpenAI threads or conversations", openai_items.parser_of),
    RecordFormat("langchain", "LangChain messages", chats.parser_of_dumps),
    RecordFormat("chat", "chat JSON", chats.parser_of),
)
TEXT_FORMATS = (
    TextFormat("whatsapp", "WhatsApp chat", whatsapp.is_chat, whatsapp.items),
    TextFormat("transcript", "transcript", transcript.is_transcript, transcript.items),
)
NAMES = tuple(each.name for each in (*RECORD_FORMATS, *TEXT_FORMATS))


def recognise(value: Any, wanted: str | None = None) -> tuple[str, Parse] | None:
    """Return the title of a record's format and its parser; None if it is in no format, or not in the wanted one."""
    for each in RECORD_FORMATS:
        if wanted in (None, each.name) and (parse := each.parser_of(value)) is not None:
            return each.title, parse
    return None
