"""How a window is written: one template for each of its parts, as plain text, Markdown, XML or messages of a chat API.

A part is a format string. `dataclasses.replace(MARKDOWN, fact="* {text}")` changes one of them. Stored text reaches a
part escaped, so that in none of the templates below it can pass for a header, a tag or another speaker's turn. Dates
are those of the zone that an item's time has.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from itertools import chain, groupby
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeAlias

from hippocampus.context.languages import HEADERS, ContextType, Section, change, day, speaker
from hippocampus.text.languages import Language
from pulse.errors import InvalidInputError

TemplateName: TypeAlias = Literal["plain", "markdown", "xml", "messages"]

#: Types and sections in the order in which they are written.
CONTEXT_TYPES: tuple[ContextType, ...] = ("system", "fact", "memory", "document", "history")
SECTIONS: tuple[Section, ...] = ("system", "fact", "earlier", "memory", "document", "history")
#: What a query picks stands behind all that it does not.
_STABLE_SECTIONS: tuple[Section, ...] = ("system", "fact", "earlier", "history", "memory", "document")

#: What precedes each further line of an item. Without it a speaker could write a header, or another speaker's turn.
_INDENT = "  "
_LINE_BREAK = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
#: A name that needs no brackets where the text of its turn begins with it.
_PLAIN_NAME = re.compile(r"[^\W\d_](?:[\w .'\-]{0,62}\w)?")
_TAGS: Mapping[Section, str] = {
    "system": "system",
    "fact": "facts",
    "earlier": "earlier",
    "memory": "memories",
    "document": "documents",
    "history": "history",
}


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
    if text.splitlines() == [text]:  # the same characters, and faster
        return text
    return _LINE_BREAK.sub("\n" + _INDENT, text)


def escape_tags(text: str) -> str:
    """Return a text without markup, for the content of an XML element and for its attributes in double quotes."""
    return html.escape(text, quote=False).replace('"', "&quot;")


@lru_cache(maxsize=1024)
def _escaped(name: str, escape: Callable[[str], str]) -> str:
    """Return what is written many times: a name, a label."""
    return escape(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """How each part of a window is written: a format string for each.

    Attributes:
        section: with ``{header}`` (such as "## User preferences"), ``{title}`` (the same without marks), ``{tag}`` and
            ``{body}``.
        fact, memory: with ``{text}``, ``{when}`` and ``{changed}``.
        passage: consecutive turns of one session and day, with ``{date}``, which names the year where it differs from
            that of the passage before, ``{iso}``, ``{session}`` and ``{body}``.
        turn: a turn of a passage, with ``{gap}``, ``{label}``, ``{speaker}``, ``{role}`` (user or assistant),
            ``{text}`` and ``{changed}``.
        history: a turn of the session: the same without gap.
        day: above a turn of the session that is of another day than the one above it, and above the first one unless it
            is today's: with ``{date}``, which names the year where it differs from that of the line before, and
            ``{iso}``. A message of its own, if the window is sent as messages.
        when: the date of an item that has one: ``{date}``, ``{iso}``.
        changed: the ``{note}`` on what no longer holds.
        document: a part of a document, with ``{text}``, ``{where}`` (its title and headings, and its page) and
            ``{source}``, the document's address.
        gap: before a turn that does not follow the one above it.
        escape: makes stored text harmless.
        order: the order of the sections. Where a window is sent as messages, the last turn comes last.
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
    document: str = "- [{where} ({source})] {text}"
    gap: str = ""
    day: str = "{date}"
    escape: Callable[[str], str] = indent_lines
    order: tuple[Section, ...] = SECTIONS
    frame: str = ""

    @staticmethod
    def named(name: TemplateName) -> Template:
        """Return one of the four templates.

        Raises:
            InvalidInputError: there is no template of this name.
        """
        if name not in TEMPLATES:
            raise InvalidInputError(f"template must be one of {', '.join(TEMPLATES)}, or a Template, not {name!r}")
        return TEMPLATES[name]

    @property
    def stable(self) -> Template:
        """The template with what a query picks behind all that it does not."""
        return replace(self, order=_STABLE_SECTIONS)

    def written(self, item: Written, language: Language, *, gap: bool = False) -> str:
        """Return an item without its section and passage."""
        if item.context_type == "system":
            return item.content
        if item.context_type == "history":
            return self.frame + self.history.format_map(self._speech(item, language))
        if is_turn(item):
            return self.turn.format_map(self._speech(item, language) | {"gap": self.gap if gap else ""})
        if item.context_type == "document":
            return self.document.format_map(self._cited(item))
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

    def head(self, section: Section, language: Language, body: str = "") -> str:
        """Return a section."""
        header = HEADERS[language][section]
        return self.section.format(header=header, title=header.removeprefix("## "), tag=_TAGS[section], body=body)

    def passage_of(self, item: Written, language: Language, body: str = "", *, with_year: bool = True) -> str:
        """Return the passage that a turn belongs to."""
        session = self.escape(item.metadata.get("session_id") or "")
        values = self._dated(item, language, with_year=with_year) | {"session": session, "body": body}
        return self.passage.format_map(values).lstrip("\n")

    def day_of(self, item: Written, language: Language, *, with_year: bool = True) -> str:
        """Return the line above a turn with which a day begins."""
        return self.day.format_map(self._dated(item, language, with_year=with_year))

    def _cited(self, item: Written) -> dict[str, str]:
        where = " › ".join([str(item.metadata.get("title", "")), *item.metadata.get("heading_path", ())])
        page = item.metadata.get("page")
        return {
            "text": self.escape(item.content),
            "where": self.escape(where if page is None else f"{where}, {page}"),
            "source": self.escape(str(item.metadata.get("source_uri", ""))),
        }

    @property
    def sections(self) -> tuple[Section, ...]:
        """`order`, with documents at its end if it does not name them."""
        return self.order if "document" in self.order else (*self.order, "document")

    def _dated(self, item: Written, language: Language, *, with_year: bool = True) -> dict[str, str]:
        moment = item.metadata.get("occurred_at")
        if not isinstance(moment, datetime):
            return {"date": "", "iso": ""}
        return {"date": day(moment, language, with_year=with_year), "iso": moment.date().isoformat()}

    def _changed(self, item: Written, language: Language) -> str:
        holds, since = item.metadata.get("changed"), item.metadata.get("changed_at")
        if holds is None or not isinstance(since, datetime):
            return ""
        return self.changed.format(note=self.escape(change(holds, since, language)))

    def _speech(self, item: Written, language: Language) -> dict[str, str]:
        author = str(item.metadata.get("author") or "")
        name, text = speaker(author, language), said(item, language)
        label = f"[{name}]: " if author else ""
        if _names_speaker(text, author):
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
    for each in (language, *HEADERS):
        label = f"[{speaker(author, each)}]: "
        if item.content.startswith(label):
            return item.content[len(label) :]
    return item.content


