"""What people have, and the way that it means: a URL, a file, a command, a server, an entry.

Rules: a string never becomes a command line. Nothing is started or opened here, and nothing is
guessed: what is not understood is refused with a sentence that says what to write.
"""

import os
import shlex
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import cache
from itertools import takewhile
from math import isfinite
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from colonnade import __version__
from colonnade.client.cache import MAX_LIST_BYTES, MAX_LIST_ITEMS
from colonnade.client.client import Client, OnLog, OnProgress
from colonnade.client.input_callbacks import Answers, OnElicit, OnSample
from colonnade.client.request import running_loop
from colonnade.client.roots import GivenRoots
from colonnade.client.transports import (
    ChildWay,
    HttpWay,
    Issuing,
    MemoryWay,
    OneWay,
    OnStderr,
    SseWay,
    Way,
    is_service,
)
from colonnade.errors import AuthError, InvalidArgument, InvalidArgumentType, LocalProtocolError
from colonnade.ports import Carry, Service
from colonnade.protocol import types as t
from colonnade.protocol.link.link import TIMEOUT_S
from colonnade.protocol.revision import EVERY, Revisions
from colonnade.transport.process.command import python_command, search_path, split_name

if TYPE_CHECKING:  # most clients are asked by nobody who they are
    from colonnade.auth.client.login import Auth


class ClientChannel(Protocol):
    """Something that carries a conversation: an end of a pair, a child, a stream."""

    @property
    def carry(self) -> Carry: ...


# A URL; a file (`.py`, `.js`); a command as a list; a server; one entry of a configuration that is
# resolved already; a channel.
Target: TypeAlias = (
    str
    | os.PathLike[str]
    | Sequence[str | os.PathLike[str]]
    | Mapping[str, Any]
    | Service
    | ClientChannel
    | Carry
)
GivenHeaders: TypeAlias = Mapping[str, str] | Iterable[tuple[str, str]]

# Which program runs a file. Those who have another one write a list.
PYTHON = ".py"
PROGRAMS = {PYTHON: sys.executable, ".js": "node", ".mjs": "node", ".cjs": "node"}
# What the protocol, or HTTP itself, says in a request. Two of one name would be two opinions.
OWN_HEADERS = frozenset(
    {
        "accept",
        "connection",
        "content-length",
        "content-type",
        "host",
        "last-event-id",
        "mcp-method",
        "mcp-name",
        "mcp-protocol-version",
        "mcp-session-id",
        "transfer-encoding",
    }
)
# What entries call the transports; nearly all hosts leave it out.
BY_HTTP = frozenset({"http", "streamable-http", "streamableHttp", "streamable_http"})
BY_SSE, BY_STDIO = "sse", "stdio"

# Programs that run another one, and the words that they take before it.
RUNNERS = frozenset({"python", "node", "npx", "npm", "pnpm", "bun", "bunx", "deno", "uv", "uvx"})
VERBS = frozenset({"run", "exec", "tool", "dlx", "x"})
# What they are told to run is the next word itself, and no name.
CODE = ("-c", "-e")

SHOWN_CHARACTERS = 80


class ConnectContext:
    """What else a caller said: where, with what, and under which name."""

    def __init__(
        self,
        *,
        headers: GivenHeaders | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        name: str | None = None,
        auth: "Auth | None" = None,
        on_stderr: OnStderr | None = None,
    ) -> None:
        self.on_stderr = on_stderr
        self.headers: list[tuple[str, str]] = checked_headers(headers)
        self.auth: Auth | None = auth
        self.env = env
        self.cwd: str | None = os.fspath(cwd) if cwd is not None else None
        self.name: str = name or ""

    def refuse(self, what: str, *, headers: bool = False, child: bool = False) -> None:
        """Raise for what makes no sense with a target: nothing that was said is ignored."""
        if headers and self.headers:
            raise InvalidArgument(f"headers go with a URL, and this is {what}", argument="headers")
        if headers and self.auth is not None:  # R0188: there it is the environment's business
            raise InvalidArgument(
                f"auth= goes with a URL, and this is {what}; use env= there", argument="auth"
            )
        if child and (self.env is not None or self.cwd is not None):
            raise InvalidArgument(f"env and cwd are for a command, and this is {what}")
        if child and self.on_stderr is not None:
            raise InvalidArgument(
                f"on_stderr hears a command, and this is {what}", argument="on_stderr"
            )

    def child(
        self, argv: Sequence[str], name: str, variables: Mapping[str, str] | None = None
    ) -> ChildWay:
        """A command with all that was said for one; `variables` are below those of `env`."""
        env = {**(variables or {}), **(self.env or {})}
        return ChildWay(argv, name=name, cwd=self.cwd, env=env, on_stderr=self.on_stderr)


