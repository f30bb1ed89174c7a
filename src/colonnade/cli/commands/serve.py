"""`colonnade run` and `colonnade serve`: load a server from a file, and serve it.

The serving itself is the same as in `server.run()`: `run_stdio`, and `run` of the HTTP runner.

Rules: standard output belongs to the client before any code of the file runs (`run`), or has the
one line with the URL (`serve`). An error is reported once, in one message.
"""

import contextlib
import logging
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

import click

from colonnade.cli.errors import (
    FAILED,
    INTERRUPTED,
    LOG_FORMAT,
    UNREACHABLE,
    USAGE,
    CliError,
    Reporter,
    describe_exception,
    is_user_error,
    user_traceback,
)
from colonnade.cli.loader import (
    WORKER_ENV,
    load,
    load_or_serve,
    own_command,
    parse_server_file,
)
from colonnade.cli.options import Action, complete_file
from colonnade.errors import LocalProtocolError

if TYPE_CHECKING:  # only one of the two commands needs them
    from colonnade.cli.loader import Reloader, ServerFile
    from colonnade.cli.worker_processes import InheritedWorker
    from colonnade.server.server import Server
    from colonnade.transport.http_server.app import HttpApp
    from colonnade.transport.http_server.connection import RunLimits
    from colonnade.transport.http_server.request import Limits
    from colonnade.transport.http_server.runner import HttpRunner

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])

# The options of settings whose name differs, and the settings of the application, not of the port.
_OPTIONS: Final = {
    "hosts": "--allow-host",
    "origins": "--allow-origin",
    "trusted_proxies": "--trusted-proxy",
}
_APP_SETTINGS: Final = ("path", "stateless", "access_log", "trusted_proxies")
LOG_VARIABLES: Final = ("COLONNADE_LOG_LEVEL", "COLONNADE_LOG_JSON")


# ---------------------------------------------------------------- click options


def _parse(parse: Callable[[str], T], value: str) -> T:
    """Parse the value of an option. Raises `CliError`."""
    try:
        return parse(value)
    except LocalProtocolError as error:
        raise CliError(str(error)) from None