def section_of(item: Written) -> Section:
    """Return the section that an item is written in: that of its type, unless its metadata name another."""
    section: Section = item.metadata.get("section", item.context_type)
    return section


def _by_section(items: Iterable[Written]) -> dict[Section, list[Written]]:
    found: dict[Section, list[Written]] = {section: [] for section in SECTIONS}
    for item in items:
        found[section_of(item)].append(item)
    return found


class Writer:
    """Writes items in one language by one template; keeps what it wrote of each, for when it is asked again."""

    def __init__(self, language: Language, template: Template) -> None:
        self._language: Language = language
        self._template = template
        # By identity: an item is not hashable. The item is kept, so that no other gets its identity.
        self._written: dict[tuple[int, bool], tuple[Written, str]] = {}
        self._passages: dict[int, tuple[Written, tuple[object, ...] | None]] = {}

    def line(self, item: Written, *, gap: bool = False) -> str:
        """Return `Template.written` of an item."""
        found = self._written.get((id(item), gap))
        if found is None:
            found = (item, self._template.written(item, self._language, gap=gap))
            self._written[id(item), gap] = found
        return found[1]

    def passage(self, item: Written) -> tuple[object, ...] | None:
        """Return `passage_key` of an item."""
        found = self._passages.get(id(item))
        if found is None:
            found = self._passages[id(item)] = (item, passage_key(item))
        return found[1]

    def text(self, items: Iterable[Written]) -> str:
        """Write items: the system prompt, then each section under its header; blank lines between."""
        sections = _by_section(items)
        parts = [item.content for item in sections["system"]]
        parts += [
            self._template.frame
            + self._template.head(section, self._language, "\n".join(self.lines(sections[section])))
            for section in self._template.sections
            if section != "system" and sections[section]
        ]
        return "\n\n".join(parts)

    def lines(self, items: Sequence[Written]) -> Iterator[str]:
        """Yield the items of a section, the turns of its memories in passages."""
        year = None
        for passage, group in groupby(items, key=self.passage):
            members = list(group)
            if passage is None:
                for begun, item in self.days(members):
                    if begun is not None:
                        yield self._template.frame + begun
                    yield self.line(item)
                continue
            lines = []
            for before, item in zip([None, *members[:-1]], members, strict=True):
                lines.append(self.line(item, gap=before is not None and not _follows(before, item)))
            before_year, year = year, year_of(members[0])
            yield self._template.passage_of(members[0], self._language, "\n".join(lines), with_year=year != before_year)

    def days(self, items: Iterable[Written]) -> Iterator[tuple[str | None, Written]]:
        """Yield items that are not turns of passages, each with the line above it if a day of the session begins."""
        before, year = None, None
        for item in items:
            begun = None
            if begins_day(before, item):
                begun = self._template.day_of(item, self._language, with_year=year_of(item) != year)
                year = year_of(item)
            yield begun, item
            before = item


