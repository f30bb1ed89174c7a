"""`colonnade inspect`: what a server reports about itself, everything that it lists, and lint.

Rules: what is cut or wrapped for a terminal is complete with `--json`. Text from a server is
cleaned before it is styled. Findings do not change the exit code, except with `--strict`.
"""

import asyncio
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, Literal, NamedTuple, cast

import click
import msgspec

from colonnade.cli.commands.ls import title_of
from colonnade.cli.connections import (
    ServerListing,
    SingleServer,
    combined_exit_code,
    load_config_for,
    login_for,
    problems_to_json,
    show_problems,
)
from colonnade.cli.errors import FAILED
from colonnade.cli.options import (
    Action,
    ConnectionOptions,
    ServerCommand,
    connection_options,
    is_configuration,
    take_connection_options,
)
from colonnade.cli.session import (
    CommandSession,
    configure_logging,
    error_message,
    run_async,
    run_connected,
    show_json,
)
from colonnade.cli.terminal import Terminal, columns
from colonnade.client.client import Client
from colonnade.client.connect import connect
from colonnade.client.tools import members, prompt_signature, tool_signature
from colonnade.errors import ColonnadeError, LocalProtocolError
from colonnade.host.config.settings import Config, HostProblem, ServerEntry
from colonnade.host.servers.supervisor import has_authorization, sandbox_for, url_of
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.link.link import DISCOVER
from colonnade.protocol.schema.bounds import UnusableSchema, estimate_costs
from colonnade.protocol.uritemplate import UriTemplate
from colonnade.providers import anthropic
from colonnade.providers.schemas import (
    OPENAI,
    ROOT_FORBIDDEN,
    NoStrictForm,
    inline_references,
    reachable_subschemas,
    references,
    strict_schema,
)
from colonnade.providers.tool_calls import is_safe, safe_name
from colonnade.text import clean, first_line, one_line, width

# The usual estimate for English and JSON; a real tokenizer belongs to one model only.
CHARACTERS_A_TOKEN: Final = 4
# The tokens of one tool above which it is noted.
COSTLY_TOOL: Final = 1_000
# The tokens of all tools above which they are noted.
COSTLY_LIST: Final = 10_000
# The most tools in one request to OpenAI.
MAX_TOOLS: Final = 128
# Names that are listed in one message.
MAX_NAMES: Final = 6

# The parameter names that Anthropic accepts.
_PARAMETER = re.compile(r"[A-Za-z0-9_.-]{1,64}")

# An explode modifier without an operator, as in `{path*}`; `{/path*}` joins with slashes.
_STARRED = re.compile(r"\{([A-Za-z0-9_.]+)\*\}")


@click.command(
    cls=ServerCommand,
    epilog="""\b
Examples:
  colonnade inspect server.py
  colonnade inspect server.py --as 2024-11-05
  colonnade inspect server.py --strict
  colonnade inspect mcp.json --server git
  colonnade inspect -- uvx mcp-server-git
""",
)
@connection_options
@click.option("--strict", is_flag=True, help="Exit with status 1 if there are warnings.")
def inspect(strict: bool, **options: Any) -> Action:
    """Show what a server reports about itself, everything that it lists, and lint warnings.

    TARGET is a URL, a Python file (FILE[:NAME]), a configuration file (all of its servers), or a
    command line after --.
    With --as, it shows what a client of that revision gets.
    """
    return partial(inspect_target, take_connection_options(options), strict)


# ---------------------------------------------------------------- lint

Level = Literal["warning", "note"]


