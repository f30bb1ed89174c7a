"""What is typed after a name becomes arguments: `city=Oslo days:=3 tags=a tags=b @more.json -`.

- `key=value` is of the type that the tool wants: text, a number, true or false, JSON for an object.
- `key:=json` is JSON, whatever the tool wants.
- `@file` and `-` (standard input) are a JSON object with any number of arguments.

Rules: what does not fit is told before anything is sent, with what is wanted. Values are never
repeated in words: they may be nobody's business.
"""

import base64
import binascii
import mimetypes
import os
import re
import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import msgspec
from msgspec import UNSET

from colonnade.cli.errors import FAILED, USAGE, Trouble
from colonnade.cli.options import Terms
from colonnade.cli.session import Desk, show_json, talk
from colonnade.cli.terminal import Screen
from colonnade.client.results import ToolResult
from colonnade.client.tools import members, prompt_signature, required, taken
from colonnade.errors import Fault, RemoteProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.schema.error_messages import join_problems, json_type
from colonnade.protocol.schema.validate import Validator, admitted_types, inline_references
from colonnade.text import clean, cut, one_line

# Of a word that is no argument, and of a name that is none.
MAX_PLACES = 60
# More arguments than anybody types, or reads from a file by intent.
MAX_INPUT_BYTES = 64 * 1024 * 1024
# Names of arguments that are listed where one is wrong.
MAX_NEEDED = 20

_SAID = {"true": True, "false": False, "yes": True, "no": False}


class Word(NamedTuple):
    """One `key=value` or `key:=json`."""

    key: str
    text: str
    is_json: bool


class Words(NamedTuple):
    """All that was typed: single arguments, and whole objects of them."""

    words: list[Word]
    objects: list[dict[str, Any]]


def read_words(typed: Sequence[str]) -> Words:
    """Understand what was typed. Raises `Trouble`."""
    words: list[Word] = []
    objects: list[dict[str, Any]] = []
    for word in typed:
        key, equals, text = word.partition("=")
        if word == "-":
            objects.append(_object(_from_input(), "standard input"))
        elif word.startswith("@"):
            objects.append(_object(_from_file(word[1:]), clean(word[1:])))
        elif not equals or not key.removesuffix(":"):
            shown = cut(clean(word), MAX_PLACES)
            raise Trouble(f"{shown} is no argument; write key=value, key:=json, @file or -")
        else:
            words.append(Word(key.removesuffix(":"), text, key.endswith(":")))
    return Words(words, objects)


def _from_input() -> bytes:
    return sys.stdin.buffer.read(MAX_INPUT_BYTES + 1)


