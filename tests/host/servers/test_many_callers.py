"""Everything at once: callers who come, ask, give up and crash their servers, and a restart or a
kill in between. Nothing crosses, nothing hangs, nothing is left."""

import asyncio
import contextlib
import os
import random
import signal
from typing import Any

import pytest

from colonnade.errors import ChannelError
from colonnade.protocol import types as t
from colonnade.protocol.input_requests import InputRequest
from host.supervised import SupervisedServer, children, supervised
from live import live_for

CALLERS = "abcde"
CALLS = 120
STORM_S = 2.0


def echo(question: InputRequest) -> Any:
    assert isinstance(question.params, t.ElicitRequestParams)
    return {"answer": question.params.message}


async def one(server: SupervisedServer, dice: random.Random, number: int) -> None:
    """One call at some time, given up sometimes. Sleeps are the weather, and nothing waits by them
    for something to be true."""
    caller = dice.choice(CALLERS)
    canary = f"{caller}-{number}"
    tool = dice.choice(["ask", "ask", "who", "hang", "wait", "go", "die", "say"])
    arguments = {"ask": {"canary": canary}, "die": {"text": canary}, "say": {"text": canary}}
    patience, give_up_s = dice.choice([0.05, 1.0]), dice.random()
    await asyncio.sleep(dice.random() * STORM_S)
    call = asyncio.ensure_future(
        server.call(tool, caller, echo, timeout_s=patience, **arguments.get(tool, {}))
    )
    if give_up_s < 0.3:
        asyncio.get_running_loop().call_later(give_up_s, call.cancel)
    try:
        text = await call
    except asyncio.CancelledError:
        return
    except ChannelError as error:
        text = str(error)
    others = [other for other in CALLERS if other != caller]
    assert not any(f" {other}-" in text for other in others), (caller, text)
    assert '"content"' not in text or canary in text


async def weather(server: SupervisedServer, dice: random.Random) -> None:
    for _ in range(10):
        await asyncio.sleep(STORM_S / 10)
        if dice.random() < 0.3:
            server.supervisor.restart()
        elif server.pids:
            with contextlib.suppress(ProcessLookupError):  # it was faster
                os.kill(dice.choice(server.pids), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("sharing", ["caller", "pooled", "shared"])
@live_for(600)
async def test_in_a_storm_nothing_crosses_hangs_or_is_left(sharing: str) -> None:
    dice = random.Random(sharing)
    more: dict[str, Any] = {"max_sessions": 3, "max_crashes": 10**6, "timeout_s": 2.0}
    async with supervised(sharing=sharing, **more) as server:
        calls = (one(server, dice, number) for number in range(CALLS))
        await asyncio.gather(weather(server, dice), *calls)
        for call in server.calls:
            who = call.exchange.principal
            assert all(asked.startswith(f"for {who}-") for asked in call.asked)
            assert all(told["data"].startswith(f"{who}-") for told in call.told)
        assert server.supervisor.status.in_flight == 0
        assert server.supervisor.status.crashes > 0
    assert children() == set()