def way_to(target: object, around: ConnectContext) -> Way:
    """The way that a target means. Raises `LocalProtocolError` for what means none."""
    if isinstance(target, str | os.PathLike):
        return _to_text(os.fspath(cast("str | os.PathLike[str]", target)), around)
    if isinstance(target, Mapping):
        return _to_entry(cast("Mapping[str, Any]", target), around)
    if isinstance(target, list | tuple):
        return _to_command(cast("Sequence[object]", target), around)
    if is_service(target):
        around.refuse("a server in this process", headers=True, child=True)
        return MemoryWay(target, around.name)
    carry: object = getattr(target, "carry", target)
    if callable(carry) and not isinstance(target, type):
        around.refuse("a channel", headers=True, child=True)
        return OneWay(cast("Callable[..., Any]", carry), around.name)
    raise InvalidArgumentType(
        f"{type(target).__name__} cannot be connected to; {_POSSIBLE}", argument="target"
    )


_POSSIBLE = (
    "connect to a URL, a .py or .js file, a list (a command), a Server, or a dict (one entry)"
)


# ---------------------------------------------------------------- a string


def _to_text(text: str, around: ConnectContext) -> Way:
    scheme, colon, _ = text.partition("://")
    if colon and scheme.lower() in ("http", "https"):
        return _to_url(text, around)
    file, server = split_name(text)
    ending = os.path.splitext(file)[1].lower()
    if ending in PROGRAMS and os.path.isfile(file):
        around.refuse("a file", headers=True)
        path = os.path.abspath(file)
        name = around.name or server or os.path.splitext(os.path.basename(path))[0]
        if ending == PYTHON:
            return around.child(python_command(path, server), name, search_path())
        if server:
            words = f"{text[:SHOWN_CHARACTERS]!r}: only a .py file has servers with names"
            raise InvalidArgument(f"{words}; name the file alone", argument="target")
        return around.child([PROGRAMS[ending], path], name)
    raise InvalidArgument(
        _what_to_write(file if ending in PROGRAMS else text, ending), argument="target"
    )


def _what_to_write(text: str, ending: str) -> str:
    # What stands behind a question mark may be a key.
    text = text.partition("?")[0] if "://" in text else text
    shown = repr(text[:SHOWN_CHARACTERS])
    if "://" in text:
        return f"{shown} is no address that MCP is spoken at; write https://… or http://…"
    if ending in PROGRAMS and len(text.split()) == 1:
        where = os.path.dirname(os.path.abspath(text))
        return f"there is no file {shown}; look into {where}"
    if ending in (".json", ".toml"):
        return (
            f"{shown} is a configuration, which may name several servers: use "
            f"Host.from_config({shown})"
        )
    if os.path.isdir(text):
        return f"{shown} is a folder; name the file in it"
    if os.path.exists(text):
        return f"{shown} is no .py or .js file; if it is a program, write connect([{shown}])"
    words = _words(text)
    if len(words) != 1:
        listed = ", ".join(repr(word) for word in words or ["uvx", "mcp-server-git"])
        return (
            f"{shown} is neither a URL nor a .py or .js file, and a string never becomes a "
            f"command; a command is a list: connect([{listed}])"
        )
    return (
        f"{shown} is neither a URL nor a .py or .js file; for a URL write https://{words[0]}, "
        f"for a command a list: connect([{words[0]!r}])"
    )


