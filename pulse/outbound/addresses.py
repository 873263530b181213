"""Where a request may connect to: the addresses of a host, resolved once, all of them checked.

The URL of a webhook, or of a tool, is written by a customer. Without the check it could name a service inside of the
network, whose answer no caller outside may trigger (server-side request forgery). The caller connects to an address
that was checked, not to the name: a name that resolves differently a moment later changes nothing.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]

#: Lookups at once. A name server that does not answer holds these threads, and not those of the rest of the process.
LOOKUPS_MAX = 8
#: IPv6 addresses that stand for the IPv4 address in their last 32 bits, as translators (NAT64) route them.
_TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")
#: Not global, though `is_global` of some versions of Python says so.
_REFUSED = tuple(map(ipaddress.ip_network, "192.88.99.0/24 fec0::/10 ::/96 2002::/16 2001::/32 64:ff9b:1::/48".split()))

_lookups = ThreadPoolExecutor(LOOKUPS_MAX, thread_name_prefix="address-lookup")


class RefusedAddressError(Exception):
    """A host resolves to an address that may not be reached."""


class UnencryptedError(RefusedAddressError):
    """What is secret would be sent over http to an address that is not a private one in a network that is allowed."""


def parse_networks(text: str) -> tuple[Network, ...]:
    """Return the networks of a setting: ``10.1.0.0/16,127.0.0.1``.

    Raises:
        ValueError: one of them is not a network.
    """
    return tuple(ipaddress.ip_network(each.strip()) for each in text.split(",") if each.strip())


def is_public(address: Address) -> bool:
    """Return whether an address is one of the public internet, whatever form it is written in."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        if address in _TRANSLATED:
            return is_public(ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF))
    if is_in(address, _REFUSED):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def is_in(address: Address, networks: Sequence[Network]) -> bool:
    """Return whether an address is in one of some networks."""
    return any(address.version == each.version and address in each for each in networks)


async def resolve(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host.

    Raises:
        OSError: there are none.
    """
    found = await asyncio.get_running_loop().run_in_executor(
        _lookups, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    )
    # A scope, as in fe80::1%eth0, is not part of the address.
    return list(dict.fromkeys(str(each[4][0]).partition("%")[0] for each in found))


def check(found: Sequence[str], allowed: Sequence[Network], *, private: bool = False) -> tuple[Address, ...]:
    """Return the addresses, all of them checked.

    Args:
        private: all of them have to be, as where secrets are sent over http.

    Raises:
        RefusedAddressError: one is neither public nor in a network that is allowed.
        UnencryptedError: one is public, and all have to be private.
    """
    addresses = tuple(map(ipaddress.ip_address, found))
    for each in addresses:
        if not is_public(each) and not is_in(each, allowed):
            raise RefusedAddressError
        if private and is_public(each):
            raise UnencryptedError
    return addresses
