"""The one way to a URL that a stranger chose: a metadata document, keys, a client's document.

    fetcher = Fetcher(pool.send)
    fetched = await fetcher.fetch("GET", url)
    fetched.status, fetched.media, fetched.body

Rules: https, or http to this machine where that was asked for. A host is looked up once, every
address it has must be public, and one of those is connected to, with no second look. A redirect
stays at its origin and is checked again. Time and size have an end. An error says the same
whatever happened: who reads it learns nothing of the network that we are in. Whoever calls looks
at the status and the type.
"""

import asyncio
import ipaddress
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, urljoin, urlsplit

from colonnade.errors import (
    CannotConnect,
    CannotFetch,
    ColonnadeError,
    InvalidArgument,
    InvalidArgumentType,
)
from colonnade.ports import HttpAnswer, HttpSend

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
        raise InvalidArgumentType(
            "networks= takes several: write networks=['10.0.0.0/8']", argument="networks"
        )
    try:
        return tuple(ipaddress.ip_network(network) for network in networks)
    except ValueError as error:
        words = f"networks= takes networks such as '10.0.0.0/8', and {error}"
        raise InvalidArgument(words, argument="networks") from None


# CL-11: the largest documents that are met hold a few hundred keys, in some 200 KiB.
MAX_BYTES: Final = 1024 * 1024
# All of it, redirects too; a person waits for this, or a caller whose token is looked at.
TOTAL_S: Final = 10.0
MAX_REDIRECTS: Final = 3
# A name with more addresses than this is tried at the first of them.
MAX_ADDRESSES: Final = 4
MAX_URL_CHARACTERS: Final = 2048
# What an error shows of a URL: its origin, which a stranger wrote.
SHOWN_CHARACTERS: Final = 100

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SAFE_METHODS = frozenset({"GET", "HEAD"})
# Names as DNS has them. The last label is no number: other programs read `0x7f.1` as an address.
_NAME = re.compile(
    r"(?=.{1,253}\Z)(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9])?\.)*"
    r"(?!(?:[0-9]+|0x[0-9a-f]*)\Z)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
)

Headers = Iterable[tuple[str, str]]