def _words(text: str) -> list[str]:
    """What somebody meant by a command line: for the sentence that refuses it, never to be run."""
    try:
        return shlex.split(text[:SHOWN_CHARACTERS])
    except ValueError:
        return text[:SHOWN_CHARACTERS].split()


def _to_url(url: str, around: ConnectContext, *, older: bool = False) -> Way:
    around.refuse("a URL", child=True)
    from colonnade.transport.http_client.connect import RequestTarget

    RequestTarget(url, {})  # which says what is wrong with it
    made = SseWay if older else HttpWay
    return made(url, around.headers, name=around.name, issuing=_issuing(url, around))


def _issuing(url: str, around: ConnectContext) -> Issuing | None:
    """How this server learns who we are; None where nobody said that it should."""
    if around.auth is None:
        return None
    if any(name.lower() == "authorization" for name, _ in around.headers):
        raise InvalidArgument(
            "pass either auth= or an Authorization header, and not both", argument="auth"
        )
    from colonnade.auth.urls import require_https
    from colonnade.client.auth import credentials_factory

    try:
        require_https(url, "the server's URL")  # what is shown to it must not be read on the way
    except AuthError as error:
        raise InvalidArgument(f"auth= needs https: {error}", argument="auth") from None
    return credentials_factory(around.auth, url)


# ---------------------------------------------------------------- a list


def _to_command(words: Sequence[object], around: ConnectContext) -> Way:
    around.refuse("a command", headers=True)
    if not words or not all(isinstance(word, str | os.PathLike) for word in words):
        raise InvalidArgumentType(
            "a command is a list of strings, such as "
            "['uvx', 'mcp-server-git', '--repository', '.']",
            argument="target",
        )
    argv = [os.fspath(cast("str | os.PathLike[str]", word)) for word in words]
    if not argv[0]:
        raise InvalidArgument(
            "the first word of a command is the program, and this is empty", argument="target"
        )
    name = around.name or called(argv)
    return around.child(argv, name)


def called(argv: Sequence[str]) -> str:
    """What a command is called in errors: the program, or what it was told to run."""
    program = _stem(argv[0])
    if program.rstrip("0123456789.") in RUNNERS:
        given = takewhile(lambda word: word not in CODE, argv[1:])
        words = (word for word in given if not word.startswith("-") and word not in VERBS)
        return _stem(next(words, "")) or program
    return program


def _stem(word: str) -> str:
    """The last part of a path or a package, without its ending or its version."""
    last = os.path.basename(word.rstrip("/"))
    stem, ending = os.path.splitext(last)
    return (stem if ending in (*PROGRAMS, ".exe") else last).partition("@")[0]


# ---------------------------------------------------------------- one entry


def _to_entry(entry: Mapping[str, Any], around: ConnectContext) -> Way:
    if "mcpServers" in entry or "servers" in entry:
        raise InvalidArgument(
            "this is a whole configuration; connect to one entry of it, or use a Host for all",
            argument="target",
        )
    url, command, kind = entry.get("url"), entry.get("command"), entry.get("type")
    if (url is None) is (command is None):
        raise InvalidArgument(
            "an entry has either a url or a command, as in mcp.json", argument="target"
        )
    if url is not None:
        if kind is not None and kind not in BY_HTTP and kind != BY_SSE:
            raise InvalidArgument(
                f"an entry with a url has the type http or sse, not {kind!r}", argument="target"
            )
        if not isinstance(url, str) or not url.lower().startswith(("http://", "https://")):
            raise InvalidArgument(
                "the url of an entry begins with https:// or http://", argument="target"
            )
        headers = checked_headers(_texts(entry, "headers"))
        everything = [*headers, *around.headers]
        merged = ConnectContext(headers=everything, name=around.name, auth=around.auth)
        around.refuse("a URL", child=True)
        return _to_url(url, merged, older=kind == BY_SSE)
    if kind is not None and kind != BY_STDIO:
        raise InvalidArgument(
            f"an entry with a command has the type stdio, not {kind!r}", argument="target"
        )
    args: object = entry.get("args") or []
    if not isinstance(command, str) or not isinstance(args, list):
        raise InvalidArgumentType(
            "command is one program, and args is a list of its arguments", argument="target"
        )
    env = {**(_texts(entry, "env") or {}), **(around.env or {})}
    cwd = around.cwd or entry.get("cwd")
    merged = ConnectContext(env=env, cwd=cwd, name=around.name, on_stderr=around.on_stderr)
    around.refuse("a command", headers=True)
    return _to_command([command, *cast("list[object]", args)], merged)


