"""The address of the client behind proxy servers: `X-Forwarded-For`, and `Forwarded` (RFC 7239).

Rules: pure. Anybody can send these headers, so they are read only from a connection of a proxy
server that the operator has named, and from right to left: the first address that is not a named
proxy server is the client, and what stands left of it was sent by the client itself.
"""

import re
from collections.abc import Iterable, MutableMapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final

from msgspec import Struct

from colonnade.errors import InvalidArgument
from colonnade.protocol.http.security import name_list

# Maximum proxy servers in a chain. In a longer chain, the last one counted is taken for the client.
MAX_PROXIES: Final = 32
# Maximum bytes of each line of a header; only the last entries of a longer line count.
MAX_HEADER_BYTES: Final = 16 * 1024

_FORWARDED_FOR, _FORWARDED = b"x-forwarded-for", b"forwarded"

Address = IPv4Address | IPv6Address

# An address with or without a port. Obfuscated names (`_hidden`) and `unknown` are not addresses.
_NODE = re.compile(r"\[([0-9A-Fa-f:.]{2,45})\](?::[0-9]{1,5})?|([0-9.]{7,15})(?::[0-9]{1,5})?")
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PAIR = re.compile(rf'({_TOKEN})=({_TOKEN}|"(?:[^"\\]|\\.)*")')
# Quoted strings may contain commas and semicolons. The closing quote is optional, so that the text
# is read once, in linear time.
_ELEMENTS = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*+"?)++')
_PAIRS = re.compile(r'(?:[^;"]|"(?:[^"\\]|\\.)*+"?)++')


class TrustedProxies(Struct, frozen=True):
    """The proxy servers in front of a server. Create it with `of`."""

    networks: tuple[IPv4Network | IPv6Network, ...]

    @classmethod
    def of(cls, networks: Iterable[str]) -> "TrustedProxies | None":
        """Parse networks and addresses; None for none. Raises `InvalidArgument`."""
        try:
            parsed = tuple(ip_network(one) for one in name_list("trusted_proxies", networks))
        except ValueError as error:
            raise InvalidArgument(
                f"trusted_proxies= takes networks such as '10.0.0.0/8', or addresses: {error}",
                argument="trusted_proxies",
            ) from None
        if any(network.prefixlen == 0 for network in parsed):
            raise InvalidArgument(
                "trusted_proxies= with every address would let clients choose their own; name the "
                "networks of your proxy servers",
                argument="trusted_proxies",
            )
        return cls(parsed) if parsed else None

    def with_client(self, scope: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """The scope of a request, with the address of the client as `client`."""
        connected = scope.get("client")
        peer = parse_address(str(connected[0])) if connected else None
        if peer is None or not self._trusts(peer):
            return scope
        client = self._client(peer, scope["headers"])
        return scope if client == peer else {**scope, "client": (str(client), 0)}

    def _client(self, peer: Address, headers: Iterable[tuple[bytes, bytes]]) -> Address:
        """The client behind a trusted proxy server; the proxy server itself if its headers name no
        client.

        A proxy server writes one of the two headers, and may pass on the other header as the client
        sent it. If the headers disagree, both are ignored.
        """
        found: set[Address] = set()
        for name, read in ((_FORWARDED_FOR, _read_list), (_FORWARDED, _read_forwarded)):
            lines = [value for header, value in headers if header == name]
            nodes: list[str] = []
            # Each on its own: a quote that a client leaves open must not swallow the next line.
            for line in lines[-MAX_PROXIES:]:
                nodes += read(line[-MAX_HEADER_BYTES:].decode("latin-1"))
            if lines:
                found.add(self._first_untrusted(peer, nodes))
        return found.pop() if len(found) == 1 else peer

    def _first_untrusted(self, peer: Address, nodes: list[str]) -> Address:
        client = peer
        for node in reversed(nodes[-MAX_PROXIES:]):
            named = _parse_node(node)
            if named is None:
                break
            client = named
            if not self._trusts(client):
                break
        return client

    def _trusts(self, address: Address) -> bool:
        return any(address in network for network in self.networks)


def _read_list(text: str) -> list[str]:
    return [one.strip() for one in text.split(",")]


def _read_forwarded(text: str) -> list[str]:
    """The `for` parameter of each element. Empty if an element is invalid, or has no `for`, or two:
    a client may have left a quote open, which swallows the part that the proxy server has added."""
    nodes: list[str] = []
    for element in _ELEMENTS.findall(text):
        parts = [part.strip() for part in _PAIRS.findall(element)]
        pairs = [_PAIR.fullmatch(part) for part in parts if part]
        found = [one[2].strip('"') for one in pairs if one and one[1].lower() == "for"]
        nodes.append(found[0] if len(found) == 1 and all(pairs) else "")
    return nodes


def _parse_node(node: str) -> Address | None:
    # An IPv6 address stands in brackets in `Forwarded`, and mostly without in the other header.
    found = _NODE.fullmatch(node)
    return parse_address(found[1] or found[2] if found else node)


def parse_address(text: str) -> Address | None:
    """The IP address in a text; an IPv4-mapped IPv6 address becomes the IPv4 address. None for any
    other text."""
    try:
        address = ip_address(text[:64])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
