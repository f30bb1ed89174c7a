"""What one server offers, as it is shown: to one caller, or to all who see the same.

Rules: nothing of what a server says is changed but names. What a configuration hides has no name,
and so cannot be called either. What one caller is shown is made of what was said to that caller.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

from msgspec.structs import asdict, replace

from colonnade.client.client import SCHEMAS_S, Client
from colonnade.client.tools import Tool, Tools
from colonnade.errors import (
    AuthError,
    CannotConnect,
    ChannelError,
    ColonnadeError,
    ConnectionLost,
    Fault,
    LocalProtocolError,
    Refused,
    RemoteProtocolError,
    TimedOut,
)
from colonnade.host.config.settings import Settings
from colonnade.host.servers.naming import Named, Names
from colonnade.protocol import types as t
from colonnade.protocol.schema.validate import Validator


class HostTool(Tool, kw_only=True):
    """A tool of one of many servers. `name` is its name in the catalogue, `server` the key of its
    server, `original` what that server calls it; `aliases` are further names for it."""

    server: str
    original: str
    aliases: tuple[str, ...] = ()

    @classmethod
    def kept(
        cls, tool: t.Tool, server: str, original: str, aliases: tuple[str, ...] = ()
    ) -> "HostTool":
        """The same, as it stands in a catalogue."""
        return cls(**asdict(tool), server=server, original=original, aliases=aliases)


class HostPrompt(t.Prompt, kw_only=True):
    """A prompt of one of many servers; the names are as with a tool."""

    server: str
    original: str
    aliases: tuple[str, ...] = ()

    @classmethod
    def kept(
        cls, prompt: t.Prompt, server: str, original: str, aliases: tuple[str, ...] = ()
    ) -> "HostPrompt":
        """The same, as it stands in a catalogue."""
        return cls(**asdict(prompt), server=server, original=original, aliases=aliases)


class HostResource(t.Resource, kw_only=True):
    """A resource of one of many servers, under the address that the server gave it."""

    server: str

    @classmethod
    def kept(cls, resource: t.Resource, server: str) -> "HostResource":
        """The same, as it stands in a catalogue."""
        return cls(**asdict(resource), server=server)


class HostResourceTemplate(t.ResourceTemplate, kw_only=True):
    """A template of addresses of one of many servers."""

    server: str

    @classmethod
    def kept(cls, template: t.ResourceTemplate, server: str) -> "HostResourceTemplate":
        """The same, as it stands in a catalogue."""
        return cls(**asdict(template), server=server)


# How long the loop is kept from other work at a time; a timer may have to wait for two of them.
SLICE_S = 0.002

S = TypeVar("S")
Steps: TypeAlias = Generator[None, None, S]


def at_once(steps: Steps[S]) -> S:
    """The result, without a pause."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: S = end.value
        return result


async def in_slices(steps: Steps[S]) -> S:
    """The result, with other work of the loop in between."""
    now = asyncio.get_running_loop().time
    until = now() + SLICE_S
    try:
        while True:
            next(steps)
            if now() >= until:
                await asyncio.sleep(0)
                until = now() + SLICE_S
    except StopIteration as end:
        result: S = end.value
        return result


log: logging.Logger = logging.getLogger("colonnade.host")

Kind: TypeAlias = Literal["tools", "prompts", "resources", "templates"]

# Whoever looks at the whole catalogue waits no longer for one server. One that has to be fetched
# first goes on starting, and is there when somebody looks again.
WAIT_S = 20.0
# A server that could not be listed is not asked again for so long, but by who wants it fresh.
RETRY_S = 30.0
# A server that does not tell of changes may have made some: who looks after so long asks again.
UNTOLD_S = 60.0
# A list is not asked for again within so long because of a name that is not in it: models make up
# names faster than servers make tools.
ANEW_S = 5.0


class Listed(Protocol):
    """What is on a shelf."""

    def is_like(self, other: Any) -> bool:
        """Whether the other says the same."""
        ...


T = TypeVar("T", bound=Listed)


