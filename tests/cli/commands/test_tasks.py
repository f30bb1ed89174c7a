"""`colonnade tasks`: a call that was interrupted goes on, and is found again."""

import asyncio
import json
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.process import Process, command, written
from cli.terminal import INTERRUPT, PseudoTerminal
from colonnade.cli.commands.add import name_for
from colonnade.cli.errors import CliError
from colonnade.cli.options import ConnectionOptions
from colonnade.cli.task_records import KeptTask, find_task, forget_task, keep_task, kept_tasks
from colonnade.host.tasks import PREFIX, HostTaskRecord, HostTaskRecords
from colonnade.ports import SERVER_PRINCIPAL
from colonnade.protocol.revision import Tasks
from colonnade.protocol.tasks.client import TaskHandle
from colonnade.store.sqlite import SqliteStore
from providers.scripted import Scripted

PRESS = """
import asyncio
import os

from colonnade import Context, Server

server = Server("press")


@server.tool(task=True)
async def book(topic: str, ctx: Context) -> str:
    await ctx.progress(1, 2, "chapter 1")
    while not os.path.exists("printed"):
        await asyncio.sleep(0.02)
    return f"a book about {topic}"


@server.tool(task="required")
async def order(ctx: Context) -> str:
    return f"{await ctx.elicit('How many copies?', int)} copies"


@server.tool(task="required")
async def quick() -> str:
    return "at once"
"""

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="SIGINT of another process")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path, server=PRESS)


@pytest.fixture
def served(folder: Path) -> Iterator[Process]:
    with Process(folder, "serve", "server.py", "--port", "0") as process:
        process.up()
        yield process


def run(folder: Path, *arguments: str, **more: str) -> tuple[int, str, str]:
    done = command(folder, *arguments, COLONNADE_HOME=str(folder / "home"), **more)
    return done.returncode, done.stdout, done.stderr


def interrupted(folder: Path, *arguments: str) -> tuple[str, str]:
    """Begin a call and interrupt it; the id and the handle of its task."""
    home = folder / "home"
    with Process(folder, *arguments, COLONNADE_HOME=str(home)) as call:
        while not list((home / "tasks").glob("*.json")):
            assert call.process.poll() is None, call.err.rest()
        call.signal(signal.SIGINT)
        lines = "\n".join(call.err.rest())
        assert call.end() == 130
    found = re.search(r"colonnade tasks wait (\w+)\ncolonnade: its handle is (\S+)", lines)
    assert found, lines
    return found[1], found[2]


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_an_interrupted_call_goes_on_and_its_result_is_printed_later(
    folder: Path, served: Process, revision: str
) -> None:
    url = f"http://127.0.0.1:{served.port}/mcp"
    id, handle = interrupted(folder, "call", url, "book", "topic=tea", "--as", revision)
    code, out, _ = run(folder, "tasks", "ls")
    assert code == 0
    assert out.split()[:3] == [id, "book", url]
    code, out, _ = run(folder, "tasks", "show", id[:4])
    assert (code, re.search(r"status +working", out) is not None) == (0, True)
    assert handle in out
    (folder / "printed").touch()
    assert run(folder, "tasks", "wait", id) == (0, "a book about tea\n", "")
    assert run(folder, "tasks", "ls") == (0, "there are no tasks\n", "")
    if revision == "2026-07-28":
        assert run(folder, "tasks", "wait", handle)[:2] == (0, "a book about tea\n")


def test_tasks_of_a_chat_are_listed_with_the_others(folder: Path) -> None:
    record = HostTaskRecord("a-handle", "press", "press__book", "", 1.0)

    async def keep() -> None:
        store = SqliteStore(folder / "home" / "chat.db")
        await HostTaskRecords(store).put(record)
        await store.close()

    (folder / "home").mkdir()
    asyncio.run(keep())
    code, out, _ = run(folder, "tasks", "ls")
    assert (code, out.split()[:2]) == (0, [record.id, "press__book"])
    assert "colonnade chat, server press" in out
    code, out, _ = run(folder, "tasks", "ls", "--json")
    assert [one["handle"] for one in json.loads(out)["tasks"]] == ["a-handle"]
    code, _, err = run(folder, "tasks", "wait", record.id)
    assert (code, f"type /tasks {record.id} in a chat" in err) == (2, True), err


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_task_that_asks_is_answered_in_another_terminal(
    folder: Path, served: Process, revision: str
) -> None:
    url = f"http://127.0.0.1:{served.port}/mcp"

    def opened(*arguments: str) -> PseudoTerminal:
        home = str(folder / "home")
        return PseudoTerminal(folder, *arguments, COLONNADE_HOME=home, NO_COLOR="1")

    with opened("call", url, "order", "--as", revision) as terminal:
        terminal.until("(integer): ")
        terminal.type(INTERRUPT)
        assert terminal.end()[0] == 130
    id = run(folder, "tasks", "ls")[1].split()[0]
    with opened("tasks", "answer", id) as terminal:
        assert "How many copies?" in terminal.answer("(integer): ", "3")
        terminal.answer("decline or cancel? [send] ", "")
        assert terminal.end()[0] == 0
    assert run(folder, "tasks", "wait", id)[:2] == (0, "3 copies\n")


def test_a_call_that_was_killed_is_found_again(folder: Path, served: Process) -> None:
    url = f"http://127.0.0.1:{served.port}/mcp"
    home = folder / "home"
    with Process(folder, "call", url, "book", "topic=tea", COLONNADE_HOME=str(home)) as call:
        while not list((home / "tasks").glob("*.json")):
            assert call.process.poll() is None, call.err.rest()
        call.signal(signal.SIGKILL)
        call.end()
    (folder / "printed").touch()
    id = run(folder, "tasks", "ls")[1].split()[0]
    assert run(folder, "tasks", "wait", id)[:2] == (0, "a book about tea\n")


