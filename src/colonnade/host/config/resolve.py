"""From a validated entry to a `ServerEntry`: its display, its fingerprint, and its resolved target.

Rules: a `ServerEntry` holds references to secrets and no secret; its display has none either, not
even one that is literal in the file. Its fingerprint changes when an environment variable does, and
does not reveal it.
"""

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Mapping
from typing import Any, Final, cast

from colonnade.errors import Refused
from colonnade.host.config.dangers import program_dangers
from colonnade.host.config.display import command, shown, words
from colonnade.host.config.entry import (
    EntryDraft,
    EntryField,
    Origin,
    SourceNode,
    decode_text,
    templates_of,
)
from colonnade.host.config.files import read_bytes
from colonnade.host.config.formats import NAMED, NEVER, SETTINGS, TYPES
from colonnade.host.config.local_paths import local_paths
from colonnade.host.config.lookups import (
    LookupContext,
    reference_errors,
    reference_warnings,
    resolve_template,
    run_helper,
    shell_words,
)
from colonnade.host.config.references import InvalidEnvLine, ValueTemplate, parse_env_file
from colonnade.host.config.settings import (
    ROOTS_OF_CALLER,
    ConfigSyntaxError,
    LoginSettings,
    ServerEntry,
    Settings,
    credentials_problem,
)
from colonnade.text import clean

# Fingerprints are compared in this process alone.
_KEY: Final = secrets.token_bytes(32)


def entry_of(
    draft: EntryDraft, context: LookupContext, files: Mapping[str, str]
) -> ServerEntry | None:
    """The entry of a draft; None if it has `problems`.

    `files` are the digests of the `.env` files, as they were when they were trusted.
    """
    enabled = draft.get("enabled")
    for entry_field, node, template in templates(draft):
        if enabled is not None and enabled.value is False:
            break  # its references are never resolved
        for summary, hint in reference_errors(template, entry_field.origin, context):
            draft.wrong(node, summary, hint=hint, unresolved=True)
        for message in reference_warnings(template, entry_field.origin, context):
            draft.warn(node, message)
    settings = settings_of(draft, context)
    credentials = draft.get("credentials")
    why = credentials_problem(settings, has_url=draft.get("url") is not None)
    if credentials is not None and why and draft.has_target:
        draft.wrong(credentials.node, why)
    if draft.problems:
        return None
    if not draft.has_target:
        message = "a command or a url is missing, here and in other files"
        draft.wrong(draft.node, message)
        return None

    async def resolve() -> dict[str, Any]:
        try:
            return await _resolved(draft, context, files)
        except Refused as error:
            message = f"server {draft.key!r} cannot be started: {error}"
            # Not a crash of the server: it was not started.
            message += f" (see {draft.place.file}:{draft.place.line})"
            raise Refused(message, server=draft.key) from None

    return ServerEntry(
        key=draft.key,
        resolve=resolve,
        fingerprint=_fingerprint(draft, context, files, settings),
        shown=clean(shown(draft)),
        settings=settings,
        place=draft.place,
        login=_login(draft),
        dangers=tuple(map(clean, program_dangers(words(draft)))),
        command_digest=_command_digest(draft),
        local_paths=_local_paths(draft, context),
    )


def _command_digest(draft: EntryDraft) -> str:
    """A digest of a command as it is written: what it runs, where, with which variables, and what
    it may do. A script of another folder, or a library that is loaded into it, is another
    command."""
    cwd, file, sandbox = (draft.get(name) for name in ("cwd", "env_file", "sandbox"))
    written = [
        words(draft),
        [[one.text for one in templates_of(field)] if field else None for field in (cwd, file)],
        sorted(
            [name, *(one.text for one in templates_of(field))]
            for name, field in draft.table("env").items()
        ),
        repr(sandbox.value) if sandbox is not None else "",
    ]
    return hashlib.sha256(repr(written).encode("utf-8", "surrogatepass")).hexdigest()


def _local_paths(draft: EntryDraft, context: LookupContext) -> tuple[str, ...]:
    """What the words of a command name in its working folder. References to folders and
    environment variables are resolved: `${workspaceFolder}/shop.py` is written alike everywhere."""
    program, args, cwd = (draft.get(name) for name in ("command", "args", "cwd"))
    if program is None or draft.get("url") is not None:
        return ()
    origin = (args or program).origin
    given = command(draft)
    resolved = [_without_lookup(one, origin, context) for one in given]
    named = [
        text
        for one, text in zip(given, resolved, strict=True)
        if one.references and os.path.isabs(text) and os.path.exists(text)
    ]
    folder = _without_lookup(cwd.value, cwd.origin, context) if cwd is not None else ""
    return (*named, *local_paths(resolved, _working_folder(draft, folder, context)))


