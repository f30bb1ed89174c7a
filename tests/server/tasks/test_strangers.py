"""Tasks belong to their owner: other callers, scopes, limits."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from colonnade import Caller as Known
from colonnade import Context, InvalidArgument, InvalidArgumentType, Server, TaskOptions
from colonnade.protocol.revision import JULY_2026, NOVEMBER_2025, Revision, Tasks
from colonnade.store.memory import MemoryStore
from colonnade.transport.http_server.runner import HttpRunner
from http_client import Caller, opening
from live import live
from server.raw_client import Client, Rejected
from server.tasks import DECLARED, accepted, client_of, ended, get, reached, start, update

GENERATIONS = pytest.mark.parametrize(
    "generation", [NOVEMBER_2025, JULY_2026], ids=lambda r: r.date
)
PAGE = Path(__file__).resolve().parents[3] / "docs" / "tasks.md"
UNKNOWN = "0" * 12 + "-" + "0" * 32
META = {"io.modelcontextprotocol/clientCapabilities": DECLARED}


def workshop(**options: Any) -> Server:
    server = Server("workshop", **options)
    server.state = asyncio.Event()

    @server.tool(task=True)
    async def wait(ctx: Context) -> str:
        await ctx.state.wait()
        return "waited"

    @server.tool(task=True)
    async def confirm(ctx: Context) -> str:
        return "yes" if await ctx.elicit("Sure?", bool) else "no"

    @server.tool(task=True, scopes=["notes:write"])
    async def write(ctx: Context) -> str:
        return "written" if await ctx.elicit("Sure?", bool) else "kept"

    return server


def methods_of(revision: Revision) -> list[str]:
    core = ["tasks/get", "tasks/result", "tasks/cancel"]
    return core if revision.tasks is Tasks.CORE else ["tasks/get", "tasks/update", "tasks/cancel"]


async def answer_to(client: Client, method: str, id: str) -> str:
    """The whole response, without its request id."""
    asked = client.send(method, {"taskId": id, "inputResponses": {}})
    with pytest.raises(Rejected):
        await client.outcome(asked)
    message = next(one for one in client.received if one.get("id") == asked)
    return json.dumps(message | {"id": 0})


# ---------------------------------------------------------------- other callers


@pytest.mark.spec("R0577", "R0581", "R0582", "R1216")
@GENERATIONS
@live
async def test_to_a_stranger_a_task_is_as_unknown_as_one_that_never_was(
    generation: Revision,
) -> None:
    server = workshop()
    async with (
        client_of(server, generation, principal="ann") as ann,
        client_of(server, generation, principal="bob") as bob,
        client_of(server, generation) as anonymous,
    ):
        id = (await start(ann, "confirm"))["taskId"]
        await reached(ann, id, "input_required")
        for stranger in (bob, anonymous):
            for method in methods_of(generation):
                known = await answer_to(stranger, method, id)
                assert known == await answer_to(stranger, method, UNKNOWN)
                assert known == await answer_to(stranger, method, "x")
        if generation.tasks is Tasks.CORE:
            assert (await bob.ask("tasks/list"))["tasks"] == []
            assert [one["taskId"] for one in (await ann.ask("tasks/list"))["tasks"]] == [id]
        assert (await get(ann, id))["status"] == "input_required"
        assert not bob.notifications("notifications/tasks/status")


@pytest.mark.spec("R0579", "R1215")
@live
async def test_ids_have_128_random_bits() -> None:
    async with client_of(workshop()) as client:
        made = [(await start(client, "wait"))["taskId"] for _ in range(50)]
        randoms = {id.partition("-")[2] for id in made}
        assert len(randoms) == 50
        assert {len(bytes.fromhex(one)) for one in randoms} == {16}


# ---------------------------------------------------------------- over HTTP


@asynccontextmanager
async def site(server: Server, **options: Any) -> AsyncGenerator[Caller]:
    runner = HttpRunner(server.asgi(**options), port=0)
    await runner.start()
    try:
        async with Caller(runner.port) as caller:
            yield caller
    finally:
        server.state.set()
        await runner.stop(0.0)


async def verify(headers: Any) -> Known:
    """The token is the name of the caller, and its scopes."""
    name, *scopes = headers[b"authorization"].decode().removeprefix("Bearer ").split()
    return Known(name, frozenset(scopes))


async def post(caller: Caller, token: str, method: str, **params: Any) -> Any:
    name = params.get("taskId") or params.get("name")
    return await caller.modern(
        method, params, meta=META, authorization=f"Bearer {token}", mcp_name=name
    )


@pytest.mark.spec("R1216")
@live
async def test_over_http_a_stranger_gets_the_same_bytes_as_for_an_unknown_id() -> None:
    async with site(workshop(), verify=verify) as caller:
        created = await post(caller, "ann", "tools/call", name="confirm", arguments={})
        id = created.json["result"]["taskId"]
        for method in methods_of(JULY_2026):
            foreign, unknown = [
                await post(caller, "bob", method, taskId=one, inputResponses={})
                for one in (id, UNKNOWN)
            ]
            assert foreign.body == unknown.body
            assert foreign.status == unknown.status
            assert foreign.headers.keys() == unknown.headers.keys()
        assert (await post(caller, "ann", "tasks/get", taskId=id)).status == 200


@pytest.mark.spec("R1216")
@live
async def test_every_request_about_a_task_needs_the_scopes_of_its_tool() -> None:
    async with site(workshop(), verify=verify) as caller:
        created = await post(caller, "ann notes:write", "tools/call", name="write", arguments={})
        id = created.json["result"]["taskId"]
        while True:
            state = (await post(caller, "ann notes:write", "tasks/get", taskId=id)).json["result"]
            if state["status"] == "input_required":
                break
        [key] = state["inputRequests"]
        for method in methods_of(JULY_2026):
            yes = {key: accepted(value=True)}
            refused = await post(caller, "ann", method, taskId=id, inputResponses=yes)
            assert refused.status == 403
        state = (await post(caller, "ann notes:write", "tasks/get", taskId=id)).json["result"]
        assert state["status"] == "input_required"  # it was neither answered nor cancelled


@live
async def test_a_task_whose_scopes_were_revoked_does_not_resume() -> None:
    store = MemoryStore()
    server = workshop(store=store, tasks=TaskOptions(hold_s=0.01))
    able, unable = frozenset({"notes:write"}), frozenset[str]()
    async with client_of(server, principal="ann", scopes=able) as client:
        id = (await start(client, "write"))["taskId"]
        [key] = (await reached(client, id, "input_required"))["inputRequests"]
        client.duplex.link.scopes = unable
        with pytest.raises(Rejected, match="notes:write"):
            await update(client, id, {key: accepted(value=True)})
        client.duplex.link.scopes = able
        assert (await get(client, id))["status"] == "input_required"
        await update(client, id, {key: accepted(value=True)})
        assert (await ended(client, id))["status"] == "completed"


@live
async def test_a_task_that_needs_scopes_is_not_listed_without_them() -> None:
    server = workshop()
    able, unable = frozenset({"notes:write"}), frozenset[str]()
    async with client_of(server, NOVEMBER_2025, principal="ann", scopes=able) as client:
        id = (await start(client, "write"))["taskId"]
        assert [one["taskId"] for one in (await client.ask("tasks/list"))["tasks"]] == [id]
        client.duplex.link.scopes = unable
        assert (await client.ask("tasks/list"))["tasks"] == []
        with pytest.raises(Rejected, match="notes:write"):
            await client.ask("tasks/result", {"taskId": id})


@pytest.mark.spec("R0530", "R0580")
@live
async def test_over_http_in_a_session_tasks_get_is_no_stream_and_anonymous_callers_get_no_list() -> (
    None
):
    async with site(workshop()) as caller:
        opened = await caller.post(opening("2025-11-25"))
        caller.session, caller.revision = opened.headers["mcp-session-id"], "2025-11-25"
        assert "list" not in opened.json["result"]["capabilities"]["tasks"]
        call = {"name": "wait", "arguments": {}, "task": {}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        created = (await caller.post(message)).json["result"]["task"]
        params = {"taskId": created["taskId"]}
        got = await caller.post(
            {"jsonrpc": "2.0", "id": 2, "method": "tasks/get", "params": params}
        )
        assert got.headers["content-type"] == "application/json"
        assert got.json["result"]["status"] == "working"
        listed = await caller.post({"jsonrpc": "2.0", "id": 3, "method": "tasks/list"})
        assert listed.code == -32601


@pytest.mark.spec("R0580")
@live
async def test_a_stateless_server_lists_no_tasks_either() -> None:
    async with site(workshop(), stateless=True) as caller:
        caller.revision = "2025-11-25"
        listed = await caller.post({"jsonrpc": "2.0", "id": 3, "method": "tasks/list"})
        assert listed.code == -32601


@pytest.mark.spec("R0512", "R0517", "R0531")
@live
async def test_over_http_input_is_requested_on_the_stream_of_tasks_result() -> None:
    server = workshop()
    async with site(server) as caller:
        opened = await caller.post(opening("2025-11-25", {"elicitation": {}}))
        caller.session, caller.revision = opened.headers["mcp-session-id"], "2025-11-25"
        await caller.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        call = {"name": "confirm", "arguments": {}, "task": {}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        id = (await caller.post(message)).json["result"]["task"]["taskId"]
        wanted = {"jsonrpc": "2.0", "id": 2, "method": "tasks/result", "params": {"taskId": id}}
        wire, response = await caller.begin("POST", json.dumps(wanted).encode())
        assert (await response.message())["method"] == "elicitation/create"
        wire.abort()  # the client may leave, and ask again on another stream
        again = json.dumps(wanted | {"id": 3}).encode()
        _, response = await caller.begin("POST", again)
        asked = await response.message()
        assert asked["method"] == "elicitation/create"
        yes = {"action": "accept", "content": {"value": True}}
        await caller.post({"jsonrpc": "2.0", "id": asked["id"], "result": yes})
        while (said := await response.message()).get("id") != 3:
            pass
        assert said["result"]["content"][0]["text"] == "yes"


@live
async def test_over_http_the_stream_of_a_session_has_the_status_of_its_tasks() -> None:
    server = workshop()
    async with site(server) as caller:
        opened = await caller.post(opening("2025-11-25"))
        caller.session, caller.revision = opened.headers["mcp-session-id"], "2025-11-25"
        call = {"name": "wait", "arguments": {}, "task": {}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        id = (await caller.post(message)).json["result"]["task"]["taskId"]
        async with Caller(caller.port) as other:
            begun = await other.post(opening("2025-11-25"))
            other.session, other.revision = begun.headers["mcp-session-id"], "2025-11-25"
            await other.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
            _, of_other = await other.begin("GET")
            _, stream = await caller.begin("GET")
            server.state.set()
            told = await stream.message()
            assert told["method"] == "notifications/tasks/status"
            assert (told["params"]["taskId"], told["params"]["status"]) == (id, "completed")
            server.updated("x://y")
            server.tool(name="new")(lambda: "x")
            assert (await of_other.message())["method"] == "notifications/tools/list_changed"


# ---------------------------------------------------------------- limits


@pytest.mark.spec("R0584")
@GENERATIONS
@live
async def test_a_caller_has_a_limited_number_of_unfinished_tasks(generation: Revision) -> None:
    store = MemoryStore()
    server = workshop(store=store, tasks=TaskOptions(max_unfinished=5))
    async with (
        client_of(server, generation, principal="ann") as ann,
        client_of(server, generation, principal="bob") as bob,
    ):
        made = [(await start(ann, "wait"))["taskId"] for _ in range(5)]
        before = await store.names("ann", "", "", 100)
        with pytest.raises(Rejected, match="5 tasks of this caller have not ended"):
            await start(ann, "wait")
        assert await store.names("ann", "", "", 100) == before
        await start(bob, "wait")
        await ann.ask("tasks/cancel", {"taskId": made[0]})
        await start(ann, "wait")


@live
async def test_a_caller_has_a_limited_number_of_kept_tasks() -> None:
    server = workshop(tasks=TaskOptions(max_kept=5))
    server.state.set()
    async with client_of(server) as client:
        for _ in range(5):
            await ended(client, (await start(client, "wait"))["taskId"])
        with pytest.raises(Rejected, match="5 tasks of this caller are kept"):
            await start(client, "wait")


@live
async def test_calls_at_once_do_not_exceed_the_limit() -> None:
    server = workshop(tasks=TaskOptions(max_unfinished=5))
    async with client_of(server) as client:
        sent = [client.send("tools/call", {"name": "wait", "arguments": {}}) for _ in range(20)]
        found = await asyncio.gather(*map(client.outcome, sent), return_exceptions=True)
        assert len([one for one in found if isinstance(one, dict)]) == 5


@live
async def test_arguments_and_results_have_limits() -> None:
    server = Server("s", tasks=TaskOptions(max_argument_bytes=100, max_result_bytes=200))

    @server.tool(task=True)
    async def repeat(text: str, times: int = 1) -> str:
        return text * times

    async with client_of(server) as client:
        with pytest.raises(Rejected, match="100 bytes at most"):
            await start(client, "repeat", {"text": "x" * 200})
        state = await ended(
            client, (await start(client, "repeat", {"text": "x", "times": 900}))["taskId"]
        )
        assert state["status"] == "failed"
        assert "200 are kept" in state["error"]["message"]


@pytest.mark.spec("R0584")
@live
async def test_a_requested_ttl_has_a_maximum() -> None:
    async with client_of(workshop(), NOVEMBER_2025) as client:
        created = await start(client, "wait", task={"ttl": 10**15})
        assert created["ttl"] == (24 * 3600 + 3600) * 1000
        created = await start(client, "wait", task={"ttl": 1})
        assert created["ttl"] == 60_000


@pytest.mark.spec("R0583")
@live
async def test_requests_about_tasks_have_a_rate_limit() -> None:
    server = workshop(tasks=TaskOptions(requests_per_s=5))
    async with client_of(server) as client:
        sent = [client.send("tasks/get", {"taskId": UNKNOWN}) for _ in range(20)]
        found = await asyncio.gather(*map(client.outcome, sent), return_exceptions=True)
        assert [one for one in found if isinstance(one, Rejected) and one.code != -32602]


@live
async def test_more_tasks_than_run_at_once_wait_for_their_turn() -> None:
    server = Server("s", tasks=TaskOptions(max_running=2))
    running: list[int] = []
    most = 0

    @server.tool(task=True)
    async def work(n: int) -> int:
        nonlocal most
        running.append(n)
        most = max(most, len(running))
        await asyncio.sleep(0)
        running.remove(n)
        return n

    async with client_of(server) as client:
        made = [(await start(client, "work", {"n": n}))["taskId"] for n in range(10)]
        for id in made:
            assert (await ended(client, id))["status"] == "completed"
        assert most <= 2


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"lease_s": 0}, InvalidArgument),
        ({"hold_s": float("nan")}, InvalidArgument),
        ({"max_kept": 1.5}, InvalidArgumentType),
        ({"max_running": True}, InvalidArgumentType),
        ({"lease_s": None}, InvalidArgumentType),
        ({"requests_per_s": "many"}, InvalidArgumentType),
    ],
)
def test_options_are_numbers_above_0(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(options))):
        TaskOptions(**options)


# ---------------------------------------------------------------- the log


@pytest.mark.spec("R0585")
@live
async def test_the_log_names_tasks_and_their_owners(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "colonnade.tasks")
    server = workshop()
    server.state.set()
    async with client_of(server, principal="ann") as client:
        id = (await start(client, "wait"))["taskId"]
        await ended(client, id)
    said = [record.getMessage() for record in caplog.records if id in record.getMessage()]
    assert any("was created by principal 'ann'" in one for one in said)
    assert any(one.endswith("principal 'ann': completed") for one in said)
    assert any("was read by principal 'ann'" in one for one in said)


# ---------------------------------------------------------------- the page


@pytest.mark.spec("R0578")
def test_the_page_says_who_can_see_tasks_and_what_the_limits_are() -> None:
    page = PAGE.read_text("utf-8")
    assert "Without authentication all callers are one principal" in page
    for name, default in zip(
        TaskOptions.__struct_fields__, TaskOptions.__struct_defaults__, strict=True
    ):
        shown = f"{default:,}" if isinstance(default, int) else f"{default}"
        assert f"| `{name}` | {shown} |" in page
