"""The policy of a host holds for the clients of a gateway in every revision."""

import json
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec import Raw

from colonnade import Context, Gateway, Host, Policy, Rule, Server, connect
from colonnade.client.input_callbacks import InputCallbacks
from colonnade.errors import Declined, Fault, FaultKind, RemoteError
from colonnade.host.config.settings import ServerEntry, Settings
from colonnade.host.policy.approvals.inbox import Inbox, InboxAnswer, InboxItem
from colonnade.host.policy.audit.log import AuditLog
from colonnade.host.policy.containment import CONTAINED_KEY
from colonnade.protocol import types as t
from gateway.rounds import Rounds, text
from gateway.served import served
from host.audited import opened
from live import live

REVISIONS = ("2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
CELLS = [(one, other) for one in REVISIONS[:2] for other in REVISIONS[:2]]


def shop() -> Server:
    server = Server("shop")

    @server.tool
    def price(item: str) -> str:
        return f"{item}: 3"

    @server.tool
    def erase(item: str) -> str:
        raise AssertionError("it is denied")

    @server.tool
    async def buy(ctx: Context) -> str:
        try:
            return await ctx.elicit("How many?", str)
        except Declined as no:
            return no.action

    @server.tool
    async def look(ctx: Context) -> str:
        return str([root.uri for root in await ctx.roots()])

    @server.tool
    async def rhyme(ctx: Context) -> str:
        return (await ctx.sample("Rhyme on plum.", max_tokens=9)).text

    return server


def unexpected(params: t.CreateMessageRequestParams) -> Any:
    raise AssertionError("a client that sends each round itself is not asked")


def hosted(server: Server, revision: str, policy: Policy, **options: Any) -> Host:
    async def resolve() -> Server:
        return server

    settings = Settings(revision=revision, roots="caller", sampling=True)
    entry = ServerEntry(key="shop", resolve=resolve, fingerprint="shop", settings=settings)
    return Host({"shop": entry}, policy=policy, **options)


async def error_of(client: Any, tool: str) -> str:
    with pytest.raises(RemoteError) as caught:
        await client.call_tool(tool, {"item": "tea"})
    error = caught.value
    return json.dumps([error.code, error.message.replace(tool, "NAME"), error.data])


@pytest.mark.parametrize("revision", REVISIONS)
@live
async def test_a_denied_tool_is_as_unknown_to_a_client_as_one_that_does_not_exist(
    revision: str,
) -> None:
    policy = Policy([Rule("deny", tools="shop__erase")], default="allow")
    async with (
        hosted(shop(), REVISIONS[0], policy) as host,
        connect(Gateway(host), revision=revision) as client,
    ):
        assert [tool.name for tool in await client.list_tools()] == [
            "shop__price",
            "shop__buy",
            "shop__look",
            "shop__rhyme",
        ]
        denied = await error_of(client, "shop__erase")
        assert denied == await error_of(client, "shop__qzqzq")
        assert (await client.call_tool("shop__price", {"item": "tea"})).text == "tea: 3"


PLACE = "/home/operator/colonnade.toml:14:1"


@pytest.mark.parametrize("name", ["", "no tea"])
@pytest.mark.parametrize("action", ["deny", "ask"])
@pytest.mark.parametrize(("client_revision", "server_revision"), CELLS)
@live
async def test_a_remote_caller_is_told_the_name_of_a_rule_and_not_where_it_is_written(
    client_revision: str, server_revision: str, action: Literal["deny", "ask"], name: str
) -> None:
    rule = Rule(action, tools="shop__price", arguments={"item": "tea"}, name=name, place=PLACE)
    policy = Policy([rule], default="allow")
    async with hosted(shop(), server_revision, policy) as host, served(Gateway(host)) as url:
        async with connect(url, revision=client_revision) as client:
            result = await client.call_tool("shop__price", {"item": "tea"})
        assert result.is_error
        assert "operator" not in str(result)
        assert "colonnade.toml" not in str(result)
        assert (f"rule {name!r}" if name else "a rule") in result.text
        async with connect(Gateway(host), revision=client_revision) as client:
            result = await client.call_tool("shop__price", {"item": "tea"})
        assert PLACE in result.text


@pytest.mark.parametrize(("rule_action", "action"), [("deny", "decline"), ("ask", "cancel")])
@pytest.mark.parametrize(("client_revision", "server_revision"), CELLS)
@live
async def test_a_refused_elicitation_is_declined_or_cancelled_and_reaches_no_client(
    client_revision: str, server_revision: str, rule_action: Literal["deny", "ask"], action: str
) -> None:
    asked: list[t.ElicitRequestParams] = []

    def on_elicit(params: t.ElicitRequestParams) -> str:
        asked.append(params)
        return "two"

    policy = Policy([Rule(rule_action, requests="elicitation")], default="allow")
    async with (
        hosted(shop(), server_revision, policy) as host,
        connect(Gateway(host), revision=client_revision, on_elicit=on_elicit) as client,
    ):
        result = await client.call_tool("shop__buy")
    assert asked == []
    if client_revision == server_revision == REVISIONS[0]:
        # The request is in a result of the server, so the call is what is refused.
        assert result.is_error
        assert ("a policy denies" if rule_action == "deny" else "no way to ask") in result.text
    else:
        assert result.text == action


@pytest.mark.parametrize("audit", ["none", "optional", "required"])
@pytest.mark.parametrize(("client_revision", "server_revision"), CELLS)
@live
async def test_an_allowed_elicitation_reaches_the_client_in_every_cell(
    client_revision: str, server_revision: str, audit: str, tmp_path: Path
) -> None:
    asked: list[str] = []

    def on_elicit(params: t.ElicitRequestParams) -> str:
        asked.append(params.message)
        return "two"

    log = None if audit == "none" else AuditLog(tmp_path / "audit", required=audit == "required")
    async with (
        hosted(shop(), server_revision, Policy(default="allow"), audit=log) as host,
        connect(Gateway(host), revision=client_revision, on_elicit=on_elicit) as client,
    ):
        assert (await client.call_tool("shop__buy")).text == "two"
    assert asked == ["How many?"]


@pytest.mark.parametrize("action", ["accept", "decline"])
@pytest.mark.parametrize(("client_revision", "server_revision"), CELLS)
@live
async def test_an_elicitation_that_is_asked_about_reaches_the_client_after_a_person_agreed(
    client_revision: str,
    server_revision: str,
    action: Literal["accept", "decline"],
    tmp_path: Path,
) -> None:
    steps: list[str] = []

    def on_item(item: InboxItem) -> InboxAnswer:
        assert (item.kind, item.method) == ("approval", "elicitation/create")
        assert "How many?" in item.content
        steps.append("person")
        return InboxAnswer(action=action)

    def on_elicit(_: t.ElicitRequestParams) -> str:
        steps.append("client")
        return "two"

    policy = Policy([Rule("ask", requests="elicitation")], default="allow")
    inbox, log = Inbox(on_item=on_item), AuditLog(tmp_path)
    async with (
        hosted(shop(), server_revision, policy, inbox=inbox, audit=log) as host,
        connect(Gateway(host), revision=client_revision, on_elicit=on_elicit) as client,
    ):
        result = await client.call_tool("shop__buy")
    accepted = action == "accept"
    assert steps == (["person", "client"] if accepted else ["person"])
    assert ("two" in result.text) == accepted
    lines = [
        json.loads(one)
        for file in tmp_path.glob("*.jsonl")
        for one in file.read_text().splitlines()
    ]
    events = [one["event"] for one in lines if one.get("method") == "elicitation/create"]
    end = ["executed", "returned"] if accepted else ["failed"]
    assert events == ["proposed", "decided", "asked", "answered", *end]


@pytest.mark.parametrize(("client_revision", "server_revision"), CELLS)
@live
async def test_a_call_with_rounds_is_asked_about_once_in_every_cell(
    client_revision: str, server_revision: str
) -> None:
    approved: list[str] = []

    def on_item(item: InboxItem) -> InboxAnswer:
        approved.append(item.name)
        return InboxAnswer(action="accept")

    def on_elicit(_: t.ElicitRequestParams) -> str:
        return "two"

    policy, inbox = Policy([Rule("ask", tools="shop__buy")]), Inbox(on_item=on_item)
    async with (
        hosted(shop(), server_revision, policy, inbox=inbox) as host,
        connect(Gateway(host), revision=client_revision, on_elicit=on_elicit) as client,
    ):
        assert "two" in (await client.call_tool("shop__buy")).text
        assert approved == ["shop__buy"]
        assert "two" in (await client.call_tool("shop__buy")).text
        assert approved == ["shop__buy"] * 2


@pytest.mark.parametrize(("tool", "answer"), [("look", "file:///srv"), ("rhyme", "Gum.")])
@pytest.mark.parametrize(("client_revision", "server_revision"), CELLS)
@live
async def test_a_server_gets_no_roots_and_no_sampling_that_a_person_has_not_seen(
    client_revision: str, server_revision: str, tool: str, answer: str
) -> None:
    seen: list[str] = []
    answers: list[str] = []

    def on_item(item: InboxItem) -> InboxAnswer:
        seen.append(item.content)
        return InboxAnswer(action="accept")

    def on_sample(_: t.CreateMessageRequestParams) -> str:
        answers.append(answer)
        return answer

    options: dict[str, Any] = {"on_sample": on_sample, "roots": ["file:///srv"]}
    async with (
        hosted(
            shop(), server_revision, Policy(default="allow"), inbox=Inbox(on_item=on_item)
        ) as host,
        connect(Gateway(host), revision=client_revision, **options) as client,
    ):
        result = await client.call_tool(f"shop__{tool}")
    assert answer in result.text
    assert answer in seen[-1]
    assert len(seen) == (2 if tool == "rhyme" else 1)
    assert tool != "rhyme" or "Rhyme on plum." in seen[0]


@pytest.mark.spec("R0098")
@pytest.mark.parametrize(("client_revision", "server_revision"), CELLS)
@live
async def test_what_a_person_edits_is_what_the_model_and_the_server_get(
    client_revision: str, server_revision: str
) -> None:
    asked: list[str] = []

    def on_item(item: InboxItem) -> InboxAnswer:
        before, after = ("plum", "gum") if item.kind == "sampling" else ("Rum.", "Mum.")
        assert before in item.content
        return InboxAnswer(action="accept", content=item.content.replace(before, after))

    def on_sample(params: t.CreateMessageRequestParams) -> str:
        asked.append(str(params.messages))
        return "Rum."

    inbox = Inbox(on_item=on_item)
    async with (
        hosted(shop(), server_revision, Policy(default="allow"), inbox=inbox) as host,
        connect(Gateway(host), revision=client_revision, on_sample=on_sample) as client,
    ):
        assert (await client.call_tool("shop__rhyme")).text == "Mum."
    assert len(asked) == 1
    assert "gum" in asked[0]
    assert "plum" not in asked[0]


@pytest.mark.parametrize(
    ("tool", "denied"),
    [("rhyme", "sampling"), ("rhyme", "sampling_result"), ("look", "roots")],
)
@pytest.mark.parametrize(("client_revision", "server_revision"), CELLS)
@live
async def test_a_server_gets_nothing_that_a_person_denies(
    client_revision: str, server_revision: str, tool: str, denied: str, tmp_path: Path
) -> None:
    steps: list[str] = []

    def on_item(item: InboxItem) -> InboxAnswer:
        steps.append(item.kind)
        return InboxAnswer(action="decline" if item.kind == denied else "accept")

    def on_sample(_: t.CreateMessageRequestParams) -> str:
        steps.append("model")
        return "Gum."

    options: dict[str, Any] = {"on_sample": on_sample, "roots": ["file:///srv"]}
    inbox, log = Inbox(on_item=on_item), AuditLog(tmp_path)
    async with (
        hosted(shop(), server_revision, Policy(default="allow"), inbox=inbox, audit=log) as host,
        connect(Gateway(host), revision=client_revision, **options) as client,
    ):
        result = await client.call_tool(f"shop__{tool}")
    assert result.is_error
    assert not {"Gum.", "srv"} & set(result.text.split())
    before = ["sampling", "model"] if denied == "sampling_result" else []
    assert steps == [*before, denied]
    lines = [
        json.loads(one)
        for file in tmp_path.glob("*.jsonl")
        for one in file.read_text().splitlines()
    ]
    events = [
        one["event"]
        for one in lines
        if one.get("method") in ("sampling/createMessage", "roots/list")
    ]
    assert events[-1] == "failed"


SAMPLED = {"role": "assistant", "content": {"type": "text", "text": "Gum."}, "model": "m"}


def begun(result: Any) -> tuple[str, str | None]:
    """The key of the one input request of a round, and its state."""
    assert isinstance(result, t.InputRequiredResult), result
    ((key, _),) = (result.input_requests or {}).items()
    return key, result.request_state


@live
async def test_a_result_of_the_model_is_shown_in_every_process_and_each_time_it_is_sent() -> None:
    seen: list[tuple[str, str]] = []

    def on_item(place: str, item: InboxItem) -> InboxAnswer:
        seen.append((place, item.kind))
        return InboxAnswer(action="accept")

    def at(place: str) -> Host:
        inbox = Inbox(on_item=partial(on_item, place))
        return hosted(server, REVISIONS[0], Policy(default="allow"), inbox=inbox)

    server, keys, callbacks = shop(), [b"k" * 32], InputCallbacks(on_sample=unexpected)
    async with (
        at("here") as here,
        at("there") as there,
        connect(Gateway(here, keys=keys), on_sample=unexpected) as first,
        connect(Gateway(there, keys=keys), on_sample=unexpected) as second,
    ):
        rounds = [Rounds(one, callbacks) for one in (first, second)]
        key, state = begun(await rounds[0].send("rhyme", server="shop"))
        for number in (1, 1, 0):
            last = await rounds[number].send("rhyme", {}, state, {key: SAMPLED}, server="shop")
            assert text(last) == "Gum."
    assert seen == [("here", "sampling"), *[("there", "sampling_result")] * 2, ("here", seen[1][1])]


@pytest.mark.parametrize(
    "response",
    [
        b'{"role":"assistant","content":{"type":"text","text":"a"},"model":"m","model":"n"}',
        b'{"action":"accept","content":{"value":"a"}}',
        b'{"roots":[]}',
    ],
)
@live
async def test_a_result_that_is_none_of_the_request_or_reads_in_two_ways_is_refused(
    response: bytes,
) -> None:
    seen: list[str] = []

    def on_item(item: InboxItem) -> InboxAnswer:
        seen.append(item.kind)
        return InboxAnswer(action="accept")

    inbox = Inbox(on_item=on_item)
    async with (
        hosted(shop(), REVISIONS[0], Policy(default="allow"), inbox=inbox) as host,
        connect(Gateway(host), on_sample=unexpected) as client,
    ):
        rounds = Rounds(client, InputCallbacks(on_sample=unexpected))
        key, state = begun(await rounds.send("rhyme", server="shop"))
        with pytest.raises(RemoteError) as caught:
            await rounds.send("rhyme", {}, state, {key: Raw(response)}, server="shop")
        assert caught.value.code == -32602
    assert seen == ["sampling"]


@live
async def test_what_the_rules_deny_between_two_rounds_is_not_sent() -> None:
    def on_item(item: InboxItem) -> InboxAnswer:
        assert item.kind == "sampling"
        return InboxAnswer(action="accept")

    keys, server = [b"k" * 32], shop()
    denying = Policy([Rule("deny", requests="sampling")], default="allow")
    inbox, callbacks = Inbox(on_item=on_item), InputCallbacks(on_sample=unexpected)
    async with (
        hosted(server, REVISIONS[0], Policy(default="allow"), inbox=inbox) as before,
        hosted(server, REVISIONS[0], denying, inbox=inbox) as after,
        hosted(server, REVISIONS[0], Policy(default="allow")) as without,
        connect(Gateway(before, keys=keys), on_sample=unexpected) as first,
        connect(Gateway(after, keys=keys), on_sample=unexpected) as second,
        connect(Gateway(without, keys=keys), on_sample=unexpected) as third,
    ):
        key, state = begun(await Rounds(first, callbacks).send("rhyme", server="shop"))
        for client, words in ((second, "what a policy denies"), (third, "no way to ask")):
            rounds = Rounds(client, callbacks)
            last = await rounds.send("rhyme", {}, state, {key: SAMPLED}, server="shop")
            assert words in text(last)
            assert last.is_error


@pytest.mark.parametrize(("client_revision", "server_revision"), CELLS)
@live
async def test_a_client_that_answers_every_elicitation_cannot_approve_a_call(
    client_revision: str, server_revision: str
) -> None:
    asked: list[t.ElicitRequestParams] = []

    def on_elicit(params: t.ElicitRequestParams) -> str:
        asked.append(params)
        return "yes"

    async with (
        hosted(shop(), server_revision, Policy(default="ask")) as host,
        connect(Gateway(host), revision=client_revision, on_elicit=on_elicit) as client,
    ):
        result = await client.call_tool("shop__price", {"item": "tea"})
    assert result.is_error
    assert "no approver" in result.text or "inbox" in result.text
    assert asked == []


# ---------------------------------------------------------------- hidden text

BAD, SHOWN = "x\u202ey", "x\\u202ey"


def hiding() -> Server:
    server = Server("shop")

    @server.tool
    def look() -> t.CallToolResult:
        content: list[t.ContentBlock] = [t.TextContent(text=BAD)]
        return t.CallToolResult(content=content, structured_content={"a": BAD})

    @server.tool
    def data() -> t.CallToolResult:
        return t.CallToolResult(content=[], structured_content={"a": BAD})

    @server.tool
    def plain() -> str:
        return "plain"

    @server.prompt
    def fail() -> str:
        raise Fault(FaultKind.INVALID_PARAMS, BAD, {"why": [BAD]})

    @server.tool
    async def buy(ctx: Context) -> str:
        return await ctx.elicit(BAD, str)

    _ = look, data, plain, fail, buy
    return server


@pytest.mark.parametrize(("client_revision", "server_revision"), CELLS)
@live
async def test_hidden_text_reaches_the_client_of_a_gateway_in_no_cell(
    client_revision: str, server_revision: str, tmp_path: Path
) -> None:
    asked: list[str] = []

    def on_elicit(params: t.ElicitRequestParams) -> str:
        asked.append(params.message)
        return "two"

    audit = opened(tmp_path, required=True)
    async with (
        hosted(hiding(), server_revision, Policy(default="allow"), audit=audit) as host,
        connect(Gateway(host), revision=client_revision, on_elicit=on_elicit) as client,
    ):
        looked = await client.call_tool("shop__look")
        data = await client.call_tool("shop__data")
        plain = await client.call_tool("shop__plain")
        with pytest.raises(RemoteError) as caught:
            await client.get_prompt("shop__fail")
        assert (await client.call_tool("shop__buy")).text == "two"
    assert looked.content == [t.TextContent(text=SHOWN)]
    assert looked.data == {"a": SHOWN}
    assert looked.meta[CONTAINED_KEY] == {"bidi": 1, "structured": 1}
    assert data.data == {"a": SHOWN}
    assert data.meta[CONTAINED_KEY] == {"structured": 1}
    assert BAD not in data.text
    assert plain.text == "plain"
    assert CONTAINED_KEY not in plain.meta
    assert (caught.value.message, caught.value.data) == (SHOWN, {"why": [SHOWN]})
    assert asked == [SHOWN]


@live
async def test_what_a_gateway_says_of_itself_shows_no_server_that_rules_may_hide() -> None:
    server = Server("shop", instructions="Prices are in euros.")

    @server.prompt
    def plan() -> str:
        return "plan"

    found: list[tuple[str | None, object]] = []
    for policy in (None, Policy([Rule("deny", servers="shop")], default="allow")):
        async with Host({"shop": server}, policy=policy) as host:
            gateway = Gateway(host, instructions="gathered")
            await host.list_prompts()
            async with connect(gateway, revision="2025-11-25") as client:
                found.append(
                    (client.instructions, getattr(client.peer.capabilities, "resources", None))
                )
    _ = plan
    assert found[0][0] == "## shop\n\nPrices are in euros."
    assert found[1][0] is None
    # Every kind is declared, whatever the servers have.
    assert found[1][1] is not None