def templates(draft: EntryDraft) -> list[tuple[EntryField, SourceNode, ValueTemplate]]:
    """Every string of an entry, with its place; an item of a list has its own."""
    found: list[tuple[EntryField, SourceNode, ValueTemplate]] = []
    for entry_field in draft.fields.values():
        items = entry_field.node.items or ()
        for number, one in enumerate(templates_of(entry_field)):
            found.append(
                (entry_field, items[number] if number < len(items) else entry_field.node, one)
            )
    return found


# ---------------------------------------------------------------- settings


def settings_of(draft: EntryDraft, context: LookupContext) -> Settings:
    """The settings of a draft; errors are in its `problems`."""
    given: dict[str, Any] = {}
    for name in SETTINGS:
        entry_field = draft.get(name)
        if entry_field is None:
            continue
        value: Any = _plain_value(entry_field.value)
        if name == "roots" and value != ROOTS_OF_CALLER:
            value = tuple(context.path(one, entry_field.origin) for one in value)
        elif name == "revision":
            _check_revision(draft, entry_field, value)
        given[name] = value
    aliases = {name: entry_field.value.text for name, entry_field in draft.table("aliases").items()}
    return Settings(**given, aliases=aliases)


def _plain_value(value: Any) -> Any:
    """A setting as a plain value."""
    if isinstance(value, ValueTemplate):
        return value.text
    if isinstance(value, tuple):
        return tuple(one.text for one in cast("tuple[ValueTemplate, ...]", value))
    return None if value is NEVER else value


def _check_revision(draft: EntryDraft, entry_field: EntryField, date: str) -> None:
    from colonnade.protocol.revision import EVERY

    if date not in EVERY.dates:
        draft.wrong(
            entry_field.node, "unknown revision", hint=f"known revisions: {', '.join(EVERY.dates)}"
        )


def _login(draft: EntryDraft) -> LoginSettings | None:
    given = {name: entry_field.value for name, entry_field in draft.table("login").items()}
    return LoginSettings(**given) if given and draft.get("url") is not None else None


# ---------------------------------------------------------------- fingerprint


