"""`colonnade gateway`: the servers of a configuration file as one server, over HTTP or on stdio.

Rules: without `[gateway.auth]` only this machine is served. Standard output belongs to the client
(`--stdio`), or has the one line with the URL. A file that needs trust is shown before it is used.
"""

import contextlib
import logging
import os
import shlex
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from colonnade.cli.commands.serve import (
    DEBUG,
    LOG_JSON,
    LOG_LEVEL,
    ServeSettings,
    configure_logging,
    listener_options,
    serve_error,
)
from colonnade.cli.errors import INTERRUPTED, LOG_FORMAT, UNREACHABLE, CliError, Reporter
from colonnade.cli.options import Action, ConnectionOptions, complete_file
from colonnade.errors import CannotConnect, LocalProtocolError, Refused
from colonnade.text import clean, closest
from colonnade.transport.process.sandbox import sandbox_of

if TYPE_CHECKING:  # loaded when the command runs
    from colonnade.auth.server.protection import Protection
    from colonnade.cli.terminal import Terminal
    from colonnade.gateway.gateway import Gateway
    from colonnade.host.config.settings import Config, GatewaySettings, ServerEntry
    from colonnade.ports import Store
    from colonnade.transport.http_server.runner import HttpRunner
    from colonnade.transport.process.sandbox import Sandbox

# Of a key in `[gateway]`.
KEY_BYTES = 32


@click.command(
    epilog="""\b
Examples:
  colonnade gateway claude_desktop_config.json --port 8000
  colonnade gateway colonnade.toml --stdio        the same for a client that starts it
  colonnade gateway colonnade.toml --stdio --view dev
  colonnade gateway colonnade.toml --store sqlite:gateway.db     with keys in [gateway]

COLONNADE_HOST, COLONNADE_PORT, COLONNADE_PATH, COLONNADE_ALLOW_HOST, COLONNADE_ALLOW_ORIGIN,
COLONNADE_TRUSTED_PROXY, COLONNADE_ACCESS_LOG, COLONNADE_LOG_LEVEL and COLONNADE_LOG_JSON set these
options.
"""
)
@click.argument("file", metavar="CONFIG", shell_complete=complete_file)
@click.option("--stdio", is_flag=True, help="Serve one client on stdin and stdout.")
@listener_options("gateway", "Address to listen on; other machines need [gateway.auth].")
@click.option("--view", metavar="NAME", default="", help="Serve this view of [gateway.views] only.")
@click.option(
    "--store",
    metavar="URL",
    help="Where state is kept: memory (default), sqlite:PATH, or redis://HOST.",
)
@click.option(
    "--sandbox",
    type=click.Choice(["strict", "workspace"]),
    help="Sandbox of each command whose server has no sandbox setting (Linux, bubblewrap).",
)
@click.option(
    "--allow-command",
    "allowed",
    multiple=True,
    metavar="SERVER",
    help="Start this server though its command is dangerous. May be repeated.",
)
@DEBUG
@LOG_LEVEL
@LOG_JSON
def gateway(
    file: str,
    stdio: bool,
    view: str,
    store: str | None,
    sandbox: str | None,
    allowed: tuple[str, ...],
    debug: bool,
    **options: Any,
) -> Action:
    """Serve all servers of a configuration file as one server.

    CONFIG is a file of Claude Desktop, Claude Code, VS Code, Cursor or Codex, or colonnade.toml,
    whose table [gateway] has further settings. Servers are started when they are needed. Clients
    and servers may be of any revision.
    """
    given = {name: value for name, value in options.items() if value}
    given |= {"port": 0} if options["port"] == 0 else {}
    chosen = GatewayOptions(file, view, store, sandbox, allowed, stdio, debug)
    return partial(serve_gateway, chosen, given)


class GatewayOptions(NamedTuple):
    """The options of a gateway that do not concern its listener."""

    file: str
    view: str = ""
    store: str | None = None
    sandbox: str | None = None
    allowed: tuple[str, ...] = ()
    stdio: bool = False
    debug: bool = False


