"""The policy of a host holds for tasks that cross a gateway."""

import json
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec import Raw
from msgspec.structs import replace

from colonnade import Context, Policy, RemoteError, Rule
from colonnade.client.client import Client
from colonnade.client.input_callbacks import InputCallbacks
from colonnade.host.policy.approvals.inbox import Inbox, InboxAnswer, InboxItem
from colonnade.host.policy.audit.log import AuditLog
from colonnade.protocol import types as t
from colonnade.protocol.json_checks import has_duplicate_members
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.methods import Side
from gateway.press import Press, about, ids_of, pages
from gateway.recorded import NEW, OLD, Cell, recorded
from live import live, until

ALLOW = Policy(default="allow")
BAD, SHOWN = "x\u202ey", "x\\u202ey"


async def connected(cell: Cell) -> Client:
    return await cell.connect(InputCallbacks(on_elicit=pages), principal="ada", tasks=True)


@pytest.mark.parametrize("date", [OLD, NEW])
@live
async def test_a_task_is_asked_about_its_call_once(date: str) -> None:
    """A rule that asks a person holds for the call, not for each request about its task."""
    press = Press()
    async with recorded(press.server, upstream=date, downstream=date, policy=ALLOW) as cell:
        client = await connected(cell)
        await client.start_task("s__book")
        given, _ = ids_of(cell)
        cell.host._own_policy = Policy([Rule("ask", tools="s__book")], default="allow")
        await cell.host.reload(cell.entries)
        requests = about(client, given)
        await client.ask("tasks/get", requests["tasks/get"])
        await client.ask("tasks/cancel", requests["tasks/cancel"])
        await press.cancelled.wait()


@pytest.mark.parametrize("date", [OLD, NEW])
@live
async def test_a_request_about_a_task_of_a_server_that_is_hidden_is_in_the_audit_log(
    date: str, tmp_path: Path
) -> None:
    press = Press()
    log = AuditLog(tmp_path)
    async with recorded(
        press.server, upstream=date, downstream=date, policy=ALLOW, audit=log
    ) as cell:
        client = await connected(cell)
        await client.start_task("s__book")
        given, _ = ids_of(cell)
        cell.host._own_policy = Policy([Rule("deny", servers="s")], default="allow")
        await cell.host.reload(cell.entries)
        for method, params in about(client, given).items():
            with pytest.raises(RemoteError, match="no such task"):
                await client.ask(method, params)
    lines = [
        json.loads(line)
        for file in sorted(tmp_path.glob("*.jsonl"))
        for line in file.read_text().splitlines()
    ]
    for method in about(client, given):
        events = [one for one in lines if one.get("method") == method]
        assert [one["event"] for one in events][:2] == ["proposed", "decided"], method
        assert {one["server"] for one in events} == {"s"}
        assert events[0]["principal"] == "ada"


@live
async def test_a_denied_input_request_of_a_task_is_not_shown() -> None:
    press = Press()
    policy = Policy([Rule("deny", requests="elicitation")], default="allow")
    async with recorded(press.server, upstream=NEW, downstream=NEW, policy=policy) as cell:
        client = await connected(cell)
        await client.start_task("s__ask")
        given, _ = ids_of(cell)
        words, status = "", ""
        while not words and status != "input_required":
            try:
                state: Any = await client.ask("tasks/get", t.ExtGetTaskRequestParams(task_id=given))
                status = state.status
            except RemoteError as error:
                words = error.message
        assert "policy denies" in words
        assert "How many pages" not in encode(cell.client_wire.frames).decode()


@live
async def test_an_input_request_of_a_task_is_asked_about_once() -> None:
    press, seen = Press(), list[str]()

    def on_item(item: InboxItem) -> InboxAnswer:
        seen.append(item.method)
        return InboxAnswer(action="accept")

    policy = Policy([Rule("ask", requests="elicitation")], default="allow")
    inbox = Inbox(on_item=on_item)
    async with recorded(
        press.server, upstream=NEW, downstream=NEW, policy=policy, inbox=inbox
    ) as cell:
        client = await connected(cell)
        await client.start_task("s__ask")
        given, _ = ids_of(cell)
        shown = 0
        while shown < 3:
            state: Any = await client.ask("tasks/get", t.ExtGetTaskRequestParams(task_id=given))
            shown += state.status == "input_required"
        assert seen == ["elicitation/create"]


@live
async def test_sampling_of_a_task_that_needs_a_review_is_refused() -> None:
    """The client answers it in a request about the task, and no person would see the result."""
    press, seen = Press(), list[str]()

    @press.server.tool(task=True)
    async def rhyme(ctx: Context) -> str:
        return (await ctx.sample("Rhyme on plum.", max_tokens=9)).text

    def on_item(item: InboxItem) -> InboxAnswer:
        seen.append(item.kind)
        return InboxAnswer(action="accept")

    inbox = Inbox(on_item=on_item)
    async with recorded(
        press.server, upstream=NEW, downstream=NEW, policy=ALLOW, inbox=inbox, sampling=True
    ) as cell:
        answers = InputCallbacks(on_sample=lambda _: "Gum.")
        client = await cell.connect(answers, principal="ada", tasks=True)
        await client.start_task("s__rhyme")
        given, _ = ids_of(cell)
        words, status = "", ""
        while not words and status != "input_required":
            try:
                state: Any = await client.ask("tasks/get", t.ExtGetTaskRequestParams(task_id=given))
                status = state.status
            except RemoteError as error:
                words = error.message
        assert "no person can see" in words
        assert "plum" not in encode(cell.client_wire.frames).decode()
    assert seen == []


