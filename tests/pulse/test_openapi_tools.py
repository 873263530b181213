"""OpenAPI documents as tools: what is read, what is refused, and the requests that calls make."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from pulse.errors import InvalidInputError
from pulse.tools import openapi
from pulse.tools.openapi import DocumentError
from pulse.tools.records import ToolError
from pulse.tools.registry import ToolRegistry
from pulse.tools.schemas import SchemaCheck
from tests.support.authority import server_context, trusted_authority
from tests.support.tool_service import ToolService, document, tool_service
from tests.support.waiting import WAIT_SECONDS

LOOPBACK = "127.0.0.0/8"
TEXT = {"type": "string"}


@pytest.fixture
async def service() -> AsyncIterator[ToolService]:
    async with tool_service() as running:
        yield running


def parameter(name: str, place: str, schema: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    required = {"required": True} if place == "path" else {}
    return {"name": name, "in": place, "schema": schema or TEXT, **required, **more}


def getting(operation: dict[str, Any]) -> dict[str, Any]:
    return document("https://e.org", {"/x": {"get": operation}})


def faults_of(raw: Any) -> dict[str, str]:
    with pytest.raises(DocumentError) as caught:
        openapi.load(openapi.parse(raw))
    return caught.value.faults


async def test_an_operation_is_called_with_each_kind_of_parameter(
    registry: ToolRegistry, service: ToolService, tmp_path: Path
) -> None:
    """From a YAML file: path, query, header and body arrive as OpenAPI says; the path cannot be left."""
    described = document(
        service.url,
        {
            "/echo/{id}": {
                "parameters": [parameter("id", "path")],
                "post": {
                    "operationId": "send thing",
                    "parameters": [
                        parameter("tags", "query", {"type": "array", "items": TEXT}),
                        parameter("packed", "query", {"type": "array", "items": TEXT}, explode=False),
                        parameter("filter", "query", {"type": "object"}, style="deepObject"),
                        parameter("X-Trace", "header"),
                        parameter("Authorization", "header"),
                        parameter("id", "query"),
                    ],
                    "requestBody": {
                        "required": True,
                        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}},
                    },
                },
            }
        },
        components={
            "schemas": {
                "Thing": {
                    "type": "object",
                    "properties": {
                        "name": TEXT,
                        "parts": {"type": "array", "items": {"$ref": "#/components/schemas/Thing"}},
                    },
                    "required": ["name"],
                },
                "Unused": {"type": "object"},
            }
        },
    )
    import yaml

    file = tmp_path / "service.yaml"
    file.write_text(yaml.safe_dump(json.loads(json.dumps(described))))
    change = await registry.put_openapi("service", file, allowed_networks=LOOPBACK)
    assert change.added == ("send_thing",)
    tool = await registry.get("send_thing")
    assert set(tool.input_schema["$defs"]) == {"Thing"}
    assert "Authorization" not in tool.input_schema["properties"]
    given = {
        "id": "a/b ä?#", "tags": ["x", "y z"], "packed": ["1", "2"], "filter": {"k": "v"}, "X-Trace": "t",
        "id_query": "q", "body": {"name": "n", "parts": [{"name": "p"}]},
    }  # fmt: skip
    found = await registry.invoke_tool("send_thing", given, user_id="ann")
    asked = service.asked[0]
    assert asked.path == "/echo/a%2Fb%20%C3%A4%3F%23"
    assert found["query"] == [
        ["tags", "x"], ["tags", "y z"], ["packed", "1,2"], ["filter[k]", "v"], ["id", "q"],
    ]  # fmt: skip
    assert (asked.headers["x-trace"], json.loads(asked.body)) == ("t", given["body"])
    assert len(asked.headers["idempotency-key"]) == 36
    for wrong, code in (
        ({**given, "id": ".."}, "invalid_arguments"), ({**given, "id": "."}, "invalid_arguments"),
        ({**given, "X-Trace": "a\r\nX-Admin: 1"}, "invalid_arguments"), ({**given, "more": 1}, "invalid_arguments"),
        ({**given, "body": {"name": "n", "more": 1}}, "invalid_arguments"),
        ({**given, "body": {}}, "invalid_arguments"),
    ):  # fmt: skip
        assert (await registry.invoke_tool("send_thing", wrong))["error"]["code"] == code, wrong
    assert len(service.asked) == 1


async def test_a_document_that_refers_to_itself_stays_as_small_as_it_is() -> None:
    """17 levels that double at each: inlined they would be millions of schemas; as references they are 17."""
    schemas = {
        f"L{level}": {
            "type": "object",
            "properties": {side: {"$ref": f"#/components/schemas/L{level + 1}"} for side in ("left", "right")},
        }
        for level in range(40)
    }
    schemas["L40"] = {"type": "object", "properties": {"self": {"$ref": "#/components/schemas/L0"}}}
    body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/L0"}}}}
    raw = document("https://example.org", {"/x": {"post": {"requestBody": body}}}, components={"schemas": schemas})
    began = time.process_time()
    loaded = openapi.load(raw)
    assert len(json.dumps(loaded.operations[0].input_schema)) < 3 * len(json.dumps(raw))
    assert not SchemaCheck(loaded.operations[0].input_schema).problems({"body": {"left": {"right": {}}}})
    assert time.process_time() - began < 30


async def test_openapi_30_is_read_as_json_schema() -> None:
    """nullable, boolean bounds and examples of 3.0 become what 2020-12 has."""
    schema = {
        "type": "object",
        "properties": {
            "age": {"type": "integer", "minimum": 0, "exclusiveMinimum": True, "nullable": True, "example": 3},
            "kind": {"type": "string", "enum": ["a"], "nullable": True},
        },
    }
    raw = document("https://example.org", {"/x": {"get": {"parameters": [parameter("q", "query", schema)]}}})
    check = SchemaCheck(openapi.load({**raw, "openapi": "3.0.3"}).operations[0].input_schema)
    assert check.problems({"q": {"age": None, "kind": None}}) == []
    assert check.problems({"q": {"age": 0}}) == ["/q/age: exclusiveMinimum 0"]
    # A value is never in a problem, however many there are.
    many = check.problems({f"secret{n}": "marker" for n in range(50)} | {"q": {"age": "marker"}})
    assert len(many) <= 5
    assert "marker" not in "".join(many)
    hostile = SchemaCheck({"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}})
    began = time.process_time()
    assert hostile.problems({"a": "a" * 28 + "!"})
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("raw", "where"),
    [
        ("{", "/"), ("[]", "/"), ("\xff", "/"), ("a: &x 1\nb: *x", "/"), ("a: !!python/object:os.system x", "/"),
        ("{" * 100_000, "/"), ("[" * 5000, "/"), (" " * (2 * 2**20 + 1), "/"),
        ({"swagger": "2.0"}, "/swagger"), ({"openapi": "4.0.0"}, "/openapi"), ({"openapi": "3.1.0"}, "/paths"),
        (document("https://e.org", {"/{x}": {"get": {}}}), "/paths/~1{x}/get"),
        (getting({"parameters": [parameter("y", "path")]}), "/paths/~1x/get"),
        (getting({"parameters": [{"in": "query"}]}), "/paths/~1x/get/parameters/0"),
        (document("ftp://e.org", {"/x": {"get": {}}}), "/servers/0/url"),
        (document("https://me:pw@e.org", {"/x": {"get": {}}}), "/servers/0/url"),
        (getting({"responses": {"$ref": "https://e.org/x"}}), "/paths/~1x/get/responses/$ref"),
        (getting({"responses": {"$ref": "file:///etc/passwd"}}), "/paths/~1x/get/responses/$ref"),
        (getting({"responses": {"200": {"$ref": "#/no"}}}), "/paths/~1x/get/responses/200/$ref"),
        (getting({"parameters": [parameter("q", "query", {"type": "strin"})]}), "/paths/~1x/get"),
        (document("https://e.org", {"/x": {m: {"operationId": "a"} for m in ("get", "put")}}), "/paths/~1x/put/operationId"),  # noqa: E501
        (document("https://e.org", {f"/{n}": {"get": {}} for n in range(501)}), "/paths"),
        (getting({"security": [{"k": []}]}), "/paths/~1x/get/security"),
    ],
)  # fmt: skip
def test_a_document_with_a_fault_is_refused_by_its_pointer(raw: Any, where: str) -> None:
    given = raw.encode("latin-1") if raw == "\xff" else raw
    assert where in faults_of(given)


def test_names_that_are_cut_stay_apart() -> None:
    """Two names with the same first 64 characters are two tools; each has at most 64."""
    first, second = openapi.tool_name("get" + "x" * 80 + "1"), openapi.tool_name("get" + "x" * 80 + "2")
    assert first != second
    assert len(first) == len(second) == 64
    assert openapi.tool_name("GET /a/{b}") == "GET_a_b"


async def test_storing_a_document_again_adds_changes_and_ends_its_tools(
    registry: ToolRegistry, service: ToolService
) -> None:
    """In one transaction; a document with a fault, or a name of another source, changes nothing."""
    one = document(service.url, {"/a": {"get": {"operationId": "a"}}, "/b": {"get": {"operationId": "b"}}})
    assert (await registry.put_openapi("s", one, allowed_networks=LOOPBACK)).added == ("a", "b")
    assert await registry.invoke_tool("b", {}) == {"path": "/b", "query": {}}
    again = await registry.put_openapi("s", json.dumps(one), allowed_networks=LOOPBACK)
    assert (again.added, again.changed, again.gone) == ((), (), ())
    two = document(service.url, {"/a2": {"get": {"operationId": "a"}}, "/c": {"get": {"operationId": "c"}}})
    with pytest.raises(DocumentError):
        await registry.put_openapi("s", {**two, "openapi": "2"}, allowed_networks=LOOPBACK)
    await registry.register_tool("mine", lambda: 1)
    with pytest.raises(InvalidInputError):
        await registry.put_openapi("s", document(service.url, {"/m": {"get": {"operationId": "mine"}}}))
    assert (await registry.invoke_tool("b", {}))["path"] == "/b"
    change = await registry.put_openapi("s", two, allowed_networks=LOOPBACK)
    assert (change.added, change.changed, change.gone) == (("c",), ("a",), ("b",))
    assert (await registry.invoke_tool("a", {}))["path"] == "/a2"
    assert (await registry.invoke_tool("b", {}))["error"]["code"] == "unknown_tool"
    assert [(each.name, each.version, each.is_active) for each in await registry.list_tools(inactive=True)] == [
        ("a", 2, True), ("b", 1, False), ("c", 1, True), ("mine", 1, True),
    ]  # fmt: skip
    await registry.rollback("a", 1)
    assert (await registry.invoke_tool("a", {}))["path"] == "/a"


async def test_faults_of_a_server_are_results_with_their_codes(registry: ToolRegistry, service: ToolService) -> None:
    """A refused address, a redirect, a broken connection after the request, a body that is too large or too slow."""
    paths = {
        f"/{name}": {method: {"operationId": name}}
        for name, method in (
            ("redirect", "get"), ("large", "get"), ("broken", "post"), ("hold", "post"), ("fail", "get"),
        )
    }  # fmt: skip
    slow = document(service.url, {"/hold": paths.pop("/hold")})
    given = document(service.url, paths)
    await registry.put_openapi("s", given)
    assert (await registry.invoke_tool("large", {}))["error"]["code"] == "blocked_address"
    assert service.asked == []
    rules = {"max_response_bytes": 10_000}
    for name, kept, seconds in (("s", given, WAIT_SECONDS), ("slow", slow, 0.5)):
        await registry.put_openapi(name, kept, allowed_networks=LOOPBACK, permissions=rules, timeout_seconds=seconds)
    for name, code in (
        ("redirect", "tool_failed"), ("large", "too_large"), ("broken", "outcome_unknown"), ("hold", "timeout"),
        ("fail", "tool_failed"),
    ):  # fmt: skip
        found = await registry.call(name, {})
        assert found.error_code == code, (name, found)
    statuses = {each.tool_name: each.status for each in await registry.executions()}
    assert (statuses["broken"], statuses["hold"]) == ("unknown", "timeout")


async def test_a_tool_over_tls_is_called_by_its_name_and_by_no_other(
    pool: asyncpg.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its credential is sent to a server with a certificate for the name alone, wherever the name resolves to."""

    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    monkeypatch.setenv("TOOL_KEY", "marker-1234567")
    scheme = {"securitySchemes": {"s": {"type": "http", "scheme": "bearer"}}}
    paths = {"/echo": {"post": {"operationId": "echo", "security": [{"s": []}]}}}
    with trusted_authority(tmp_path) as authority:
        for certified in ("other.example", "service.example"):
            async with (
                tool_service(tls=server_context(authority, certified)) as service,
                ToolRegistry(pool, "shop", resolve=resolve) as registry,
            ):
                given = document(f"https://service.example:{service.port}", paths, components=scheme)
                await registry.put_openapi("s", given, credentials={"s": "env:TOOL_KEY"}, allowed_networks=LOOPBACK)
                found = await registry.call("echo", {})
                if certified == "service.example":
                    assert found.error_code is None
                    assert service.asked[0].headers["authorization"] == "Bearer marker-1234567"
                else:
                    assert (found.error_code, service.asked) == ("tool_failed", [])
                    assert "nothing was sent" in (found.error or "")


