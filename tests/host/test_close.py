"""A server that a new configuration leaves out: how long it stays, and what of it is told to whom."""

import asyncio
from typing import Any

import pytest

from colonnade.errors import ColonnadeError, ConnectionLost
from colonnade.host.config.settings import Config
from colonnade.host.host import Host
from colonnade.host.servers import generation as hosted
from host.supervised import HANDSHAKE, children, command, entry
from live import live, until


def config(*keys: str, **settings: Any) -> Config:
    made = [entry(command(), key, revision=HANDSHAKE, **settings) for key in keys]
    return Config(entries={one.key: one for one in made})


@live
async def test_a_call_that_never_ends_does_not_keep_a_server_that_was_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hosted, "DRAIN_S", 0.05)
    async with Host(config("odd", "other")) as host:
        call = asyncio.ensure_future(host.call_tool("odd__hang"))
        await until(lambda: [one.in_flight for one in host.status() if one.key == "odd"] == [1])
        await host.reload(config("other"))
        with pytest.raises(ConnectionLost, match="its configuration has changed"):
            await call
        await until(lambda: children() == set())


@live
async def test_a_list_that_failed_for_one_caller_quotes_nothing_of_theirs_to_another() -> None:
    async with Host(config("odd", max_crashes=1)) as host:
        alice, bob = host.caller("alice"), host.caller("bob")
        assert len(await alice.list_tools()) == 3
        with pytest.raises(ConnectionLost, match="alice's canary"):
            await alice.call_tool("odd__die", {"text": "alice's canary"})
        await alice.list_tools(fresh=True)
        assert "failed once" in str(host.problems)
        with pytest.raises(ColonnadeError) as caught:
            await bob.call_tool("odd__no_such_tool_anywhere")
        assert "canary" not in str(caught.value)
        assert "canary" not in str(host.problems)
