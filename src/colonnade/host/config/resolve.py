"""From a draft to an entry: what is shown of it, what tells it from before, what reaches it.

Rules: an entry holds names of secrets and no secret; what it shows has none either, not even one
that a file says outright. Its fingerprint changes when a variable does, and tells nothing of it.
"""

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Mapping
from typing import Any, Final, cast

from colonnade.errors import Refused
from colonnade.host.config.display import shown
from colonnade.host.config.entry import NEVER, Draft, Node, Said, decoded, texts
from colonnade.host.config.files import content
from colonnade.host.config.formats import NAMED, SETTINGS, TYPES
from colonnade.host.config.lookups import Surroundings, missing, printed, remarks, text_of, words_of
from colonnade.host.config.references import OddLine, Template, variables
from colonnade.host.config.settings import Broken, Entry, LoginTerms, Settings
from colonnade.text import clean

# Of this process alone: fingerprints are compared here, and mean nothing anywhere else.
_KEY: Final = secrets.token_bytes(32)


def entry_of(draft: Draft, around: Surroundings, files: Mapping[str, str]) -> Entry | None:
    """The entry of a draft, unless something is wrong with it: that is in its `problems` then.

    `files` are the digests of files with variables, as they were when they were trusted.
    """
    enabled = draft.get("enabled")
    for said, node, template in templates(draft):
        if enabled is not None and enabled.value is False:
            break  # nobody will look anything up
        for summary, hint in missing(template, said.origin, around):
            draft.wrong(node, summary, hint=hint, unresolved=True)
        for words in remarks(template, said.origin, around):
            draft.warn(node, words)
    settings = settings_of(draft, around)
    if draft.problems:
        return None
    if not draft.reaches:
        words = "it has neither a command nor a url, here or in another file"
        draft.wrong(draft.node, words)
        return None

    async def resolve() -> dict[str, Any]:
        try:
            return await _resolved(draft, around, files)
        except Refused as error:
            words = f"server {draft.key!r} cannot be reached: {error}"
            # Not the server's fault: it was not even tried.
            words += f" (see {draft.place.file}:{draft.place.line})"
            raise Refused(words, server=draft.key) from None

    return Entry(
        key=draft.key,
        resolve=resolve,
        fingerprint=_fingerprint(draft, around, files, settings),
        shown=clean(shown(draft)),
        settings=settings,
        place=draft.place,
        login=_login(draft),
    )


def templates(draft: Draft) -> list[tuple[Said, Node, Template]]:
    """Every text of a server, with its place; a word of a list has its own."""
    found: list[tuple[Said, Node, Template]] = []
    for said in draft.fields.values():
        items = said.node.items or ()
        for number, one in enumerate(texts(said)):
            found.append((said, items[number] if number < len(items) else said.node, one))
    return found


# ---------------------------------------------------------------- settings


def settings_of(draft: Draft, around: Surroundings) -> Settings:
    """How a server is kept, as a draft says it; what is wrong is in its `problems`."""
    given: dict[str, Any] = {}
    for name in SETTINGS:
        said = draft.get(name)
        if said is None:
            continue
        value: Any = _bare(said.value)
        if name == "roots":
            value = tuple(around.path(one, said.origin) for one in value)
        elif name == "revision":
            _check_revision(draft, said, value)
        given[name] = value
    aliases = {name: said.value.text for name, said in draft.table("aliases").items()}
    return Settings(**given, aliases=aliases)


def _bare(value: Any) -> Any:
    """A setting without what it was written in."""
    if isinstance(value, Template):
        return value.text
    if isinstance(value, tuple):
        return tuple(one.text for one in cast("tuple[Template, ...]", value))
    return None if value is NEVER else value


def _check_revision(draft: Draft, said: Said, date: str) -> None:
    from colonnade.protocol.revision import EVERY

    if date not in EVERY.dates:
        draft.wrong(
            said.node, "there is no such revision", hint=f"there are {', '.join(EVERY.dates)}"
        )


def _login(draft: Draft) -> LoginTerms | None:
    given = {name: said.value for name, said in draft.table("login").items()}
    return LoginTerms(**given) if given and draft.get("url") is not None else None


# ---------------------------------------------------------------- fingerprint


