"""An approval is for one exact request, used once; everything else is asked about anew."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from colonnade.errors import Declined, Refused
from colonnade.host.input_requests import HostInputRequest, PendingCall
from colonnade.host.policy.approvals.approvals import NO_APPROVER, Approvals, differences
from colonnade.host.policy.approvals.inbox import Inbox, InboxAnswer, InboxItem
from colonnade.host.policy.approvals.remembered import RememberedRules
from colonnade.host.policy.request import Consent, Decision, PolicyRequest
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.input_requests import InputRequest
from colonnade.protocol.jsonrpc import encode
from colonnade.store.memory import MemoryStore
from colonnade.store.sqlite import SqliteStore
from host.policy.approvals.test_inbox import Time
from live import live

YES, NO = InboxAnswer(action="accept"), InboxAnswer(action="decline")
ASK = Decision("ask", "the default", False, "v1", "no rule matches")
TOOL = t.Tool(name="write", description="Write a file.", input_schema={"type": "object"})
CALL = PolicyRequest(
    principal="ada",
    claims={},
    client="a client",
    revision="2025-11-25",
    server="files",
    identity="1234",
    trusted=False,
    method="tools/call",
    kind="tool",
    name="write",
    qualified="files__write",
    arguments=Raw(b'{"path": "/a"}'),
    definition=TOOL,
    definition_digest="abcd",
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the user's state."""
    monkeypatch.setenv("COLONNADE_HOME", str(tmp_path / "home"))
    return tmp_path


def approvals(home: Path, inbox: Inbox, project: str = "") -> Approvals:
    return Approvals(inbox, RememberedRules(project=project or str(home)))


async def granted(made: Approvals, call: PolicyRequest = CALL, decision: Decision = ASK) -> None:
    """Approve a call whose caller has stopped waiting."""
    with pytest.raises(Refused, match="it is waiting for approval"):
        await made.approve(call, decision)
    (item,) = await made.inbox.items()
    assert (await made.inbox.answer(item.id, YES)).won


@pytest.mark.spec("R0109", "R0146")
@live
async def test_a_call_waits_for_its_approval(home: Path) -> None:
    inbox = Inbox()
    inbox.attach()
    made = approvals(home, inbox)
    call = asyncio.ensure_future(made.approve(CALL, ASK))
    while not (items := await inbox.items()):
        await asyncio.sleep(0)
    (item,) = items
    assert item.content == '{"path": "/a"}'
    assert (item.server, item.name, item.principal) == ("files", "files__write", "ada")
    assert (item.client, item.rule) == ("a client", "the default")
    assert "Write a file." in item.definition
    await inbox.answer(item.id, YES, by="a terminal")
    assert await call == Consent(approval=item.id, by="a terminal")


@live
async def test_a_call_that_is_denied_is_refused(home: Path) -> None:
    made = approvals(home, Inbox(on_item=lambda _: NO))
    with pytest.raises(Refused, match="the user denied it"):
        await made.approve(CALL, ASK)