def _fingerprint(
    draft: EntryDraft, context: LookupContext, files: Mapping[str, str], settings: Settings
) -> str:
    parts: list[Any] = [draft.key, settings]
    for path, entry_field in sorted(draft.fields.items()):
        parts += [
            path,
            entry_field.origin.file_format,
            entry_field.origin.folder,
            _comparable(entry_field.value),
        ]
    for _, _, template in templates(draft):
        for part in template.references:
            if part.kind == "env":
                parts.append((part.name, context.env.get(part.name)))
    entry_field = draft.get("env_file")
    if entry_field is not None:
        parts.append(files.get(env_path(entry_field, context), ""))
    return hmac.new(_KEY, repr(parts).encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def _comparable(value: Any) -> Any:
    return str(value) if value is NEVER else value


# ---------------------------------------------------------------- resolved


async def _resolved(
    draft: EntryDraft, context: LookupContext, files: Mapping[str, str]
) -> dict[str, Any]:
    kind = draft.get("type")
    named = TYPES.get(kind.value.text) if kind is not None else None
    url = draft.get("url")
    if url is not None:
        made: dict[str, Any] = {"url": await _text(url, context)}
        headers = await _table(draft, "headers", context)
        helper = draft.get("headers_helper")
        if helper is not None:
            headers = _override_headers(
                headers, await _helper_headers(draft.key, made["url"], helper, context)
            )
        if headers:
            made["headers"] = headers
    else:
        made = await _stdio_target(draft, context, files)
    return {"type": named, **made} if named else made


async def _stdio_target(
    draft: EntryDraft, context: LookupContext, files: Mapping[str, str]
) -> dict[str, Any]:
    command, args = cast("EntryField", draft.get("command")), draft.get("args")
    origin = command.origin
    made: dict[str, Any] = {"command": await _text(command, context)}
    given = args.value if args is not None else ()
    found = [await resolve_template(one, cast("EntryField", args).origin, context) for one in given]
    made["args"] = [one for one in found if one is not None]
    env: dict[str, str] = {}
    if origin.file_format == "claude-code" and origin.scope != NAMED:
        env["CLAUDE_PROJECT_DIR"] = origin.folder
    file = draft.get("env_file")
    if file is not None:
        env |= _read_env_file(file, context, files)
    for name in [
        name for name, entry_field in draft.table("env").items() if entry_field.value is None
    ]:
        env.pop(name, None)
    env |= await _table(draft, "env", context)
    if env:
        made["env"] = env
    made["cwd"] = await _cwd(draft, context)
    return made


async def _cwd(draft: EntryDraft, context: LookupContext) -> str:
    cwd = draft.get("cwd")
    return _working_folder(draft, await _text(cwd, context) if cwd is not None else "", context)


def _working_folder(draft: EntryDraft, text: str, context: LookupContext) -> str:
    """The working folder: the one in the file, which is `text` once it is resolved, else the one
    that its program would use."""
    entry_field = draft.get("cwd") or cast("EntryField", draft.get("command"))
    is_ours = entry_field.origin.file_format == "colonnade"
    start = os.path.dirname(entry_field.origin.file) if is_ours else entry_field.origin.folder
    if text.startswith("~"):
        return context.path(text, entry_field.origin)
    return os.path.normpath(os.path.join(start, text))


async def _text(entry_field: EntryField, context: LookupContext) -> str:
    return await resolve_template(entry_field.value, entry_field.origin, context) or ""


async def _table(draft: EntryDraft, field: str, context: LookupContext) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, entry_field in draft.table(field).items():
        if entry_field.value is not None:
            text = await resolve_template(entry_field.value, entry_field.origin, context)
            if text is not None:
                found[name] = text
    return found


def _override_headers(headers: dict[str, str], more: dict[str, str]) -> dict[str, str]:
    """Headers with others, which replace those of the same name."""
    low = {name.lower() for name in more}
    return {name: value for name, value in headers.items() if name.lower() not in low} | more


async def _helper_headers(
    key: str, url: str, helper: EntryField, context: LookupContext
) -> dict[str, str]:
    """The headers that a helper command prints as JSON."""
    variables = {"CLAUDE_CODE_MCP_SERVER_NAME": key, "CLAUDE_CODE_MCP_SERVER_URL": url}
    line = helper.value.text
    text = await run_helper(
        shell_words(line), cwd=helper.origin.folder or None, env={**context.env, **variables}
    )
    try:
        found: Any = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(
        isinstance(value, str) for value in cast("dict[str, Any]", found).values()
    ):
        raise Refused("headersHelper did not print a JSON object with string values")
    return cast("dict[str, str]", found)


# ---------------------------------------------------------------- .env files


def env_path(entry_field: EntryField, context: LookupContext) -> str:
    """The path of a `.env` file. It may contain references to folders and environment variables
    only."""
    text = _without_lookup(entry_field.value, entry_field.origin, context)
    if text.startswith("~"):
        text = context.home + text[1:]
    return os.path.normpath(os.path.join(entry_field.origin.folder, text))


def _without_lookup(template: ValueTemplate, origin: Origin, context: LookupContext) -> str:
    """A value with its references to folders and environment variables resolved, and without all
    others, for which a person or a program would be asked."""
    return "".join(
        part
        if isinstance(part, str)
        else context.folder(part.name, origin)
        if part.kind == "folder"
        else context.env.get(part.name, part.default or "")
        if part.kind == "env"
        else ""
        for part in template.parts
    )


def check_env_file(draft: EntryDraft, path: str) -> None:
    """Add the problems of a `.env` file."""
    entry_field = cast("EntryField", draft.get("env_file"))
    if any(part.kind == "input" for part in cast("ValueTemplate", entry_field.value).references):
        draft.wrong(entry_field.node, "an input is not allowed in the path of a file")
        return
    try:
        parse_env_file(decode_text(read_bytes(path)))
    except FileNotFoundError:
        draft.wrong(entry_field.node, f"file not found: {path}")
    except OSError as error:
        draft.wrong(entry_field.node, f"{path} cannot be read: {error.strerror or error}")
    except InvalidEnvLine as error:
        draft.wrong(entry_field.node, f"{path}: {error}")
    except ConfigSyntaxError as error:
        draft.wrong(entry_field.node, f"{path}: {error}")


def _read_env_file(
    entry_field: EntryField, context: LookupContext, files: Mapping[str, str]
) -> dict[str, str]:
    path = env_path(entry_field, context)
    try:
        data = read_bytes(path)
        if entry_field.origin.needs_trust and hashlib.sha256(data).hexdigest() != files.get(path):
            raise Refused(f"{path} has changed since it was trusted; reload the configuration")
        return parse_env_file(decode_text(data))
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror or error}") from None
    except (InvalidEnvLine, ConfigSyntaxError) as error:
        raise Refused(f"{path}: {error}") from None
