"""What an author may want to mend: names, descriptions and schemas that clients or models choke on,
and what a list of tools costs.

Rules: pure; it judges what a server lists, and never calls anything. A warning is what some client
or model provider refuses or misses; a note is advice. Tokens are an estimate, and are called so.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple, cast

from colonnade.cli.text import one_line
from colonnade.client.signatures import members
from colonnade.errors import LocalProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.subschemas import Unsound, survey
from colonnade.protocol.uritemplate import Template
from colonnade.providers import anthropic
from colonnade.providers.names import is_safe, safe_name
from colonnade.providers.schemas import (
    OPENAI,
    ROOT_REFUSED,
    Unfit,
    applied,
    references,
    strict,
    written_out,
)

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