def serve_gateway(options: GatewayOptions, given: dict[str, Any]) -> int:
    """Serve until SIGTERM, SIGHUP, Ctrl-C or the end of stdin; return the exit code."""
    from colonnade.transport.http_server.settings import LOG_FORMAT as HTTP_LOG_FORMAT

    debug, stdio = options.debug, options.stdio
    reporter = Reporter(debug=debug, log_json=given.get("log_json", False))
    try:
        if stdio and (wrong := [name for name in ("host", "port", "path") if name in given]):
            raise CliError(f"--stdio has no port, so --{wrong[0]} has no meaning with it")
        try:
            settings = ServeSettings(given)
        except LocalProtocolError as error:
            raise CliError(str(error)) from None
        reporter = Reporter(
            debug=debug,
            log_json=settings.log_json,
            log_level=settings.log_level,
            access_log=settings.access_log,
        )
        configure_logging(reporter, LOG_FORMAT if stdio else HTTP_LOG_FORMAT)
        if settings.log_level is None and not debug:
            _log_processes(LOG_FORMAT if stdio else HTTP_LOG_FORMAT)
        made = make_gateway(options)
        if stdio:
            return _serve_stdio(made)
        return _serve_http(made, settings)
    except CliError as error:
        reporter.error(error)
        return error.code
    except CannotConnect as error:  # its store cannot be reached
        hint = f"{error.hint}: store of [gateway], or --store"
        reporter.error(CliError(error.summary, UNREACHABLE, hint=hint))
        return UNREACHABLE


def _log_processes(log_format: str) -> None:
    """R1336: which commands are started is logged without being asked for."""
    logger = logging.getLogger("colonnade.processes")
    logger.setLevel(logging.INFO)
    if not logging.getLogger().handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(log_format))
        logger.addHandler(handler)
        logger.propagate = False


# ---------------------------------------------------------------- the gateway


def make_gateway(options: GatewayOptions) -> "Gateway":
    """The gateway of a file. Raises `CliError`. Call it outside of an event loop: it may prompt the
    user."""
    from colonnade.cli.connections import load_config_for, login_for, show_problems
    from colonnade.cli.terminal import Terminal
    from colonnade.gateway.gateway import Gateway
    from colonnade.host.config.settings import GatewaySettings
    from colonnade.host.host import Host

    terminal, file, view = Terminal(), options.file, options.view
    config = load_config_for(ConnectionOptions(file), terminal)
    table = config.gateway or GatewaySettings()
    config = authorize_commands(config, options, terminal)
    config = with_sandbox(config, sandbox_of(options.sandbox) or table.sandbox)
    require_bubblewrap(config)
    show_problems(config.problems, terminal)
    configured, keys = _look_up(file, table)
    place = str(table.store_place or f"{file}: [gateway]: store")
    opened = (
        open_store(options.store) if options.store is not None else open_store(configured, place)
    )
    if not options.stdio:  # a client on stdio has one process, which has a key of its own
        require_keys(file, opened, keys)
    try:
        host = Host(config, auth=lambda url: login_for(url, terminal, ask=False))
        optional: dict[str, Any] = {
            "name": table.name,
            "name_limit": table.name_limit,
            "page_size": table.page_size,
            "wait_s": table.wait_s,
        }
        made = Gateway(
            host,
            instructions=table.instructions,
            auth=_protection(table),
            store=opened,
            keys=keys,
            views=table.views,
            debug=options.debug,
            **{key: value for key, value in optional.items() if value is not None},
        )
    except LocalProtocolError as error:
        raise CliError(f"{file}: {error}") from None
    if not view:
        return made
    if view not in made.views:
        known = ", ".join(made.views) or "none"
        raise CliError(f"there is no view {view} in {file}", hint=f"views are {known}")
    chosen = made.views[view]
    chosen.closes(host)
    return chosen


def require_keys(file: str, store: "Store | None", keys: list[bytes]) -> None:
    """Raise `CliError` for a store of several processes without keys that all of them have."""
    if store is None or not store.is_shared or keys:
        return
    raise CliError(
        f"{file}: a store that several processes can share needs keys, which are the same in all "
        "of them and encrypt what clients carry",
        hint='add keys = ["${env:GATEWAY_KEY}"] to [gateway]; openssl rand -base64 32 makes a key',
    )