def _from_file(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(MAX_INPUT_BYTES + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "no name of a file"
        raise Trouble(f"@{clean(path)} cannot be read: {why}") from None


def _object(data: bytes, source: str) -> dict[str, Any]:
    if len(data) > MAX_INPUT_BYTES:
        raise Trouble(f"{source} has more than {MAX_INPUT_BYTES >> 20} MiB")
    found = _json(data, source)
    if not isinstance(found, dict):
        raise Trouble(f"{source} must hold a JSON object, with a member for each argument")
    return cast("dict[str, Any]", found)


def _json(data: bytes | str, source: str) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Trouble(f"{source} is no JSON: {error}") from None


# ---------------------------------------------------------------- tools


def tool_arguments(tool: t.Tool, typed: Words) -> dict[str, Any]:
    """The arguments of a call, as the tool wants them. Raises `Trouble` where they do not fit."""
    schema, validator = _opened(tool.input_schema)
    problems = _strangers([word.key for word in typed.words], schema)
    given: dict[str, Any] = {}
    for whole in typed.objects:
        given.update(whole)
    given.update(_typed(typed.words, schema, is_usable=validator is not None))
    problems += _absent(given, schema)
    if not problems and validator is not None:
        found = validator.check(given)
        problems = [join_problems(found)] if found else []
    if problems:
        raise Trouble(f"{one_line(tool.name)}: {'; '.join(problems)}; it is {taken(tool)}")
    return given


def _opened(schema: dict[str, Any]) -> tuple[dict[str, Any], Validator | None]:
    """The schema without a reference at its top, and what checks it, if it can be used at all."""
    try:
        validator = Validator(schema)
        validator.compile()
        return inline_references(schema), validator
    except (Fault, AttributeError, TypeError, ValueError, RecursionError):
        return schema, None  # the server will say what it thinks of the arguments


def _strangers(keys: list[str], schema: dict[str, Any]) -> list[str]:
    """Names that the tool has not. A schema that names none, or says that there may be more, has
    no strangers."""
    known = members(schema)
    more = schema.get("additionalProperties")
    says_so = isinstance(schema.get("properties"), dict) or more is False
    if more or "patternProperties" in schema or not says_so:
        return []
    return [_stranger(key, list(known)) for key in dict.fromkeys(keys) if key not in known]


def _stranger(key: str, known: list[str]) -> str:
    near = get_close_matches(key, known, n=1)
    hint = f" (did you mean {one_line(near[0])}?)" if near else ""
    return f"it has no {cut(clean(key), MAX_PLACES)}{hint}"


def _absent(given: dict[str, Any], schema: dict[str, Any]) -> list[str]:
    names = [name for name in required(schema) if name not in given]
    return [f"it needs {one_line(', '.join(names[:MAX_NEEDED]))}"] if names else []


def _typed(words: list[Word], schema: dict[str, Any], *, is_usable: bool) -> dict[str, Any]:
    known = members(schema)
    more = schema.get("additionalProperties")
    made: dict[str, Any] = {}
    for word in words:
        own: Any = known.get(word.key, more if isinstance(more, dict) else True)
        types = _admitted(own, schema) if is_usable else frozenset({"string"})
        if word.is_json:
            value: Any = _json(word.text, f"{cut(clean(word.key), MAX_PLACES)}:=")
        else:
            value = _value(word.text, own, types, schema)
        before = made.get(word.key)
        if word.key not in made:
            made[word.key] = value
        elif isinstance(before, list) and isinstance(value, list) and "string" not in types:
            made[word.key] = [*cast("list[Any]", before), *cast("list[Any]", value)]
        else:
            raise Trouble(f"{cut(clean(word.key), MAX_PLACES)} is given twice")
    return made


def _admitted(own: Any, root: dict[str, Any]) -> frozenset[str]:
    try:
        return admitted_types(own, root)
    except (AttributeError, TypeError, RecursionError):
        return frozenset({"string"})


def _value(text: str, own: Any, types: frozenset[str], root: dict[str, Any]) -> Any:
    """What a text is where these types may be. What fits none of them stays text, and is told so
    by the schema."""
    if "string" in types:
        return text
    if "boolean" in types and text.lower() in _SAID:
        return _SAID[text.lower()]
    try:
        found: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        found = text
    if isinstance(found, float) and found.is_integer() and "number" not in types:
        found = int(found)
    kind = json_type(found)
    if kind in types or (kind == "integer" and "number" in types):
        return found
    if "array" in types:
        items: Any = cast("dict[str, Any]", own).get("items", True) if _is_dict(own) else True
        return [_value(text, items, _admitted(items, root), root)]
    return text


def _is_dict(found: object) -> bool:
    return isinstance(found, dict)


# ---------------------------------------------------------------- prompts


def prompt_arguments(prompt: t.Prompt, typed: Words) -> dict[str, str]:
    """The arguments of a prompt, all of which are text. Raises `Trouble` where they do not fit."""
    known = [one.name for one in prompt.arguments or []]
    given = texts(typed)
    problems = [_stranger(key, known) for key in given if key not in known]
    absent = [a.name for a in prompt.arguments or [] if a.required and a.name not in given]
    if absent:
        problems.append(f"it needs {one_line(', '.join(absent[:MAX_NEEDED]))}")
    if problems:
        words = f"{one_line(prompt.name)}: {'; '.join(problems)}"
        raise Trouble(f"{words}; it is {prompt_signature(prompt)}")
    return given


def texts(typed: Words) -> dict[str, str]:
    """Arguments where each is text. Raises `Trouble` for what is not, or is there twice."""
    given: dict[str, Any] = {}
    for whole in typed.objects:
        given.update(whole)
    seen: set[str] = set()
    for word in typed.words:
        key = cut(clean(word.key), MAX_PLACES)
        if word.key in seen:
            raise Trouble(f"{key} is given twice")
        seen.add(word.key)
        given[word.key] = _json(word.text, f"{key}:=") if word.is_json else word.text
    for name, value in given.items():
        if not isinstance(value, str):
            raise Trouble(f"{cut(clean(name), MAX_PLACES)} must be text: all arguments here are")
    return cast("dict[str, str]", given)


# A name of a file, without what makes it different from others.
MAX_NAME = 80
# Others of the same name in the folder, until another name should be thought of.
MAX_SAME = 10_000

_FORBIDDEN = re.compile(r"[^A-Za-z0-9._-]+")
# Where several are usual, the system's own tables do not agree.
_ENDINGS = {
    "audio/mpeg": ".mp3",
    "audio/wav": ".wav",
    "audio/x-wav": ".wav",
    "image/jpeg": ".jpg",
    "image/png": ".png",
    "image/svg+xml": ".svg",
    "text/markdown": ".md",
    "text/plain": ".txt",
}


class Folder:
    """Where files are kept; nowhere, if nobody said so."""

    def __init__(self, path: str) -> None:
        self._path = Path(path) if path else None
        if self._path is None:
            return
        try:
            self._path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Trouble(f"--out {path}: it cannot be made: {error.strerror}") from None

    def __bool__(self) -> bool:
        return self._path is not None

    def keep(self, name: str, mime_type: str | None, data: bytes) -> str:
        """Write a file under a name like this one; what it is called in the end."""
        assert self._path is not None
        stem, ending = os.path.splitext(safe_name(name))
        ending = ending or ending_of(mime_type)
        for number in range(1, MAX_SAME):
            path = self._path / (f"{stem}-{number}{ending}" if number > 1 else stem + ending)
            try:
                with open(path, "xb") as file:
                    file.write(data)
                return str(path)
            except FileExistsError:
                continue
            except OSError as error:
                raise Trouble(f"{path} cannot be written: {error.strerror}") from None
        raise Trouble(f"{self._path} has {MAX_SAME} files that are called {stem}; choose another")


def safe_name(name: str) -> str:
    """A name that is a name in any folder, and nothing else."""
    last = name.partition("?")[0].partition("#")[0].rstrip("/").rpartition("/")[2]
    plain = _FORBIDDEN.sub("-", last).lstrip(".-")[-MAX_NAME:].lstrip(".-")
    return plain or "file"


def ending_of(mime_type: str | None) -> str:
    """What files of this type end with."""
    plain = (mime_type or "").partition(";")[0].strip().lower()
    return _ENDINGS.get(plain) or mimetypes.guess_extension(plain) or ".bin"


def decoded(data: str, what: str) -> bytes:
    """What travelled as base64. Raises `RemoteProtocolError`."""
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise RemoteProtocolError(f"{what} is no base64, and cannot be shown or kept") from None


# ---------------------------------------------------------------- blocks


def show_blocks(
    blocks: Iterable[t.ContentBlock], screen: Screen, folder: Folder, name: str
) -> None:
    """Show the blocks of a result in their order, and keep what is no text."""
    for block in blocks:
        match block:
            case t.TextContent():
                screen.show(block.text)
            case t.ImageContent() | t.AudioContent():
                data = decoded(block.data, f"a block of type {block.type}")
                screen.write(_kept(block.type, block.mime_type, data, folder, name))
            case t.EmbeddedResource():
                _show_resource(block.resource, screen, folder)
            case t.ResourceLink():
                title = one_line(t.display_name(block))
                screen.write(f"[link {one_line(block.uri)}, {title}]\n")
            case t.UnknownContent():
                screen.write(f"[a block of type {one_line(block.type)}; --json shows it]\n")


def _show_resource(resource: t.ResourceContents, screen: Screen, folder: Folder) -> None:
    if resource.text is not None and not folder:
        screen.show(resource.text)
        return
    data = contents_of(resource)
    screen.write(_kept("file", resource.mime_type, data, folder, resource.uri))


def contents_of(resource: t.ResourceContents) -> bytes:
    """The bytes of a resource."""
    if resource.text is not None:
        return resource.text.encode("utf-8", "surrogatepass")
    return decoded(resource.blob or "", f"the content of {one_line(resource.uri)}")


def _kept(what: str, mime_type: str | None, data: bytes, folder: Folder, name: str) -> str:
    told = f"{what} {one_line(mime_type)}".strip()
    if folder:
        return f"[{told}, {len(data)} bytes: {folder.keep(name, mime_type, data)}]\n"
    if what == "file":
        told += f" {one_line(name)}"
    return f"[{told}, {len(data)} bytes; --out DIR keeps it]\n"


def show_contents(contents: list[t.ResourceContents], screen: Screen, folder: Folder) -> None:
    """Show what a resource holds: text as it is, bytes as they are where nobody looks at them."""
    for one in contents:
        if folder:
            screen.write(_kept("file", one.mime_type, contents_of(one), folder, one.uri))
        elif one.text is not None:
            screen.show(one.text, ended=len(contents) > 1)
        elif screen.is_terminal or len(contents) > 1:
            screen.write(_kept("file", one.mime_type, contents_of(one), folder, one.uri))
        else:
            screen.write_bytes(contents_of(one))


def plain_blocks(blocks: Iterable[t.ContentBlock]) -> list[Any]:
    """Blocks as JSON has them."""
    return [b.whole.members if isinstance(b, t.UnknownContent) else b for b in blocks]


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
