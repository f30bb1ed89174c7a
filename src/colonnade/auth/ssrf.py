"""HTTP fetcher with SSRF protection, for URLs from outside: metadata documents, keys, endpoints.

    fetcher = Fetcher(pool.send)
    fetched = await fetcher.fetch("GET", url)
    fetched.status, fetched.media_type, fetched.body

Rules: https, or http to a loopback host if `loopback` is set. A host is resolved once, all its
addresses must be public, and the connection is made to one of these, without a second look-up. A
redirect must stay within its origin and is checked again. Time and size are limited. The error is
the same for every cause, so that it reveals nothing about the internal network. The caller checks
status and media type.
"""

import asyncio
import ipaddress
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, urljoin, urlsplit

from colonnade.errors import CannotConnect, CannotFetch, ColonnadeError, InvalidArgument
from colonnade.ports import HttpClientResponse, HttpSend

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
        return next((reason for network, reason in _BLOCKED_IPV4 if address in network), "")
    if address not in _GLOBAL_UNICAST:
        return "loopback" if address == _LOOPBACK_6 else "not public"
    if (int(address) >> 32) & 0xFFFFFFFF & ~_ISATAP_UNIQUE == _ISATAP:
        return "ISATAP"
    return next((reason for network, reason in _BLOCKED_IPV6 if address in network), "")


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
        message = f"networks= takes networks such as '10.0.0.0/8': {error}"
        raise InvalidArgument(message) from None


# ---------------------------------------------------------------- fetcher


# CL-11: the largest key sets have a few hundred keys, in some 200 KiB.
MAX_BYTES: Final = 1024 * 1024
# In all, with redirects: a user waits for this, or a request whose token is verified.
TIMEOUT_S: Final = 10.0
MAX_REDIRECTS: Final = 3
# Of a host with more addresses the first ones are tried.
MAX_ADDRESSES: Final = 4
MAX_URL_CHARACTERS: Final = 2048
# Of the origin of a URL in an error.
MAX_DISPLAYED_CHARACTERS: Final = 100

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SAFE_METHODS = frozenset({"GET", "HEAD"})
# DNS names. The last label is not a number: some resolvers read `0x7f.1` as an address.
_HOST_NAME = re.compile(
    r"(?=.{1,253}\Z)(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9])?\.)*"
    r"(?!(?:[0-9]+|0x[0-9a-f]*)\Z)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
)

Headers = Iterable[tuple[str, str]]


