"""Credentials of tools: references that the operator's environment or files resolve, never values in rows.

A reference is ``env:TOOL_…`` or ``file:/run/secrets/…``: other variables and files, such as the database's address,
cannot be named. It is used for one origin alone, that of its source.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote, quote_plus, urlsplit

from pulse.errors import InvalidInputError
from pulse.tools.records import ToolError

#: Returns the secret of a reference; raises LookupError.
ReadSecret: TypeAlias = Callable[[str], str]

UNENCRYPTED = (
    "credentials are not sent over http, except to a private address in one of allowed_networks, nor is what says where"
    " they go read over it: use https"
)
_REFERENCE = re.compile(r"(?:env:TOOL_[A-Z0-9_]{1,100}|file:/run/secrets/[A-Za-z0-9_-][A-Za-z0-9_.-]{0,100})")
_BYTES_MAX = 16_384
_PORTS = {"http": 80, "https": 443}


def check_reference(reference: Any) -> str:
    """Return a reference to a credential.

    Raises:
        InvalidInputError: it is not ``env:TOOL_NAME`` or ``file:/run/secrets/name``.
    """
    if not isinstance(reference, str) or not _REFERENCE.fullmatch(reference):
        raise InvalidInputError(
            "a credential is named as env:TOOL_NAME or file:/run/secrets/name; its value is never given here"
        )
    return reference


def read_secret(reference: str) -> str:
    """Return the secret that a reference names in this process.

    Raises:
        LookupError: the variable is not set, or the file cannot be read.
    """
    kind, _, name = check_reference(reference).partition(":")
    if kind == "env":
        found = os.environ.get(name)
    else:
        try:
            found = Path(name).read_bytes()[:_BYTES_MAX].decode().rstrip("\r\n")
        except (OSError, UnicodeDecodeError):
            found = None
    if not found or not found.isprintable():
        raise LookupError(f"{reference} is not set in this process, or is not one printable line")
    return found


def resolve(reference: str, read: ReadSecret) -> str:
    """Return a secret for a call.

    Raises:
        ToolError: there is none.
    """
    try:
        return read(reference)
    except LookupError:
        raise ToolError(f"the credential {reference} of this tool cannot be read here; tell its operator") from None


def origin_of(url: str) -> str:
    """Return the origin of a URL: ``https://example.org:443``."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{(parts.hostname or '').lower()}:{parts.port or _PORTS.get(parts.scheme, 0)}"


def apply(scheme: Mapping[str, Any], secret: str, headers: dict[str, str], query: list[tuple[str, str]]) -> list[str]:
    """Add a credential to a request by its security scheme; return every form in which it could be echoed."""
    kind = scheme["type"]
    if kind == "apiKey":
        if scheme["in"] == "query":
            query.append((scheme["name"], secret))
        elif scheme["in"] == "cookie":
            headers["cookie"] = "; ".join(filter(None, (headers.get("cookie"), f"{scheme['name']}={secret}")))
        else:
            headers[scheme["name"].lower()] = secret
        return forms(secret)
    if kind == "basic":
        encoded = base64.b64encode(secret.encode()).decode()
        headers["authorization"] = f"Basic {encoded}"
        return [
            *forms(secret),
            encoded,
            *(form for part in secret.partition(":")[2:] if part for form in forms(part)),
        ]
    headers["authorization"] = f"Bearer {secret}"
    return forms(secret)


def forms(secret: str) -> list[str]:
    """Return how a server may spell a secret: as it is, in a URL, in a form, and in JSON."""
    return list(dict.fromkeys((secret, quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1])))