def _look_up(file: str, table: "GatewaySettings") -> tuple[str | None, list[bytes]]:
    """The store and the keys of a table. Raises `CliError`."""
    import asyncio

    if table.resolve is None:
        return None, []
    try:
        found = asyncio.run(table.resolve())
    except Refused as error:
        raise CliError(f"{file}: [gateway]: {error}") from None
    keys = [decode_key(file, number, text) for number, text in enumerate(found.keys, 1)]
    return found.store, keys


def decode_key(file: str, number: int, text: str) -> bytes:
    """A key of 32 bytes, in base64 or as hexadecimal digits. Raises `CliError`."""
    import base64
    import binascii

    text = text.strip()
    with contextlib.suppress(ValueError, binascii.Error):
        plain = text.replace("-", "+").replace("_", "/").rstrip("=")
        key = (
            bytes.fromhex(text)
            if len(text) == 2 * KEY_BYTES
            else base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
        )
        if len(key) == KEY_BYTES:
            return key
    raise CliError(
        f"{file}: [gateway]: key {number} has not {KEY_BYTES} bytes in base64 or in hexadecimal "
        "digits",
        hint="openssl rand -base64 32 makes one",
    )


def with_sandbox(config: "Config", sandbox: "Sandbox | None") -> "Config":
    """The servers with this sandbox, where they say nothing about one."""
    from msgspec.structs import replace

    if sandbox is None:
        return config
    entries = {
        key: replace(entry, settings=replace(entry.settings, sandbox=sandbox))
        if entry.settings.sandbox is None
        else entry
        for key, entry in config.entries.items()
    }
    return replace(config, entries=entries)


def require_bubblewrap(config: "Config") -> None:
    """Raise `CliError` if a command is to have a sandbox and none can be made here: otherwise that
    would be known only once a client lists its tools."""
    import asyncio

    from colonnade.host.servers.supervisor import url_of
    from colonnade.transport.process.sandbox import find_bubblewrap

    for key, entry in config.entries.items():
        settings = entry.settings
        if settings.enabled and settings.sandbox and not url_of(entry.shown):
            try:
                asyncio.run(find_bubblewrap(key))
            except CannotConnect as error:
                raise CliError(clean(error.summary), UNREACHABLE, hint=error.hint) from None
            return


def authorize_commands(config: "Config", options: GatewayOptions, terminal: "Terminal") -> "Config":
    """R1337: the servers without those whose command is dangerous and was not authorized: by an
    option, or by an answer, which is kept until the command changes. Raises `CliError` if none is
    left."""
    from msgspec.structs import replace

    from colonnade.host.config.settings import HostProblem

    _check_allowed(config, options)
    refused = {
        key: entry
        for key, entry in config.entries.items()
        if entry.dangers
        and entry.settings.enabled
        and key not in options.allowed
        and not _is_authorized(entry, terminal)
    }
    if not refused:
        return config
    problems = [
        HostProblem(
            key,
            f"server {key!r} is not served: its command {', '.join(entry.dangers)}",
            entry.place,
            hint=f"review it, then use --allow-command {shlex.quote(key)}",
        )
        for key, entry in refused.items()
    ]
    entries = {key: entry for key, entry in config.entries.items() if key not in refused}
    if not any(entry.settings.enabled for entry in entries.values()):
        raise CliError("; ".join(clean(str(one)) for one in problems))
    return replace(config, entries=entries, problems=(*config.problems, *problems))


def _check_allowed(config: "Config", options: GatewayOptions) -> None:
    """Raise `CliError` for an `--allow-command` of a server that there is not: what it should have
    allowed would be left out, or another server be meant."""
    for key in options.allowed:
        if key not in config.entries:
            near = closest(key, config.entries)
            known = ", ".join(map(clean, config.entries)) or "none"
            hint = f"did you mean {clean(near)}?" if near else f"servers are {known}"
            message = f"--allow-command: there is no server {clean(key)} in {options.file}"
            raise CliError(message, hint=hint)


