"""What `colonnade ls` shows: everything that a server offers, or each of several, in tables.

Rules: a list that a server does not have is empty, and no error. What is cut for people is whole
with `--json`.
"""

from functools import partial

from colonnade.cli.connections import Many, Offer
from colonnade.cli.options import Terms
from colonnade.cli.session import Desk, show_json, talk
from colonnade.cli.terminal import Screen, columns
from colonnade.client.tools import names_of
from colonnade.protocol import types as t
from colonnade.text import cut, first_line, one_line

# Arguments of one tool in a table; all of them are in `inspect`.
MAX_ARGUMENTS = 40
# A URI in a table; a data: URI may be a whole picture.
MAX_URI = 100


# ---------------------------------------------------------------- ls


def list_target(terms: Terms) -> int:
    """List what a server offers, or all servers of a configuration; the exit code."""
    return talk(terms, partial(_list, terms=terms))


async def _list(desk: Desk, *, terms: Terms) -> int:
    reached, screen = desk
    if isinstance(reached, Many):
        return await _list_all(reached, screen, terms)
    found = await reached.offer()
    if terms.as_json:
        show_json(found.plain(), screen)
    else:
        shown = sections(found, screen)
        screen.write("\n".join(shown) if shown else "it offers nothing\n")
    return 0


async def _list_all(many: Many, screen: Screen, terms: Terms) -> int:
    from colonnade.cli.config_session import code_of_many, plain_problems, show_problems

    found = await many.offers()
    if terms.as_json:
        servers = {key: one.plain() for key, one in found.items()}
        show_json({"servers": servers, "problems": plain_problems(many.problems)}, screen)
    else:
        screen.write("\n".join(_titled(key, one, screen) for key, one in found.items()))
        show_problems(many.problems, screen)
    return code_of_many(found, many.host.failures.values())


def _titled(key: str, found: Offer, screen: Screen) -> str:
    """One server of several, with all that it offers below its key."""
    shown = sections(found, screen, indent=4) or ["    it offers nothing\n"]
    lines = "\n".join(shown).splitlines(keepends=True)
    title = screen.heading(one_line(key))
    return f"{title}\n" + "".join(_set_in(line) for line in lines)


def _set_in(line: str) -> str:
    return line if line[:1] in (" ", "\n", "") else f"  {line}"


def sections(found: Offer, screen: Screen, indent: int = 2) -> list[str]:
    """What is offered, in a table for each kind."""
    tables = {
        "tools": [_tool(tool) for tool in found.tools],
        "prompts": [_prompt(prompt) for prompt in found.prompts],
        "resources": [_resource(one) for one in found.resources],
        "templates": [_template(one) for one in found.templates],
    }
    return [
        f"{screen.heading(title)}\n{columns(rows, indent=indent, most=screen.places)}"
        for title, rows in tables.items()
        if rows
    ]


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


def title_of(noun: t.HasTitle) -> str:
    """The title, where there is one that says more than the name."""
    title = one_line(t.display_name(noun))
    return title if title != noun.name else ""
