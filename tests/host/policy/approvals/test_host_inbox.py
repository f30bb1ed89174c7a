"""A host with an inbox: calls, sampling, roots and forms come to its people, and to no client."""

import asyncio
import contextlib
import json
import shutil
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from colonnade import Context, Host, Refused, Server, connect
from colonnade.errors import ColonnadeError
from colonnade.host.config.inline import entry_of
from colonnade.host.config.reader import read_config
from colonnade.host.config.settings import Settings
from colonnade.host.input_requests import HostInputRequest
from colonnade.host.policy.approvals.approvals import Approvals
from colonnade.host.policy.approvals.config import ApprovalSettings
from colonnade.host.policy.approvals.control import find_sockets
from colonnade.host.policy.approvals.inbox import Inbox, InboxAnswer, InboxItem
from colonnade.host.policy.audit.log import AuditLog
from colonnade.host.policy.rules.rules import CombinedPolicy, Policy, Rule
from colonnade.ports import RequestContext
from colonnade.protocol import types as t
from live import live

OLD, NEW = "2025-06-18", "2026-07-28"
YES, NO = InboxAnswer(action="accept"), InboxAnswer(action="decline")


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """A folder of the user's state with a short path, as sockets need."""
    made = tempfile.mkdtemp(prefix="cn-")
    monkeypatch.setenv("COLONNADE_HOME", made)
    yield Path(made)
    shutil.rmtree(made)


class Desk(Server):
    """A server that writes down its calls, and asks for everything."""

    def __init__(self) -> None:
        super().__init__("desk")
        self.calls: list[str] = []

        @self.tool
        def buy(fruit: str) -> str:
            self.calls.append(fruit)
            return f"bought {fruit}"

        @self.tool
        async def poem(ctx: Context) -> str:
            return (await ctx.sample("Rhyme on plum.", max_tokens=9)).text

        @self.tool
        async def where(ctx: Context) -> list[str]:
            return [str(root.uri) for root in await ctx.roots()]

        @self.tool
        async def book(ctx: Context) -> str:
            return await ctx.elicit("Which seat?", str)

        _ = buy, poem, where, book


class Front(Server):
    """As little of a gateway as is needed: it passes requests of clients on to a host."""

    def __init__(self, host: Host) -> None:
        super().__init__("front")
        self.host = host
        self.tool(_nothing)

    async def respond(self, request: RequestContext) -> bytes | None:
        if request.exchange.method.name not in ("tools/list", "tools/call"):
            return await super().respond(request)
        return request.exchange.settle(await self.host.handler(request))


def _nothing() -> None: ...


@pytest.mark.spec("R0146")
@live
async def test_a_call_is_made_after_its_approval_with_the_arguments_that_were_shown() -> None:
    desk, seen = Desk(), list[str]()

    def ask(item: InboxItem) -> InboxAnswer:
        seen.append(item.content)
        assert desk.calls == []
        return YES

    async with Host({"desk": desk}, policy=Policy(), inbox=Inbox(on_item=ask)) as host:
        result = await host.call_tool("desk__buy", {"fruit": "plum"})
    assert result.text == "bought plum"
    assert seen == ['{"fruit":"plum"}']
    assert desk.calls == ["plum"]


@live
async def test_a_denied_call_never_reaches_its_server() -> None:
    desk = Desk()
    async with Host({"desk": desk}, policy=Policy(), inbox=Inbox(on_item=lambda _: NO)) as host:
        with pytest.raises(Refused, match="the user denied it") as refused:
            await host.call_tool("desk__buy", {"fruit": "plum"})
    assert refused.value.reason == "approval"
    assert desk.calls == []


@pytest.mark.parametrize("inbox", [None, Inbox()])
@live
async def test_without_an_approver_a_call_is_refused_with_words_that_say_what_to_do(
    inbox: Inbox | None,
) -> None:
    desk = Desk()
    async with Host({"desk": desk}, policy=Policy(), inbox=inbox) as host:
        with pytest.raises(Refused) as refused:
            await host.call_tool("desk__buy", {"fruit": "plum"})
    assert refused.value.reason == "no_approver"
    assert "colonnade inbox" in refused.value.hint
    assert desk.calls == []


@pytest.mark.parametrize("inbox", [None, Inbox()])
@live
async def test_a_host_whose_rules_ask_without_a_way_to_ask_says_so_once_at_its_start(
    inbox: Inbox | None, caplog: pytest.LogCaptureFixture
) -> None:
    policy = CombinedPolicy([Policy([], "allow"), Policy([Rule("ask", name="purchases")])])
    async with Host({"desk": Desk()}, policy=policy, inbox=inbox) as host:
        (record,) = [one for one in caplog.records if "no way to ask" in one.message]
        assert record.levelname == "WARNING"
        assert "purchases" in record.message
        assert "add [approvals] with socket = true" in record.message
        await host.reload({"desk": Desk()})
    assert len([one for one in caplog.records if "no way to ask" in one.message]) == 1


