"""Hostile clients, hostile servers and a hostile second principal: what each of them tries at a
gateway, and what it gets."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from colonnade import Context, Gateway, Host, Server, connect
from colonnade.client.client import Client
from colonnade.client.input_callbacks import InputCallbacks
from colonnade.errors import RemoteError
from colonnade.gateway.changes import MAX_RECENT, GatewayChanges
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import ServerEntry, Settings
from colonnade.host.policy.rules.rules import Policy, Rule
from colonnade.protocol import types as t
from colonnade.testing import Clock
from colonnade.transport.memory import connected_pair, serve_end
from gateway.hostile_server import NEW, HostileServer
from gateway.recorded import OLD, recorded, revision_of
from gateway.rounds import Desk, Rounds, answered, can_elicit, text
from gateway.served import by_header, served
from http_client import Caller
from live import live, live_for

INFO = t.Implementation(name="test client", version="1")
ELICITS = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}


@asynccontextmanager
async def gateway_to(
    *entries: ServerEntry, policy: Policy | None = None, **options: Any
) -> AsyncGenerator[Gateway]:
    async with Host({entry.key: entry for entry in entries}, policy=policy) as host:
        gateway = Gateway(host, **options)
        await gateway.start()
        try:
            yield gateway
        finally:
            await gateway.stop()


@asynccontextmanager
async def client_of(
    gateway: Gateway, revision: str, answers: InputCallbacks | None = None, principal: str = ""
) -> AsyncGenerator[Client]:
    near, far = connected_pair()
    serve_end(far, gateway, principal=principal)
    client = Client(near.open_conversation, answers, info=INFO, tasks=False)
    await client.open(revision_of(revision))
    try:
        yield client
    finally:
        await client.close()


# ---------------------------------------------------------------- `_meta` of a hop


@pytest.mark.parametrize("downstream", [OLD, NEW])
@pytest.mark.parametrize("upstream", [OLD, NEW])
@live
async def test_keys_of_this_package_in_meta_are_of_one_hop(downstream: str, upstream: str) -> None:
    """A client that names a server names one of this gateway, and a server that says what the
    gateway has done to its result has not seen that."""

    def handle(message: dict[str, Any], server: HostileServer) -> None:
        if "id" in message:
            meta = {"dev.colonnade/contained": "nothing", "example.com/kept": 1}
            server.respond(message, {"content": [], "_meta": meta})

    server = HostileServer(handle, upstream)
    async with gateway_to(server.entry()) as gateway, client_of(gateway, downstream) as client:
        sent = {"dev.colonnade/server": "s", "dev.colonnade/contained": "x", "example.com/kept": 2}
        params = t.CallToolRequestParams(name="s__act", meta=sent)
        result = await client.ask("tools/call", params)
        assert isinstance(result, t.CallToolResult)
        assert set(result.meta or {}) & {*sent} == {"example.com/kept"}
        (call,) = server.said("tools/call")
        assert set(call["params"]["_meta"]) & {*sent} == {"example.com/kept"}


# ---------------------------------------------------------------- views


def shop(name: str) -> Server:
    server = Server(name)

    @server.tool
    async def buy(what: str, ctx: Context) -> str:
        return f"{what}: {await ctx.elicit(f'How much {what}?', str)}"

    @server.resource(f"{name}://secret")
    def secret() -> str:
        return f"the secret of {name}"

    @server.resource("both://shared")
    def shared() -> str:
        return f"shared by {name}"

    @server.prompt
    def greet(who: str) -> str:
        return f"{name} greets {who}"

    @server.resource(f"{name}://items/{{item}}")
    def items(item: str) -> str:
        return f"{item} of {name}"

    for number in range(3):
        server.tool(name=f"tool{number}")(shared)
    _ = buy, secret, greet, items
    return server


def in_revision(name: str, revision: str) -> ServerEntry:
    return entry_of(name, shop(name), Settings(revision=revision))


@pytest.mark.parametrize("upstream", [OLD, NEW])
@live
async def test_what_is_not_in_a_view_cannot_be_reached_by_any_name_in_it(upstream: str) -> None:
    entries = in_revision("open", upstream), in_revision("closed", upstream)
    async with (
        gateway_to(*entries, views={"dev": ["open"]}) as gateway,
        served(gateway) as url,
    ):
        port = int(url.split(":")[2].partition("/")[0])
        async with Caller(port, "/mcp/dev") as caller:

            async def ask(method: str, meta: dict[str, Any] | None = None, **params: Any) -> str:
                response = await caller.modern(method, params, meta=meta)
                return response.body.decode()

            named = {"dev.colonnade/server": "closed"}
            attempts = [
                await ask("tools/call", name="closed__buy", arguments={"what": "x"}),
                await ask("prompts/get", name="closed__greet", arguments={"who": "x"}),
                await ask("resources/read", uri="closed://secret"),
                await ask("resources/read", uri="closed://items/1"),
                await ask("resources/read", named, uri="closed://secret"),
                await ask("resources/read", named, uri="both://shared"),
                await ask(
                    "completion/complete",
                    ref={"type": "ref/prompt", "name": "closed__greet"},
                    argument={"name": "who", "value": ""},
                ),
                await ask(
                    "completion/complete",
                    named,
                    ref={"type": "ref/resource", "uri": "closed://items/{item}"},
                    argument={"name": "item", "value": ""},
                ),
            ]
            for attempt in attempts:
                assert '"error"' in attempt, attempt
                assert "of closed" not in attempt
                assert "shared by" not in attempt
            # A URI that both have is not ambiguous where one of them is not shown.
            assert "shared by open" in await ask("resources/read", uri="both://shared")
            filter = {"resourceSubscriptions": ["closed://secret", "open://secret"]}
            wire, stream = await caller.stream("subscriptions/listen", {"notifications": filter})
            agreed = json.dumps(await stream.message())
            assert "open://secret" in agreed
            assert "closed://secret" not in agreed
            wire.abort()


@live
async def test_health_checks_of_a_gateway_with_views_are_its_own() -> None:
    entries = in_revision("open", NEW), in_revision("closed", NEW)
    async with gateway_to(*entries, views={"dev": ["open"], "ops": ["open"]}) as gateway:
        async with served(gateway) as url:
            port = int(url.split(":")[2].partition("/")[0])
            async with Caller(port) as caller:
                for path in ("/health", "/ready"):
                    answer = await caller.request("GET", path=path)
                    assert (answer.status, answer.body) == (200, b"ok")
                assert (await caller.request("GET", path="/other")).status == 404

        async def pages(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                await send({"type": "http.response.start", "status": 203, "headers": []})
                await send({"type": "http.response.body", "body": b"theirs"})

        async with served(gateway, around=pages) as url:
            port = int(url.split(":")[2].partition("/")[0])
            async with Caller(port) as caller:
                answer = await caller.request("GET", path="/health")
                assert (answer.status, answer.body) == (203, b"theirs")


@live
async def test_a_cursor_or_a_state_of_one_view_is_refused_by_another() -> None:
    entries = in_revision("open", NEW), in_revision("closed", NEW)
    options: dict[str, Any] = {"page_size": 2, "keys": [b"k" * 32]}
    async with (
        gateway_to(*entries, views={"dev": ["open"], "ops": ["open"]}, **options) as gateway,
        served(gateway) as url,
    ):
        port = int(url.split(":")[2].partition("/")[0])
        async with (
            Caller(port) as whole,
            Caller(port, "/mcp/dev") as dev,
            Caller(port, "/mcp/ops") as ops,
        ):
            cursor = (await whole.modern("tools/list")).json["result"]["nextCursor"]
            for caller in (dev, ops):
                refused = await caller.modern("tools/list", {"cursor": cursor})
                assert refused.code == -32602
                assert "invalid cursor" in refused.json["error"]["message"]
            call = {"name": "open__buy", "arguments": {"what": "tea"}}
            began = await dev.modern("tools/call", call, meta=ELICITS)
            result = began.json["result"]
            (key,) = result["inputRequests"]
            given = {"action": "accept", "content": {"value": "two"}}
            again = {**call, "requestState": result["requestState"], "inputResponses": {key: given}}
            refusals = [
                (await caller.modern("tools/call", again, meta=ELICITS)).body
                for caller in (whole, ops)
            ]
            assert len(set(refusals)) == 1
            assert b"requestState was not given for this request" in refusals[0]
            ended = await dev.modern("tools/call", again, meta=ELICITS)
            assert ended.text == "tea: two"


@pytest.mark.parametrize("by", ["view", "policy"])
@live
async def test_a_server_that_is_hidden_cannot_be_told_from_none_while_many_calls_are_held(
    by: str,
) -> None:
    """A call that may be held is refused if there are too many; one of no server is unknown."""
    made = Desk()
    known = in_revision("closed", OLD)
    desk = entry_of("s", made.server, Settings(revision=OLD))
    policy = Policy([Rule("deny", servers="closed")], default="allow") if by == "policy" else None
    async with gateway_to(desk, known, policy=policy, views={"dev": ["s"]}) as gateway:
        view = gateway.views["dev"] if by == "view" else gateway
        await view.start()
        async with client_of(view, NEW, can_elicit()) as client:
            rounds = Rounds(client)
            for number in range(8):
                await rounds.begin("book", who=f"{number}")
            messages: list[str] = []
            for name in ("closed__buy", "absent__buy"):
                params = t.CallToolRequestParams(name=name)
                with pytest.raises(RemoteError) as refused:
                    await client.ask("tools/call", params, answers=can_elicit(), relay=True)
                messages.append(refused.value.message.replace(name, "NAME"))
            assert messages[0] == messages[1]
        await view.stop()


# ---------------------------------------------------------------- rounds


@pytest.mark.parametrize("upstream", [OLD, NEW])
@live
async def test_a_response_to_what_was_not_asked_reaches_no_server(upstream: str) -> None:
    made = Desk()
    async with recorded(made.server, upstream=upstream, downstream=NEW) as cell:
        rounds = Rounds(await cell.connect(can_elicit()))
        first = await rounds.begin("book", who="ada")
        given = answered(first, lambda _: "12A")
        forged = {"action": "accept", "content": {"value": "forged"}}
        more = {**given, "elicit-99": forged, "roots": {"roots": [{"uri": "file:///forged"}]}}
        result = await rounds.send("book", {"who": "ada"}, first.request_state, more)
        assert text(result) == "ada: 12A"
        assert "forged" not in json.dumps([frame for _, frame in cell.server_wire.frames])


@live
async def test_every_refusal_of_a_state_has_the_same_bytes() -> None:
    made = Desk()
    desk = entry_of("s", made.server, Settings(revision=OLD))
    many = in_revision("many", NEW)
    async with (
        gateway_to(desk, many, page_size=2) as gateway,
        served(gateway, verify=by_header) as url,
    ):
        port = int(url.split(":")[2].partition("/")[0])
        async with Caller(port) as caller:

            async def send(user: str, name: str, who: str, state: str | None = None) -> Any:
                params: dict[str, Any] = {"name": name, "arguments": {"who": who}}
                if state is not None:
                    params["requestState"] = state
                return await caller.modern("tools/call", params, meta=ELICITS, x_user=user)

            listed = await caller.modern("tools/list", x_user="ada")
            cursor = listed.json["result"]["nextCursor"]
            state = (await send("ada", "s__book", "ada")).json["result"]["requestState"]
            middle = len(state) // 2
            other = "A" if state[middle] != "A" else "B"
            attempts = [
                ("bob", "s__book", "ada", state),
                ("ada", "s__book", "eve", state),
                ("ada", "s__later", "ada", state),
                ("ada", "many__buy", "ada", state),
                ("ada", "s__book", "ada", state[:middle] + other + state[middle + 1 :]),
                ("ada", "s__book", "ada", state + "="),
                ("ada", "s__book", "ada", cursor),
                ("ada", "s__book", "ada", ""),
                ("ada", "s__book", "ada", "ü"),
                ("ada", "s__book", "ada", "x" * 1024 * 1024),
            ]
            refusals = {(await send(*attempt)).body for attempt in attempts}
            assert len(refusals) == 1
            assert made.begun == ["ada"]
            assert gateway._bridge.held.count == 1
            # And it is as good as before for the one that it was given to.
            response = await send("ada", "s__book", "ada", state)
            assert response.json["result"]["resultType"] == "input_required"


@live
async def test_requests_that_wait_for_a_held_call_and_go_away_leave_nothing_behind() -> None:
    made = Desk()
    async with recorded(made.server, upstream=OLD, downstream=NEW) as cell:
        rounds = Rounds(await cell.connect(can_elicit()))
        await rounds.client.list_tools()
        waiting = asyncio.create_task(rounds.send("later", {"who": "ada"}))
        while not made.begun:
            await asyncio.sleep(0)
        made.go["ada"].set()
        first = await waiting
        given = answered(first, lambda _: "12A")
        (call,) = cell.gateway._bridge.held._calls.values()
        stays = asyncio.create_task(_wait(call, cell))
        await asyncio.sleep(0)
        for _ in range(100):
            gone = asyncio.create_task(_wait(call, cell))
            await asyncio.sleep(0)
            gone.cancel()
            await asyncio.wait([gone])
        assert len(call._changes) == 1
        assert not stays.done()
        result = await rounds.send("later", {"who": "ada"}, first.request_state, given)
        assert text(result) == "ada: 12A"
        await stays


async def _wait(call: Any, cell: Any) -> None:
    await call.wait(_Waiting(call.request), 1)


class _Waiting:
    """A request that only waits."""

    def __init__(self, request: Any) -> None:
        self.exchange = request.exchange


# ---------------------------------------------------------------- servers that ask


def form(id: int, message: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"value": {"type": "string"}}}
    params = {"message": message, "requestedSchema": schema}
    return {"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params}


@pytest.mark.parametrize("downstream", [OLD, NEW])
@live
async def test_a_server_that_asks_outside_of_a_call_is_answered_with_an_error(
    downstream: str,
) -> None:
    asked: list[str] = []

    def on_elicit(params: t.ElicitRequestParams) -> str:
        asked.append(params.message)
        return "yes"

    def handle(message: dict[str, Any], server: HostileServer) -> None:
        if message.get("method") == "tools/call":
            server.respond(message, {"content": [{"type": "text", "text": "done"}]})
            server.send(form(77, "after the call"))

    server = HostileServer(handle, OLD)
    async with (
        gateway_to(server.entry()) as gateway,
        client_of(gateway, downstream, InputCallbacks(on_elicit=on_elicit)) as client,
    ):
        assert (await client.call_tool("s__act")).text == "done"
        while not any(message.get("id") == 77 for message in server.received):
            await asyncio.sleep(0)
        server.send(form(78, "outside of any call"))
        while not any(message.get("id") == 78 for message in server.received):
            await asyncio.sleep(0)
        replies = [message for message in server.received if message.get("id") in (77, 78)]
        assert all("error" in reply for reply in replies)
        assert asked == []


@live
async def test_the_roots_of_one_principal_are_not_sent_during_a_list_of_another() -> None:
    """A process of a pool is used by one caller after the other, and may ask whenever it likes."""
    answers: list[Any] = []

    def ask(server: HostileServer) -> None:
        server.send({"jsonrpc": "2.0", "id": 500 + len(answers), "method": "roots/list"})

    def handle(message: dict[str, Any], server: HostileServer) -> None:
        if message.get("method") == "tools/call":
            calls.append(message)
            ask(server)
        elif message.get("method") == "prompts/list":
            lists.append(message)
            ask(server)
        elif "result" in message:
            answers.append([root["uri"] for root in message["result"]["roots"]])
            for waiting, kind in ((calls, "content"), (lists, "prompts")):
                if waiting:
                    server.respond(waiting.pop(), {kind: []})
        elif "id" in message:
            server.respond(message, {"resources": [], "resourceTemplates": []})

    calls: list[dict[str, Any]] = []
    lists: list[dict[str, Any]] = []
    server = HostileServer(handle, OLD, sharing="pooled", roots="caller", max_sessions=1)
    roots = {who: InputCallbacks(roots=(f"file:///home/{who}",)) for who in ("ada", "bob")}
    async with (
        gateway_to(server.entry()) as gateway,
        client_of(gateway, OLD, roots["ada"], "ada") as ada,
        client_of(gateway, OLD, roots["bob"], "bob") as bob,
    ):
        await ada.call_tool("s__act")
        await ada.list_prompts()
        server.send(notification("notifications/prompts/list_changed", {}))
        while len(answers) < 3:
            await bob.list_prompts()
        await bob.call_tool("s__act")
        assert len(server.connections) == 1
    assert answers == [
        ["file:///home/ada"],
        ["file:///home/ada"],
        [],
        ["file:///home/bob"],
    ]


@pytest.mark.parametrize("upstream", [OLD, NEW])
@live
async def test_responses_that_belong_to_no_request_are_dropped(upstream: str) -> None:
    def handle(message: dict[str, Any], server: HostileServer) -> None:
        if message.get("method") != "tools/call":
            return
        number = message["id"]
        forged = {"content": [{"type": "text", "text": "forged"}]}
        for id in (number + 1, number + 2, "x", None, -1):
            server.respond({"id": id}, forged)
        server.respond(message, {"content": [{"type": "text", "text": "true"}]})
        server.respond(message, forged)

    server = HostileServer(handle, upstream)
    async with (
        gateway_to(server.entry()) as gateway,
        client_of(gateway, NEW, principal="ada") as ada,
        client_of(gateway, NEW, principal="bob") as bob,
    ):
        for _ in range(3):
            results = await asyncio.gather(ada.call_tool("s__act"), bob.call_tool("s__act"))
            assert [result.text for result in results] == ["true", "true"]


@live
async def test_a_server_may_not_require_what_the_client_did_not_declare() -> None:
    def handle(message: dict[str, Any], server: HostileServer) -> None:
        if message.get("method") == "tools/call":
            sampling = {"messages": [], "maxTokens": 1}
            requests = {"a": {"method": "sampling/createMessage", "params": sampling}}
            server.respond(
                message,
                {"resultType": "input_required", "inputRequests": requests, "requestState": "x"},
            )

    server = HostileServer(handle, NEW, sampling=True)
    async with gateway_to(server.entry()) as gateway, client_of(gateway, NEW) as client:
        result = await client.ask(
            "tools/call", t.CallToolRequestParams(name="s__act"), answers=can_elicit(), relay=True
        )
        assert isinstance(result, t.CallToolResult)
        assert result.is_error
        assert "requires input that this client does not support" in text(result)


@pytest.mark.parametrize("size", [700 * 1024, 1100 * 1024])
@live
async def test_a_large_state_of_a_server_is_kept_here_and_a_larger_one_is_an_error(
    size: int,
) -> None:
    def handle(message: dict[str, Any], server: HostileServer) -> None:
        if message.get("method") != "tools/call":
            return
        params = message["params"]
        if "requestState" in params:
            said = f"{len(params['requestState'])}"
            server.respond(message, {"content": [{"type": "text", "text": said}]})
            return
        requests = {"a": {"method": "elicitation/create", "params": form(0, "?")["params"]}}
        server.respond(
            message,
            {"resultType": "input_required", "inputRequests": requests, "requestState": "x" * size},
        )

    server = HostileServer(handle, NEW)
    async with (
        gateway_to(server.entry()) as gateway,
        client_of(gateway, NEW, can_elicit()) as client,
    ):
        rounds = Rounds(client)
        if size > 1024 * 1024:
            with pytest.raises(RemoteError, match="the request state has"):
                await rounds.send("act")
            return
        first = await rounds.send("act")
        assert isinstance(first, t.InputRequiredResult)
        assert len(first.request_state or "") < 1000
        given = {"a": {"action": "accept", "content": {"value": "x"}}}
        assert text(await rounds.send("act", {}, first.request_state, given)) == f"{size}"


# ---------------------------------------------------------------- servers that flood


@pytest.mark.parametrize("downstream", [OLD, NEW])
@live_for(120)
async def test_a_flood_of_notifications_ends_with_the_call(downstream: str) -> None:
    def handle(message: dict[str, Any], server: HostileServer) -> None:
        if message.get("method") == "tools/call":
            token = message["params"].get("_meta", {}).get("progressToken", 0)
            for number in range(5_000):
                data = {"level": "error", "data": "x" * 200}
                server.send(notification("notifications/message", data))
                progress = {"progressToken": token, "progress": number}
                server.send(notification("notifications/progress", progress))
                other = {"progressToken": f"{number}", "progress": 1}
                server.send(notification("notifications/progress", other))
            server.respond(message, {"content": [{"type": "text", "text": "done"}]})

    reports: list[float] = []
    server = HostileServer(handle, OLD)
    async with gateway_to(server.entry()) as gateway, client_of(gateway, downstream) as client:

        def on_progress(progress: float, total: float | None, message: str | None) -> None:
            reports.append(progress)

        result = await client.call_tool("s__act", on_progress=on_progress)
        assert result.text == "done"
        assert reports == sorted(set(reports))
        assert (await client.call_tool("s__act")).text == "done"


def notification(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


@pytest.mark.parametrize("downstream", [OLD, NEW])
@live_for(1_000_000)
async def test_a_storm_of_changes_is_one_notification_now_and_one_later(downstream: str) -> None:
    def handle(message: dict[str, Any], server: HostileServer) -> None:
        if "id" in message:
            server.respond(message, {"content": []})

    server = HostileServer(handle, OLD)
    seen: list[int] = []
    clock = Clock()
    with clock:
        async with gateway_to(server.entry()) as gateway, client_of(gateway, downstream) as client:
            await client.list_tools()
            async with client.listen(tools=True) as changes:

                async def count() -> None:
                    async for _ in changes:
                        seen.append(len(seen))

                counting = asyncio.create_task(count())
                for _ in range(1_000):
                    server.send(notification("notifications/tools/list_changed", {}))
                    await asyncio.sleep(0)
                while not seen:
                    await asyncio.sleep(0)
                assert len(seen) == 1
                for _ in range(3):
                    await clock.advance(0.2)
                assert len(seen) == 2
                counting.cancel()
                await asyncio.wait([counting])
            assert len(server.said("tools/list")) < 10


@live
async def test_the_changes_that_are_remembered_are_limited() -> None:
    changes, seen = GatewayChanges(), list[str]()
    changes.start(asyncio.get_running_loop())
    end = changes.watch(lambda _, params: seen.append(getattr(params, "uri", "")), "")
    for number in range(MAX_RECENT + 100):
        params = t.ResourceUpdatedNotificationParams(uri=f"notes://{number}")
        changes.publish("notifications/resources/updated", params, None)
    assert len(changes._recent) == MAX_RECENT
    await asyncio.sleep(0)
    assert len(seen) == MAX_RECENT + 100
    end()
    changes.stop()
    assert not changes._recent


@live_for(120)
async def test_a_server_with_endless_pages_does_not_spoil_the_lists_of_others() -> None:
    def handle(message: dict[str, Any], server: HostileServer) -> None:
        if message.get("method") == "prompts/list":
            server.pages += 1  # type: ignore[attr-defined]
            name = f"p{server.pages}"  # type: ignore[attr-defined]
            server.respond(message, {"prompts": [{"name": name}], "nextCursor": name})
        elif "id" in message:
            server.respond(message, {"resources": [], "resourceTemplates": []})

    server = HostileServer(handle, OLD, max_list_items=200)
    server.pages = 0  # type: ignore[attr-defined]
    async with (
        gateway_to(server.entry(), in_revision("good", OLD)) as gateway,
        client_of(gateway, OLD) as client,
    ):
        names = [prompt.name for prompt in await client.list_prompts()]
        assert "good__greet" in names
        assert server.pages < 1000  # type: ignore[attr-defined]


@pytest.mark.parametrize("upstream", [OLD, NEW])
@live
async def test_a_result_that_is_nested_too_deeply_is_an_error_of_its_server(upstream: str) -> None:
    depth = 100_000

    def handle(message: dict[str, Any], server: HostileServer) -> None:
        if message.get("method") == "tools/call":
            deep = b"[" * depth + b"]" * depth
            head = json.dumps({"jsonrpc": "2.0", "id": message["id"]}).encode()[:-1]
            kind = b'"resultType": "complete", ' if upstream == NEW else b""
            body = b'{%s"content": [], "vendor": %s}' % (kind, deep)
            server.send(head + b', "result": ' + body + b"}")

    server = HostileServer(handle, upstream)
    async with gateway_to(server.entry()) as gateway, client_of(gateway, upstream) as client:
        result = await client.ask("tools/call", t.CallToolRequestParams(name="s__act"))
        assert isinstance(result, t.CallToolResult)
        assert result.is_error
        assert "server 's'" in text(result)


# ---------------------------------------------------------------- sessions of others


@live
async def test_the_session_of_another_principal_is_unknown_like_one_that_never_was() -> None:
    entry = in_revision("open", OLD)
    async with (
        gateway_to(entry) as gateway,
        served(gateway, verify=by_header) as url,
        connect({"url": url, "headers": {"X-User": "ada"}}, revision=OLD) as client,
    ):
        await client.call_tool("open__tool0")
        (session,) = gateway_sessions(gateway)
        port = int(url.split(":")[2].partition("/")[0])
        async with Caller(port) as caller:
            answers: set[tuple[int, bytes]] = set()
            for user, id in (("bob", session), ("bob", "0" * len(session)), ("", session)):
                for message in (
                    {"jsonrpc": "2.0", "id": 1, "method": "ping"},
                    {"jsonrpc": "2.0", "id": 1, "result": {"action": "decline"}},
                    {"jsonrpc": "2.0", "method": "notifications/initialized"},
                ):
                    answer = await caller.post(message, x_user=user, mcp_session_id=id)
                    assert answer.status == 404
                    answers.add((answer.status, answer.body))
                got = await caller.request("GET", x_user=user, mcp_session_id=id)
                assert got.status == 404
                ended = await caller.request("DELETE", x_user=user, mcp_session_id=id)
                assert ended.status == 404
        await client.list_tools(fresh=True)  # it goes on


def gateway_sessions(gateway: Gateway) -> set[str]:
    """The ids of the sessions of clients, from the conversations that they have upstream."""
    found: set[str] = set()
    for server in gateway.host._runtime.generation.servers.values():
        for session in server.supervisor.sessions:
            if session.key is not None and isinstance(session.key.session, str):
                found.add(session.key.session)
    return found
