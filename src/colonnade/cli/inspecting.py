"""What `colonnade inspect` shows: who a server is, all that it offers, and what to fix.

Rules: what is cut or wrapped for people is whole with `--json`. Whatever a server wrote is cleaned
before it is painted. What is found to mend fails nothing, unless that is asked for.
"""

import textwrap
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import msgspec

from colonnade.cli.linting import CHARACTERS_A_TOKEN, Finding, lint, tokens
from colonnade.cli.listing import title_of
from colonnade.cli.reached import Offer, One
from colonnade.cli.reaching import Terms
from colonnade.cli.screen import Screen
from colonnade.cli.talking import Desk, show_json, talk
from colonnade.cli.text import clean, columns, first_line, one_line, width
from colonnade.cli.trouble import FAILED
from colonnade.client.client import Client
from colonnade.client.signatures import members, prompt_signature, tool_signature
from colonnade.protocol import types as t
from colonnade.protocol.link import DISCOVER
from colonnade.protocol.reading import read

# Where a line goes on, below what it says of.
FURTHER = 6
# A terminal that is narrower than this is not wrapped for.
MIN_PLACES = 40
LEVELS = ("warning", "note")
ESTIMATE = f"an estimate: a token for each {CHARACTERS_A_TOKEN} characters"


class Facts(NamedTuple):
    """All that a server says of itself, and what its author may mend."""

    name: str
    info: t.Implementation | None
    revision: str
    # Every revision that it speaks; None where the one that is spoken cannot tell.
    spoken: list[str] | None
    capabilities: t.ServerCapabilities
    instructions: str | None
    offer: Offer
    findings: list[Finding]

    def plain(self) -> dict[str, Any]:
        """The same for programs, in the words of the protocol."""
        each = {tool.name: tokens(tool) for tool in self.offer.tools}
        return {
            "server": self.info,
            "revision": self.revision,
            "supported": self.spoken,
            "capabilities": self.capabilities,
            "instructions": self.instructions,
            **self.offer.plain(),
            "lint": [one._asdict() for one in self.findings],
            "tokens": {"tools": sum(each.values()), "each": each, "is": ESTIMATE},
        }


def inspect_server(terms: Terms, strict: bool) -> int:
    """Show all that a server says of itself; the exit code, 1 for warnings if `strict`."""
    return talk(terms, partial(_inspect, terms=terms, strict=strict))


async def _inspect(desk: Desk, *, terms: Terms, strict: bool) -> int:
    reached, screen = desk
    assert isinstance(reached, One)
    facts = await facts_of(reached)
    if terms.as_json:
        show_json(facts.plain(), screen)
    else:
        show_facts(facts, screen)
    return code_of_findings(facts.findings, strict)


async def facts_of(one: One) -> Facts:
    """Ask a server for all that it says of itself."""
    client, found, spoken = one.client, await one.offer(), await supported(one.client)
    return Facts(
        client.name,
        client.server,
        client.revision,
        spoken,
        client.capabilities,
        client.instructions,
        found,
        lint(*found),
    )


def code_of_findings(findings: Sequence[Finding], strict: bool) -> int:
    """The exit code: 1 for warnings, if that is asked for."""
    return FAILED if strict and any(one.level == "warning" for one in findings) else 0


async def supported(client: Client) -> list[str] | None:
    """Every revision that the server speaks; None where the one that is spoken cannot tell."""
    if DISCOVER not in client.peer.revision.methods:
        return None
    raw = await client.conversation.request(DISCOVER, t.RequestParams(), client.timeout_s)
    return read(t.DiscoverResult, raw).supported_versions


# ---------------------------------------------------------------- for people


def show_facts(facts: Facts, screen: Screen) -> None:
    """All of it, for people."""
    screen.write(_about(facts, screen))
    found = facts.offer
    sections = {
        "tools": [_tool(tool, screen) for tool in found.tools],
        "prompts": [_prompt(prompt, screen) for prompt in found.prompts],
        "resources": [_resource(one, screen) for one in found.resources],
        "templates": [_template(one, screen) for one in found.templates],
    }
    for title, entries in sections.items():
        if entries:
            screen.write(f"\n{screen.heading(title)}\n{''.join(entries)}")
    if facts.findings:
        screen.write(_mend(facts.findings, screen))


def _about(facts: Facts, screen: Screen) -> str:
    info, spoken, found = facts.info, facts.spoken, facts.offer
    name = f"{one_line(info.name)} {one_line(info.version)}" if info is not None else facts.name
    title = f", {one_line(info.title)}" if info is not None and info.title else ""
    dates = one_line(", ".join(spoken)) if spoken is not None else "it cannot say in this revision"
    rows = [["revision", facts.revision], ["supports", dates]]
    if info is not None and info.description:
        rows.append(["about", one_line(info.description)])
    if info is not None and info.website_url:
        rows.append(["website", one_line(info.website_url)])
    rows.append(["offers", ", ".join(abilities(facts.capabilities)) or "nothing"])
    if found.tools:
        cost = sum(map(tokens, found.tools))
        rows.append(["costs", f"about {cost} tokens for the tools ({ESTIMATE})"])
    said = clean(facts.instructions or "", lines=True).strip().splitlines()
    rows += [["says" if number == 0 else "", line] for number, line in enumerate(said)]
    lines = [f"{screen.heading(name)}{title}\n"]
    for row, line in zip(rows, columns(rows).splitlines(keepends=True), strict=True):
        lead = len(line) - len(line.lstrip()) if not row[0] else 2 + max(8, len(row[0])) + 2
        lines.append(wrapped(line.rstrip(), lead, screen, label=row[0]))
    return "".join(lines)


