"""Servers with an address: sessions of callers, logins, and one that is away for a while."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from client.shop import shop, site
from colonnade.errors import AuthError, CannotConnect, ChannelError, LoginRequired
from colonnade.protocol.http.security import Headers
from colonnade.transport.http_server.app import HttpApp
from colonnade.transport.http_server.runner import HttpRunner
from host.supervised import HANDSHAKE, supervised
from live import live


@asynccontextmanager
async def at(app: HttpApp) -> AsyncGenerator[HttpRunner]:
    here = HttpRunner(app, port=0)
    await here.start()
    try:
        yield here
    finally:
        await here.stop(0.0)


def url(here: HttpRunner) -> str:
    return f"http://127.0.0.1:{here.port}/mcp"


def sessions(here: HttpRunner) -> int:
    found: Any = vars(here.app)["_sessions"]
    return len(list(found))


@live
async def test_a_modern_server_at_an_address_has_one_connection_and_no_session_id() -> None:
    async with site() as here, supervised("modern", target=url(here)) as server:
        sums = [server.call("add", caller, a=1, b=2) for caller in ("alice", "bob", "carol")]
        assert await asyncio.gather(*sums) == ["3"] * 3
        assert (server.supervisor.status.sessions, sessions(here)) == (1, 0)
        assert server.supervisor.status.pid is None


@live
async def test_each_caller_has_a_session_that_is_left_when_it_is_idle() -> None:
    async with site() as here, supervised(target={"url": url(here)}, max_sessions=2) as server:
        for caller in ("alice", "bob", "alice"):
            assert await server.call("add", caller, a=1, b=2) == "3"
        assert sessions(here) == 2
        await server.call("add", "carol", a=1, b=2)
        assert (server.supervisor.status.sessions, sessions(here)) == (2, 2)
        assert server.supervisor.status.revision == HANDSHAKE
        await server.supervisor.close()
        assert sessions(here) == 0


@live
async def test_a_session_that_the_server_forgot_is_no_crash() -> None:
    async with site() as here, supervised(target=url(here)) as server:
        await server.call("add", "alice", a=1, b=2)
        found: Any = vars(here.app)["_sessions"]
        for session in list(found):
            found.end(session, "it was forgotten")
        assert await server.call("add", "alice", a=1, b=2) == "3"
        status = server.supervisor.status
        assert (status.crashes, status.sessions, status.state) == (0, 1, "ready")


@live
async def test_a_server_that_goes_away_fails_each_call_and_has_not_crashed() -> None:
    async with at(HttpApp(shop())) as first, supervised("modern", target=url(first)) as server:
        assert await server.call("add", a=1, b=2) == "3"
        await first.stop(0.0)
        with pytest.raises(ChannelError, match="odd"):
            await server.call("add", a=1, b=2)
        assert "odd" in (server.supervisor.status.last_error or "")
        assert (server.supervisor.status.crashes, server.supervisor.state) == (0, "ready")


@live
async def test_an_address_where_nobody_is_backs_off() -> None:
    async with site() as here:
        nowhere = url(here)
    async with supervised(target=nowhere, max_crashes=2) as server:
        for _ in range(2):
            with pytest.raises(CannotConnect):
                await server.call("add", a=1, b=2)
        with pytest.raises(
            CannotConnect, match="it failed 2 times within 300 s for this caller and is not tried"
        ):
            await server.call("add", a=1, b=2)


@pytest.mark.parametrize("kind", ["legacy", "modern"])
@live
async def test_credentials_that_were_refused_are_looked_up_again_and_are_no_crash(
    kind: str,
) -> None:
    good = ["right"]
    tokens = iter(["wrong", "right", "newer"])

    async def verify(headers: Headers) -> str:
        if headers.get(b"authorization") != f"Bearer {good[0]}".encode():
            raise LoginRequired("who are you?")
        return "the host"

    async def look_up() -> Any:
        return {"url": url(here), "headers": {"Authorization": f"Bearer {next(tokens)}"}}

    async with (
        at(HttpApp(shop(), verify=verify)) as here,
        supervised(kind, target=look_up) as server,
    ):
        with pytest.raises(AuthError):
            await server.call("add", a=1, b=2)
        assert await server.call("add", a=1, b=2) == "3"
        good[0] = "newer"  # what was right is refused from now on
        with pytest.raises(AuthError):
            await server.call("add", a=1, b=2)
        assert await server.call("add", a=1, b=2) == "3"
        assert (server.supervisor.status.crashes, server.supervisor.state) == (0, "ready")
