"""What `colonnade inspect` shows: who a server is, all that it offers, and what to fix.

Rules: what is cut or wrapped for people is whole with `--json`. Whatever a server wrote is cleaned
before it is painted. What is found to mend fails nothing, unless that is asked for.
"""

import asyncio
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, Literal, NamedTuple, cast

import msgspec

from colonnade.cli.commands.ls import title_of
from colonnade.cli.config_session import code_of_many, config_for, plain_problems, show_problems
from colonnade.cli.connections import Offer, One
from colonnade.cli.credentials import login_for
from colonnade.cli.errors import FAILED
from colonnade.cli.options import Terms, is_configuration
from colonnade.cli.session import Desk, prepare_log, run, sentence, show_json, talk
from colonnade.cli.terminal import Screen, columns
from colonnade.client.client import Client
from colonnade.client.connect import connect
from colonnade.client.tools import members, prompt_signature, tool_signature
from colonnade.errors import ColonnadeError, LocalProtocolError
from colonnade.host.config.settings import Config, HostProblem, ServerEntry
from colonnade.host.servers.supervisor import has_authorization, url_of
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import read
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.link.link import DISCOVER
from colonnade.protocol.schema.bounds import Unsound, survey
from colonnade.protocol.uritemplate import Template
from colonnade.providers import anthropic
from colonnade.providers.schemas import (
    OPENAI,
    ROOT_REFUSED,
    Unfit,
    applied,
    references,
    strict,
    written_out,
)
from colonnade.providers.tool_calls import is_safe, safe_name
from colonnade.text import clean, first_line, one_line, width

# The usual rule of thumb for English and for JSON; a tokenizer would be of one model only.
CHARACTERS_A_TOKEN: Final = 4
# One tool that takes more than this is rarely read to its end.
COSTLY_TOOL: Final = 1_000
# A list that takes more than this leaves less room than most conversations need.
COSTLY_LIST: Final = 10_000
# OpenAI refuses a request with more.
MAX_TOOLS: Final = 128
# Names in one sentence.
MAX_NAMED: Final = 6

# What Anthropic accepts as the name of a parameter.
_PARAMETER = re.compile(r"[A-Za-z0-9_.-]{1,64}")

# A list without an operator, as in `{path*}`; `{/path*}` is one with slashes.
_STARRED = re.compile(r"\{([A-Za-z0-9_.]+)\*\}")

Level = Literal["warning", "note"]


class Finding(NamedTuple):
    """One thing to mend: how bad, which rule, where, and why."""

    level: Level
    rule: str
    where: str
    message: str


def lint(
    tools: Sequence[t.Tool],
    prompts: Sequence[t.Prompt],
    resources: Sequence[t.Resource],
    templates: Sequence[t.ResourceTemplate],
) -> list[Finding]:
    """Everything to mend in what a server lists; warnings first."""
    found = [
        *_twice("tool", [one.name for one in tools]),
        *_twice("prompt", [one.name for one in prompts]),
        *_twice("resource", [one.uri for one in resources]),
        *_twice("template", [one.uri_template for one in templates]),
        *_alike(tools),
    ]
    for tool in tools:
        found += _of_tool(tool)
    for prompt in prompts:
        found += _of_prompt(prompt)
    for resource in (*resources, *templates):
        if not resource.description:
            found.append(Finding("note", "description", resource.name, "has no description"))
    for template in templates:
        found += _of_template(template)
    found += _of_list(tools)
    return sorted(found, key=lambda one: one.level == "note")


def _of_template(template: t.ResourceTemplate) -> Iterator[Finding]:
    text = template.uri_template
    try:
        Template(text, expand_only=True)
    except LocalProtocolError as error:
        yield Finding("warning", "template", template.name, f"clients cannot fill it in: {error}")
        return
    if (starred := _STARRED.search(text)) is not None:
        yield Finding(
            "warning",
            "template",
            template.name,
            f"{starred[0]} is a list with commas (RFC 6570), and never a path with slashes: for a "
            f"path write {{+{starred[1]}}}",
        )


