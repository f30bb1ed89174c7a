"""The audit log of a real host: every way into it is recorded, and a required log stops calls."""

import asyncio
import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from colonnade import Context, Host, HostInputRequest, RemoteError, Server, ToolError
from colonnade.errors import Refused
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Settings
from colonnade.host.policy.approvals.inbox import Inbox, InboxAnswer
from colonnade.host.policy.audit import file as audit_file
from colonnade.host.policy.audit.verify import read_calls, verify
from colonnade.host.policy.rules.rules import Policy, Rule
from colonnade.protocol.revision import JULY_2026, NOVEMBER_2025, Revision
from host.audited import KEY, lines, opened
from live import live


class Notes:
    """A server, and the calls that it got."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.server = server = Server("notes")

        @server.tool
        def read(path: str) -> str:
            self.calls.append(path)
            return f"text of {path}"

        @server.tool
        def fail() -> str:
            raise ToolError("it failed")

        @server.tool
        async def wait() -> str:
            self.calls.append("wait")
            await asyncio.Event().wait()
            return "never"

        @server.tool
        async def book(ctx: Context) -> str:
            seat = await ctx.elicit("Which seat, please?", str)
            thought = await ctx.sample("Think of a number.")
            roots = await ctx.roots()
            return f"{seat} {thought.text} {len(roots)}"

        @server.tool(task=True)
        async def slow(ctx: Context) -> str:
            return "done"

        @server.prompt
        def hello(name: str) -> str:
            return f"Hello {name}"

        @server.resource("notes://{name}")
        def note(name: str) -> str:
            return f"note {name}"


def decoded(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines(folder)]


def steps(folder: Path) -> list[tuple[str, str, str]]:
    """Event, method and name of each line of a call."""
    found = decoded(folder)
    return [(one["event"], one["method"], one["name"]) for one in found if "call" in one]


@pytest.mark.spec("R0146")
@live
async def test_tools_prompts_resources_and_completions_are_recorded(tmp_path: Path) -> None:
    notes = Notes()
    async with Host({"n": notes.server}, audit=opened(tmp_path)) as host:
        await host.call_tool("n__read", {"path": "a"}, caller="alex")
        await host.get_prompt("n__hello", {"name": "Bo"})
        await host.read_resource("notes://a")
        await host.caller("kim").call_tool("n__read", {"path": "b"})
    methods = [("tools/call", "read"), ("prompts/get", "hello"), ("resources/read", "notes://a")]
    methods.append(("tools/call", "read"))
    expected = [
        (event, *one)
        for one in methods
        for event in ("proposed", "decided", "executed", "returned")
    ]
    assert steps(tmp_path) == expected
    principals = [one["principal"] for one in decoded(tmp_path) if one["event"] == "proposed"]
    assert principals == ["alex", "", "", "kim"]
    report = verify(str(tmp_path))
    assert report.is_valid
    assert report.notes == []  # closed with its host


@live
async def test_an_error_of_a_tool_and_of_a_server_are_recorded(tmp_path: Path) -> None:
    async with Host({"n": Notes().server}, audit=opened(tmp_path)) as host:
        assert (await host.call_tool("n__fail")).is_error
        with pytest.raises(RemoteError):
            await host.get_prompt("n__hello", {})
    returned, failed = (one for one in decoded(tmp_path) if one["event"] in ("returned", "failed"))
    assert returned["is_error"] is True
    assert (failed["event"], failed["error"], failed["name"]) == ("failed", "RemoteError", "hello")
    assert b"it failed" not in b"".join(lines(tmp_path))


@live
async def test_a_cancelled_call_is_abandoned(tmp_path: Path) -> None:
    notes = Notes()
    async with Host({"n": notes.server}, audit=opened(tmp_path)) as host:
        call = asyncio.ensure_future(host.call_tool("n__wait"))
        while not notes.calls:
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert [one["event"] for one in decoded(tmp_path)][-2:] == ["abandoned", "closed"]


@live
async def test_what_the_rules_deny_is_recorded_and_never_executed(tmp_path: Path) -> None:
    notes = Notes()
    rules = Policy(
        [Rule("deny", tools="n__read", arguments={"path": "/etc/*"}), Rule("allow")],
    )
    async with Host({"n": notes.server}, policy=rules, audit=opened(tmp_path)) as host:
        with pytest.raises(Refused):
            await host.call_tool("n__read", {"path": "/etc/passwd"})
    assert notes.calls == []
    events = [(one["event"], one.get("action")) for one in decoded(tmp_path)][1:-1]
    assert events == [("proposed", None), ("decided", "deny"), ("failed", None)]
    assert b"passwd" not in b"".join(lines(tmp_path))


def answers(folder: Path) -> list[dict[str, Any]]:
    """The lines of the log that say what came of a question."""
    return [one for one in decoded(folder) if one["event"] in ("answered", "unanswered")]


async def ask_about_a_call(folder: Path, inbox: Inbox | None) -> None:
    policy = Policy([Rule("ask", name="writes")])
    async with Host(
        {"n": Notes().server}, policy=policy, inbox=inbox, audit=opened(folder)
    ) as host:
        with pytest.raises(Refused):
            await host.call_tool("n__read", {"path": "a"})


@pytest.mark.parametrize(
    ("inbox", "ended"),
    [
        (Inbox(on_item=lambda _: None, deadline_s=0.01), "expired"),
        (Inbox(on_item=lambda _: None, wait_s=0), "waiting"),
        (Inbox(on_item=lambda _: InboxAnswer(action="cancel")), "dismissed"),
        (Inbox(), "no_approver"),
        (None, "no_approver"),
    ],
)
@live
async def test_a_call_that_no_person_has_answered_is_not_recorded_as_denied(
    tmp_path: Path, inbox: Inbox | None, ended: str
) -> None:
    await ask_about_a_call(tmp_path, inbox)
    (line,) = answers(tmp_path)
    assert (line["event"], line["ended"], "action" in line) == ("unanswered", ended, False)
    (found,) = read_calls(str(tmp_path), lambda _: True)
    assert (found.decision, found.unanswered, found.answered_by) == ("ask", ended, "")


@live
async def test_a_question_that_the_inbox_cannot_take_is_not_recorded_as_denied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("colonnade.host.policy.approvals.inbox.MAX_ITEMS", 0)
    await ask_about_a_call(tmp_path, Inbox(on_item=lambda _: None))
    (line,) = answers(tmp_path)
    assert (line["event"], line["ended"]) == ("unanswered", "failed")
    assert "the inbox is full" in line["reason"]


@live
async def test_a_call_that_is_cancelled_before_its_answer_is_recorded_as_cancelled(
    tmp_path: Path,
) -> None:
    shown = asyncio.Event()
    policy, inbox = Policy([Rule("ask")]), Inbox(on_item=lambda _: shown.set())
    async with Host(
        {"n": Notes().server}, policy=policy, inbox=inbox, audit=opened(tmp_path)
    ) as host:
        call = asyncio.ensure_future(host.call_tool("n__read", {"path": "a"}))
        await shown.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    (line,) = answers(tmp_path)
    assert (line["event"], line["ended"]) == ("unanswered", "cancelled")
    assert [one["event"] for one in decoded(tmp_path)][-2:] == ["abandoned", "closed"]


@live
async def test_a_denial_is_recorded_with_the_one_who_denied_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLONNADE_HOME", str(tmp_path / "home"))
    folder, no = tmp_path / "log", InboxAnswer(action="decline", remember="session")
    policy = Policy([Rule("ask", name="writes")])
    async with Host(
        {"n": Notes().server},
        policy=policy,
        inbox=Inbox(on_item=lambda _: no),
        audit=opened(folder),
    ) as host:
        for _ in range(2):
            with pytest.raises(Refused):
                await host.call_tool("n__read", {"path": "a"})
    person, remembered = answers(folder)
    assert (person["event"], person["action"]) == ("answered", "deny")
    assert (person["reason"], bool(person["approval"])) == ("the user denied it", True)
    assert person["by"].startswith("this program")
    assert (remembered["action"], remembered["by"]) == ("deny", "a remembered decision")
    assert remembered["rule"] == "deny n__read (remembered: session)"


@pytest.mark.parametrize("revision", ["2025-06-18", "2026-07-28"])
@live
async def test_what_a_server_asks_is_recorded_with_the_call_that_it_belongs_to(
    tmp_path: Path, revision: str
) -> None:
    async def answer(request: HostInputRequest) -> object:
        return "secret seat" if request.kind == "elicit" else "a secret number"

    settings = Settings(revision=revision, sampling=True, roots=(str(tmp_path),))
    entry = entry_of("n", Notes().server, settings)
    audit = opened(tmp_path / "audit")
    async with Host({"n": entry}, audit=audit, on_input_request=answer) as host:
        assert (await host.call_tool("n__book")).text == "secret seat a secret number 1"
    found = decoded(tmp_path / "audit")
    proposed = {one["method"]: one for one in found if one["event"] == "proposed"}
    call = proposed.pop("tools/call")["call"]
    assert proposed.keys() == {"elicitation/create", "sampling/createMessage", "roots/list"}
    for one in proposed.values():
        assert (one["during"], one["name"], one["server"]) == (call, "book", "n")
    ended = [one["method"] for one in found if one["event"] == "returned"]
    assert sorted(ended) == sorted([*proposed, "tools/call"])
    text = b"".join(lines(tmp_path / "audit"))
    assert b"secret" not in text
    assert b"Which seat" not in text


@pytest.mark.parametrize("revision", [NOVEMBER_2025, JULY_2026], ids=lambda one: one.date)
@live
async def test_a_call_that_becomes_a_task_is_recorded_and_so_is_its_result(
    tmp_path: Path, revision: Revision
) -> None:
    entry = entry_of("n", Notes().server, Settings(revision=revision.date))
    async with Host({"n": entry}, audit=opened(tmp_path)) as host:
        task = await host.start_task("n__slow")
        handle = task.handle
        assert (await task.result()).data == "done"
    events = [(event, method) for event, method, _ in steps(tmp_path)]
    assert ("task", "tools/call") in events
    assert ("returned", "tasks/get") in events
    assert handle is not None
    assert handle.encode() not in b"".join(lines(tmp_path))


@live
async def test_a_call_is_not_sent_if_a_required_log_cannot_be_written(tmp_path: Path) -> None:
    notes = Notes()
    (tmp_path / "audit").write_text("no folder")
    async with Host({"n": notes.server}, audit=opened(tmp_path / "audit", required=True)) as host:
        with pytest.raises(Refused, match="audit log cannot be written") as refused:
            await host.call_tool("n__read", {"path": "a"})
        assert refused.value.reason == "audit"
        assert notes.calls == []
        (tmp_path / "audit").unlink()
        await host.call_tool("n__read", {"path": "b"})
    assert notes.calls == ["b"]
    assert verify(str(tmp_path / "audit")).is_valid


@live
async def test_a_call_is_not_sent_if_a_required_log_is_not_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = Notes()
    async with Host({"n": notes.server}, audit=opened(tmp_path, required=True)) as host:
        await host.call_tool("n__read", {"path": "a"})

        def fail(_: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        with monkeypatch.context() as broken:
            broken.setattr(audit_file.os, "fsync", fail)
            with pytest.raises(Refused, match="audit log cannot be written"):
                await host.call_tool("n__read", {"path": "b"})
    assert notes.calls == ["a"]


@live
async def test_a_call_is_sent_if_the_log_is_not_required(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    notes = Notes()
    (tmp_path / "audit").write_text("no folder")
    async with Host({"n": notes.server}, audit=opened(tmp_path / "audit")) as host:
        await host.call_tool("n__read", {"path": "a"})
        await host.call_tool("n__read", {"path": "b"})
    assert notes.calls == ["a", "b"]
    assert caplog.text.count("cannot be written") == 1


PROCESS = """
import asyncio, sys
from pathlib import Path
from colonnade import Host, Server
from host.audited import opened

