"""The images, files and other parts of a message, in AG-UI's form: bounded, for conversations and timelines.

{"type": "image", "source": {"type": "data", "value": base64, "mimeType": "image/png"}}
{"type": "document", "source": {"type": "url", "value": "https://…"}}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

#: A part with more data than this is named, not shown; the event has it. In bytes of base64.
PART_BYTES_MAX: Final = 2 << 20

_TYPES: Final = frozenset({"text", "image", "audio", "video", "document"})


def parts_of(content: Any) -> list[dict[str, Any]]:
    """Return the parts of a message's content, if one of them is not text; none otherwise."""
    parts = content.get("parts") if isinstance(content, Mapping) else None
    if not isinstance(parts, list):
        return []
    found = [shown for part in parts if isinstance(part, Mapping) and (shown := _as_agui(part)) is not None]
    return [_bounded(part) for part in found] if any(part["type"] != "text" for part in found) else []


def media_of(content: Any) -> list[dict[str, Any]]:
    """Return the parts of a message's content that are not text; one that is too large as the text that names it."""
    texts = _texts(content)
    return [part for part in parts_of(content) if part["type"] != "text" or part["text"] not in texts]


def _texts(content: Any) -> set[Any]:
    parts = content.get("parts") if isinstance(content, Mapping) else None
    return {part.get("text") for part in parts or () if isinstance(part, Mapping)} if isinstance(parts, list) else set()


def _as_agui(part: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a part of AG-UI, or of ADK, in AG-UI's form; None for others."""
    if "type" in part:
        return dict(part) if part["type"] in _TYPES else None
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


def _bounded(part: dict[str, Any]) -> dict[str, Any]:
    source = part.get("source")
    value = source.get("value") if isinstance(source, Mapping) else None
    if not isinstance(value, str) or len(value) <= PART_BYTES_MAX:
        return part
    return {"type": "text", "text": f"[{part['type']} of {len(value)} bytes left out]"}
