"""What belongs to one principal is nothing to another, told apart by real tokens.

Sessions, their streams, what travels in `requestState`, handles, lists; and a stream ends when the
token that opened it does. Cases RS-07 and RQ-04, and 1A of the incidents.
"""

import logging
import time
from typing import Any

import pytest

from auth.connects import connects, dns
from auth.protected import Bearer, ProtectedSetup, notes, protected
from colonnade import Context, Limits, Server
from colonnade.middleware import log as logged
from live import Records, live

ELICITS = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}


def people(setup: ProtectedSetup) -> tuple[Bearer, Bearer]:
    return setup.caller(setup.token(sub="ann")), setup.caller(setup.token(sub="bob"))


@pytest.mark.spec("R0613")
@live
async def test_a_session_of_one_does_not_exist_for_another() -> None:
    async with protected() as setup:
        ann, bob = people(setup)
        await ann.initialize("2025-11-25")
        bob.session, bob.revision = ann.session, ann.revision
        assert (await bob.ask("tools/list")).status == 404
        assert (await bob.request("DELETE")).status == 404
        _, stream = await bob.get()
        assert stream.status == 404
        assert (await ann.ask("tools/call", {"name": "whoami"})).text.endswith("#ann")


@live
async def test_a_session_is_the_principals_and_not_the_tokens() -> None:
    """A refreshed token goes on where the last one was; the same name elsewhere does not."""
    async with protected() as setup:
        ann, _ = people(setup)
        await ann.initialize("2025-11-25")
        ann.token = setup.token(sub="ann", jti="another token")
        assert (await ann.ask("tools/list")).status == 200


@pytest.mark.spec("R0615", "R0623", "R0937")
@live
async def test_a_request_state_of_one_is_refused_to_another_and_to_another_token_of_nobody() -> (
    None
):
    """RQ-04."""
    server = notes()
    ran: list[str] = []

    @server.tool
    async def book(ctx: Context) -> str:
        answer = await ctx.elicit("Really?", bool)
        ran.append(ctx.principal)
        return f"{answer}"

    async with protected(server=server) as setup:
        ann, bob = people(setup)
        params: dict[str, Any] = {"name": "book", "arguments": {}}
        asked = (await ann.modern("tools/call", params, meta=ELICITS)).json["result"]
        assert asked["resultType"] == "input_required"
        (key,) = asked["inputRequests"]
        answers = {key: {"action": "accept", "content": {"value": True}}}
        retry = {**params, "requestState": asked["requestState"], "inputResponses": answers}
        refused = await bob.modern("tools/call", retry, meta=ELICITS)
        assert refused.json.get("error"), refused.body
        assert ran == []
        taken = await ann.modern("tools/call", retry, meta=ELICITS)
        assert "result" in taken.json, taken.body
        assert [who.rpartition("#")[2] for who in ran] == ["ann"]


@pytest.mark.spec("R0623")
@live
async def test_an_elicitation_in_a_session_of_one_takes_no_answer_of_another() -> None:
    server = notes()

    @server.tool
    async def book(ctx: Context) -> str:
        return f"{await ctx.elicit('Really?', bool)}"

    async with protected(server=server) as setup:
        ann, bob = people(setup)
        await ann.initialize("2025-11-25", {"elicitation": {}})
        _, stream = await ann.asking("tools/call", {"name": "book", "arguments": {}})
        asked = await stream.message()
        assert asked["method"] == "elicitation/create"
        answer = {"jsonrpc": "2.0", "id": asked["id"]}
        bob.session, bob.revision = ann.session, ann.revision
        no = answer | {"result": {"action": "accept", "content": {"value": False}}}
        assert (await bob.post(no)).status == 404
        yes = answer | {"result": {"action": "accept", "content": {"value": True}}}
        assert (await ann.post(yes)).status == 202
        assert (await stream.message())["result"]["content"][0]["text"] == "True"


@pytest.mark.spec("R0637")
@live
async def test_an_identity_that_a_client_claims_beside_its_token_is_ignored() -> None:
    async with protected() as setup:
        bob = setup.caller(setup.token(sub="bob"))
        claimed = {"user": "ann", "sub": "ann", "principal": "ann", "userId": "ann"}
        headers = {"x_user": "ann", "x_forwarded_user": "ann", "x_principal": "ann", "from": "ann"}
        params = {"name": "whoami", "arguments": {}}
        told = await bob.modern("tools/call", params, meta=claimed, **headers)
        assert told.text.endswith("#bob")
        await bob.initialize("2025-11-25", {"experimental": {"user": claimed}}, **headers)
        told = await bob.ask("tools/call", {**params, "_meta": claimed}, **headers)
        assert told.text.endswith("#bob")


@pytest.mark.spec("R0612", "R0937")
@live
async def test_a_handle_of_one_names_nothing_for_another() -> None:
    server = Server("baskets")
    baskets = server.handles("basket", list[str])

    @server.tool
    async def begin(ctx: Context) -> str:
        return await baskets.create(ctx, ["apple"])

    @server.tool
    async def show(handle: str, ctx: Context) -> str:
        return " ".join(await baskets.get(ctx, handle))

    async with protected(server=server) as setup:
        ann, bob = people(setup)
        handle = (await ann.modern("tools/call", {"name": "begin"})).text
        ask = {"name": "show", "arguments": {"handle": handle}}
        assert (await ann.modern("tools/call", ask)).text == "apple"
        assert (await bob.modern("tools/call", ask)).json["result"]["isError"] is True


