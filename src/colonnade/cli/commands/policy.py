"""`colonnade policy ls`, `explain`, `test` and `forget`: rules of colonnade.toml,
and the decisions that a person remembered.

Rules: nothing is started, and nothing is sent. A rule is shown as it is written in the file.
"""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, cast

import click
import msgspec
from msgspec import Raw
from msgspec.structs import replace

from colonnade.cli.commands.call import parse_arguments
from colonnade.cli.errors import FAILED, CliError, Reporter
from colonnade.cli.options import Action, complete_file
from colonnade.cli.remembered_rules import (
    deciding_rule,
    forget_rule,
    remembered_rows,
    remembered_to_json,
    rule_to_json,
    said_of,
    show_remembered,
)
from colonnade.cli.terminal import Terminal, columns
from colonnade.host.config.explain import line, short
from colonnade.host.config.reader import ConfigReader
from colonnade.host.config.settings import Config, Settings
from colonnade.host.policy.approvals.remembered import RememberedRule
from colonnade.host.policy.request import (
    Decision,
    ItemKind,
    PolicyRequest,
    digest_of,
    server_identity,
)
from colonnade.host.policy.rules.conditions import HINTS, INPUT_METHODS
from colonnade.host.policy.rules.config import PolicyReader, PolicyTest
from colonnade.host.policy.rules.rules import FunctionRule, Policy, Rule
from colonnade.host.servers.naming import BETWEEN, qualified_name
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.revision import NEWEST
from colonnade.text import clean, closest

JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
FILE: Final = click.argument("file", metavar="FILE", shell_complete=complete_file)
KINDS: Final = ("tool", "prompt", "resource", *INPUT_METHODS)
_METHODS: Final[Mapping[str, str]] = {
    "tool": "tools/call",
    "prompt": "prompts/get",
    "resource": "resources/read",
    **INPUT_METHODS,
}
# Of a file whose rules ask, and which says nothing of where.
NO_APPROVALS: Final = (
    "  there is no [approvals] in it: without Host(inbox=…), or a terminal of colonnade chat, the "
    "call is refused"
)


@click.group(epilog="Example: colonnade policy explain colonnade.toml files write path=/etc/hosts")
def policy() -> None:
    """The rules for calls, in [[policy]] of colonnade.toml."""


@policy.command(
    short_help="List the rules.",
    epilog="Example: colonnade policy ls colonnade.toml",
)
@click.argument("file", metavar="[FILE]", default="", shell_complete=complete_file)
@JSON
def ls(file: str, as_json: bool) -> Action:
    """List the rules of a file in their order, and the decisions that you remembered.

    The first rule that matches a call decides. A remembered decision answers where that rule asks;
    `colonnade policy forget ID` removes it. Without FILE, only these are listed.
    """
    return partial(list_rules, file, as_json=as_json)


@policy.command(
    short_help="Remove a remembered decision.",
    epilog="Example: colonnade policy forget 4f2a91c0",
)
@click.argument("id")
def forget(id: str) -> Action:
    """Remove a decision that was remembered in the inbox; the next such call is asked about."""
    return partial(forget_rule, id)


@policy.command(
    short_help="Show which rule decides on a call, and why.",
    epilog="""\b
Examples:
  colonnade policy explain colonnade.toml files write path=/srv/notes.txt
  colonnade policy explain colonnade.toml shop pay 'amount:=500' --principal ann
  colonnade policy explain colonnade.toml github search --claim groups=interns
  colonnade policy explain colonnade.toml files file:///etc/hosts --kind resource
  colonnade policy explain colonnade.toml github search --kind sampling
""",
)
@FILE
@click.argument("server", metavar="SERVER")
@click.argument("name", metavar="TOOL")
@click.argument("arguments", metavar="[ARGUMENT]...", nargs=-1)
@click.option("--principal", default="", metavar="NAME", help="The authenticated caller.")
@click.option("--client", default="", metavar="NAME", help="The name of the caller's client.")
@click.option(
    "--claim", "claims", multiple=True, metavar="NAME=VALUE", help="A claim of its token."
)
@click.option(
    "--hint", "hints", multiple=True, metavar="NAME=BOOL", help="An annotation of the tool."
)
@click.option("--kind", type=click.Choice(KINDS), default="tool", help="What is requested.")
@JSON
def explain(
    file: str,
    server: str,
    name: str,
    arguments: tuple[str, ...],
    as_json: bool,
    **caller: Any,
) -> Action:
    """Show which rule decides on a call, why each rule before it does not, and the decision that
    you remembered, if it answers where the rule asks.

    TOOL is the name on the server or its qualified name (files__write), or the name of a prompt or
    the URI of a resource with --kind; for what a server asks (elicitation, sampling, roots), the
    tool whose call it belongs to.
    Arguments are KEY=VALUE for strings, KEY:=JSON, @FILE or - for a JSON object.
    """
    return partial(explain_call, file, server, name, arguments, as_json=as_json, **caller)