class Finding(NamedTuple):
    """One result of lint: its level, rule, item and message."""

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
    """Check everything that a server lists; warnings come first."""
    findings = [
        *_duplicates("tool", [one.name for one in tools]),
        *_duplicates("prompt", [one.name for one in prompts]),
        *_duplicates("resource", [one.uri for one in resources]),
        *_duplicates("template", [one.uri_template for one in templates]),
        *_name_clashes(tools),
    ]
    for tool in tools:
        findings += _lint_tool(tool)
    for prompt in prompts:
        findings += _lint_prompt(prompt)
    for resource in (*resources, *templates):
        if not resource.description:
            findings.append(Finding("note", "description", resource.name, "has no description"))
    for template in templates:
        findings += _lint_template(template)
    findings += _lint_list(tools)
    return sorted(findings, key=lambda one: one.level == "note")


def _lint_template(template: t.ResourceTemplate) -> Iterator[Finding]:
    text = template.uri_template
    try:
        UriTemplate(text, expand_only=True)
    except LocalProtocolError as error:
        yield Finding("warning", "template", template.name, f"invalid URI template: {error}")
        return
    if (starred := _STARRED.search(text)) is not None:
        yield Finding(
            "warning",
            "template",
            template.name,
            f"`{starred[0]}` expands to a list with commas (RFC 6570), not to a path; use "
            f"`{{+{starred[1]}}}` for a path",
        )


# ---------------------------------------------------------------- tools


def _lint_tool(tool: t.Tool) -> Iterator[Finding]:
    def warn(rule: str, message: str) -> Finding:
        return Finding("warning", rule, tool.name, message)

    if not is_safe(tool.name):
        yield warn(
            "name",
            "model providers reject its name (allowed are letters, digits, _ and -, at most 64); "
            f"they are given `{safe_name(tool.name)}`",
        )
    if not tool.description:
        yield warn("description", "has no description: a model knows the name only")
    own = members(tool.input_schema)
    undescribed = [name for name, one in own.items() if not _described(one)]
    if undescribed:
        yield warn("parameter-description", _undescribed("parameter", undescribed))
    invalid = [name for name in own if not _PARAMETER.fullmatch(name)]
    if invalid:
        yield warn(
            "parameter-name", f"model providers reject {_named('parameter', invalid)}; rename it"
        )
    yield from _lint_schema(tool)
    cost = tokens(tool)
    if cost > COSTLY_TOOL:
        yield Finding(
            "note", "cost", tool.name, f"takes about {cost} tokens; shorten its descriptions"
        )


def _lint_schema(tool: t.Tool) -> Iterator[Finding]:
    schema = tool.input_schema

    def warn(rule: str, message: str) -> Finding:
        return Finding("warning", rule, tool.name, message)

    at_root = [word for word in ROOT_FORBIDDEN if word in schema]
    if at_root or schema.get("type") != "object":
        what = f"has {listed(at_root)} at its root" if at_root else "is not an object at its root"
        yield warn(
            "root", f"its input schema {what}, which model providers reject; move it to a parameter"
        )
    referred = list(references(schema))
    if referred:
        is_endless = any(True for _ in references(inline_references(schema)))
        more = ", and it is recursive" if is_endless else "; inline the definition"
        yield warn("ref", f"uses $ref to {listed(referred)}: some clients do not resolve it{more}")
    bare = [name for name, one in _arrays(schema) if "items" not in one]
    if bare:
        yield warn("items", f"VS Code rejects arrays without `items`: {_named('parameter', bare)}")
    try:
        estimate_costs(schema)
    except UnusableSchema as error:
        yield warn("schema", f"clients cannot validate arguments with its schema: {error}")
    try:
        strict_schema(schema, OPENAI)
    except NoStrictForm as error:
        if not at_root:
            yield Finding("note", "strict", tool.name, f"cannot use strict mode of OpenAI: {error}")


