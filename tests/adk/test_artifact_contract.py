"""The contract of ADK's artifact services: the same tests for both of ADK's own and for ours."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import psycopg
import pytest
from google.adk.artifacts import BaseArtifactService, FileArtifactService, InMemoryArtifactService
from google.adk.errors.input_validation_error import InputValidationError
from google.genai import types

from hippocampus.erasure.service import ErasureService
from hippocampus.retention import policies
from pulse.adk.artifacts import PostgresArtifactService
from pulse.session_service import OpenSessionService

SCOPE = {"app_name": "app", "user_id": "user", "session_id": "s"}
TOMBSTONE = types.Part(inline_data=types.Blob(mime_type="application/octet-stream", data=b""))

MEMORY, FILE, OURS = "in_memory", "file", "postgres"


@pytest.fixture
def dsn(contract_dsn: str) -> Iterator[str]:
    """One database for all tests; each removes its files."""
    yield contract_dsn
    with psycopg.connect(contract_dsn) as connection:
        connection.execute("TRUNCATE artifacts CASCADE")
        connection.execute("TRUNCATE artifact_blobs CASCADE")
        connection.execute("DELETE FROM app_policies WHERE app_name = 'app'")
        connection.execute("DELETE FROM threads WHERE app_name = 'app'")


@pytest.fixture
def service(request: pytest.FixtureRequest, tmp_path: Path) -> BaseArtifactService:
    if request.param == MEMORY:
        return InMemoryArtifactService()
    if request.param == FILE:
        return FileArtifactService(tmp_path)
    return PostgresArtifactService(request.getfixturevalue("pool"))


every_service = pytest.mark.parametrize("service", [MEMORY, FILE, OURS], indirect=True)
# ADK's file service has no references, stores fewer fields of a part, and keeps the name of a refused file.
with_references = pytest.mark.parametrize("service", [MEMORY, OURS], indirect=True)
ours = pytest.mark.parametrize("service", [OURS], indirect=True)


def blob(data: bytes, mime_type: str = "image/png") -> types.Part:
    return types.Part(inline_data=types.Blob(mime_type=mime_type, data=data))


def reference(uri: str) -> types.Part:
    return types.Part(file_data=types.FileData(file_uri=uri, mime_type="text/plain"))


def address(filename: str, version: int = 0, *, user: str = "user", session: str | None = "s") -> str:
    scope = f"/sessions/{session}" if session else ""
    return f"artifact://apps/app/users/{user}{scope}/artifacts/{filename}/versions/{version}"


@every_service
async def test_versions_count_from_0_and_all_are_kept(service: BaseArtifactService) -> None:
    numbers = [await service.save_artifact(**SCOPE, filename="a.png", artifact=blob(bytes([n]))) for n in range(3)]
    assert numbers == [0, 1, 2]
    assert await service.list_versions(**SCOPE, filename="a.png") == [0, 1, 2]
    for number in numbers:
        assert await service.load_artifact(**SCOPE, filename="a.png", version=number) == blob(bytes([number]))


@every_service
async def test_the_newest_version_is_loaded_by_default(service: BaseArtifactService) -> None:
    await service.save_artifact(**SCOPE, filename="a.png", artifact=blob(b"old"))
    await service.save_artifact(**SCOPE, filename="a.png", artifact=blob(b"new"))
    assert await service.load_artifact(**SCOPE, filename="a.png") == blob(b"new")


@every_service
@pytest.mark.parametrize("version", [1, 99, -1])
async def test_an_unknown_version_is_none(service: BaseArtifactService, version: int) -> None:
    await service.save_artifact(**SCOPE, filename="a.png", artifact=blob(b"x"))
    assert await service.load_artifact(**SCOPE, filename="a.png", version=version) is None
    assert await service.get_artifact_version(**SCOPE, filename="a.png", version=version) is None


@every_service
async def test_an_unknown_artifact_is_none_and_has_no_versions(service: BaseArtifactService) -> None:
    assert await service.load_artifact(**SCOPE, filename="no.png") is None
    assert await service.get_artifact_version(**SCOPE, filename="no.png") is None
    assert await service.list_versions(**SCOPE, filename="no.png") == []
    assert await service.list_artifact_versions(**SCOPE, filename="no.png") == []
    assert await service.list_artifact_keys(**SCOPE) == []
    await service.delete_artifact(**SCOPE, filename="no.png")


@every_service
async def test_text_round_trips(service: BaseArtifactService) -> None:
    await service.save_artifact(**SCOPE, filename="note.txt", artifact=types.Part(text="爱 & ü\n"))
    assert await service.load_artifact(**SCOPE, filename="note.txt") == types.Part(text="爱 & ü\n")


@every_service
async def test_a_dict_with_camel_case_keys_is_accepted_as_a_part(service: BaseArtifactService) -> None:
    await service.save_artifact(
        **SCOPE, filename="a.png", artifact={"inlineData": {"mimeType": "image/png", "data": "AAH/"}}
    )
    assert await service.load_artifact(**SCOPE, filename="a.png") == blob(b"\x00\x01\xff")


@every_service
async def test_a_users_file_is_visible_in_all_sessions_of_that_user_only(service: BaseArtifactService) -> None:
    await service.save_artifact(**SCOPE, filename="user:face.png", artifact=blob(b"face"))
    elsewhere = {**SCOPE, "session_id": "other"}
    assert await service.load_artifact(**elsewhere, filename="user:face.png") == blob(b"face")
    without_session = {"app_name": "app", "user_id": "user"}
    assert await service.load_artifact(**without_session, filename="user:face.png") == blob(b"face")
    assert await service.load_artifact(**{**SCOPE, "user_id": "eve"}, filename="user:face.png") is None
    assert await service.load_artifact(**{**SCOPE, "app_name": "other"}, filename="user:face.png") is None


@every_service
async def test_a_sessions_file_is_invisible_in_other_sessions(service: BaseArtifactService) -> None:
    await service.save_artifact(**SCOPE, filename="a.png", artifact=blob(b"x"))
    assert await service.load_artifact(**{**SCOPE, "session_id": "other"}, filename="a.png") is None
    assert await service.list_artifact_keys(**{**SCOPE, "session_id": "other"}) == []


@every_service
async def test_keys_of_the_session_and_the_user_are_listed_sorted(service: BaseArtifactService) -> None:
    for name in ("z.txt", "b/c.txt", "user:face.png", "a.txt"):
        await service.save_artifact(**SCOPE, filename=name, artifact=types.Part(text=name))
    assert await service.list_artifact_keys(**SCOPE) == ["a.txt", "b/c.txt", "user:face.png", "z.txt"]
    assert await service.list_artifact_keys(app_name="app", user_id="user") == ["user:face.png"]


@every_service
async def test_a_deleted_artifact_is_gone_and_starts_again_at_version_0(service: BaseArtifactService) -> None:
    await service.save_artifact(**SCOPE, filename="a.png", artifact=blob(b"1"))
    await service.save_artifact(**SCOPE, filename="a.png", artifact=blob(b"2"))
    await service.save_artifact(**SCOPE, filename="b.png", artifact=blob(b"2"))
    await service.delete_artifact(**SCOPE, filename="a.png")
    assert await service.load_artifact(**SCOPE, filename="a.png") is None
    assert await service.load_artifact(**SCOPE, filename="a.png", version=0) is None
    assert await service.list_artifact_keys(**SCOPE) == ["b.png"]
    assert await service.save_artifact(**SCOPE, filename="a.png", artifact=blob(b"3")) == 0
    assert await service.load_artifact(**SCOPE, filename="b.png") == blob(b"2")


@every_service
async def test_the_tombstone_of_a_rewind_loads_as_none_until_the_next_version(service: BaseArtifactService) -> None:
    await service.save_artifact(**SCOPE, filename="a.bin", artifact=blob(b"1"))
    assert await service.save_artifact(**SCOPE, filename="a.bin", artifact=TOMBSTONE) == 1
    assert await service.load_artifact(**SCOPE, filename="a.bin") is None
    assert await service.load_artifact(**SCOPE, filename="a.bin", version=0) == blob(b"1")
    assert await service.list_artifact_keys(**SCOPE) == ["a.bin"]
    assert await service.save_artifact(**SCOPE, filename="a.bin", artifact=blob(b"3")) == 2
    assert await service.load_artifact(**SCOPE, filename="a.bin") == blob(b"3")


@every_service
async def test_versions_have_metadata(service: BaseArtifactService) -> None:
    await service.save_artifact(**SCOPE, filename="a.png", artifact=blob(b"1"), custom_metadata={"by": {"who": "me"}})
    await service.save_artifact(**SCOPE, filename="a.png", artifact=blob(b"2", "image/gif"))
    first, second = await service.list_artifact_versions(**SCOPE, filename="a.png")
    assert (first.version, first.mime_type, first.custom_metadata) == (0, "image/png", {"by": {"who": "me"}})
    assert (second.version, second.mime_type, second.custom_metadata) == (1, "image/gif", {})
    assert first.create_time <= second.create_time
    assert first.canonical_uri != second.canonical_uri
    assert await service.get_artifact_version(**SCOPE, filename="a.png", version=0) == first
    assert await service.get_artifact_version(**SCOPE, filename="a.png") == second


@with_references
async def test_a_part_that_is_not_an_artifact_is_refused_and_stores_nothing(service: BaseArtifactService) -> None:
    call = types.Part(function_call=types.FunctionCall(name="f", args={}))
    with pytest.raises(InputValidationError):
        await service.save_artifact(**SCOPE, filename="a", artifact=call)
    assert await service.list_artifact_keys(**SCOPE) == []
    assert await service.save_artifact(**SCOPE, filename="a", artifact=types.Part(text="x")) == 0


@every_service
@pytest.mark.parametrize("wrong", [{"app_name": "../x"}, {"user_id": ""}, {"session_id": "a/../b"}])
async def test_a_name_with_path_traversal_is_refused(service: BaseArtifactService, wrong: dict[str, str]) -> None:
    with pytest.raises(InputValidationError):
        await service.save_artifact(**{**SCOPE, **wrong}, filename="a", artifact=types.Part(text="x"))
    with pytest.raises(InputValidationError):
        await service.list_artifact_keys(**{**SCOPE, **wrong})


@every_service
async def test_changing_a_loaded_part_does_not_change_the_stored_one(service: BaseArtifactService) -> None:
    await service.save_artifact(**SCOPE, filename="a.png", artifact=blob(b"x"))
    loaded = await service.load_artifact(**SCOPE, filename="a.png")
    assert loaded is not None
    assert loaded.inline_data is not None
    loaded.inline_data.data = b"changed"
    assert await service.load_artifact(**SCOPE, filename="a.png") == blob(b"x")


@with_references
async def test_a_sessions_file_requires_a_session(service: BaseArtifactService) -> None:
    for call in (service.load_artifact, service.list_versions, service.delete_artifact):
        with pytest.raises(InputValidationError):
            await call(app_name="app", user_id="user", filename="a.png")


@with_references
async def test_a_file_uri_is_stored_unchanged(service: BaseArtifactService) -> None:
    elsewhere = types.Part(file_data=types.FileData(file_uri="gs://bucket/a.png", mime_type="image/png"))
    await service.save_artifact(**SCOPE, filename="a.png", artifact=elsewhere)
    assert await service.load_artifact(**SCOPE, filename="a.png") == elsewhere
    version = await service.get_artifact_version(**SCOPE, filename="a.png")
    assert version is not None
    assert version.mime_type == "image/png"


@with_references
async def test_a_reference_resolves_to_its_exact_version(service: BaseArtifactService) -> None:
    await service.save_artifact(**SCOPE, filename="a.png", artifact=blob(b"0"))
    await service.save_artifact(**SCOPE, filename="a.png", artifact=blob(b"1"))
    await service.save_artifact(**SCOPE, filename="user:b.png", artifact=reference(address("a.png", 0)))
    await service.save_artifact(**SCOPE, filename="c.png", artifact=reference(address("user:b.png", session=None)))
    await service.save_artifact(**SCOPE, filename="d.png", artifact=reference(address("a.png", 0)))
    assert await service.load_artifact(**SCOPE, filename="d.png") == blob(b"0")
    version = await service.get_artifact_version(**SCOPE, filename="d.png")
    assert version is not None
    assert version.mime_type is None
    # A user's file that refers to a session's file is out of scope when it is reached without the session.
    with pytest.raises(InputValidationError):
        await service.load_artifact(**SCOPE, filename="c.png")


@with_references
async def test_references_are_followed_at_most_five_times(service: BaseArtifactService) -> None:
    await service.save_artifact(**SCOPE, filename="f0", artifact=types.Part(text="end"))
    for number in range(1, 7):
        await service.save_artifact(**SCOPE, filename=f"f{number}", artifact=reference(address(f"f{number - 1}")))
    await service.save_artifact(**SCOPE, filename="circle", artifact=reference(address("circle")))
    assert await service.load_artifact(**SCOPE, filename="f5") == types.Part(text="end")
    for name in ("f6", "circle"):
        with pytest.raises(InputValidationError):
            await service.load_artifact(**SCOPE, filename=name)


@with_references
@pytest.mark.parametrize(
    "uri",
    [
        address("a.png", user="eve"),
        address("a.png", session="other"),
        "artifact://apps/other/users/user/artifacts/user:a.png/versions/0",
        "artifact://nonsense",
    ],
)
async def test_a_reference_outside_its_scope_is_refused(service: BaseArtifactService, uri: str) -> None:
    with pytest.raises(InputValidationError):
        await service.save_artifact(**SCOPE, filename="b.png", artifact=reference(uri))
    assert await service.list_artifact_keys(**SCOPE) == []


@with_references
async def test_fields_beside_the_bytes_round_trip(service: BaseArtifactService) -> None:
    part = types.Part(
        inline_data=types.Blob(mime_type="video/mp4", data=bytes(range(256)), display_name="clip"),
        thought_signature=b"\x00\xff",
        video_metadata=types.VideoMetadata(fps=1.5),
    )
    await service.save_artifact(**SCOPE, filename="clip", artifact=part)
    assert await service.load_artifact(**SCOPE, filename="clip") == part


@with_references
async def test_text_of_any_characters_round_trips(service: BaseArtifactService) -> None:
    part = types.Part(text="nul \0, empty next")
    await service.save_artifact(**SCOPE, filename="odd", artifact=part)
    await service.save_artifact(**SCOPE, filename="empty", artifact=types.Part(text=""))
    assert await service.load_artifact(**SCOPE, filename="odd") == part
    assert await service.load_artifact(**SCOPE, filename="empty") == types.Part(text="")


@every_service
async def test_concurrent_saves_get_distinct_versions(service: BaseArtifactService) -> None:
    parts = [blob(b"%d" % n) for n in range(20)]
    numbers = await asyncio.gather(*[service.save_artifact(**SCOPE, filename="a", artifact=part) for part in parts])
    assert sorted(numbers) == list(range(20))
    for number, part in zip(numbers, parts, strict=True):
        assert await service.load_artifact(**SCOPE, filename="a", version=number) == part


@ours
async def test_equal_bytes_are_stored_once(service: BaseArtifactService, conn: asyncpg.Connection) -> None:
    """Ten users save the same picture; one user saves another."""
    for number in range(10):
        scope = {**SCOPE, "user_id": f"u{number}"}
        await service.save_artifact(**scope, filename="logo.png", artifact=blob(b"logo" * 1000))
    await service.save_artifact(**SCOPE, filename="logo.png", artifact=blob(b"other"))
    assert await conn.fetchval("SELECT count(*) FROM artifact_blobs") == 2


@ours
async def test_a_file_over_the_apps_limit_is_refused_with_a_hint(
    service: BaseArtifactService, pool: asyncpg.Pool, conn: asyncpg.Connection
) -> None:
    await policies.set_policy(pool, "app", max_artifact_bytes=1000)
    await service.save_artifact(**SCOPE, filename="a", artifact=blob(bytes(1000)))
    with pytest.raises(InputValidationError, match=r"1001 bytes, over the limit of 1000: raise max_artifact_bytes"):
        await service.save_artifact(**SCOPE, filename="a", artifact=blob(bytes(1001)))
    assert await service.list_versions(**SCOPE, filename="a") == [0]
    assert await conn.fetchval("SELECT count(*) FROM artifact_blobs") == 1


@ours
async def test_bytes_are_deleted_with_their_last_version(
    service: BaseArtifactService, conn: asyncpg.Connection
) -> None:
    for name in ("a", "b", "c"):
        await service.save_artifact(**SCOPE, filename=name, artifact=blob(b"same"))
    await service.save_artifact(**SCOPE, filename="c", artifact=blob(b"other"))
    for name, left in (("a", 2), ("c", 1), ("b", 0)):
        await service.delete_artifact(**SCOPE, filename=name)
        assert await conn.fetchval("SELECT count(*) FROM artifact_blobs") == left


@ours
async def test_upkeep_removes_unreferenced_bytes_in_batches(
    service: BaseArtifactService, conn: asyncpg.Connection
) -> None:
    """Bytes that another transaction locked while their last version was deleted stay until the next upkeep."""
    for number in range(5):
        await service.save_artifact(**SCOPE, filename=f"f{number}", artifact=blob(b"%d" % number))
    async with conn.transaction():
        await conn.execute("SELECT FROM artifact_blobs FOR UPDATE")
        for number in range(3):
            await service.delete_artifact(**SCOPE, filename=f"f{number}")
    assert await conn.fetchval("SELECT count(*) FROM artifact_blobs") == 5
    assert await conn.fetchval("SELECT prune_artifact_blobs('1 hour')") == 0, "pruned before its age"
    assert [await conn.fetchval("SELECT prune_artifact_blobs('0', 2)") for _ in range(3)] == [2, 1, 0]
    assert await service.load_artifact(**SCOPE, filename="f4") == blob(b"4")


@ours
async def test_concurrent_saves_deletes_and_pruning_never_lose_bytes(
    service: BaseArtifactService, pool: asyncpg.Pool, conn: asyncpg.Connection
) -> None:
    """Four tasks save and delete the same bytes while another prunes blobs."""
    is_over = False

    async def save_and_delete(name: str) -> None:
        for _ in range(25):
            await service.save_artifact(**SCOPE, filename=name, artifact=blob(b"same"))
            assert await service.load_artifact(**SCOPE, filename=name) == blob(b"same")
            await service.delete_artifact(**SCOPE, filename=name)

    async def prune() -> None:
        while not is_over:
            await pool.fetchval("SELECT prune_artifact_blobs('0')")

    pruning = asyncio.create_task(prune())
    await asyncio.gather(*[save_and_delete(name) for name in "abcd"])
    is_over = True
    await pruning
    await conn.fetchval("SELECT prune_artifact_blobs('0')")
    assert await conn.fetchval("SELECT count(*) FROM artifact_blobs") == 0


@ours
async def test_erasure_removes_files(
    service: BaseArtifactService, pool: asyncpg.Pool, conn: asyncpg.Connection
) -> None:
    """Erasing a session or a user removes its files. Another user's file stays, even with equal bytes."""
    await OpenSessionService(pool).create_session("app", "user", session_id="s")
    for name in ("a", "user:b"):
        await service.save_artifact(**SCOPE, filename=name, artifact=blob(name.encode()))
    await service.save_artifact(**{**SCOPE, "user_id": "eve"}, filename="a", artifact=blob(b"user:b"))
    forgetting = ErasureService(pool)
    assert (await forgetting.erase_session("app", "user", "s")).counts["artifacts"] == 1
    assert await service.list_artifact_keys(**SCOPE) == ["user:b"]
    assert (await forgetting.erase_user("app", "user")).is_complete
    assert await service.list_artifact_keys(**SCOPE) == []
    assert await service.load_artifact(**{**SCOPE, "user_id": "eve"}, filename="a") == blob(b"user:b")
    assert await conn.fetchval("SELECT count(*) FROM artifact_blobs") == 1


@ours
async def test_blanks_around_a_session_id_are_stripped_as_the_session_service_does(
    service: BaseArtifactService, pool: asyncpg.Pool
) -> None:
    """ADK's own services keep them: here, the erasure of the session would leave such files behind."""
    await OpenSessionService(pool).create_session("app", "user", session_id="padded")
    padded, plain = {**SCOPE, "session_id": " padded "}, {**SCOPE, "session_id": "padded"}
    await service.save_artifact(**padded, filename="a", artifact=blob(b"x"))
    for scope in (padded, plain):
        assert await service.list_artifact_keys(**scope) == ["a"]
        assert await service.load_artifact(**scope, filename="a") == blob(b"x")
        assert await service.list_versions(**scope, filename="a") == [0]
    erased = await ErasureService(pool).erase_session("app", "user", "padded")
    assert erased.counts["artifacts"] == 1