def texts(value: Any) -> str:
    """All that frames say but structured content, which is data and stays as it is."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return "\n".join(texts(one) for key, one in members.items() if key != "structuredContent")
    if isinstance(value, list | tuple):
        return "\n".join(map(texts, cast("list[Any]", value)))
    return value if isinstance(value, str) else ""


@pytest.mark.parametrize("date", [OLD, NEW])
@live
async def test_hidden_text_about_a_task_is_contained(date: str) -> None:
    press = Press()

    def change(result: t.ProtocolType) -> t.ProtocolType:
        if isinstance(result, t.CreateTaskResult):
            meta = {t.MODEL_IMMEDIATE_RESPONSE_KEY: BAD}
            return replace(result, task=replace(result.task, status_message=BAD), meta=meta)
        if isinstance(result, t.GetTaskResult | t.ExtCreateTaskResult):
            return replace(result, status_message=BAD)
        return result

    async def read(ctx: Any) -> str:
        await press.go.wait()
        await ctx.progress(1, 2, BAD)
        return BAD

    read.__annotations__ = press.book.__annotations__
    press.server.tool(task=True)(read)
    press.change = change
    async with recorded(press.server, upstream=date, downstream=date, policy=ALLOW) as cell:
        client = await connected(cell)
        progress: list[Any] = []
        task = await client.start_task("s__read", on_progress=lambda *one: progress.append(one))
        state = await task.refresh()
        assert state is not None
        assert state.message == SHOWN
        press.go.set()
        assert (await task.result()).text == SHOWN
        if date == OLD:
            await until(lambda: bool(cell.client_wire.said(Side.SERVER, "notifications/progress")))
        assert BAD not in texts(cell.client_wire.frames)
        assert BAD in texts([wire.frames for wire in cell.back])


@pytest.mark.parametrize(
    "written",
    [
        b'{"content":[{"type":"text","text":"%s"}],"content":[{"type":"text","text":"ok"}]}',
        b'{"content":[{"type":"text","text":"%s"}],"c\\u006fntent":[]}',
        b'{"content":[{"type":"text","text":"ok"}],"content":[],"isError":false%.0s}',
        b'{"content":[{"type":"text","text":"ok","vendor":"%s"}]}',
    ],
)
@live
async def test_hidden_text_in_what_no_type_has_of_a_result_in_a_state_is_left_out(
    written: bytes,
) -> None:
    """A client may read the first of two members, or one of a vendor."""
    press = Press()

    def change(result: t.ProtocolType) -> t.ProtocolType:
        if isinstance(result, t.ExtGetTaskResult) and result.status == "completed":
            return replace(result, result=Raw(written % BAD.encode()))
        return result

    press.change = change
    press.go.set()
    async with recorded(press.server, upstream=NEW, downstream=NEW, policy=ALLOW) as cell:
        client = await connected(cell)
        await client.start_task("s__book")
        given, _ = ids_of(cell)
        state: Any = None
        while state is None or state.status != "completed":
            state = await client.ask("tasks/get", t.ExtGetTaskRequestParams(task_id=given))
        assert not has_duplicate_members(state.result)
        assert BAD not in bytes(state.result).decode()


@live
async def test_a_state_with_what_is_no_result_of_a_tool_is_an_error_of_its_server() -> None:
    press = Press()

    def change(result: t.ProtocolType) -> t.ProtocolType:
        if isinstance(result, t.ExtGetTaskResult) and result.status == "completed":
            return replace(result, result=Raw(b'{"content":7}'))
        return result

    press.change = change
    press.go.set()
    async with recorded(press.server, upstream=NEW, downstream=NEW, policy=ALLOW) as cell:
        client = await connected(cell)
        await client.start_task("s__book")
        given, _ = ids_of(cell)
        words = ""
        while not words:
            try:
                await client.ask("tasks/get", t.ExtGetTaskRequestParams(task_id=given))
            except RemoteError as error:
                words = error.message
        assert "no result of a tool" in words


@live
async def test_a_task_is_sent_no_response_to_what_its_client_was_not_asked() -> None:
    """A client could answer what a policy denies, or a person has not agreed to."""
    press = Press()
    async with recorded(press.server, upstream=NEW, downstream=NEW, policy=ALLOW) as cell:
        client = await connected(cell)
        await client.start_task("s__ask")
        given, _ = ids_of(cell)
        keys: list[str] = []
        while not keys:
            state: Any = await client.ask("tasks/get", t.ExtGetTaskRequestParams(task_id=given))
            keys = list(state.input_requests or ())
        answer = Raw(b'{"action":"accept","content":{"value":20}}')
        update = t.ExtUpdateTaskRequestParams(
            task_id=given, input_responses={keys[0]: answer, "other": answer}
        )
        await client.ask("tasks/update", update)
        (sent,) = cell.server_wire.said(Side.CLIENT, "tasks/update")
        assert list(sent["inputResponses"]) == keys


@live
async def test_a_task_is_sent_no_response_to_what_a_policy_denies() -> None:
    press = Press()
    async with recorded(press.server, upstream=NEW, downstream=NEW, policy=ALLOW) as cell:
        client = await connected(cell)
        await client.start_task("s__ask")
        given, _ = ids_of(cell)
        keys: list[str] = []
        while not keys:
            state: Any = await client.ask("tasks/get", t.ExtGetTaskRequestParams(task_id=given))
            keys = list(state.input_requests or ())
        cell.host._own_policy = Policy([Rule("deny", requests="elicitation")], default="allow")
        await cell.host.reload(cell.entries)
        answer = Raw(b'{"action":"accept","content":{"value":20}}')
        update = t.ExtUpdateTaskRequestParams(task_id=given, input_responses={keys[0]: answer})
        with pytest.raises(RemoteError, match="policy denies"):
            await client.ask("tasks/update", update)
        assert cell.server_wire.said(Side.CLIENT, "tasks/update") == []
