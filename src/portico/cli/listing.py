"""What `portico ls` shows: everything that a server offers, in tables.

Rules: a list that a server does not have is empty, and no error. What is cut for people is whole
with `--json`.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from portico.cli.reaching import Terms
from portico.cli.talking import Desk, show_json, talk
from portico.cli.text import columns, cut, first_line, one_line
from portico.client.client import Client
from portico.client.signatures import names_of
from portico.errors import FaultKind, RemoteError
from portico.protocol import types as t

# Arguments of one tool in a table; all of them are in `inspect`.
MAX_ARGUMENTS = 40
# A URI in a table; a data: URI may be a whole picture.
MAX_URI = 100

T = TypeVar("T")


class Offer(NamedTuple):
    """All that a server lists."""

    tools: Sequence[t.Tool]
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
    client, screen = desk
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
    return [one_line(tool.name), takes, first_line(tool.description) or title_of(tool)]


def _prompt(prompt: t.Prompt) -> list[str]:
    given = prompt.arguments or []
    takes = " ".join(one.name if one.required else f"[{one.name}]" for one in given)
    about = first_line(prompt.description) or title_of(prompt)
    return [one_line(prompt.name), cut(one_line(takes), MAX_ARGUMENTS), about]


def _resource(one: t.Resource) -> list[str]:
    uri, kind = cut(one_line(one.uri), MAX_URI), one_line(one.mime_type)
    return [uri, one_line(t.display_name(one)), kind, first_line(one.description)]


def _template(one: t.ResourceTemplate) -> list[str]:
    uri, kind = cut(one_line(one.uri_template), MAX_URI), one_line(one.mime_type)
    return [uri, one_line(t.display_name(one)), kind, first_line(one.description)]


def title_of(noun: t.Titled) -> str:
    """The title, where there is one that says more than the name."""
    title = one_line(t.display_name(noun))
    return title if title != noun.name else ""
