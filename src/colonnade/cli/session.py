"""One conversation of a command with a server: reached, spoken to, left; and what its end means.

Rules: whatever goes wrong becomes one sentence and one exit code, here. The server is left before
the command ends, however it ends. What a server wrote never acts on a terminal.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from colonnade.cli.connections import Many, One
from colonnade.cli.elicitation import asker
from colonnade.cli.errors import BY_HEADER, FAILED, Trouble, code_of, named, whole
from colonnade.cli.options import Reach, Terms, is_configuration, reach
from colonnade.cli.terminal import Screen, discard_output
from colonnade.client.client import Client
from colonnade.client.connect import connect
from colonnade.client.request import OnLog
from colonnade.errors import AuthError, ColonnadeError
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import encode
from colonnade.text import clean, one_line

if TYPE_CHECKING:  # most commands speak to one server
    from colonnade.host.config.settings import Config

# Of an error, with the last lines of a server in it.
MAX_SENTENCE = 8000
JSON_INDENT = 2


class Desk(NamedTuple):
    """A server that was reached, or those of a configuration, and the person who speaks to it."""

    reached: One | Many
    screen: Screen


Talk: TypeAlias = Callable[[Desk], Awaitable[int]]


def talk(terms: Terms, deed: Talk, auth: Any = None, of: str = "") -> int:
    """Reach a server, do this with it, and leave it; the exit code. Raises `Trouble`.

    `auth` is how it logs in, if not as every command does. Of a configuration all servers are
    reached, or the one that the name `of` in their catalogue leads to.
    """
    screen = Screen()
    prepare_log(terms.debug)
    if is_configuration(terms.target):
        from colonnade.cli.config_session import config_for

        config = config_for(terms, screen, of)
        return run(terms, screen, _talk_to_many(config, terms, screen, deed))
    found = reach(terms)
    if found.asks_who and auth is None:
        from colonnade.cli.credentials import login_for

        auth = login_for(found.target, screen)
    return run(terms, screen, _talk(found, terms, screen, deed, auth))


def run(terms: Terms, screen: Screen, work: Coroutine[Any, Any, int]) -> int:
    """Do something that waits, to its end; the exit code. Raises `Trouble`."""
    try:
        with telling(terms):
            return asyncio.run(work)
    except BrokenPipeError:
        discard_output()
        return 0  # whoever reads has seen enough
    finally:
        screen.clear()


@contextlib.contextmanager
def telling(terms: Terms) -> Generator[None, None, None]:
    """Whatever goes wrong here becomes one sentence and one exit code. Raises `Trouble`."""
    try:
        yield
    except ColonnadeError as error:
        lines = whole(error) if terms.debug else ""
        raise Trouble(sentence(error), code_of(error), lines=lines) from None
    except (Trouble, BrokenPipeError):
        raise
    except Exception as error:
        words = f"this is a mistake of colonnade itself: {clean(named(error))}"
        lines = whole(error) if terms.debug else ""
        more = "" if terms.debug else "; --debug shows where"
        raise Trouble(words + more, FAILED, lines=lines) from None


async def _talk(found: Reach, terms: Terms, screen: Screen, deed: Talk, auth: Any) -> int:
    clients: list[Client] = []

    def who() -> str:
        info = clients[0].server if clients else None
        return f"{one_line(info.name)} ({found.shown})" if info is not None else found.shown

    def overhear(line: str) -> None:
        screen.note(f"{found.shown} writes: {one_line(line)}\n")

    if terms.debug and "env" in found.options:  # it is started here
        found.options["on_stderr"] = overhear
    connecting = connect(
        found.target,
        on_elicit=asker(screen, who),
        on_progress=screen.progress,
        on_log=hearing(screen, who) if terms.debug else None,
        auth=auth,
        **found.options,
    )
    async with connecting as client:
        clients.append(client)
        return await deed(Desk(One(client), screen))


async def _talk_to_many(config: "Config", terms: Terms, screen: Screen, deed: Talk) -> int:
    from colonnade.cli.config_session import open_many

    many = open_many(config, terms, screen, hearing(screen, lambda: "a server"))
    try:
        async with many.host:
            return await deed(Desk(many, screen))
    finally:  # by now all of it is read
        for key, line in many.written() if terms.debug else ():
            screen.note(f"{one_line(key)} writes: {one_line(line)}\n")


def hearing(screen: Screen, who: Callable[[], str]) -> OnLog:
    """What shows what a server logs; `who` says which server it is."""

    def hear(said: t.LoggingMessageNotificationParams) -> None:
        data: Any = said.data
        words = data if isinstance(data, str) else encode(data).decode()
        screen.note(f"{said.level} {one_line(said.logger or who())}: {one_line(words)}\n")

    return hear


def sentence(error: ColonnadeError) -> str:
    """What happened, and what can be done about it on a command line."""
    words = clean(str(error) or type(error).__name__, lines=True)[:MAX_SENTENCE].rstrip()
    if isinstance(error, AuthError) and error.status == 401 and not error.hint:
        which = "another" if error.token_sent else "a"
        return f"{words}; send {which} token: {BY_HEADER}"
    return words


def show_json(value: object, screen: Screen) -> None:
    """A value for programs: one JSON document."""
    data = msgspec.json.format(encode(value), indent=JSON_INDENT)
    screen.write_bytes(data + b"\n")


# ---------------------------------------------------------------- the process around it


class _Line(logging.Formatter):
    """A record as a sentence, which cannot act on the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return clean(super().format(record), lines=True)


def prepare_log(debug: bool) -> None:
    """Say what our own parts warn of; with `debug` all that they do."""
    handler = logging.StreamHandler()
    form = "%(levelname)s %(name)s: %(message)s" if debug else "colonnade: %(message)s"
    handler.setFormatter(_Line(form))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    if debug:
        logging.getLogger("colonnade").setLevel(logging.DEBUG)
