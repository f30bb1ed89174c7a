"""The policy of a host holds for tasks that cross a gateway."""

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec import Raw
from msgspec.structs import replace

from colonnade import Context, Policy, RemoteError, Rule
from colonnade.client.client import Client
from colonnade.client.input_callbacks import InputCallbacks
from colonnade.gateway.tasks import GatewayTasks
from colonnade.host.policy.approvals.approvals import Approvals
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
async def test_a_denial_that_is_remembered_holds_for_a_task_until_it_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLONNADE_HOME", str(tmp_path))
    answers = [InboxAnswer(action="decline", remember="session")]

    def on_item(item: InboxItem) -> InboxAnswer:
        return answers.pop() if answers else InboxAnswer(action="accept")

    policy = Policy([Rule("ask", requests="elicitation")], default="allow")
    approver = Approvals(Inbox(on_item=on_item))
    async with recorded(
        Press().server, upstream=NEW, downstream=NEW, policy=policy, inbox=approver
    ) as cell:
        client = await connected(cell)

        async def first_state(id: str) -> str:
            while True:
                try:
                    asked = t.ExtGetTaskRequestParams(task_id=id)
                    state: Any = await client.ask("tasks/get", asked)
                    if state.status == "input_required":
                        return str(state.status)
                except RemoteError as error:
                    return error.message

        for _ in range(2):
            await client.start_task("s__ask")
        made = [given for given in cell.client_wire.results(Side.SERVER) if "taskId" in given]
        one, other = (given["taskId"] for given in made)
        assert "the user denied it" in await first_state(one)
        assert "this is remembered" in await first_state(other)
        approver.remembered.forget_session()
        assert await first_state(other) == "input_required"


def rhyming() -> Press:
    """A server with a task that samples, and one that asks for roots."""
    press = Press()

    @press.server.tool(task=True)
    async def rhyme(ctx: Context) -> str:
        return (await ctx.sample("Rhyme on plum.", max_tokens=9)).text

    @press.server.tool(task=True)
    async def look(ctx: Context) -> str:
        return str([root.uri for root in await ctx.roots()])

    return press


class Reader:
    """A person who answers each item with one answer, by its kind, and what was shown."""

    def __init__(self, **answers: InboxAnswer) -> None:
        self.answers = answers
        self.shown: list[tuple[str, str]] = []
        self.inbox = Inbox(on_item=self._on_item)

    def _on_item(self, item: InboxItem) -> InboxAnswer:
        self.shown.append((item.kind, item.content))
        return self.answers.get(item.kind, InboxAnswer(action="accept"))

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.shown]


async def asked(client: Client, id: str) -> dict[str, Any]:
    """The input requests of a task, once it has some."""
    while True:
        state: Any = await client.ask("tasks/get", t.ExtGetTaskRequestParams(task_id=id))
        if state.input_requests:
            return dict(state.input_requests)


async def sampling_task(cell: Cell, tool: str = "s__rhyme") -> tuple[Client, str]:
    answers = InputCallbacks(on_sample=lambda _: "Gum.", roots=lambda: [t.Root(uri="file:///a")])
    client = await cell.connect(answers, principal="ada", tasks=True)
    await client.start_task(tool)
    return client, ids_of(cell)[0]


SAMPLED = Raw(
    b'{"role":"assistant","model":"m","content":{"type":"text","text":"Gum."},'
    b'"stopReason":"endTurn"}'
)


def update(id: str, key: str, response: Raw = SAMPLED) -> t.ExtUpdateTaskRequestParams:
    return t.ExtUpdateTaskRequestParams(task_id=id, input_responses={key: response})


def under_review(person: Reader, **options: Any) -> Any:
    policy = options.pop("policy", ALLOW)
    return recorded(
        options.pop("server", None) or rhyming().server,
        upstream=NEW,
        downstream=NEW,
        policy=policy,
        inbox=person.inbox,
        sampling=True,
        roots="caller",
        **options,
    )


@live
async def test_sampling_of_a_task_is_shown_before_the_client_and_its_result_before_the_server() -> (
    None
):
    person = Reader()
    async with under_review(person) as cell:
        client, id = await sampling_task(cell)
        (key,) = await asked(client, id)
        assert person.kinds == ["sampling"]
        await asked(client, id)
        assert person.kinds == ["sampling"]  # once, however often it is read
        await client.ask("tasks/update", update(id, key))
        assert person.kinds == ["sampling", "sampling_result"]
        assert "Gum." in person.shown[1][1]
        (sent,) = cell.server_wire.said(Side.CLIENT, "tasks/update")
        assert sent["inputResponses"][key]["content"]["text"] == "Gum."


