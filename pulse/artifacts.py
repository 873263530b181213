"""Files of agents, in versions; equal bytes are stored once.

An artifact belongs to a session, or (`session_id` None) to a user in every session. Versions count from 0 without gaps;
a deleted artifact that is saved again starts at 0. Every method is one round trip.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import asyncpg

from pulse.names import ID_LENGTH_MAX, check_name, check_owner
from pulse.postgres.json_values import clean_text, decode_body, encode_body
from pulse.postgres.statements import Statements

if TYPE_CHECKING:
    from pulse.database import Pool

#: The newest version.
LATEST = -1
_FILENAME_LENGTH_MAX = 1024
_STATEMENTS = Statements("pulse", "artifacts.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactKey:
    """The names of an artifact.

    Raises:
        InvalidInputError: a name is empty, too long, or holds U+0000 or a lone surrogate.
    """

    app_name: str
    user_id: str
    session_id: str | None
    filename: str

    def __post_init__(self) -> None:
        check_name("app_name", self.app_name)
        check_name("user_id", self.user_id)
        check_name("filename", self.filename, _FILENAME_LENGTH_MAX)
        if self.session_id is not None:
            check_name("session_id", self.session_id, ID_LENGTH_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredArtifact:
    """One version.

    Attributes:
        part: the JSON value that was saved with the bytes.
        data: the bytes; None if there are none, or if they were not requested.
    """

    version: int
    part: Any
    data: bytes | None
    mime_type: str | None
    custom_metadata: Mapping[str, Any] = field(default_factory=dict)
    created_at: datetime


class ArtifactStore:
    """Saves, reads, lists and deletes artifacts."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def save(
        self,
        key: ArtifactKey,
        part: Any,
        data: bytes | None,
        *,
        mime_type: str | None = None,
        custom_metadata: Mapping[str, Any] | None = None,
    ) -> int:
        """Save a new version and return its number.

        Args:
            part: a JSON value that is returned with the bytes.
            data: None if the part refers to a file elsewhere.

        Raises:
            ArtifactTooLargeError: over the app's ``max_artifact_bytes``; nothing was stored.
            InvalidInputError: `part` or `custom_metadata` is not JSON; or app or user is blank, or the app is ``*``.
        """
        check_owner(key.app_name, key.user_id)
        version: int = await _STATEMENTS.fetchval(
            self._pool,
            "save_artifact",
            *_names(key),
            encode_body(part, where="part"),
            data,
            None if mime_type is None else clean_text(mime_type),
            encode_body(custom_metadata or {}, where="custom_metadata"),
        )
        return version

    async def read(self, key: ArtifactKey, version: int = LATEST) -> StoredArtifact | None:
        """Read one version with its bytes; None if there is none."""
        return await self._one(key, version, with_data=True)

    async def describe(self, key: ArtifactKey, version: int = LATEST) -> StoredArtifact | None:
        """Read one version without its bytes; None if there is none."""
        return await self._one(key, version, with_data=False)

    async def versions(self, key: ArtifactKey) -> list[StoredArtifact]:
        """List all versions without their bytes, ascending."""
        return [_stored(row) for row in await _STATEMENTS.fetch(self._pool, "read_artifact", *_names(key), None, False)]

    async def list_keys(self, app_name: str, user_id: str, session_id: str | None) -> list[str]:
        """List the filenames of a session and of its user, each once, by code point; for None of the user alone."""
        rows = await _STATEMENTS.fetch(self._pool, "list_artifact_keys", app_name, user_id, session_id)
        return [row["filename"] for row in rows]

    async def delete(self, key: ArtifactKey) -> None:
        """Delete an artifact with all its versions, if there is one.

        Its bytes are deleted too, unless another artifact has the same.
        """
        await _STATEMENTS.execute(self._pool, "delete_artifact", *_names(key))

    async def _one(self, key: ArtifactKey, version: int, *, with_data: bool) -> StoredArtifact | None:
        if not LATEST <= version < 2**31:
            return None
        rows = await _STATEMENTS.fetch(self._pool, "read_artifact", *_names(key), version, with_data)
        return _stored(rows[0]) if rows else None


def _names(key: ArtifactKey) -> tuple[str, str, str | None, str]:
    return key.app_name, key.user_id, key.session_id, key.filename


def _stored(row: asyncpg.Record) -> StoredArtifact:
    return StoredArtifact(
        version=row["version"],
        part=decode_body(row["part"]),
        data=row["data"],
        mime_type=row["mime_type"],
        custom_metadata=decode_body(row["custom_metadata"]),
        created_at=row["created_at"],
    )