@policy.command(
    short_help="Run the tests of a policy.",
    epilog="""\b
Examples:
  colonnade policy test colonnade.toml               the [[policy.test]] of the file
  colonnade policy test colonnade.toml cases.toml    and those of another file
""",
)
@FILE
@click.argument("cases", metavar="[CASES]...", nargs=-1, shell_complete=complete_file)
@JSON
def test(file: str, cases: tuple[str, ...], as_json: bool) -> Action:
    """Compare the decisions of a policy with those that its tests expect.

    A test is a table [[policy.test]] with server, tool, arguments and expect; also principal,
    client, claims, and prompt, resource or request instead of tool. The exit status is 1 if a
    decision is another one, and if there are no tests.
    """
    return partial(test_policy, file, cases, as_json=as_json)


# ---------------------------------------------------------------- files


class PolicyFile(NamedTuple):
    """A file, its servers, and its rules and tests."""

    file: str
    config: Config
    reading: PolicyReader

    @property
    def policy(self) -> Policy:
        """The rules."""
        return self.reading.policy


def read_policy(file: str) -> PolicyFile:
    """Read the rules of a file. Raises `CliError` if it has none, or an error."""
    found = _read(file)
    if found is None or not found.reading.has_rules:
        hint = "write tables [[policy]] into a colonnade.toml; docs/policy.md shows them"
        raise CliError(f"{clean(file)} has no policy", FAILED, hint=hint)
    problems = [one for one in found.config.problems if not one.server]
    if problems:
        raise CliError("\n".join(map(line, problems)), FAILED)
    return found


def _read(file: str) -> PolicyFile | None:
    reader = ConfigReader(trust=True, on_input=lambda _: None)
    config = reader.read(file)
    source = next((one for one in reader.sources if one.policy is not None), None)
    if source is None or source.policy is None:
        wrong = [one for one in config.problems if not one.server]
        if wrong:
            raise CliError("\n".join(map(line, wrong)), FAILED)
        return None
    return PolicyFile(source.file, config, PolicyReader(source.policy))


# ---------------------------------------------------------------- ls


def list_rules(file: str, *, as_json: bool) -> int:
    """List the rules of a file and the remembered decisions; return the exit code."""
    terminal = Terminal()
    if not file:
        return _list_remembered(terminal, as_json=as_json)
    found = read_policy(file)
    rules = [one for one in found.policy.rules if isinstance(one, Rule)]
    if as_json:
        listed = [{"name": one.name, "place": one.place, **one.written} for one in rules]
        value = {
            "version": found.policy.version,
            "default": found.policy.default,
            "rules": listed,
            "remembered": remembered_to_json(),
        }
        terminal.show(msgspec.json.format(encode(value)).decode())
        return 0
    rows = [[str(number), *_row(one)] for number, one in enumerate(rules, 1)]
    if not rules or rules[-1].conditions:
        rows.append(["", found.policy.default, "", "everything else"])
    terminal.write(columns([[clean(cell) for cell in row] for row in rows], indent=0))
    for warning in found.config.warnings:
        terminal.write(f"{line(warning)} (warning)\n")
    show_remembered(terminal)
    return 0


def _list_remembered(terminal: Terminal, *, as_json: bool) -> int:
    if as_json:
        value = {"remembered": remembered_to_json()}
        terminal.show(msgspec.json.format(encode(value)).decode())
        return 0
    rows = remembered_rows()
    nothing = "no decisions are remembered; name a file to list its rules\n"
    terminal.write(columns(rows, indent=0, most=terminal.width) if rows else nothing)
    return 0


def _row(rule: Rule) -> list[str]:
    return [rule.action, _line_of(rule), _conditions(rule)]


def _line_of(rule: Rule) -> str:
    return f"line {rule.place.rpartition(':')[2]}"


