"""Nobody sends us to a place that is not public: thousands of forms, and every socket watched.

SF-02 to SF-05. A form is refused when nothing at all was connected to. Names are answered by a DNS
of the test's own, numbers as the C library reads them, so that `0177.1` would arrive at 127.0.0.1
if nothing looked at it.
"""

import asyncio
import ipaddress
import ssl
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from auth.connects import connects, dns
from auth.denied_forms import addresses, urls
from certificates import Authority
from colonnade.auth.ssrf import FetchedResponse, Fetcher
from colonnade.errors import CannotFetch
from live import live_for
from scripted_http_server import (
    OK,
    AcceptedConnection,
    ConnectionHandler,
    ScriptedHttpServer,
    http_response,
    pooled,
    scripted_http_server,
)

# Some thousand fetches, of which most end before a socket is made.
WAIT_S = 300.0
DENIED = {"public.example": ["127.0.0.1"]}


async def never(connection: AcceptedConnection) -> None:
    """Somebody on this machine who must not be reached."""
    connection.abort()


@asynccontextmanager
async def fetching(
    context: ssl.SSLContext | None = None, **options: Any
) -> AsyncGenerator[Fetcher]:
    async with pooled(context=context) as pool:
        yield Fetcher(pool.send, **options)


async def refused(fetcher: Fetcher, url: str) -> str:
    with pytest.raises(CannotFetch) as caught:
        await fetcher.fetch("GET", url)
    return caught.value.why


def test_there_are_more_than_2000_forms() -> None:
    assert len(set(urls(1))) > 2000
    assert len(set(addresses())) > 500


@pytest.mark.spec("R1290", "R1291", "R1292", "R1293")
@live_for(WAIT_S)
async def test_no_form_of_a_denied_place_is_ever_connected_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SF-02, SF-03."""
    dns(monkeypatch, lambda name: DENIED.get(name, ["127.0.0.1"]))
    async with scripted_http_server(never) as listener, fetching() as fetcher:
        with connects() as seen:
            for url in dict.fromkeys(urls(listener.port)):
                await refused(fetcher, url)
        assert seen == []
        assert listener.connection_count == 0


@live_for(WAIT_S)
async def test_leave_to_reach_this_machine_is_not_leave_to_be_sent_there_by_other_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SF-03. Also with `loopback` only its own plain names are taken for this machine."""
    dns(monkeypatch, lambda name: ["127.0.0.1", "::1"])
    async with scripted_http_server(never) as listener, fetching(loopback=True) as fetcher:
        for url in dict.fromkeys(urls(listener.port)):
            with connects() as seen:
                await refused(fetcher, url)
            assert not seen or _plainly_here(url), url


def _plainly_here(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    if host == "localhost" and "@" not in url:
        return True
    address = ipaddress.ip_address(host)
    return address.is_loopback and (address.version == 4 or int(address) == 1)


@live_for(WAIT_S)
async def test_a_name_that_leads_to_a_denied_address_is_not_connected_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SF-02. Alone, before a public address, and after one."""
    answers: dict[str, list[str]] = {}
    for number, address in enumerate(dict.fromkeys(addresses())):
        answers[f"alone{number}.example"] = [address]
        answers[f"first{number}.example"] = [address, "93.184.216.34"]
        answers[f"last{number}.example"] = ["93.184.216.34", "2606:2800:21f::1", address]
    asked = dns(monkeypatch, lambda name: answers[name])
    async with scripted_http_server(never) as listener, fetching() as fetcher:
        with connects() as seen:
            for name in answers:
                why = await refused(fetcher, f"https://{name}:{listener.port}/")
                assert "is not a public address" in why
        assert seen == []
    assert asked == list(answers)


@live_for(WAIT_S)
async def test_dns_that_changes_between_the_check_and_the_connection_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """SF-04. The peer is the address that was checked; there is no second look-up."""
    times: list[str] = []

    def answers(name: str) -> list[str]:
        times.append(name)
        return ["127.0.0.1"] if len(times) % 2 else ["127.0.0.2"]

    authority = Authority(tmp_path)
    dns(monkeypatch, answers)
    trusting = authority.trusting()
    async with (
        origin(authority, {}) as server,
        fetching(trusting, networks=["127.0.0.1/32"]) as fetcher,
    ):
        with connects() as seen:
            fetched = await fetcher.fetch("GET", f"https://public.example:{server.port}/")
            assert fetched.status == 200
            assert len(times) == 1
            why = await refused(fetcher, f"https://public.example:{server.port}/")
        assert "127.0.0.2" in why
        assert seen == ["127.0.0.1"]


def leading(places: dict[str, str]) -> ConnectionHandler:
    """A server that sends visitors of each path elsewhere; others get a document."""

    async def handler(connection: AcceptedConnection) -> None:
        while True:
            place = places.get((await connection.receive()).path)
            await connection.send(
                OK if place is None else http_response(302, b"", "", f"Location: {place}")
            )

    return handler


def origin(
    authority: Authority, places: dict[str, str]
) -> AbstractAsyncContextManager[ScriptedHttpServer]:
    """`public.example`, at an address that the tests open, with a certificate for its name."""
    return scripted_http_server(leading(places), context=authority.serving("public.example"))


@pytest.mark.spec("R1294", "R1295", "R1296")
@live_for(WAIT_S)
async def test_no_redirect_leads_to_a_denied_place_or_another_origin(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """SF-05. Every form once as the place that an honest-looking server leads to."""
    authority = Authority(tmp_path)
    places: dict[str, str] = {}
    dns(monkeypatch, lambda name: ["127.0.0.1"] if name == "public.example" else ["127.0.0.2"])
    async with scripted_http_server(never) as listener, origin(authority, places) as server:
        port = server.port
        wanted = [u for u in dict.fromkeys(urls(listener.port)) if u.isascii() and u.isprintable()]
        # Without a scheme it is a path of the same origin, and leads nowhere else.
        wanted = [u for u in wanted if u.startswith("//") or ":/" in u or u[:1].isalpha()]
        wanted += [f"https://public.example:{listener.port}/", f"http://public.example:{port}/"]
        wanted += [f"https://other.example:{port}/", f"https://public.example.:{port}/"]
        async with fetching(authority.trusting(), networks=["127.0.0.1/32"]) as fetcher:
            with connects() as seen:
                for number, url in enumerate(wanted):
                    places[f"/{number}"] = url
                    home = f"https://public.example:{port}/{number}"
                    landed = await _landed(fetcher, home)
                    assert landed is None or landed.url.startswith(
                        f"https://public.example:{port}/"
                    )
            assert set(seen) == {"127.0.0.1"}
            assert listener.connection_count == 0
    assert len(wanted) > 2000


async def _landed(fetcher: Fetcher, url: str) -> FetchedResponse | None:
    async with asyncio.timeout(WAIT_S):
        try:
            return await fetcher.fetch("GET", url)
        except CannotFetch:
            return None


@live_for(WAIT_S)
async def test_the_watch_sees_what_is_connected_to() -> None:
    """The other tests of this file would be empty without this one."""
    async with scripted_http_server(never) as listener, fetching(loopback=True) as fetcher:
        with connects() as seen, pytest.raises(CannotFetch):
            await fetcher.fetch("GET", f"http://127.0.0.1:{listener.port}/")
        assert seen == ["127.0.0.1"]
        assert listener.connection_count == 1
