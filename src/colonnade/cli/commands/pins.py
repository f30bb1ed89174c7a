"""`colonnade pins ls`, `diff`, `accept` and `forget`: accepted definitions of servers.

Rules: without `--fresh` nothing is started: what hosts have seen is in the file of the user. What
is accepted is what was shown, not what a server sends meanwhile. Text of servers is shown with its
hidden characters as escapes.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from colonnade.cli.config_target import TrustPrompt, found_files, input_prompt
from colonnade.cli.errors import FAILED, USAGE, CliError, Reporter
from colonnade.cli.options import Action, complete_file
from colonnade.cli.session import show_json
from colonnade.cli.terminal import Terminal, columns
from colonnade.errors import ColonnadeError
from colonnade.host.config.reader import read_config
from colonnade.host.config.settings import Config, PinsTable, ServerEntry
from colonnade.host.policy.pins.definitions import differing_lines
from colonnade.host.policy.pins.pin_guard import pinned_identity
from colonnade.host.policy.pins.pins import PinnedServer, Pins, PinStatus
from colonnade.host.policy.pins.records import HeldItem, PendingDefinition, PinnedItem
from colonnade.text import clean, closest, cut, one_line

if TYPE_CHECKING:  # only if servers are started
    from colonnade.auth.client.login import Auth

# The width of a name or URI in a table.
MAX_NAME: Final = 60

_FILES = click.option(
    "--config",
    "files",
    metavar="FILE",
    multiple=True,
    shell_complete=complete_file,
    help="A configuration file; without it, those found for this folder.",
)
_FRESH = click.option("--fresh", is_flag=True, help="Start the servers and read their lists now.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_YES = click.option("--yes", is_flag=True, help="Do not ask.")
_SERVER = click.argument("server", metavar="[SERVER]", default="")
_NAME = click.argument("name", metavar="[NAME]", default="")


@click.group(epilog="Example: colonnade pins diff github")
def pins() -> None:
    """Pins: tools, prompts, resources and instructions that were accepted.

    A host with pins does not use what has changed since, until it is accepted here.
    """


@pins.command(
    short_help="List what was accepted, and what waits.",
    epilog="""\b
Examples:
  colonnade pins ls
  colonnade pins ls github --fresh
  colonnade pins ls --config colonnade.toml --json
""",
)
@_SERVER
@_FILES
@_FRESH
@_JSON
def ls(server: str, files: tuple[str, ...], fresh: bool, as_json: bool) -> Action:
    """List what was accepted of each server, and what waits for an acceptance."""
    wanted = _Wanted(server, "", files, fresh)
    return partial(_run, wanted, partial(_list, as_json=as_json))


@pins.command(
    "diff",
    short_help="Show what has changed.",
    epilog="""\b
Examples:
  colonnade pins diff github               what waits of one server
  colonnade pins diff github search        one tool, prompt or resource
  colonnade pins diff --fresh              for scripts: the exit status is 1 if anything waits
""",
)
@_SERVER
@_NAME
@_FILES
@_FRESH
def diff_command(server: str, name: str, files: tuple[str, ...], fresh: bool) -> Action:
    """Show what waits for an acceptance, member by member. Hidden characters are shown as escapes.

    The exit status is 1 if anything waits, and 0 if nothing does.
    """
    return partial(_run, _Wanted(server, name, files, fresh), _diff)


@pins.command(
    short_help="Accept what has changed.",
    epilog="""\b
Examples:
  colonnade pins accept github             show what has changed, and ask
  colonnade pins accept github search
  colonnade pins accept github --yes       for scripts that know what has changed
