"""Which sandbox is used, as settings and callers write it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from pulse.errors import InvalidInputError

SandboxKind: TypeAlias = Literal["monty", "bwrap", "container", "remote"]

#: An image as engines write it, with a registry, a tag and a digest; never an option of the engine.
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}")
_PRINTABLE = re.compile(r"[!-~]{1,2000}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxChoice:
    """A kind of sandbox.

    Attributes:
        place: the image of a container, or the URL of a service; else empty.
    """

    kind: SandboxKind
    place: str = ""


def parse_sandbox(text: str) -> SandboxChoice:
    """Return what ``monty``, ``bwrap``, ``container:IMAGE`` or ``remote:URL`` says.

    Raises:
        InvalidInputError: there is no such sandbox, or its image or URL is not one.
    """
    kind, colon, place = text.partition(":")
    if kind == "container":
        if not _IMAGE.fullmatch(place):
            raise InvalidInputError(
                f"a container needs an image that has Python: container:python:3.11-slim, not {text!r:.100}"
            )
        return SandboxChoice(kind="container", place=place)
    if kind == "remote":
        _check_url(place)
        return SandboxChoice(kind="remote", place=place)
    if kind not in ("monty", "bwrap"):
        raise InvalidInputError(
            f"there is no sandbox {kind!r:.60}; there are monty, bwrap, container:IMAGE and remote:URL"
        )
    if colon:
        raise InvalidInputError(f"the sandbox {kind} takes nothing after a colon: write {kind} alone")
    return SandboxChoice(kind="monty" if kind == "monty" else "bwrap")


def _check_url(text: str) -> None:
    """Check a URL, which is shown to people: a refusal does not quote what may be a credential."""
    try:
        url = urlsplit(text)
        host, _port = url.hostname, url.port
    except ValueError:
        host = None
    if not _PRINTABLE.fullmatch(text) or not host or url.scheme not in ("http", "https"):
        raise InvalidInputError("a remote sandbox needs a URL: remote:https://sandbox.example/run")
    if "@" in url.netloc or "?" in text or "#" in text:
        raise InvalidInputError(
            "the URL of a remote sandbox has no user, no query and no fragment: its credential is the token"
        )
