"""The audit log, the inbox and the pins of a configuration are in force after a reload, as rules
are; what was before them is closed."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from colonnade import ColonnadeError, Context, Host, Inbox, Policy, Refused, Rule, Server
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import (
    AuditSettings,
    Config,
    PinsTable,
    Place,
    ServerEntry,
    Settings,
)
from colonnade.host.policy.approvals.approvals import Approvals
from colonnade.host.policy.approvals.config import ApprovalSettings
from colonnade.host.policy.approvals.inbox import InboxAnswer
from colonnade.host.policy.audit.log import AuditLog
from colonnade.host.policy.audit.verify import verify
from colonnade.host.policy.pins.pins import Pins
from colonnade.store.memory import MemoryStore
from host.drifting import Drifting
from live import live, until

YES = InboxAnswer(action="accept")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the user, where pins, keys and sockets are."""
    folder = tmp_path / "home"
    monkeypatch.setenv("COLONNADE_HOME", str(folder))
    return folder


def entries(server: Server | None = None, settings: Settings | None = None) -> dict[str, Any]:
    return {"a": entry_of("a", server or Drifting(), settings)}


def audit(path: Path, *, required: bool = False, line: int = 1) -> AuditSettings:
    place = Place("colonnade.toml", line, 1, "audit")
    return AuditSettings(
        path=str(path), required=required, contents="none", redact=(), heads="", place=place
    )


def inbox_of(host: Host) -> Inbox:
    parts = host._parts
    assert parts is not None
    assert isinstance(parts.approver, Approvals)
    return parts.approver.inbox


def lines(folder: Path, words: str) -> int:
    """How many lines of an audit log have these words."""
    return sum(one.read_text().count(words) for one in folder.glob("*.jsonl"))


ASK = Policy([Rule("ask", tools="a__read")], default="allow")


# ---------------------------------------------------------------- audit


@pytest.mark.parametrize("policy", [None, Policy(default="allow")])
@pytest.mark.parametrize("required", [False, True])
@live
async def test_an_audit_log_that_is_new_is_written_after_a_reload(
    tmp_path: Path, policy: Policy | None, required: bool
) -> None:
    servers = entries()
    async with Host(Config(entries=servers, policy=policy)) as host:
        await host.call_tool("a__read")
        log = audit(tmp_path / "log", required=required)
        await host.reload(Config(entries=servers, policy=policy, audit=log))
        assert host.problems == []
        await host.call_tool("a__read")
    assert lines(tmp_path / "log", '"event":"returned"') == 1
    assert lines(tmp_path / "log", '"event":"closed"') == 1
    assert verify(str(tmp_path / "log")).is_valid


@live
async def test_an_audit_log_that_cannot_be_written_refuses_calls_if_it_is_required(
    tmp_path: Path,
) -> None:
    (tmp_path / "log").touch()  # no folder
    servers = entries()
    async with Host(Config(entries=servers)) as host:
        await host.call_tool("a__read")
        await host.reload(Config(entries=servers, audit=audit(tmp_path / "log", required=True)))
        (problem,) = host.problems
        assert problem.hint == "every call is refused until it can be"
        with pytest.raises(Refused, match="the audit log cannot be written"):
            await host.call_tool("a__read")


@live
async def test_a_log_that_cannot_be_written_is_a_problem_and_the_one_before_stays(
    tmp_path: Path,
) -> None:
    servers, one, two = entries(), tmp_path / "one", tmp_path / "two"
    two.touch()  # no folder
    async with Host(Config(entries=servers, audit=audit(one))) as host:
        for required in (False, True):
            changed = audit(two, required=required, line=7)
            await host.reload(Config(entries=servers, audit=changed))
            (problem,) = host.problems
            assert str(problem).startswith(
                f"colonnade.toml:7:1: audit: the audit log in {two} cannot be written: "
            )
            assert problem.hint == "what was in force before it still is"
            await host.call_tool("a__read")
        assert lines(one, '"event":"closed"') == 0
        two.unlink()
        await host.reload(Config(entries=servers, audit=audit(two)))
        assert host.problems == []
        await host.call_tool("a__read")
    assert (lines(one, '"event":"returned"'), lines(two, '"event":"returned"')) == (2, 1)


@live
async def test_a_log_that_can_be_written_again_is_a_problem_no_more(tmp_path: Path) -> None:
    servers, folder = entries(), tmp_path / "log"
    folder.touch()  # no folder
    config = Config(entries=servers, audit=audit(folder))
    async with Host(Config(entries=servers)) as host:
        for _ in range(2):
            await host.reload(config)
            (problem,) = host.problems
            assert problem.hint == "calls are not recorded until it can be"
        folder.unlink()
        await host.reload(config)
        assert host.problems == []
        await host.call_tool("a__read")
    assert lines(folder, '"event":"returned"') == 1