@dataclass(frozen=True)
class Fetched:
    """What a URL answered; `url` is the last one, after redirects. Headers have small letters."""

    url: str
    status: int
    headers: dict[str, str] = field(repr=False)
    body: bytes = field(repr=False)

    @property
    def media(self) -> str:
        """The type of the body, without parameters; empty where it says none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class _Denied(Exception):
    """Why a URL is not fetched, for our own eyes."""


class Fetcher:
    """Fetches what strangers point to. `send` is that of an HTTP pool, and nobody else's.

    `loopback` lets it reach this machine, under its own names (`localhost`, `127.0.0.1`, `[::1]`)
    and without TLS; `networks` are ranges of your own that are as good as public, for an identity
    provider inside: `Fetcher(pool.send, networks=["10.0.0.0/8"])`.
    """

    def __init__(
        self,
        send: HttpSend,
        *,
        loopback: bool = False,
        networks: Iterable[str] = (),
        total_s: float = TOTAL_S,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._send = send
        self._loopback = loopback
        self._opened = opened(networks)
        self._total_s = total_s
        self._max_bytes = max_bytes

    def opened(self, *, loopback: bool, networks: Iterable[str]) -> "Fetcher":
        """The same for somebody who is trusted with more: what their operator has opened."""
        wider = Fetcher(self._send, loopback=self._loopback or loopback, networks=networks)
        wider._opened += self._opened
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
    ) -> Fetched:
        """What a URL answers, whatever its status. Raises `CannotFetch`, and nothing else.

        Only what is read (GET) follows redirects, and only within its origin; headers go along.
        """
        limit = self._max_bytes if max_bytes is None else max_bytes
        pairs = tuple(headers)
        try:
            async with asyncio.timeout(self._total_s):
                return await self._followed(method, url, pairs, body, limit)
        except _Denied as error:
            why = str(error)
        except TimeoutError:
            why = f"it took longer than {self._total_s:g} s"
        except (ColonnadeError, ValueError) as error:
            why = str(error)
        raise CannotFetch(f"{_shown(url)} cannot be fetched", why)

    async def _followed(
        self, method: str, url: str, headers: tuple[tuple[str, str], ...], body: bytes, limit: int
    ) -> Fetched:
        first = self._checked(url)
        parts = first
        for _ in range(MAX_REDIRECTS + 1):
            address_list = await self._found(parts)
            answer = await self._sent(method, parts, headers, body, address_list)
            try:
                place = answer.headers.get("location") if answer.status in _REDIRECTS else None
                if place is None:
                    data = await answer.whole(limit)
                    return Fetched(parts.geturl(), answer.status, answer.headers, data)
            finally:
                answer.close()
            if method not in _SAFE_METHODS:
                raise _Denied("it answers with a redirect, and what is sent goes to one place only")
            parts = self._checked(urljoin(parts.geturl(), place))
            if _origin(parts) != _origin(first):
                raise _Denied("it leads to another origin")
        raise _Denied(f"it leads from place to place, more than {MAX_REDIRECTS} times")

    async def _sent(
        self,
        method: str,
        parts: SplitResult,
        headers: tuple[tuple[str, str], ...],
        body: bytes,
        addresses: list[str],
    ) -> HttpAnswer:
        """The answer of the first address where somebody is."""
        url = parts.geturl()
        failed: CannotConnect | None = None
        for address in addresses[:MAX_ADDRESSES]:
            try:
                return await self._send(method, url, headers, body, address=address)
            except CannotConnect as error:
                failed = failed or error
        raise failed or _Denied("its host has no address")

    def _checked(self, url: str) -> SplitResult:
        """The parts of a URL that may be fetched, as far as it says so itself."""
        # `urlsplit` drops some characters in silence, so they are looked for before it.
        if len(url) > MAX_URL_CHARACTERS or not url.isascii() or not url.isprintable():
            raise _Denied("it is too long, or has characters that no URL has")
        if not set(url).isdisjoint(' "<>\\^`{|}'):
            raise _Denied("it has characters that no URL has")
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            raise _Denied("it is no URL") from None
        if "@" in parts.netloc:
            raise _Denied("it has a name or a password in it")
        if port == 0 or parts.netloc.endswith(":"):
            raise _Denied("its port is none")
        address = literal(host)
        if address is None and not _NAME.fullmatch(host):
            raise _Denied("its host is neither a name nor a plain address")
        here = self._loopback and is_this_machine(host)
        if parts.scheme != "https" and not (parts.scheme == "http" and here):
            raise _Denied("it is not https")
        if address is not None and not here:
            self._judge(address)
        return parts._replace(fragment="")

    async def _found(self, parts: SplitResult) -> list[str]:
        """Every address of a host. Raises `_Denied` if one of them is not for strangers."""
        host = parts.hostname or ""
        address = literal(host)
        here = self._loopback and is_this_machine(host)
        if address is not None:
            found = [address]
        else:
            found = await _looked_up(host, parts.port or (443 if parts.scheme == "https" else 80))
        for one in found:
            if here and not is_loopback(one):
                raise _Denied(f"{one} is not this machine, as its name says")
            if not here:
                self._judge(one)
        return [str(one) for one in found]

    def _judge(self, address: Address) -> None:
        words = denied(address, self._opened)
        if words:
            raise _Denied(
                f"{address} is no public address ({words}); if it is yours, open it with "
                f"networks=, or with loopback=True for this machine"
            )


async def _looked_up(host: str, port: int) -> list[Address]:
    loop = asyncio.get_running_loop()
    try:
        infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise _Denied(f"its host is not known: {error}") from None
    found = [literal(str(info[4][0])) for info in infos]
    known = [one for one in found if one is not None]
    if not known or len(known) != len(found):
        raise _Denied("its host has no address, or one of a strange kind")
    return list(dict.fromkeys(known))


def _origin(parts: SplitResult) -> tuple[str, str | None, int]:
    return parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)


def _shown(url: str) -> str:
    """The origin of a URL: its path and query may hold a secret."""
    try:
        parts = urlsplit(url)
        scheme, host = parts.scheme, parts.hostname or ""
    except ValueError:
        return "this URL"
    if literal(host) is None and not _NAME.fullmatch(host):
        return "this URL"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}"[:SHOWN_CHARACTERS]