""",
)
@_SERVER
@_NAME
@_FILES
@_FRESH
@_YES
def accept(server: str, name: str, files: tuple[str, ...], fresh: bool, yes: bool) -> Action:
    """Show what waits, ask, and accept exactly that. A host uses it at its next call or list."""
    return partial(_run, _Wanted(server, name, files, fresh), partial(_accept, yes=yes))


@pins.command(
    short_help="Forget what was accepted.", epilog="Example: colonnade pins forget github"
)
@click.argument("server", metavar="SERVER")
@_FILES
@_YES
def forget(server: str, files: tuple[str, ...], yes: bool) -> Action:
    """Forget everything that was accepted of a server: it is seen for the first time again."""
    return partial(_run, _Wanted(server, "", files, False), partial(_forget, yes=yes))


# ---------------------------------------------------------------- the servers


class _Wanted(NamedTuple):
    server: str
    name: str
    files: tuple[str, ...]
    fresh: bool


class _Held(NamedTuple):
    """Something that waits, and its server."""

    server: PinnedServer
    pending: PendingDefinition

    @property
    def item(self) -> HeldItem:
        return self.pending.item


class _Found(NamedTuple):
    pins: Pins
    terminal: Terminal
    servers: Mapping[str, PinnedServer]
    status: Mapping[str, Sequence[PinStatus]]
    wanted: _Wanted

    @property
    def held(self) -> list[_Held]:
        """What waits, of the servers and the name that are wanted."""
        return [
            _Held(self.servers[key], one)
            for key, every in self.status.items()
            for status in every
            for one in status.pending
            if self.wanted.name in ("", one.item.name)
        ]


def _run(wanted: _Wanted, work: Callable[[_Found], Awaitable[int]]) -> int:
    """Read the configuration and the pins, do the work, and return the exit code."""
    terminal, prompt = Terminal(), TrustPrompt()
    files = list(wanted.files) or found_files()
    # Without --fresh nothing is started, so nothing has to be trusted.
    on_input = input_prompt(terminal) if wanted.fresh else None
    trust = prompt if wanted.fresh else True
    config = read_config(files, trust=trust, on_input=on_input, strict=wanted.fresh)
    entries = _entries(config, wanted)
    try:
        return asyncio.run(_with_pins(config, entries, wanted, terminal, work))
    except ColonnadeError as error:
        raise CliError(clean(error.summary), FAILED, hint=clean(error.hint)) from None


def _entries(config: Config, wanted: _Wanted) -> dict[str, ServerEntry]:
    if not wanted.server:
        return dict(config.entries)
    entry = config.entries.get(wanted.server)
    if entry is not None:
        return {wanted.server: entry}
    near = closest(wanted.server, config.entries)
    known = one_line(", ".join(config.entries))
    hint = f"did you mean {one_line(near)}?" if near else f"servers are {known or 'none'}"
    raise CliError(f"there is no server {one_line(wanted.server)}", USAGE, hint=hint)


async def _with_pins(
    config: Config,
    entries: Mapping[str, ServerEntry],
    wanted: _Wanted,
    terminal: Terminal,
    work: Callable[[_Found], Awaitable[int]],
) -> int:
    table = config.pins or PinsTable()
    store = Pins(mode=table.mode, first=table.first)
    servers = {key: PinnedServer(key, pinned_identity(one)) for key, one in entries.items()}
    try:
        if wanted.fresh:
            await _read_lists(store, servers, entries, terminal)
        status = {key: await store.status(one) for key, one in servers.items()}
        return await work(_Found(store, terminal, servers, status, wanted))
    finally:
        await store.close()


async def _read_lists(
    store: Pins,
    servers: Mapping[str, PinnedServer],
    entries: Mapping[str, ServerEntry],
    terminal: Terminal,
) -> None:
    """Have the lists of all servers read and compared."""
    from colonnade.cli.connections import login_for
    from colonnade.host.host import Host

    def auth(url: str) -> "Auth | None":
        return login_for(url, terminal, ask=len(entries) == 1)

    # What waits is shown by the command.
    logging.getLogger("colonnade.host").setLevel(logging.ERROR)
    for one in servers.values():
        await store.drop_pending(one)
    async with Host(Config(entries=entries), auth=auth, pins=store) as host:
        await host.list_tools()
        await host.list_prompts()
        await host.list_resources()
        await host.list_resource_templates()
        for key, error in host.failures.items():
            terminal.note(f"colonnade: {one_line(key)} could not be read: {clean(str(error))}\n")


# ---------------------------------------------------------------- ls


async def _list(found: _Found, *, as_json: bool) -> int:
    if as_json:
        show_json(
            {"servers": {key: _to_json(one) for key, one in found.status.items()}}, found.terminal
        )
        return 0
    same = _same_names(found.status)
    for key, every in found.status.items():
        rows = [row for status in every for row in _rows(key, status, same)]
        found.terminal.write(f"{found.terminal.heading(one_line(key))}\n")
        shown = columns(rows, most=found.terminal.width) if rows else "  nothing was accepted yet\n"
        found.terminal.write(shown)
    if not found.status:
        found.terminal.write("no servers are configured\n")
    return 0


def _same_names(status: Mapping[str, Sequence[PinStatus]]) -> dict[tuple[str, str], list[str]]:
    """The servers that have a tool or a prompt of one name."""
    found: dict[tuple[str, str], list[str]] = {}
    for key, every in status.items():
        for one in every:
            for name in one.items if one.kind in ("tool", "prompt") else ():
                found.setdefault((one.kind, name), []).append(key)
    return found


def _rows(
    key: str, status: PinStatus, same: Mapping[tuple[str, str], list[str]]
) -> Iterable[list[str]]:
    held: dict[str, list[HeldItem]] = {}
    for one in status.held:
        held.setdefault(one.name, []).append(one)
    for name, item in status.items.items():
        words = [one.reason for one in held.get(name, ())]
        if not words:
            count = len(item.accepted)
            words = [f"accepted {_day(item)}" + (f", {count} variants" if count > 1 else "")]
        others = [other for other in same.get((status.kind, name), ()) if other != key]
        if others:
            words.append(f"same name in {one_line(', '.join(others))}")
        waits = "!" if name in held else ""
        yield [status.kind, cut(one_line(name), MAX_NAME), waits, "; ".join(words)]


def _day(item: PinnedItem) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(item.accepted[-1].at))


def _to_json(every: Sequence[PinStatus]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for status in every:
        for name, item in status.items.items():
            waits = [one for one in status.held if one.name == name]
            rows.append(
                {
                    "kind": status.kind,
                    "name": name,
                    "accepted": [{"digest": one.digest, "at": one.at} for one in item.accepted],
                    "waiting": [
                        {"digest": one.digest, "state": one.state, "reason": one.reason}
                        for one in waits
                    ],
                }
            )
    return rows


# ---------------------------------------------------------------- diff, accept, forget


async def _diff(found: _Found) -> int:
    held = found.held
    _show(held, found.terminal, found.terminal.write)
    if not held:
        found.terminal.write("nothing waits for an acceptance\n")
    return FAILED if held else 0


def _show(held: Sequence[_Held], terminal: Terminal, write: Callable[[str], None]) -> None:
    for number, one in enumerate(held):
        title = f"{one.item.subject} of {one_line(one.server.key)}: {one.item.reason}"
        write(("\n" if number else "") + f"{terminal.heading(title)}\n")
        lines = differing_lines(one.pending.before, one.pending.text)
        write("".join(f"  {line}\n" for line in lines))


async def _accept(found: _Found, *, yes: bool) -> int:
    held, terminal, reporter = found.held, found.terminal, Reporter()
    if not held:
        reporter.info("nothing waits for an acceptance")
        return 0
    _show(held, terminal, terminal.note)
    count = "1 definition" if len(held) == 1 else f"{len(held)} definitions"
    if not yes and not await _confirmed(terminal, f"Accept {count}? [y/N] "):
        raise CliError("nothing was accepted", FAILED)
    done: list[HeldItem] = []
    for server in found.servers.values():
        done += await found.pins.accept(server, [one.item for one in held if one.server == server])
    if len(done) < len(held):
        more = f"{len(held) - len(done)} of {count} were changed meanwhile and not accepted"
        raise CliError(more, FAILED, hint="see colonnade pins diff")
    reporter.info(f"accepted {count}")
    return 0


async def _forget(found: _Found, *, yes: bool) -> int:
    (server,) = found.servers.values()
    shown = one_line(server.key)
    if not yes and not await _confirmed(
        found.terminal, f"Forget everything that was accepted of {shown}? [y/N] "
    ):
        raise CliError("nothing was forgotten", FAILED)
    known = await found.pins.forget(server)
    Reporter().info(
        f"{shown} is seen for the first time again" if known else f"{shown} has no pins"
    )
    return 0


async def _confirmed(terminal: Terminal, question: str) -> bool:
    if not terminal.can_ask:
        hint = "see colonnade pins diff, then use --yes"
        raise CliError("there is no terminal to ask in", FAILED, hint=hint)
    return await asyncio.to_thread(terminal.confirm, question)