@dataclass(frozen=True)
class FetchedResponse:
    """The response; `url` is the one after redirects. Header names are in lower case."""

    url: str
    status: int
    headers: dict[str, str] = field(repr=False)
    body: bytes = field(repr=False)

    @property
    def media_type(self) -> str:
        """The media type of the body, without parameters; empty if missing."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class _Blocked(Exception):
    """Why a URL is not fetched; for `CannotFetch.why`, which is only logged."""


class Fetcher:
    """Fetches URLs from outside. `send` is the method of an HTTP pool.

    `loopback` allows loopback hosts (`localhost`, `127.0.0.1`, `[::1]`), also without TLS.
    `networks` are private ranges to allow, for an identity provider in the internal network:
    `Fetcher(pool.send, networks=["10.0.0.0/8"])`.
    """

    def __init__(
        self,
        send: HttpSend,
        *,
        loopback: bool = False,
        networks: Iterable[str] = (),
        total_s: float = TIMEOUT_S,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._send = send
        self._loopback = loopback
        self._networks = parse_networks(networks)
        self._total_s = total_s
        self._max_bytes = max_bytes

    def with_access(self, *, loopback: bool, networks: Iterable[str]) -> "Fetcher":
        """A copy that is also allowed to reach these."""
        wider = Fetcher(self._send, loopback=self._loopback or loopback, networks=networks)
        wider._networks += self._networks
        wider._total_s, wider._max_bytes = self._total_s, self._max_bytes
        return wider

    async def fetch(
        self,
        method: str,
        url: str,
        headers: Headers = (),
        body: bytes = b"",
        *,
        max_bytes: int | None = None,
        redirects: bool = True,
    ) -> FetchedResponse:
        """The response, whatever its status. Raises `CannotFetch` and nothing else.

        Redirects are followed for GET and HEAD only, within the origin, with the same headers; with
        `redirects=False` not at all.
        """
        limit = self._max_bytes if max_bytes is None else max_bytes
        pairs = tuple(headers)
        try:
            async with asyncio.timeout(self._total_s):
                return await self._followed(method, url, pairs, body, limit, redirects)
        except _Blocked as error:
            why = str(error)
        except TimeoutError:
            why = f"it took longer than {self._total_s:g} s"
        except (ColonnadeError, ValueError) as error:
            why = str(error)
        raise CannotFetch(f"{_display_origin(url)} cannot be fetched", why)

    async def _followed(
        self,
        method: str,
        url: str,
        headers: tuple[tuple[str, str], ...],
        body: bytes,
        limit: int,
        redirects: bool,
    ) -> FetchedResponse:
        first = self._checked(url)
        parts = first
        for _ in range(MAX_REDIRECTS + 1):
            address_list = await self._addresses(parts)
            answer = await self._sent(method, parts, headers, body, address_list)
            try:
                place = answer.headers.get("location") if answer.status in _REDIRECTS else None
                if place is None:
                    data = await answer.read_all(limit)
                    return FetchedResponse(parts.geturl(), answer.status, answer.headers, data)
            finally:
                answer.close()
            if method not in _SAFE_METHODS or not redirects:
                raise _Blocked("it responds with a redirect, which is not followed here")
            parts = self._checked(urljoin(parts.geturl(), place))
            if _origin(parts) != _origin(first):
                raise _Blocked("it redirects to another origin")
        raise _Blocked(f"it redirects more than {MAX_REDIRECTS} times")

    async def _sent(
        self,
        method: str,
        parts: SplitResult,
        headers: tuple[tuple[str, str], ...],
        body: bytes,
        addresses: list[str],
    ) -> HttpClientResponse:
        """The response of the first address that accepts a connection."""
        url = parts.geturl()
        failed: CannotConnect | None = None
        for address in addresses[:MAX_ADDRESSES]:
            try:
                return await self._send(method, url, headers, body, address=address)
            except CannotConnect as error:
                failed = failed or error
        raise failed or _Blocked("its host has no address")

    def _checked(self, url: str) -> SplitResult:
        """Parse and check a URL, before its host is resolved. Raises `_Blocked`."""
        # `urlsplit` silently drops some characters, so they are rejected before it.
        if len(url) > MAX_URL_CHARACTERS or not url.isascii() or not url.isprintable():
            raise _Blocked("it is too long, or has invalid characters")
        if not set(url).isdisjoint(' "<>\\^`{|}'):
            raise _Blocked("it has invalid characters")
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            raise _Blocked("it is not a URL") from None
        if "@" in parts.netloc:
            raise _Blocked("it contains a user name or password")
        if port == 0 or parts.netloc.endswith(":"):
            raise _Blocked("its port is invalid")
        address = ip_literal(host)
        if address is None and not _HOST_NAME.fullmatch(host):
            raise _Blocked("its host is neither a DNS name nor an IP address")
        here = self._loopback and is_loopback_host(host)
        if parts.scheme != "https" and not (parts.scheme == "http" and here):
            raise _Blocked("it is not https")
        if address is not None and not here:
            self._judge(address)
        return parts._replace(fragment="")

    async def _addresses(self, parts: SplitResult) -> list[str]:
        """All addresses of a host. Raises `_Blocked` if one of them is blocked."""
        host = parts.hostname or ""
        address = ip_literal(host)
        here = self._loopback and is_loopback_host(host)
        if address is not None:
            found = [address]
        else:
            found = await _resolve(host, parts.port or (443 if parts.scheme == "https" else 80))
        for one in found:
            if here and not is_loopback_address(one):
                raise _Blocked(f"{one} is not a loopback address, as the host name requires")
            if not here:
                self._judge(one)
        return [str(one) for one in found]

    def _judge(self, address: Address) -> None:
        reason = blocked_reason(address, self._networks)
        if reason:
            raise _Blocked(
                f"{address} is not a public address ({reason}); to allow it, pass networks=, or "
                f"loopback=True for this machine"
            )


async def _resolve(host: str, port: int) -> list[Address]:
    loop = asyncio.get_running_loop()
    try:
        infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise _Blocked(f"its host cannot be resolved: {error}") from None
    found = [ip_literal(str(info[4][0])) for info in infos]
    known = [one for one in found if one is not None]
    if not known or len(known) != len(found):
        raise _Blocked("its host has no address, or one of an unknown family")
    return list(dict.fromkeys(known))


def _origin(parts: SplitResult) -> tuple[str, str | None, int]:
    return parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)


def _display_origin(url: str) -> str:
    """The origin of a URL for an error: path and query may contain a secret."""
    try:
        parts = urlsplit(url)
        scheme, host = parts.scheme, parts.hostname or ""
    except ValueError:
        return "this URL"
    if ip_literal(host) is None and not _HOST_NAME.fullmatch(host):
        return "this URL"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}"[:MAX_DISPLAYED_CHARACTERS]
