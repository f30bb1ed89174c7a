"""What `portico ls` and `portico inspect` show: everything that a server offers.

Rules: a list that a server does not have is empty, and no error. What is cut for people is whole
with `--json`.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec

from portico.cli.reaching import Terms
from portico.cli.screen import Screen
from portico.cli.talking import Desk, show_json, talk
from portico.cli.text import clean, columns, cut, first_line, one_line
from portico.client.client import Client
from portico.client.signatures import (
    members,
    names_of,
    prompt_signature,
    tool_signature,
)
from portico.errors import FaultKind, RemoteError
from portico.protocol import types as t
from portico.protocol.link import DISCOVER
from portico.protocol.reading import read

# Arguments of one tool in a table; all of them are in `inspect`.
MAX_ARGUMENTS = 40
# A URI in a table; a data: URI may be a whole picture.
MAX_URI = 100

T = TypeVar("T")


class Offer(NamedTuple):
    """All that a server lists."""

    tools: list[t.Tool]
    prompts: list[t.Prompt]
    resources: list[t.Resource]
    templates: list[t.ResourceTemplate]

    def plain(self) -> dict[str, Any]:
        """The same for programs, in the words of the protocol."""
        return {
            "tools": self.tools,
            "prompts": self.prompts,
            "resources": self.resources,
            "resourceTemplates": self.templates,
        }


async def offer(client: Client) -> Offer:
    """Everything that a server lists."""
    can = client.capabilities
    return Offer(
        await _listed(client, can.tools, client.list_tools),
        await _listed(client, can.prompts, client.list_prompts),
        await _listed(client, can.resources, client.list_resources),
        await _listed(client, can.resources, client.list_resource_templates),
    )


async def _listed(
    client: Client, offered: object, listed: Callable[[], Awaitable[list[T]]]
) -> list[T]:
    if offered is None:
        return []
    try:
        return await listed()
    except RemoteError as error:
        # Many a server has resources, and no templates, and says that it knows no such method.
        if error.code == client.peer.revision.codes[FaultKind.METHOD_NOT_FOUND]:
            return []
        raise


# ---------------------------------------------------------------- ls


def list_target(terms: Terms) -> int:
    """List what a server offers; the exit code."""
    return talk(terms, partial(_list, terms=terms))


async def _list(desk: Desk, *, terms: Terms) -> int:
    client, screen, _ = desk
    found = await offer(client)
    if terms.as_json:
        show_json(found.plain(), screen)
        return 0
    sections = {
        "tools": [_tool(tool) for tool in found.tools],
        "prompts": [_prompt(prompt) for prompt in found.prompts],
        "resources": [_resource(one) for one in found.resources],
        "templates": [_template(one) for one in found.templates],
    }
    shown = [
        f"{screen.heading(title)}\n{columns(rows, most=screen.places)}"
        for title, rows in sections.items()
        if rows
    ]
    screen.write("\n".join(shown) if shown else "it offers nothing\n")
    return 0


def _tool(tool: t.Tool) -> list[str]:
    takes = cut(names_of(tool.input_schema), MAX_ARGUMENTS)
    return [one_line(tool.name), takes, first_line(tool.description) or _title(tool)]


def _prompt(prompt: t.Prompt) -> list[str]:
    given = prompt.arguments or []
    takes = " ".join(one.name if one.required else f"[{one.name}]" for one in given)
    about = first_line(prompt.description) or _title(prompt)
    return [one_line(prompt.name), cut(one_line(takes), MAX_ARGUMENTS), about]


def _resource(one: t.Resource) -> list[str]:
    uri, kind = cut(one_line(one.uri), MAX_URI), one_line(one.mime_type)
    return [uri, one_line(t.display_name(one)), kind, first_line(one.description)]


def _template(one: t.ResourceTemplate) -> list[str]:
    uri, kind = cut(one_line(one.uri_template), MAX_URI), one_line(one.mime_type)
    return [uri, one_line(t.display_name(one)), kind, first_line(one.description)]


def _title(noun: t.Titled) -> str:
    title = one_line(t.display_name(noun))
    return title if title != noun.name else ""


# ---------------------------------------------------------------- inspect


def inspect_target(terms: Terms) -> int:
    """Show all that a server says of itself; the exit code."""
    return talk(terms, partial(_inspect, terms=terms))


async def _inspect(desk: Desk, *, terms: Terms) -> int:
    client, screen, _ = desk
    found = await offer(client)
    spoken = await supported(client)
    if terms.as_json:
        about = {
            "server": client.server,
            "revision": client.revision,
            "supported": spoken,
            "capabilities": client.capabilities,
            "instructions": client.instructions,
        }
        show_json({**about, **found.plain()}, screen)
        return 0
    screen.write(_about(client, spoken, screen))
    sections = {
        "tools": [_told_tool(tool) for tool in found.tools],
        "prompts": [_told_prompt(prompt) for prompt in found.prompts],
        "resources": [_told_resource(one) for one in found.resources],
        "templates": [_told_template(one) for one in found.templates],
    }
    for title, entries in sections.items():
        if entries:
            screen.write(f"\n{screen.heading(title)}\n{''.join(entries)}")
    return 0


async def supported(client: Client) -> list[str] | None:
    """Every revision that the server speaks; None where the one that is spoken cannot tell."""
    if DISCOVER not in client.peer.revision.methods:
        return None
    raw = await client.conversation.request(DISCOVER, t.RequestParams(), client.timeout_s)
    return read(t.DiscoverResult, raw).supported_versions


def _about(client: Client, spoken: list[str] | None, screen: Screen) -> str:
    info = client.server
    name = f"{one_line(info.name)} {one_line(info.version)}" if info is not None else client.name
    title = f", {one_line(info.title)}" if info is not None and info.title else ""
    dates = one_line(", ".join(spoken)) if spoken is not None else "it cannot say in this revision"
    rows = [["revision", client.revision], ["supports", dates]]
    if info is not None and info.description:
        rows.append(["about", one_line(info.description)])
    if info is not None and info.website_url:
        rows.append(["website", one_line(info.website_url)])
    rows.append(["offers", ", ".join(abilities(client.capabilities)) or "nothing"])
    told = f"{screen.heading(name)}{title}\n{columns(rows)}"
    if client.instructions:
        lines = clean(client.instructions, lines=True).strip().splitlines()
        leads = ["  says      ", *[" " * 12] * (len(lines) - 1)]
        told += "".join(
            f"{lead + line}".rstrip() + "\n" for lead, line in zip(leads, lines, strict=True)
        )
    return told


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


def _told_tool(tool: t.Tool) -> str:
    described = {
        name: first_line(one.get("description") if isinstance(one, dict) else "")  # type: ignore[union-attr]
        for name, one in members(tool.input_schema).items()
    }
    rows = [[one_line(name), words] for name, words in described.items() if words]
    hints = ", ".join(_hints(tool))
    return _entry(tool_signature(tool), _title(tool), tool.description, rows, hints)


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


def _told_prompt(prompt: t.Prompt) -> str:
    rows = [
        [one_line(one.name), first_line(one.description)]
        for one in prompt.arguments or []
        if one.description
    ]
    return _entry(prompt_signature(prompt), _title(prompt), prompt.description, rows)


def _told_resource(one: t.Resource) -> str:
    size = f", {one.size} bytes" if one.size is not None else ""
    kind = one_line(one.mime_type) + size
    return _entry(one_line(one.uri), one_line(t.display_name(one)), one.description, [], kind)


def _told_template(one: t.ResourceTemplate) -> str:
    kind = one_line(one.mime_type)
    return _entry(
        one_line(one.uri_template), one_line(t.display_name(one)), one.description, [], kind
    )


def _entry(
    head: str, title: str, description: str | None, rows: list[list[str]], last: str = ""
) -> str:
    """One thing that is offered, with all that is said of it below."""
    lines = clean(description or "", lines=True).strip().splitlines()
    told = f"  {head}\n"
    told += f"      {title}\n" if title and title != head else ""
    told += "".join(f"      {line}".rstrip() + "\n" for line in lines)
    told += columns(rows, indent=8)
    last = last.strip(", ")
    return told + (f"      ({last})\n" if last else "")