def _conditions(rule: Rule) -> str:
    written = {name: value for name, value in rule.written.items() if name != "action"}
    shown = "  ".join(f"{name} = {_value(value)}" for name, value in written.items())
    named = f"{rule.name!r}  " if rule.name else ""
    return named + (shown or "everything")


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value).items()
        return f"{{ {', '.join(f'{name} = {_value(one)}' for name, one in members)} }}"
    return encode(value).decode()


# ---------------------------------------------------------------- explain


def explain_call(
    file: str,
    server: str,
    name: str,
    typed: Sequence[str],
    *,
    as_json: bool,
    principal: str,
    client: str,
    claims: Sequence[str],
    hints: Sequence[str],
    kind: str,
) -> int:
    """Explain the decision on one call; return the exit code."""
    found = read_policy(file)
    entry = found.config.entries.get(server)
    if entry is None:
        near = closest(server, found.config.entries)
        more = f"; did you mean {near}?" if near else ""
        message = f"there is no server {clean(server)} in {clean(file)}{more}"
        if found.config.entries:
            raise CliError(message)
        Reporter().info(message)
    elif kind != "resource":
        name = _own_name(entry.settings.namespace or server, name)
    request = make_request(
        server,
        name,
        kind,
        entry.settings if entry is not None else Settings(),
        arguments=_typed(typed),
        principal=principal,
        client=client,
        claims=_claims(claims),
        annotations=_hints(hints),
    )
    if entry is not None:
        request = replace(request, identity=server_identity(entry))
    _show_explanation(found, request, as_json=as_json)
    return 0


def _own_name(namespace: str, name: str) -> str:
    """The name on the server, also of a qualified name of that server."""
    own = name.partition(BETWEEN)[2]
    return own if own and qualified_name(namespace, own) == name else name


def _show_explanation(found: PolicyFile, request: PolicyRequest, *, as_json: bool) -> None:
    terminal = Terminal()
    steps, decision = found.policy.explain(request), found.policy.decide(request)
    hidden = found.policy.hides(request) and request.method not in INPUT_METHODS.values()
    remembered = deciding_rule(request, decision)
    if as_json:
        listed = [
            {"rule": step.rule.label, "decides": step.action, "why": step.why} for step in steps
        ]
        value = {**msgspec.to_builtins(decision), "hidden": hidden, "steps": listed}
        value["remembered"] = rule_to_json(remembered) if remembered is not None else None
        terminal.show(msgspec.json.format(encode(value)).decode())
        return
    rows: list[list[str]] = []
    for step in steps:
        rule = step.rule
        action, where = (
            ("", "") if isinstance(rule, FunctionRule) else (rule.action, _line_of(rule))
        )
        why = f"no: {step.why}" if step.action is None else "yes"
        if step.action is not None and step.why:
            why = f"in one reading: {step.why}"
        rows.append([where, action, rule.name, why])
    terminal.write(columns([[clean(cell) for cell in row] for row in rows], indent=0))
    sentence = _sentence(decision, found.file, hidden=hidden, remembered=remembered)
    terminal.write(f"{clean(sentence)}\n")
    if remembered is not None:
        terminal.write(said_of(remembered))
    elif decision.action == "ask" and found.config.approvals is None:
        terminal.write(f"{NO_APPROVALS}\n")


def _sentence(
    decision: Decision, file: str, *, hidden: bool, remembered: RememberedRule | None
) -> str:
    place = decision.rule.replace(file, short(file, os.path.expanduser("~"), os.getcwd()))
    if hidden:
        return f"deny: {place}; it is not listed, and a call is answered as one of an unknown name"
    if remembered is not None:
        effect = "the call is sent" if remembered.action == "allow" else "the call is refused"
        return f"ask: {place}; a remembered decision answers, so {effect}"
    words = {
        "allow": "the call is sent",
        "ask": "a person is asked",
        "deny": "the call is refused because of its arguments",
    }
    return f"{decision.action}: {place}; {words[decision.action]}"


