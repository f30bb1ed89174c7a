"""What one server offers, as it is shown: to one caller, or to all who see the same.

Rules: nothing of what a server says is changed but names. What a configuration hides has no name,
and so cannot be called either. What one caller is shown is made of what was said to that caller.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from msgspec.structs import replace

from colonnade.client.client import SCHEMAS_S, Client
from colonnade.client.tools import Tools
from colonnade.errors import (
    AuthError,
    CannotConnect,
    ChannelError,
    ColonnadeError,
    ConnectionLost,
    LocalProtocolError,
    Refused,
)
from colonnade.host.naming import Named, Names
from colonnade.host.offered import HostPrompt, HostResource, HostResourceTemplate, HostTool
from colonnade.host.settings import Settings
from colonnade.host.shelves import Kind, Shelf, told
from colonnade.host.slices import Steps, in_slices
from colonnade.protocol import types as t
from colonnade.protocol.schema import Validator

# The server is not there, whichever list is asked for.
ABSENT = (CannotConnect, ConnectionLost, AuthError, LocalProtocolError, Refused)
# It may be, and one sentence tells it for all lists.
SILENT = (*ABSENT, ChannelError)

N = TypeVar("N", bound=t.Noun)
H = TypeVar("H", bound=t.Noun)


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