@live
async def test_with_no_way_to_ask_a_call_is_refused_at_once(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox = Inbox()

    async def never(*_: object) -> InboxItem:
        raise AssertionError("it waits")

    monkeypatch.setattr(inbox, "wait", never)
    with pytest.raises(Refused, match=NO_APPROVER) as refused:
        await approvals(home, inbox).approve(CALL, ASK)
    assert "colonnade inbox" in refused.value.hint
    assert await inbox.items() == []


@live
async def test_a_grant_after_the_wait_is_used_by_the_identical_call_and_once(home: Path) -> None:
    inbox = Inbox(wait_s=0)
    inbox.attach()
    made = approvals(home, inbox)
    with pytest.raises(Refused, match="it is waiting for approval") as waiting:
        await made.approve(CALL, ASK)
    (item,) = await inbox.items()
    assert item.id in str(waiting.value)
    assert "call again with the same arguments" in str(waiting.value)
    await inbox.answer(item.id, YES)
    assert (await made.approve(CALL, ASK)).approval == item.id
    with pytest.raises(Refused, match="it is waiting for approval"):
        await made.approve(CALL, ASK)


CHANGED: dict[str, Callable[[], tuple[PolicyRequest, Decision]]] = {
    "argument": lambda: (replace(CALL, arguments=Raw(b'{"path": "/b"}')), ASK),
    "whitespace of the arguments": lambda: (replace(CALL, arguments=Raw(b'{"path":"/a"}')), ASK),
    "_meta": lambda: (replace(CALL, meta=Raw(b'{"x.example/force":true}')), ASK),
    "definition": lambda: (replace(CALL, definition_digest="abce"), ASK),
    "policy version": lambda: (CALL, Decision("ask", "the default", False, "v2", "")),
    "principal": lambda: (replace(CALL, principal="eve"), ASK),
    "server": lambda: (replace(CALL, server="other"), ASK),
    "identity": lambda: (replace(CALL, identity="1235"), ASK),
    "name": lambda: (replace(CALL, name="write2"), ASK),
    "method": lambda: (replace(CALL, method="prompts/get"), ASK),
}


@pytest.mark.parametrize("what", CHANGED)
@live
async def test_an_approval_does_not_fit_another_request(home: Path, what: str) -> None:
    inbox = Inbox(wait_s=0)
    inbox.attach()
    made = approvals(home, inbox)
    await granted(made)
    with pytest.raises(Refused, match="it is waiting for approval"):
        await made.approve(*CHANGED[what]())
    await made.approve(CALL, ASK)  # which it still fits


@live
async def test_an_approval_expires(home: Path) -> None:
    time = Time()
    inbox = Inbox(MemoryStore(), wait_s=0, usable_s=600, clock=time)
    inbox.attach()
    made = approvals(home, inbox)
    await granted(made)
    time.now += 600
    with pytest.raises(Refused, match="it is waiting for approval"):
        await made.approve(CALL, ASK)


@live
async def test_two_identical_calls_need_two_approvals(home: Path) -> None:
    inbox = Inbox()
    inbox.attach()
    made = approvals(home, inbox)
    calls = [asyncio.ensure_future(made.approve(CALL, ASK)) for _ in range(2)]
    while not (items := await inbox.items()) or len(inbox._waiters.get(items[0].key, ())) < 2:
        await asyncio.sleep(0)
    (first,) = items
    await inbox.answer(first.id, YES)
    while not (items := await inbox.items()):
        await asyncio.sleep(0)
    assert sum(call.done() for call in calls) == 1
    await inbox.answer(items[0].id, NO)
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert sorted(type(one).__name__ for one in outcomes) == ["Consent", "DeniedByPerson"]


@live
async def test_a_call_that_is_cancelled_asks_no_longer(home: Path) -> None:
    inbox = Inbox()
    inbox.attach()
    call = asyncio.ensure_future(approvals(home, inbox).approve(CALL, ASK))
    while not await inbox.items():
        await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await inbox.items() == []


SECOND = """
import asyncio, sys
from colonnade.errors import Refused
from colonnade.host.policy.approvals.approvals import Approvals
from colonnade.host.policy.approvals.inbox import Inbox
from colonnade.host.policy.approvals.remembered import RememberedRules
from colonnade.store.sqlite import SqliteStore
from host.policy.approvals.test_approvals import ASK, CALL


async def main():
    store = SqliteStore(sys.argv[1])
    made = Approvals(Inbox(store, wait_s=0), RememberedRules(project="/"))
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        print("allowed by", (await made.approve(CALL, ASK)).by, flush=True)
    except Refused as refused:
        print("refused:", refused.summary, flush=True)
    await store.close()


asyncio.run(main())
"""


@live
async def test_of_two_processes_with_one_store_one_uses_an_approval(home: Path) -> None:
    path = home / "inbox.db"
    store = SqliteStore(path)
    inbox = Inbox(store, wait_s=0)
    inbox.attach()
    made = approvals(home, inbox)
    await granted(made)
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            *("-c", SECOND, str(path)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={"PYTHONPATH": ":".join(sys.path), "COLONNADE_HOME": str(home / "home")},
        )
        for _ in range(2)
    ]
    for one in processes:
        assert one.stdout is not None
        assert await one.stdout.readline() == b"ready\n"
    outputs = await asyncio.gather(*(one.communicate(b"go\n") for one in processes))
    said = sorted(out.decode().strip().partition(" ")[0] for out, _ in outputs)
    assert said == ["allowed", "refused:"]
    await store.close()


@live
async def test_what_changed_since_the_last_approval_is_shown(home: Path) -> None:
    inbox = Inbox(wait_s=0)
    seen: list[tuple[str, ...]] = []

    def ask(item: InboxItem) -> InboxAnswer:
        seen.append(item.changes)
        return YES

    inbox = Inbox(on_item=ask)
    made = approvals(home, inbox)
    await made.approve(CALL, ASK)
    await made.approve(replace(CALL, arguments=Raw(b'{"path": "/b", "mode": 1}')), ASK)
    other = t.Tool(name="write", description="Send a file.", input_schema={"type": "object"})
    changed = replace(CALL, definition=other, definition_digest="ef01")
    await made.approve(changed, ASK)
    assert seen == [
        (),
        ('path: "/a" -> "/b"', "mode: added, 1"),
        (
            'definition.description: "Write a file." -> "Send a file."',
            'path: "/b" -> "/a"',
            "mode: removed, it was 1",
        ),
    ]


