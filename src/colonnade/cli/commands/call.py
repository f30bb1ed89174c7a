"""`colonnade call`, `read`, `prompt` and `complete`: requests to one server, or to several.

Arguments are typed after the name: `city=Oslo days:=3 tags=a tags=b @more.json -`.

- `key=value` has the type that the tool declares: string, number, boolean, or JSON for an object.
- `key:=json` is JSON, whatever the tool declares.
- `@file` and `-` (stdin) are a JSON object with any number of arguments.

Rules: arguments are validated before anything is sent. Values are never repeated in messages: they
may be secret.
"""

import base64
import binascii
import mimetypes
import os
import re
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import click
import msgspec
from msgspec import UNSET

from colonnade.cli.errors import FAILED, USAGE, CliError
from colonnade.cli.options import (
    ARGUMENTS,
    OUT,
    Action,
    ConnectionOptions,
    ServerCommand,
    check_order,
    connection_options,
    take_connection_options,
)
from colonnade.cli.session import CommandSession, run_connected, show_json
from colonnade.cli.terminal import Terminal
from colonnade.client.results import ToolResult
from colonnade.client.tools import call_signature, members, prompt_signature, required
from colonnade.errors import Fault, RemoteError, RemoteProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.schema.error_messages import join_problems, json_type
from colonnade.protocol.schema.validate import Validator, admitted_types, inline_references
from colonnade.text import clean, closest, cut, nearest, one_line

# The JSON-RPC error code for a method that the server does not have.
METHOD_NOT_FOUND = -32601
# The width of an argument, or of its name, in a message.
MAX_WIDTH = 60
# The most that is read from a file or stdin.
MAX_INPUT_BYTES = 64 * 1024 * 1024
# Names of missing arguments that are listed in a message.
MAX_MISSING = 20

_BOOLEANS = {"true": True, "false": False, "yes": True, "no": False}


# ---------------------------------------------------------------- click commands


def _check_out(options: ConnectionOptions, out: str) -> None:
    if out and options.as_json:
        raise CliError("--out and --json exclude each other: the JSON has all of the content")


@click.command(
    cls=ServerCommand,
    epilog="""\b
Examples:
  colonnade call server.py forecast city=Oslo days=3
  colonnade call server.py forecast city=Oslo 'days:=3' --json
  colonnade call https://example.com/mcp add @arguments.json
  colonnade call mcp.json files__read path=notes.txt
  colonnade call git_log repo_path=. -- uvx mcp-server-git
""",
)
@connection_options
@click.argument("tool", metavar="TOOL")
@ARGUMENTS
@OUT
def call(tool: str, arguments: tuple[str, ...], out: str, **options: Any) -> Action:
    """Call a tool and print its result. The exit status is 1 if the tool reports an error.

    TARGET is a URL, a Python file (FILE[:NAME]), a configuration file (all of its servers), or a
    command line after --.

    KEY=VALUE is converted to the type that the tool declares; repeat it for the items of an array.
    KEY:=JSON is JSON. @FILE and - (stdin) are a JSON object of arguments. Elicitation requests of
    the server are answered in the terminal.
    """
    connection = take_connection_options(options)
    _check_out(connection, out)
    return partial(call_target, connection, tool, arguments, out)


@click.command(
    cls=ServerCommand,
    epilog="""\b
Examples:
  colonnade read server.py notes://garden
  colonnade read server.py backup://notes.zip > notes.zip
  colonnade read server.py backup://notes.zip --out backups
  colonnade read mcp.json notes://garden --server notes
""",
)
@connection_options
@click.argument("uri", metavar="URI")
@OUT
def read(uri: str, out: str, **options: Any) -> Action:
    """Read a resource and print its contents: text, or bytes if stdout is not a terminal.

    TARGET is a URL, a Python file (FILE[:NAME]), a configuration file (all of its servers), or a
    command line after --.
    """
    connection = take_connection_options(options)
    _check_out(connection, out)
    return partial(read_target, connection, uri, out)


