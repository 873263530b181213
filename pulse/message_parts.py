"""The images, files and other parts of a message, in AG-UI's form: bounded, for conversations and timelines.

{"type": "image", "source": {"type": "data", "value": base64, "mimeType": "image/png"}}
{"type": "document", "source": {"type": "url", "value": "https://…"}}
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

#: A part with more data than this is named, not shown; the event has it. In bytes of base64.
PART_BYTES_MAX: Final = 2 << 20

_TYPES: Final = frozenset({"text", "image", "audio", "video", "document"})
#: The kind of an identity that equals any other.
_UNKNOWN: Final = "?"
#: Base64 has two alphabets, and may be wrapped.
_BASE64_FORMS: Final = (("-", "+"), ("_", "/"), *((blank, "") for blank in " \t\n\r"))


def parts_of(content: Any) -> list[dict[str, Any]]:
    """Return the parts of a message's content, if one of them is not text; none otherwise."""
    return [_bounded(part, len(_value_of(part))) for part in _whole_parts_of(content)]


def parts_of_outline(parts: Any) -> list[dict[str, Any]]:
    """As `parts_of`, of the parts of an outline: the values of sources are identities, and so are they returned."""
    return [_bounded(part, _length_of(_value_of(part))) for part in _whole_parts_of({"parts": parts})]


def media_identities(parts: list[dict[str, Any]]) -> list[str]:
    """Return what identifies the parts of a client that are not text."""
    sources = [part["source"] for part in parts if part["type"] != "text"]
    return [identity(source["type"], source["value"]) for source in sources]


def identity(kind: str, value: str) -> str:
    """Return what identifies the bytes or the address of a source: its kind, its length and an MD5.

    `media_identity` in schema/functions/media.sql does the same for stored parts, and says what counts.
    """
    body = value
    if value[:5].lower() == "data:":
        kind = "data" if value.partition(",")[0].lower().endswith(";base64") else _UNKNOWN
        body = value[value.find(",") + 1 :]
        if "%" in body:
            kind = _UNKNOWN
    if kind == "data":
        for one, other in _BASE64_FORMS:
            body = body.replace(one, other)
        body = body.rstrip("=")
    elif value[:8].lower().startswith(("http://", "https://")):
        body = value.partition("?")[0].partition("#")[0]
    # What is not valid UTF-8 cannot be compared with what is stored, either.
    digest = hashlib.md5(body.encode(errors="replace"), usedforsecurity=False).hexdigest()
    return f"{kind}:{len(value)}:{digest if kind != _UNKNOWN else ''}"


def is_known(one: str) -> bool:
    """Whether an identity can be compared."""
    return not one.startswith(_UNKNOWN)


def may_be_same(one: str, other: str) -> bool:
    """Whether two identities may be of the same image or file: they differ only within one kind."""
    (kind, _, digest), (other_kind, _, other_digest) = one.split(":"), other.split(":")
    return kind != other_kind or digest == other_digest


def media_of(content: Any) -> list[dict[str, Any]]:
    """Return the parts of a message's content that are not text; one that is too large as the text that names it."""
    texts = _texts(content)
    return [part for part in parts_of(content) if part["type"] != "text" or part["text"] not in texts]


def _whole_parts_of(content: Any) -> list[dict[str, Any]]:
    parts = content.get("parts") if isinstance(content, Mapping) else None
    if not isinstance(parts, list):
        return []
    found = [shown for part in parts if isinstance(part, Mapping) and (shown := _as_agui(part)) is not None]
    return found if any(part["type"] != "text" for part in found) else []


def _texts(content: Any) -> set[Any]:
    parts = content.get("parts") if isinstance(content, Mapping) else None
    return {part.get("text") for part in parts or () if isinstance(part, Mapping)} if isinstance(parts, list) else set()


def _as_agui(part: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a part of AG-UI, or of ADK, in AG-UI's form; None for others."""
    if "type" in part:
        return dict(part) if isinstance(part["type"], str) and part["type"] in _TYPES else None
    if isinstance(part.get("text"), str) and not part.get("thought"):
        return {"type": "text", "text": part["text"]}
    for name, kind, value in (("inlineData", "data", "data"), ("fileData", "url", "fileUri")):
        source = part.get(name)
        if isinstance(source, Mapping) and isinstance(source.get(value), str):
            mime = source.get("mimeType")
            named = {"mimeType": mime} if isinstance(mime, str) else {}
            return {"type": _type_of(mime), "source": {"type": kind, "value": source[value], **named}}
    return None


def _type_of(mime: Any) -> str:
    kind = mime.partition("/")[0] if isinstance(mime, str) else ""
    return kind if kind in ("image", "audio", "video") else "document"


def _value_of(part: Mapping[str, Any]) -> str:
    """Return the bytes or the address of a part's source; empty if it has none."""
    source = part.get("source")
    value = source.get("value") if isinstance(source, Mapping) else None
    return value if isinstance(value, str) else ""


def _length_of(of_media: str) -> int:
    """Return the length of what an identity stands for."""
    return int(of_media.split(":")[1]) if of_media else 0


def _bounded(part: dict[str, Any], length: int) -> dict[str, Any]:
    if length <= PART_BYTES_MAX:
        return part
    return {"type": "text", "text": f"[{part['type']} of {length} bytes left out]"}
