"""The routes from the API's own document, and a valid request for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import httpx

from tests.support.stream_client import asked

#: A valid name without any data.
NOBODY = "nobody"


async def document(client: httpx.AsyncClient) -> dict[str, Any]:
    found: dict[str, Any] = (await client.get("/openapi.json")).json()
    return found


def operations(page: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, item in page["paths"].items():
        for method, operation in item.items():
            yield method.upper(), path, operation


def filled(path: str, operation: Mapping[str, Any], app: str, wrong: Mapping[str, str]) -> str:
    """A path with its parameters: the given wrong values, and otherwise names without data."""
    for each in operation.get("parameters", ()):
        if each["in"] == "path":
            schema = each["schema"]
            right = {"app_name": app, "user_id": NOBODY}.get(each["name"], NOBODY)
            if schema.get("format") == "uuid":
                right = "0197f6a2-c1d0-7d0b-8a7f-2d5b7c9e1f00"
            if schema.get("type") == "integer":
                right = "1"
            if schema.get("pattern") == "^[0-9a-f]{32}$":
                right = "0" * 32
            if "enum" in schema:
                right = schema["enum"][0]
            path = path.replace(f"{{{each['name']}}}", quote(wrong.get(each["name"], right), safe=""))
    return path


def body_schema(page: Mapping[str, Any], operation: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema of an operation's body."""
    schema: Mapping[str, Any] = operation["requestBody"]["content"]["application/json"]["schema"]
    name = schema.get("$ref", "").rpartition("/")[2]
    return page["components"]["schemas"][name] if name else schema


def routine(page: Mapping[str, Any], path: str, operation: Mapping[str, Any], app: str) -> dict[str, Any]:
    """A valid request: the asserted owner, and the document's own example of a body."""
    named = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"}
    request: dict[str, Any] = {"headers": {"X-App-Name": app, "X-User-Id": NOBODY}}
    needed = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "query" and each["required"]}
    request["params"] = dict.fromkeys(needed, NOBODY)
    if named >= {"app_name", "user_id"}:
        request["params"] |= {"app_name": app, "user_id": NOBODY}
    if "requestBody" in operation:
        examples = body_schema(page, operation).get("examples", ())
        request["json"] = examples[0] if examples else asked(NOBODY, NOBODY)
    return request


def asked_operations(page: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for method, path, operation in operations(page):
        if path not in ("/health", "/api/me") and not path.startswith("/api/test-"):
            yield method, path, operation