# ---------------------------------------------------------------- tools


def _of_tool(tool: t.Tool) -> Iterator[Finding]:
    def warn(rule: str, message: str) -> Finding:
        return Finding("warning", rule, tool.name, message)

    if not is_safe(tool.name):
        yield warn(
            "name",
            "models refuse its name (letters, digits, _ and -, at most 64); "
            f"they would be told {safe_name(tool.name)}",
        )
    if not tool.description:
        yield warn("description", "has no description: a model goes by the name alone")
    own = members(tool.input_schema)
    silent = [name for name, one in own.items() if not _described(one)]
    if silent:
        yield warn("parameter-description", f"says nothing of {listed(silent)}")
    odd = [name for name in own if not _PARAMETER.fullmatch(name)]
    if odd:
        yield warn("parameter-name", f"models refuse the parameter {listed(odd)}; rename it")
    yield from _of_schema(tool)
    cost = tokens(tool)
    if cost > COSTLY_TOOL:
        yield Finding("note", "cost", tool.name, f"costs about {cost} tokens; say less")


def _of_schema(tool: t.Tool) -> Iterator[Finding]:
    schema = tool.input_schema

    def warn(rule: str, message: str) -> Finding:
        return Finding("warning", rule, tool.name, message)

    at_root = [word for word in ROOT_REFUSED if word in schema]
    if at_root or schema.get("type") != "object":
        what = f"has {listed(at_root)} at its root" if at_root else "is no object at its root"
        yield warn("root", f"its input schema {what}: models refuse that; move it into a parameter")
    referred = list(references(schema))
    if referred:
        is_endless = any(True for _ in references(written_out(schema)))
        more = ", which cannot be written out" if is_endless else "; write out what is meant"
        yield warn("ref", f"refers with $ref to {listed(referred)}: some clients lose it{more}")
    bare = [name for name, one in _arrays(schema) if "items" not in one]
    if bare:
        yield warn("items", f"VS Code refuses an array without items: {listed(bare)}; say of what")
    try:
        survey(schema)
    except Unsound as error:
        yield warn("schema", f"clients that check arguments cannot use its schema: {error}")
    try:
        strict(schema, OPENAI)
    except Unfit as error:
        if not at_root:
            yield Finding("note", "strict", tool.name, f"cannot be strict for OpenAI: {error}")


