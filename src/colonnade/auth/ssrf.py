"""SSRF protection: which IP addresses a URL from outside must not lead to.

Rules: pure. Everything that is not known to be public is blocked.
"""

import ipaddress
from collections.abc import Iterable

from colonnade.errors import InvalidArgument

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# The registries of special-purpose addresses (RFC 6890), without those that are globally reachable.
_BLOCKED_IPV4 = tuple(
    (ipaddress.IPv4Network(network), words)
    for network, words in (
        ("0.0.0.0/8", "this network"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "carrier-grade NAT"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "cloud metadata"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "documentation"),
        ("192.88.99.0/24", "6to4 relay"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "benchmarking"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
)
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_BLOCKED_IPV6 = tuple(
    (ipaddress.IPv6Network(network), words)
    for network, words in (
        ("2001::/23", "reserved, or Teredo"),
        ("2001:db8::/32", "documentation"),
        ("2002::/16", "6to4"),
        ("3fff::/20", "documentation"),
    )
)
# Bits 32 to 63 of an ISATAP address, under any prefix; one bit tells whether the IPv4 is unique.
_ISATAP = 0x00005EFE
_ISATAP_UNIQUE = 0x02000000
_LOOPBACK_6 = ipaddress.IPv6Address("::1")


def blocked_reason(address: Address, allowed: Iterable[Network] = ()) -> str:
    """Why an address is blocked; empty if it is public or in an allowed network."""
    if any(address in network for network in allowed):
        return ""
    if isinstance(address, ipaddress.IPv4Address):
        return next((words for network, words in _BLOCKED_IPV4 if address in network), "")
    if address not in _GLOBAL_UNICAST:
        return "loopback" if address == _LOOPBACK_6 else "not public"
    if (int(address) >> 32) & 0xFFFFFFFF & ~_ISATAP_UNIQUE == _ISATAP:
        return "ISATAP"
    return next((words for network, words in _BLOCKED_IPV6 if address in network), "")


def is_loopback_address(address: Address) -> bool:
    """Whether it is a loopback address; an IPv4-mapped IPv6 address is not."""
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_loopback
    return address == _LOOPBACK_6 and address.scope_id is None


def is_loopback_host(host: str) -> bool:
    """Whether a host is `localhost` or a loopback address; nothing is resolved."""
    address = ip_literal(host)
    return is_loopback_address(address) if address is not None else host.lower() == "localhost"


def ip_literal(host: str) -> Address | None:
    """The IP address of a host that is one, in standard notation; None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def parse_networks(networks: Iterable[str]) -> tuple[Network, ...]:
    """Parse configured networks. Raises `LocalProtocolError`."""
    if isinstance(networks, str):
        raise InvalidArgument("networks= is a list: write networks=['10.0.0.0/8']")
    try:
        return tuple(ipaddress.ip_network(network) for network in networks)
    except ValueError as error:
        words = f"networks= takes networks such as '10.0.0.0/8': {error}"
        raise InvalidArgument(words) from None
