"""One call that takes what people have and gives a client that works.

    async with connect("https://example.com/mcp") as client:
        tools = await client.list_tools()

    client = await connect(["uvx", "mcp-server-git"])
    await client.close()

Rules: nothing happens before it is awaited or entered, but that what cannot be right is refused.
Whoever gives up in between leaves nothing behind.
"""

import os
from collections.abc import Generator, Iterable, Mapping
from functools import cache
from math import isfinite
from typing import TYPE_CHECKING, Any

from colonnade import __version__
from colonnade.client.answers import Answers, OnElicit, OnSample
from colonnade.client.asking import running_loop
from colonnade.client.client import Client, OnLog, OnProgress
from colonnade.client.list_limits import MAX_LIST_BYTES, MAX_LIST_ITEMS
from colonnade.client.roots import GivenRoots
from colonnade.client.targets import GivenHeaders, Surroundings, Target, way_to
from colonnade.client.ways import OnStderr, Way
from colonnade.errors import LocalProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.link import TIMEOUT_S
from colonnade.protocol.revision import EVERY, Revisions

if TYPE_CHECKING:  # most clients are asked by nobody who they are
    from colonnade.auth.logins import Auth

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
        raise LocalProtocolError(
            "auth= takes Login(), ClientCredentials(…), EnterpriseLogin(…) or WorkloadIdentity(…); "
            "a token of your own goes into headers={'Authorization': 'Bearer …'}"
        )
    for words, seconds in (("timeout_s", timeout_s), ("ping_s", ping_s)):
        if seconds is not None and not (isfinite(seconds) and seconds > 0):
            raise LocalProtocolError(f"{words} is a number of seconds above 0")
    for words, most in (("max_list_bytes", max_list_bytes), ("max_list_items", max_list_items)):
        if most < 1:
            raise LocalProtocolError(f"{words} is a whole number above 0")
    around = Surroundings(
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
            raise LocalProtocolError("version= and title= go with name=: say who the client is")
        return own_name()
    if not name:
        raise LocalProtocolError("name= is what the client is called, and this is empty")
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
        raise LocalProtocolError(f"revision=: {error}") from None