class Shelf(Generic[T]):
    """One list of a server. `what` it is stands in errors; `ask` asks the server for it, for a
    caller, and may take `limit_s`; `came` is told of one that is another than those who looked have
    seen, and `is_told` says whether the server tells when it changes."""

    def __init__(
        self,
        server: str,
        what: str,
        ask: Callable[[str], Awaitable[T]],
        limit_s: float,
        came: Callable[[], None],
        is_told: Callable[[], bool],
    ) -> None:
        self.content: T | None = None
        self.error: ColonnadeError | None = None
        self._server = server
        self._what = f"the {what} of server {server!r}"
        self._ask = ask
        self._limit_s = limit_s
        self._came = came
        self._is_told = is_told
        self._is_stale = True
        # Somebody looked and did not find it; somebody was told already that it has changed.
        self._was_missed = False
        self._was_told = False
        self._changes = 0
        self.failed_at: float = 0.0
        self._came_at = -ANEW_S
        self._begun_at = 0.0
        self._task: asyncio.Task[None] | None = None

    @property
    def is_fresh(self) -> bool:
        """Whether it is here, nobody said that it has changed, and somebody would."""
        if self._is_stale:
            return False
        return self._is_told() or _now() < self._came_at + UNTOLD_S  # R1006, R1013

    @property
    def is_busy(self) -> bool:
        """Whether it is being asked for."""
        return self._task is not None

    def expire(self) -> None:
        """It has changed, and whoever wants to know was told: who looks next asks."""
        self._is_stale = self._was_told = True
        self._changes += 1
        self.error = None

    def doubt(self) -> None:
        """It may have changed, and nobody knows: who looks next asks."""
        self._is_stale = True
        self.error = None

    async def seen(self, caller: str, wait_s: float, *, fresh: bool = False) -> T | None:
        """What is there within that time; what came before where nothing newer does.

        Never raises: `problem` says what went wrong.
        """
        if self.is_fresh and not fresh:
            return self.content
        now = _now()
        if self._task is None:
            if self.error is not None and not fresh and now < self.failed_at + RETRY_S:
                return self.content
            self._begin(caller)
        assert self._task is not None
        seconds = self._begun_at + wait_s - now
        if seconds > 0:
            await asyncio.wait([self._task], timeout=seconds)
        if self.content is None:
            self._was_missed = True
        return self.content

    async def come(self, caller: str) -> T:
        """The list as it is now, however long it takes; what came a moment ago is now. Raises what
        went wrong."""
        if self._is_stale or _now() >= self._came_at + ANEW_S:
            if self._task is None:
                self._begin(caller)
            assert self._task is not None
            await asyncio.wait([self._task])
        if self.error is not None or self.content is None:
            words = f"{self._what} are not asked for any more: it was closed meanwhile"
            error = self.error or ConnectionLost(words, server=self._server)
            raise error.with_traceback(None)
        return self.content

    def spare(self, error: ColonnadeError) -> None:
        """Another list could not be asked for, so that it is of no use to ask for this one."""
        if self._is_stale and self._task is None:
            self._fail(error)

    @property
    def is_late(self) -> bool:
        """Whether somebody looked and went on without it, and it may still come."""
        return self.error is None and self.content is None and self._was_missed

    @property
    def problem(self) -> str | None:
        """What is the matter, for people; None where nothing is."""
        if self.is_late:
            return f"{self._what} have not come yet; look again later"
        return told(self.error, self._server) if self.error is not None else None

    def _begin(self, caller: str) -> None:
        self._begun_at = _now()
        self._task = asyncio.get_running_loop().create_task(self._run(caller))

    async def _run(self, caller: str) -> None:
        changes = self._changes
        try:
            async with asyncio.timeout(self._limit_s):
                content = await self._ask(caller)
        except TimeoutError:
            words = f"{self._what} did not come within {self._limit_s:g} s"
            self._fail(TimedOut(words, server=self._server))
        except Fault as fault:
            words = f"{self._what} cannot be read: {fault.message}"
            self._fail(RemoteProtocolError(words, server=self._server))
        except ColonnadeError as error:
            self._fail(error)
        except Exception as error:
            log.error("%s cannot be listed", self._what, exc_info=error)
            words = f"{self._what} cannot be listed: {error}"
            self._fail(ColonnadeError(words, server=self._server))
        else:
            self._keep(content, changes)
        finally:
            self._task = None

    def _keep(self, content: T, changes: int) -> None:
        is_other = self._was_missed if self.content is None else not content.is_like(self.content)
        is_news = is_other and not self._was_told
        self.content, self.error = content, None
        self._is_stale = changes != self._changes
        self._was_missed, self._was_told = False, self._is_stale
        self._came_at = _now()
        if is_news:
            self._came()

    def _fail(self, error: ColonnadeError) -> None:
        self.error = error
        self.failed_at = _now()

    async def close(self) -> None:
        """Nobody looks any more."""
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.wait([task])


