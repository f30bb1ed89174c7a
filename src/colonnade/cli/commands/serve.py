"""What `colonnade run` and `colonnade serve` do: load a file, and serve what it offers.

The serving itself is what `server.run()` does, too: `run_stdio` and `http_run.run`.

Rules: standard output belongs to the client before a line of the file is run, or has one line of
ours. What goes wrong is said once, in a sentence; nothing else is said.
"""

import contextlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from colonnade.cli.errors import (
    FAILED,
    INTERRUPTED,
    UNREACHABLE,
    USAGE,
    Trouble,
    Voice,
    is_theirs,
    named,
)
from colonnade.cli.loader import load, load_or_serve, read
from colonnade.errors import LocalProtocolError

if TYPE_CHECKING:  # what only one of the two needs is loaded by it
    from colonnade.cli.loader import Target, Watch
    from colonnade.server.server import Server
    from colonnade.transport.http_server.app import HttpApp
    from colonnade.transport.http_server.connection import RunLimits
    from colonnade.transport.http_server.request import Limits
    from colonnade.transport.http_server.runner import HttpRunner


# How a setting is typed, and those that belong to the application rather than to the port.
_OPTIONS: Final = {"hosts": "--allow-host", "origins": "--allow-origin"}
_OF_THE_APPLICATION: Final = ("path", "stateless", "access_log")


class Address:
    """Where to serve, for whom, and how: what was given, else the environment, else the default."""

    def __init__(self, given: dict[str, Any]) -> None:
        from colonnade.transport.http_server.settings import read_limits, with_environment

        self.given = given
        found = with_environment(given)
        self.log_level: str | None = found.pop("log_level", None)
        self.log_json: bool = found.pop("log_json", False)
        words = found.pop("limit", ())
        limits, run_limits = read_limits(words)
        self.limits: Limits = limits
        self.run_limits: RunLimits = run_limits
        names = {word.partition("=")[0] for word in words}
        self.limited: bool = not names.isdisjoint(limits.__struct_fields__)
        self.host: str = found.get("host", "127.0.0.1")
        self.port: int = found.get("port", 8000)
        self.hosts: tuple[str, ...] = tuple(found.get("hosts", ()))
        self.origins: tuple[str, ...] = tuple(found.get("origins", ()))
        self.access_log: bool = found.get("access_log", False)
        # For `server.asgi`, and for what binds the port.
        self.app: dict[str, Any] = {
            name: found[name] for name in _OF_THE_APPLICATION if name in found
        }
        self.tls: dict[str, Any] = {
            name: found[name] for name in ("ssl_certfile", "ssl_keyfile") if name in found
        }

    def arguments(self) -> list[str]:
        """The same as it is typed, but for the port and the log; variables stay as they are."""
        found: list[str] = []
        for name, value in self.given.items():
            if name in ("port", "log_level", "log_json"):
                continue
            option = _OPTIONS.get(name, f"--{name.replace('_', '-')}")
            if value is True:
                found.append(option)
            else:
                values = cast("tuple[Any, ...]", value if isinstance(value, tuple) else (value,))
                for one in values:
                    found += [option, str(one)]
        return found


def run_target(words: str, voice: Voice) -> int:
    """Serve a target on standard input and output; the exit code."""
    try:
        return _run(words, voice)
    except Trouble as trouble:
        voice.complain(trouble)
        return trouble.code


def serve_target(words: str, given: dict[str, Any], *, debug: bool, reload: bool) -> int:
    """Serve a target over HTTP; the exit code."""
    voice = Voice(debug=debug, log_json=given.get("log_json", False))
    try:
        target = read(words)
        try:
            address = Address(given)
        except LocalProtocolError as error:
            raise Trouble(str(error)) from None
        voice = Voice(
            debug=debug,
            log_json=address.log_json,
            log_level=address.log_level,
            access_log=address.access_log,
        )
        voice.prepare()
        if not reload:
            return _serve(target, voice, address)
        return _serve_again(words, target, voice, address)
    except Trouble as trouble:
        voice.complain(trouble)
        return trouble.code


class _OnStdio:
    """Serves on streams that were taken from everybody else; whether Ctrl-C ended it."""

    def __init__(self, words: str, voice: Voice, streams: tuple[int, int]) -> None:
        self._instead = f"colonnade serve {words}"
        self._voice = voice
        self._streams = streams
        self.interrupted = False

    def run(self, server: "Server") -> None:
        """Serve until the end of the input."""
        from colonnade.transport.stdio import run_stdio

        _tell_more(server, self._voice)

        def serve(started: Callable[[], None]) -> bool:
            def tell(reading: int) -> None:
                started()
                self._explain(server, reading)

            return run_stdio(server, streams=self._streams, started=tell)

        self.interrupted = _served(server, self._voice, serve)

    async def serve(self, server: "Server") -> None:
        """The same in a loop that is running."""
        from colonnade.transport.stdio import serve_stdio

        _tell_more(server, self._voice)
        tell = partial(self._explain, server)
        await serve_stdio(server, streams=self._streams, started=tell)

    def _explain(self, server: "Server", reading: int) -> None:
        from colonnade.transport.stdio import explain

        explain(server, reading, self._instead)