@live
async def test_a_host_whose_required_log_cannot_be_written_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "log").touch()  # no folder
    config = Config(entries=entries(), audit=audit(tmp_path / "log", required=True))
    with pytest.raises(Refused, match=r"the audit log in .* cannot be written") as refused:
        async with Host(config):
            pass
    assert refused.value.reason == "audit"


@live
async def test_a_host_whose_log_cannot_be_written_says_so_when_it_starts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "log").touch()  # no folder
    async with Host(Config(entries=entries(), audit=audit(tmp_path / "log"))) as host:
        assert "cannot be written" in caplog.text
        assert "calls are not recorded until it can be" in caplog.text
        await host.call_tool("a__read")


@live
async def test_a_folder_that_is_checked_has_no_file_before_the_first_call(tmp_path: Path) -> None:
    async with Host(Config(entries=entries(), audit=audit(tmp_path / "log"))):
        assert list((tmp_path / "log").iterdir()) == []


@live
async def test_an_audit_log_that_is_another_or_gone_ends_the_one_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    servers, one, two = entries(), tmp_path / "one", tmp_path / "two"
    async with Host(Config(entries=servers, audit=audit(one))) as host:
        await host.call_tool("a__read")
        await host.reload(Config(entries=servers, audit=audit(one, line=7)))  # it has only moved
        await host.call_tool("a__read")
        assert len(list(one.glob("*.jsonl"))) == 1
        await host.reload(Config(entries=servers, audit=audit(two, required=True)))
        assert lines(one, '"event":"closed"') == 1
        await host.call_tool("a__send")
        await host.reload(Config(entries=servers))
        assert "there is no audit log any more" in caplog.text
        await host.call_tool("a__send")
    assert (lines(one, '"event":"returned"'), lines(two, '"event":"returned"')) == (2, 1)
    assert verify(str(one)).is_valid
    assert verify(str(two)).is_valid


@live
async def test_a_call_in_flight_ends_in_the_log_that_it_began_in(tmp_path: Path) -> None:
    server, began, goes_on = Server("a"), asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> str:
        began.set()
        await goes_on.wait()
        return "done"

    servers, one, two = entries(server), tmp_path / "one", tmp_path / "two"
    async with Host(Config(entries=servers, audit=audit(one))) as host:
        calling = asyncio.ensure_future(host.call_tool("a__wait"))
        await began.wait()
        await host.reload(Config(entries=servers, audit=audit(two)))
        goes_on.set()
        assert (await calling).text == "done"
        records = host._runtime.guard._records  # type: ignore[union-attr]
        assert records._steps == {}
    assert (lines(one, '"event":"returned"'), lines(two, '"event":"returned"')) == (1, 0)


@live
async def test_a_call_in_flight_without_a_log_leaves_nothing_behind(tmp_path: Path) -> None:
    server, began, goes_on = Server("a"), asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> str:
        began.set()
        await goes_on.wait()
        return "done"

    servers, policy = entries(server), Policy(default="allow")
    async with Host(Config(entries=servers, policy=policy)) as host:
        calling = asyncio.ensure_future(host.call_tool("a__wait"))
        await began.wait()
        await host.reload(Config(entries=servers, policy=policy, audit=audit(tmp_path / "log")))
        goes_on.set()
        await calling
        assert host._runtime.guard._records._steps == {}  # type: ignore[union-attr]


# ---------------------------------------------------------------- inbox


@live
async def test_an_inbox_that_is_new_is_asked_after_a_reload_and_has_its_socket(home: Path) -> None:
    servers = entries()
    async with Host(Config(entries=servers, policy=ASK)) as host:
        with pytest.raises(Refused, match="no way to ask"):
            await host.call_tool("a__read")
        await host.reload(Config(entries=servers, policy=ASK, approvals=ApprovalSettings()))
        assert host.problems == []
        assert len(list((home / "run").glob("*.sock"))) == 1
        inbox = inbox_of(host)
        calling = asyncio.ensure_future(host.call_tool("a__read"))
        await until(lambda: bool(inbox._waiters))
        (item,) = await inbox.items()
        await inbox.answer(item.id, YES)
        assert (await calling).text == "text"
        await host.reload(Config(entries=servers, policy=ASK))
        assert list((home / "run").glob("*.sock")) == []
        with pytest.raises(Refused, match="no way to ask"):
            await host.call_tool("a__read")


