"""Calls of HTTP tools: the request of an operation with its arguments, and its response as a result."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

import httpcore

from pulse.outbound.addresses import RefusedAddressError, UnencryptedError
from pulse.outbound.client import OutboundClient, Response, TooLargeError
from pulse.tools import credentials
from pulse.tools.openapi import is_json
from pulse.tools.records import Nature, ToolError
from pulse.tools.redaction import without

_ERROR_CHARACTERS_SHOWN = 500
_TOKEN_BYTES_MAX = 65_536
_TOKEN_SECONDS = 10.0
#: How long before its end a token is renewed, so that it does not expire on its way.
_TOKEN_MARGIN_SECONDS = 30.0


@dataclass(slots=True)
class Request:
    """A request, before it is sent.

    Attributes:
        secrets: what of it must be stored nowhere.
    """

    method: str
    url: str
    headers: dict[str, str] = field(default_factory=dict)
    query: list[tuple[str, str]] = field(default_factory=list)
    body: bytes | None = None
    secrets: list[str] = field(default_factory=list)


def build(call: Mapping[str, Any], given: Mapping[str, Any]) -> Request:
    """Return the request of an operation, without its credentials.

    Raises:
        ToolError: an argument cannot be part of a URL or a header.
    """
    path = call["path"]
    request = Request(call["method"], "")
    for parameter in call["parameters"]:
        value = given.get(parameter["argument"])
        if value is None and (parameter["in"] != "path" or parameter["argument"] not in given):
            continue  # also one that may be null: a URL has no null
        name, place = parameter["name"], parameter["in"]
        if parameter["content"] is not None:
            value = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        if place == "query":
            request.query.extend(_query(name, value, parameter["style"], explode=parameter["explode"]))
            continue
        text = _simple(value, explode=parameter["explode"])
        if place == "path":
            if text in ("", ".", ".."):
                raise ToolError(f"{name} is part of a path: it cannot be {text!r}", "invalid_arguments")
            path = path.replace(f"{{{name}}}", quote(text, safe=""))
        elif place == "header":
            request.headers[name.lower()] = _header(name, text)
        else:
            request.headers["cookie"] = "; ".join(
                filter(None, (request.headers.get("cookie"), f"{name}={quote(text, safe='')}"))
            )
    request.url = call["url"] + path
    request.headers["accept"] = "application/json, text/*;q=0.5"
    if call["body"] is not None and "body" in given:
        request.headers["content-type"] = call["body"]
        request.body = _body(call["body"], given["body"])
    return request


def _query(name: str, value: Any, style: str, *, explode: bool) -> list[tuple[str, str]]:
    if isinstance(value, Mapping):
        if style == "deepObject":
            return [(f"{name}[{key}]", _plain(item)) for key, item in value.items()]
        if explode:
            return [(str(key), _plain(item)) for key, item in value.items()]
        return [(name, ",".join(f"{key},{_plain(item)}" for key, item in value.items()))]
    if isinstance(value, list):
        if explode:
            return [(name, _plain(item)) for item in value]
        separator = {"spaceDelimited": " ", "pipeDelimited": "|"}.get(style, ",")
        return [(name, separator.join(map(_plain, value)))]
    return [(name, _plain(value))]


def _simple(value: Any, *, explode: bool) -> str:
    if isinstance(value, Mapping):
        sign = "=" if explode else ","
        return ",".join(f"{key}{sign}{_plain(item)}" for key, item in value.items())
    return ",".join(map(_plain, value)) if isinstance(value, list) else _plain(value)


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _header(name: str, text: str) -> str:
    if not text.isascii() or not text.isprintable():
        raise ToolError(f"{name} is sent as a header: use printable ASCII characters only", "invalid_arguments")
    return text


def _body(media_type: str, value: Any) -> bytes:
    try:
        if is_json(media_type):
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        if media_type == "text/plain":
            return _plain(value).encode()
        pairs = value.items() if isinstance(value, Mapping) else ()
        return urlencode(
            [(key, _plain(each)) for key, item in pairs for each in (item if isinstance(item, list) else [item])]
        ).encode()
    except (ValueError, UnicodeEncodeError):
        raise ToolError(
            "the body has a lone surrogate, NaN or Infinity, which cannot be sent: leave it out", "invalid_arguments"
        ) from None


class HttpCaller:
    """Calls operations of one source: through its own connections, with its own credentials, to its own origin."""

    def __init__(
        self,
        client: OutboundClient,
        schemes: Mapping[str, Mapping[str, Any]],
        references: Mapping[str, str],
        read_secret: credentials.ReadSecret,
    ) -> None:
        self._client = client
        self._schemes = schemes
        self._references = references
        self._read_secret = read_secret
        self._tokens: dict[str, tuple[str, float]] = {}

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def call(
        self,
        call: Mapping[str, Any],
        given: Mapping[str, Any],
        *,
        origin: str,
        nature: Nature,
        idempotency_key: str,
        max_bytes: int,
        timeout_seconds: float,
        secrets: list[str],
    ) -> Any:
        """Make a call and return its result.

        Args:
            origin: the only one that the source's credentials are sent to.
            secrets: gets the credentials that were used, as they could be echoed.

        Raises:
            ToolError: it failed; the message holds no secret.
            TimeoutError: it took too long.
        """
        request = build(call, given)
        if call["security"] and credentials.origin_of(request.url) != origin:
            raise ToolError("the credentials of this tool are for another server; tell its operator")
        for name in call["security"]:
            found = await self._secret(name, timeout_seconds)
            secrets.extend(credentials.apply(self._schemes[name], found, request.headers, request.query))
        if call["method"] not in ("GET", "HEAD"):
            request.headers["idempotency-key"] = idempotency_key
        url = request.url + (f"?{urlencode(request.query)}" if request.query else "")
        response = await _send(
            self._client, request.method, url, request.headers, request.body, nature, max_bytes, timeout_seconds
        )
        if response.status == 401:
            self._tokens.clear()  # such as one that was revoked: the next call asks for another
        return _result(response, secrets)

    async def _secret(self, name: str, timeout_seconds: float) -> str:
        scheme = self._schemes[name]
        secret = credentials.resolve(self._references[name], self._read_secret)
        if scheme["type"] != "oauth2":
            return secret
        token, until = self._tokens.get(name, ("", 0.0))
        if until > time.monotonic():
            return token
        client_id, _, client_secret = secret.partition(":")
        form = {"grant_type": "client_credentials", "client_id": client_id, "client_secret": client_secret}
        if scheme["scopes"]:
            form["scope"] = " ".join(scheme["scopes"])
        response = await _send(
            self._client,
            "POST",
            scheme["token_url"],
            {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"},
            urlencode(form).encode(),
            "again",
            _TOKEN_BYTES_MAX,
            min(timeout_seconds, _TOKEN_SECONDS),
        )
        try:
            found = json.loads(response.body)
            token, seconds = str(found["access_token"]), float(found.get("expires_in", 300))
        except (ValueError, TypeError, KeyError, AttributeError):
            token, seconds = "", 0.0
        if response.status != 200 or not token:
            raise ToolError(f"the tool's server issued no token (status {response.status}); tell its operator")
        self._tokens[name] = (token, time.monotonic() + seconds - _TOKEN_MARGIN_SECONDS)
        return token


async def download(client: OutboundClient, url: str, *, max_bytes: int, timeout_seconds: float) -> bytes:
    """Return what is at a URL.

    Raises:
        ToolError: it cannot be read.
    """
    try:
        response = await _send(client, "GET", url, {}, None, "again", max_bytes, timeout_seconds)
    except TimeoutError:
        raise ToolError(f"the document was not received within {timeout_seconds:g} s: try again", "timeout") from None
    if response.status != 200:
        raise ToolError(f"the document cannot be read: its server answered {response.status}; check its URL")
    return response.body


async def _send(
    client: OutboundClient,
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes | None,
    nature: Nature,
    max_bytes: int,
    timeout_seconds: float,
) -> Response:
    """Send a request.

    Raises:
        ToolError: it failed.
        TimeoutError: it took too long.
    """
    try:
        return await client.send(
            method, url, headers=headers, body=body, max_bytes=max_bytes, timeout_seconds=timeout_seconds
        )
    except UnencryptedError:
        raise ToolError(credentials.UNENCRYPTED, "blocked_address") from None
    except RefusedAddressError:
        raise ToolError(
            "the address of this tool is not public, nor in allowed_networks of its source; tell its operator",
            "blocked_address",
        ) from None
    except TooLargeError:
        made = "" if nature == "again" else "the call was made, but "
        raise ToolError(f"{made}the response is over {max_bytes:,} bytes: ask for less", "too_large") from None
    except (httpcore.ConnectError, httpcore.ConnectTimeout, ssl.SSLError) as error:
        raise ToolError(f"no connection to the tool's server ({type(error).__name__}); nothing was sent") from None
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, OSError):
        if nature == "once":
            raise ToolError(
                "the connection was lost after the request was sent: it may have happened; check before you repeat it",
                "outcome_unknown",
            ) from None
        raise ToolError("the connection to the tool's server was lost: the call may be repeated") from None
    except (UnicodeEncodeError, httpcore.UnsupportedProtocol, ValueError):
        raise ToolError(
            "the arguments cannot be sent over HTTP: leave out control characters", "invalid_arguments"
        ) from None


def _result(response: Response, secrets: Sequence[str]) -> Any:
    """Return what a response says.

    Raises:
        ToolError: its status is not 2xx, or its body is not what its type says.
    """
    named = response.headers.get("content-type", "")
    text = response.body.decode("utf-8", "replace")
    if not 200 <= response.status < 300:
        shown = without(text, secrets)[:_ERROR_CHARACTERS_SHOWN]
        redirect = " (redirects are not followed)" if 300 <= response.status < 400 else ""
        raise ToolError(f"the tool's server answered {response.status}{redirect}: {shown}")
    if not response.body:
        return None
    if is_json(named):
        try:
            return without(json.loads(text), secrets)
        except (ValueError, RecursionError):
            raise ToolError("the tool's server sent invalid JSON; tell its operator") from None
    if named.partition("/")[0].strip().lower() == "text" or not named:
        return without(text, secrets)
    return {"content_type": named[:120], "bytes": len(response.body)}
