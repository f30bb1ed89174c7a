"""The tasks of one server: what its tools, its methods and its life have to do with them.

Rules: made for the first tool with `task=`; a server without one never loads this.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from colonnade.errors import ChannelError
from colonnade.ports import Handler, Middleware, RequestContext, Seal, Store, stack
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.exchange import CallerLost, check_task_support
from colonnade.protocol.jsonrpc import is_bare_call
from colonnade.protocol.negotiation import Callers
from colonnade.protocol.revision import Tasks
from colonnade.server.extensions import Extension
from colonnade.server.notifications import SubjectParams
from colonnade.server.registry import Registry, RunTool, ToolEntry
from colonnade.server.tasks.calls import TaskCalls
from colonnade.server.tasks.methods import TaskMethods
from colonnade.server.tasks.notifications import SessionFollowers, TaskFeed
from colonnade.server.tasks.options import TaskOptions, TaskTool
from colonnade.server.tasks.runner import TaskRunner
from colonnade.server.tasks.storage import TaskStorage, store_lost

PROCESS_BYTES = 8


class TasksExtension(Extension):
    """`io.modelcontextprotocol/tasks`, and the tasks of 2025-11-25, which have the same methods."""

    is_shared = False  # the outer server runs the tasks of mounted tools itself

    def declare(self, capabilities: t.ServerCapabilities, callers: Callers) -> t.ServerCapabilities:
        """Declare both generations; each revision is sent its own. Callers that are not
        distinguished get no list (R0580)."""
        declared = super().declare(capabilities, callers)
        requests = t.ServerTaskRequests(tools=t.TasksOfTools(call={}))
        listing: dict[str, Any] | None = None if callers is Callers.ANONYMOUS else {}
        tasks = t.ServerTasksCapability(listing=listing, cancel={}, requests=requests)
        return replace(declared, tasks=tasks)


class ServerTasks:
    """The tasks of one server, and of those that are mounted in it."""

    def __init__(
        self,
        name: str,
        store: Callable[[], Store],
        clock: Callable[[], float],
        tools: Registry[ToolEntry],
        options: TaskOptions,
        seal: Callable[[], Seal | None],
    ) -> None:
        process = secrets.token_hex(PROCESS_BYTES)
        self._tools = tools
        self._options = options
        self._storage = TaskStorage(store, clock, name, process, seal)
        self._followers = SessionFollowers(self._storage, tools.get)
        self._runner = TaskRunner(
            self._storage, tools.get, options, self._followers.notify, process, name
        )
        self._calls = TaskCalls(self._storage, self._runner, options)
        self.methods: TaskMethods = TaskMethods(
            self._storage, self._runner, tools.get, self._followers.follow
        )
        self._followers.on_input_required = self.methods.unclaimed.offer
        self._loop: asyncio.AbstractEventLoop | None = None

    # ------------------------------------------------------------ start and stop

    def start(self) -> None:
        """Run tasks from now on."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            self._storage.listen()
            self._runner.start()
            self._calls.start()

    def limit_running(self, max_running: int) -> None:
        """Run so many tasks at once, from the next start on."""
        self._runner.max_running = max_running

    def drain(self) -> None:
        """Give running tasks back, so that another process goes on with them."""
        self._runner.drain()

    async def stop(self) -> None:
        """Give running tasks back, and wait until that is done."""
        if self._loop is asyncio.get_running_loop():
            self._loop = None
            await self._runner.stop()
            self._followers.close()
            self.methods.unclaimed.close()
            await self._storage.stop()

    # ------------------------------------------------------------ what the server registers

    def handler(self, tool: TaskTool) -> RunTool:
        """The handler of a tool that can run as a task."""

        async def run(request: RequestContext, params: t.CallToolRequestParams) -> t.ProtocolType:
            result, record = await self._calls.run(tool, request, params)
            if record is not None:
                self._followers.follow(request, record)
            return result

        return run

    def extension(self) -> Extension:
        """The extension with the methods of both generations."""
        extension = TasksExtension(t.TASKS_EXTENSION_ID)
        methods, limits = self.methods, self._limits()
        handlers: dict[str, Handler] = {
            "tasks/get": methods.get,
            "tasks/update": methods.update,
            "tasks/cancel": methods.cancel,
            "tasks/result": methods.result,
            "tasks/list": methods.list,
        }
        for name, handler in handlers.items():
            extension.handle(name, stack(handler, [*limits, _refuse_without_store]))
        return extension

    def _limits(self) -> list[Middleware]:
        if self._options.requests_per_s is None:
            return []
        from colonnade.middleware import rate_limit

        return [rate_limit(self._options.requests_per_s)]

    def check_call(self, request: RequestContext, call_next: Handler) -> Awaitable[t.ProtocolType]:
        """Middleware of `tools/call`: refuse `task` for a tool that does not run as one (R0506)."""
        exchange = request.exchange
        if exchange.peer.revision.tasks is Tasks.CORE and not is_bare_call(
            exchange.request, exchange.params
        ):
            params = decode_as(t.CallToolRequestParams, exchange.request.params)
            entry = self._tools.get(params.name)
            if entry is not None and entry.task is None:
                check_task_support(exchange, None)
        return call_next(request)

    # ------------------------------------------------------------ subscriptions/listen

    def open_feed(
        self,
        request: RequestContext,
        ids: list[str],
        on_change: Callable[[str, SubjectParams], None],
    ) -> Callable[[], None]:
        """Call `on_change` with the state of these tasks until the returned function is called."""
        feed = TaskFeed(self._storage, self.methods, request, on_change)
        feed.open(ids)
        return feed.close


async def _refuse_without_store(request: RequestContext, call_next: Handler) -> t.ProtocolType:
    """Middleware of requests about tasks: 503 if the store does not respond."""
    try:
        return await call_next(request)
    except CallerLost:
        raise
    except ChannelError as error:
        raise store_lost() from error