SCHEMES = {
    "key": ({"type": "apiKey", "in": "header", "name": "X-Api-Key"}, "marker-1234567"),
    "query": ({"type": "apiKey", "in": "query", "name": "k"}, "marker-1234567"),
    "bearer": ({"type": "http", "scheme": "Bearer"}, "marker-1234567"),
    "basic": ({"type": "http", "scheme": "basic"}, "me:marker-1234567"),
}


@pytest.mark.parametrize("kind", [*SCHEMES, "oauth"])
async def test_a_credential_is_sent_to_its_origin_and_kept_out_of_everything_else(
    pool: asyncpg.Pool,
    service: ToolService,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """What the service echoes of it is not in the result, in any table, or in the log."""
    scheme, secret = SCHEMES.get(kind, ({}, "id:marker-1234567"))
    if kind == "oauth":
        flow = {"tokenUrl": f"{service.url}/token", "scopes": {}}
        scheme = {"type": "oauth2", "flows": {"clientCredentials": flow}}
    monkeypatch.setenv("TOOL_KEY", secret)
    secured = {"security": [{"s": []}]}
    given = document(
        service.url,
        {"/echo": {"get": {"operationId": "echo", **secured}}, "/fail": {"get": {"operationId": "fail", **secured}}},
        components={"securitySchemes": {"s": scheme}},
    )
    async with ToolRegistry(pool, "shop") as registry:
        with pytest.raises(DocumentError, match="credential"):
            await registry.put_openapi("s", given, allowed_networks=LOOPBACK)
        with pytest.raises(DocumentError, match="http"):
            await registry.put_openapi("s", given, credentials={"s": "env:TOOL_KEY"})
        for wrong in ("marker-1234567", "env:DATABASE_URL", "file:/etc/passwd", "file:/run/secrets/../x"):
            with pytest.raises(InvalidInputError):
                await registry.put_openapi("s", given, credentials={"s": wrong}, allowed_networks=LOOPBACK)
        await registry.put_openapi("s", given, credentials={"s": "env:TOOL_KEY"}, allowed_networks=LOOPBACK)
        found = await registry.invoke_tool("echo", {})
        failed = await registry.invoke_tool("fail", {})
    asked = service.asked[-2]
    sent = dict(asked.query).get("k") or asked.headers.get("x-api-key") or asked.headers["authorization"]
    assert {
        "key": sent == secret, "query": sent == secret, "bearer": sent == f"Bearer {secret}",
        "basic": sent.startswith("Basic "), "oauth": sent == "Bearer tok-of-the-service",
    }[kind]  # fmt: skip
    rows = [dict(row) for row in await pool.fetch("SELECT * FROM tool_executions")]
    rows += [dict(row) for row in await pool.fetch("SELECT to_jsonb(s) AS s FROM tool_sources AS s")]
    everything = json.dumps([found, failed, rows], default=str) + "".join(capfd.readouterr())
    for hidden in ("marker-1234567", "tok-of-the-service", sent.removeprefix("Basic ")):
        assert hidden not in everything
    assert "[redacted]" in json.dumps(found)


async def test_a_call_that_runs_ends_on_the_source_that_it_began_with(
    registry: ToolRegistry, service: ToolService
) -> None:
    given = document(service.url, {"/hold": {"post": {"operationId": "hold"}}, "/a": {"get": {"operationId": "a"}}})
    await registry.put_openapi("s", given, allowed_networks=LOOPBACK)
    running = asyncio.create_task(registry.call("hold", {}))
    await service.held.wait()
    await registry.put_openapi("s", document(service.url, {"/a": {"get": {"operationId": "a"}}}))
    assert (await registry.call("a", {})).error_code == "blocked_address"
    assert (await registry.call("hold", {})).error_code == "unknown_tool"
    assert not running.done()
    service.go.set()
    assert (await running).value == {"path": "/hold"}
    # A source that was read just before a change is not kept after it.
    await registry.put_openapi("s", given, allowed_networks=LOOPBACK)
    assert (await registry.call("a", {})).error_code is None
    (stale,) = registry._sources.values()
    await registry.put_openapi("s", document(service.url, {"/a": {"get": {"operationId": "a"}}}))
    assert await registry.get_available_tools()
    registry._sources = dict.fromkeys(await registry._pool.fetchval("SELECT array_agg(id) FROM tool_sources"), stale)
    assert (await registry.call("a", {})).error_code == "blocked_address"


async def test_what_documents_say_in_practice(registry: ToolRegistry, service: ToolService) -> None:
    """Nullable parts of 3.0, what only one side has, several successes, servers with variables, styles, null."""
    pet = {
        "type": "object",
        "required": ["id", "name", "secret"],
        "properties": {
            "id": {"type": "integer", "readOnly": True},
            "name": TEXT,
            "secret": {"type": "string", "writeOnly": True},
            "owner": {"allOf": [{"$ref": "#/components/schemas/Owner"}], "nullable": True},
            "former": {"$ref": "#/components/schemas/Owner", "nullable": True},
        },
    }
    owner = {"type": "object", "required": ["name"], "properties": {"name": TEXT}}
    reply = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}, "text/xml": {}}}
    choice = {"oneOf": [{"type": "string"}, {"type": "array", "items": TEXT}], "nullable": True}
    raw = document(
        "http://{host}:{port}",
        {
            "/empty": {
                "post": {
                    "operationId": "make",
                    "parameters": [
                        {"$ref": "#/components/parameters/Q"},
                        parameter("n", "query", {**TEXT, "nullable": True}),
                    ],
                    "requestBody": {"$ref": "#/components/requestBodies/Pet"},
                    "responses": {"200": {"$ref": "#/components/responses/Pet~1one"}, "204": {"description": "None."}},
                }
            },
            "/x{y}": {"get": {"operationId": "odd", "parameters": [parameter("y", "path", style="matrix")]}},
        },
        components={
            "schemas": {"Pet": pet, "Owner": owner},
            "parameters": {"Q": parameter("q", "query", choice)},
            "requestBodies": {
                "Pet": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}}}
            },
            "responses": {"Pet/one": reply},
        },
    )
    variables = {"host": {"default": "127.0.0.1"}, "port": {"default": str(service.port), "enum": [str(service.port)]}}
    raw = {**raw, "openapi": "3.0.3", "servers": [{"url": "http://{host}:{port}", "variables": variables}]}
    change = await registry.put_openapi("s", raw, allowed_networks=LOOPBACK)
    assert (change.added, list(change.skipped)) == (("make",), ["/paths/~1x{y}/get"])
    body = {"name": "n", "secret": "s", "owner": None, "former": None}
    for given in ({"q": ["a", "b"], "n": None, "body": body}, {"q": "a", "body": {**body, "owner": {"name": "x"}}}):
        made = await registry.call("make", given)
        assert (made.status, made.value) == ("succeeded", None), made
    assert [each.query for each in service.asked] == [[("q", "a"), ("q", "b")], [("q", "a")]]
    for wrong in ({"q": 1}, {"body": {"name": "n"}}, {"body": {**body, "owner": {}}}):
        assert (await registry.call("make", wrong)).error_code == "invalid_arguments"
    result = SchemaCheck((await registry.get("make")).output_schema or {})
    assert not result.problems(None)
    assert not result.problems({"id": 1, "name": "n", "owner": None})
    assert result.problems({"name": "n"})


