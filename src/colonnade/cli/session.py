"""A command's session with a server: connect, run the command, close, map errors to exit codes.

Rules: every error becomes one message and one exit code, here. The connection is closed before the
command ends, however it ends. Text from a server never controls the terminal.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import msgspec

from colonnade.cli.connections import ConfiguredServers, SingleServer
from colonnade.cli.elicitation import elicitation_handler
from colonnade.cli.errors import (
    FAILED,
    LOG_FORMAT,
    TOKEN_OPTION,
    CliError,
    describe_exception,
    discard_output,
    exit_code,
    full_traceback,
)
from colonnade.cli.options import (
    ConnectionOptions,
    ResolvedTarget,
    is_configuration,
    resolve_target,
)
from colonnade.cli.terminal import Terminal
from colonnade.client.client import Client
from colonnade.client.connect import connect
from colonnade.client.request import OnLog
from colonnade.errors import AuthError, ColonnadeError
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import encode
from colonnade.text import clean, one_line

if TYPE_CHECKING:  # most commands use a single server
    from colonnade.host.config.settings import Config

# The longest error message; it may include the last lines of a server's stderr.
MAX_ERROR_CHARACTERS = 8000
JSON_INDENT = 2
# The path at which most servers have their endpoint.
DEFAULT_PATH = "/mcp"


class CommandSession(NamedTuple):
    """A connected server, or the servers of a configuration file, and the terminal."""

    servers: SingleServer | ConfiguredServers
    terminal: Terminal


ConnectedAction: TypeAlias = Callable[[CommandSession], Awaitable[int]]


def run_connected(
    options: ConnectionOptions, action: ConnectedAction, auth: Any = None, name: str = ""
) -> int:
    """Connect to the target and run an action with it; return the exit code. Raises `CliError`.

    `auth` replaces the default login. Of a configuration file, all servers are used, or the one
    that has the tool or prompt `name`.
    """
    terminal = Terminal()
    configure_logging(options.debug)
    if is_configuration(options.target):
        from colonnade.cli.connections import load_config_for

        config = load_config_for(options, terminal, name)
        return run_async(options, terminal, _run_configured(config, options, terminal, action))
    found = resolve_target(options)
    if found.may_log_in and auth is None:
        from colonnade.cli.connections import login_for

        auth = login_for(found.target, terminal)
    return run_async(options, terminal, _run_single(found, options, terminal, action, auth))


def run_async(
    options: ConnectionOptions, terminal: Terminal, work: Coroutine[Any, Any, int]
) -> int:
    """Run a coroutine to its end; return the exit code. Raises `CliError`."""
    try:
        with cli_errors(options):
            return asyncio.run(work)
    except BrokenPipeError:
        discard_output()
        return 0  # the reader of stdout has closed it
    finally:
        terminal.clear()


@contextlib.contextmanager
def cli_errors(options: ConnectionOptions) -> Generator[None, None, None]:
    """Convert every exception to a `CliError` with one message and one exit code."""
    try:
        yield
    except ColonnadeError as error:
        traceback = full_traceback(error) if options.debug else ""
        raise CliError(error_message(error), exit_code(error), traceback=traceback) from None
    except (CliError, BrokenPipeError):
        raise
    except Exception as error:
        raise CliError(
            f"this is a bug in colonnade: {clean(describe_exception(error))}",
            FAILED,
            hint="" if options.debug else "--debug shows the traceback",
            traceback=full_traceback(error) if options.debug else "",
        ) from None


async def _run_single(
    resolved: ResolvedTarget,
    options: ConnectionOptions,
    terminal: Terminal,
    action: ConnectedAction,
    auth: Any,
) -> int:
    clients: list[Client] = []

    def server_name() -> str:
        info = clients[0].server if clients else None
        return f"{one_line(info.name)} ({resolved.shown})" if info is not None else resolved.shown

    def print_stderr(line: str) -> None:
        terminal.note(f"{resolved.shown} stderr: {one_line(line)}\n")

    if options.debug and "env" in resolved.options:  # it is a process
        resolved.options["on_stderr"] = print_stderr
    connecting = connect(
        resolved.target,
        on_elicit=elicitation_handler(terminal, server_name),
        on_progress=terminal.progress,
        on_log=log_printer(terminal, server_name) if options.debug else None,
        auth=auth,
        **resolved.options,
    )
    try:
        async with connecting as client:
            clients.append(client)
            return await action(CommandSession(SingleServer(client), terminal))
    except ColonnadeError as error:
        if error.status == 404 and not error.hint:
            error.hint = _path_hint(resolved.target)
        raise


def _path_hint(url: str) -> str:
    """The URL with the default path of MCP endpoints; empty if it has that path."""
    parts = urlsplit(url)
    if parts.path.rstrip("/").endswith(DEFAULT_PATH):
        return ""
    host = parts.netloc.rpartition("@")[2]
    return f"check the path of the URL; try {parts.scheme}://{host}{DEFAULT_PATH}"


async def _run_configured(
    config: "Config", options: ConnectionOptions, terminal: Terminal, action: ConnectedAction
) -> int:
    from colonnade.cli.connections import open_configured_servers

    on_log = log_printer(terminal, lambda: "a server")
    servers = open_configured_servers(config, options, terminal, on_log)
    try:
        async with servers.host:
            return await action(CommandSession(servers, terminal))
    finally:  # all of it has been read by now
        for key, line in servers.stderr_lines() if options.debug else ():
            terminal.note(f"{one_line(key)} stderr: {one_line(line)}\n")


def log_printer(terminal: Terminal, server_name: Callable[[], str]) -> OnLog:
    """A callback that prints log notifications; `server_name` is used if there is no logger."""

    def print_log(params: t.LoggingMessageNotificationParams) -> None:
        data: Any = params.data
        text = data if isinstance(data, str) else encode(data).decode()
        logger = one_line(params.logger or server_name())
        terminal.note(f"{params.level} {logger}: {one_line(text)}\n")

    return print_log


def error_message(error: ColonnadeError) -> str:
    """What happened, and what to do about it on the command line."""
    message = clean(str(error) or type(error).__name__, lines=True)
    message = message[:MAX_ERROR_CHARACTERS].rstrip()
    if isinstance(error, AuthError) and error.status == 401 and not error.hint:
        which = "another" if error.token_sent else "a"
        return f"{message}; send {which} token: {TOKEN_OPTION}"
    return message


def show_json(value: object, terminal: Terminal) -> None:
    """Print a value as one JSON document."""
    data = msgspec.json.format(encode(value), indent=JSON_INDENT)
    terminal.write_bytes(data + b"\n")


# ---------------------------------------------------------------- logging


class _SafeFormatter(logging.Formatter):
    """Formats records without characters that control the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return clean(super().format(record), lines=True)


def configure_logging(debug: bool) -> None:
    """Log warnings; with `debug`, everything that Colonnade logs."""
    handler = logging.StreamHandler()
    handler.setFormatter(_SafeFormatter(LOG_FORMAT if debug else "colonnade: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    if debug:
        logging.getLogger("colonnade").setLevel(logging.DEBUG)