def make_request(
    server: str,
    name: str,
    kind: str,
    settings: Settings,
    *,
    arguments: Mapping[str, Any],
    principal: str = "",
    client: str = "",
    claims: Mapping[str, Any] | None = None,
    annotations: Mapping[str, bool] | None = None,
    trusted: bool | None = None,
) -> PolicyRequest:
    """The request of a call, as a host would make it."""
    item: ItemKind = "tool"
    if kind in ("prompt", "resource"):
        item = "prompt" if kind == "prompt" else "resource"
    definition = None
    if item == "tool":
        definition = t.Tool(
            name=name, input_schema={"type": "object"}, annotations=_annotations(annotations or {})
        )
    is_uri = item == "resource"
    return PolicyRequest(
        principal=principal,
        claims=claims or {},
        client=client,
        revision=NEWEST.date,
        server=server,
        identity="",
        trusted=settings.trusted if trusted is None else trusted,
        method=_METHODS[kind],
        kind=item,
        name=name,
        qualified=name if is_uri else qualified_name(settings.namespace or server, name),
        arguments=Raw(encode(dict(arguments))),
        definition=definition,
        definition_digest=digest_of(definition),
        namespace=settings.namespace or server,
    )


def _annotations(hints: Mapping[str, bool]) -> t.ToolAnnotations:
    return msgspec.convert(dict(hints), t.ToolAnnotations)


def _typed(typed: Sequence[str]) -> dict[str, Any]:
    parsed = parse_arguments(typed)
    given: dict[str, Any] = {}
    for one in parsed.objects:
        given.update(one)
    for one in parsed.single:
        given[one.key] = _json(one.text, one.key) if one.is_json else one.text
    return given


def _json(text: str, what: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise CliError(f"{clean(what)}: invalid JSON: {error}") from None


def _claims(given: Sequence[str]) -> dict[str, Any]:
    """Claims; one that is given several times is a list."""
    found: dict[str, Any] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise CliError(f"--claim {clean(one)}: expected NAME=VALUE")
        before = found.get(name)
        found[name] = value if before is None else [*_listed(before), value]
    return found


def _listed(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def _hints(given: Sequence[str]) -> dict[str, bool]:
    found: dict[str, bool] = {}
    for one in given:
        name, _, value = one.partition("=")
        if name not in HINTS or value not in ("true", "false"):
            known = ", ".join(HINTS)
            raise CliError(f"--hint {clean(one)}: expected NAME=true or NAME=false; names: {known}")
        found[name] = value == "true"
    return found


# ---------------------------------------------------------------- test


def test_policy(file: str, cases: Sequence[str], *, as_json: bool) -> int:
    """Run the tests of a policy; return the exit code."""
    found, terminal = read_policy(file), Terminal()
    tests = [*found.reading.tests]
    for one in cases:
        more = _read(one)
        if more is not None and (more.reading.test_problems or more.reading.problems):
            wrong = [*more.reading.problems, *more.reading.test_problems]
            raise CliError("\n".join(map(line, wrong)), FAILED)
        tests += more.reading.tests if more is not None else []
    if not tests:
        hint = "write tables [[policy.test]] with server, tool and expect"
        raise CliError(f"{clean(file)} has no tests", FAILED, hint=hint)
    failures = [(one, decision) for one in tests if (decision := _failure(found, one)) is not None]
    if as_json:
        listed = [
            {"place": str(one.place), "expect": one.expect, **msgspec.to_builtins(decision)}
            for one, decision in failures
        ]
        value = {"tests": len(tests), "failures": listed}
        terminal.show(msgspec.json.format(encode(value)).decode())
        return FAILED if failures else 0
    for one, decision in failures:
        where = f"{one.place.file}:{one.place.line}:{one.place.column}"
        message = f"{where}: expected {one.expect}, but {decision.reason}"
        terminal.write(f"{clean(message)}\n")
    count = len(tests) - len(failures)
    terminal.write(f"{count} of {len(tests)} tests passed\n")
    return FAILED if failures else 0


def _failure(found: PolicyFile, test: PolicyTest) -> Decision | None:
    entry = found.config.entries.get(test.server)
    kind, name = "tool", test.tool
    if test.request:
        kind = test.request
    elif test.prompt:
        kind, name = "prompt", test.prompt
    elif test.resource:
        kind, name = "resource", test.resource
    request = make_request(
        test.server,
        name,
        kind,
        entry.settings if entry is not None else Settings(),
        arguments=test.arguments,
        principal=test.principal,
        client=test.client,
        claims=test.claims,
        annotations=test.annotations,
        trusted=test.trusted,
    )
    decision = found.policy.decide(request)
    return decision if decision.action != test.expect else None
