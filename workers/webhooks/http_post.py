"""One HTTP request to a receiver that is not trusted: to a checked address, in bounded time, its body left unread."""

from __future__ import annotations

import asyncio
import email.utils
import math
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx

from pulse.outbound import addresses
from pulse.outbound.client import CONNECT_SECONDS_MAX, tls_context

PORTS = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a request.

    Attributes:
        status: the response's status; None if there was none.
        error_code: None for a 2xx; else why it failed: redirect, gone, status, timeout, connection, tls, protocol,
            name, refused_address (private, and not allowed) or plain_http (http to an
            address outside of the networks that are allowed).
        retry_after_seconds: what the receiver asked for.
    """

    status: int | None = None
    error_code: str | None = None
    retry_after_seconds: float | None = None


async def post(
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    timeout_seconds: float,
    allowed: Sequence[addresses.Network] = (),
    resolve: addresses.Resolve = addresses.resolve,
) -> Answer:
    """Send a request and return what became of it. Redirects are not followed, proxies of the environment not used."""
    try:
        async with asyncio.timeout(timeout_seconds):
            return await _post(httpx.URL(url), headers, body, allowed, resolve)
    except TimeoutError:
        return Answer(error_code="timeout")
    except addresses.RefusedAddressError:
        return Answer(error_code="refused_address")
    except OSError:
        # The lookup failed; httpx raises its own errors.
        return Answer(error_code="name")
    except httpx.TimeoutException:
        return Answer(error_code="timeout")
    except httpx.ConnectError as error:
        return Answer(error_code="tls" if _is_tls(error) else "connection")
    except httpx.NetworkError:
        return Answer(error_code="connection")
    except (httpx.HTTPError, httpx.InvalidURL):
        return Answer(error_code="protocol")


async def _post(
    url: httpx.URL,
    headers: Mapping[str, str],
    body: bytes,
    allowed: Sequence[addresses.Network],
    resolve: addresses.Resolve,
) -> Answer:
    port = url.port or PORTS[url.scheme]
    # As it is written: `url.host` is decoded, and what encodes that again, by other rules, may name another host.
    host = url.raw_host.decode("ascii")
    found = addresses.check(await resolve(host, port), allowed)
    if not found:
        return Answer(error_code="name")
    if url.scheme == "http" and not all(addresses.is_in(each, allowed) for each in found):
        return Answer(error_code="plain_http")
    # A client for each request: connections are not shared between receivers on one address, nor are cookies.
    async with httpx.AsyncClient(
        verify=tls_context() if url.scheme == "https" else False,
        trust_env=False,
        follow_redirects=False,
        timeout=httpx.Timeout(None, connect=CONNECT_SECONDS_MAX if len(found) > 1 else None),
    ) as client:
        for number, address in enumerate(found, 1):
            request = client.build_request(
                "POST",
                url.copy_with(host=str(address)),
                content=body,
                headers={**headers, "Host": url.netloc.decode()},
                extensions={"sni_hostname": host},
            )
            try:
                response = await client.send(request, stream=True)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                if number == len(found) or _is_tls(error):
                    raise
                continue
            try:
                return _read(response)
            finally:
                await response.aclose()
    raise AssertionError("the last address raises")


def _read(response: httpx.Response) -> Answer:
    status = response.status_code
    if 200 <= status < 300:
        return Answer(status)
    code = "redirect" if 300 <= status < 400 else "gone" if status == 410 else "status"
    return Answer(status, code, _retry_after(response.headers))


def _retry_after(headers: Mapping[str, Any]) -> float | None:
    """Return the seconds that Retry-After asks for, as a number or as a date; None if there is none to be read."""
    text = str(headers.get("retry-after", "")).strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        until = email.utils.parsedate_to_datetime(text)
        now = email.utils.parsedate_to_datetime(headers["date"]) if "date" in headers else datetime.now(UTC)
        seconds = (until - now).total_seconds()
    except (ValueError, TypeError):
        return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None


def _is_tls(error: BaseException) -> bool:
    chain: BaseException | None = error
    while chain is not None:
        if isinstance(chain, ssl.SSLError):
            return True
        chain = chain.__cause__ or chain.__context__
    return False
