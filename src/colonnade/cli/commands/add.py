"""What `colonnade add` and `colonnade remove` do: a server in the configuration of another program.

Rules: without `--write` nothing is read or written, and standard output has the entry alone. A
value from the environment is never shown, and stands in a file only where the program can refer to
none.
"""

import os
import re
import shutil
import sys
from difflib import get_close_matches
from itertools import pairwise
from shlex import quote
from typing import Any, Final, NamedTuple, cast
from urllib.parse import urlsplit

from colonnade.cli.config_file import EntryFile, Standing
from colonnade.cli.errors import FAILED, Trouble, Voice
from colonnade.cli.loader import CONFIGURATIONS, read
from colonnade.cli.options import SCRIPTS, address, header, variable
from colonnade.cli.terminal import output
from colonnade.host.config.editing import find, is_before, put, remove, snippet
from colonnade.host.config.formats import (
    FORMATS,
    NAME,
    FileFormat,
    HttpEntry,
    Platform,
    Scope,
    StdioEntry,
    encode_entry,
    file_path,
)
from colonnade.host.config.settings import ConfigSyntaxError
from colonnade.text import clean, one_line
from colonnade.transport.process.python_file import imports_colonnade

# Names of files that say nothing of what is in them; their folder does.
USUAL: Final = ("server", "main", "app", "mcp", "__main__", "index")
# What starts another program, whose name is the better one.
STARTERS: Final = ("uvx", "npx", "uv", "node", "python", "python3", "bunx", "deno", "docker", "run")
# Names that are listed where the one that was typed is none of them.
MAX_NAMES = 20

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Wish(NamedTuple):
    """What was typed after `colonnade add`."""

    target: str | tuple[str, ...]
    client: str
    name: str = ""
    envs: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    header_envs: tuple[str, ...] = ()
    file: str = ""
    project: bool = False
    write: bool = False
    replace: bool = False


def client_named(word: str) -> str:
    """A program that we know. Raises `Trouble` for any other one."""
    if word in FORMATS:
        return word
    near = get_close_matches(word, FORMATS, n=1)
    known = f"there are {', '.join(FORMATS)}"
    raise Trouble(f"there is no client {word}; {f'did you mean {near[0]}?' if near else known}")


# ---------------------------------------------------------------- add


def add_target(wish: Wish) -> int:
    """Show an entry, or write it; the exit code."""
    dialect, voice = FORMATS[wish.client], Voice()
    if wish.replace and not wish.write:
        raise Trouble("--replace is for --write; without it nothing is written")
    server, name = _server(wish, dialect)
    name = _checked(wish.name) if wish.name else _safe(name)
    where = _place(dialect, wish.file, project=wish.project)
    file = EntryFile(where)
    for warning in _warnings(wish, dialect, server):
        voice.say(warning)
    if wish.write:
        text = file.read()
        standing = Standing(where, text)
        made = encode_entry(dialect, server)
        new = _write(wish, dialect, name, made, file, text, voice)
        if words := standing.goes_on(new, {name: made}):
            voice.say(words)
        return 0
    shown = snippet(dialect, name, encode_entry(dialect, _hidden(wish, server)))
    with output():
        sys.stdout.write(shown)
        sys.stdout.flush()
    voice.say(f"this belongs in {file.shown}; --write puts it there")
    return 0


def _write(
    wish: Wish,
    dialect: FileFormat,
    name: str,
    made: dict[str, Any],
    file: EntryFile,
    text: str | None,
    voice: Voice,
) -> str:
    """Put an entry into a file; its text from now on."""
    try:
        before = find(dialect, text or "")
        if text is not None and before.get(name) == made:
            voice.say(f"{name} is in {file.shown} already, just so")
            return text
        if name in before and not wish.replace:
            words = f"there is a {name} in {file.shown} already; --replace takes its place"
            raise Trouble(f"{words}, --name gives this one another name")
        new = put(dialect, text or "", name, made)
    except ConfigSyntaxError as error:
        raise _broken(file, error) from None
    if not file.has_folder and not wish.file and not wish.project:
        voice.say(f"its folder was not there: is {dialect.title} installed here?")
    kept = file.replace(name, new, old=text)
    voice.say(f"{name} is in {file.shown} now{_kept(kept)}; {_afterwards(wish, dialect)}")
    return new


def _afterwards(wish: Wish, dialect: FileFormat) -> str:
    """What a person does next: in the client, or with a file that is none of its own."""
    usual = [_place(dialect, "", project=scope == "project") for scope in dialect.files]
    own = not wish.file or os.path.abspath(wish.file) in usual
    if own or not wish.file.lower().endswith(CONFIGURATIONS):
        return dialect.afterwards
    return f"colonnade ls {clean(quote(wish.file))} shows it"


def _kept(kept: str) -> str:
    return f", and what was there before in {clean(kept)}" if kept else ""


