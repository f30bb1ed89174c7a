"""`connect`: the transport for a target (URL, file, command, server, configuration entry).

Rules: a string never becomes a command line. Nothing is started or opened before the client is, and
nothing is guessed: an unknown target is an error that says what to write.
"""

import os
import shlex
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import cache
from itertools import takewhile
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from urllib.parse import urlsplit

from colonnade import __version__
from colonnade.client.cache import MAX_LIST_BYTES, MAX_LIST_ITEMS
from colonnade.client.client import Client, OnLog, OnProgress
from colonnade.client.input_callbacks import InputCallbacks, OnElicit, OnSample
from colonnade.client.request import running_loop
from colonnade.client.roots import GivenRoots
from colonnade.client.transports import (
    ChannelTransport,
    CredentialsFactory,
    HttpTransport,
    LegacySseTransport,
    MemoryTransport,
    OnStderr,
    ProcessTransport,
    is_service,
)
from colonnade.errors import AuthError, InvalidArgument, InvalidArgumentType, LocalProtocolError
from colonnade.ports import ClientChannel, ClientTransport, OpenConversation, Service
from colonnade.protocol import types as t
from colonnade.protocol.http.security import is_loopback_host
from colonnade.protocol.link.link import TIMEOUT_S
from colonnade.protocol.revision import EVERY, Revisions
from colonnade.transport.process.command import (
    package_folders,
    python_command,
    search_path,
    split_name,
)
from colonnade.transport.process.sandbox import GivenSandbox, Sandbox, sandbox_of, shown_with

if TYPE_CHECKING:  # most clients need no authentication
    from colonnade.auth.client.login import Auth
    from colonnade.telemetry.telemetry import Telemetry


# A URL; a file (`.py`, `.js`); a command as a list; a server; one resolved entry of a
# configuration; a channel.
Target: TypeAlias = (
    str
    | os.PathLike[str]
    | Sequence[str | os.PathLike[str]]
    | Mapping[str, Any]
    | Service
    | ClientChannel
    | OpenConversation
)
GivenHeaders: TypeAlias = Mapping[str, str] | Iterable[tuple[str, str]]