@live
async def test_the_meta_of_a_call_is_shown_with_what_changed_in_it(home: Path) -> None:
    seen: list[tuple[str, tuple[str, ...]]] = []

    def ask(item: InboxItem) -> InboxAnswer:
        seen.append((item.meta, item.changes))
        return YES

    made = approvals(home, Inbox(on_item=ask))
    await made.approve(CALL, ASK)
    await made.approve(replace(CALL, meta=Raw(b'{"force":true}')), ASK)
    assert seen == [("", ()), ('{"force":true}', ("_meta.force: added, true",))]


def test_differences_name_the_path_of_each_value() -> None:
    before, after = {"a": {"b": 1, "c": [1]}}, {"a": {"b": True, "c": [1]}}
    assert list(differences("", before, after)) == ["a.b: 1 -> true"]
    assert list(differences("", after, after)) == []


# ---------------------------------------------------------------- input requests


SAMPLE = t.CreateMessageRequestParams(
    messages=[t.SamplingMessage(role="user", content=t.TextContent(text="Rhyme on plum."))],
    max_tokens=9,
)
SAMPLED = t.CreateMessageResult(role="assistant", content=t.TextContent(text="Gum."), model="tiny")
SAMPLING = replace(CALL, method="sampling/createMessage")


@pytest.mark.spec("R0098")
@live
async def test_a_person_sees_and_edits_what_the_model_is_sent_and_what_it_wrote(home: Path) -> None:
    shown: list[tuple[str, str]] = []

    def ask(item: InboxItem) -> InboxAnswer:
        shown.append((item.kind, item.content))
        return InboxAnswer(
            action="accept",
            content=item.content.replace("plum", "pear").replace("Gum", "Bear"),
        )

    sent: list[Any] = []

    async def forward(request: InputRequest) -> Raw:
        sent.append(request.params)
        return Raw(encode(SAMPLED))

    made = approvals(home, Inbox(on_item=ask))
    result = await made.review_input(SAMPLING, ASK, InputRequest(SAMPLE), forward)
    assert [kind for kind, _ in shown] == ["sampling", "sampling_result"]
    assert "Rhyme on plum." in shown[0][1]
    assert "Gum." in shown[1][1]
    assert sent[0].messages[0].content.text == "Rhyme on pear."
    assert decode_as(t.CreateMessageResult, result).content == t.TextContent(text="Bear.")


@pytest.mark.parametrize("declined", ["sampling", "sampling_result"])
@live
async def test_a_person_declines_sampling_before_or_after(home: Path, declined: str) -> None:
    sent: list[InputRequest] = []

    async def forward(request: InputRequest) -> Raw:
        sent.append(request)
        return Raw(encode(SAMPLED))

    made = approvals(home, Inbox(on_item=lambda item: NO if item.kind == declined else YES))
    with pytest.raises(Refused, match="the user denied it"):
        await made.review_input(SAMPLING, ASK, InputRequest(SAMPLE), forward)
    assert len(sent) == (declined == "sampling_result")


@pytest.mark.spec("R0094")
@live
async def test_a_person_sees_roots_before_the_server_does_and_leaves_some_out(home: Path) -> None:
    roots = Raw(b'{"roots":[{"uri":"file:///a"},{"uri":"file:///b"}]}')

    async def forward(_: InputRequest) -> Raw:
        return roots

    answers = iter(
        [
            InboxAnswer(action="accept", content='{"roots":[{"uri":"file:///b"}]}'),
            NO,
            InboxAnswer(action="accept", remember="session"),
        ]
    )
    seen: list[str] = []

    def ask(item: InboxItem) -> InboxAnswer:
        seen.append(item.content)
        return next(answers)

    made = approvals(home, Inbox(on_item=ask))
    call = replace(CALL, method="roots/list"), ASK, InputRequest(t.ListRootsRequestParams())
    result = decode_as(t.ListRootsResult, await made.review_input(*call, forward))
    assert [one.uri for one in result.roots] == ["file:///b"]
    with pytest.raises(Refused):
        await made.review_input(*call, forward)
    assert await made.review_input(*call, forward) == roots
    assert await made.review_input(*call, forward) == roots  # as it is remembered
    assert seen == [bytes(roots).decode()] * 3


