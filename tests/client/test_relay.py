"""Requests of another caller: its input capabilities, and rounds that it sends itself."""

import pytest
from msgspec import Raw

from colonnade import Context, Server, connect
from colonnade.client.client import Client
from colonnade.client.input_callbacks import InputCallbacks
from colonnade.errors import Declined, RemoteError, RemoteProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.input_requests import NO_INPUT, InputCapabilities
from colonnade.protocol.jsonrpc import encode
from live import live

FORMS = InputCapabilities(form=True)


def asking() -> Server:
    server = Server("asking")

    @server.tool
    async def book(ctx: Context) -> str:
        return await ctx.elicit("Which seat?", str)

    @server.tool
    async def pay(ctx: Context) -> str:
        await ctx.elicit_url("Card.", "https://pay.example.com/", by_error=True)
        return "paid"

    @server.resource("note://a", ttl_s=60)
    async def note(ctx: Context) -> str:
        return await ctx.elicit("Which note?", str)

    _ = book, pay, note
    return server


async def ask(
    client: Client,
    declared: InputCapabilities | None = FORMS,
    state: str | None = None,
    responses: dict[str, Raw] | None = None,
) -> t.ProtocolType:
    params = t.CallToolRequestParams(
        name="book", arguments=Raw(b"{}"), request_state=state, input_responses=responses
    )
    return await client.ask(
        "tools/call", params, answers=InputCallbacks(), declared=declared, relay=True
    )


def accepted(result: t.ProtocolType, value: str) -> dict[str, Raw]:
    assert isinstance(result, t.InputRequiredResult)
    ((key, request),) = (result.input_requests or {}).items()
    assert isinstance(request, t.ElicitRequest)
    assert request.params.requested_schema is not None
    (field,) = request.params.requested_schema.properties
    return {key: Raw(encode({"action": "accept", "content": {field: value}}))}


@live
async def test_an_input_required_result_is_handed_back_and_the_next_round_sent_on() -> None:
    async with connect(asking(), revision="2026-07-28") as client:
        first = await ask(client)
        assert isinstance(first, t.InputRequiredResult)
        last = await ask(client, state=first.request_state, responses=accepted(first, "12A"))
        assert isinstance(last, t.CallToolResult)
        assert last.content == [t.TextContent(text="12A")]


@live
async def test_a_request_declares_the_capabilities_of_its_caller_and_not_those_of_the_client() -> (
    None
):
    def elicit(params: t.ElicitRequestParams) -> str:
        raise AssertionError("the callbacks of the client are not for another caller")

    async with connect(asking(), revision="2026-07-28", on_elicit=elicit) as client:
        with pytest.raises(RemoteError) as refused:
            await ask(client, NO_INPUT)
        assert refused.value.code == -32021
        assert isinstance(await ask(client, FORMS), t.InputRequiredResult)
        assert isinstance(await ask(client, None), t.InputRequiredResult)


@live
async def test_input_that_the_caller_did_not_declare_is_not_handed_back() -> None:
    server = Server("rude")

    @server.tool
    async def book() -> str:
        return ""

    _ = book
    result = t.InputRequiredResult(
        input_requests={"roots": t.ListRootsRequest(params=t.ListRootsRequestParams())}
    )

    async with connect(server, revision="2026-07-28") as client:
        client._decode = lambda *_: result  # type: ignore[method-assign]
        with pytest.raises(RemoteProtocolError, match="requires input that this client does not"):
            await ask(client, FORMS)


@live
async def test_the_error_that_requires_urls_is_raised_with_relay_errors() -> None:
    asked: list[str | None] = []

    def elicit(params: t.ElicitRequestParams) -> bool:
        asked.append(params.url)
        raise Declined

    async with connect(asking(), revision="2025-11-25", on_elicit=elicit) as client:
        params = t.CallToolRequestParams(name="pay", arguments=Raw(b"{}"))
        with pytest.raises(RemoteError) as required:
            await client.ask("tools/call", params, answers=InputCallbacks(), relay_errors=True)
        assert required.value.code == -32042
        assert asked == []


@live
async def test_the_result_of_a_later_round_is_not_cached() -> None:
    async with connect(asking(), revision="2026-07-28") as client:

        async def read(state: str | None, responses: dict[str, Raw] | None) -> t.ProtocolType:
            params = t.ReadResourceRequestParams(
                uri="note://a", request_state=state, input_responses=responses
            )
            return await client.ask(
                "resources/read", params, answers=InputCallbacks(), declared=FORMS, relay=True
            )

        for value in ("one", "two"):
            first = await read(None, None)
            assert isinstance(first, t.InputRequiredResult)
            last = await read(first.request_state, accepted(first, value))
            assert isinstance(last, t.ReadResourceResult)
            assert value in str(last.contents)
