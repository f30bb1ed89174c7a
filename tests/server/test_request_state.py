"""A `requestState` in the hands of a stranger: a real server, a real seal, and every bad idea.

The cases RQ-03, RQ-05 and RQ-07 of the security list. Rules: what is refused runs no handler, and
is refused in the same words whatever is wrong with it.
"""

import asyncio
from typing import Any

import pytest

from colonnade import Context, Server
from colonnade.auth.seal import MAX_SEALED_CHARACTERS, KeyRing
from colonnade.protocol.input_rounds import invalid_request_state
from colonnade.protocol.revision import JULY_2026
from colonnade.server.handlers import input_rounds as interviewing
from colonnade.store.memory import MemoryStore
from live import live
from server.raw_client import JSON, Client, Rejected, raw_client, text_content

KEY = b"k" * 32
YES: JSON = {"sure": {"action": "accept", "content": {"value": True}}}
REPLAYS = 100
ARGUMENTS: JSON = {"to": "bob"}


class Bank:
    """A server that pays once it was told to, and counts what it did."""

    def __init__(self, **settings: Any) -> None:
        self.ran = 0
        self.paid: list[str] = []
        self.server = Server("bank", version="1", keys=[KEY], **settings)

        @self.server.tool(single_use=True)
        async def pay(to: str, ctx: Context) -> str:
            return await self._pay(to, ctx)

        @self.server.tool
        async def lend(to: str, ctx: Context) -> str:
            return await self._pay(to, ctx)

        @self.server.prompt(name="pay")
        async def letter(to: str, ctx: Context) -> str:
            return await self._pay(to, ctx)

    async def _pay(self, to: str, ctx: Context) -> str:
        self.ran += 1
        if await ctx.elicit("Really?", bool, key="sure"):
            await asyncio.sleep(0)  # where one that came in beside it would go on, too
            self.paid.append(to)
        return "done"


async def asked(client: Client, tool: str = "pay", arguments: JSON = ARGUMENTS) -> JSON:
    """The params of the retry, after the first round."""
    params = {"name": tool, "arguments": arguments}
    first = await client.outcome(client.send("tools/call", params))
    return params | {"requestState": first["requestState"], "inputResponses": YES}


async def refusal(client: Client, params: JSON, method: str = "tools/call") -> JSON:
    """What the server answers, without what differs in any answer."""
    sent = client.send(method, params)
    with pytest.raises(Rejected):
        await client.outcome(sent)
    [answer] = [one for one in client.received if one.get("id") == sent]
    return answer["error"]


@live
async def test_rq_03_whatever_was_done_to_a_state_no_handler_runs() -> None:
    bank = Bank()
    async with raw_client(bank.server, JULY_2026, principal="ada") as client:
        params = await asked(client)
        state, other = params["requestState"], (await asked(client))["requestState"]
        half = len(state) // 2
        flipped = [
            state[:n] + ("A" if state[n] != "A" else "B") + state[n + 1 :]
            for n in (0, 1, 5, half, len(state) - 1)
        ]
        changed = {
            "flipped": flipped,
            "truncated": [state[:-1], state[1:], state[:half], ""],
            "extended": [state + "A", state + "=", state + state, " " + state],
            "re-ordered": [state[half:] + state[:half], state[::-1], state[:half] + other[half:]],
            "another key": [KeyRing([b"o" * 32], audience="bank").seal(b"{}")],
            "another codec": ["Ag" + state[2:], "AA" + state[2:]],
        }
        ran = bank.ran
        for states in changed.values():
            for one in states:
                error = await refusal(client, params | {"requestState": one})
                assert error["code"] == -32602
        assert (bank.ran, bank.paid) == (ran, [])
        assert text_content(await client.outcome(client.send("tools/call", params))) == "done"
    assert bank.paid == ["bob"]


@live
async def test_rq_05_of_a_hundred_replays_at_once_one_has_an_effect() -> None:
    """In two replicas that share keys and a store, by one caller."""
    shared: JSON = {"store": MemoryStore()}
    banks = [Bank(**shared), Bank(**shared)]
    async with (
        raw_client(banks[0].server, JULY_2026, principal="ada") as one,
        raw_client(banks[1].server, JULY_2026, principal="ada") as two,
    ):
        params = await asked(one)
        before = banks[0].ran
        outcomes = await asyncio.gather(
            *(
                client.outcome(client.send("tools/call", params))
                for client in (one, two)
                for _ in range(REPLAYS // 2)
            ),
            return_exceptions=True,
        )
    refused = [one for one in outcomes if isinstance(one, Rejected)]
    assert [text_content(one) for one in outcomes if not isinstance(one, BaseException)] == ["done"]
    assert {one.message for one in refused} == {invalid_request_state().message}
    assert len(refused) == REPLAYS - 1
    assert banks[0].paid + banks[1].paid == ["bob"]
    assert banks[0].ran + banks[1].ran == before + 1


@pytest.mark.spec("R0791")
@live
async def test_rq_07_one_error_on_the_wire_whatever_the_cause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bank = Bank()
    errors: dict[str, JSON] = {}
    monkeypatch.setattr(interviewing, "STATE_LIFETIME_S", -1.0)
    async with raw_client(bank.server, JULY_2026, principal="ada") as ada:
        errors["expired"] = await refusal(ada, await asked(ada))
        monkeypatch.undo()
        params = await asked(ada)
        await ada.outcome(ada.send("tools/call", params))
        errors["spent"] = await refusal(ada, params)
        params = await asked(ada)
        state: str = params["requestState"]
        for cause, given in {
            "nothing": "",
            "rubbish": "?!",
            "truncated": state[:-4],
            "changed": state[:40] + ("A" if state[40] != "A" else "B") + state[41:],
            "too large": "A" * (MAX_SEALED_CHARACTERS + 1),
            "another key": KeyRing([b"o" * 32], audience="bank").seal(b"{}"),
            "another server": KeyRing([KEY], audience="shop").seal(b"{}"),
        }.items():
            errors[cause] = await refusal(ada, params | {"requestState": given})
        errors["another tool"] = await refusal(ada, params | {"name": "lend"})
        errors["another argument"] = await refusal(ada, params | {"arguments": {"to": "eve"}})
        errors["another method"] = await refusal(ada, params, "prompts/get")
    for principal in ("eve", ""):
        async with raw_client(bank.server, JULY_2026, principal=principal) as other:
            errors[f"principal {principal!r}"] = await refusal(other, params)
    for cause, error in errors.items():
        assert error == errors["rubbish"], cause
    assert errors["rubbish"] == {"code": -32602, "message": invalid_request_state().message}
    assert bank.paid == ["bob"]