@pytest.mark.spec("R1030")
@live
async def test_a_list_that_depends_on_the_caller_is_cached_for_nobody_else() -> None:
    async with protected(server=notes(cache_scope="public", ttl_s=60)) as setup:
        listed = await setup.caller(setup.token()).modern("tools/list")
        assert listed.json["result"]["cacheScope"] == "private"
        few = setup.caller(setup.token(scope="notes:read"))
        called = await few.modern("tools/call", {"name": "erase", "arguments": {"name": "x"}})
        assert called.status == 403  # whatever a cache between may have shown


@live
async def test_a_cursor_of_one_shows_another_nothing_that_is_closed() -> None:
    async with protected(server=notes(page_size=1)) as setup:
        many = setup.caller(setup.token(sub="ann", scope="notes:write"))
        few = setup.caller(setup.token(sub="bob", scope="notes:read"))
        cursor, seen = None, set[str]()
        while True:
            params = {"cursor": cursor} if cursor else {}
            for caller in (many, few):
                page = (await caller.modern("tools/list", params)).json
                names = [tool["name"] for tool in page.get("result", {}).get("tools", ())]
                assert caller is many or "erase" not in names
                seen.update(names)
            cursor = (await many.modern("tools/list", params)).json["result"].get("nextCursor")
            if cursor is None:
                break
        assert seen == {"whoami", "erase"}


@live
async def test_notifications_of_what_is_closed_reach_only_who_may_read_it() -> None:
    async with protected() as setup:
        ann, _ = people(setup)
        wanted = {"resourceSubscriptions": ["notes://open", "notes://shut"]}
        _, stream = await ann.stream("subscriptions/listen", {"notifications": wanted})
        told = await stream.message()
        assert told["params"]["notifications"]["resourceSubscriptions"] == ["notes://open"]


@pytest.mark.parametrize("way", ["modern", "session"])
@live
async def test_a_stream_for_news_ends_with_the_token_that_opened_it(way: str) -> None:
    """RS-07: and a call that is running is let finish."""
    async with protected() as setup:
        # Within the skew a token is still taken, and its streams end at once.
        ann = setup.caller(setup.token(exp=time.time() - 1))
        if way == "modern":
            _, stream = await ann.stream("subscriptions/listen", {"notifications": {}})
        else:
            await ann.initialize("2025-11-25")
            _, stream = await ann.get()
        assert stream.status == 200
        await stream.rest()  # ends, within the time that each wait here has
        assert (await ann.modern("tools/list", mcp_session_id=None)).status == 200


@live
async def test_the_principal_is_in_the_log_and_the_token_is_not() -> None:
    server = notes()
    server.add_middleware(logged())
    logging.getLogger("colonnade.requests").setLevel(logging.INFO)
    with Records("colonnade.requests") as records:
        async with protected(server=server) as setup:
            ann, _ = people(setup)
            await ann.modern("tools/call", {"name": "whoami"})
            await ann.modern("tools/call", {"name": "erase"})
    assert len(records.lines) == 1  # what the guard refused never came in
    assert "#ann" in records.lines[0]
    assert ann.token is not None
    assert ann.token not in records.lines[0]


@live
async def test_one_principal_does_not_take_the_place_of_all() -> None:
    async with protected(
        options={"limits": Limits(max_concurrent_requests_per_principal=1)}
    ) as setup:
        ann, bob = people(setup)
        listen = {"notifications": {}}
        wire, stream = await ann.stream("subscriptions/listen", listen)
        await stream.message()
        assert (await ann.modern("tools/list")).status == 503
        assert (await bob.modern("tools/list")).status == 200
        wire.close()


# ---------------------------------------------------------------- whom a stranger makes us call

CANARY = "canary.example"
# Whatever names a place for somebody along the way, and what others took for an address to call.
NAMING: dict[str, Any] = {
    "forwarded": f"host={CANARY};proto=https",
    "x_forwarded_host": CANARY,
    "x_forwarded_server": CANARY,
    "x_original_url": f"https://{CANARY}/",
    "x_rewrite_url": f"https://{CANARY}/",
    "x_real_ip": "169.254.169.254",
    "referer": f"https://{CANARY}/",
    "x_api_url": f"https://{CANARY}/",
    "x_issuer": f"https://{CANARY}",
    "x_jwks_uri": f"https://{CANARY}/keys",
    "x_atlassian_jira_url": f"https://{CANARY}/",
}


@live
async def test_no_header_of_a_request_chooses_whom_we_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """CVE-2026-27826: with a good token, a bad one and none, to the endpoint and the documents."""
    async with protected() as setup:
        asked = dns(monkeypatch, lambda name: [])
        lure = setup.signing_key.sign(
            setup.claims(), jku=f"https://{CANARY}/k", x5u=f"https://{CANARY}/c", kid="other"
        )
        with connects() as seen:
            for token in (None, lure, setup.token()):
                await setup.caller(token).modern("tools/list", **NAMING)
            for place in ("oauth-protected-resource", "oauth-authorization-server"):
                await setup.caller().request("GET", path=f"/.well-known/{place}", **NAMING)
        assert setup.issuer.requested_paths  # who was asked by the way
        assert set(seen) == {"127.0.0.1"}
        assert asked == []
