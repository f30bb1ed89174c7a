"""Children as channels: what works, and what becomes of each that misbehaves.

Rules: real processes; each test ends with nothing left of them (see `child_processes`), and in both
kinds of loop.
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from colonnade.client.client import Client
from colonnade.errors import ColonnadeError, ConnectionLost, Fault, LocalProtocolError, TimedOut
from colonnade.protocol import types as t
from colonnade.protocol.revision import Revision
from colonnade.transport import stdio
from colonnade.transport.process import child as child_file
from colonnade.transport.process import posix as child_process
from colonnade.transport.process.child import start_child
from live import Records
from transport.child_processes import (
    SHORT_S,
    WAIT_S,
    ChildConversation,
    child_conversation,
    misbehaving_server,
    nothing_left,
    on_asyncio,
    on_both_loops,
    until,
)

SERVER = Path(__file__).resolve().parents[2] / "support/transport/stdio_server.py"
LINE_BYTES = 256 * 1024

# Who answers a call, and with what.
WELL = {
    "serves": "fine",
    "answers_and_exits": "fine",
    "is_a_wrapper": "fine",
    "prints_a_banner": "fine",
    "forgets_the_last_newline": "",
    "carriage_returns": "",
    "floods_its_errors": "fine",
    "starts_slowly": "fine",
    "answers_twice": "fine",
    "ignores_the_end": "fine",
    "heeds_sigterm": "fine",
}

# Who does not, and how that ends: with these words, within the time-out of the call.
BADLY: dict[str, tuple[type[ColonnadeError], str]] = {
    "exits_with_0": (
        ConnectionLost,
        r"exited with 0 during 'git_log'; it had sent no message; .*: does it call run\(\)\?$",
    ),
    "exits_with_1": (
        ConnectionLost,
        r"^server 'git' \(pid \d+\) exited with 1 during 'git_log'; it had sent no message; its last lines: ModuleNotFoundError: No module named 'git'$",
    ),
    "exits_in_a_call": (
        ConnectionLost,
        r"exited with 3 during 'git_log'; .*its last lines:\n    Traceback \(most recent call last\):\n    KeyError: 'log'$",
    ),
    "dies_by_a_signal": (ConnectionLost, r"was killed by SIGSEGV during 'git_log'"),
    "forks_and_exits": (ConnectionLost, r"exited with 5 during 'git_log'"),
    "closes_its_output": (
        ConnectionLost,
        r"closed its output during 'git_log'; it did not exit, and is ended$",
    ),
    "prints_and_exits": (
        ConnectionLost,
        r"exited with 2 during 'git_log'; it had sent no message; it printed: usage: tool",
    ),
    "prints_for_ever": (
        ConnectionLost,
        r"wrote no message during 'git_log'; is it an MCP server on stdio\?; it printed:\n    y\n",
    ),
    "half_a_line_and_the_end": (
        ConnectionLost,
        r"exited with 0 during 'git_log'; .*it printed: half a line: {\"jsonrpc\": \"2.0\"",
    ),
    "a_huge_line": (ConnectionLost, rf"wrote a line of more than {LINE_BYTES} bytes during"),
    "is_not_utf8": (Fault, r"a message that is not UTF-8"),
    "nests_too_deep": (Fault, r"nested deeper than 64 levels"),
    "nests_too_deep_and_says_its_id_last": (Fault, r"nested deeper than 64 levels"),
    "says_nan": (Fault, r"not JSON: "),
    "is_cut_off": (Fault, r"not JSON: .*truncated"),
    "says_a_member_twice": (Fault, r"the same member twice"),
}

# Who never answers: the time-out of the call is its end.
LATE = (
    *("half_a_line_and_a_pause", "never_reads", "says_nothing", "answers_another", "stops_itself"),
    "closes_its_input",
)


def quietly() -> Records:
    return Records("colonnade.transport")


# ---------------------------------------------------------------- what works


@pytest.mark.parametrize("mode", WELL)
@on_both_loops
async def test_a_server_that_can_answer_is_heard(mode: str) -> None:
    with quietly():
        async with child_conversation(mode) as conversation:
            assert await conversation.call() == WELL[mode]


@pytest.mark.spec("R0039")
@on_both_loops
async def test_a_client_speaks_with_a_server_of_ours_in_every_revision(revision: Revision) -> None:
    with nothing_left():
        child = await start_child([sys.executable, SERVER], name="ours")
        client = Client(child.open_conversation, info=t.Implementation(name="c", version="1"))
        try:
            await client.open(revision)
            assert client.revision == revision.date
            assert (await client.call_tool("echo", {"text": "grüß\ndich"})).text == "grüß\ndich"
            assert len((await client.call_tool("large", {"size": 3_000_000})).text) == 3_000_000
            texts = [client.call_tool("echo", {"text": str(n)}) for n in range(50)]
            assert [one.text for one in await asyncio.gather(*texts)] == [str(n) for n in range(50)]
        finally:
            await client.close()
        assert "lifespan left" in str(child.output)  # it was not killed
        with pytest.raises(ConnectionLost):
            await client.list_tools()


@pytest.mark.spec("R0044", "R0483")
@on_asyncio
async def test_nothing_but_messages_is_written_to_a_server_in_every_revision(
    revision: Revision,
) -> None:
    heard: list[str] = []
    with nothing_left():
        child = await start_child(misbehaving_server("shows_what_it_hears"), on_stderr=heard.append)
        client = Client(child.open_conversation, info=t.Implementation(name="c", version="1"))
        try:
            await client.open(revision)
            with pytest.raises(TimedOut):
                await client.call_tool("a\nb", {"text": "c\r\nd"}, timeout_s=SHORT_S)
            await until(lambda: "notifications/cancelled" in heard[-1])
        finally:
            await client.close()
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in heard)
    assert str(child.lost) == "the client was closed"  # what is on standard error is no failure


@on_both_loops
async def test_a_child_gets_a_session_three_streams_and_what_it_is_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLONNADE_CANARY", "canary-5f3e")
    monkeypatch.setenv("LC_TIME", "C.UTF-8")
    before = set(os.environ)
    async with child_conversation(
        "shows_what_it_was_given", cwd=tmp_path, env={"GIVEN": "yes"}
    ) as conversation:
        given: dict[str, Any] = json.loads(await conversation.call())
    assert given["cwd"] == str(tmp_path)
    assert given["leads"] == [True, True]
    assert given["open"] == [0, 1, 2, 3]  # the last is the folder that lists them
    environ = given["environ"]
    assert environ.pop("GIVEN") == "yes"
    assert len(environ.pop("COLONNADE_CHILD")) == 32
    environ.pop("LC_CTYPE", None)  # Python's own, where there is no locale
    assert environ["LC_TIME"] == "C.UTF-8"
    assert environ["PATH"] == os.environ["PATH"]
    assert set(environ) <= before - {"COLONNADE_CANARY"}
    assert "canary-5f3e" not in json.dumps(given)


@on_asyncio
async def test_no_task_and_no_thread_belongs_to_a_child_that_lives() -> None:
    async with child_conversation("serves") as conversation:
        await conversation.call()
        assert len(asyncio.all_tasks()) == 1


@on_asyncio
async def test_a_reader_that_stumbles_misses_nothing_after_it() -> None:
    unheard: list[Any] = []
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: unheard.append(context["exception"]))
    async with child_conversation("answers_twice") as conversation:
        receive, seen = conversation.duplex.receive, list[bytes]()

        def stumble(frame: bytes) -> None:
            seen.append(frame)
            if len(seen) == 1:
                raise RuntimeError("stumbled")
            receive(frame)

        conversation.duplex.receive = stumble  # type: ignore[method-assign]
        assert await conversation.call() == "again"
    loop.set_exception_handler(before)
    assert [str(one) for one in unheard] == ["stumbled"]


# ---------------------------------------------------------------- the zoo


@pytest.mark.parametrize("mode", BADLY)
@on_both_loops
async def test_a_server_that_misbehaves_is_reported_for_what_it_did(mode: str) -> None:
    kind, words = BADLY[mode]
    with quietly():
        async with child_conversation(mode, max_line_bytes=LINE_BYTES) as conversation:
            with pytest.raises(kind, match=words):
                await conversation.call()
            if kind is ConnectionLost:
                assert conversation.client.ended == 1
                assert conversation.child.lost is not None
                with pytest.raises(ConnectionLost, match=r"server 'git' \(pid \d+\) \w+"):
                    await conversation.child.drain()


@pytest.mark.parametrize("mode", LATE)
@on_asyncio
async def test_a_server_that_never_answers_costs_the_time_out_and_no_more(mode: str) -> None:
    async with child_conversation(mode) as conversation:
        with pytest.raises(TimedOut, match="no answer to tools/call"):
            await conversation.call(timeout_s=SHORT_S)
        assert conversation.child.lost is None


@on_asyncio
async def test_a_server_that_closed_its_input_is_found_out_by_the_next_call() -> None:
    async with child_conversation("closes_its_input") as conversation:
        await conversation.ready()
        with pytest.raises(
            ConnectionLost, match=r"server 'git' \(pid \d+\) stopped reading \(Broken pipe\) during"
        ):
            await conversation.call()


@on_asyncio
async def test_a_server_that_died_between_calls_is_known_to_have() -> None:
    async with child_conversation("answers_and_exits") as conversation:
        assert await conversation.call() == "fine"
        await until(lambda: conversation.child.lost is not None)
        assert "exited with 0" in str(conversation.child.lost)
        assert conversation.client.ended == 1


@on_asyncio
async def test_what_is_no_message_is_counted_and_reported_once() -> None:
    with quietly() as records:
        async with child_conversation("prints_a_banner") as conversation:
            await conversation.call()
            await conversation.call()
            assert conversation.child.noise_lines == 3 + 2 * 3
            assert conversation.child.lost is None
            assert "it printed:" in str(conversation.child.output)
    (line,) = [line for line in records.lines if line.startswith("WARNING")]
    assert line.endswith("what is not a message: 'Welcome to 🐙 1.0'")


@on_asyncio
async def test_every_line_of_standard_error_is_handed_on_and_the_last_ones_kept() -> None:
    async with child_conversation("floods_its_errors") as conversation:
        assert await conversation.call() == "fine"
        await until(lambda: len(conversation.stderr_lines) == 4096)
        assert set(conversation.stderr_lines) == {"x" * 1023}
        lines = str(conversation.child.output).splitlines()
        assert len("".join(lines)) < 5000
        assert lines[-1].strip() == "and an end without a newline"


@on_asyncio
async def test_who_listens_to_standard_error_may_stumble() -> None:
    def stumble(line: str) -> None:
        raise RuntimeError(line)

    with nothing_left(), quietly() as records:
        child = await start_child(misbehaving_server("exits_with_1"), on_stderr=stumble)
        ChildConversation(child, [])
        await until(lambda: child.lost is not None)
        await child.close()
    assert [line for line in records.lines if "on_stderr raised RuntimeError" in line]


@on_asyncio
async def test_no_error_shows_what_is_secret() -> None:
    env = {"API_KEY": "sk-canary-4711", "HOME_OF_IT": str(Path.cwd())}
    command = [*misbehaving_server("tells_its_secret"), "--token=canary-token-1"]
    with nothing_left():
        child = await start_child(command, name="git", env=env)
        conversation = ChildConversation(child, [])
        with pytest.raises(ConnectionLost) as caught:
            await conversation.call()
        await child.close()
    said = str(caught.value)
    assert "canary" not in said
    assert f"its last lines: the key [redacted] is not valid, in {Path.cwd()}" in said


# ---------------------------------------------------------------- a child that does not read


@on_asyncio
async def test_writing_to_a_child_that_never_reads_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stdio, "MAX_UNREAD_BYTES", 200_000)
    async with child_conversation("never_reads") as conversation:
        calling = asyncio.ensure_future(conversation.call())
        while conversation.child.lost is None:
            conversation.child.write(b'{"jsonrpc":"2.0","method":"notifications/x"}' * 100)
            await asyncio.sleep(0)
        with pytest.raises(
            ConnectionLost, match=r"server 'git' \(pid \d+\) left 200000 bytes unread during"
        ):
            await calling


@on_both_loops
async def test_whoever_drains_waits_for_a_child_that_reads_and_for_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stdio, "DRAIN_BYTES", 100_000)
    line = json.dumps({"jsonrpc": "2.0", "method": "x" * 1000}).encode()
    async with child_conversation("says_nothing") as conversation:
        for _ in range(20):
            for _ in range(200):
                conversation.child.write(line)
            await conversation.child.drain()
    monkeypatch.setattr(child_file, "STALL_S", SHORT_S)
    async with child_conversation("never_reads") as conversation:
        for _ in range(400):
            conversation.child.write(line)
        with pytest.raises(ConnectionLost, match=r"server 'git' .* read nothing for 0.2 s"):
            await conversation.child.drain()
        assert conversation.child.lost is not None


@on_asyncio
async def test_a_drain_that_waits_learns_how_the_child_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stdio, "DRAIN_BYTES", 100_000)
    async with child_conversation("never_reads") as conversation:
        await conversation.ready()
        for _ in range(400):
            conversation.child.write(b"{}" * 500)
        draining = asyncio.ensure_future(conversation.child.drain())
        await asyncio.sleep(0)
        os.kill(conversation.child.pid, 9)
        with pytest.raises(ConnectionLost, match=r"was killed by SIGKILL; it had sent no message"):
            await draining


# ---------------------------------------------------------------- how its end is seen


@pytest.mark.parametrize("mode", ["exits_with_1", "serves", "forks_and_exits", "ignores_the_end"])
@on_asyncio
async def test_where_no_descriptor_tells_of_an_end_it_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    none: Callable[[int], None] = lambda pid: None  # noqa: E731
    monkeypatch.setattr(child_process, "descriptor_of", none)
    async with child_conversation(mode) as conversation:
        if mode in BADLY:
            with pytest.raises(ConnectionLost, match=BADLY[mode][1]):
                await conversation.call()
        else:
            assert await conversation.call() == "fine"


@on_asyncio
async def test_who_waits_for_all_processes_takes_nothing_but_the_status() -> None:
    async with child_conversation("serves") as conversation:
        await conversation.call()
        os.kill(conversation.child.pid, 9)
        os.waitpid(conversation.child.pid, 0)  # as some programs do for every child
        with pytest.raises(
            ConnectionLost, match=r"server 'git' \(pid \d+\) ended with an unknown status"
        ):
            await conversation.call()


@on_asyncio
async def test_lines_that_are_still_in_the_pipe_are_found(tmp_path: Path) -> None:
    """A response may be read before the lines that the child wrote ahead of it."""
    written = tmp_path / "written"
    os.mkfifo(written)
    script = 'echo before >&2; echo "crash (id 4f2a91)" >&2; echo after >&2; : >"$0"; exec cat'
    with nothing_left():
        child = await start_child(["/bin/sh", "-c", script, str(written)], name="git")
        try:
            written.read_bytes()  # blocks the loop, which reads nothing meanwhile
            assert child.lines_since("4f2a91") == ["crash (id 4f2a91)", "after"]
        finally:
            await child.close()


@on_asyncio
async def test_a_child_has_one_reader() -> None:
    async with child_conversation("serves") as conversation:
        with pytest.raises(LocalProtocolError, match="already in use"):
            ChildConversation(conversation.child, [])


@on_both_loops
async def test_a_child_that_ended_before_anybody_listened_is_reported_all_the_same() -> None:
    with nothing_left():
        child = await start_child(misbehaving_server("prints_and_exits"), name="git")
        await until(lambda: child._process.over)
        assert child.lost is None
        with quietly():
            conversation = ChildConversation(child, [])
            with pytest.raises(ConnectionLost, match=r"exited with 2 .*usage: tool"):
                await conversation.call(timeout_s=WAIT_S)
        await child.close()
        assert conversation.client.ended == 1