@live
async def test_what_a_person_edits_of_a_task_is_what_the_client_and_the_server_get() -> None:
    edited = (
        '{"messages":[{"role":"user","content":{"type":"text","text":"Rhyme on fig."}}],'
        '"maxTokens":9}'
    )
    person = Reader(
        sampling=InboxAnswer(action="accept", content=edited),
        sampling_result=InboxAnswer(
            action="accept", content=bytes(SAMPLED).decode().replace("Gum.", "Twig.")
        ),
    )
    async with under_review(person) as cell:
        client, id = await sampling_task(cell)
        (key,) = await asked(client, id)
        (key,) = await asked(client, id)
        assert "plum" not in encode(cell.client_wire.frames).decode()
        assert "Rhyme on fig." in encode(cell.client_wire.frames).decode()
        await client.ask("tasks/update", update(id, key))
        (sent,) = cell.server_wire.said(Side.CLIENT, "tasks/update")
        assert sent["inputResponses"][key]["content"]["text"] == "Twig."


@live
async def test_a_task_gets_no_result_that_a_person_denies() -> None:
    person = Reader(sampling_result=InboxAnswer(action="decline"))
    async with under_review(person) as cell:
        client, id = await sampling_task(cell)
        (key,) = await asked(client, id)
        with pytest.raises(RemoteError, match="the user denied it"):
            await client.ask("tasks/update", update(id, key))
        assert cell.server_wire.said(Side.CLIENT, "tasks/update") == []


@live
async def test_a_denied_request_of_a_task_is_asked_about_once_and_not_shown() -> None:
    person = Reader(sampling=InboxAnswer(action="decline"))
    async with under_review(person) as cell:
        client, id = await sampling_task(cell)
        words, denied = "", 0
        while denied < 3:
            try:
                await client.ask("tasks/get", t.ExtGetTaskRequestParams(task_id=id))
            except RemoteError as error:
                words, denied = error.message, denied + 1
        assert "the user denied it" in words
        assert person.kinds == ["sampling"]
        assert "plum" not in encode(cell.client_wire.frames).decode()
        with pytest.raises(RemoteError, match="the user denied it"):
            await client.ask("tasks/update", update(id, "any"))  # of unknown keys nothing is sent
        assert cell.server_wire.said(Side.CLIENT, "tasks/update") == []
        await client.ask("tasks/cancel", t.ExtCancelTaskRequestParams(task_id=id))


@live
async def test_the_roots_of_a_task_are_shown_before_the_server_sees_them() -> None:
    some = InboxAnswer(action="accept", content='{"roots":[{"uri":"file:///a"}]}')
    person = Reader(roots=some)
    async with under_review(person) as cell:
        client, id = await sampling_task(cell, "s__look")
        (key,) = await asked(client, id)
        assert person.kinds == []
        given = Raw(b'{"roots":[{"uri":"file:///a"},{"uri":"file:///b"}]}')
        await client.ask("tasks/update", update(id, key, given))
        assert person.kinds == ["roots"]
        (sent,) = cell.server_wire.said(Side.CLIENT, "tasks/update")
        assert sent["inputResponses"][key] == {"roots": [{"uri": "file:///a"}]}


@live
async def test_a_result_that_does_not_fit_the_request_of_a_task_is_refused() -> None:
    person = Reader()
    async with under_review(person) as cell:
        client, id = await sampling_task(cell)
        (key,) = await asked(client, id)
        with pytest.raises(RemoteError):
            await client.ask("tasks/update", update(id, key, Raw(b'{"action":"accept"}')))
        assert cell.server_wire.said(Side.CLIENT, "tasks/update") == []