def parse_port(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    """A port. Raises `CliError`."""
    if value is None:
        return None
    from colonnade.transport.http_server.settings import read_port

    return _parse(read_port, value)


def _level(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    from colonnade.transport.http_server.settings import read_level

    return _parse(read_level, value)


def parse_count(_: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """A number of processes or tasks. Raises `CliError`."""
    if value is None:
        return None
    from colonnade.transport.http_server.settings import read_count

    try:
        return read_count(value)
    except LocalProtocolError as error:
        raise CliError(f"{parameter.opts[0]}: {error}") from None


TARGET: Final = click.argument("target", metavar="TARGET", shell_complete=complete_file)
DEBUG: Final = click.option(
    "--debug", is_flag=True, help="Send error details to clients; log debug messages."
)
LOG_JSON: Final = click.option("--log-json", is_flag=True, help="Log JSON, one object per line.")
OTEL: Final = click.option(
    "--otel",
    is_flag=True,
    help="Export traces and metrics with OpenTelemetry, as the OTEL_… variables say.",
)
METRICS: Final = click.option(
    "--metrics",
    metavar="ADDRESS",
    envvar="COLONNADE_METRICS",
    help="Serve metrics for Prometheus on an address of their own, such as 127.0.0.1:9464.",
)
LOG_LEVEL: Final = click.option(
    "--log-level",
    metavar="LEVEL",
    callback=_level,
    help="Lowest level to log: debug, info, warning (default), error or critical.",
)


def listener_options(served: str, host: str) -> Callable[[Command], Command]:
    """The options of a command that listens on a port. `host` is the help of `--host`."""
    options = (
        click.option("--host", help=host),
        click.option(
            "--port",
            metavar="NUMBER",
            callback=parse_port,
            help="Port to listen on; 0 for any free port.  [default: 8000]",
        ),
        click.option("--path", help="Path of the MCP endpoint.  [default: /mcp]"),
        click.option(
            "--allow-host",
            "hosts",
            multiple=True,
            metavar="NAME",
            help="Allowed Host header; required unless --host is a loopback address. May be "
            "repeated.",
        ),
        click.option(
            "--allow-origin",
            "origins",
            multiple=True,
            metavar="URL",
            help=f"Origin whose web pages may use the {served} (CORS). May be repeated.",
        ),
        click.option(
            "--trusted-proxy",
            "trusted_proxies",
            multiple=True,
            metavar="NETWORK",
            help="Proxy server in front, such as 10.0.0.0/8: its X-Forwarded-For names the client. "
            "May be repeated.",
        ),
        click.option("--access-log", is_flag=True, help="Log every request."),
    )

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


@click.command(
    epilog="""\b
Examples:
  colonnade run server.py              the server in this file
  colonnade run server.py:weather      the server named weather in this file
  colonnade run tools.server           the server in this module, found as python -m finds it

COLONNADE_LOG_LEVEL and COLONNADE_LOG_JSON set the log options.
"""
)
@TARGET
@OTEL
@METRICS
@DEBUG
@LOG_LEVEL
@LOG_JSON
def run(
    target: str,
    otel: bool,
    metrics: str | None,
    debug: bool,
    log_json: bool,
    log_level: str | None,
) -> Action:
    """Serve one client on stdin and stdout, as MCP clients start servers.

    TARGET is a Python file or module that defines a colonnade.Server, with the name of the server
    if there are several: FILE[:NAME]. The default is the one named server, mcp or app, or the only
    one. What the file prints goes to stderr.
    """
    telemetry = TelemetryOptions(otel, metrics)
    return partial(
        run_target, target, debug=debug, log_json=log_json, log_level=log_level, telemetry=telemetry
    )


@click.command(
    epilog="""\b
Examples:
  colonnade serve server.py --port 8000
  colonnade serve server.py --reload --debug
  colonnade serve server.py --host 0.0.0.0 --allow-host mcp.example.com
  colonnade serve server.py:app               the application that server.asgi(around=…) returned
  colonnade serve server.py --workers 4
  colonnade serve server.py --no-task-runner  tasks are run by colonnade work server.py

Every setting has an environment variable, which an option overrides: COLONNADE_HOST,
COLONNADE_PORT, COLONNADE_PATH, COLONNADE_ALLOW_HOST, COLONNADE_ALLOW_ORIGIN, COLONNADE_STATELESS,
COLONNADE_TRUSTED_PROXY, COLONNADE_LIMIT, COLONNADE_ACCESS_LOG, COLONNADE_LOG_LEVEL,
COLONNADE_LOG_JSON, COLONNADE_METRICS, COLONNADE_WORKERS, COLONNADE_NO_TASK_RUNNER,
COLONNADE_SSL_CERTFILE, COLONNADE_SSL_KEYFILE.
"""
)
@TARGET
@listener_options("server", "Address to listen on.  [default: 127.0.0.1]")
@click.option(
    "--stateless",
    is_flag=True,
    help="Keep no sessions, so that several processes can serve one client of an older revision.",
)
@click.option(
    "--ssl-certfile",
    metavar="FILE",
    shell_complete=complete_file,
    help="Serve TLS with this certificate (PEM).",
)
@click.option(
    "--ssl-keyfile",
    metavar="FILE",
    shell_complete=complete_file,
    help="Key of the certificate, if it is in another file.",
)
@click.option(
    "--limit",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a limit, such as max_body_bytes=1048576. May be repeated.",
)
@click.option(
    "--workers",
    metavar="NUMBER",
    callback=parse_count,
    help="Serve with so many processes, which share the port and the store of the server.",
)
@click.option(
    "--no-task-runner",
    is_flag=True,
    help="Create tasks and answer requests about them, but run none: colonnade work does.",
)
@click.option(
    "--reload", is_flag=True, help="Restart when the file, or a file that it imports, changes."
)
@OTEL
@METRICS
@DEBUG
@LOG_LEVEL
@LOG_JSON
def serve(target: str, debug: bool, reload: bool, **options: Any) -> Action:
    """Serve any number of clients over HTTP.

    TARGET is a Python file or module that defines a colonnade.Server, with the name of the server
    if there are several: FILE[:NAME]. One line on stdout has the URL. SIGTERM and Ctrl-C let
    running calls finish; a second Ctrl-C does not.
    """
    given = {name: value for name, value in options.items() if value}
    given |= {"port": 0} if options["port"] == 0 else {}
    return partial(serve_target, target, given, debug=debug, reload=reload)


# ---------------------------------------------------------------- settings


class TelemetryOptions(NamedTuple):
    """The options `--otel` and `--metrics`."""

    otel: bool = False
    metrics: str | None = None

    def enable(self, server: "Server") -> None:
        """Record spans and metrics of a server, if that is asked for or an SDK is configured, as
        `opentelemetry-instrument` does. Raises `CliError`."""
        if not (self.otel or self.metrics or "opentelemetry" in sys.modules):
            return
        from colonnade.telemetry.telemetry import Telemetry, configure_sdk, is_sdk_configured

        try:
            if self.otel:
                configure_sdk(server.info.name)
            if server.telemetry is not None:
                if self.metrics:
                    raise CliError(
                        "the server has telemetry of its own",
                        hint="leave out --metrics, and write Telemetry(metrics=…) in the file",
                    )
            elif self.metrics:
                server.add_telemetry(Telemetry(metrics=self.metrics))
            elif is_sdk_configured():
                server.add_telemetry()
        except LocalProtocolError as error:
            raise CliError(str(error)) from None


NO_TELEMETRY: Final = TelemetryOptions()


class ServeSettings:
    """The settings of `serve`: an option, else the environment, else the default."""

    def __init__(self, given: dict[str, Any]) -> None:
        from colonnade.transport.http_server.settings import (
            COMMAND_SETTINGS,
            read_limits,
            with_environment,
        )

        self.given = given
        self.telemetry: TelemetryOptions = TelemetryOptions(
            given.get("otel", False), given.get("metrics")
        )
        given = {name: one for name, one in given.items() if name not in ("otel", "metrics")}
        options = with_environment(given, settings=COMMAND_SETTINGS)
        self.log_level: str | None = options.pop("log_level", None)
        self.log_json: bool = options.pop("log_json", False)
        text = options.pop("limit", ())
        limits, run_limits = read_limits(text)
        self.limits: Limits = limits
        self.run_limits: RunLimits = run_limits
        names = {word.partition("=")[0] for word in text}
        self.limited: bool = not names.isdisjoint(limits.__struct_fields__)
        self.host: str = options.get("host", "127.0.0.1")
        self.port: int = options.get("port", 8000)
        self.hosts: tuple[str, ...] = tuple(options.get("hosts", ()))
        self.origins: tuple[str, ...] = tuple(options.get("origins", ()))
        self.access_log: bool = options.get("access_log", False)
        self.workers: int | None = options.get("workers")
        self.no_task_runner: bool = options.get("no_task_runner", False)
        # Keywords of `server.asgi`, and of the runner.
        self.app: dict[str, Any] = {
            name: options[name] for name in _APP_SETTINGS if name in options
        }
        self.tls: dict[str, Any] = {
            name: options[name] for name in ("ssl_certfile", "ssl_keyfile") if name in options
        }

    def arguments(self) -> list[str]:
        """The same as command-line options, without the port, the log and the environment."""
        result: list[str] = []
        for name, value in self.given.items():
            if name in ("port", "workers", "log_level", "log_json"):
                continue
            option = _OPTIONS.get(name, f"--{name.replace('_', '-')}")
            if value is True:
                result.append(option)
            else:
                values = cast("tuple[Any, ...]", value if isinstance(value, tuple) else (value,))
                for one in values:
                    result += [option, str(one)]
        return result


def log_settings(log_json: bool, log_level: str | None) -> tuple[bool, str | None]:
    """The log options of `run`, else the environment. Raises `CliError`."""
    environ = {name: os.environ[name] for name in LOG_VARIABLES if name in os.environ}
    if not environ:
        return log_json, log_level
    # Not imported otherwise: every server that a client starts would pay for it.
    from colonnade.transport.http_server.settings import with_environment

    given = {"log_json": log_json} if log_json else {}
    given |= {"log_level": log_level} if log_level is not None else {}
    try:
        found = with_environment(given, environ)
    except LocalProtocolError as error:
        raise CliError(str(error)) from None
    return found.get("log_json", False), found.get("log_level")


class UserTracebackFormatter(logging.Formatter):
    """Formats tracebacks without the frames of Colonnade, which `--debug` shows."""

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """Format the frames of user code; all frames if there are none."""
        return user_traceback(ei[1]).rstrip("\n") or super().formatException(ei)


def configure_logging(reporter: Reporter, log_format: str) -> None:
    """Set up logging as the options say, else a default format for warnings and errors."""
    reporter.configure_logging()
    if reporter.debug:
        return
    formatter = UserTracebackFormatter(log_format)
    for handler in logging.getLogger().handlers:
        if type(handler.formatter) is logging.Formatter:  # not JSON
            handler.setFormatter(formatter)
    # What logging falls back to, so that the file can still set up logging itself.
    logging.lastResort = logging.StreamHandler()
    logging.lastResort.setLevel(logging.WARNING)
    logging.lastResort.setFormatter(formatter)


# ---------------------------------------------------------------- run


def run_target(
    text: str,
    *,
    debug: bool,
    log_json: bool,
    log_level: str | None,
    telemetry: TelemetryOptions = NO_TELEMETRY,
) -> int:
    """Serve a target on stdin and stdout; return the exit code."""
    reporter = Reporter(debug=debug, log_json=log_json)
    try:
        log_json, log_level = log_settings(log_json, log_level)
        reporter = Reporter(debug=debug, log_json=log_json, log_level=log_level)
        return _run(text, reporter, telemetry)
    except CliError as error:
        reporter.error(error)
        return error.code


def serve_target(text: str, given: dict[str, Any], *, debug: bool, reload: bool) -> int:
    """Serve a target over HTTP; return the exit code."""
    from colonnade.transport.http_server.settings import LOG_FORMAT as HTTP_LOG_FORMAT

    reporter = Reporter(debug=debug, log_json=given.get("log_json", False))
    try:
        file = parse_server_file(text)
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
        configure_logging(reporter, HTTP_LOG_FORMAT)
        if WORKER_ENV in os.environ:
            from colonnade.cli.worker_processes import inherited_worker

            with inherited_worker() as worker:
                return _serve(file, reporter, settings, worker=worker)
        if settings.workers is not None:
            if reload:
                raise CliError(
                    "--reload restarts one process, and --workers starts several",
                    hint="leave out one of them",
                )
            from colonnade.cli.worker_processes import serve_with_workers

            arguments = ["serve", *settings.arguments(), *reporter.arguments(), "--", text]
            command = [*own_command(), *arguments]
            return serve_with_workers(
                command, settings.workers, settings.host, settings.port, reporter
            )
        if not reload:
            return _serve(file, reporter, settings)
        return _serve_with_reload(text, file, reporter, settings)
    except CliError as error:
        reporter.error(error)
        return error.code


class _CommandRunner:
    """Serves on the stdin and stdout that were taken from the process, for `load_or_serve`."""

    def __init__(
        self,
        text: str,
        reporter: Reporter,
        streams: tuple[int, int],
        telemetry: TelemetryOptions = NO_TELEMETRY,
    ) -> None:
        self._telemetry = telemetry
        self._http_command = f"colonnade serve {text}"
        self._reporter = reporter
        self._streams = streams
        self.interrupted = False

    def run(self, server: "Server") -> None:
        """Serve until the end of stdin."""
        from colonnade.transport.stdio import run_stdio

        enable_debug(server, self._reporter)
        self._telemetry.enable(server)

        def serve(started: Callable[[], None]) -> bool:
            def tell(reading: int) -> None:
                started()
                self._explain(server, reading)

            return run_stdio(server, streams=self._streams, on_started=tell)

        self.interrupted = run_user_code(server, self._reporter, serve)

    async def serve(self, server: "Server") -> None:
        """Serve in an event loop that is running."""
        from colonnade.transport.stdio import serve_stdio

        enable_debug(server, self._reporter)
        self._telemetry.enable(server)
        tell = partial(self._explain, server)
        await serve_stdio(server, streams=self._streams, on_started=tell)

    def _explain(self, server: "Server", reading: int) -> None:
        from colonnade.transport.stdio import print_terminal_hint

        print_terminal_hint(server, reading, self._http_command)


def _run(text: str, reporter: Reporter, telemetry: TelemetryOptions) -> int:
    file = parse_server_file(text)
    configure_logging(reporter, LOG_FORMAT)
    from colonnade.transport.stdio import redirect_standard_streams

    with contextlib.ExitStack() as taken:
        try:
            streams = taken.enter_context(redirect_standard_streams())
        except OSError:
            raise CliError("stdin or stdout is closed, and an MCP server needs both") from None
        runner = _CommandRunner(text, reporter, streams, telemetry)
        server = load_or_serve(file, reporter, runner)
        if server is not None:
            runner.run(server)
    return INTERRUPTED if runner.interrupted else 0


# ---------------------------------------------------------------- serve


def _serve(
    file: "ServerFile",
    reporter: Reporter,
    settings: ServeSettings,
    reloader: "Reloader | None" = None,
    worker: "InheritedWorker | None" = None,
) -> int:
    loaded = load(file, reporter, apps=True)
    if reloader is not None:
        reloader.on_loaded()
    server = server_of(loaded)
    enable_debug(server, reporter)
    settings.telemetry.enable(server)
    if worker is not None:
        _check_shared(server, loaded, settings)
        server.share_key(worker.key)
    if settings.no_task_runner:
        if server.has_task_tools and not server.store.is_shared:
            raise store_error(server, "--no-task-runner")
        server.max_running_tasks = 0
    from colonnade.protocol.negotiation import name_and_version
    from colonnade.transport.http_server.runner import announce, announcement
    from colonnade.transport.http_server.runner import run as run_http

    def serve(started: Callable[[], None]) -> bool:
        def tell(site: "HttpRunner") -> None:
            started()
            if reloader is not None and reloader.changed_before:
                changed = reloader.changed_before
                reporter.info(f"{changed} changed; {name_and_version(server.info)} was restarted")
            elif worker is not None:
                worker.on_served(announcement(site), site.end)
            else:
                announce(site)
            if reloader is not None:
                reloader.on_served(site.end, site.port)

        return run_http(
            _application(loaded, file, settings),
            settings.host,
            settings.port,
            hosts=settings.hosts,
            origins=settings.origins,
            run_limits=settings.run_limits,
            bound=None if worker is None else worker.listener,
            started=tell,
            **settings.tls,
        )

    try:
        return INTERRUPTED if run_user_code(server, reporter, serve) else 0
    except LocalProtocolError as error:
        raise serve_error(error, settings) from None


def server_of(loaded: "Server | HttpApp") -> "Server":
    from colonnade.server.server import Server

    if isinstance(loaded, Server):
        return loaded
    server = loaded.service
    if not isinstance(server, Server):
        raise CliError("the application does not serve a colonnade.Server")
    return server


def _check_shared(server: "Server", loaded: "Server | HttpApp", settings: ServeSettings) -> None:
    """Refuse several processes if a client could notice that they are several."""
    from colonnade.transport.http_server.app import HttpApp

    stateless = settings.app.get("stateless", False)
    if isinstance(loaded, HttpApp):
        stateless = loaded.stateless
    if server.store.is_shared or (stateless and not server.has_task_tools):
        return
    raise store_error(server, "--workers", "" if stateless else "; or use --stateless")


def store_error(server: "Server", needed_by: str, or_else: str = "") -> CliError:
    """The state of a server is in the memory of one process, and several processes need it."""
    kind = type(server.store).__name__
    return CliError(
        f"{server.info.name} has its state in memory ({kind}), where no other process sees it, and "
        f"{needed_by} needs a store that several processes share",
        hint='give it one: Server(…, store=SqliteStore("server.db")), from colonnade.store.sqlite'
        + or_else,
        retry_on_change=True,
    )


def _application(
    loaded: "Server | HttpApp", file: "ServerFile", settings: ServeSettings
) -> "HttpApp":
    """The application to serve: that of the file, or one made for its server."""
    from colonnade.server.server import Server

    if isinstance(loaded, Server):
        return loaded.asgi(**settings.app, limits=settings.limits)
    given = [_OPTIONS.get(name, f"--{name.replace('_', '-')}") for name in settings.app]
    given += ["--limit"] if settings.limited else []
    if given:
        raise CliError(
            f"{file.name} in {file.source} is an application that has its own settings",
            hint=f"leave out {', '.join(given)}, and pass it to server.asgi(…) in the file",
        )
    return loaded


def serve_error(error: LocalProtocolError, settings: ServeSettings) -> CliError:
    """What prevents serving, with the options of the command line."""
    from colonnade.protocol.http.security import HostNamesRequired
    from colonnade.transport.http_server.runner import AddressError

    if isinstance(error, AddressError):
        return CliError(str(error), UNREACHABLE)
    if isinstance(error, HostNamesRequired):
        return CliError(
            f"{settings.host} is reachable from other machines, so the allowed Host headers must "
            "be given",
            hint="--allow-host mcp.example.com, once for each name; or use --host 127.0.0.1",
        )
    return CliError(str(error), USAGE)


def _serve_with_reload(
    text: str, file: "ServerFile", reporter: Reporter, settings: ServeSettings
) -> int:
    """Serve, and restart when a file changes; if the file cannot be loaded, wait for a change."""
    from colonnade.cli.loader import Reloader

    arguments = ["serve", "--reload", "--port", str(settings.port), *settings.arguments()]
    reloader = Reloader(text, file, reporter, [*arguments, *reporter.arguments()])
    reloader.start()
    code = 0
    try:
        code = _serve(file, reporter, settings, reloader)
    except CliError as error:
        if not error.retry_on_change:
            raise
        reloader.wait(error)
    finally:
        reloader.stop()
    if reloader.changed:
        reloader.restart()
    return code


def enable_debug(server: "Server", reporter: Reporter) -> None:
    if reporter.debug:
        server.debug = True
        reporter.enable_debug()


def run_user_code(
    server: "Server", reporter: Reporter, serve: Callable[[Callable[[], None]], bool]
) -> bool:
    """Serve; return whether Ctrl-C ended it. Raises `CliError` for an exception of user code."""
    started: list[bool] = []
    try:
        return serve(lambda: started.append(True))
    except Exception as error:
        if not is_user_error(error):
            raise
        what = "failed during shutdown" if started else "could not start"
        raise CliError(
            f"{server.info.name} {what}: {describe_exception(error)}",
            FAILED,
            traceback=reporter.traceback(error),
            retry_on_change=not started,
        ) from error