@live
async def test_an_inbox_that_is_new_answers_the_forms_of_servers() -> None:
    server = Server("a")

    @server.tool
    async def book(ctx: Context) -> str:
        return await ctx.elicit("Which seat?", str)

    servers = entries(server)
    async with Host(Config(entries=servers)) as host:
        await host.list_tools()
        await host.reload(Config(entries=servers, approvals=ApprovalSettings(socket=True)))
        inbox = inbox_of(host)
        calling = asyncio.ensure_future(host.call_tool("a__book"))
        await until(lambda: bool(inbox._waiters))
        (item,) = await inbox.items()
        assert item.kind == "form"
        await inbox.answer(item.id, InboxAnswer(action="accept", content='{"value":"12A"}'))
        assert (await calling).text == "12A"


@live
async def test_a_call_that_waits_in_an_inbox_that_is_replaced_is_told(tmp_path: Path) -> None:
    servers, store = entries(), str(tmp_path / "inbox.db")
    first = ApprovalSettings(wait_s=30.0)  # so that it ends if it is not told
    async with Host(Config(entries=servers, policy=ASK, approvals=first)) as host:
        before = inbox_of(host)
        calling = asyncio.ensure_future(host.call_tool("a__read"))
        await until(lambda: bool(before._waiters))
        second = ApprovalSettings(store=store)
        await host.reload(Config(entries=servers, policy=ASK, approvals=second))
        with pytest.raises(Refused, match="withdrawn; call again to ask anew"):
            await calling
        after = inbox_of(host)
        assert after is not before
        third = ApprovalSettings(store=store, wait_s=0.0, usable_s=9.0, deadline_s=8.0)
        await host.reload(Config(entries=servers, policy=ASK, approvals=third))
        assert inbox_of(host) is after
        assert (after.wait_s, after.usable_s, after.deadline_s) == (0.0, 9.0, 8.0)
        with pytest.raises(Refused, match="it is waiting for approval"):
            await host.call_tool("a__read")


@live
async def test_an_inbox_that_cannot_be_opened_is_a_problem_and_the_one_before_stays(
    home: Path, tmp_path: Path
) -> None:
    servers = entries()
    config = Config(entries=servers, policy=ASK, approvals=ApprovalSettings(socket=False))
    async with Host(config) as host:
        before = inbox_of(host)
        home.mkdir()
        (home / "run").touch()  # where the socket is to be
        changed = ApprovalSettings(store=str(tmp_path / "inbox.db"), socket=True)
        await host.reload(Config(entries=servers, policy=ASK, approvals=changed))
        (problem,) = host.problems
        assert "[approvals] has changed and cannot be used" in problem.message
        assert inbox_of(host) is before
        os.unlink(home / "run")
        await host.reload(Config(entries=servers, policy=ASK, approvals=changed))
        assert host.problems == []
        assert inbox_of(host) is not before


# ---------------------------------------------------------------- pins


@pytest.mark.parametrize("by", ["table", "server"])
@pytest.mark.parametrize("policy", [None, Policy(default="allow")])
@live
async def test_pins_that_are_new_hold_after_a_reload(by: str, policy: Policy | None) -> None:
    server = Drifting()
    plain = Config(entries=entries(server), policy=policy)
    settings = Settings(pins="strict") if by == "server" else None
    pinned = Config(
        entries=entries(server, settings),
        policy=policy,
        pins=PinsTable() if by == "table" else None,
    )
    async with Host(plain) as host:
        await host.call_tool("a__read")
        await host.reload(pinned)
        assert host.problems == []
        await host.call_tool("a__read")  # seen for the first time
        server.lists["tools"][0]["description"] = "Reads, and mails it."
        assert [one.name for one in await host.list_tools(fresh=True)] == ["a__send"]
        with pytest.raises(Refused, match="its description changed"):
            await host.call_tool("a__read")
        await host.reload(plain)
        await host.call_tool("a__read")


@live
async def test_a_session_that_was_opened_without_pins_is_not_used_with_them() -> None:
    """It could be opened again below a call, and its list was not compared."""
    server = Drifting()
    servers = entries(server)
    async with Host(Config(entries=servers, pins=PinsTable(mode="warn"))) as host:
        await host.call_tool("a__read")
        before = host._runtime.generation.servers["a"]
        await host.reload(Config(entries=servers, pins=PinsTable(mode="warn")))
        assert host._runtime.generation.servers["a"] is before
        await host.reload(Config(entries=servers, pins=PinsTable()))
        assert host._runtime.generation.servers["a"] is not before