def told(error: ColonnadeError, server: str) -> str:
    """What went wrong with a server, with its name."""
    return str(error) if error.server == server else f"server {server!r}: {error}"


def _now() -> float:
    return asyncio.get_running_loop().time()


# The server is not there, whichever list is asked for.
ABSENT = (CannotConnect, ConnectionLost, AuthError, LocalProtocolError, Refused)
# It may be, and one sentence tells it for all lists.
SILENT = (*ABSENT, ChannelError)

N = TypeVar("N", bound=t.ProtocolType)
H = TypeVar("H", bound=t.ProtocolType)


class Offer(Generic[H, N]):
    """One list as it is shown: `nouns` to strangers, `hosted` to programs, both under the name or
    the address by which each is asked for. `names` are those of the catalogue, where it has any."""

    def __init__(
        self, hosted: Mapping[str, H], nouns: Mapping[str, N], names: Names | None = None
    ) -> None:
        self.hosted = hosted
        self.nouns = nouns
        self.names = names

    def find(self, name: str) -> Named | None:
        """What a name of the catalogue, or an alias, leads to."""
        return self.names.find(name) if self.names is not None else None

    def is_like(self, other: "Offer[H, N]") -> bool:
        """Whether the other says the same."""
        return self.nouns == other.nouns


class Listing(Protocol):
    """Asks a server for a list: by which method, for whom, and how a client is asked."""

    def __call__(
        self, method: str, caller: str, ask: Callable[[Client], Awaitable[Sequence[N]]]
    ) -> Awaitable[Sequence[N]]: ...