def _fingerprint(
    draft: Draft, around: Surroundings, files: Mapping[str, str], settings: Settings
) -> str:
    told: list[Any] = [draft.key, settings]
    for path, said in sorted(draft.fields.items()):
        told += [path, said.origin.dialect, said.origin.folder, _plain(said.value)]
    for _, _, template in templates(draft):
        for part in template.references:
            if part.kind == "env":
                told.append((part.name, around.env.get(part.name)))
    said = draft.get("env_file")
    if said is not None:
        told.append(files.get(env_path(said, around), ""))
    return hmac.new(_KEY, repr(told).encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def _plain(value: Any) -> Any:
    return str(value) if value is NEVER else value


# ---------------------------------------------------------------- resolved


async def _resolved(draft: Draft, around: Surroundings, files: Mapping[str, str]) -> dict[str, Any]:
    kind = draft.get("type")
    named = TYPES.get(kind.value.text) if kind is not None else None
    url = draft.get("url")
    if url is not None:
        made: dict[str, Any] = {"url": await _text(url, around)}
        headers = await _table(draft, "headers", around)
        helper = draft.get("headers_helper")
        if helper is not None:
            headers = _over(headers, await _helped(draft.key, made["url"], helper, around))
        if headers:
            made["headers"] = headers
    else:
        made = await _started(draft, around, files)
    return {"type": named, **made} if named else made


async def _started(draft: Draft, around: Surroundings, files: Mapping[str, str]) -> dict[str, Any]:
    command, args = cast("Said", draft.get("command")), draft.get("args")
    origin = command.origin
    made: dict[str, Any] = {"command": await _text(command, around)}
    given = args.value if args is not None else ()
    found = [await text_of(one, cast("Said", args).origin, around) for one in given]
    made["args"] = [one for one in found if one is not None]
    env: dict[str, str] = {}
    if origin.dialect == "claude-code" and origin.scope != NAMED:
        env["CLAUDE_PROJECT_DIR"] = origin.folder
    file = draft.get("env_file")
    if file is not None:
        env |= _from_file(file, around, files)
    for name in [name for name, said in draft.table("env").items() if said.value is None]:
        env.pop(name, None)
    env |= await _table(draft, "env", around)
    if env:
        made["env"] = env
    made["cwd"] = await _cwd(draft, around)
    return made


async def _cwd(draft: Draft, around: Surroundings) -> str:
    """Where it is started: where the file says, else where its program would start it."""
    said = draft.get("cwd") or cast("Said", draft.get("command"))
    is_ours = said.origin.dialect == "colonnade"
    start = os.path.dirname(said.origin.file) if is_ours else said.origin.folder
    cwd = draft.get("cwd")
    text = await _text(cwd, around) if cwd is not None else ""
    if text.startswith("~"):
        return around.path(text, said.origin)
    return os.path.normpath(os.path.join(start, text))


async def _text(said: Said, around: Surroundings) -> str:
    return await text_of(said.value, said.origin, around) or ""


async def _table(draft: Draft, field: str, around: Surroundings) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, said in draft.table(field).items():
        if said.value is not None:
            text = await text_of(said.value, said.origin, around)
            if text is not None:
                found[name] = text
    return found


def _over(headers: dict[str, str], more: dict[str, str]) -> dict[str, str]:
    """Headers with others that take the place of those of the same name."""
    low = {name.lower() for name in more}
    return {name: value for name, value in headers.items() if name.lower() not in low} | more


async def _helped(key: str, url: str, helper: Said, around: Surroundings) -> dict[str, str]:
    """The headers that a command prints as JSON."""
    told = {"CLAUDE_CODE_MCP_SERVER_NAME": key, "CLAUDE_CODE_MCP_SERVER_URL": url}
    line = helper.value.text
    text = await printed(
        words_of(line), cwd=helper.origin.folder or None, env={**around.env, **told}
    )
    try:
        found: Any = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(
        isinstance(value, str) for value in cast("dict[str, Any]", found).values()
    ):
        raise Refused("what headersHelper prints is no JSON object with a text for each header")
    return cast("dict[str, str]", found)


# ---------------------------------------------------------------- files with variables


def env_path(said: Said, around: Surroundings) -> str:
    """The file with variables. Only folders and variables may be in its name."""
    text = "".join(
        part
        if isinstance(part, str)
        else around.folder(part.name, said.origin)
        if part.kind == "folder"
        else around.env.get(part.name, part.default or "")
        if part.kind == "env"
        else ""
        for part in cast("Template", said.value).parts
    )
    if text.startswith("~"):
        text = around.home + text[1:]
    return os.path.normpath(os.path.join(said.origin.folder, text))


def check_env_file(draft: Draft, path: str) -> None:
    """Say what is wrong with a file of variables."""
    said = cast("Said", draft.get("env_file"))
    if any(part.kind == "input" for part in cast("Template", said.value).references):
        draft.wrong(said.node, "a file is not named by an input", hint="write its path")
        return
    try:
        variables(decoded(content(path)))
    except FileNotFoundError:
        draft.wrong(said.node, f"there is no file {path}")
    except OSError as error:
        draft.wrong(said.node, f"{path} cannot be read: {error.strerror or error}")
    except OddLine as error:
        draft.wrong(said.node, f"{path}: {error}")
    except Broken as error:
        draft.wrong(said.node, f"{path}: {error}")


def _from_file(said: Said, around: Surroundings, files: Mapping[str, str]) -> dict[str, str]:
    path = env_path(said, around)
    try:
        data = content(path)
        if said.origin.guarded and hashlib.sha256(data).hexdigest() != files.get(path):
            raise Refused(f"{path} has changed since it was trusted; read the configuration again")
        return variables(decoded(data))
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror or error}") from None
    except (OddLine, Broken) as error:
        raise Refused(f"{path}: {error}") from None