@click.command(
    cls=ServerCommand,
    epilog="""\b
Examples:
  colonnade prompt server.py review 'code=x = 1' language=python
  colonnade prompt https://example.com/mcp review @arguments.json --json
""",
)
@connection_options
@click.argument("name", metavar="NAME")
@ARGUMENTS
@OUT
def prompt(name: str, arguments: tuple[str, ...], out: str, **options: Any) -> Action:
    """Get the messages of a prompt. Its arguments are strings.

    TARGET is a URL, a Python file (FILE[:NAME]), a configuration file (all of its servers), or a
    command line after --.
    """
    connection = take_connection_options(options)
    _check_out(connection, out)
    return partial(prompt_target, connection, name, arguments, out)


@click.command(
    cls=ServerCommand,
    epilog="""\b
Examples:
  colonnade complete server.py prompt:invite person al team=docs
  colonnade complete server.py template:notes://{name} name g
""",
)
@connection_options
@click.argument("reference", metavar="prompt:NAME|template:URI")
@click.argument("argument", metavar="ARGUMENT")
@click.argument("prefix", metavar="[PREFIX]", default="")
@ARGUMENTS
def complete(
    reference: str, argument: str, prefix: str, arguments: tuple[str, ...], **options: Any
) -> Action:
    """Print completions for an argument of a prompt, or for a variable of a template.

    TARGET is a URL, a Python file (FILE[:NAME]), a configuration file (all of its servers), or a
    command line after --.

    PREFIX is the beginning of the value, KEY=VALUE are the other arguments.
    """
    connection = take_connection_options(options)
    return partial(complete_target, connection, reference, argument, prefix, arguments)


# ---------------------------------------------------------------- arguments


class TypedArgument(NamedTuple):
    """One `key=value` or `key:=json`."""

    key: str
    text: str
    is_json: bool


class TypedArguments(NamedTuple):
    """All arguments: single ones, and JSON objects of several."""

    single: list[TypedArgument]
    objects: list[dict[str, Any]]


def parse_arguments(typed: Sequence[str]) -> TypedArguments:
    """Parse arguments. Raises `CliError`."""
    single: list[TypedArgument] = []
    objects: list[dict[str, Any]] = []
    for argument in typed:
        key, equals, text = argument.partition("=")
        if argument == "-":
            objects.append(_object(_from_input(), "stdin"))
        elif argument.startswith("@"):
            objects.append(_object(_from_file(argument[1:]), clean(argument[1:])))
        elif not equals or not key.removesuffix(":"):
            shown = cut(clean(argument), MAX_WIDTH)
            raise CliError(
                f"{shown} is not an argument", hint="expected key=value, key:=json, @file or -"
            )
        else:
            single.append(TypedArgument(key.removesuffix(":"), text, key.endswith(":")))
    return TypedArguments(single, objects)


def _from_input() -> bytes:
    return sys.stdin.buffer.read(MAX_INPUT_BYTES + 1)