def wrapped(line: str, further: int, screen: Screen, label: str = "") -> str:
    """A line that goes on below itself where a terminal ends; its label steps back."""
    places = screen.places
    if places is not None and places >= MIN_PLACES and width(line) > places:
        indent = " " * (len(line) - len(line.lstrip()))
        parts = textwrap.wrap(
            line.strip(),
            places,
            initial_indent=indent,
            subsequent_indent=" " * further,
            break_on_hyphens=False,
        )
        line = "\n".join(parts)
    if label:
        line = line.replace(label, screen.quiet(label), 1)
    return f"{line}\n"


def abilities(can: t.ServerCapabilities) -> list[str]:
    """What a server said that it can do, in the words of the protocol."""
    plain: dict[str, Any] = msgspec.to_builtins(can)
    found: list[str] = []
    for name, settings in plain.items():
        if name in ("experimental", "extensions"):
            found += [f"{name} {one_line(one)}" for one in settings]
            continue
        marks = [one_line(key) for key, value in settings.items() if value]
        found.append(f"{name} ({', '.join(marks)})" if marks else name)
    return found


def _mend(findings: list[Finding], screen: Screen) -> str:
    """What an author may want to mend, and how much of it there is."""
    told = f"\n{screen.heading('to mend')}\n"
    names = {one: one_line(one.where) for one in findings}
    room = min(max(map(width, names.values())), 24)
    for one in findings:
        mark = screen.alarm("!") if one.level == "warning" else " "
        name = names[one]
        lead = name + " " * max(0, room - width(name))
        line = wrapped(f"    {lead}  {one.message}", 6 + room, screen)
        told += f"  {mark} {line[4:]}"
    counts = [sum(one.level == level for one in findings) for level in LEVELS]
    words = [
        f"{count} {word}{'' if count == 1 else 's'}"
        for count, word in zip(counts, LEVELS, strict=True)
        if count
    ]
    return told + screen.quiet(f"  {', '.join(words)}; --json has the rules") + "\n"


# ---------------------------------------------------------------- what is offered


def _tool(tool: t.Tool, screen: Screen) -> str:
    described = {
        name: first_line(
            cast("dict[str, Any]", one).get("description") if isinstance(one, dict) else ""
        )
        for name, one in members(tool.input_schema).items()
    }
    rows = [[one_line(name), words] for name, words in described.items() if words]
    head = _head(tool_signature(tool), one_line(tool.name), screen)
    return _entry(head, title_of(tool), tool.description, rows, ", ".join(_hints(tool)), screen)


def _hints(tool: t.Tool) -> list[str]:
    """What a tool says of its effects; what it does not say is not shown."""
    said = tool.annotations or t.ToolAnnotations()
    words = {
        "read_only_hint": ("only reads", ""),
        "destructive_hint": ("may destroy", "destroys nothing"),
        "idempotent_hint": ("twice is once", ""),
        "open_world_hint": ("reaches outside", "stays inside"),
    }
    found: list[str] = []
    for name, (yes, no) in words.items():
        value = getattr(said, name)
        found += [word for word in (yes if value else no,) if value is not None and word]
    return found


def _prompt(prompt: t.Prompt, screen: Screen) -> str:
    rows = [
        [one_line(one.name), first_line(one.description)]
        for one in prompt.arguments or []
        if one.description
    ]
    head = _head(prompt_signature(prompt), one_line(prompt.name), screen)
    return _entry(head, title_of(prompt), prompt.description, rows, "", screen)


def _resource(one: t.Resource, screen: Screen) -> str:
    size = f", {one.size} bytes" if one.size is not None else ""
    kind = one_line(one.mime_type) + size
    uri, title = one_line(one.uri), one_line(t.display_name(one))
    title = title if title != uri else ""
    return _entry(_head(uri, uri, screen), title, one.description, [], kind, screen)


def _template(one: t.ResourceTemplate, screen: Screen) -> str:
    uri, title = one_line(one.uri_template), one_line(t.display_name(one))
    title = title if title != uri else ""
    kind = one_line(one.mime_type)
    return _entry(_head(uri, uri, screen), title, one.description, [], kind, screen)


def _head(line: str, name: str, screen: Screen) -> str:
    """The line that names something; at a terminal the name stands out."""
    told = wrapped(f"  {line}", FURTHER, screen)
    return told.replace(name, screen.accent(name), 1) if name else told


def _entry(
    head: str,
    title: str,
    description: str | None,
    rows: list[list[str]],
    last: str,
    screen: Screen,
) -> str:
    """One thing that is offered, with all that is said of it below."""
    lines = clean(description or "", lines=True).strip().splitlines()
    told = head
    told += wrapped(f"      {title}", FURTHER, screen) if title else ""
    for line in lines:
        told += wrapped(f"      {line}".rstrip(), FURTHER, screen)
    lead = 10 + max((width(row[0]) for row in rows), default=0)
    for line in columns(rows, indent=8).splitlines():
        told += wrapped(line, lead, screen)
    last = last.strip(", ")
    return told + (screen.quiet(f"      ({last})") + "\n" if last else "")
