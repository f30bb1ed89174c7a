"""After everything was thrown at it, a server takes what it took before: no task, no descriptor, no
session, no memory is left of those who meant it harm.
"""

import asyncio
import json

import pytest

from hostile.child import child
from hostile.items import ERAS, EVERYTHING, MODERN
from hostile.malformed_http import ODD
from hostile.sender import HostileSender, call
from live import live_for

MEGABYTE = 1 << 20


async def census(attack: HostileSender) -> dict[str, int]:
    answer = (await attack.post(call(MODERN, "census"), mcp_name="census"))[1]
    found: dict[str, int] = json.loads(answer.text)
    return found


async def throw_everything(port: int) -> None:
    """Every message in both eras, and every odd request, some of them at once."""
    for era in ERAS:
        attack = HostileSender(port, era)
        await attack.open()
        wire = await attack.is_served()
        for item in EVERYTHING:
            _, answer = await attack.post(item.body(era), wire)
            assert answer.status == item.want(era).status
            if answer.headers.get("connection") == "close":
                wire = await attack.is_served()
        await attack.close()
    attack = HostileSender(port, MODERN)
    await asyncio.gather(*(throw_oddly(attack, odd.data) for odd in ODD))
    await attack.close()


async def throw_oddly(attack: HostileSender, data: bytes) -> None:
    wire = await attack.caller.wire()
    try:
        await wire.send(data.replace(b"PORT", b"%d" % attack.port))
        await wire.head()
    except (OSError, asyncio.IncompleteReadError):
        pass
    wire.abort()


async def left_behind(rounds: int) -> None:
    with child("http") as server:
        port = int(server.line())
        attack = HostileSender(port, MODERN)
        for _ in range(2):  # what is kept is kept by then
            await throw_everything(port)
        before, memory = await census(attack), server.memory()
        for _ in range(rounds):
            await throw_everything(port)
        after = await census(attack)
        few = 5
        assert after["tasks"] <= before["tasks"] + few
        assert after["descriptors"] <= before["descriptors"] + few
        assert after["threads"] <= before["threads"] + few
        assert after["objects"] <= before["objects"] + 1000 * few
        assert server.memory() < memory + 32 * MEGABYTE
        await attack.is_served()
        await attack.close()


@live_for(600)
async def test_everything_that_was_thrown_leaves_nothing_behind() -> None:
    await left_behind(2)


@pytest.mark.slow
@live_for(600)
async def test_everything_that_was_thrown_ten_times_leaves_nothing_behind() -> None:
    await left_behind(10)