@live
async def test_pins_and_an_inbox_that_are_new_show_what_is_held() -> None:
    server = Drifting()
    servers = entries(server)
    async with Host(Config(entries=servers)) as host:
        await host.list_tools()
        pins = PinsTable(first="review")
        await host.reload(Config(entries=servers, pins=pins, approvals=ApprovalSettings()))
        assert await host.list_tools() == []
        inbox = inbox_of(host)
        (item,) = await inbox.items()
        assert (await inbox.answer(item.id, YES, serial=item.serial)).won
        assert len(await host.list_tools()) == 2
        await host.reload(Config(entries=servers, pins=pins))
        server.lists["tools"][0]["description"] = "Reads, and mails it."
        assert len(await host.list_tools(fresh=True)) == 1  # it is held, and shown in no inbox


# ---------------------------------------------------------------- parts of the program


@live
async def test_what_the_program_has_given_is_not_replaced_by_a_table(tmp_path: Path) -> None:
    servers: dict[str, ServerEntry] = entries()
    inbox, pins = Inbox(), Pins(MemoryStore(), first="review")
    own = AuditLog(tmp_path / "own")
    async with Host(Config(entries=servers), inbox=inbox, pins=pins, audit=own) as host:
        table = PinsTable(first="accept")
        config = Config(
            entries=servers,
            audit=audit(tmp_path / "table"),
            approvals=ApprovalSettings(),
            pins=table,
        )
        await host.reload(config)
        assert inbox_of(host) is inbox
        assert not (tmp_path / "table").exists()
        await host.reload(Config(entries=servers))
        assert (pins.mode, pins.first) == ("strict", "accept")
        await host.call_tool("a__read")
    assert lines(tmp_path / "own", '"event":"returned"') == 1
    assert not (tmp_path / "table").exists()


@live
async def test_hidden_text_is_contained_after_a_reload_that_asks_for_it() -> None:
    server = Server("a")

    @server.tool
    def look() -> str:
        return "re\u202eply"

    async with Host(Config(entries=entries(server))) as host:
        assert "\u202e" in (await host.call_tool("a__look")).text
        settings = Settings(contain="neutralise")
        await host.reload(Config(entries=entries(server, settings)))
        assert "\u202e" not in (await host.call_tool("a__look")).text


@live
async def test_a_server_whose_text_is_not_to_be_contained_is_left_alone_after_a_reload() -> None:
    server = Server("a")

    @server.tool
    def look() -> str:
        return "re\u202eply"

    servers = entries(server, Settings(contain="off"))
    async with Host(Config(entries=servers)) as host:
        await host.call_tool("a__look")
        await host.reload(Config(entries=servers, policy=Policy(default="allow")))
        assert "\u202e" in (await host.call_tool("a__look")).text


@live
async def test_two_reloads_at_once_are_one_after_the_other(tmp_path: Path) -> None:
    servers = entries()
    async with Host(Config(entries=servers, policy=ASK)) as host:
        stores = [str(tmp_path / f"{number}.db") for number in range(4)]
        await asyncio.gather(
            *(
                host.reload(
                    Config(entries=servers, policy=ASK, approvals=ApprovalSettings(store=one))
                )
                for one in stores
            )
        )
        parts = host._parts
        assert parts is not None
        assert parts._tables.approvals.store == stores[-1]
        assert host._runtime.guard._admission.approver is parts.approver  # type: ignore[union-attr]


@pytest.mark.parametrize("policy", [None, Policy(default="allow")])
@live
async def test_a_call_that_waits_for_its_server_is_not_sent_past_rules_that_are_new(
    policy: Policy | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    server = Server("a")

    @server.tool
    async def wipe() -> str:
        called.append("wipe")
        return "done"

    waits, goes_on = asyncio.Event(), asyncio.Event()
    async with Host({"a": server}, policy=policy) as host:
        await host.list_tools()
        supervisor = host._runtime.generation.servers["a"].supervisor
        acquire = supervisor._acquire

        async def acquire_later(request: Any) -> Any:
            call = await acquire(request)
            waits.set()
            await goes_on.wait()
            return call

        monkeypatch.setattr(supervisor, "_acquire_open", lambda request: None)
        monkeypatch.setattr(supervisor, "_acquire", acquire_later)
        call = asyncio.create_task(host.call_tool("a__wipe"))
        await waits.wait()
        host._own_policy = Policy([Rule("deny", tools="*")], default="allow")
        await host.reload({"a": server})
        goes_on.set()
        with pytest.raises(ColonnadeError):
            await call
        assert called == []