def _broken(file: EntryFile, error: ConfigSyntaxError) -> Trouble:
    where = f"{file.shown}, line {error.line}, column {error.column}"
    return Trouble(f"{where}: {one_line(error.why)}; nothing was written", FAILED)


# ---------------------------------------------------------------- remove


def remove_name(name: str, client: str, file: str, *, project: bool) -> int:
    """Take an entry out; the exit code."""
    dialect, voice = FORMATS[client], Voice()
    where = _place(dialect, file, project=project)
    place = EntryFile(where)
    text = place.read()
    if text is None:
        raise Trouble(f"there is no {place.shown}, and so no {clean(name)} in it")
    standing = Standing(where, text)
    new: str | None
    try:
        known = find(dialect, text)
        if name not in known:
            raise Trouble(_unknown(name, list(known), place))
        before = place.kept(name)
        if before is not None and is_before(dialect, before, text, name):
            place.replace(name, new := before)
            place.forget(name)
            how = ", which is as it was before"
        elif is_before(dialect, "", text, name):
            place.replace(name, new := None)
            place.forget(name)
            how = ", which is gone: nothing else was in it"
        else:
            new = remove(dialect, text, name)
            how = _kept(place.replace(name, new, old=text))
    except ConfigSyntaxError as error:
        raise _broken(place, error) from None
    voice.say(f"{clean(name)} is out of {place.shown}{how}")
    if words := standing.goes_on(new):
        voice.say(words)
    return 0


def _unknown(name: str, known: list[str], file: EntryFile) -> str:
    words = f"there is no {clean(name)} in {file.shown}; "
    near = get_close_matches(name, known, n=1)
    if near:
        return f"{words}did you mean {one_line(near[0])}?"
    more = ", …" if len(known) > MAX_NAMES else ""
    return f"{words}it has {one_line(', '.join(known[:MAX_NAMES])) or 'no server'}{more}"


# ---------------------------------------------------------------- which file


def _place(dialect: FileFormat, file: str, *, project: bool) -> str:
    if file and project:
        raise Trouble("--file and --project exclude each other: both say where it belongs")
    if file:
        return os.path.abspath(file)
    scope: Scope = "project" if project else "user"
    if scope not in dialect.files:
        raise Trouble(f"{dialect.title} has no file for a project; leave --project out")
    return file_path(
        dialect,
        scope,
        platform=_platform(),
        home=os.path.expanduser("~"),
        folder=os.getcwd(),
        env=os.environ,
    )


def _platform() -> Platform:
    known = sys.platform in ("win32", "darwin")
    return cast("Platform", sys.platform) if known else "linux"


# ---------------------------------------------------------------- which server


def name_for(target: str | tuple[str, ...]) -> str:
    """What a server is called where nobody gave it a name. Raises `Trouble`."""
    if not isinstance(target, str):
        return _safe(_command(target)[1])
    if "://" in target:
        return _safe(urlsplit(target).hostname or "")
    if os.path.splitext(target)[1].lower() in SCRIPTS or read(target).path:
        return _safe(_file(target)[1])
    return _safe(target.rpartition(":")[2].rpartition(".")[2])  # a module


def _server(wish: Wish, dialect: FileFormat) -> tuple[StdioEntry | HttpEntry, str]:
    """The server, and what it may be called."""
    target = wish.target
    if isinstance(target, str) and "://" in target:
        return _reached(wish, dialect, target)
    if wish.headers or wish.header_envs:
        raise Trouble("--header goes to an address; a server that is started has --env")
    variables = tuple(_variable(text, dialect) for text in wish.envs)
    if isinstance(target, str):
        line, name = _file(target)
    else:
        line, name = _command(target)
    return StdioEntry(line[0], tuple(line[1:]), variables), name


def _reached(wish: Wish, dialect: FileFormat, url: str) -> tuple[HttpEntry, str]:
    shown = address(url)
    if wish.envs:
        raise Trouble("--env is for a server that is started, and this is an address")
    if not dialect.supports_http:
        words = f"{dialect.title} takes no addresses from its file; add {clean(shown)} in its"
        raise Trouble(f"{words} settings, under Connectors")
    pairs = tuple(_header_variable(text) for text in wish.header_envs)
    host = urlsplit(url).hostname or ""
    return HttpEntry(url, tuple(map(header, wish.headers)), pairs), host


def _header_variable(text: str) -> tuple[str, str]:
    name, _, value = (part.strip() for part in text.partition("="))
    if not name or not _VARIABLE.fullmatch(value):
        raise Trouble("--header-env takes NAME=VARIABLE, such as Authorization=TOKEN")
    return name, value


def _variable(text: str, dialect: FileFormat) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    if not _VARIABLE.fullmatch(name):
        raise Trouble("--env takes NAME, or NAME=VALUE")
    if equals:
        return name, value
    return (name, None) if dialect.refers else variable(name)