server = Server("n")

@server.tool
def read(path: str) -> str:
    return path

async def main():
    async with Host({"n": server}, audit=opened(Path(sys.argv[1]), max_file_bytes=8000)) as host:
        for number in range(30):
            await host.call_tool("n__read", {"path": str(number)})

asyncio.run(main())
"""


def test_processes_that_write_to_one_folder_at_the_same_time_are_all_valid(tmp_path: Path) -> None:
    support = str(Path(__file__).parents[3] / "support")
    path = os.pathsep.join([support, os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", PROCESS, str(tmp_path)]
    running = [subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}) for _ in range(3)]
    assert [one.wait(60) for one in running] == [0, 0, 0]
    report = verify(str(tmp_path))
    assert report.is_valid, report.findings
    assert report.runs == 3
    assert report.notes == []
    assert report.lines == 3 * (30 * 4 + 1) + report.files


@live
async def test_a_host_of_a_configuration_has_the_log_of_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLONNADE_HOME", str(tmp_path / "home"))
    tiny = Path(__file__).parents[3] / "support" / "host" / "tiny.py"
    text = (
        f"[servers.tiny]\ncommand = {sys.executable!r}\nargs = ['-m', 'colonnade', 'run', '{tiny}']"
    )
    file = tmp_path / "colonnade.toml"
    file.write_text(f"[audit]\npath = 'log'\nrequired = true\nheads = 'heads.db'\n{text}\n")
    async with Host.from_config(file) as host:
        assert host.problems == []
        assert (await host.call_tool("tiny__tiny")).text == "tiny"
    assert [one["event"] for one in decoded(tmp_path / "log")][1:4] == [
        "proposed",
        "decided",
        "executed",
    ]
    assert (tmp_path / "heads.db").exists()
    assert KEY.hex() not in str(decoded(tmp_path / "log"))