# The program that runs a file. For another program, use a command list.
PYTHON = ".py"
PROGRAMS = {PYTHON: sys.executable, ".js": "node", ".mjs": "node", ".cjs": "node"}
# Headers that the protocol or HTTP itself sets; a second value would contradict the first.
RESERVED_HEADERS = frozenset(
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
# The values of `type` in configuration entries; most configurations leave it out.
BY_HTTP = frozenset({"http", "streamable-http", "streamableHttp", "streamable_http"})
BY_SSE, BY_STDIO = "sse", "stdio"

# Programs that run another one, and their subcommands.
RUNNERS = frozenset({"python", "node", "npx", "npm", "pnpm", "bun", "bunx", "deno", "uv", "uvx"})
VERBS = frozenset({"run", "exec", "tool", "dlx", "x"})
# Flags whose value is code, not the name of a program.
CODE_FLAGS = ("-c", "-e")

MAX_SHOWN_CHARS = 80


class ConnectContext:
    """The arguments of `connect` that configure the transport."""

    def __init__(
        self,
        *,
        headers: GivenHeaders | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        name: str | None = None,
        auth: "Auth | None" = None,
        on_stderr: OnStderr | None = None,
        sandbox: GivenSandbox = None,
    ) -> None:
        self.on_stderr = on_stderr
        self.sandbox: Sandbox | None = sandbox_of(sandbox)
        self.headers: list[tuple[str, str]] = checked_headers(headers)
        self.auth: Auth | None = auth
        self.env = env
        self.cwd: str | None = os.fspath(cwd) if cwd is not None else None
        self.name: str = name or ""

    def refuse(self, what: str, *, headers: bool = False, child: bool = False) -> None:
        """Raise for arguments that do not apply to a kind of target: none is ignored."""
        if headers and self.headers:
            raise InvalidArgument(f"headers go with a URL, and this is {what}", argument="headers")
        if (
            headers and self.auth is not None
        ):  # R0188: a command gets credentials by its environment
            raise InvalidArgument(
                f"auth= goes with a URL, and this is {what}; use env= there", argument="auth"
            )
        if child and (self.env is not None or self.cwd is not None):
            raise InvalidArgument(f"env and cwd are for a command, and this is {what}")
        if child and self.on_stderr is not None:
            raise InvalidArgument(
                f"on_stderr goes with a command, and this is {what}", argument="on_stderr"
            )
        if child and self.sandbox is not None:
            raise InvalidArgument(
                f"a sandbox is for a command, and this is {what}", argument="sandbox"
            )

    def child(
        self,
        argv: Sequence[str],
        name: str,
        variables: Mapping[str, str] | None = None,
        files: Sequence[str] = (),
    ) -> ProcessTransport:
        """A transport for a command with these options; `env` overrides `variables`, and `files`
        are those that a sandbox shows it."""
        return ProcessTransport(
            argv,
            name=name,
            cwd=self.cwd,
            env={**(variables or {}), **(self.env or {})},
            on_stderr=self.on_stderr,
            sandbox=self.sandbox.with_reads(*files) if self.sandbox is not None else None,
        )


def transport_for(target: object, options: ConnectContext) -> ClientTransport:
    """The transport for a target. Raises `LocalProtocolError` if there is none."""
    if isinstance(target, str | os.PathLike):
        return _from_string(os.fspath(cast("str | os.PathLike[str]", target)), options)
    if isinstance(target, Mapping):
        return _from_entry(cast("Mapping[str, Any]", target), options)
    if isinstance(target, list | tuple):
        return _from_command(cast("Sequence[object]", target), options)
    if is_service(target):
        options.refuse("a server in this process", headers=True, child=True)
        return MemoryTransport(target, options.name)
    carry: object = getattr(target, "open_conversation", target)
    if callable(carry) and not isinstance(target, type):
        options.refuse("a channel", headers=True, child=True)
        return ChannelTransport(cast("Callable[..., Any]", carry), options.name)
    raise InvalidArgumentType(
        f"{type(target).__name__} cannot be connected to; {_TARGETS}", argument="target"
    )


_TARGETS = (
    "connect to a URL, a .py or .js file, a list (a command), a Server, or a dict (one entry)"
)


# ---------------------------------------------------------------- a string


def _from_string(text: str, options: ConnectContext) -> ClientTransport:
    scheme, colon, _ = text.partition("://")
    if colon and scheme.lower() in ("http", "https"):
        return _from_url(text, options)
    file, server = split_name(text)
    ending = os.path.splitext(file)[1].lower()
    if ending in PROGRAMS and os.path.isfile(file):
        options.refuse("a file", headers=True)
        path = os.path.abspath(file)
        name = options.name or server or os.path.splitext(os.path.basename(path))[0]
        if ending == PYTHON:
            folders = [shown_with(path), *package_folders()]
            return options.child(python_command(path, server), name, search_path(), folders)
        if server:
            message = f"{text[:MAX_SHOWN_CHARS]!r}: only a .py file has servers with names"
            raise InvalidArgument(f"{message}; name the file alone", argument="target")
        return options.child([PROGRAMS[ending], path], name, files=[shown_with(path)])
    raise InvalidArgument(
        _explain_target(file if ending in PROGRAMS else text, ending), argument="target"
    )


def _explain_target(text: str, ending: str) -> str:
    # A query string may contain a key.
    text = text.partition("?")[0] if "://" in text else text
    shown = repr(text[:MAX_SHOWN_CHARS])
    if "://" in text:
        return f"{shown} is not an HTTP URL; write https://… or http://…"
    if ending in PROGRAMS and len(text.split()) == 1:
        folder = os.path.dirname(os.path.abspath(text))
        return f"there is no file {shown}; look into {folder}"
    if ending in (".json", ".toml"):
        return (
            f"{shown} is a configuration, which may name several servers: use "
            f"Host.from_config({shown})"
        )
    if os.path.isdir(text):
        return f"{shown} is a folder; name the file in it"
    if os.path.exists(text):
        return f"{shown} is not a .py or .js file; if it is a program, write connect([{shown}])"
    words = _split_words(text)
    if len(words) != 1:
        listed = ", ".join(repr(word) for word in words or ["uvx", "mcp-server-git"])
        return (
            f"{shown} is neither a URL nor a .py or .js file, and a string never becomes a "
            f"command; a command is a list: connect([{listed}])"
        )
    if os.path.isfile(file := f"{words[0].replace('.', os.sep)}{PYTHON}"):
        return f"{shown} is neither a URL nor a .py or .js file; did you mean {file!r}?"
    return (
        f"{shown} is neither a URL nor a .py or .js file; for a URL write "
        f"{suggested_url(words[0])}, for a command a list: connect([{words[0]!r}])"
    )


def suggested_url(text: str) -> str:
    """The URL that was meant by a target without a scheme: http on this machine, else https."""
    try:
        host = urlsplit(f"//{text}").hostname or ""
    except ValueError:
        host = ""
    return f"{'http' if is_loopback_host(host) else 'https'}://{text}"


def _split_words(text: str) -> list[str]:
    """Split a command line for the error message that refuses it, never to run it."""
    try:
        return shlex.split(text[:MAX_SHOWN_CHARS])
    except ValueError:
        return text[:MAX_SHOWN_CHARS].split()


def _from_url(url: str, options: ConnectContext, *, legacy_sse: bool = False) -> ClientTransport:
    options.refuse("a URL", child=True)
    from colonnade.transport.http_client.connect import RequestTarget

    RequestTarget(url, {})  # raises for an invalid URL
    transport = LegacySseTransport if legacy_sse else HttpTransport
    return transport(
        url,
        options.headers,
        name=options.name,
        credentials_factory=_credentials_factory(url, options),
    )


def _credentials_factory(url: str, options: ConnectContext) -> CredentialsFactory | None:
    """The factory of the credentials for this server; None without `auth=`."""
    if options.auth is None:
        return None
    if any(name.lower() == "authorization" for name, _ in options.headers):
        raise InvalidArgument(
            "pass either auth= or an Authorization header, and not both", argument="auth"
        )
    from colonnade.auth.urls import require_https
    from colonnade.client.auth import credentials_factory

    try:
        require_https(url, "the server's URL")  # a token must not be sent in plain text
    except AuthError as error:
        raise InvalidArgument(f"auth= needs https: {error}", argument="auth") from None
    return credentials_factory(options.auth, url)


# ---------------------------------------------------------------- a list


def _from_command(command: Sequence[object], options: ConnectContext) -> ClientTransport:
    options.refuse("a command", headers=True)
    if not command or not all(isinstance(word, str | os.PathLike) for word in command):
        raise InvalidArgumentType(
            "a command is a list of strings, such as "
            "['uvx', 'mcp-server-git', '--repository', '.']",
            argument="target",
        )
    argv = [os.fspath(cast("str | os.PathLike[str]", word)) for word in command]
    if not argv[0]:
        raise InvalidArgument(
            "the first word of a command is the program, and this is empty", argument="target"
        )
    name = options.name or command_name(argv)
    return options.child(argv, name)


def command_name(argv: Sequence[str]) -> str:
    """The name of a command in errors: the program, or the one that a runner like `uvx` runs."""
    program = _stem(argv[0])
    if program.rstrip("0123456789.") in RUNNERS:
        given = takewhile(lambda word: word not in CODE_FLAGS, argv[1:])
        words = (word for word in given if not word.startswith("-") and word not in VERBS)
        return _stem(next(words, "")) or program
    return program


def _stem(word: str) -> str:
    """The last part of a path or package, without extension or version."""
    last = os.path.basename(word.rstrip("/"))
    stem, ending = os.path.splitext(last)
    return (stem if ending in (*PROGRAMS, ".exe") else last).partition("@")[0]


# ---------------------------------------------------------------- one entry


def _from_entry(entry: Mapping[str, Any], options: ConnectContext) -> ClientTransport:
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
        headers = checked_headers(_string_map(entry, "headers"))
        everything = [*headers, *options.headers]
        merged = ConnectContext(headers=everything, name=options.name, auth=options.auth)
        options.refuse("a URL", child=True)
        return _from_url(url, merged, legacy_sse=kind == BY_SSE)
    if kind is not None and kind != BY_STDIO:
        raise InvalidArgument(
            f"an entry with a command has the type stdio, not {kind!r}", argument="target"
        )
    args: object = entry.get("args") or []
    if not isinstance(command, str) or not isinstance(args, list):
        raise InvalidArgumentType(
            "command is one program, and args is a list of its arguments", argument="target"
        )
    env = {**(_string_map(entry, "env") or {}), **(options.env or {})}
    cwd = options.cwd or entry.get("cwd")
    merged = ConnectContext(
        env=env,
        cwd=cwd,
        name=options.name,
        on_stderr=options.on_stderr,
        sandbox=options.sandbox or entry.get("sandbox"),
    )
    options.refuse("a command", headers=True)
    return _from_command([command, *cast("list[object]", args)], merged)


def _string_map(entry: Mapping[str, Any], name: str) -> dict[str, str] | None:
    found: object = entry.get(name)
    if found is None:
        return None
    if not isinstance(found, Mapping):
        raise InvalidArgumentType(
            f"{name} of an entry is an object with string values", argument="target"
        )
    texts = cast("Mapping[object, object]", found)
    if not all(isinstance(key, str) and isinstance(value, str) for key, value in texts.items()):
        raise InvalidArgumentType(
            f"{name} of an entry has a value that is not a string", argument="target"
        )
    return cast("dict[str, str]", dict(texts))


# ---------------------------------------------------------------- headers


def checked_headers(given: GivenHeaders | None) -> list[tuple[str, str]]:
    """The headers as pairs. Raises for invalid ones and for those that the client sets itself."""
    if given is None:
        return []
    pairs = list(cast("Mapping[str, str]", given).items() if isinstance(given, Mapping) else given)
    for name, value in pairs:
        low = name.lower()
        if low in RESERVED_HEADERS or low.startswith("mcp-param-"):
            raise InvalidArgument(
                f"{name} is set by the client itself; leave it out", argument="headers"
            )
        if not name or not name.isascii() or not name.isprintable() or set(name) & set(' :"'):
            raise InvalidArgument(
                f"{name[:MAX_SHOWN_CHARS]!r} is not a header name", argument="headers"
            )
        if not value.isprintable() or not value.isascii():
            raise InvalidArgument(
                f"the value of {name} has characters that a header cannot have", argument="headers"
            )
    return pairs


# Servers and proxies close idle connections after five minutes or more.
PING_S = 240.0
# `clientInfo` must have a version; this is the one of a program that gave none.
NO_VERSION = "0"


_ASYNC_WITH = (
    "write async with connect(...) as client, or for blocking calls from colonnade.sync import "
    "connect"
)


class PendingClient:
    """A client that is not open yet: `await` it, or use `async with`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._opened = False

    def __await__(self) -> Generator[Any, None, Client]:
        return self._open().__await__()

    async def __aenter__(self) -> Client:
        return await self._open()

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    if not TYPE_CHECKING:  # a type checker would accept what is refused here

        def __enter__(self) -> None:
            raise InvalidArgumentType(f"connect() does not support 'with': {_ASYNC_WITH}")

        def __exit__(self, *_: object) -> None: ...

        def __getattr__(self, name: str) -> object:
            hint = f"; the client is not open yet: {_ASYNC_WITH}" if hasattr(Client, name) else ""
            words = f"{type(self).__name__!r} object has no attribute {name!r}{hint}"
            raise AttributeError(words, name=name, obj=self)

    async def _open(self) -> Client:
        if self._opened:
            raise LocalProtocolError("this connection was already used; call connect again")
        running_loop()
        self._opened = True
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
    sandbox: GivenSandbox = None,
    name: str | None = None,
    version: str | None = None,
    title: str | None = None,
    server_name: str | None = None,
    sample_tools: bool = False,
    sample_context: bool = False,
    extensions: Mapping[str, Mapping[str, Any]] | None = None,
    tasks: bool = True,
    telemetry: "bool | Telemetry" = False,
    ping_s: float | None = PING_S,
    max_list_bytes: int = MAX_LIST_BYTES,
    max_list_items: int = MAX_LIST_ITEMS,
) -> PendingClient:
    """Connect to a server, in any revision and over any transport.

    The target is a URL, a `.py` or `.js` file, a list (a command), a `Server`, or a dict (one
    resolved entry of a configuration). A Python file is served as `colonnade run` serves it,
    whether or not it calls `run()`; `server.py:name` is one of its servers. A string never becomes
    a command line.

    `headers` are for a URL, and so is `auth`, for a server that requires authentication: `Login()`
    for a user, `ClientCredentials(…)` for a program. `env` (added to a few variables) and `cwd` are
    for a command; `sandbox` is what a command may do on this machine: "strict", "workspace" or a
    `Sandbox`, and without one all that this process may. `server_name` is the server's name in
    errors; `on_stderr` is called with each line that a command writes to its standard error, of
    which errors quote the last. The client advertises the capabilities that it has callbacks for,
    and no others. `revision` pins or limits the protocol revision. `name`, `version` and `title`
    are the `clientInfo`, which servers log and may show; by default the name and version of this
    library. Every call has the timeout `timeout_s`, restarted by progress. `sample_tools` and
    `sample_context` say that `on_sample` supports tools and context. `extensions` are those that
    the client declares, each with its settings: `{"com.example/search": {}}`. With `tasks=False` a
    call never becomes a task, in revisions where the server decides that. `telemetry=True` records
    spans and metrics with OpenTelemetry, if its SDK is configured. In revisions with a session, a
    server that has sent nothing for `ping_s` is pinged. A list of the server (of tools, say) with
    more than `max_list_bytes` or `max_list_items` is an error.

    Raises `LocalProtocolError` at once for an invalid target; when awaited `CannotConnect`,
    `LoginRequired`, `TimedOut`, or `RemoteProtocolError` if there is no common revision.
    """
    if auth is not None and not hasattr(auth, "grant"):
        raise InvalidArgumentType(
            "auth= takes Login(), ClientCredentials(…), EnterpriseLogin(…) or WorkloadIdentity(…); "
            "a token of your own goes into headers={'Authorization': 'Bearer …'}",
            argument="auth",
        )
    for argument, seconds in (("timeout_s", timeout_s), ("ping_s", ping_s)):
        if seconds is not None and not (isfinite(seconds) and seconds > 0):
            raise InvalidArgument(f"{argument} is a number of seconds above 0", argument=argument)
    for argument, most in (("max_list_bytes", max_list_bytes), ("max_list_items", max_list_items)):
        if most < 1:
            raise InvalidArgument(f"{argument} is a whole number above 0", argument=argument)
    options = ConnectContext(
        headers=headers,
        env=env,
        cwd=cwd,
        name=server_name,
        auth=auth,
        on_stderr=on_stderr,
        sandbox=sandbox,
    )
    return PendingClient(
        Client(
            transport_for(target, options),
            InputCallbacks(
                on_elicit=on_elicit,
                on_sample=on_sample,
                roots=roots,
                sample_tools=sample_tools,
                sample_context=sample_context,
            ),
            info=client_info(name, version, title),
            accepts=accepted_revisions(revision),
            timeout_s=timeout_s,
            ping_s=ping_s,
            max_list_bytes=max_list_bytes,
            max_list_items=max_list_items,
            extensions=extensions,
            tasks=tasks,
            telemetry=telemetry,
            on_log=on_log,
            on_progress=on_progress,
        )
    )


def create_client(transport: ClientTransport, answers: InputCallbacks, **options: Any) -> Client:
    """A client with the `clientInfo` of this library."""
    return Client(transport, answers, info=library_info(), **options)


def client_info(name: str | None, version: str | None, title: str | None) -> t.Implementation:
    """The `clientInfo` of a program; that of this library if no name is given."""
    if name is None:
        if version is not None or title is not None:
            raise InvalidArgument(
                "version= and title= need name=, the name of the client", argument="name"
            )
        return library_info()
    if not name:
        raise InvalidArgument(
            "name= is the name of the client, and must not be empty", argument="name"
        )
    return t.Implementation(name=name, version=version or NO_VERSION, title=title)


@cache
def library_info() -> t.Implementation:
    """The name and version of this library."""
    return t.Implementation(name="colonnade", version=__version__)


def accepted_revisions(revision: str | Iterable[str] | None) -> Revisions:
    """The revisions of `revision=`: all, one, or some."""
    if revision is None:
        return EVERY
    dates = [revision] if isinstance(revision, str) else list(revision)
    try:
        return Revisions.of(*dates)
    except ValueError as error:
        raise InvalidArgument(f"revision=: {error}", argument="revision") from None