def _arrays(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every array in the schema, with the parameter that it is in."""
    for name, one in members(schema).items():
        if isinstance(one, dict):
            # `$ref` is resolved against the whole schema.
            parts = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
            for part in reachable_subschemas({**parts, **cast("dict[str, Any]", one)}):
                kinds = part.get("type")
                if kinds == "array" or (isinstance(kinds, list) and "array" in kinds):
                    yield name, part


def _described(schema: object) -> bool:
    return isinstance(schema, dict) and bool(cast("dict[str, Any]", schema).get("description"))


def _name_clashes(tools: Sequence[t.Tool]) -> Iterator[Finding]:
    """Names that are the same for models."""
    spelled: dict[str, set[str]] = {}
    for tool in tools:
        spelled.setdefault(safe_name(tool.name).lower(), set()).add(tool.name)
    for names in spelled.values():
        if len(names) > 1:
            first, *others = sorted(names)
            message = f"differs from {listed(others)} only in case, or not at all for models"
            yield Finding("warning", "name-clash", first, message)


def _lint_list(tools: Sequence[t.Tool]) -> Iterator[Finding]:
    if len(tools) > MAX_TOOLS:
        message = f"there are {len(tools)}; OpenAI rejects requests with more than {MAX_TOOLS}"
        yield Finding("warning", "count", "tools", message)
    cost = sum(map(tokens, tools))
    if cost > COSTLY_LIST:
        message = f"take about {cost} tokens in every request; offer fewer, or shorten descriptions"
        yield Finding("note", "cost", "tools", message)


# ---------------------------------------------------------------- prompts and lists


def _lint_prompt(prompt: t.Prompt) -> Iterator[Finding]:
    if not prompt.description:
        yield Finding("note", "description", prompt.name, "has no description")
    undescribed = [one.name for one in prompt.arguments or [] if not one.description]
    if undescribed:
        message = _undescribed("argument", undescribed)
        yield Finding("note", "parameter-description", prompt.name, message)


def _duplicates(what: str, names: list[str]) -> Iterator[Finding]:
    for name, count in Counter(names).items():
        if count > 1:
            message = f"is listed {count} times as a {what}"
            yield Finding("warning", "duplicate", name, message)


def listed(names: Iterable[str]) -> str:
    """Names in a message, at most `MAX_NAMES`."""
    given = list(dict.fromkeys(names))
    more = f" and {len(given) - MAX_NAMES} more" if len(given) > MAX_NAMES else ""
    return ", ".join(f"`{one_line(name)}`" for name in given[:MAX_NAMES]) + more


def _named(what: str, names: list[str]) -> str:
    return f"{what}{'s' if len(names) > 1 else ''} {listed(names)}"


def _undescribed(what: str, names: list[str]) -> str:
    return f"{_named(what, names)} {'have' if len(names) > 1 else 'has'} no description"


def tokens(tool: t.Tool) -> int:
    """An estimate of the tokens that a tool takes in a request to a model."""
    entry: dict[str, Any] = anthropic.tool_entry(
        tool.name, tool.description, tool.input_schema, False
    )
    try:
        return -(-len(encode(entry)) // CHARACTERS_A_TOKEN)
    except LocalProtocolError:
        return 0


# The indentation of a wrapped line.
INDENT = 6
# Lines are not wrapped for a narrower terminal.
MIN_WIDTH = 40
LEVELS = ("warning", "note")
ESTIMATE = f"estimated at {CHARACTERS_A_TOKEN} characters per token"


class ServerFacts(NamedTuple):
    """Everything that a server reports about itself, and the results of lint."""

    name: str
    info: t.Implementation | None
    revision: str
    # The revisions that it supports; None if the negotiated revision cannot tell.
    supported_revisions: list[str] | None
    capabilities: t.ServerCapabilities
    instructions: str | None
    listing: ServerListing
    findings: list[Finding]

    def to_json(self) -> dict[str, Any]:
        """The same as JSON, with the names of the protocol."""
        each = {tool.name: tokens(tool) for tool in self.listing.tools}
        return {
            "server": self.info,
            "revision": self.revision,
            "supported": self.supported_revisions,
            "capabilities": self.capabilities,
            "instructions": self.instructions,
            **self.listing.to_json(),
            "lint": [one._asdict() for one in self.findings],
            "tokens": {"tools": sum(each.values()), "each": each, "method": ESTIMATE},
        }


def inspect_server(options: ConnectionOptions, strict: bool) -> int:
    """Show a server; return the exit code, which is 1 for warnings if `strict`."""
    return run_connected(options, partial(_inspect, options=options, strict=strict))


async def _inspect(session: CommandSession, *, options: ConnectionOptions, strict: bool) -> int:
    servers, terminal = session
    assert isinstance(servers, SingleServer)
    facts = await inspect_connected(servers)
    if options.as_json:
        show_json(facts.to_json(), terminal)
    else:
        show_facts(facts, terminal)
    return findings_exit_code(facts.findings, strict)


async def inspect_connected(one: SingleServer) -> ServerFacts:
    """Collect everything about a server."""
    client, listing = one.client, await one.list_all()
    revisions = await supported_revisions(client)
    return ServerFacts(
        client.name,
        client.server,
        client.revision,
        revisions,
        client.capabilities,
        client.instructions,
        listing,
        lint(*listing),
    )


def findings_exit_code(findings: Sequence[Finding], strict: bool) -> int:
    """1 if there are warnings and `strict` is set."""
    return FAILED if strict and any(one.level == "warning" for one in findings) else 0


async def supported_revisions(client: Client) -> list[str] | None:
    """The revisions that the server supports; None if the negotiated revision cannot tell."""
    if DISCOVER not in client.peer.revision.methods:
        return None
    raw = await client.conversation.request(DISCOVER, t.RequestParams(), client.timeout_s)
    return decode_as(t.DiscoverResult, raw).supported_versions


# ---------------------------------------------------------------- output


def show_facts(facts: ServerFacts, terminal: Terminal) -> None:
    """Print everything about a server."""
    terminal.write(_summary(facts, terminal))
    found = facts.listing
    sections = {
        "tools": [_tool(tool, terminal) for tool in found.tools],
        "prompts": [_prompt(prompt, terminal) for prompt in found.prompts],
        "resources": [_resource(one, terminal) for one in found.resources],
        "templates": [_template(one, terminal) for one in found.templates],
    }
    for title, entries in sections.items():
        if entries:
            terminal.write(f"\n{terminal.heading(title)}\n{''.join(entries)}")
    if facts.findings:
        terminal.write(_format_findings(facts.findings, terminal))


def _summary(facts: ServerFacts, terminal: Terminal) -> str:
    info, revisions, listing = facts.info, facts.supported_revisions, facts.listing
    name = f"{one_line(info.name)} {one_line(info.version)}" if info is not None else facts.name
    title = f", {one_line(info.title)}" if info is not None and info.title else ""
    dates = "unknown in this revision" if revisions is None else one_line(", ".join(revisions))
    rows = [["revision", facts.revision], ["supports", dates]]
    if info is not None and info.description:
        rows.append(["description", one_line(info.description)])
    if info is not None and info.website_url:
        rows.append(["website", one_line(info.website_url)])
    rows.append(["capabilities", ", ".join(capability_names(facts.capabilities)) or "none"])
    if listing.tools:
        cost = sum(map(tokens, listing.tools))
        rows.append(["tokens", f"about {cost} for the tools ({ESTIMATE})"])
    instructions = clean(facts.instructions or "", lines=True).strip().splitlines()
    rows += [["instructions" * (number == 0), line] for number, line in enumerate(instructions)]
    label_width = max(len(label) for label, _ in rows)
    lines = [f"{terminal.heading(name)}{title}\n"]
    for row, line in zip(rows, columns(rows).splitlines(keepends=True), strict=True):
        lines.append(wrap_line(line.rstrip(), 2 + label_width + 2, terminal, label=row[0]))
    return "".join(lines)


def wrap_line(line: str, continuation: int, terminal: Terminal, label: str = "") -> str:
    """Wrap a line to the width of the terminal; its label is dimmed."""
    available = terminal.width
    if available is not None and available >= MIN_WIDTH and width(line) > available:
        indent = " " * (len(line) - len(line.lstrip()))
        parts = textwrap.wrap(
            line.strip(),
            available,
            initial_indent=indent,
            subsequent_indent=" " * continuation,
            break_on_hyphens=False,
        )
        line = "\n".join(parts)
    if label:
        line = line.replace(label, terminal.dim(label), 1)
    return f"{line}\n"


def capability_names(can: t.ServerCapabilities) -> list[str]:
    """The capabilities of a server, with the names of the protocol."""
    plain: dict[str, Any] = msgspec.to_builtins(can)
    found: list[str] = []
    for name, settings in plain.items():
        if name in ("experimental", "extensions"):
            found += [f"{name} {one_line(one)}" for one in settings]
            continue
        marks = [one_line(key) for key, value in settings.items() if value]
        found.append(f"{name} ({', '.join(marks)})" if marks else name)
    return found


def _format_findings(findings: list[Finding], terminal: Terminal) -> str:
    """The results of lint: warnings, then notes, and how many of each."""
    text, counts = "", list[str]()
    for level in LEVELS:
        found = [one for one in findings if one.level == level]
        if not found:
            continue
        text += f"\n{terminal.heading(f'{level}s')}\n"
        mark = terminal.warning("!") if level == "warning" else "-"
        for one in found:
            line = wrap_line(f"    {one_line(one.where)}: {one.message}", INDENT, terminal)
            text += f"  {mark} {line[4:]}"
        counts.append(f"{len(found)} {level}{'' if len(found) == 1 else 's'}")
    return text + terminal.dim(f"  {', '.join(counts)}; --json names the rules") + "\n"


# ---------------------------------------------------------------- listed items


def _tool(tool: t.Tool, terminal: Terminal) -> str:
    described = {
        name: first_line(
            cast("dict[str, Any]", one).get("description") if isinstance(one, dict) else ""
        )
        for name, one in members(tool.input_schema).items()
    }
    rows = [[one_line(name), description] for name, description in described.items() if description]
    head = _head(tool_signature(tool), one_line(tool.name), terminal)
    return _entry(
        head, title_of(tool), tool.description, rows, ", ".join(_annotations(tool)), terminal
    )


def _annotations(tool: t.Tool) -> list[str]:
    """The annotations of a tool that are set."""
    annotations = tool.annotations or t.ToolAnnotations()
    labels = {
        "read_only_hint": ("read-only", ""),
        "destructive_hint": ("destructive", "not destructive"),
        "idempotent_hint": ("idempotent", ""),
        "open_world_hint": ("open world", "closed world"),
    }
    result: list[str] = []
    for name, (yes, no) in labels.items():
        value = getattr(annotations, name)
        result += [word for word in (yes if value else no,) if value is not None and word]
    return result


def _prompt(prompt: t.Prompt, terminal: Terminal) -> str:
    rows = [
        [one_line(one.name), first_line(one.description)]
        for one in prompt.arguments or []
        if one.description
    ]
    head = _head(prompt_signature(prompt), one_line(prompt.name), terminal)
    return _entry(head, title_of(prompt), prompt.description, rows, "", terminal)


def _resource(one: t.Resource, terminal: Terminal) -> str:
    size = f", {one.size} bytes" if one.size is not None else ""
    kind = one_line(one.mime_type) + size
    uri, title = one_line(one.uri), one_line(t.display_name(one))
    title = title if title != uri else ""
    return _entry(_head(uri, uri, terminal), title, one.description, [], kind, terminal)


def _template(one: t.ResourceTemplate, terminal: Terminal) -> str:
    uri, title = one_line(one.uri_template), one_line(t.display_name(one))
    title = title if title != uri else ""
    kind = one_line(one.mime_type)
    return _entry(_head(uri, uri, terminal), title, one.description, [], kind, terminal)


def _head(line: str, name: str, terminal: Terminal) -> str:
    """The first line of an item, with its name styled."""
    text = wrap_line(f"  {line}", INDENT, terminal)
    return text.replace(name, terminal.accent(name), 1) if name else text


def _entry(
    head: str,
    title: str,
    description: str | None,
    rows: list[list[str]],
    last: str,
    terminal: Terminal,
) -> str:
    """One item, with its description below."""
    lines = clean(description or "", lines=True).strip().splitlines()
    text = head
    text += wrap_line(f"      {title}", INDENT, terminal) if title else ""
    for line in lines:
        text += wrap_line(f"      {line}".rstrip(), INDENT, terminal)
    lead = 10 + max((width(row[0]) for row in rows), default=0)
    for line in columns(rows, indent=8).splitlines():
        text += wrap_line(line, lead, terminal)
    last = last.strip(", ")
    return text + (terminal.dim(f"      ({last})") + "\n" if last else "")


# Servers that are inspected in parallel; each may be a process.
MAX_PARALLEL: Final = 8


def inspect_target(options: ConnectionOptions, strict: bool) -> int:
    """Show a server, or each server of a configuration; return the exit code, which is 1 for
    warnings if `strict`. Raises `CliError`."""
    if not is_configuration(options.target):
        return inspect_server(options, strict)
    terminal = Terminal()
    configure_logging(options.debug)
    config = load_config_for(options, terminal)
    return run_async(options, terminal, _inspect_each(config, options, terminal, strict))


async def _inspect_each(
    config: Config, options: ConnectionOptions, terminal: Terminal, strict: bool
) -> int:
    entries = [one for one in config.entries.values() if one.settings.enabled]
    room = asyncio.Semaphore(MAX_PARALLEL)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_inspect_entry(entry, terminal, room)) for entry in entries]
    outcomes = {entry.key: task.result() for entry, task in zip(entries, tasks, strict=True)}
    working = {key: one for key, one in outcomes.items() if isinstance(one, ServerFacts)}
    errors = {key: one for key, one in outcomes.items() if isinstance(one, ColonnadeError)}
    broken = [_to_problem(key, error) for key, error in errors.items()]
    problems = [*config.problems, *broken]
    if options.as_json:
        servers = {key: facts.to_json() for key, facts in working.items()}
        show_json({"servers": servers, "problems": problems_to_json(problems)}, terminal)
    else:
        _show_all(working, terminal)
        show_problems(problems, terminal)
    findings = [one for facts in working.values() for one in facts.findings]
    return combined_exit_code(working, errors.values()) or findings_exit_code(findings, strict)


def _to_problem(key: str, error: ColonnadeError) -> HostProblem:
    """An error as a problem of the server."""
    message = error_message(error)
    return HostProblem(key, message if error.server == key else f"server {key!r}: {message}")


async def _inspect_entry(
    entry: ServerEntry, terminal: Terminal, room: asyncio.Semaphore
) -> ServerFacts | ColonnadeError:
    settings = entry.settings
    async with room:
        try:
            target = await entry.resolve()
            url = url_of(target)
            auth = (
                login_for(url, terminal, ask=False)
                if url and not has_authorization(target)
                else None
            )
            connecting = connect(
                target,
                server_name=entry.key,
                auth=auth,
                revision=settings.revision,
                timeout_s=settings.timeout_s,
                sandbox=sandbox_for(entry, target),
            )
            async with connecting as client:
                return await inspect_connected(SingleServer(client))
        except ColonnadeError as error:
            return error


def _show_all(servers: dict[str, ServerFacts], terminal: Terminal) -> None:
    for number, (key, facts) in enumerate(servers.items()):
        terminal.write(f"{chr(10) if number else ''}{terminal.accent(one_line(key))}: ")
        show_facts(facts, terminal)