@pytest.mark.parametrize(
    ("tool", "response"),
    [("s__rhyme", SAMPLED), ("s__look", Raw(b'{"roots":[{"uri":"file:///a"}]}'))],
)
@live
async def test_a_server_that_asks_something_else_before_a_response_does_not_get_it_unreviewed(
    tool: str, response: Raw
) -> None:
    """Forms are not reviewed, so a server could let what is reviewed pass for the answer to one."""
    person, press = Reader(), rhyming()
    form = t.ElicitRequestParams(message="Pages?", requested_schema=t.ElicitSchema(properties={}))
    answers = InputCallbacks(on_elicit=pages, on_sample=lambda _: "Gum.", roots=list[t.Root])
    async with under_review(person, server=press.server) as cell:
        client = await cell.connect(answers, principal="ada", tasks=True)
        await client.start_task(tool)
        id = ids_of(cell)[0]
        (key,) = await asked(client, id)

        def change(result: t.ProtocolType) -> t.ProtocolType:
            if isinstance(result, t.ExtGetTaskResult) and result.input_requests:
                return replace(result, input_requests={key: t.ElicitRequest(params=form)})
            return result

        press.change = change
        with pytest.raises(RemoteError):
            await client.ask("tasks/update", update(id, key, response))
        assert cell.server_wire.said(Side.CLIENT, "tasks/update") == []


@live
async def test_a_response_is_shown_if_its_request_was_whatever_the_server_asks_by_then() -> None:
    person, press = Reader(sampling_result=InboxAnswer(action="decline")), rhyming()
    few = Rule("allow", requests="sampling", arguments={"maxTokens": {"max": 5}})
    policy = Policy([few], default="allow")
    async with under_review(person, server=press.server, policy=policy) as cell:
        client, id = await sampling_task(cell)
        (key,) = await asked(client, id)

        def change(result: t.ProtocolType) -> t.ProtocolType:
            if isinstance(result, t.ExtGetTaskResult) and result.input_requests:
                params = t.CreateMessageRequestParams(messages=[], max_tokens=1)
                asked = t.CreateMessageRequest(params=params)
                return replace(result, input_requests={key: asked})
            return result

        press.change = change
        with pytest.raises(RemoteError, match="the user denied it"):
            await client.ask("tasks/update", update(id, key))
        assert person.kinds == ["sampling", "sampling_result"]
        assert cell.server_wire.said(Side.CLIENT, "tasks/update") == []


@live
async def test_sampling_of_a_task_that_a_rule_allows_is_not_shown_to_a_person() -> None:
    person = Reader()
    policy = Policy([Rule("allow", requests="sampling")], default="allow")
    async with under_review(person, policy=policy) as cell:
        client, id = await sampling_task(cell)
        (key,) = await asked(client, id)
        await client.ask("tasks/update", update(id, key))
        assert person.kinds == []
        assert len(cell.server_wire.said(Side.CLIENT, "tasks/update")) == 1


@live
async def test_several_reads_of_a_task_at_once_ask_once() -> None:
    person = Reader()
    async with under_review(person) as cell:
        client, id = await sampling_task(cell)
        await asyncio.gather(*(asked(client, id) for _ in range(4)))
        assert person.kinds == ["sampling"]


@live
async def test_a_response_to_what_was_not_shown_before_its_response_is_not_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The guard does not depend on the gateway, which reads the state of a task first."""

    async def without_check(_: Any, request: Any, id: str) -> Any:
        return request.exchange

    person = Reader(sampling=InboxAnswer(action="decline"))
    allow = Policy([Rule("allow", requests="sampling")], default="allow")
    async with under_review(person, policy=allow) as cell:
        client, id = await sampling_task(cell)
        (key,) = await asked(client, id)
        cell.host._own_policy = ALLOW
        await cell.host.reload(cell.entries)
        monkeypatch.setattr(GatewayTasks, "_with_asked_responses", without_check)
        with pytest.raises(RemoteError, match="the user denied it"):
            await client.ask("tasks/update", update(id, key))
        assert person.kinds == ["sampling"]
        assert cell.server_wire.said(Side.CLIENT, "tasks/update") == []


@live
async def test_sampling_of_a_task_without_a_person_to_ask_is_refused() -> None:
    policy = Policy([Rule("ask", requests="sampling")], default="allow")
    async with recorded(
        rhyming().server, upstream=NEW, downstream=NEW, policy=policy, sampling=True
    ) as cell:
        client, id = await sampling_task(cell)
        with pytest.raises(RemoteError, match="no way to ask"):
            await asked(client, id)
        assert "plum" not in encode(cell.client_wire.frames).decode()


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


@pytest.mark.parametrize("policy", [None, ALLOW])
@live
async def test_a_task_is_sent_no_response_to_what_its_client_was_not_asked(
    policy: Policy | None,
) -> None:
    """A client could answer what a policy denies, or a person has not agreed to."""
    press = Press()
    async with recorded(press.server, upstream=NEW, downstream=NEW, policy=policy) as cell:
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
