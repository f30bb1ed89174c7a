"""What a command talks to: one server, or all servers of a configuration file, in one interface.

Rules: only what the commands use. Of a configuration file, no more servers are started than the
command needs, and an error of one server does not affect the others.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from colonnade.client.client import Client
from colonnade.client.request import OnLog, OnProgress
from colonnade.client.results import ToolResult
from colonnade.errors import Fault, FaultKind, RemoteError
from colonnade.host.config.settings import HostProblem
from colonnade.host.servers.listings import describe_error
from colonnade.protocol import types as t

if TYPE_CHECKING:  # most commands use a single server
    from colonnade.host.host import Host

T = TypeVar("T")


class ServerListing(NamedTuple):
    """Everything that a server lists."""

    tools: Sequence[t.Tool]
    prompts: Sequence[t.Prompt]
    resources: Sequence[t.Resource]
    templates: Sequence[t.ResourceTemplate]

    def to_json(self) -> dict[str, Any]:
        """The same as JSON, with the names of the protocol."""
        return {
            "tools": self.tools,
            "prompts": self.prompts,
            "resources": self.resources,
            "resourceTemplates": self.templates,
        }


# ---------------------------------------------------------------- one server


class SingleServer:
    """A single server. A list that it does not support is empty."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def list_tools(self) -> Sequence[t.Tool]:
        """List its tools."""
        return await self._list_if_offered(self.client.capabilities.tools, self.client.list_tools)

    async def list_prompts(self) -> Sequence[t.Prompt]:
        """List its prompts."""
        offered = self.client.capabilities.prompts
        return await self._list_if_offered(offered, self.client.list_prompts)

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> ToolResult[Any]:
        """Call a tool."""
        return await self.client.call_tool(name, arguments)

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> t.GetPromptResult:
        """Get the messages of a prompt."""
        return await self.client.get_prompt(name, arguments)

    async def read_resource(self, uri: str) -> t.ReadResourceResult:
        """Read the contents of a resource."""
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

    async def list_all(self) -> ServerListing:
        """List everything."""
        has = self.client.capabilities.resources
        return ServerListing(
            await self.list_tools(),
            await self.list_prompts(),
            await self._list_if_offered(has, self.client.list_resources),
            await self._list_if_offered(has, self.client.list_resource_templates),
        )

    async def _list_if_offered(
        self, offered: object, listed: Callable[[], Awaitable[Sequence[T]]]
    ) -> Sequence[T]:
        if offered is None:
            return []
        try:
            return await listed()
        except RemoteError as error:
            # Many servers have resources but no templates, and answer "method not found".
            if error.code == self.client.peer.revision.codes[FaultKind.METHOD_NOT_FOUND]:
                return []
            what = listed.__name__.removeprefix("list_").replace("_", " ")
            error.args = (f"{self.client.name} cannot list its {what}: {error}",)
            raise


# ---------------------------------------------------------------- a configuration file


class ConfiguredServers:
    """The servers of a configuration file, behind one `Host`. `server` is the key of the one that
    was chosen with `--server`, if any."""

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
        """The problems known so far; of a server that failed, only why."""
        failed = self.host.failures
        found = [one for one in self.host.problems if one.server not in failed]
        return found + [
            HostProblem(key, describe_error(error, key)) for key, error in failed.items()
        ]

    def stderr_lines(self) -> list[tuple[str, str]]:
        """The last lines that the servers wrote to stderr, each with the key of its server."""
        return [(one.key, line) for one in self.host.status() for line in one.stderr]

    async def list_tools(self) -> Sequence[t.Tool]:
        """List every tool. Raises if there is none because a server failed."""
        return self._found(await self.host.list_tools())

    async def list_prompts(self) -> Sequence[t.Prompt]:
        """List every prompt. Raises if there is none because a server failed."""
        return self._found(await self.host.list_prompts())

    def _found(self, listed: Sequence[T]) -> Sequence[T]:
        if not listed:
            for error in self.host.failures.values():
                raise error.with_traceback(None)
        return listed

    async def list_all(self) -> dict[str, ServerListing]:
        """List everything of each server, by its key, without the servers that failed."""
        # In parallel, so that each server is started once, for all lists.
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
            key: ServerListing(
                [one for one in tools if one.server == key],
                [one for one in prompts if one.server == key],
                [one for one in resources if one.server == key],
                [one for one in templates if one.server == key],
            )
            for key in self.host.servers
        }
        return {key: one for key, one in found.items() if any(one) or key not in silent}

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> ToolResult[Any]:
        """Call a tool by its name in the host."""
        return await self.host.call_tool(
            name, arguments, on_progress=self._on_progress, on_log=self._on_log
        )

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> t.GetPromptResult:
        """Get the messages of a prompt, by its name in the host."""
        return await self.host.get_prompt(name, arguments)

    async def read_resource(self, uri: str) -> t.ReadResourceResult:
        """Read a resource, from the server that has it."""
        with _server_option_hint():
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
        """Complete an argument of a prompt, or a variable of a template."""
        with _server_option_hint():
            return await self.host.complete(
                argument,
                value,
                prompt=prompt,
                template=template,
                context=context,
                server=self._server if template is not None else None,
            )


@contextlib.contextmanager
def _server_option_hint() -> Generator[None]:
    """Replace the hint of a host, which names an argument of Python, by the option."""
    try:
        yield
    except RemoteError as error:
        if error.hint and isinstance(error.__cause__, Fault):
            error.hint = "choose the server with --server KEY"
        raise