def _texts(entry: Mapping[str, Any], name: str) -> dict[str, str] | None:
    found: object = entry.get(name)
    if found is None:
        return None
    if not isinstance(found, Mapping):
        raise InvalidArgumentType(
            f"{name} of an entry is an object, with a text for each name", argument="target"
        )
    texts = cast("Mapping[object, object]", found)
    if not all(isinstance(key, str) and isinstance(value, str) for key, value in texts.items()):
        raise InvalidArgumentType(
            f"{name} of an entry has something that is no text", argument="target"
        )
    return cast("dict[str, str]", dict(texts))


# ---------------------------------------------------------------- headers


def checked_headers(given: GivenHeaders | None) -> list[tuple[str, str]]:
    """Headers as they are sent. Raises for those that are not a caller's to choose."""
    if given is None:
        return []
    pairs = list(cast("Mapping[str, str]", given).items() if isinstance(given, Mapping) else given)
    for name, value in pairs:
        low = name.lower()
        if low in OWN_HEADERS or low.startswith("mcp-param-"):
            raise InvalidArgument(
                f"{name} is written by the client itself; leave it out", argument="headers"
            )
        if not name or not name.isascii() or not name.isprintable() or set(name) & set(' :"'):
            raise InvalidArgument(
                f"{name[:SHOWN_CHARACTERS]!r} is no name of a header", argument="headers"
            )
        if not value.isprintable() or not value.isascii():
            raise InvalidArgument(
                f"the value of {name} has characters that none can carry", argument="headers"
            )
    return pairs


if TYPE_CHECKING:  # most clients are asked by nobody who they are
    from colonnade.auth.client.login import Auth

# Servers and proxies let go of what is idle after five minutes and more.
PING_S = 240.0
# `clientInfo` must have a version; that of a program that did not say one, as of a server's.
NO_VERSION = "0"


