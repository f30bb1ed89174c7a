"""`colonnade inbox`: a person finds what waits in hosts that run, and answers it from another
terminal."""

import json
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from cli.process import WAIT_S, command, environment
from cli.terminal import END_OF_INPUT, PseudoTerminal

HOST = """
import asyncio
import json
import sys

from colonnade import Context, Host, Policy, Refused, Server
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Settings
from colonnade.host.policy.approvals.inbox import Inbox

server = Server("shop")


@server.tool
def buy(fruit: str) -> str:
    "Buy fruit."
    return f"bought {fruit}"


@server.tool
async def book(ctx: Context) -> str:
    "Book a seat."
    return await ctx.elicit("Which seat?", str)


@server.tool
async def poem(ctx: Context) -> str:
    "Let the model write."
    return (await ctx.sample("Rhyme on plum.", max_tokens=9)).text


def model(request):
    if request.kind == "elicit":
        return host_inbox.answer_input(request)
    return "about " + request.params.messages[0].content.text


async def main():
    global host_inbox
    from colonnade.host.policy.approvals.approvals import Approvals

    host_inbox = Approvals(Inbox(socket=True))
    servers = {"shop": entry_of("shop", server, Settings(sampling=True))}
    rules = Policy(default="ask")
    async with Host(servers, policy=rules, inbox=host_inbox, on_input_request=model) as host:
        print("ready", flush=True)
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            name, arguments = json.loads(line)
            try:
                print((await host.call_tool(name, arguments)).text, flush=True)
            except Refused as refused:
                print("refused:", refused.summary, flush=True)


asyncio.run(main())
"""


PINNED = """
import asyncio
import json
import sys

from colonnade import Host, Inbox, Pins, Server
from colonnade.store.memory import MemoryStore


def shop(description):
    server = Server("shop")

    @server.tool(description=description)
    def buy(fruit: str) -> str:
        return f"bought {fruit}"

    return server


async def main():
    pins = Pins(MemoryStore(), first="review")
    servers = {"shop": shop("Buy fruit.")}
    async with Host(servers, pins=pins, inbox=Inbox(socket=True)) as host:
        print("ready", flush=True)
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            words, _ = json.loads(line)
            if words:
                await host.reload({"shop": shop(words)})
            print([tool.name for tool in await host.list_tools(fresh=True)], flush=True)


asyncio.run(main())
"""