def _arrays(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every array that an argument may meet, with the parameter that it is in."""
    for name, one in members(schema).items():
        if isinstance(one, dict):
            # References are looked up in the whole document.
            parts = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
            for part in applied({**parts, **cast("dict[str, Any]", one)}):
                kinds = part.get("type")
                if kinds == "array" or (isinstance(kinds, list) and "array" in kinds):
                    yield name, part


def _described(schema: object) -> bool:
    return isinstance(schema, dict) and bool(cast("dict[str, Any]", schema).get("description"))


def _alike(tools: Sequence[t.Tool]) -> Iterator[Finding]:
    """Names that models cannot tell apart."""
    spelled: dict[str, set[str]] = {}
    for tool in tools:
        spelled.setdefault(safe_name(tool.name).lower(), set()).add(tool.name)
    for names in spelled.values():
        if len(names) > 1:
            first, *others = sorted(names)
            message = f"differs from {listed(others)} in its letters' case alone, or not for models"
            yield Finding("warning", "name-clash", first, message)


def _of_list(tools: Sequence[t.Tool]) -> Iterator[Finding]:
    if len(tools) > MAX_TOOLS:
        message = f"are {len(tools)}; OpenAI refuses a request with more than {MAX_TOOLS}"
        yield Finding("warning", "count", "tools", message)
    cost = sum(map(tokens, tools))
    if cost > COSTLY_LIST:
        message = f"cost about {cost} tokens in every request that has them; offer fewer, say less"
        yield Finding("note", "cost", "tools", message)


# ---------------------------------------------------------------- the rest


def _of_prompt(prompt: t.Prompt) -> Iterator[Finding]:
    if not prompt.description:
        yield Finding("note", "description", prompt.name, "has no description")
    silent = [one.name for one in prompt.arguments or [] if not one.description]
    if silent:
        message = f"says nothing of {listed(silent)}"
        yield Finding("note", "parameter-description", prompt.name, message)


def _twice(what: str, names: list[str]) -> Iterator[Finding]:
    for name, count in Counter(names).items():
        if count > 1:
            message = f"is listed {count} times as a {what}: which one is meant is chance"
            yield Finding("warning", "duplicate", name, message)


def listed(names: Iterable[str]) -> str:
    """Names in a sentence, as many as anybody reads."""
    given = list(dict.fromkeys(names))
    more = f" and {len(given) - MAX_NAMED} more" if len(given) > MAX_NAMED else ""
    return ", ".join(one_line(name) for name in given[:MAX_NAMED]) + more


def tokens(tool: t.Tool) -> int:
    """What a tool costs in every request that has it: an estimate, from what a model is told."""
    entry: dict[str, Any] = anthropic.tool_entry(
        tool.name, tool.description, tool.input_schema, False
    )
    try:
        return -(-len(encode(entry)) // CHARACTERS_A_TOKEN)
    except LocalProtocolError:
        return 0


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


# Servers that are asked together; each may be a process.
AT_ONCE: Final = 8


def inspect_target(terms: Terms, strict: bool) -> int:
    """Show all that a server says of itself, or each of a configuration; the exit code, 1 for
    warnings if `strict`. Raises `Trouble`."""
    if not is_configuration(terms.target):
        return inspect_server(terms, strict)
    screen = Screen()
    prepare_log(terms.debug)
    return run(terms, screen, _inspect_each(config_for(terms, screen, ""), terms, screen, strict))


async def _inspect_each(config: Config, terms: Terms, screen: Screen, strict: bool) -> int:
    entries = [one for one in config.entries.values() if one.settings.enabled]
    room = asyncio.Semaphore(AT_ONCE)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_asked(entry, screen, room)) for entry in entries]
    outcomes = {entry.key: task.result() for entry, task in zip(entries, tasks, strict=True)}
    found = {key: one for key, one in outcomes.items() if isinstance(one, Facts)}
    errors = {key: one for key, one in outcomes.items() if isinstance(one, ColonnadeError)}
    broken = [_problem(key, error) for key, error in errors.items()]
    problems = [*config.problems, *broken]
    if terms.as_json:
        servers = {key: facts.plain() for key, facts in found.items()}
        show_json({"servers": servers, "problems": plain_problems(problems)}, screen)
    else:
        _show(found, screen)
        show_problems(problems, screen)
    findings = [one for facts in found.values() for one in facts.findings]
    return code_of_many(found, errors.values()) or code_of_findings(findings, strict)


def _problem(key: str, error: ColonnadeError) -> HostProblem:
    """What is wrong with a server, with its name."""
    words = sentence(error)
    return HostProblem(key, words if error.server == key else f"server {key!r}: {words}")


async def _asked(
    entry: ServerEntry, screen: Screen, room: asyncio.Semaphore
) -> Facts | ColonnadeError:
    settings = entry.settings
    async with room:
        try:
            target = await entry.resolve()
            url = url_of(target)
            auth = (
                login_for(url, screen, ask=False) if url and not has_authorization(target) else None
            )
            connecting = connect(
                target,
                server_name=entry.key,
                auth=auth,
                revision=settings.revision,
                timeout_s=settings.timeout_s,
            )
            async with connecting as client:
                return await facts_of(One(client))
        except ColonnadeError as error:
            return error


def _show(found: dict[str, Facts], screen: Screen) -> None:
    for number, (key, facts) in enumerate(found.items()):
        screen.write(f"{chr(10) if number else ''}{screen.accent(one_line(key))}: ")
        show_facts(facts, screen)
