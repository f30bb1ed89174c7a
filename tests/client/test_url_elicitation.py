"""Pages that a server wants visited before it goes on, asked for by an error."""

import asyncio

import pytest

from client.scripted_server import JSON, Refusal, ScriptedTransport, connected_client
from colonnade.client.input_callbacks import InputCallbacks
from colonnade.errors import Declined, RemoteError
from colonnade.protocol import types as t
from colonnade.protocol.revision import ALL, Revision
from live import live, until

BY_ERROR = pytest.mark.parametrize(
    "revision", [one for one in ALL if one.elicitation.url_required_error], ids=lambda one: one.date
)
COMPLETE = "notifications/elicitation/complete"


class Wants(Refusal):
    """The error that asks for visits."""

    def __init__(self, *ids: str) -> None:
        super().__init__(-32042, "visit these first")
        page = "https://example.com/connect/"
        self.data = {
            "elicitations": [
                {"mode": "url", "message": "Connect", "elicitationId": id, "url": page + id}
                for id in ids
            ]
        }


class Shop:
    """Answers a call once everything that it wants was visited."""

    def __init__(self, *wants: str) -> None:
        self.wants = list(wants)
        self.calls = 0

    def call(self, params: JSON) -> JSON:
        self.calls += 1
        if self.wants:
            raise Wants(*self.wants)
        return {"content": [{"type": "text", "text": "done"}]}


def agreeing(seen: list[str], shop: Shop | None = None) -> InputCallbacks:
    def visit(asked: t.ElicitRequestParams) -> bool:
        seen.append(asked.url or "")
        if shop is not None:
            shop.wants.clear()
        return True

    return InputCallbacks(on_elicit=visit)


@BY_ERROR
@live
async def test_a_page_is_visited_and_the_call_made_again(revision: Revision) -> None:
    seen: list[str] = []
    shop = Shop("a", "b")
    transport = ScriptedTransport(revision, {"tools/call": shop.call})
    async with connected_client(transport, answers=agreeing(seen, shop)) as client:
        assert (await client.call_tool("pay")).text == "done"
    assert seen == ["https://example.com/connect/a", "https://example.com/connect/b"]
    assert shop.calls == 2
    first, second = transport.server.requests("tools/call")
    assert first["id"] != second["id"]


@BY_ERROR
@live
async def test_a_user_who_does_not_want_to_is_not_asked_again(revision: Revision) -> None:
    shop = Shop("a", "b")
    transport = ScriptedTransport(revision, {"tools/call": shop.call})
    asked: list[str] = []

    def no(params: t.ElicitRequestParams) -> bool:
        asked.append(params.message)
        return False

    async with connected_client(transport, answers=InputCallbacks(on_elicit=no)) as client:
        with pytest.raises(Declined, match="declined to open the URL"):
            await client.call_tool("pay")
    assert (asked, shop.calls) == (["Connect"], 1)


@pytest.mark.spec("R0605")
@live
async def test_a_url_elicitation_that_is_not_over_is_waited_for_and_strange_notices_are_ignored(
    revision: Revision,
) -> None:
    seen: list[str] = []
    shop = Shop("a")
    transport = ScriptedTransport(revision, {"tools/call": shop.call})
    async with connected_client(transport, answers=agreeing(seen)) as client:
        calling = asyncio.ensure_future(client.call_tool("pay"))
        await until(lambda: shop.calls == 2)
        for id in ("never heard of", "b"):
            transport.server.notify(COMPLETE, {"elicitationId": id})
        await client.ping()
        assert (shop.calls, len(seen)) == (2, 1)
        shop.wants.clear()
        transport.server.notify(COMPLETE, {"elicitationId": "a"})
        assert (await calling).text == "done"
        transport.server.notify(COMPLETE, {"elicitationId": "a"})  # it was over before
        await client.ping()
    assert len(seen) == 1, "nobody is sent to the same page twice"


@BY_ERROR
@live
async def test_a_server_that_is_never_content_is_an_error_in_the_end(revision: Revision) -> None:
    shop = Shop("a")
    transport = ScriptedTransport(revision, {"tools/call": shop.call})
    async with connected_client(transport, answers=agreeing([]), timeout_s=0.5) as client:
        with pytest.raises(RemoteError, match="visit these first") as caught:
            await client.call_tool("pay")
        assert caught.value.code == -32042
    assert shop.calls == 3


@live
async def test_who_cannot_be_asked_gets_the_error_as_it_is(revision: Revision) -> None:
    shop = Shop("a")
    async with connected_client(ScriptedTransport(revision, {"tools/call": shop.call})) as client:
        with pytest.raises(RemoteError, match="visit these first"):
            await client.call_tool("pay")
    assert shop.calls == 1
