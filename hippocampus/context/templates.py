"""How a window is written: one template for each of its parts, as plain text, Markdown, XML or messages of a chat API.

A part is a format string. `dataclasses.replace(MARKDOWN, fact="* {text}")` changes one of them. Stored text reaches a
part escaped, so that in none of the templates below it can pass for a header, a tag or another speaker's turn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import lru_cache
from itertools import groupby
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeAlias
from xml.sax.saxutils import escape as escape_markup

from hippocampus.context.languages import HEADERS, ContextType, change, day, speaker
from hippocampus.text.languages import Language
from pulse.errors import InvalidInputError

TemplateName: TypeAlias = Literal["plain", "markdown", "xml", "messages"]

#: In the order in which they are written.
CONTEXT_TYPES: tuple[ContextType, ...] = ("system", "fact", "memory", "history")

#: Before each further line of an item. Without it a speaker could write a header, or the turn of another speaker.
_INDENT = "  "
_LINE_BREAK = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
#: A name that needs no brackets where the text of its turn begins with it.
_PLAIN_NAME = re.compile(r"[^\W\d_](?:[\w .'\-]{0,62}\w)?")
_TAGS: Mapping[ContextType, str] = {"system": "system", "fact": "facts", "memory": "memories", "history": "history"}


class Written(Protocol):
    """What of an item is written: `hippocampus.context.window.ContextItem`."""

    @property
    def context_type(self) -> ContextType:
        """The section."""

    @property
    def content(self) -> str:
        """The stored text; that of the history with its label."""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Speaker, time and session."""


def indent_lines(text: str) -> str:
    """Return a text whose further lines begin with two spaces: only its first line begins at the margin."""
    return _LINE_BREAK.sub("\n" + _INDENT, text)


def escape_tags(text: str) -> str:
    """Return a text without markup, for the content of an XML element and for its attributes in double quotes."""
    return escape_markup(text, {'"': "&quot;"})


