"""Which addresses a stranger may send us to: the public ones, and no others.

Rules: no I/O. What is not known to be public is denied. IPv6 is open only where addresses are
given out (2000::/3), so everything that holds an IPv4 address in it (mapped, compatible, NAT64,
6to4, Teredo, ISATAP) is denied as it stands, whatever that address is.
"""

import ipaddress
from collections.abc import Iterable

from colonnade.errors import LocalProtocolError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# The registries of special addresses (RFC 6890 and what followed), less what is public after all.
_DENIED_4 = tuple(
    (ipaddress.IPv4Network(network), words)
    for network, words in (
        ("0.0.0.0/8", "this network"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "a provider's own"),
        ("127.0.0.0/8", "this machine"),
        ("168.63.129.16/32", "a cloud's own"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "for documents"),
        ("192.88.99.0/24", "a 6to4 relay"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "for measurements"),
        ("198.51.100.0/24", "for documents"),
        ("203.0.113.0/24", "for documents"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
)
_GIVEN_OUT = ipaddress.IPv6Network("2000::/3")
_DENIED_6 = tuple(
    (ipaddress.IPv6Network(network), words)
    for network, words in (
        ("2001::/23", "reserved, or Teredo"),
        ("2001:db8::/32", "for documents"),
        ("2002::/16", "6to4"),
        ("3fff::/20", "for documents"),
    )
)
# The middle of an ISATAP address, under any prefix; the bit says whether its IPv4 part is unique.
_ISATAP = 0x00005EFE
_ISATAP_UNIQUE = 0x02000000
_LOOPBACK_6 = ipaddress.IPv6Address("::1")


def denied(address: Address, opened: Iterable[Network] = ()) -> str:
    """What kind of address this is, if nobody may be sent there; empty where one may."""
    if any(address in network for network in opened):
        return ""
    if isinstance(address, ipaddress.IPv4Address):
        return next((words for network, words in _DENIED_4 if address in network), "")
    if address not in _GIVEN_OUT:
        return "this machine" if address == _LOOPBACK_6 else "not public"
    if (int(address) >> 32) & 0xFFFFFFFF & ~_ISATAP_UNIQUE == _ISATAP:
        return "ISATAP"
    return next((words for network, words in _DENIED_6 if address in network), "")


def is_loopback(address: Address) -> bool:
    """Whether it is this machine, said plainly: an IPv4 address inside of another is not."""
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_loopback
    return address == _LOOPBACK_6 and address.scope_id is None


def is_this_machine(host: str) -> bool:
    """Whether a host says that it is this machine; a name that only leads here does not."""
    address = literal(host)
    return is_loopback(address) if address is not None else host.lower() == "localhost"


def literal(host: str) -> Address | None:
    """The address that a host is, in the one spelling that all programs read alike."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def opened(networks: Iterable[str]) -> tuple[Network, ...]:
    """Networks from what somebody configured. Raises `LocalProtocolError`."""
    if isinstance(networks, str):
        raise LocalProtocolError("networks= takes several: write networks=['10.0.0.0/8']")
    try:
        return tuple(ipaddress.ip_network(network) for network in networks)
    except ValueError as error:
        words = f"networks= takes networks such as '10.0.0.0/8', and {error}"
        raise LocalProtocolError(words) from None