def write(items: Iterable[Written], language: Language, template: Template) -> str:
    """Write items: the system prompt, then each section under its header; blank lines between."""
    return Writer(language, template).text(items)


def messages(items: Sequence[Written], language: Language, template: Template) -> list[dict[str, str]]:
    """Return items as messages of a chat API, ``{"role": …, "content": …}``, in the template's order.

    The system prompt is the system's. What is remembered comes from conversations, and has the user's role. The last
    turn comes last.
    """
    sections = _by_section(items)
    writer = Writer(language, template)
    turns = [_messages_of(begun, item, language) for begun, item in writer.days(sections["history"])]
    found = [{"role": "system", "content": item.content} for item in sections["system"]]
    for section in template.sections:
        if section == "history":
            found += chain.from_iterable(turns[:-1])
        elif section != "system" and sections[section]:
            body = "\n".join(writer.lines(sections[section]))
            found.append({"role": "user", "content": template.head(section, language, body)})
    return [*found, *chain.from_iterable(turns[-1:])]


def _messages_of(begun: str | None, item: Written, language: Language) -> list[dict[str, str]]:
    # As with other headers: a message of the system in between is refused by some models.
    day_ = [] if begun is None else [{"role": "user", "content": begun}]
    return [*day_, _message(item, language)]


def _message(item: Written, language: Language) -> dict[str, str]:
    author, kind = str(item.metadata.get("author") or ""), item.metadata.get("kind", "user")
    text = said(item, language)
    if kind == "tool":
        # A tool's message needs the id of its call, which a turn does not have.
        return {"role": "user", "content": f"[{speaker(author, language)}]: {indent_lines(text)}"}
    return {"role": "user" if kind == "user" else "assistant", "content": text}


def passage_key(item: Written) -> tuple[object, ...] | None:
    """Return what the turns of one passage have in common: session and day; None for other items."""
    if not is_turn(item):
        return None
    moment = item.metadata.get("occurred_at")
    return (item.metadata.get("thread_id"), moment.date() if isinstance(moment, datetime) else None)


def begins_day(before: Written | None, item: Written) -> bool:
    """Whether a turn of the session is of another day than the one before it; the first one, than today."""
    moment = item.metadata.get("occurred_at")
    if item.context_type != "history" or not isinstance(moment, datetime):
        return False
    if before is None:
        return not item.metadata.get("is_today")
    earlier = before.metadata.get("occurred_at")
    return not isinstance(earlier, datetime) or earlier.date() != moment.date()


def year_of(item: Written) -> int | None:
    """Return the year of an item; None if its time is unknown."""
    moment = item.metadata.get("occurred_at")
    return moment.year if isinstance(moment, datetime) else None


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
    day='<day date="{iso}"/>',
    when=' date="{iso}"',
    changed=' changed="{note}"',
    document='<document title="{where}" source="{source}">{text}</document>',
    escape=escape_tags,
)
#: A list of messages. Its text shows what is counted: the frame stands for tokens that a chat API adds to a message.
MESSAGES = replace(
    MARKDOWN,
    name="messages",
    section="{header}\n{body}",
    history="{text}",
    day="## {date}",
    order=("system", "history", "fact", "earlier", "memory", "document"),
    frame="message:\n",
)

TEMPLATES: Mapping[str, Template] = MappingProxyType({each.name: each for each in (PLAIN, MARKDOWN, XML, MESSAGES)})