async def test_of_alternative_credentials_those_that_exist_are_used(
    registry: ToolRegistry, service: ToolService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operation takes a key, a token of OpenID Connect, or nothing; OAuth2 asks for the scopes that are used."""
    monkeypatch.setenv("TOOL_KEY", "token-123456")
    flow = {"clientCredentials": {"tokenUrl": f"{service.url}/token", "scopes": {"read": "", "write": ""}}}
    schemes = {
        "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
        "oidc": {"type": "openIdConnect", "openIdConnectUrl": "https://example.org/"},
        "code": {"type": "oauth2", "flows": {"authorizationCode": {}}},
        "client": {"type": "oauth2", "flows": flow},
        "mutual": {"type": "mutualTLS"},
    }
    paths = {
        "/echo/any": {"get": {"operationId": "any", "security": [{}, {"mutual": []}, {"key": []}, {"oidc": []}]}},
        "/echo/one": {"get": {"operationId": "one", "security": [{"key": []}, {"client": ["read"]}, {"code": []}]}},
    }
    given = document(service.url, paths, components={"securitySchemes": schemes})

    async def sent(**credentials: str) -> list[str | None]:
        await registry.put_openapi("s", given, credentials=credentials, allowed_networks=LOOPBACK)
        found = [await registry.call(name, {}) for name in ("any", "one")]
        assert [each.error for each in found] == [None, None]
        asked = [each for each in service.asked if each.path.startswith("/echo")][-2:]
        return [each.headers.get("x-api-key") or each.headers.get("authorization") for each in asked]

    secret = "env:TOOL_KEY"
    assert await sent(key=secret) == ["token-123456"] * 2
    assert await sent(oidc=secret, code=secret) == ["Bearer token-123456"] * 2
    monkeypatch.setenv("TOOL_KEY", "id:secret-1234")
    assert await sent(client=secret) == [None, "Bearer tok-of-the-service"]
    (token,) = [each for each in service.asked if each.path == "/token"]
    assert b"scope=read" in token.body
    assert b"write" not in token.body
    with pytest.raises(DocumentError, match="credential"):
        await registry.put_openapi("s", given, allowed_networks=LOOPBACK)


async def test_a_credential_goes_over_http_to_no_public_host_whatever_is_allowed(
    pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not to the service, not to where its tokens are, and no document that says where it goes is read over http."""
    monkeypatch.setenv("TOOL_KEY", "id:marker-1234567")
    asked: list[str] = []

    async def resolve(host: str, _port: int) -> list[str]:
        asked.append(host)
        return ["93.184.216.34"]

    flow = {"clientCredentials": {"tokenUrl": "http://tokens.example/token", "scopes": {}}}
    schemes = {"client": {"type": "oauth2", "flows": flow}, "key": {"type": "http", "scheme": "bearer"}}
    async with ToolRegistry(pool, "shop", resolve=resolve) as registry:
        for scheme, url, host in (
            ("client", "https://api.example", "tokens.example"),
            ("key", "http://api.example", "api.example"),
        ):
            paths = {"/a": {"get": {"operationId": "a", "security": [{scheme: []}]}}}
            given = document(url, paths, components={"securitySchemes": schemes})
            await registry.put_openapi(
                "s", given, credentials={scheme: "env:TOOL_KEY"}, allowed_networks=f"{LOOPBACK},93.0.0.0/8"
            )
            refused = await registry.call("a", {})
            assert (refused.error_code, asked.pop()) == ("blocked_address", host)
            assert "use https" in (refused.error or "")
        with pytest.raises(ToolError, match="use https"):
            await registry.put_openapi(
                "s", "http://docs.example/a.json", credentials={"key": "env:TOOL_KEY"}, allowed_networks=LOOPBACK
            )


async def test_a_name_that_moves_inside_is_refused_at_the_call(pool: asyncpg.Pool, service: ToolService) -> None:
    """A name resolves to a public address when it is registered, and to a private one when it is called."""
    found = ["93.184.216.34"]

    async def resolve(_host: str, _port: int) -> list[str]:
        return found

    async with ToolRegistry(pool, "shop", resolve=resolve) as registry:
        given = document(f"http://shop.example:{service.port}", {"/a": {"get": {"operationId": "a"}}})
        await registry.put_openapi("s", given)
        for inside in ("127.0.0.1", "10.0.0.1", "169.254.169.254", "::ffff:127.0.0.1", "64:ff9b::7f00:1"):
            found[:] = [inside]
            assert (await registry.call("a", {})).error_code == "blocked_address", inside
        assert service.asked == []
        assert {each.error_code for each in await registry.executions()} == {"blocked_address"}