@lru_cache(maxsize=1024)
def _escaped(name: str, escape: Callable[[str], str]) -> str:
    """Return what is written many times: a name, a label."""
    return escape(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """How each part of a window is written.

    Attributes:
        section: of ``{header}`` (such as "## User preferences"), ``{title}`` (the same without marks), ``{tag}`` and
            ``{body}``.
        fact, memory: of ``{text}``, ``{when}`` and ``{changed}``.
        passage: consecutive turns of one session and day, of ``{date}``, ``{iso}``, ``{session}`` and ``{body}``.
        turn: of a passage: ``{gap}``, ``{label}``, ``{speaker}``, ``{role}`` (user or assistant), ``{text}``,
            ``{changed}``.
        history: a turn of the session: the same without gap.
        when: the date of an item that has one: ``{date}``, ``{iso}``.
        changed: the ``{note}`` on what no longer holds.
        gap: before a turn that does not follow the one above it.
        escape: makes stored text harmless.
        order: of the sections.
        frame: counted before each message, if the window is sent as messages; else empty.
    """

    name: str
    section: str
    fact: str
    memory: str
    passage: str
    turn: str
    history: str
    when: str
    changed: str
    gap: str = ""
    escape: Callable[[str], str] = indent_lines
    order: tuple[ContextType, ...] = CONTEXT_TYPES
    frame: str = ""

    @staticmethod
    def named(name: TemplateName) -> Template:
        """Return one of the four templates.

        Raises:
            InvalidInputError: there is none of this name.
        """
        if name not in TEMPLATES:
            raise InvalidInputError(f"template is one of {', '.join(TEMPLATES)}, or a Template, not {name!r}")
        return TEMPLATES[name]

    def written(self, item: Written, language: Language, *, gap: bool = False) -> str:
        """Return an item without its section and passage."""
        if item.context_type == "system":
            return item.content
        if item.context_type == "history":
            return self.frame + self.history.format_map(self._speech(item, language))
        if is_turn(item):
            return self.turn.format_map(self._speech(item, language) | {"gap": self.gap if gap else ""})
        dated = self._dated(item, language)
        values = {
            "text": self.escape(item.content),
            "when": self.when.format_map(dated) if dated["date"] else "",
            "changed": self._changed(item, language),
        }
        return (self.fact if item.context_type == "fact" else self.memory).format_map(values)

    @property
    def as_messages(self) -> bool:
        """Whether the window is sent as messages of a chat API."""
        return bool(self.frame)

    def head(self, kind: ContextType, language: Language, body: str = "") -> str:
        """Return a section."""
        header = HEADERS[language][kind]
        return self.section.format(header=header, title=header.removeprefix("## "), tag=_TAGS[kind], body=body)

    def passage_of(self, item: Written, language: Language, body: str = "") -> str:
        """Return the passage that a turn belongs to."""
        session = self.escape(item.metadata.get("session_id") or "")
        values = self._dated(item, language) | {"session": session, "body": body}
        return self.passage.format_map(values).lstrip("\n")

    def _dated(self, item: Written, language: Language) -> dict[str, str]:
        moment = item.metadata.get("occurred_at")
        if not isinstance(moment, datetime):
            return {"date": "", "iso": ""}
        return {"date": day(moment, language), "iso": _utc_date(moment).isoformat()}

    def _changed(self, item: Written, language: Language) -> str:
        holds, since = item.metadata.get("changed"), item.metadata.get("changed_at")
        if holds is None or not isinstance(since, datetime):
            return ""
        return self.changed.format(note=self.escape(change(holds, since, language)))

    def _speech(self, item: Written, language: Language) -> dict[str, str]:
        author = str(item.metadata.get("author") or "")
        name, text = speaker(author, language), said(item, language)
        label = f"[{name}]: " if author else ""
        if item.context_type != "history" and _names_speaker(text, author):
            label = ""
        return {
            "speaker": _escaped(name, self.escape),
            "text": self.escape(text),
            "label": _escaped(label, self.escape),
            "role": "user" if item.metadata.get("kind", "user") == "user" else "assistant",
            "changed": self._changed(item, language),
        }


def _names_speaker(text: str, author: str) -> bool:
    """Whether a text begins with its speaker's plain name, as in imported transcripts: "Ann: Hello"."""
    start = len(author) + 2
    return (
        text.startswith(f"{author}: ")
        and _PLAIN_NAME.fullmatch(author) is not None
        and bool(text[start : start + 1].strip())
    )


def is_turn(item: Written) -> bool:
    """Whether an item of the memories is a turn of a conversation."""
    return item.context_type == "memory" and item.metadata.get("source") == "message"


def said(item: Written, language: Language) -> str:
    """Return the text of a turn without its label."""
    author = item.metadata.get("author")
    if item.context_type != "history" or not author:
        return item.content
    return item.content.removeprefix(f"[{speaker(author, language)}]: ")


def write(items: Iterable[Written], language: Language, template: Template) -> str:
    """Write items: the system prompt, then each section under its header; blank lines between."""
    by_type: dict[ContextType, list[Written]] = {kind: [] for kind in CONTEXT_TYPES}
    for item in items:
        by_type[item.context_type].append(item)
    parts = [item.content for item in by_type["system"]]
    parts += [
        template.frame + template.head(kind, language, "\n".join(_lines(by_type[kind], language, template)))
        for kind in template.order
        if kind != "system" and by_type[kind]
    ]
    return "\n\n".join(parts)


def messages(items: Sequence[Written], language: Language, template: Template) -> list[dict[str, str]]:
    """Return items as messages of a chat API, ``{"role": …, "content": …}``, the least changing first.

    The system prompt is the system's. What is remembered comes from conversations, and has the user's role; it depends
    on the query, and stands before the last turn.
    """
    by_type: dict[ContextType, list[Written]] = {kind: [] for kind in CONTEXT_TYPES}
    for item in items:
        by_type[item.context_type].append(item)

    def block(kind: ContextType) -> list[dict[str, str]]:
        if not by_type[kind]:
            return []
        body = "\n".join(_lines(by_type[kind], language, template))
        return [{"role": "user", "content": template.head(kind, language, body)}]

    turns = [_message(item, language) for item in by_type["history"]]
    return [
        *({"role": "system", "content": item.content} for item in by_type["system"]),
        *turns[:-1],
        *block("fact"),
        *block("memory"),
        *turns[-1:],
    ]


def _message(item: Written, language: Language) -> dict[str, str]:
    author, kind = str(item.metadata.get("author") or ""), item.metadata.get("kind", "user")
    text = said(item, language)
    if kind == "tool":
        # A tool's message needs the id of its call, which a turn does not have.
        return {"role": "user", "content": f"[{speaker(author, language)}]: {indent_lines(text)}"}
    return {"role": "user" if kind == "user" else "assistant", "content": text}


def _lines(items: Sequence[Written], language: Language, template: Template) -> Iterator[str]:
    """Yield the items of a section, the turns of its memories in passages."""
    for passage, group in groupby(items, key=passage_key):
        members = list(group)
        if passage is None:
            yield from (template.written(item, language) for item in members)
            continue
        lines = []
        for before, item in zip([None, *members[:-1]], members, strict=True):
            lines.append(template.written(item, language, gap=before is not None and not _follows(before, item)))
        yield template.passage_of(members[0], language, "\n".join(lines))


def passage_key(item: Written) -> tuple[object, ...] | None:
    """Return what the turns of one passage have in common: session and day; None for other items."""
    if not is_turn(item):
        return None
    moment = item.metadata.get("occurred_at")
    return (item.metadata.get("thread_id"), _utc_date(moment) if isinstance(moment, datetime) else None)


@lru_cache(maxsize=4096)
def _utc_date(moment: datetime) -> date:
    return moment.astimezone(UTC).date()


def _follows(before: Written, item: Written) -> bool:
    earlier, later = before.metadata.get("from_seq"), item.metadata.get("from_seq")
    return earlier is not None and later is not None and later - earlier == 1


MARKDOWN = Template(
    name="markdown",
    section="{header}\n{body}",
    fact="- {text}{when}",
    memory="- {text}{when}{changed}",
    passage="{date}\n{body}",
    turn="{gap}{label}{text}{changed}",
    history="{label}{text}{changed}",
    when=" ({date})",
    changed=" ({note})",
    gap="… ",
)
PLAIN = replace(MARKDOWN, name="plain", section="{title}:\n{body}")
XML = Template(
    name="xml",
    section="<{tag}>\n{body}\n</{tag}>",
    fact="<fact{when}>{text}</fact>",
    memory="<memory{when}{changed}>{text}</memory>",
    passage='<passage date="{iso}" session="{session}">\n{body}\n</passage>',
    turn='<turn speaker="{speaker}"{changed}>{text}</turn>',
    history='<turn speaker="{speaker}"{changed}>{text}</turn>',
    when=' date="{iso}"',
    changed=' changed="{note}"',
    escape=escape_tags,
)
#: As one text, it shows what is counted: the frame stands for the tokens that a chat API adds to a message.
MESSAGES = replace(
    MARKDOWN,
    name="messages",
    section="{header}\n{body}",
    history="{text}",
    order=("system", "history", "fact", "memory"),
    frame="message:\n",
)

TEMPLATES: Mapping[str, Template] = MappingProxyType({each.name: each for each in (PLAIN, MARKDOWN, XML, MESSAGES)})
