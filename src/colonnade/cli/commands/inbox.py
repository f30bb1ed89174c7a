"""`colonnade inbox ls`, `show`, `approve`, `deny`, `answer` and `watch`: what waits for the user in
the hosts that run.

Rules: hosts are reached by their control sockets, which only this user can open. An answer is for
the item that was shown. Text of a server, a model or a client never controls the terminal.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import msgspec

from colonnade.cli.errors import FAILED, USAGE, CliError, exit_code
from colonnade.cli.inbox_prompt import ItemPrompt, asker_of, title_of
from colonnade.cli.options import Action
from colonnade.cli.remembered_rules import said_of
from colonnade.cli.session import error_message, show_json
from colonnade.cli.terminal import Terminal, columns
from colonnade.errors import ChannelError, ColonnadeError
from colonnade.host.policy.approvals.control import (
    ControlClient,
    ControlRequest,
    ControlResponse,
    find_sockets,
)
from colonnade.host.policy.approvals.inbox import (
    AnswerOutcome,
    InboxAnswer,
    InboxItem,
    RememberScope,
)
from colonnade.text import clean, cut, one_line

# How often `watch` looks for hosts that were started since.
NEW_HOSTS_S: Final = 2.0
# Of a title in the list, in columns.
MAX_TITLE: Final = 70

JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
REMEMBER: Final = click.option(
    "--remember",
    type=click.Choice(["session", "project", "always"]),
    default=None,
    help="Make a rule of it: until the host ends, for its folder, or for all.",
)


class HostItem(NamedTuple):
    """An item, and the socket and name of the host that has it."""

    item: InboxItem
    path: Path
    host: str


@click.group(invoke_without_command=True, epilog="Example: colonnade inbox watch")
@click.pass_context
def inbox(context: click.Context) -> Action | None:
    """What waits for you: calls to approve, forms and URLs of servers, sampling, roots, and
    definitions that have changed.

    All hosts of this user that run with a control socket are asked: `[approvals]` in
    colonnade.toml, or `Inbox(socket=True)`. Without a command, the items are listed.
    """
    return None if context.invoked_subcommand else partial(run, list_items, as_json=False)


@inbox.command(short_help="List what waits.", epilog="Example: colonnade inbox ls --json")
@JSON
def ls(as_json: bool) -> Action:
    """List the open items of all hosts, the oldest first."""
    return partial(run, list_items, as_json=as_json)


@inbox.command(short_help="Show an item in whole.", epilog="Example: colonnade inbox show 7F2A91C0")
@click.argument("id")
@JSON
def show(id: str, as_json: bool) -> Action:
    """Show all of an item: the exact arguments, the definition, what has changed."""
    return partial(run, show_item, id=id, as_json=as_json)


@inbox.command(
    short_help="Allow a call.",
    epilog="""\b
Examples:
  colonnade inbox approve 7F2A91C0
  colonnade inbox approve 7F2A91C0 --remember project
""",
)
@click.argument("id")
@REMEMBER
def approve(id: str, remember: RememberScope | None) -> Action:
    """Allow a call, once; send sampling or roots on as they are; or accept definitions."""
    answer = InboxAnswer(action="accept", remember=remember or "")
    return partial(run, answer_item, id=id, answer=answer)


@inbox.command(short_help="Deny a call.", epilog="Example: colonnade inbox deny 7F2A91C0")
@click.argument("id")
@REMEMBER
def deny(id: str, remember: RememberScope | None) -> Action:
    """Deny a call, decline what a server asks, or leave definitions unused."""
    answer = InboxAnswer(action="decline", remember=remember or "")
    return partial(run, answer_item, id=id, answer=answer)


@inbox.command(
    short_help="Answer an item.",
    epilog="""\b
Examples:
  colonnade inbox answer 7F2A91C0
  colonnade inbox answer 7F2A91C0 --content '{"seat": "12A"}'