def _run(words: str, voice: Voice) -> int:
    target = read(words)
    voice.prepare()
    from colonnade.transport.stdio import own_streams

    with contextlib.ExitStack() as taken:
        try:
            streams = taken.enter_context(own_streams())
        except OSError:
            raise Trouble("a client keeps our input and output open; one of them is not") from None
        on_stdio = _OnStdio(words, voice, streams)
        server = load_or_serve(target, voice, on_stdio)
        if server is not None:
            on_stdio.run(server)
    return INTERRUPTED if on_stdio.interrupted else 0


def _serve(target: "Target", voice: Voice, address: Address, watch: "Watch | None" = None) -> int:
    found = load(target, voice, apps=True)
    if watch is not None:
        watch.loaded()
    server = _server_of(found)
    _tell_more(server, voice)
    from colonnade.transport.http_server.runner import announce, run

    def serve(started: Callable[[], None]) -> bool:
        def tell(site: "HttpRunner") -> None:
            started()
            if watch is not None and watch.since:
                voice.say(f"{watch.since} changed; {name_and_version(server.info)} is served again")
            else:
                announce(site)
            if watch is not None:
                watch.served(site.end, site.port)

        where, names = (address.host, address.port), (address.hosts, address.origins)
        return run(
            _application(found, target, address),
            *where,
            hosts=names[0],
            origins=names[1],
            run_limits=address.run_limits,
            started=tell,
            **address.tls,
        )

    try:
        return INTERRUPTED if _served(server, voice, serve) else 0
    except LocalProtocolError as error:
        raise _unserved(error, address) from None


def _server_of(found: "Server | HttpApp") -> "Server":
    from colonnade.server.server import Server

    if isinstance(found, Server):
        return found
    server = found.service
    if not isinstance(server, Server):
        raise Trouble("the application serves something else than a colonnade.Server")
    return server


def _application(found: "Server | HttpApp", target: "Target", address: Address) -> "HttpApp":
    """What is served: the file's own application, or one that is made of its server."""
    from colonnade.server.server import Server

    if isinstance(found, Server):
        return found.asgi(**address.app, limits=address.limits)
    given = [f"--{name.replace('_', '-')}" for name in address.app]
    given += ["--limit"] if address.limited else []
    if given:
        raise Trouble(
            f"{target.name} in {target.place} is an application that its file makes; leave out "
            f"{', '.join(given)}, and say it there: server.asgi(…)"
        )
    return found


def _unserved(error: LocalProtocolError, address: Address) -> Trouble:
    """Why an address cannot be served, in the words of the command line."""
    from colonnade.transport.http_server.listener import AddressError

    if isinstance(error, AddressError):
        return Trouble(str(error), UNREACHABLE)
    if not address.hosts and "hosts=" in str(error):
        host = address.host
        return Trouble(
            f"on {host} others can reach it, so say by which names: --allow-host mcp.example.com, "
            "once for each; or serve 127.0.0.1"
        )
    words = str(error)
    for name in ("ssl_certfile", "ssl_keyfile"):
        words = words.replace(f"{name}=", f"--{name.replace('_', '-')}")
    return Trouble(words, USAGE)


def _serve_again(words: str, target: "Target", voice: Voice, address: Address) -> int:
    """Serve; where the file changes, or could not be loaded and then does, all begins again."""
    from colonnade.cli.loader import Watch

    arguments = ["serve", "--reload", "--port", str(address.port), *address.arguments()]
    watch = Watch(words, target, voice, [*arguments, *voice.arguments()])
    watch.begin()
    code = 0
    try:
        code = _serve(target, voice, address, watch)
    except Trouble as trouble:
        if not trouble.mendable:
            raise
        watch.wait(trouble)
    finally:
        watch.over()
    if watch.changed:
        watch.again()
    return code


def _tell_more(server: "Server", voice: Voice) -> None:
    if voice.debug:
        server.debug = True
        voice.prepare_debug()


def _served(server: "Server", voice: Voice, serve: Callable[[Callable[[], None]], bool]) -> bool:
    """Whether Ctrl-C ended it. Raises `Trouble` for what the code of the user raised."""
    started: list[bool] = []
    try:
        return serve(lambda: started.append(True))
    except Exception as error:
        if not is_theirs(error):
            raise
        what = "did not end well" if started else "could not start"
        words = f"{server.info.name} {what}: {named(error)}"
        trace = voice.trace(error)
        raise Trouble(words, FAILED, lines=trace, mendable=not started) from error
