"""Input responses and `requestState`: forged, modified, of another client, late, repeated."""

import time

from colonnade.protocol.revision import InputRequests, Revision
from features.feature import JSON, Group, Verdict, failure, fallback, refused, tried
from features.input_requests import folders, rooted
from server.raw_client import Client, Rejected, raw_client, text_content

ANSWERED = Group("`input_required`: validation of `requestState` and responses")
FAILED = fallback("`isError` result")
# Longer than the lifetime of every input request and `requestState`.
TOO_LATE_S = 3600.0
ANSWERS: JSON = {"roots": {"roots": [{"uri": "file:///forged"}]}}


@ANSWERED.feature(
    "forged `inputResponses` and `requestState`",
    *4 * [fallback("ignored, the request is sent")],
    refused(-32602),
)
async def forged(revision: Revision) -> Verdict:
    async with raw_client(rooted(), revision, answer=folders) as client:
        params = {"name": "show", "inputResponses": ANSWERS, "requestState": "made-up"}
        result = await tried(client.ask("tools/call", params))
    if isinstance(result, Rejected):
        assert "requestState" in result.message
        return refused(result.code)
    assert text_content(result) == "file:///a file:///b"
    assert [method for method, _ in client.asked] == ["roots/list"]
    return fallback("ignored, the request is sent")


async def demanded(client: Client, tool: str) -> JSON:
    """The params of the retry after an `input_required` result, without the responses."""
    first = await client.outcome(client.send("tools/call", {"name": tool}))
    assert first["resultType"] == "input_required"
    return {"name": tool, "requestState": first["requestState"], "inputResponses": ANSWERS}


async def rejection(client: Client, params: JSON) -> Verdict:
    """The error of a retry that must be rejected."""
    found = await tried(client.outcome(client.send("tools/call", params)))
    assert isinstance(found, Rejected), f"this was taken: {found}"
    assert "requestState" in found.message or "another request" in found.message, found
    return refused(found.code)


@ANSWERED.feature("modified `requestState`", *4 * [fallback("no state")], refused(-32602))
async def tampered(revision: Revision) -> Verdict:
    async with raw_client(rooted(), revision, answer=folders) as client:
        if revision.input_requests is InputRequests.AS_REQUEST:
            await client.call("show")
            assert "requestState" not in str(client.received)
            return fallback("no state")
        good = await demanded(client, "show")
        state = good["requestState"]
        seen = {
            await rejection(client, good | {"requestState": state[:-4] + "AAAA"}),
            await rejection(client, good | {"requestState": state + "x"}),
            await rejection(client, good | {"arguments": {"only": "b"}}),
        }
        assert (
            text_content(await client.outcome(client.send("tools/call", good))) == "file:///forged"
        )
    (verdict,) = seen
    return verdict


def silent(method: str, params: JSON) -> None:
    """Send no response."""


@ANSWERED.feature("response of another client", *4 * [fallback("dropped")], refused(-32602))
async def another_principal(revision: Revision) -> Verdict:
    server = rooted()
    forged = ANSWERS["roots"]
    async with (
        raw_client(server, revision, answer=silent, principal="ann") as ann,
        raw_client(server, revision, answer=silent, principal="eve") as eve,
    ):
        if revision.input_requests is InputRequests.IN_RESULT:
            return await rejection(eve, await demanded(ann, "show"))
        id = ann.send("tools/call", {"name": "show"})
        await ann.until(lambda: ann.asked)
        asked = next(one["id"] for one in ann.received if one.get("method") == "roots/list")
        eve.send_raw({"jsonrpc": "2.0", "id": asked, "result": forged})
        await eve.ask("ping")
        ann.send_raw({"jsonrpc": "2.0", "id": asked, "result": folders("roots/list", {})})
        assert text_content(await ann.outcome(id)) == "file:///a file:///b"
    return fallback("dropped")


@ANSWERED.feature("response after the timeout", *4 * [FAILED], refused(-32602))
async def too_late(revision: Revision) -> Verdict:
    server = rooted()
    async with raw_client(server, revision, answer=silent) as client:
        if revision.input_requests is InputRequests.IN_RESULT:
            good = await demanded(client, "show")
            server._rounds_runner._clock = lambda: time.time() + TOO_LATE_S
            return await rejection(client, good)
        id = client.send("tools/call", {"name": "show"})
        await client.until(lambda: client.asked)
        client.duplex._clock = lambda: time.monotonic() + TOO_LATE_S
        client.duplex._on_timer()
        return await failure(client.outcome(id), "the client did not respond")


@ANSWERED.feature(
    "repeated response, with `single_use=True`",
    *4 * [fallback("the second is dropped")],
    refused(-32602),
)
async def twice(revision: Revision) -> Verdict:
    server = rooted(single_use=True)
    async with raw_client(server, revision, answer=silent) as client:
        if revision.input_requests is InputRequests.IN_RESULT:
            good = await demanded(client, "show")
            assert (
                text_content(await client.outcome(client.send("tools/call", good)))
                == "file:///forged"
            )
            return await rejection(client, good)
        id = client.send("tools/call", {"name": "show"})
        await client.until(lambda: client.asked)
        asked = next(one["id"] for one in client.received if one.get("method") == "roots/list")
        reply = {"jsonrpc": "2.0", "id": asked, "result": folders("roots/list", {})}
        client.send_raw(reply)
        client.send_raw(reply | {"result": ANSWERS["roots"]})
        assert text_content(await client.outcome(id)) == "file:///a file:///b"
        assert await client.ask("ping") == {}
    return fallback("the second is dropped")