def _is_authorized(entry: "ServerEntry", terminal: "Terminal") -> bool:
    """Whether a user has authorized a command, now or before."""
    from colonnade.host.config.trust import recall, remember

    file = os.path.realpath(entry.place.file) if entry.place is not None else ""
    name = f"gateway {file} {entry.key}"
    if recall(name) == entry.command_digest:
        return True
    if not terminal.can_ask:
        return False
    terminal.note(f"server {clean(entry.key)} starts: {entry.shown}\n")
    terminal.note("".join(f"  ! {danger}\n" for danger in entry.dangers))
    if not terminal.confirm(
        "Every client of the gateway can use it. Start it when it is needed? [y/N] "
    ):
        return False
    remember(name, entry.command_digest)
    return True


def _protection(table: "GatewaySettings") -> "Protection | None":
    if table.auth is None or table.url is None:
        return None
    from colonnade.auth.server.jwt import Jwt
    from colonnade.auth.server.protection import Protection

    return Protection(table.url, Jwt(table.auth.issuer), scopes=table.auth.scopes)


def open_store(text: str | None, place: str = "--store") -> "Store | None":
    """The store of an option or a setting, at a place: `memory`, `sqlite:PATH` or the URL of a
    Redis server. Raises `CliError`, without the text, which may have a password in it."""
    if text is None or text == "memory":
        return None
    kind, _, rest = text.partition(":")
    try:
        if kind == "sqlite" and rest:
            from colonnade.store.sqlite import SqliteStore

            return SqliteStore(rest.removeprefix("//"))
        if kind.startswith("redis"):
            from colonnade.store.redis import RedisStore

            return RedisStore(text)
    except (LocalProtocolError, ImportError) as error:
        raise CliError(f"{place}: {error}") from None
    raise CliError(
        f"{place}: expected memory, sqlite:PATH or redis://HOST",
        hint="for example sqlite:gateway.db",
    )


# ---------------------------------------------------------------- transports


def _serve_stdio(made: "Gateway") -> int:
    from colonnade.transport.stdio import redirect_standard_streams, run_stdio

    with contextlib.ExitStack() as taken:
        try:
            streams = taken.enter_context(redirect_standard_streams())
        except OSError:
            raise CliError("stdin or stdout is closed, and an MCP server needs both") from None
        interrupted = run_stdio(made, streams=streams)
    return INTERRUPTED if interrupted else 0


def describe_servers(made: "Gateway", url: str) -> str:
    """What is behind the URL of a gateway, for the person who started it."""
    servers = made.host.servers
    many = "1 server" if len(servers) == 1 else f"{len(servers)} servers"
    lines = [f"{many}, started when needed: {', '.join(servers)}"]
    lines += [f"{url}/{name}: {', '.join(one.host.servers)}" for name, one in made.views.items()]
    lines.append("Enter the URL in a client, or stop with Ctrl-C.")
    return "\n".join(lines)


def _serve_http(made: "Gateway", settings: ServeSettings) -> int:
    from colonnade.auth.ssrf import is_loopback_host
    from colonnade.cli.terminal import Terminal
    from colonnade.transport.http_server.runner import announce, run

    if not made.is_protected and not is_loopback_host(settings.host):
        raise CliError(
            f"{settings.host} is reachable from other machines, and this gateway has no "
            "authentication: its servers would be open to all of them",
            hint="add url and [gateway.auth] to colonnade.toml, or use --host 127.0.0.1",
        )

    def started(site: "HttpRunner") -> None:
        announce(site)
        terminal = Terminal()
        if terminal.is_watched:
            terminal.note(describe_servers(made, site.url))

    try:
        interrupted = run(
            made.asgi(**settings.app, limits=settings.limits),
            settings.host,
            settings.port,
            hosts=settings.hosts,
            origins=settings.origins,
            run_limits=settings.run_limits,
            started=started,
            **settings.tls,
        )
    except LocalProtocolError as error:
        raise serve_error(error, settings) from None
    return INTERRUPTED if interrupted else 0