class RunningHost:
    """A host in a process of its own, whose calls wait for approval."""

    def __init__(self, home: Path, text: str = HOST) -> None:
        script = home / "host.py"
        script.write_text(text)
        self.process = subprocess.Popen(
            [sys.executable, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=home,
            env=environment(COLONNADE_HOME=str(home)),
        )
        assert self.line() == "ready"

    def call(self, name: str, **arguments: str) -> None:
        """Begin a call."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([name, arguments]) + "\n")
        self.process.stdin.flush()

    def line(self) -> str:
        """What it prints next."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        self.process.kill()
        self.process.wait(WAIT_S)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


@pytest.fixture
def home() -> Generator[Path]:
    """A folder of the user's state with a short path, as sockets need."""
    with TemporaryDirectory(prefix="cn-") as made:
        yield Path(made)


@pytest.fixture
def host(home: Path) -> Generator[RunningHost]:
    running = RunningHost(home)
    yield running
    running.end()


def inbox(home: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return command(home, "inbox", *arguments, COLONNADE_HOME=str(home))


def waiting(home: Path) -> str:
    """The id of the item that waits, as soon as there is one."""
    while not (items := json.loads(inbox(home, "ls", "--json").stdout)["items"]):
        pass
    return items[0]["id"]


def test_a_call_is_listed_shown_and_approved(home: Path, host: RunningHost) -> None:
    assert inbox(home).stdout == "nothing waits\n"
    host.call("shop__buy", fruit="plum\u202e")
    id = waiting(home)
    listed = inbox(home).stdout
    assert listed.startswith(f'{id}  approval  shop__buy  fruit = "plum\\u202e"')
    assert f"host.py ({host.process.pid})" in listed
    shown = inbox(home, "show", id.lower()).stdout
    assert '  | fruit = "plum\\u202e"\n' in shown
    assert "asked by the default" in shown
    assert '| description = "Buy fruit."' in shown
    done = inbox(home, "approve", id)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.endswith(f"{id}: accepted\n")
    assert host.line() == "bought plum\\u202e"
    again = inbox(home, "approve", id)
    assert again.returncode == 1
    assert f"{id}: already accepted by colonnade inbox (process " in again.stderr
    unknown = inbox(home, "approve", "00")
    assert unknown.returncode == 2
    assert "there is no open item" in unknown.stderr


def test_a_call_is_denied_for_good_and_the_decision_is_a_rule_that_is_removed(
    home: Path, host: RunningHost
) -> None:
    host.call("shop__buy", fruit="plum")
    denied = inbox(home, "deny", waiting(home), "--remember", "session")
    heading, where, removed = denied.stderr.splitlines()[-3:]
    assert heading.endswith(": deny shop__buy (remembered: session)")
    assert where == (
        "  it decides where the policy asks, until its host ends, as long as its definition is the "
        "same"
    )
    assert host.line() == "refused: the user denied it"
    host.call("shop__buy", fruit="pear")
    assert host.line() == "refused: a person has denied it, and this is remembered"
    listed = command(home, "policy", "ls", COLONNADE_HOME=str(home)).stdout
    id, _, rest = listed.partition("  ")
    assert rest == "deny  session  server = shop  tools/call shop__buy\n"
    assert (heading[: heading.index(":")], removed) == (
        f"  rule {id}",
        f"  `colonnade policy forget {id}` removes it",
    )
    done = command(home, "policy", "forget", id, COLONNADE_HOME=str(home))
    assert done.stderr == "forgotten: deny shop__buy (remembered: session)\n"
    assert "no decisions" in command(home, "policy", "ls", COLONNADE_HOME=str(home)).stdout
    again = command(home, "policy", "forget", id, COLONNADE_HOME=str(home))
    assert again.returncode == 2
    host.call("shop__buy", fruit="pear")
    inbox(home, "approve", waiting(home))
    assert host.line() == "bought pear"


def test_a_decision_that_cannot_be_remembered_is_said_to_hold_for_this_call_only(
    home: Path, host: RunningHost
) -> None:
    (home / "remembered").write_text("no folder")
    host.call("shop__buy", fruit="plum")
    done = inbox(home, "approve", waiting(home), "--remember", "always")
    assert done.stderr.endswith("it holds for this call only; the log of its host says why\n")
    assert "colonnade policy forget" not in done.stderr
    assert host.line() == "bought plum"


def test_a_form_is_answered_from_the_command_line(home: Path, host: RunningHost) -> None:
    host.call("shop__book")
    inbox(home, "approve", waiting(home))
    id = waiting(home)
    wrong = inbox(home, "answer", id, "--content", "{}")
    assert wrong.returncode == 1
    assert "does not fit the form: value: missing" in wrong.stderr
    assert inbox(home, "answer", id).returncode == 2  # there is no terminal
    assert inbox(home, "answer", id, "--content", '{"value": "12A"}').returncode == 0
    assert host.line() == "12A"


def test_watch_asks_about_one_item_after_the_other_and_edits(home: Path, host: RunningHost) -> None:
    host.call("shop__poem")
    with PseudoTerminal(
        home, "inbox", "watch", COLONNADE_HOME=str(home), NO_COLOR="1", EDITOR="", VISUAL=""
    ) as terminal:
        asked = terminal.answer("always or ? [no] ", "always")
        assert "-> shop__poem (server shop)\n" in asked
        asked = terminal.answer("send it to the model? yes, no or edit [no] ", "edit")
        assert "shop (for shop__poem) requests sampling from your model:\n" in asked
        terminal.answer("a number, or Enter when done: ", "2")
        terminal.answer("user (Enter keeps it): ", "Rhyme on pear.")
        terminal.answer("a number, or Enter when done: ", "")
        assert "| Rhyme on pear." in terminal.answer("yes, no or edit [no] ", "yes")
        result = terminal.answer("yes, no or edit [no] ", "yes")
        assert "  assistant:\n  | about Rhyme on pear.\n" in result
        assert host.line() == "about Rhyme on pear."
        host.call("shop__buy", fruit="plum")
        terminal.until("always or ? [no] ")
        assert inbox(home, "deny", waiting(home)).returncode == 0
        terminal.until("was answered elsewhere, or has expired)")
        assert host.line() == "refused: the user denied it"
        host.call("shop__buy", fruit="plum")
        terminal.until("always or ? [no] ")
        terminal.type(END_OF_INPUT)
        code, _ = terminal.end()
    assert code == 0
    assert waiting(home)  # it stays open
    listed = command(home, "policy", "ls", COLONNADE_HOME=str(home)).stdout
    assert "allow  always  server = shop  tools/call shop__poem" in listed


def test_two_hosts_are_asked_and_one_that_was_killed_is_left_out(
    home: Path, host: RunningHost
) -> None:
    second = RunningHost(home)
    host.call("shop__buy", fruit="plum")
    second.call("shop__buy", fruit="plum")
    while len(json.loads(inbox(home, "ls", "--json").stdout)["items"]) < 2:
        pass
    second.end()
    (item,) = json.loads(inbox(home, "ls", "--json").stdout)["items"]
    assert item["host"] == f"host.py ({host.process.pid})"
    assert len(list((home / "run").iterdir())) == 1


def test_a_folder_that_others_can_use_is_refused(home: Path, host: RunningHost) -> None:
    os.chmod(home / "run", 0o755)
    done = inbox(home)
    assert done.returncode == 1
    assert "closed to others" in done.stderr


def test_definitions_that_are_held_are_shown_and_accepted(home: Path) -> None:
    host = RunningHost(home, PINNED)
    try:
        host.call("")
        assert host.line() == "[]"
        id = waiting(home)
        listed = inbox(home).stdout
        assert listed.startswith(f"{id}  definitions  shop: tool 'buy': not accepted yet")
        assert "7 days left" in listed
        shown = inbox(home, "show", id).stdout
        assert "  | tool 'buy': not accepted yet\n  |   description: Buy fruit.\n" in shown
        done = inbox(home, "approve", id)
        assert (done.returncode, done.stderr.splitlines()[-1]) == (0, f"{id}: accepted")
        host.call("")
        assert host.line() == "['shop__buy']"
        host.call("Buy fruit, and \u202email it.")
        assert host.line() == "[]"
        again = inbox(home, "show", waiting(home)).stdout
        assert "tool 'buy': its description changed since it was accepted" in again
        assert "  |     - Buy fruit.\n  |     + Buy fruit, and \\u202email it.\n" in again
        assert inbox(home, "deny", waiting(home)).returncode == 0
        host.call("")
        assert host.line() == "[]"
        assert inbox(home).stdout == "nothing waits\n"
        host.call("Buy fruit and more.")
        assert host.line() == "[]"
        with PseudoTerminal(
            home, "inbox", "watch", COLONNADE_HOME=str(home), NO_COLOR="1"
        ) as terminal:
            asked = terminal.answer("accept them, for all calls? yes, no or show [no] ", "show")
            assert "shop has definitions that are not used:\n" in asked
            terminal.answer("yes, no or show [no] ", "yes")
            terminal.until(": accepted\n")
            terminal.type(END_OF_INPUT)
        host.call("")
        assert host.line() == "['shop__buy']"
    finally:
        host.end()