@pytest.mark.parametrize(
    ("policy", "inbox"),
    [
        (Policy([Rule("ask")]), Inbox(on_item=lambda _: YES)),
        (Policy([Rule("ask")]), Approvals(Inbox())),
        (Policy([Rule("allow")]), None),
        (None, Inbox()),
    ],
)
@live
async def test_a_host_that_can_ask_or_need_not_says_nothing_at_its_start(
    policy: Policy | None, inbox: Inbox | Approvals | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with Host({"desk": Desk()}, policy=policy, inbox=inbox):
        pass
    assert "no way to ask" not in caplog.text


@live
async def test_a_reload_that_leaves_no_way_to_ask_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "colonnade.toml"
    rule = '[[policy]]\nname = "purchases"\naction = "ask"\n'
    file.write_text(f"[approvals]\n{rule}")
    async with Host.from_config(file, trust=True) as host:
        assert "no way to ask" not in caplog.text
        file.write_text(rule)
        await host.reload()
        assert "asks for approvals, and there is no way to ask" in caplog.text


@pytest.mark.parametrize("revision", [OLD, NEW])
@live
async def test_a_client_that_answers_every_elicitation_cannot_approve(revision: str) -> None:
    desk, answered, items = Desk(), list[str](), list[InboxItem]()

    def on_elicit(params: t.ElicitRequestParams) -> Any:
        answered.append(params.message)
        return t.ElicitResult(action="accept", content={})

    def ask(item: InboxItem) -> InboxAnswer:
        items.append(item)
        return NO

    async with (
        Host({"desk": desk}, policy=Policy(), inbox=Inbox(on_item=ask)) as host,
        connect(Front(host), revision=revision, on_elicit=on_elicit) as client,
    ):
        with contextlib.suppress(ColonnadeError):
            assert (await client.call_tool("desk__buy", {"fruit": "plum"})).is_error
    assert (answered, desk.calls) == ([], [])
    assert [item.client != "" for item in items] == [True]


@pytest.mark.spec("R0098")
@pytest.mark.parametrize("revision", [OLD, NEW])
@live
async def test_sampling_is_seen_and_edited_before_the_model_and_the_server_get_it(
    revision: str,
) -> None:
    prompts: list[str] = []

    def model(request: HostInputRequest) -> str:
        assert isinstance(request.params, t.CreateMessageRequestParams)
        content = request.params.messages[0].content
        assert isinstance(content, t.TextContent)
        prompts.append(content.text)
        return "Bear."

    def ask(item: InboxItem) -> InboxAnswer:
        edited = item.content.replace("plum", "pear").replace("Bear", "Gum")
        return InboxAnswer(action="accept", content=edited)

    entry = entry_of("desk", Desk(), Settings(sampling=True, revision=revision))
    inbox = Inbox(on_item=ask)
    async with Host({"desk": entry}, on_input_request=model, inbox=inbox) as host:
        assert (await host.call_tool("desk__poem")).text == "Gum."
    assert prompts == ["Rhyme on pear."]


@live
async def test_declined_sampling_does_not_reach_the_model() -> None:
    def model(request: HostInputRequest) -> str:
        raise AssertionError("it was declined")

    entry = entry_of("desk", Desk(), Settings(sampling=True))
    inbox = Inbox(on_item=lambda _: NO)
    async with Host({"desk": entry}, on_input_request=model, inbox=inbox) as host:
        assert (await host.call_tool("desk__poem")).is_error


@pytest.mark.spec("R0094")
@pytest.mark.parametrize("revision", [OLD, NEW])
@live
async def test_a_person_is_asked_before_a_server_sees_roots(revision: str, tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for one in folders:
        one.mkdir()
    uris = [one.as_uri() for one in folders]
    seen: list[str] = []
    answers = iter(
        [
            InboxAnswer(action="accept", content=f'{{"roots":[{{"uri":"{uris[1]}"}}]}}'),
            NO,
            InboxAnswer(action="accept", remember="session"),
        ]
    )

    def ask(item: InboxItem) -> InboxAnswer:
        seen.append(item.kind)
        assert all(uri in item.content for uri in uris)
        return next(answers)

    settings = Settings(roots=tuple(map(str, folders)), revision=revision)
    entry = entry_of("desk", Desk(), settings)
    async with Host({"desk": entry}, inbox=Inbox(on_item=ask)) as host:
        assert (await host.call_tool("desk__where", returns=list[str])).data == [uris[1]]
        assert (await host.call_tool("desk__where")).is_error
        assert (await host.call_tool("desk__where", returns=list[str])).data == uris
        assert (await host.call_tool("desk__where", returns=list[str])).data == uris
    assert seen == ["roots"] * 3


@live
async def test_a_rule_about_sampling_and_roots_replaces_the_question(tmp_path: Path) -> None:
    entry = entry_of("desk", Desk(), Settings(roots=(str(tmp_path),)))
    rules = [Rule("allow", tools="*"), Rule("allow", requests="roots")]
    inbox = Inbox(on_item=lambda _: NO)
    async with Host({"desk": entry}, policy=Policy(rules), inbox=inbox) as host:
        found = await host.call_tool("desk__where", returns=list[str])
    assert found.data == [tmp_path.as_uri()]


@live
async def test_a_decision_is_remembered_for_these_arguments_if_a_rule_asks_because_of_arguments() -> (
    None
):
    rule = Rule("ask", tools="*", arguments={"fruit": "p*"})
    for policies in ([Policy([rule], default="allow")], [Policy(), Policy([rule])]):
        seen: list[str] = []

        def ask(item: InboxItem, seen: list[str] = seen) -> InboxAnswer:
            seen.append(item.content)
            return InboxAnswer(action="accept", remember="session")

        inbox = Inbox(on_item=ask)
        async with Host({"desk": Desk()}, policy=CombinedPolicy(policies), inbox=inbox) as host:
            for fruit in ("plum", "pear", "plum"):
                await host.call_tool("desk__buy", {"fruit": fruit})
        assert len(seen) == 2


@pytest.mark.parametrize("revision", [OLD, NEW])
@live
async def test_a_form_comes_to_the_inbox_of_a_host_without_a_callback(revision: str) -> None:
    def ask(item: InboxItem) -> InboxAnswer:
        assert (item.kind, item.name) == ("form", "desk__book")
        return InboxAnswer(action="accept", content='{"value":"12A"}')

    entry = entry_of("desk", Desk(), Settings(revision=revision))
    async with Host({"desk": entry}, inbox=Inbox(on_item=ask)) as host:
        assert (await host.call_tool("desk__book")).text == "12A"


@pytest.mark.parametrize("accepted", [True, False])
@pytest.mark.parametrize("revision", [OLD, NEW])
@live
async def test_a_form_that_is_asked_about_is_shown_once_if_the_inbox_answers_it(
    revision: str, accepted: bool, tmp_path: Path
) -> None:
    kinds: list[str] = []

    def ask(item: InboxItem) -> InboxAnswer:
        kinds.append(item.kind)
        return InboxAnswer(action="accept", content='{"value":"12A"}') if accepted else NO

    entry = entry_of("desk", Desk(), Settings(revision=revision))
    policy = Policy([Rule("ask", requests="elicitation"), Rule("allow")])
    audit, inbox = AuditLog(tmp_path), Inbox(on_item=ask)
    async with Host({"desk": entry}, policy=policy, inbox=inbox, audit=audit) as host:
        assert ((await host.call_tool("desk__book")).text == "12A") == accepted
    assert kinds == ["form"]
    lines = [
        json.loads(one)
        for file in tmp_path.glob("*.jsonl")
        for one in file.read_text().splitlines()
    ]
    (answered,) = (one for one in lines if one["event"] == "answered")
    assert answered["action"] == ("allow" if accepted else "deny")


@pytest.mark.parametrize("revision", [OLD, NEW])
@live
async def test_a_form_that_a_remembered_decision_denies_is_declined(revision: str) -> None:
    asked = list[str]()

    def ask(item: InboxItem) -> InboxAnswer:
        asked.append(item.kind)
        return InboxAnswer(action="decline", remember="session")

    async def answer(request: HostInputRequest) -> object:
        raise AssertionError("it is denied")

    entry = entry_of("desk", Desk(), Settings(revision=revision))
    policy, inbox = Policy([Rule("ask", requests="elicitation"), Rule("allow")]), Inbox(on_item=ask)
    async with Host({"desk": entry}, policy=policy, inbox=inbox, on_input_request=answer) as host:
        texts = [(await host.call_tool("desk__book")).text for _ in range(2)]
    assert asked == ["approval"]
    assert "declined" in texts[0]
    assert texts[1] == texts[0]


@live
async def test_a_form_that_no_person_can_answer_is_cancelled_and_recorded_so(
    tmp_path: Path,
) -> None:
    policy = Policy([Rule("ask", requests="elicitation"), Rule("allow")])
    async with Host(
        {"desk": Desk()}, policy=policy, inbox=Inbox(), audit=AuditLog(tmp_path)
    ) as host:
        assert "cancelled" in (await host.call_tool("desk__book")).text
    text = "".join(one.read_text() for one in tmp_path.glob("*.jsonl"))
    assert '"event":"answered"' not in text
    assert '"event":"unanswered"' in text


@live
async def test_an_approval_does_not_fit_other_meta_that_the_server_would_get() -> None:
    desk, inbox = Desk(), Inbox(wait_s=0)
    inbox.attach()
    async with Host({"desk": desk}, policy=Policy(), inbox=inbox) as host:

        async def call(meta: dict[str, Any] | None) -> None:
            await host.call_tool("desk__buy", {"fruit": "plum"}, meta=meta)

        with pytest.raises(Refused, match="waiting for approval"):
            await call(None)
        (item,) = await inbox.items()
        await inbox.answer(item.id, YES)
        with pytest.raises(Refused, match="waiting for approval"):
            await call({"x.example/force": True})
        (item,) = await inbox.items()
        assert item.meta == '{"x.example/force":true}'
        await call({"traceparent": f"00-{1:032x}-{1:016x}-01"})  # each request has another one
    assert desk.calls == ["plum"]


@live
async def test_a_decision_that_is_remembered_for_exact_arguments_is_for_their_meta() -> None:
    seen: list[str] = []

    def ask(item: InboxItem) -> InboxAnswer:
        seen.append(item.meta)
        return InboxAnswer(action="accept", remember="session")

    policy = Policy([Rule("ask", arguments={"fruit": "plum"}), Rule("allow")])
    async with Host({"desk": Desk()}, policy=policy, inbox=Inbox(on_item=ask)) as host:
        for meta in (None, {"force": 1}, None, {"force": 1}):
            await host.call_tool("desk__buy", {"fruit": "plum"}, meta=meta)
    assert seen == ["", '{"force":1}']


@live
async def test_a_host_serves_the_control_socket_while_it_is_entered() -> None:
    inbox = Inbox(socket=True)
    async with Host({"desk": Desk()}, policy=Policy(), inbox=inbox) as host:
        assert inbox.has_approver
        assert len(await find_sockets()) == 1
        call = asyncio.ensure_future(host.call_tool("desk__buy", {"fruit": "plum"}))
        while not (items := await inbox.items()):
            await asyncio.sleep(0)
        await inbox.answer(items[0].id, YES)
        assert (await call).text == "bought plum"
    assert not inbox.has_approver
    assert await find_sockets() == []


# ---------------------------------------------------------------- [approvals]


def write(folder: Path, approvals: str) -> Path:
    path = folder / "colonnade.toml"
    server = f'[servers.none]\ncommand = "{sys.executable}"\n'
    path.write_text(f"[approvals]\n{approvals}\n{server}")
    return path


@live
async def test_approvals_of_a_file_open_an_inbox_whose_items_survive(tmp_path: Path) -> None:
    path = write(tmp_path, 'store = "inbox.db"\nwait_s = 5')
    settings = read_config(path, trust=True).approvals
    assert settings == ApprovalSettings(store=str(tmp_path / "inbox.db"), wait_s=5)
    async with Host.from_config(path, trust=True) as host:
        assert host.problems == []
        assert len(await find_sockets()) == 1
    assert await find_sockets() == []


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("wait = 5", "unknown key; did you mean wait_s?"),
        ("colour = 5", "unknown key; known keys: socket"),
        ('socket = "yes"', "expected true or false"),
        ("store = 1", "expected the path of a file"),
        ("usable_s = 0", "expected seconds, 1 to 86400"),
        ("wait_s = true", "expected seconds, 0 to 86400"),
    ],
)
def test_an_error_in_approvals_says_where_and_nothing_of_it_is_used(
    tmp_path: Path, written: str, problem: str
) -> None:
    config = read_config(write(tmp_path, written), trust=True)
    (found,) = config.problems
    assert problem in str(found)
    assert "colonnade.toml:2:1" in str(found)
    assert config.approvals is None


def test_approvals_of_a_file_that_is_not_trusted_are_not_used(tmp_path: Path) -> None:
    path = write(tmp_path, "socket = true")
    assert read_config(path, strict=True).approvals is None
    assert read_config(path, strict=True, trust=True).approvals is not None
    path.write_text("[approvals]\nsocket = true\n")  # a file without servers is asked about, too
    assert read_config(path, strict=True).approvals is None
    assert read_config(path, strict=True, trust=True).approvals is not None


def test_of_two_files_with_approvals_the_first_counts(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for number, folder in enumerate(paths):
        folder.mkdir()
        write(folder, f"wait_s = {number + 1}")
    config = read_config([one / "colonnade.toml" for one in paths], trust=True)
    assert config.approvals.wait_s == 1
    assert any("has [approvals] already" in str(one) for one in config.warnings)