def test_a_task_of_a_configured_server_is_cancelled(folder: Path, served: Process) -> None:
    url = f"http://127.0.0.1:{served.port}/mcp"
    config = {"mcpServers": {"press": {"url": url}}}
    (folder / "mcp.json").write_text(json.dumps(config))
    assert run(folder, "config", "trust", "mcp.json", "--yes")[0] == 0
    id, _ = interrupted(folder, "call", "mcp.json", "press__book", "topic=tea")
    code, out, _ = run(folder, "tasks", "show", id, "--json")
    shown = json.loads(out)
    assert (code, shown["tool"], shown["status"]) == (0, "press__book", "working")
    code, _, err = run(folder, "tasks", "answer", id)
    assert (code, err) == (0, f"colonnade: {id} asks nothing; it is working\n")
    assert run(folder, "tasks", "cancel", id) == (0, "", "")
    assert json.loads(run(folder, "tasks", "ls", "--json")[1]) == {"tasks": []}
    code, _, err = run(folder, "tasks", "wait", id)
    assert code == 2
    assert f"there is no task {id}" in err


def test_a_task_that_ends_in_time_is_not_kept(folder: Path) -> None:
    assert run(folder, "call", "server.py", "quick") == (0, "at once\n", "")
    assert run(folder, "tasks", "ls")[1] == "there are no tasks\n"


# ---------------------------------------------------------------- records


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLONNADE_HOME", str(tmp_path))
    return tmp_path


def handle_of(task_id: str, server: str = "https://press.example/mcp") -> str:
    return TaskHandle(server, task_id, "book", Tasks.EXTENSION).encode()


def kept(task_id: str, target: Any = "https://ada:secret@press.example/mcp?k=secret") -> KeptTask:
    return keep_task(handle_of(task_id), "book", ConnectionOptions(target))


def test_a_record_is_for_the_user_alone_and_shows_no_secret(home: Path) -> None:
    one, other = kept("1"), kept("2", ("uvx", "press"))
    assert [task.id for task in kept_tasks()] == [one.id, other.id]
    assert one.shown_target == "https://press.example/mcp"
    assert other.shown_target == "-- uvx press"
    assert (home / "tasks" / f"{one.id}.json").stat().st_mode & 0o077 == 0
    (home / "tasks" / "broken.json").write_text("{")
    assert len(kept_tasks()) == 2
    forget_task(one)
    forget_task(one)
    assert kept_tasks() == [other]


def test_a_task_is_found_by_its_id_the_beginning_of_it_or_its_handle(home: Path) -> None:
    one = kept("1")
    assert find_task(one.id) == find_task(one.id[:3]) == find_task(one.handle) == one
    for number in range(2, 40):
        kept(str(number))
    shared = next(
        first
        for first in "0123456789abcdef"
        if sum(task.id.startswith(first) for task in kept_tasks()) > 1
    )
    with pytest.raises(CliError, match="beginning of several"):
        find_task(shared)


def test_a_handle_of_another_program_is_used_if_it_names_a_url(home: Path) -> None:
    assert find_task(handle_of("9")).target == "https://press.example/mcp"
    for server in ("stdio:press:0123", "https://press.example/mcp?0123456789abcdef"):
        with pytest.raises(CliError, match="does not name a URL"):
            find_task(handle_of("9", server))
    with pytest.raises(CliError, match="there is no task nothing"):
        find_task("nothing")


def test_a_folder_that_cannot_be_written_is_an_error(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "file").touch()
    monkeypatch.setenv("COLONNADE_HOME", str(home / "file"))
    with pytest.raises(CliError, match="cannot be kept"):
        kept("1")


# ---------------------------------------------------------------- tasks of a chat


async def stored(path: Path) -> int:
    """How many tasks the file of a chat has."""
    store = SqliteStore(path)
    try:
        return len(await store.names(SERVER_PRINCIPAL, PREFIX, "", 10))
    finally:
        await store.close()


def test_a_task_of_a_chat_that_was_killed_is_found_by_the_next_chat(
    folder: Path, served: Process
) -> None:
    url = f"http://127.0.0.1:{served.port}/mcp"
    file = folder / "home" / "chat.db"
    tool = f"{name_for(url)}__book"
    with Scripted([[(tool, {"topic": "tea"})], "Later."]) as provider:
        env: dict[str, Any] = {
            "OPENAI_BASE_URL": f"{provider.url}/v1",
            "OPENAI_API_KEY": "secret",
            "OPENAI_MODEL": "tiny",
            "COLONNADE_HOME": str(folder / "home"),
        }
        with Process(folder, "chat", url, "--yes", **env) as chat:
            chat.input.write("A book about tea.\n")
            chat.input.flush()
            while not (file.exists() and asyncio.run(stored(file))):
                assert chat.process.poll() is None, chat.err.rest()
        listed = command(folder, "chat", url, input="/tasks\n", **env)
        assert "1 task of earlier chats: type /tasks" in listed.stderr
        found = re.search(rf"(\w{{8}}) +{re.escape(tool)} +working +chapter 1", listed.stderr)
        assert found, listed.stderr
        (folder / "printed").touch()
        lines = f"/tasks none\n/tasks {found[1]}\n/tasks\n"
        waited = command(folder, "chat", url, input=lines, **env)
    assert waited.stdout == "a book about tea\n"
    assert "there is no task none" in waited.stderr
    assert "there are no tasks" in waited.stderr
