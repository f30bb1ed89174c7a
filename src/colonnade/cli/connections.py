"""What a command speaks to: one server, or all of a configuration, with the same few words.

Rules: only what a command uses is here. Of a configuration no more servers are started than the
command needs, and what is wrong with one of them keeps nothing from the others.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from colonnade.client.client import Client
from colonnade.client.request import OnLog, OnProgress
from colonnade.client.results import ToolResult
from colonnade.errors import FaultKind, RemoteError
from colonnade.host.config.settings import HostProblem
from colonnade.host.servers.listings import describe_error
from colonnade.protocol import types as t

if TYPE_CHECKING:  # most commands speak to one server
    from colonnade.host.host import Host

T = TypeVar("T")


class Offer(NamedTuple):
    """All that a server lists."""

    tools: Sequence[t.Tool]
    prompts: Sequence[t.Prompt]
    resources: Sequence[t.Resource]
    templates: Sequence[t.ResourceTemplate]

    def plain(self) -> dict[str, Any]:
        """The same for programs, in the words of the protocol."""
        return {
            "tools": self.tools,
            "prompts": self.prompts,
            "resources": self.resources,
            "resourceTemplates": self.templates,
        }


# ---------------------------------------------------------------- one server


class One:
    """One server. A list that it does not have is empty, and no error."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def list_tools(self) -> Sequence[t.Tool]:
        """Its tools."""
        return await self._listed(self.client.capabilities.tools, self.client.list_tools)

    async def list_prompts(self) -> Sequence[t.Prompt]:
        """Its prompts."""
        return await self._listed(self.client.capabilities.prompts, self.client.list_prompts)

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> ToolResult[Any]:
        """Call a tool."""
        return await self.client.call_tool(name, arguments)

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> t.GetPromptResult:
        """The messages of a prompt."""
        return await self.client.get_prompt(name, arguments)

    async def read_resource(self, uri: str) -> t.ReadResourceResult:
        """The contents of a resource."""
        return await self.client.read_resource(uri)

    async def complete(
        self,
        argument: str,
        value: str,
        *,
        prompt: str | None = None,
        template: str | None = None,
        context: Mapping[str, str] | None = None,
    ) -> t.Completion:
        """What an argument of a prompt, or a variable of a template, may become."""
        return await self.client.complete(
            argument, value, prompt=prompt, template=template, context=context
        )

    async def offer(self) -> Offer:
        """Everything that it lists."""
        has = self.client.capabilities.resources
        return Offer(
            await self.list_tools(),
            await self.list_prompts(),
            await self._listed(has, self.client.list_resources),
            await self._listed(has, self.client.list_resource_templates),
        )

    async def _listed(
        self, offered: object, listed: Callable[[], Awaitable[Sequence[T]]]
    ) -> Sequence[T]:
        if offered is None:
            return []
        try:
            return await listed()
        except RemoteError as error:
            # Many a server has resources, and no templates, and says that it knows no such method.
            if error.code == self.client.peer.revision.codes[FaultKind.METHOD_NOT_FOUND]:
                return []
            what = listed.__name__.removeprefix("list_").replace("_", " ")
            error.args = (f"{self.client.name} cannot list its {what}: {error}",)
            raise


# ---------------------------------------------------------------- many servers


class Many:
    """The servers of a configuration, under the names of one catalogue. `server` is the key of
    the one that is meant, where somebody said so."""

    def __init__(
        self,
        host: "Host",
        *,
        server: str = "",
        on_progress: OnProgress | None = None,
        on_log: OnLog | None = None,
    ) -> None:
        self.host = host
        self._server = server or None
        self._on_progress = on_progress
        self._on_log = on_log

    @property
    def problems(self) -> list[HostProblem]:
        """What is wrong, as far as it is known by now; of a server that failed, why, once."""
        failed = self.host.failures
        found = [one for one in self.host.problems if one.server not in failed]
        return found + [
            HostProblem(key, describe_error(error, key)) for key, error in failed.items()
        ]

    def written(self) -> list[tuple[str, str]]:
        """What the servers that we started wrote last: the key of each, and a line."""
        return [(one.key, line) for one in self.host.status() for line in one.stderr]

    async def list_tools(self) -> Sequence[t.Tool]:
        """Every tool. Raises where there is none because a server failed."""
        return self._found(await self.host.list_tools())

    async def list_prompts(self) -> Sequence[t.Prompt]:
        """Every prompt. Raises where there is none because a server failed."""
        return self._found(await self.host.list_prompts())

    def _found(self, listed: Sequence[T]) -> Sequence[T]:
        if not listed:
            for error in self.host.failures.values():
                raise error.with_traceback(None)
        return listed

    async def offers(self) -> dict[str, Offer]:
        """Everything that each server lists, by its key; of those that could be listed."""
        # Side by side, so that each server is started for all of it at once.
        async with asyncio.TaskGroup() as group:
            listing = (
                group.create_task(self.host.list_tools()),
                group.create_task(self.host.list_prompts()),
                group.create_task(self.host.list_resources()),
                group.create_task(self.host.list_resource_templates()),
            )
        tools, prompts = listing[0].result(), listing[1].result()
        resources, templates = listing[2].result(), listing[3].result()
        silent = {one.server for one in self.problems}
        found = {
            key: Offer(
                [one for one in tools if one.server == key],
                [one for one in prompts if one.server == key],
                [one for one in resources if one.server == key],
                [one for one in templates if one.server == key],
            )
            for key in self.host.servers
        }
        return {key: one for key, one in found.items() if any(one) or key not in silent}

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> ToolResult[Any]:
        """Call a tool by its name in the catalogue."""
        return await self.host.call_tool(
            name, arguments, on_progress=self._on_progress, on_log=self._on_log
        )

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> t.GetPromptResult:
        """The messages of a prompt, by its name in the catalogue."""
        return await self.host.get_prompt(name, arguments)

    async def read_resource(self, uri: str) -> t.ReadResourceResult:
        """The contents of a resource, of the server that has it."""
        with _as_typed():
            return await self.host.read_resource(uri, self._server)

    async def complete(
        self,
        argument: str,
        value: str,
        *,
        prompt: str | None = None,
        template: str | None = None,
        context: Mapping[str, str] | None = None,
    ) -> t.Completion:
        """What an argument of a prompt, or a variable of a template, may become."""
        with _as_typed():
            return await self.host.complete(
                argument,
                value,
                prompt=prompt,
                template=template,
                context=context,
                server=self._server if template is not None else None,
            )


@contextlib.contextmanager
def _as_typed() -> Generator[None]:
    """What a host tells a program to write is told as it is typed in a command."""
    try:
        yield
    except RemoteError as error:
        if "server=" not in error.message:
            raise
        words = error.message.replace("server=", "--server KEY")
        raise RemoteError(error.code, words, error.data) from None