""",
)
@click.argument("id")
@click.option("--content", default="", metavar="JSON", help="The form, or the edited request.")
def answer(id: str, content: str) -> Action:
    """Answer an item in the terminal, or with --content."""
    if not content:
        return partial(run, ask_about, id=id)
    given = InboxAnswer(action="accept", content=content)
    return partial(run, answer_item, id=id, answer=given)


@inbox.command(
    short_help="Ask about one item after the other.", epilog="Example: colonnade inbox watch"
)
def watch() -> Action:
    """Show each item as it comes, and ask. Ctrl-D or Ctrl-C ends; what is open stays open."""
    return partial(run, watch_items)


def run(action: Callable[..., Awaitable[int]], **options: Any) -> int:
    """Run an action with the terminal; return the exit code. Raises `CliError`."""
    terminal = Terminal()
    try:
        return asyncio.run(_run(action, terminal, options))
    except ColonnadeError as error:
        raise CliError(error_message(error), exit_code(error)) from None
    finally:
        terminal.clear()


async def _run(
    action: Callable[..., Awaitable[int]], terminal: Terminal, options: dict[str, Any]
) -> int:
    return await action(terminal, **options)


# ---------------------------------------------------------------- hosts


async def request_of(path: Path, request: ControlRequest) -> ControlResponse:
    """The response of one host. Raises `ColonnadeError`."""
    async with ControlClient(path) as client:
        return await client.request(request)


async def open_items(terminal: Terminal | None = None) -> list[HostItem]:
    """The open items of all hosts, the oldest first. Hosts that share a store have the same."""
    found: dict[tuple[str, str], HostItem] = {}
    for path in await find_sockets():
        with contextlib.suppress(ChannelError):  # it has ended meanwhile
            response = await request_of(path, ControlRequest(do="list"))
            host = f"{response.name} ({response.pid})"
            for item in response.items:
                found.setdefault((item.key, item.serial), HostItem(item, path, host))
            if response.left_off and terminal is not None:
                terminal.note(f"colonnade: {host} has {response.left_off} more\n")
    return sorted(found.values(), key=lambda one: one.item.created_at)


async def find_item(id: str) -> HostItem:
    """The whole item of an id, or of the beginning of one. Raises `CliError`."""
    wanted = id.strip().upper()
    fits = [one for one in await open_items() if wanted and one.item.id.startswith(wanted)]
    if not fits:
        if answered := await _find_answered(wanted):
            raise CliError(clean(AnswerOutcome(False, answered).sentence), FAILED)
        raise CliError(
            f"there is no open item {cut(clean(id), 40)}", USAGE, hint="colonnade inbox lists them"
        )
    if len(fits) > 1:
        raise CliError(f"several items begin with {cut(clean(id), 40)}", USAGE)
    (one,) = fits
    response = await request_of(one.path, ControlRequest(do="show", id=one.item.id))
    return one._replace(item=response.items[0])


async def _find_answered(id: str) -> InboxItem | None:
    """An item that is no longer open, for as long as a host keeps it."""
    for path in await find_sockets():
        with contextlib.suppress(ColonnadeError):  # it has no such item
            response = await request_of(path, ControlRequest(do="show", id=id))
            return response.items[0]
    return None


async def send_answer(one: HostItem, answer: InboxAnswer, terminal: Terminal) -> int:
    """Send an answer to the host of an item, and print the outcome; the exit code."""
    by = f"colonnade inbox (process {os.getpid()})"
    request = ControlRequest(
        do="answer", id=one.item.id, serial=one.item.serial, answer=answer, by=by
    )
    response = await request_of(one.path, request)
    terminal.note(f"{clean(response.sentence)}\n")
    for rule in response.rules:
        terminal.note(said_of(rule))
    if answer.remember and response.won and not response.rules:
        terminal.note("  it holds for this call only; the log of its host says why\n")
    return 0 if response.won else 1


# ---------------------------------------------------------------- commands


async def list_items(terminal: Terminal, *, as_json: bool) -> int:
    """Print the open items."""
    found = await open_items(terminal)
    if as_json:
        show_json({"items": [_to_json(one) for one in found]}, terminal)
        return 0
    if not found:
        terminal.write("nothing waits\n")
        return 0
    now = time.time()
    rows = [
        [
            one.item.id,
            one.item.kind.replace("_", " "),
            cut(title_of(one.item), MAX_TITLE),
            one_line(one.item.principal),
            _left(one.item.deadline - now),
            one_line(one.host),
        ]
        for one in found
    ]
    terminal.write(columns(rows, indent=0, most=terminal.width))
    return 0


def _left(seconds: float) -> str:
    minutes = max(seconds, 0) / 60
    return f"{minutes:.0f} min left" if minutes < 2880 else f"{minutes / 1440:.0f} days left"


def _to_json(one: HostItem) -> dict[str, Any]:
    item: dict[str, Any] = msgspec.to_builtins(one.item)
    return {**item, "host": one.host}


async def show_item(terminal: Terminal, *, id: str, as_json: bool) -> int:
    """Print all of an item."""
    one = await find_item(id)
    if as_json:
        show_json(_to_json(one), terminal)
        return 0
    item, prompt = one.item, ItemPrompt(terminal, terminal.write)
    rows = [["id", item.id], ["kind", item.kind.replace("_", " ")], ["host", one_line(one.host)]]
    rows += [["for", asker_of(item)]] if item.kind != "approval" else []
    rows += [["task", one_line(item.task)]] if item.task else []
    terminal.write(columns(rows, indent=0))
    if item.kind != "definitions":  # which are shown whole
        prompt.show(item)
    prompt.show_whole(item)
    return 0


async def answer_item(terminal: Terminal, *, id: str, answer: InboxAnswer) -> int:
    """Answer an item as it was given on the command line."""
    one = await find_item(id)
    ItemPrompt(terminal).show(one.item)
    return await send_answer(one, answer, terminal)


async def ask_about(terminal: Terminal, *, id: str) -> int:
    """Ask about an item in the terminal."""
    one = await find_item(id)
    _require_terminal(terminal)
    given = await ItemPrompt(terminal).ask(one.item)
    return 0 if given is None else await send_answer(one, given, terminal)


def _require_terminal(terminal: Terminal) -> None:
    if not terminal.can_ask:
        hint = "colonnade inbox approve, deny, or answer ID --content JSON"
        raise CliError("there is no terminal to ask in", USAGE, hint=hint)


# ---------------------------------------------------------------- watch


class HostChanges:
    """Listens to all hosts, also to those that start later."""

    def __init__(self) -> None:
        self.changed: asyncio.Event = asyncio.Event()
        self._tasks: dict[Path, asyncio.Task[None]] = {}

    async def look_for_hosts(self) -> None:
        """Listen to hosts, until cancelled."""
        try:
            while True:
                for path in await find_sockets():
                    if path not in self._tasks or self._tasks[path].done():
                        self._tasks[path] = asyncio.ensure_future(self._listen(path))
                await asyncio.sleep(NEW_HOSTS_S)
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _listen(self, path: Path) -> None:
        with contextlib.suppress(ColonnadeError):
            async with ControlClient(path) as client:
                async for _ in client.changes():
                    self.changed.set()
        self.changed.set()


async def watch_items(terminal: Terminal) -> int:
    """Ask about one item after the other, until the input ends."""
    _require_terminal(terminal)
    terminal.note("colonnade: waiting for items; Ctrl-D or Ctrl-C ends\n")
    hosts = HostChanges()
    looking = asyncio.ensure_future(hosts.look_for_hosts())
    try:
        return await _ask_all(terminal, hosts)
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


async def _ask_all(terminal: Terminal, hosts: HostChanges) -> int:
    left: set[str] = set()  # answers that did not fit, and were not repeated
    while True:
        hosts.changed.clear()
        found = [one for one in await open_items() if one.item.serial not in left]
        if not found:
            if not await _changed(terminal, hosts):
                return 0
            continue
        try:
            one = await find_item(found[0].item.id)
        except CliError:  # answered meanwhile, or two hosts have items with this id
            left.add(found[0].item.serial)
            continue
        asking = asyncio.ensure_future(ItemPrompt(terminal).ask(one.item))
        if not await _asked(asking, one, hosts):
            terminal.note(f"\n  ({one.item.id} was answered elsewhere, or has expired)\n")
            continue
        given = asking.result()
        if given is None:
            return 0
        try:
            await send_answer(one, given, terminal)
        except ColonnadeError as error:
            terminal.note(f"colonnade: {error_message(error)}\n")
            left.add(one.item.serial)


async def _changed(terminal: Terminal, hosts: HostChanges) -> bool:
    """Wait for a change; False if the input has ended. What is typed meanwhile is dropped."""
    reading = asyncio.ensure_future(terminal.next_line())
    reading.add_done_callback(lambda _: hosts.changed.set())
    try:
        await hosts.changed.wait()
        return not (reading.done() and reading.result() is None)
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def _asked(
    asking: "asyncio.Task[InboxAnswer | None]", one: HostItem, hosts: HostChanges
) -> bool:
    """Wait for the answer; False if the item is open no longer."""
    asking.add_done_callback(lambda _: hosts.changed.set())
    try:
        while not asking.done():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(one.item.deadline - time.time(), 0.0)):
                    await hosts.changed.wait()
            hosts.changed.clear()
            if not asking.done():
                serials = {other.item.serial for other in await open_items()}
                if one.item.serial not in serials:
                    return False
        return True
    finally:
        if not asking.done():
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
