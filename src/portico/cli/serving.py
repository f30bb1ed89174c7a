"""What `portico run` and `portico serve` do: load a file, and serve what it offers.

The serving itself is what `server.run()` does, too: `run_stdio` and `http_run.run`.

Rules: standard output belongs to the client before a line of the file is run, or has one line of
ours. What goes wrong is said once, in a sentence; nothing else is said.
"""

import contextlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from portico.cli.target import load, load_or_serve, read
from portico.cli.trouble import (
    FAILED,
    INTERRUPTED,
    UNREACHABLE,
    USAGE,
    Trouble,
    Voice,
    is_theirs,
    named,
)
from portico.errors import LocalProtocolError

if TYPE_CHECKING:  # what only one of the two needs is loaded by it
    from portico.cli.reload import Watch
    from portico.cli.target import Target
    from portico.server.app import Server
    from portico.transport.http_run import Site


class Address(NamedTuple):
    """Where to serve, and for whom."""

    host: str
    port: int
    path: str
    hosts: tuple[str, ...]
    origins: tuple[str, ...]

    def arguments(self) -> list[str]:
        """The same as it is typed, but for the port."""
        found = ["--host", self.host, "--path", self.path]
        for name in self.hosts:
            found += ["--allow-host", name]
        for origin in self.origins:
            found += ["--allow-origin", origin]
        return found


def run_target(words: str, voice: Voice) -> int:
    """Serve a target on standard input and output; the exit code."""
    try:
        return _run(words, voice)
    except Trouble as trouble:
        voice.complain(trouble)
        return trouble.code


def serve_target(words: str, voice: Voice, address: Address, *, reload: bool) -> int:
    """Serve a target over HTTP; the exit code."""
    try:
        target = read(words)
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
        self._instead = f"portico serve {words}"
        self._voice = voice
        self._streams = streams
        self.interrupted = False

    def run(self, server: "Server") -> None:
        """Serve until the end of the input."""
        from portico.transport.stdio import run_stdio

        _tell_more(server, self._voice)

        def serve(started: Callable[[], None]) -> bool:
            def tell(reading: int) -> None:
                started()
                self._explain(server, reading)

            return run_stdio(server, streams=self._streams, started=tell)

        self.interrupted = _served(server, self._voice, serve)

    async def serve(self, server: "Server") -> None:
        """The same in a loop that is running."""
        from portico.transport.stdio import serve_stdio

        _tell_more(server, self._voice)
        tell = partial(self._explain, server)
        await serve_stdio(server, streams=self._streams, started=tell)

    def _explain(self, server: "Server", reading: int) -> None:
        from portico.transport.stdio import explain

        explain(server, reading, self._instead)


def _run(words: str, voice: Voice) -> int:
    target = read(words)
    voice.prepare()
    from portico.transport.stdio import own_streams

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
    server = load(target, voice)
    if watch is not None:
        watch.loaded()
    _tell_more(server, voice)
    from portico.transport.http_run import announce, run
    from portico.transport.naming import called

    def serve(started: Callable[[], None]) -> bool:
        def tell(site: "Site") -> None:
            started()
            if watch is not None and watch.since:
                voice.say(f"{watch.since} changed; {called(server.info)} is served again")
            else:
                announce(site)
            if watch is not None:
                watch.served(site.end, site.port)

        where, names = (address.host, address.port), (address.hosts, address.origins)
        app = server.asgi(path=address.path)
        return run(app, *where, hosts=names[0], origins=names[1], started=tell)

    try:
        return INTERRUPTED if _served(server, voice, serve) else 0
    except LocalProtocolError as error:
        raise _unserved(error, address) from None


def _unserved(error: LocalProtocolError, address: Address) -> Trouble:
    """Why an address cannot be served, in the words of the command line."""
    from portico.transport.address import AddressError

    if isinstance(error, AddressError):
        return Trouble(str(error), UNREACHABLE)
    if not address.hosts and "hosts=" in str(error):
        host = address.host
        return Trouble(
            f"on {host} others can reach it, so say by which names: --allow-host mcp.example.com, "
            "once for each; or serve 127.0.0.1"
        )
    return Trouble(str(error), USAGE)


def _serve_again(words: str, target: "Target", voice: Voice, address: Address) -> int:
    """Serve; where the file changes, or could not be loaded and then does, all begins again."""
    from portico.cli.reload import Watch

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
