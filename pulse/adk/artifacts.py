"""Google ADK's artifact service on PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from google.adk.artifacts import artifact_util
from google.adk.artifacts.base_artifact_service import ArtifactVersion, BaseArtifactService, ensure_part
from google.adk.errors.input_validation_error import InputValidationError
from google.genai import types
from typing_extensions import override

from pulse.artifacts import LATEST, ArtifactKey, ArtifactStore, StoredArtifact
from pulse.errors import InvalidInputError
from pulse.loop_pools import access

if TYPE_CHECKING:
    from pulse.database import Pool
    from pulse.loop_pools import PoolAccess

#: The maximum number of references to follow, as in ADK's own services.
REFERENCE_DEPTH_MAX: Final = 5
USER_PREFIX: Final = "user:"
#: Saved by a rewind in place of an artifact that did not exist yet.
_TOMBSTONE = types.Part(inline_data=types.Blob(mime_type="application/octet-stream", data=b""))


class PostgresArtifactService(BaseArtifactService):
    """Replaces ADK's artifact services; see their base class for the meaning of each method.

    A filename that begins with ``user:`` belongs to the user, in every session. `canonical_uri` is an ``artifact://``
    URI, which another artifact of the same user may refer to.

    Raises, from every method:
        InputValidationError: a name is out of its bounds, a session is missing, or a reference is out of its scope.
    """

    def __init__(self, database: Pool | PoolAccess | str) -> None:
        """Take a pool of the event loop that all calls come from, or a URL (``postgresql://…``) for any loops."""
        self._database = access(database)

    async def close(self) -> None:
        """Close the pools that a URL opened."""
        await self._database.close()

    @override
    async def save_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        artifact: types.Part | dict[str, Any],
        session_id: str | None = None,
        custom_metadata: dict[str, Any] | None = None,
    ) -> int:
        """Save a version and return its number.

        Raises:
            InputValidationError: also if the file is over the app's ``max_artifact_bytes``; nothing was stored.
        """
        session_id = _stripped(session_id)
        key = _key(app_name, user_id, filename, session_id)
        part = ensure_part(artifact)
        if artifact_util.is_artifact_ref(part):
            _target(part, app_name, user_id, session_id)
        fields, data, mime_type = _take_apart(part)
        try:
            return await self._database.run(
                lambda pool: ArtifactStore(pool).save(
                    key, fields, data, mime_type=mime_type, custom_metadata=custom_metadata
                )
            )
        except InvalidInputError as error:
            raise _as_adk(error) from error

    @override
    async def load_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> types.Part | None:
        """Load a version, the newest for None, and follow references. None if it does not exist."""
        session_id = _stripped(session_id)
        for _ in range(REFERENCE_DEPTH_MAX + 1):
            part = await self._load(_key(app_name, user_id, filename, session_id), version)
            if part is None or not artifact_util.is_artifact_ref(part):
                return part
            target = _target(part, app_name, user_id, session_id)
            filename, session_id, version = target.filename, target.session_id, target.version
        raise InputValidationError(
            f"{filename!r} is more than {REFERENCE_DEPTH_MAX} artifact references away: save the content itself"
        )

    @override
    async def list_artifact_keys(self, *, app_name: str, user_id: str, session_id: str | None = None) -> list[str]:
        """List the filenames of the session and of the user, sorted."""
        session_id = _stripped(session_id)
        _check_scope(app_name, user_id, session_id)
        return await self._database.run(lambda pool: ArtifactStore(pool).list_keys(app_name, user_id, session_id))

    @override
    async def delete_artifact(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> None:
        """Delete an artifact with all versions. If it is saved again, it starts at version 0."""
        key = _key(app_name, user_id, filename, session_id)
        await self._database.run(lambda pool: ArtifactStore(pool).delete(key))

    @override
    async def list_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[int]:
        """List the versions' numbers."""
        return [each.version for each in await self._versions(_key(app_name, user_id, filename, session_id))]

    @override
    async def list_artifact_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[ArtifactVersion]:
        """List the versions with their metadata."""
        key = _key(app_name, user_id, filename, session_id)
        return [_version(key, each) for each in await self._versions(key)]

    @override
    async def get_artifact_version(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> ArtifactVersion | None:
        """Return the metadata of a version, the newest for None."""
        key = _key(app_name, user_id, filename, session_id)
        if version is not None and version < 0:
            return None
        number = LATEST if version is None else version
        stored = await self._database.run(lambda pool: ArtifactStore(pool).describe(key, number))
        return None if stored is None else _version(key, stored)

    async def _versions(self, key: ArtifactKey) -> list[StoredArtifact]:
        return await self._database.run(lambda pool: ArtifactStore(pool).versions(key))

    async def _load(self, key: ArtifactKey, version: int | None) -> types.Part | None:
        if version is not None and version < 0:
            return None
        number = LATEST if version is None else version
        stored = await self._database.run(lambda pool: ArtifactStore(pool).read(key, number))
        if stored is None:
            return None
        part = _put_together(stored)
        return None if part in (types.Part(), _TOMBSTONE) else part


def _stripped(session_id: str | None) -> str | None:
    """Return a session's id as `PostgresSessionService` stores it, with which its files are erased."""
    return None if session_id is None else session_id.strip()


def _key(app_name: str, user_id: str, filename: str, session_id: str | None) -> ArtifactKey:
    session_id = _stripped(session_id)
    is_users = filename.startswith(USER_PREFIX)
    if not is_users and session_id is None:
        raise InputValidationError(
            f"{filename!r} needs a session_id; the names of files for every session of a user begin with"
            f" {USER_PREFIX!r}"
        )
    _check_scope(app_name, user_id, None if is_users else session_id)
    try:
        return ArtifactKey(
            app_name=app_name, user_id=user_id, session_id=None if is_users else session_id, filename=filename
        )
    except InvalidInputError as error:
        raise _as_adk(error) from error


def _check_scope(app_name: str, user_id: str, session_id: str | None) -> None:
    artifact_util.validate_path_segment(app_name, "app_name")
    artifact_util.validate_path_segment(user_id, "user_id")
    if session_id is not None:
        artifact_util.validate_path_segment(session_id, "session_id")


def _target(part: types.Part, app_name: str, user_id: str, session_id: str | None) -> artifact_util.ParsedArtifactUri:
    """Return the target of a reference, within the caller's scope."""
    uri = (part.file_data.file_uri if part.file_data else None) or ""
    target = artifact_util.parse_artifact_uri(uri)
    if target is None:
        raise InputValidationError(
            f"{uri!r} is not a reference: write artifact://apps/APP/users/USER/sessions/SESSION/artifacts/NAME/versions/N"
        )
    artifact_util.validate_artifact_reference_scope(
        app_name=app_name, user_id=user_id, session_id=session_id, parsed_uri=target
    )
    return target


def _take_apart(part: types.Part) -> tuple[dict[str, Any], bytes | None, str | None]:
    """Return a part without its bytes, the bytes, and their type."""
    fields: dict[str, Any] = part.model_dump(mode="json", exclude_none=True)
    if part.inline_data is not None:
        fields["inline_data"].pop("data", None)
        return fields, part.inline_data.data, part.inline_data.mime_type
    if part.text is not None:
        # UTF-8 cannot encode a lone surrogate.
        return {**fields, "text": ""}, part.text.encode("utf-8", "surrogatepass"), "text/plain"
    if part.file_data is not None:
        return fields, None, None if artifact_util.is_artifact_ref(part) else part.file_data.mime_type
    raise InputValidationError("an artifact is a part with inline_data, text or file_data; this part has none of them")


def _put_together(stored: StoredArtifact) -> types.Part:
    part = types.Part.model_validate(stored.part)
    if part.inline_data is not None:
        part.inline_data.data = stored.data
    elif part.text is not None and stored.data is not None:
        part.text = stored.data.decode("utf-8", "surrogatepass")
    return part


def _version(key: ArtifactKey, stored: StoredArtifact) -> ArtifactVersion:
    return ArtifactVersion(
        version=stored.version,
        canonical_uri=artifact_util.get_artifact_uri(
            key.app_name, key.user_id, key.filename, stored.version, key.session_id
        ),
        custom_metadata=dict(stored.custom_metadata),
        create_time=stored.created_at.timestamp(),
        mime_type=stored.mime_type,
    )


def _as_adk(error: InvalidInputError) -> InputValidationError:
    return InputValidationError(str(error))
