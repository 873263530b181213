"""Requests to servers that others name: which addresses are dialled, and how long and how large an answer may be."""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import httpcore
import pytest

from pulse.outbound.addresses import RefusedAddressError, parse_networks
from pulse.outbound.client import OutboundClient, Response, TooLargeError
from tests.support.authority import refused_contexts, server_context, trusted_authority
from tests.support.tool_service import ToolService, tool_service

LOOPBACK = parse_networks("127.0.0.0/8")


@pytest.fixture
async def service() -> AsyncIterator[ToolService]:
    async with tool_service() as running:
        yield running


async def get(client: OutboundClient, url: str, seconds: float = 20.0, size: int = 65_536) -> Response:
    try:
        return await client.send("GET", url, max_bytes=size, timeout_seconds=seconds)
    finally:
        await client.close()


HOSTS = (
    "127.0.0.1 localhost 127.1 2130706433 0x7f.1 0x7f000001 017700000001 0.0.0.0 10.0.0.1 169.254.169.254 100.64.0.1"
    " 192.0.0.1 192.88.99.1 198.18.0.1 224.0.0.1 255.255.255.255 [::1] [::] [::ffff:127.0.0.1] [::ffff:7f00:1]"
    " [::127.0.0.1] [64:ff9b::7f00:1] [64:ff9b:1::808:808] [2002:7f00:1::] [2001:0:4136:e378:8000:63bf:80ff:fffe]"
    " [fe80::1] [fec0::1] [fc00::1] [ff02::1] [2001:db8::1]"
).split()


@pytest.mark.parametrize("host", HOSTS)
async def test_no_form_of_a_private_address_is_dialled(service: ToolService, host: str) -> None:
    """A number in any base, a mapped, a translated or a tunnelled address: refused before a connection is made."""
    with pytest.raises(RefusedAddressError):
        await get(OutboundClient(), f"http://{host}:{service.port}/echo")
    assert service.asked == []


@pytest.mark.parametrize("found", [["127.0.0.1"], ["93.184.216.34", "10.0.0.1"]])
async def test_a_name_that_resolves_inside_is_refused_whole(service: ToolService, found: list[str]) -> None:
    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return found

    with pytest.raises(RefusedAddressError):
        await get(OutboundClient(resolve=resolve), f"http://service.example:{service.port}/")
    assert service.asked == []


async def test_the_address_that_was_checked_is_the_one_that_is_dialled(service: ToolService) -> None:
    """A name that resolves elsewhere a moment later changes nothing: each connection is checked, and looked up once."""
    answers = [["127.0.0.1"], ["10.0.0.1"]]

    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return answers.pop(0)

    client = OutboundClient(LOOPBACK, resolve=resolve)
    url = f"http://service.example:{service.port}/echo"
    first = await client.send("GET", url, max_bytes=9999, timeout_seconds=20)
    assert first.status == 200
    assert service.asked[0].headers["host"] == f"service.example:{service.port}"
    # The open connection serves the next request: it needs no lookup.
    assert (await client.send("GET", url, max_bytes=9999, timeout_seconds=20)).status == 200
    await client.close()
    with pytest.raises(RefusedAddressError):
        await get(OutboundClient(LOOPBACK, resolve=resolve), url)


async def test_redirects_are_not_followed_and_the_environment_is_not_read(
    service: ToolService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    found = await get(OutboundClient(LOOPBACK), f"{service.url}/redirect")
    assert (found.status, len(service.asked)) == (302, 1)


async def test_a_body_that_trickles_ends_with_the_time_of_the_whole(service: ToolService) -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        await get(OutboundClient(LOOPBACK), f"{service.url}/trickle", seconds=0.3, size=10_000_000)
    assert time.monotonic() - began < 10  # the body's end comes after 20 s


async def test_a_body_is_read_only_to_its_limit_also_when_it_expands(service: ToolService) -> None:
    """A bomb of 100 MB is left after the limit; so is a plain body."""
    with pytest.raises(TooLargeError):
        await get(OutboundClient(LOOPBACK), f"{service.url}/large")
    with pytest.raises(TooLargeError):
        await get(OutboundClient(LOOPBACK), f"{service.url}/bomb")
    with pytest.raises(httpcore.ConnectError):
        await get(OutboundClient(LOOPBACK), "http://127.0.0.1:1/")


@pytest.mark.parametrize("allowed", ["", "127.0.0.0/8", "0.0.0.0/0"])
async def test_what_is_secret_goes_over_http_to_private_addresses_alone(service: ToolService, allowed: str) -> None:
    """Whatever networks are allowed, and however the scheme is written; a host with one public address is public."""
    found = ["127.0.0.1", "93.184.216.34"]

    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return found

    networks = parse_networks(allowed)
    for scheme in ("http", "HTTP"):
        with pytest.raises(RefusedAddressError):
            await get(OutboundClient(networks, secret=True, resolve=resolve), f"{scheme}://s.example:{service.port}/")
    assert service.asked == []
    found.pop()
    if networks:
        url = f"http://s.example:{service.port}/echo"
        assert (await get(OutboundClient(networks, secret=True, resolve=resolve), url)).status == 200


async def test_a_certificate_is_checked_against_the_name_of_the_url(tmp_path: Path) -> None:
    """The connection is to an address: another name's certificate, the address's own, or one of an authority that
    nobody trusts is refused, and nothing is sent."""

    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    name = "service.example"
    with trusted_authority(tmp_path) as authority:
        for refused in refused_contexts(authority, name).values():
            async with tool_service(tls=refused) as service:
                url = f"https://{name}:{service.port}/echo"
                with pytest.raises((httpcore.ConnectError, ssl.SSLError), match="certificate verify failed"):
                    await get(OutboundClient(LOOPBACK, secret=True, resolve=resolve), url)
                assert service.asked == []
        async with tool_service(tls=server_context(authority, name)) as service:
            url = f"https://{name}:{service.port}/echo"
            assert (await get(OutboundClient(LOOPBACK, secret=True, resolve=resolve), url)).status == 200
            assert service.asked[0].headers["host"] == f"{name}:{service.port}"
