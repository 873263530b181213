"""An authority of certificates that the clients of this process trust, as they do those of the public web."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from pathlib import Path

import certifi
import pytest
import trustme

from pulse.outbound.client import tls_context


@contextlib.contextmanager
def trusted_authority(folder: Path) -> Iterator[trustme.CA]:
    """Put an authority in the place of the public ones: in the file that every outbound connection reads."""
    authority = trustme.CA()
    path = folder / "authorities.pem"
    authority.cert_pem.write_to_path(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certifi, "where", lambda: str(path))
        tls_context.cache_clear()
        try:
            yield authority
        finally:
            tls_context.cache_clear()


def server_context(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    """Return the context of a server whose certificate is for these names."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context


def refused_contexts(authority: trustme.CA, name: str) -> dict[str, ssl.SSLContext]:
    """Return contexts of servers that a client which asks for a name at a loopback address must refuse, and why."""
    return {
        "another name": server_context(authority, "other.example"),
        "the address": server_context(authority, "127.0.0.1"),
        "an unknown authority": server_context(trustme.CA(), name),
    }