class Offers:
    """The four lists of a server. `bare` says whether its values need no wrapper; `came` is told of
    a list that is another than those who looked have seen, and `is_told` says of which lists the
    server itself tells."""

    def __init__(
        self,
        key: str,
        settings: Settings,
        listing: Listing,
        bare: Callable[[], bool],
        came: Callable[[Kind], None],
        is_told: Callable[[Kind], bool],
    ) -> None:
        self._key = key
        self._settings = settings
        self._listing = listing
        self._bare = bare
        self._came = came
        self._is_told = is_told
        self._schemas = Tools(key)
        self.tools: Shelf[Offer[HostTool, t.Tool]]
        self.prompts: Shelf[Offer[HostPrompt, t.Prompt]]
        self.resources: Shelf[Offer[HostResource, t.Resource]]
        self.templates: Shelf[Offer[HostResourceTemplate, t.ResourceTemplate]]
        self.tools = self._shelf("tools", "tools", self._list_tools)
        self.prompts = self._shelf("prompts", "prompts", self._list_prompts)
        self.resources = self._shelf("resources", "resources", self._list_resources)
        self.templates = self._shelf("templates", "resource templates", self._list_templates)
        self.shelves: Mapping[Kind, Shelf[Offer[Any, Any]]] = {
            "tools": self.tools,
            "prompts": self.prompts,
            "resources": self.resources,
            "templates": self.templates,
        }

    def _shelf(self, kind: Kind, what: str, ask: Callable[[str], Awaitable[Any]]) -> Shelf[Any]:
        async def asked(caller: str) -> Any:
            try:
                return await ask(caller)
            except ABSENT as error:  # one look is one start
                for shelf in self.shelves.values():
                    shelf.spare(error)
                raise

        limit_s = self._settings.start_s + self._settings.timeout_s
        return Shelf(
            self._key,
            what,
            asked,
            limit_s,
            lambda: self._came(kind),
            lambda: self._is_told(kind),
        )

    # ------------------------------------------------------------ as a whole

    def doubt(self) -> None:
        """All of it may be another by now."""
        for shelf in self.shelves.values():
            shelf.doubt()

    @property
    def is_busy(self) -> bool:
        """Whether somebody waits for a list."""
        return any(shelf.is_busy for shelf in self.shelves.values())

    async def close(self) -> None:
        """Nobody looks any more."""
        for shelf in self.shelves.values():
            await shelf.close()

    @property
    def failures(self) -> list[tuple[float, ColonnadeError]]:
        """What lists came to that did not come, and when."""
        every = self.shelves.values()
        return [(one.failed_at, one.error) for one in every if one.error is not None]

    @property
    def problems(self) -> list[str]:
        """What is the matter beside a silent server, for people; what can be shown is shown."""
        troubled = [one for one in self.shelves.values() if not isinstance(one.error, SILENT)]
        found = [one.problem for one in troubled if one.problem is not None]
        if sum(one.is_late for one in troubled) > 1:
            late = f"server {self._key!r} has not answered yet; look again later"
            failed = [one.error for one in troubled if one.error is not None]
            found = [late, *(told(error, self._key) for error in failed)]
        for shelf in (self.tools, self.prompts):
            names = shelf.content.names if shelf.content is not None else None
            found += [one.words for one in (names.problems if names is not None else ())]
        return found

    # ------------------------------------------------------------ results of tools

    def output(self, tool: str) -> Validator | None:
        """What results of a tool, by the server's own name for it, must fit."""
        return self._schemas.output(tool)

    async def learn_schemas(self, caller: str) -> None:
        """List the tools for their output schemas, where that was not done yet."""
        if not self._schemas.asked:
            await self.tools.seen(caller, min(SCHEMAS_S, self._settings.timeout_s))

    def is_wrapped(self, tool: str, result: t.CallToolResult) -> bool:
        """Whether the value of a result that looks so is in a wrapper, which the list tells."""
        return self._schemas.wraps(tool, result.meta or {}, bare=self._bare())

    # ------------------------------------------------------------ asking for it

    async def _list_tools(self, caller: str) -> Offer[HostTool, t.Tool]:
        tools = await self._listing("tools/list", caller, lambda one: one.list_tools(fresh=True))
        self._schemas.learn(tools, mirrors=False)
        return await in_slices(self._named(tools, HostTool))

    async def _list_prompts(self, caller: str) -> Offer[HostPrompt, t.Prompt]:
        prompts = await self._listing(
            "prompts/list", caller, lambda one: one.list_prompts(fresh=True)
        )
        return await in_slices(self._named(prompts, HostPrompt))

    async def _list_resources(self, caller: str) -> Offer[HostResource, t.Resource]:
        found = await self._listing(
            "resources/list", caller, lambda one: one.list_resources(fresh=True)
        )
        return await in_slices(self._addressed(found, lambda one: one.uri, HostResource))

    async def _list_templates(self, caller: str) -> Offer[HostResourceTemplate, t.ResourceTemplate]:
        found = await self._listing(
            "resources/templates/list", caller, lambda one: one.list_resource_templates(fresh=True)
        )
        return await in_slices(
            self._addressed(found, lambda one: one.uri_template, HostResourceTemplate)
        )

    def _addressed(
        self, listed: Sequence[N], address: Callable[[N], str], hosted: Any
    ) -> Steps[Offer[Any, N]]:
        nouns: dict[str, N] = {}
        shown: dict[str, Any] = {}
        for one in listed:
            uri = address(one)
            if uri not in nouns:
                nouns[uri] = one
                shown[uri] = hosted.kept(one, self._key)
            yield
        return Offer(shown, nouns)

    def _named(self, listed: Sequence[Any], hosted: Any) -> Steps[Offer[Any, Any]]:
        first = {one.name: one for one in reversed(listed)}
        names = Names([(self._key, self._settings, [one.name for one in listed])])
        yield
        nouns: dict[str, Any] = {}
        shown: dict[str, Any] = {}
        for named in names:
            noun = nouns[named.name] = replace(first[named.own], name=named.name)
            shown[named.name] = hosted.kept(noun, self._key, named.own, named.aliases)
            yield
        return Offer(shown, nouns, names)
