"""What `colonnade call`, `read`, `prompt` and `complete` do: one request, and its answer.

Rules: what is typed is checked before it is sent. Standard output has the answer alone. An error of
a tool is told on standard error, and is exit code 1.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from functools import partial
from typing import Any, TypeVar

from msgspec import UNSET

from colonnade.cli.arguments import Words, prompt_arguments, read_words, texts, tool_arguments
from colonnade.cli.content import Folder, plain_blocks, show_blocks, show_contents
from colonnade.cli.reaching import Terms
from colonnade.cli.talking import Desk, show_json, talk
from colonnade.cli.text import clean, one_line
from colonnade.cli.trouble import FAILED, USAGE, Trouble
from colonnade.client.results import ToolResult
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import encode

# Names that are listed where the one that was typed is none of them.
MAX_NAMES = 20

Named = TypeVar("Named", t.Tool, t.Prompt)


# ---------------------------------------------------------------- call


def call_target(terms: Terms, tool: str, typed: tuple[str, ...], out: str) -> int:
    """Call a tool; the exit code."""
    words, folder = read_words(typed), Folder(out)
    return talk(terms, partial(_call, terms=terms, name=tool, words=words, folder=folder), of=tool)


async def _call(desk: Desk, *, terms: Terms, name: str, words: Words, folder: Folder) -> int:
    reached, screen = desk
    tool = _chosen("tool", name, await reached.list_tools())
    arguments = tool_arguments(tool, words)
    result = await reached.call_tool(name, arguments)
    if terms.as_json:
        show_json(_plain(result), screen)
        return FAILED if result.is_error else 0
    if result.is_error:
        said = clean(result.text, lines=True).strip()
        raise Trouble(f"{one_line(name)} said: {said or 'nothing, but that it failed'}", FAILED)
    show_blocks(result.content, screen, folder, name)
    if not result.content and result.structured is not UNSET:
        screen.show(encode(result.structured).decode())
    _ = result.data  # raises where the server broke its own promise
    return 0


def _plain(result: ToolResult[Any]) -> dict[str, Any]:
    """A result as the protocol has it."""
    plain: dict[str, Any] = {"content": plain_blocks(result.content)}
    if result.structured is not UNSET:
        plain["structuredContent"] = result.structured
    plain["isError"] = result.is_error
    return plain | ({"_meta": result.meta} if result.meta else {})


def _chosen(what: str, name: str, offered: Iterable[Named]) -> Named:
    """The one of this name. Raises `Trouble` where there is none."""
    known = {name: one for one in offered for name in (one.name, *getattr(one, "aliases", ()))}
    if name in known:
        return known[name]
    near = get_close_matches(name, list(known), n=1)
    words = f"there is no {what} {clean(name)}; "
    if near:
        raise Trouble(f"{words}did you mean {one_line(near[0])}?", USAGE)
    if not known:
        raise Trouble(f"{words}this server has none", USAGE)
    more = ", …" if len(known) > MAX_NAMES else ""
    verb = "is only" if len(known) == 1 else "are"
    listed = one_line(", ".join(list(known)[:MAX_NAMES]))
    raise Trouble(f"{words}there {verb} {listed}{more}", USAGE)


# ---------------------------------------------------------------- read


def read_target(terms: Terms, uri: str, out: str) -> int:
    """Read a resource; the exit code."""
    return talk(terms, partial(_read, terms=terms, uri=uri, folder=Folder(out)))


async def _read(desk: Desk, *, terms: Terms, uri: str, folder: Folder) -> int:
    result = await desk.reached.read_resource(uri)
    if terms.as_json:
        show_json({"contents": result.contents}, desk.screen)
    else:
        show_contents(result.contents, desk.screen, folder)
    return 0


# ---------------------------------------------------------------- prompt


def prompt_target(terms: Terms, name: str, typed: tuple[str, ...], out: str) -> int:
    """Get a prompt; the exit code."""
    words, folder = read_words(typed), Folder(out)
    return talk(
        terms, partial(_prompt, terms=terms, name=name, words=words, folder=folder), of=name
    )


async def _prompt(desk: Desk, *, terms: Terms, name: str, words: Words, folder: Folder) -> int:
    reached, screen = desk
    prompt = _chosen("prompt", name, await reached.list_prompts())
    arguments = prompt_arguments(prompt, words)
    result = await reached.get_prompt(name, arguments)
    if terms.as_json:
        messages = [
            {"role": one.role, "content": plain_blocks([one.content])[0]} for one in result.messages
        ]
        about = {"description": result.description} if result.description is not None else {}
        show_json({**about, "messages": messages}, screen)
        return 0
    for number, message in enumerate(result.messages):
        screen.write(f"{chr(10) if number else ''}{screen.heading(f'{message.role}:')}\n")
        show_blocks([message.content], screen, folder, name)
    return 0


# ---------------------------------------------------------------- complete


def complete_target(
    terms: Terms, reference: str, argument: str, prefix: str, typed: tuple[str, ...]
) -> int:
    """Complete an argument of a prompt, or a variable of a template; the exit code."""
    kind, colon, name = reference.partition(":")
    if kind not in ("prompt", "template") or not colon or not name:
        raise Trouble(
            f"{clean(reference)} is nothing that can be completed; write prompt:NAME, or "
            "template:URI as colonnade ls shows it"
        )
    context = texts(read_words(typed))
    ref = {kind: name}
    return talk(
        terms,
        partial(_complete, terms=terms, ref=ref, argument=argument, prefix=prefix, context=context),
        of=ref.get("prompt", ""),
    )


async def _complete(
    desk: Desk,
    *,
    terms: Terms,
    ref: dict[str, str],
    argument: str,
    prefix: str,
    context: dict[str, str],
) -> int:
    reached, screen = desk
    found = await reached.complete(argument, prefix, context=context, **ref)
    if terms.as_json:
        show_json({"completion": found}, screen)
        return 0
    for value in found.values:
        screen.show(value)
    if found.has_more:
        of = f" of {found.total}" if found.total is not None else ""
        screen.note(f"colonnade: these are the first {len(found.values)}{of}; type more of it\n")
    return 0