def _file(target: str) -> tuple[list[str], str]:
    """The command line of a file, which is named in full: a client starts in any folder."""
    stem = os.path.splitext(os.path.basename(target))[0]
    if os.path.splitext(target)[1].lower() in SCRIPTS and os.path.isfile(target):
        return [shutil.which("node") or "node", os.path.abspath(target)], _better(stem, target)
    found = read(target)
    if not found.path:
        words = f"{target} is a module, found from the folder where one is, and a client starts in"
        raise Trouble(f"{words} any other one; name its file")
    stem = os.path.splitext(os.path.basename(found.path))[0]
    name = found.name.rpartition(".")[2]
    if found.name and name not in USUAL:
        stem = name
    if not found.name and not imports_colonnade(found.path):
        return [sys.executable, found.path], _better(stem, found.path)
    return [*_starter(), str(found)], _better(stem, found.path)


def _better(stem: str, file: str) -> str:
    folder = os.path.basename(os.path.dirname(os.path.abspath(file)))
    return folder if stem in USUAL and folder else stem


def _starter() -> list[str]:
    """What runs a file of ours wherever it is started: without a PATH, and in any folder."""
    ending = ".exe" if sys.platform == "win32" else ""
    script = os.path.join(os.path.dirname(sys.executable), f"colonnade{ending}")
    if os.path.isfile(script):
        return [script, "run"]
    return [sys.executable, "-P", "-m", "colonnade", "run"]


def _command(line: tuple[str, ...]) -> tuple[list[str], str]:
    if not line or not line[0]:
        raise Trouble("after -- comes the command that starts it: -- uvx mcp-server-git")
    stems = [os.path.splitext(os.path.basename(word))[0] for word in line if word[:1] != "-"]
    telling = [stem for stem in stems if stem and stem not in STARTERS]
    return list(line), (telling or stems)[0]


def _checked(name: str) -> str:
    """A name that every program takes. Raises `Trouble`."""
    if not NAME.fullmatch(name):
        words = f"{clean(name)} is no name that every client takes"
        raise Trouble(f"{words}; use letters, digits, - and _, 64 at most: --name {_safe(name)}")
    return name


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:64] or "server"


# ---------------------------------------------------------------- secrets


def _hidden(wish: Wish, server: StdioEntry | HttpEntry) -> StdioEntry | HttpEntry:
    """The same, for a screen: what came from the environment is only named there."""
    if isinstance(server, HttpEntry):
        return server
    typed = _typed(wish)
    shown = (
        (name, value if value is None or name in typed else f"<the value of {name}>")
        for name, value in server.variables
    )
    return server._replace(variables=tuple(shown))


def _typed(wish: Wish) -> set[str]:
    return {text.partition("=")[0] for text in wish.envs if "=" in text}


def _warnings(wish: Wish, dialect: FileFormat, server: StdioEntry | HttpEntry) -> list[str]:
    """What a person should know of secrets, and of paths, before this is used."""
    if isinstance(server, HttpEntry):
        return _of_address(server)
    found: list[str] = []
    for name, value in server.variables:
        if value is None:
            continue
        if name not in _typed(wish):
            found.append(
                f"{dialect.title} cannot refer to a variable: --write puts the value of {name} "
                "into the file as plain text"
            )
        elif _is_secret(f"{name}={value}"):
            way = f"; --env {name} alone refers to yours" if dialect.refers else ""
            found.append(f"{name} looks like a secret, and stands in the file as plain text{way}")
    if not isinstance(wish.target, str):
        found += _of_command(wish.target)
    return found


def _of_address(server: HttpEntry) -> list[str]:
    found: list[str] = []
    if _is_secret(server.url):
        words = "the address holds what looks like a secret, and stands in the file as plain text"
        found.append(f"{words}; --header-env NAME=VARIABLE sends one that stays a variable")
    for name, value in server.headers:
        if _is_secret(f"{name}: {value}"):
            words = f"the header {clean(name)} stands in the file as plain text"
            found.append(f"{words}; --header-env {clean(name)}=VARIABLE refers to a variable")
    return found


def _of_command(line: tuple[str, ...]) -> list[str]:
    found: list[str] = []
    pairs = (f"{word}={after}" for word, after in pairwise(line))
    if any(map(_is_secret, line)) or any(_is_secret(p) for p in pairs if p.startswith("-")):
        found.append(
            "an argument looks like a secret, which stands in the file as plain text, and whoever "
            "lists processes sees it; if the server can, give it by --env"
        )
    for word in line:
        near = os.path.sep in word or bool(os.path.splitext(word)[1])
        if near and not os.path.isabs(word) and os.path.exists(word):
            words = f"{clean(word)} is a path from this folder, and a client starts in any other"
            found.append(f"{words} one; write it in full: {clean(os.path.abspath(word))}")
    if not shutil.which(line[0]):
        found.append(f"there is no command {clean(line[0])} on the PATH here")
    return found


def _is_secret(text: str) -> bool:
    from colonnade.logs import redacted

    return redacted(text) != text
