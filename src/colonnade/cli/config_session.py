"""A command's conversation with the servers of a configuration: which of them it needs, who answers
their questions, and what is said of those that do not work.

Rules: only what a name leads to is started for it. What is wrong with one server is told beside the
output, and ends nothing; a command fails for it only where nothing else is left.
"""

import asyncio
import shlex
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from colonnade.cli.commands.config import plain_problem
from colonnade.cli.config_target import Trusting, configuration
from colonnade.cli.connections import Many
from colonnade.cli.credentials import login_for
from colonnade.cli.elicitation import asker
from colonnade.cli.errors import USAGE, Trouble, code_of
from colonnade.cli.options import Terms, shown_configuration
from colonnade.cli.terminal import Screen
from colonnade.client.request import OnLog
from colonnade.errors import ColonnadeError, Declined
from colonnade.host.config.explain import line
from colonnade.host.config.settings import Config, HostProblem
from colonnade.host.host import Host
from colonnade.host.input_requests import HostInputRequest
from colonnade.host.servers.naming import BETWEEN, qualified_name
from colonnade.host.servers.supervisor import url_of
from colonnade.protocol import types as t
from colonnade.text import clean, one_line

# Whoever looks at all servers outlasts the time of each: what that server says of itself is better.
LONGER_S: Final = 5.0

if TYPE_CHECKING:  # most servers ask nobody who they are
    from colonnade.auth.client.login import Auth


def config_for(terms: Terms, screen: Screen, of: str) -> Config:
    """The servers of a file that a command needs: all, or the one that the name `of` leads to.
    Raises `Trouble`. To be called where no loop runs: somebody may be asked."""
    config = configuration(terms, screen, Trusting())
    if of:
        return _leading(config, of, shown_configuration(terms))
    if not any(one.settings.enabled for one in config.entries.values()):
        told = map(clean, _lines(config.problems))
        empty = f"{one_line(shown_configuration(terms))} has no servers"
        raise Trouble("; ".join(told) or empty, USAGE)
    return config


def _leading(config: Config, name: str, file: str) -> Config:
    """The server that a name in the catalogue is of, alone: names do not depend on the others."""
    host = Host(config)  # which starts nothing
    key = host.server_of(name)
    if key is not None:
        return replace(config, entries={key: config.entries[key]}, problems=())
    for problem in config.problems:
        first = qualified_name(problem.server, "x").partition(BETWEEN)[0]
        if problem.server and name.partition(BETWEEN)[0] == first:
            raise Trouble(clean(line(problem)), USAGE)
    words = f"there is no {clean(name)} in {one_line(file)}; names begin with their server"
    begin = ", ".join(f"{one_line(prefix)}{BETWEEN}…" for prefix in host.prefixes)
    hint = f"{words}: {begin}" if begin else f"{one_line(file)} has no servers"
    raise Trouble(f"{hint}; colonnade ls {shlex.quote(file)} lists them", USAGE)


def open_many(config: Config, terms: Terms, screen: Screen, hear: OnLog) -> Many:
    """A host of these servers, which starts each when it is needed."""
    alone = len(config.entries) == 1

    def auth(url: str) -> "Auth | None":
        return login_for(url, screen, ask=alone)

    wait_s = terms.timeout_s + LONGER_S
    host = Host(config, on_input_request=answering(screen), auth=auth, wait_s=wait_s)
    return Many(
        host,
        server=terms.server,
        on_progress=screen.progress,
        on_log=hear if terms.debug else None,
    )


def answering(screen: Screen) -> Callable[[HostInputRequest], Awaitable[Any]]:
    """What answers the questions of all servers: the person at the terminal."""
    one_at_a_time = asyncio.Lock()

    async def answer(question: HostInputRequest) -> Any:
        if not isinstance(question.params, t.ElicitRequestParams):
            raise Declined("there is no model behind the command")
        calls = ", ".join(one_line(call.name) for call in question.calls)
        who = f"{one_line(question.server)}{f' (for {calls})' if calls else ''}"
        async with one_at_a_time:
            return await asker(screen, lambda: who)(question.params)

    return answer


async def address_in(config: Config, key: str) -> str:
    """The address of a server; empty for one that is started. Raises `Trouble`."""
    entry = config.entries.get(key)
    if entry is None:  # it is there, and there is something wrong with it
        raise Trouble("; ".join(clean(line(one)) for one in config.problems), USAGE)
    return url_of(await entry.resolve())


# ---------------------------------------------------------------- what is wrong


def show_problems(problems: Sequence[HostProblem], screen: Screen) -> None:
    """Tell what does not work, beside the output."""
    for words in _lines(problems):
        screen.note(f"colonnade: {clean(words, lines=True)}\n")


def _lines(problems: Sequence[HostProblem]) -> list[str]:
    """What is wrong; that a file is not trusted is said once for all of its servers."""
    said = Counter(one.words for one in problems if one.untrusted)
    told = [
        line(one) if one.place is not None and said[one.words] < 2 else one.words
        for one in problems
    ]
    return [words for n, words in enumerate(told) if words not in told[:n]]


def plain_problems(problems: Sequence[HostProblem]) -> list[dict[str, Any]]:
    """The same for programs."""
    return [plain_problem(one) for one in problems]


def code_of_many(found: Collection[object], errors: Iterable[ColonnadeError]) -> int:
    """The exit code: what works is enough; where nothing does, the first failure counts."""
    return 0 if found else next(map(code_of, errors), 0)