def _from_file(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(MAX_INPUT_BYTES + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "invalid file name"
        raise CliError(f"@{clean(path)} cannot be read: {why}") from None


def _object(data: bytes, source: str) -> dict[str, Any]:
    if len(data) > MAX_INPUT_BYTES:
        raise CliError(f"{source} is larger than {MAX_INPUT_BYTES >> 20} MiB")
    found = _json(data, source)
    if not isinstance(found, dict):
        raise CliError(f"{source}: expected a JSON object with a member for each argument")
    return cast("dict[str, Any]", found)


def _json(data: bytes | str, source: str) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise CliError(f"{source}: invalid JSON: {error}") from None


# ---------------------------------------------------------------- tools


def tool_arguments(tool: t.Tool, typed: TypedArguments) -> dict[str, Any]:
    """Convert arguments to the types that the tool declares. Raises `CliError` if invalid."""
    schema, validator = _open_schema(tool.input_schema)
    problems = _unknown_arguments([argument.key for argument in typed.single], schema)
    given: dict[str, Any] = {}
    for values in typed.objects:
        given.update(values)
    given.update(_convert(typed.single, schema, is_usable=validator is not None))
    problems += _missing_arguments(given, schema)
    if not problems and validator is not None:
        found = validator.check(given)
        problems = [join_problems(found)] if found else []
    if problems:
        raise CliError(
            f"{one_line(tool.name)}: {'; '.join(problems)}",
            hint=f"its signature is {call_signature(tool)}",
        )
    return given


def _open_schema(schema: dict[str, Any]) -> tuple[dict[str, Any], Validator | None]:
    """The schema without a `$ref` at its root, and its validator, if the schema is usable."""
    try:
        validator = Validator(schema)
        validator.compile()
        return inline_references(schema), validator
    except (Fault, AttributeError, TypeError, ValueError, RecursionError):
        return schema, None  # the server validates the arguments


def _unknown_arguments(keys: list[str], schema: dict[str, Any]) -> list[str]:
    """Arguments that the tool does not have. A schema without `properties`, or one that allows
    additional properties, allows any name."""
    known = members(schema)
    more = schema.get("additionalProperties")
    says_so = isinstance(schema.get("properties"), dict) or more is False
    if more or "patternProperties" in schema or not says_so:
        return []
    return [_unknown_argument(key, list(known)) for key in dict.fromkeys(keys) if key not in known]


def _unknown_argument(key: str, known: list[str]) -> str:
    near = closest(key, known)
    hint = f" (did you mean {one_line(near)}?)" if near else ""
    return f"it has no argument {cut(clean(key), MAX_WIDTH)}{hint}"


def _missing_arguments(given: dict[str, Any], schema: dict[str, Any]) -> list[str]:
    names = [name for name in required(schema) if name not in given]
    return [f"missing {one_line(', '.join(names[:MAX_MISSING]))}"] if names else []


def _convert(
    single: list[TypedArgument], schema: dict[str, Any], *, is_usable: bool
) -> dict[str, Any]:
    known = members(schema)
    more = schema.get("additionalProperties")
    made: dict[str, Any] = {}
    for argument in single:
        own: Any = known.get(argument.key, more if isinstance(more, dict) else True)
        types = _admitted(own, schema) if is_usable else frozenset({"string"})
        if argument.is_json:
            value: Any = _json(argument.text, f"{cut(clean(argument.key), MAX_WIDTH)}:=")
        else:
            value = _value(argument.text, own, types, schema)
        before = made.get(argument.key)
        if argument.key not in made:
            made[argument.key] = value
        elif isinstance(before, list) and isinstance(value, list) and "string" not in types:
            made[argument.key] = [*cast("list[Any]", before), *cast("list[Any]", value)]
        else:
            raise CliError(f"{cut(clean(argument.key), MAX_WIDTH)} is given twice")
    return made


def _admitted(own: Any, root: dict[str, Any]) -> frozenset[str]:
    try:
        return admitted_types(own, root)
    except (AttributeError, TypeError, RecursionError):
        return frozenset({"string"})


def _value(text: str, own: Any, types: frozenset[str], root: dict[str, Any]) -> Any:
    """Convert a string to one of these types. If it fits none, it stays a string, and validation
    reports it."""
    if "string" in types:
        return text
    if "boolean" in types and text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
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


def _is_dict(value: object) -> bool:
    return isinstance(value, dict)


# ---------------------------------------------------------------- prompts


def prompt_arguments(prompt: t.Prompt, typed: TypedArguments) -> dict[str, str]:
    """The arguments of a prompt, all strings. Raises `CliError` if they are invalid."""
    known = [one.name for one in prompt.arguments or []]
    given = string_arguments(typed)
    problems = [_unknown_argument(key, known) for key in given if key not in known]
    absent = [a.name for a in prompt.arguments or [] if a.required and a.name not in given]
    if absent:
        problems.append(f"missing {one_line(', '.join(absent[:MAX_MISSING]))}")
    if problems:
        raise CliError(
            f"{one_line(prompt.name)}: {'; '.join(problems)}",
            hint=f"its signature is {prompt_signature(prompt)}",
        )
    return given


def string_arguments(typed: TypedArguments) -> dict[str, str]:
    """Arguments that are all strings. Raises `CliError` for one that is not, or is given twice."""
    given: dict[str, Any] = {}
    for values in typed.objects:
        given.update(values)
    seen: set[str] = set()
    for argument in typed.single:
        key = cut(clean(argument.key), MAX_WIDTH)
        if argument.key in seen:
            raise CliError(f"{key} is given twice")
        seen.add(argument.key)
        given[argument.key] = (
            _json(argument.text, f"{key}:=") if argument.is_json else argument.text
        )
    for name, value in given.items():
        if not isinstance(value, str):
            raise CliError(f"{cut(clean(name), MAX_WIDTH)}: expected a string")
    return cast("dict[str, str]", given)


# ---------------------------------------------------------------- files


# The longest name of a file, without the number that makes it unique.
MAX_NAME = 80
# Files of the same name in one directory.
MAX_SAME = 10_000

_FORBIDDEN = re.compile(r"[^A-Za-z0-9._-]+")
# Types for which `mimetypes` gives several suffixes, in no fixed order.
_SUFFIXES = {
    "audio/mpeg": ".mp3",
    "audio/wav": ".wav",
    "audio/x-wav": ".wav",
    "image/jpeg": ".jpg",
    "image/png": ".png",
    "image/svg+xml": ".svg",
    "text/markdown": ".md",
    "text/plain": ".txt",
}


class OutputDirectory:
    """The directory of `--out`; False if there is none."""

    def __init__(self, path: str) -> None:
        self._path = Path(path) if path else None
        if self._path is None:
            return
        try:
            self._path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CliError(f"--out {path}: cannot be created: {error.strerror}") from None

    def __bool__(self) -> bool:
        return self._path is not None

    def save(self, name: str, mime_type: str | None, data: bytes) -> str:
        """Save a file under a name like this one; return its path."""
        assert self._path is not None
        stem, suffix = os.path.splitext(safe_file_name(name))
        suffix = suffix or suffix_of(mime_type)
        for number in range(1, MAX_SAME):
            path = self._path / (f"{stem}-{number}{suffix}" if number > 1 else stem + suffix)
            try:
                with open(path, "xb") as file:
                    file.write(data)
                return str(path)
            except FileExistsError:
                continue
            except OSError as error:
                raise CliError(f"{path} cannot be written: {error.strerror}") from None
        raise CliError(
            f"{self._path} has {MAX_SAME} files named {stem}", hint="use another directory"
        )


def safe_file_name(name: str) -> str:
    """A file name without a path."""
    last = name.partition("?")[0].partition("#")[0].rstrip("/").rpartition("/")[2]
    plain = _FORBIDDEN.sub("-", last).lstrip(".-")[-MAX_NAME:].lstrip(".-")
    return plain or "file"


def suffix_of(mime_type: str | None) -> str:
    """The suffix of files of this type."""
    plain = (mime_type or "").partition(";")[0].strip().lower()
    return _SUFFIXES.get(plain) or mimetypes.guess_extension(plain) or ".bin"


def decode_base64(data: str, what: str) -> bytes:
    """Decode base64. Raises `RemoteProtocolError`."""
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise RemoteProtocolError(f"{what} is not valid base64") from None


# ---------------------------------------------------------------- content blocks


def show_blocks(
    blocks: Iterable[t.ContentBlock], terminal: Terminal, folder: OutputDirectory, name: str
) -> None:
    """Print content blocks in their order; save what is not text, if there is a directory."""
    for block in blocks:
        match block:
            case t.TextContent():
                terminal.show(block.text)
            case t.ImageContent() | t.AudioContent():
                data = decode_base64(block.data, f"a block of type {block.type}")
                terminal.write(_describe_file(block.type, block.mime_type, data, folder, name))
            case t.EmbeddedResource():
                _show_resource(block.resource, terminal, folder)
            case t.ResourceLink():
                title = one_line(t.display_name(block))
                terminal.write(f"[link {one_line(block.uri)}, {title}]\n")
            case t.UnknownContent():
                terminal.write(f"[block of type {one_line(block.type)}; --json shows it]\n")


def _show_resource(
    resource: t.ResourceContents, terminal: Terminal, folder: OutputDirectory
) -> None:
    if resource.text is not None and not folder:
        terminal.show(resource.text)
        return
    data = contents_of(resource)
    terminal.write(_describe_file("file", resource.mime_type, data, folder, resource.uri))


def contents_of(resource: t.ResourceContents) -> bytes:
    """The bytes of a resource."""
    if resource.text is not None:
        return resource.text.encode("utf-8", "surrogatepass")
    return decode_base64(resource.blob or "", f"the content of {one_line(resource.uri)}")


def _describe_file(
    what: str, mime_type: str | None, data: bytes, folder: OutputDirectory, name: str
) -> str:
    label = f"{what} {one_line(mime_type)}".strip()
    if folder:
        return f"[{label}, {len(data)} bytes: {folder.save(name, mime_type, data)}]\n"
    if what == "file":
        label += f" {one_line(name)}"
    return f"[{label}, {len(data)} bytes; --out DIR saves it]\n"


def show_contents(
    contents: list[t.ResourceContents], terminal: Terminal, folder: OutputDirectory
) -> None:
    """Print the contents of a resource: text, or bytes if stdout is not a terminal."""
    for one in contents:
        if folder:
            terminal.write(_describe_file("file", one.mime_type, contents_of(one), folder, one.uri))
        elif one.text is not None:
            terminal.show(one.text, ended=len(contents) > 1)
        elif terminal.is_terminal or len(contents) > 1:
            terminal.write(_describe_file("file", one.mime_type, contents_of(one), folder, one.uri))
        else:
            terminal.write_bytes(contents_of(one))


def blocks_to_json(blocks: Iterable[t.ContentBlock]) -> list[Any]:
    """Content blocks as JSON."""
    return [b.whole.members if isinstance(b, t.UnknownContent) else b for b in blocks]


# Names that are listed if there is no item of the given name.
MAX_NAMES = 20

Named = TypeVar("Named", t.Tool, t.Prompt)


# ---------------------------------------------------------------- call


def call_target(options: ConnectionOptions, tool: str, typed: tuple[str, ...], out: str) -> int:
    """Call a tool; return the exit code."""
    check_order("call", options.target, tool, "TOOL")
    arguments, folder = parse_arguments(typed), OutputDirectory(out)
    action = partial(_call, options=options, name=tool, typed=arguments, folder=folder)
    return run_connected(options, action, name=tool)


async def _call(
    session: CommandSession,
    *,
    options: ConnectionOptions,
    name: str,
    typed: TypedArguments,
    folder: OutputDirectory,
) -> int:
    servers, terminal = session
    tool = _find("tool", name, await servers.list_tools())
    arguments = tool_arguments(tool, typed)
    task = await servers.start_task(name, arguments)
    if task.handle is None:
        result = await task.result()
    else:
        from colonnade.cli.task_records import keep_task, wait_for_task

        result = await wait_for_task(task, keep_task(task.handle, name, options), terminal)
    return show_result(result, name, options, terminal, folder)


def show_result(
    result: ToolResult[Any],
    name: str,
    options: ConnectionOptions,
    terminal: Terminal,
    folder: OutputDirectory,
) -> int:
    """Print the result of a tool; return the exit code."""
    if options.as_json:
        show_json(_result_to_json(result), terminal)
        return FAILED if result.is_error else 0
    if result.is_error:
        message = clean(result.text, lines=True).strip()
        raise CliError(f"{one_line(name)} returned an error: {message or 'no message'}", FAILED)
    show_blocks(result.content, terminal, folder, name)
    if not result.content and result.structured is not UNSET:
        terminal.show(encode(result.structured).decode())
    _ = result.data  # raises if the result does not match the output schema
    return 0


def _result_to_json(result: ToolResult[Any]) -> dict[str, Any]:
    """A result as JSON."""
    plain: dict[str, Any] = {"content": blocks_to_json(result.content)}
    if result.structured is not UNSET:
        plain["structuredContent"] = result.structured
    plain["isError"] = result.is_error
    return plain | ({"_meta": result.meta} if result.meta else {})


def _find(what: str, name: str, offered: Iterable[Named]) -> Named:
    """The item of this name. Raises `CliError` if there is none."""
    known = {name: one for one in offered for name in (one.name, *getattr(one, "aliases", ()))}
    if name in known:
        return known[name]
    near = one_line(" or ".join(nearest(name, known)))
    listed = one_line(", ".join(list(known)[:MAX_NAMES]))
    more = ", …" if len(known) > MAX_NAMES else ""
    hint = f"{what}s are {listed}{more}" if known else f"this server has no {what}s"
    if len(known) == 1:
        hint = f"the only {what} is {listed}"
    raise CliError(
        f"there is no {what} {clean(name)}",
        USAGE,
        hint=f"did you mean {near}?" if near else hint,
    )


# ---------------------------------------------------------------- read


def read_target(options: ConnectionOptions, uri: str, out: str) -> int:
    """Read a resource; return the exit code."""
    check_order("read", options.target, uri, "URI")
    return run_connected(
        options, partial(_read, options=options, uri=uri, folder=OutputDirectory(out))
    )


async def _read(
    session: CommandSession, *, options: ConnectionOptions, uri: str, folder: OutputDirectory
) -> int:
    try:
        result = await session.servers.read_resource(uri)
    except RemoteError as error:
        if error.code != METHOD_NOT_FOUND:
            raise
        raise CliError(
            f"there is no resource {clean(uri)}", USAGE, hint="this server has no resources"
        ) from None
    if options.as_json:
        show_json({"contents": result.contents}, session.terminal)
    else:
        show_contents(result.contents, session.terminal, folder)
    return 0


# ---------------------------------------------------------------- prompt


def prompt_target(options: ConnectionOptions, name: str, typed: tuple[str, ...], out: str) -> int:
    """Get a prompt; return the exit code."""
    check_order("prompt", options.target, name, "NAME")
    arguments, folder = parse_arguments(typed), OutputDirectory(out)
    action = partial(_prompt, options=options, name=name, typed=arguments, folder=folder)
    return run_connected(options, action, name=name)


async def _prompt(
    session: CommandSession,
    *,
    options: ConnectionOptions,
    name: str,
    typed: TypedArguments,
    folder: OutputDirectory,
) -> int:
    servers, terminal = session
    prompt = _find("prompt", name, await servers.list_prompts())
    arguments = prompt_arguments(prompt, typed)
    result = await servers.get_prompt(name, arguments)
    if options.as_json:
        messages = [
            {"role": one.role, "content": blocks_to_json([one.content])[0]}
            for one in result.messages
        ]
        about = {"description": result.description} if result.description is not None else {}
        show_json({**about, "messages": messages}, terminal)
        return 0
    for number, message in enumerate(result.messages):
        terminal.write(f"{chr(10) if number else ''}{terminal.heading(f'{message.role}:')}\n")
        show_blocks([message.content], terminal, folder, name)
    return 0


# ---------------------------------------------------------------- complete


def complete_target(
    options: ConnectionOptions, reference: str, argument: str, prefix: str, typed: tuple[str, ...]
) -> int:
    """Complete an argument of a prompt, or a variable of a template; return the exit code."""
    kind, colon, name = reference.partition(":")
    if kind not in ("prompt", "template") or not colon or not name:
        raise CliError(
            f"{clean(reference)} cannot be completed",
            hint="expected prompt:NAME, or template:URI as colonnade ls lists it",
        )
    context = string_arguments(parse_arguments(typed))
    ref = {kind: name}
    return run_connected(
        options,
        partial(
            _complete, options=options, ref=ref, argument=argument, prefix=prefix, context=context
        ),
        name=ref.get("prompt", ""),
    )


async def _complete(
    session: CommandSession,
    *,
    options: ConnectionOptions,
    ref: dict[str, str],
    argument: str,
    prefix: str,
    context: dict[str, str],
) -> int:
    servers, terminal = session
    found = await servers.complete(argument, prefix, context=context, **ref)
    if options.as_json:
        show_json({"completion": found}, terminal)
        return 0
    for value in found.values:
        terminal.show(value)
    if found.has_more:
        of = f" of {found.total}" if found.total is not None else ""
        shown = f"the first {len(found.values)}{of} values are shown"
        terminal.note(f"colonnade: {shown}; a longer PREFIX narrows them\n")
    return 0