class Connecting:
    """A client that is about to be: `await` it, or enter it with `async with`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._begun = False

    def __await__(self) -> Generator[Any, None, Client]:
        return self._open().__await__()

    async def __aenter__(self) -> Client:
        return await self._open()

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def _open(self) -> Client:
        if self._begun:
            raise LocalProtocolError("this connection was used; call connect again for another")
        running_loop()
        self._begun = True
        try:
            await self._client.open()
        except BaseException:
            await self._client.close()
            raise
        return self._client


def connect(
    target: Target,
    *,
    headers: GivenHeaders | None = None,
    auth: "Auth | None" = None,
    timeout_s: float = TIMEOUT_S,
    on_elicit: OnElicit | None = None,
    on_sample: OnSample | None = None,
    on_log: OnLog | None = None,
    on_progress: OnProgress | None = None,
    on_stderr: OnStderr | None = None,
    roots: GivenRoots | None = None,
    revision: str | Iterable[str] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    name: str | None = None,
    version: str | None = None,
    title: str | None = None,
    server_name: str | None = None,
    sample_tools: bool = False,
    sample_context: bool = False,
    ping_s: float | None = PING_S,
    max_list_bytes: int = MAX_LIST_BYTES,
    max_list_items: int = MAX_LIST_ITEMS,
) -> Connecting:
    """A client of a server, whichever revision and transport it speaks.

    The target is a URL, a `.py` or `.js` file, a list (a command), a `Server`, or a dict (one
    resolved entry of a configuration). A Python file is served as `colonnade run` serves it,
    whether or not it calls `run()`; `server.py:name` is one of its servers. A string never becomes
    a command line.

    `headers` go to a URL, and so does `auth`, for a server that wants to know who you are:
    `Login()` for a person, `ClientCredentials(…)` for a program. `env` (added to a few variables)
    and `cwd` go to a command; `server_name` is what errors call the server; `on_stderr` hears each
    line that a command writes to its standard error, of which errors quote the last. The client can
    be asked what it has handlers for, and nothing else. `revision` pins or limits what is spoken.
    `name`, `version` and `title` say who you are, which servers log and may show (`clientInfo`);
    without them the client gives the name and version of this library.
    Every call ends after `timeout_s`, begun anew by progress. `sample_tools` and `sample_context`
    say what `on_sample` can do beyond words. Where conversations last, a server that was quiet for
    `ping_s` is asked whether it is there. A list of the server (of tools, say) that has more than
    `max_list_bytes` or `max_list_items` is an error.

    Raises `LocalProtocolError` at once for a target that is none; when awaited `CannotConnect`,
    `LoginRequired`, `TimedOut`, or `RemoteProtocolError` where there is no revision in common.
    """
    if auth is not None and not hasattr(auth, "grant"):
        raise InvalidArgumentType(
            "auth= takes Login(), ClientCredentials(…), EnterpriseLogin(…) or WorkloadIdentity(…); "
            "a token of your own goes into headers={'Authorization': 'Bearer …'}",
            argument="auth",
        )
    for words, seconds in (("timeout_s", timeout_s), ("ping_s", ping_s)):
        if seconds is not None and not (isfinite(seconds) and seconds > 0):
            raise InvalidArgument(f"{words} is a number of seconds above 0", argument=words)
    for words, most in (("max_list_bytes", max_list_bytes), ("max_list_items", max_list_items)):
        if most < 1:
            raise InvalidArgument(f"{words} is a whole number above 0", argument=words)
    around = ConnectContext(
        headers=headers, env=env, cwd=cwd, name=server_name, auth=auth, on_stderr=on_stderr
    )
    return Connecting(
        Client(
            way_to(target, around),
            Answers(
                on_elicit=on_elicit,
                on_sample=on_sample,
                roots=roots,
                sample_tools=sample_tools,
                sample_context=sample_context,
            ),
            info=client_info(name, version, title),
            accepts=accepted(revision),
            timeout_s=timeout_s,
            ping_s=ping_s,
            max_list_bytes=max_list_bytes,
            max_list_items=max_list_items,
            on_log=on_log,
            on_progress=on_progress,
        )
    )


def made(way: Way, answers: Answers, **options: Any) -> Client:
    """A client that calls itself by our name."""
    return Client(way, answers, info=own_name(), **options)


def client_info(name: str | None, version: str | None, title: str | None) -> t.Implementation:
    """The `clientInfo` of a program; ours where it does not say who it is."""
    if name is None:
        if version is not None or title is not None:
            raise InvalidArgument(
                "version= and title= go with name=: say who the client is", argument="name"
            )
        return own_name()
    if not name:
        raise InvalidArgument(
            "name= is what the client is called, and this is empty", argument="name"
        )
    return t.Implementation(name=name, version=version or NO_VERSION, title=title)


@cache
def own_name() -> t.Implementation:
    """What we call ourselves."""
    return t.Implementation(name="colonnade", version=__version__)


def accepted(revision: str | Iterable[str] | None) -> Revisions:
    """The revisions that may be spoken: all, one, or some."""
    if revision is None:
        return EVERY
    dates = [revision] if isinstance(revision, str) else list(revision)
    try:
        return Revisions.of(*dates)
    except ValueError as error:
        raise InvalidArgument(f"revision=: {error}", argument="revision") from None