@live
async def test_an_answer_that_leaves_roots_out_is_not_remembered(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    async def forward(_: InputRequest) -> Raw:
        return Raw(b'{"roots":[{"uri":"file:///a"},{"uri":"file:///b"}]}')

    def ask(item: InboxItem) -> InboxAnswer:
        seen.append(item.id)
        content = '{"roots":[{"uri":"file:///b"}]}'
        return InboxAnswer(action="accept", content=content, remember="session")

    made = approvals(home, Inbox(on_item=ask))
    call = replace(CALL, method="roots/list"), ASK, InputRequest(t.ListRootsRequestParams())
    for _ in range(2):
        result = decode_as(t.ListRootsResult, await made.review_input(*call, forward))
        assert [one.uri for one in result.roots] == ["file:///b"]
    assert len(seen) == 2
    assert made.remembered.list() == []
    assert f"the answer to {seen[0]} holds for this call only" in caplog.text


FORM = t.ElicitRequestParams(
    message="Which seat?",
    requested_schema=t.ElicitSchema(properties={"seat": t.PrimitiveSchema(type="string")}),
)
URL = t.ElicitRequestParams(
    message="Log in.", mode="url", url="https://example.com/", elicitation_id="1"
)
PENDING = (PendingCall("files__write", {}, "ada"),)


@pytest.mark.parametrize("params", [FORM, URL])
@live
async def test_a_form_is_forwarded_after_a_person_has_agreed(
    home: Path, params: t.ElicitRequestParams
) -> None:
    sent: list[InputRequest] = []

    async def forward(request: InputRequest) -> Raw:
        sent.append(request)
        return Raw(b'{"action":"cancel"}')

    asked = replace(CALL, method="elicitation/create", arguments=Raw(encode(params)))
    made = approvals(home, Inbox(on_item=lambda _: NO))
    with pytest.raises(Refused, match="the user denied it"):
        await made.review_input(asked, ASK, InputRequest(params), forward)
    assert sent == []
    made = approvals(home, Inbox(on_item=lambda _: YES))
    await made.review_input(asked, ASK, InputRequest(params), forward)
    assert len(sent) == 1


@live
async def test_a_form_is_answered_in_the_inbox(home: Path) -> None:
    answer = InboxAnswer(action="accept", content='{"seat":"12A"}')
    seen: list[InboxItem] = []

    def ask(item: InboxItem) -> InboxAnswer:
        seen.append(item)
        return answer

    made = approvals(home, Inbox(on_item=ask))
    returned = await made.answer_input(HostInputRequest("files", "elicit", FORM, PENDING))
    assert returned == {"seat": "12A"}
    (item,) = seen
    assert (item.kind, item.name, item.principal) == ("form", "files__write", "ada")


@live
async def test_a_url_is_agreed_to_declined_or_cancelled_in_the_inbox(home: Path) -> None:
    request = HostInputRequest("files", "elicit", URL, PENDING)
    assert await approvals(home, Inbox(on_item=lambda _: YES)).answer_input(request) is True
    with pytest.raises(Declined):
        await approvals(home, Inbox(on_item=lambda _: NO)).answer_input(request)
    cancel = InboxAnswer(action="cancel")
    assert await approvals(home, Inbox(on_item=lambda _: cancel)).answer_input(request) is None


@live
async def test_an_elicitation_with_no_person_to_ask_is_declined_at_once(home: Path) -> None:
    with pytest.raises(Declined, match="no person"):
        await approvals(home, Inbox()).answer_input(HostInputRequest("files", "elicit", FORM))


@live
async def test_the_input_request_of_a_task_is_the_same_item_after_a_restart(home: Path) -> None:
    request = HostInputRequest(
        "files", "elicit", FORM, (PendingCall("files__write", {}, "", task="t1"),)
    )
    store = MemoryStore()
    before = Inbox(store)
    before.attach()
    asked = asyncio.ensure_future(approvals(home, before).answer_input(request))
    while not (items := await before.items()):
        await asyncio.sleep(0)
    (item,) = items
    assert item.task == "t1"
    after = Inbox(store)
    after.attach()
    again = asyncio.ensure_future(approvals(home, after).answer_input(request))
    while not after._waiters:
        await asyncio.sleep(0)
    assert await after.items() == [item]
    await after.answer(item.id, InboxAnswer(action="accept", content='{"seat":"1"}'))
    assert await again == {"seat": "1"}
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
