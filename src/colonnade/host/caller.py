"""A host for one caller: `host.caller(name)`.

Rules: each method is one call of the host, with the caller's name.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, overload

from colonnade.client.request import OnLog, OnProgress
from colonnade.client.results import ToolResult
from colonnade.host.agent.loop import Model, Run, RunOptions
from colonnade.host.requests import HostRequests
from colonnade.host.servers.listings import HostPrompt, HostResource, HostResourceTemplate, HostTool
from colonnade.protocol import types as t
from colonnade.providers import openai

if TYPE_CHECKING:  # loaded on use: most calls are no tasks
    from colonnade.host.tasks import HostTask

T = TypeVar("T")


class ModelCallOptions(TypedDict, total=False):
    """The options of a tool call of a model, as with `Host.call_openai`."""

    timeout_s: float | None
    on_progress: OnProgress | None


class CallOptions(ModelCallOptions, total=False):
    """The options of a tool call, as with `Host.call_tool`."""

    on_log: OnLog | None
    meta: Mapping[str, Any] | None


class HostCaller:
    """The tools, prompts and resources of a host, for one caller: what `host.caller(name)` returns.

    Each method is that of `Host`, with `caller=name`.
    """

    def __init__(self, host: HostRequests, name: str) -> None:
        self._host = host
        self._name = name

    def __repr__(self) -> str:
        return f"<HostCaller {self._name!r} of {self._host!r}>"

    async def list_tools(self, *, fresh: bool = False) -> list[HostTool]:
        """See `Host.list_tools`."""
        return await self._host.list_tools(fresh=fresh, caller=self._name)

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: type[T],
        **options: Unpack[CallOptions],
    ) -> ToolResult[T]: ...
    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: Any = None,
        **options: Unpack[CallOptions],
    ) -> ToolResult[Any]: ...
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: Any = None,
        **options: Unpack[CallOptions],
    ) -> ToolResult[Any]:
        """See `Host.call_tool`."""
        return await self._host.call_tool(
            name,
            arguments,
            returns=returns,
            caller=self._name,
            **options,
        )

    async def start_task(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
        on_log: OnLog | None = None,
    ) -> "HostTask":
        """See `Host.start_task`."""
        return await self._host.start_task(
            name,
            arguments,
            caller=self._name,
            timeout_s=timeout_s,
            on_progress=on_progress,
            on_log=on_log,
        )

    def resume_task(
        self, handle: str, server: str, *, on_progress: OnProgress | None = None
    ) -> "HostTask":
        """See `Host.resume_task`."""
        return self._host.resume_task(handle, server, caller=self._name, on_progress=on_progress)

    async def tasks(self, *, refresh: bool = True) -> "list[HostTask]":
        """See `Host.tasks`."""
        return await self._host.tasks(caller=self._name, refresh=refresh)

    async def connect_url(self, server: str) -> str | None:
        """See `Host.connect_url`."""
        return await self._host.connect_url(server, caller=self._name)

    async def search(self, words: str, limit: int = 5) -> list[HostTool]:
        """See `Host.search`."""
        return await self._host.search(words, limit, caller=self._name)

    async def run(
        self, model: Model, messages: str | Iterable[object], **options: Unpack[RunOptions]
    ) -> Run:
        """See `Host.run`."""
        options["caller"] = self._name
        return await self._host.run(model, messages, **options)

    async def to_openai(self, api: openai.Api = "chat", *, strict: bool = True) -> list[Any]:
        """See `Host.to_openai`."""
        return await self._host.to_openai(api, strict=strict, caller=self._name)

    async def to_anthropic(self, *, strict: bool = False) -> list[Any]:
        """See `Host.to_anthropic`."""
        return await self._host.to_anthropic(strict=strict, caller=self._name)

    async def call_openai(
        self, tool_call: object, **options: Unpack[ModelCallOptions]
    ) -> ToolResult[Any]:
        """See `Host.call_openai`."""
        return await self._host.call_openai(tool_call, caller=self._name, **options)

    async def call_anthropic(
        self, tool_use: object, **options: Unpack[ModelCallOptions]
    ) -> ToolResult[Any]:
        """See `Host.call_anthropic`."""
        return await self._host.call_anthropic(tool_use, caller=self._name, **options)

    async def list_prompts(self, *, fresh: bool = False) -> list[HostPrompt]:
        """See `Host.list_prompts`."""
        return await self._host.list_prompts(fresh=fresh, caller=self._name)

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout_s: float | None = None,
        untouched: bool = False,
    ) -> t.GetPromptResult:
        """See `Host.get_prompt`."""
        return await self._host.get_prompt(
            name, arguments, caller=self._name, timeout_s=timeout_s, untouched=untouched
        )

    async def list_resources(self, *, fresh: bool = False) -> list[HostResource]:
        """See `Host.list_resources`."""
        return await self._host.list_resources(fresh=fresh, caller=self._name)

    async def list_resource_templates(self, *, fresh: bool = False) -> list[HostResourceTemplate]:
        """See `Host.list_resource_templates`."""
        return await self._host.list_resource_templates(fresh=fresh, caller=self._name)

    async def read_resource(
        self,
        uri: str,
        server: str | None = None,
        *,
        timeout_s: float | None = None,
        untouched: bool = False,
    ) -> t.ReadResourceResult:
        """See `Host.read_resource`."""
        return await self._host.read_resource(
            uri, server, caller=self._name, timeout_s=timeout_s, untouched=untouched
        )

    async def complete(
        self,
        argument: str,
        value: str = "",
        *,
        prompt: str | None = None,
        template: str | None = None,
        context: Mapping[str, str] | None = None,
        server: str | None = None,
    ) -> t.Completion:
        """See `Host.complete`."""
        return await self._host.complete(
            argument,
            value,
            prompt=prompt,
            template=template,
            context=context,
            server=server,
            caller=self._name,
        )
