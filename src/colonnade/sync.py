"""The synchronous client: the same names, and every call blocks.

    from colonnade.sync import connect

    with connect("server.py") as client:
        client.call_tool("add", {"a": 1, "b": 2}).data

It is the asynchronous client in an event loop of its own, in a thread of its own: so it works in
notebooks, where a loop is already running, in plain tests, and in several threads at once. The
thread runs as long as a client is connected; clients that were not closed are closed at exit.

Rules: this module only waits. A call that is interrupted is cancelled, and the server is notified.
A callback runs in a thread of its own, so that it may block, and may use the client.
"""

import asyncio
import atexit
import inspect
import os
import threading
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
)
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, overload

from msgspec import Raw

from colonnade.client.cache import MAX_LIST_BYTES, MAX_LIST_ITEMS
from colonnade.client.client import Client, Completer, OnLog, OnProgress
from colonnade.client.connect import PING_S, GivenHeaders, Target
from colonnade.client.connect import connect as connect_in_loop
from colonnade.client.input_callbacks import OnElicit, OnSample
from colonnade.client.results import ToolResult
from colonnade.client.roots import GivenRoots, RootInputs
from colonnade.client.subscriptions import Change
from colonnade.client.tools import ListedTool
from colonnade.client.transports import OnStderr
from colonnade.errors import ConnectionLost, LocalProtocolError
from colonnade.ports import InputResponder
from colonnade.protocol import types as t
from colonnade.protocol.input_requests import InputCapabilities
from colonnade.protocol.link.link import TIMEOUT_S
from colonnade.transport.process.sandbox import GivenSandbox

if TYPE_CHECKING:
    from colonnade.auth.client.login import Auth
    from colonnade.client.extensions import OnExtensionNotification
    from colonnade.client.tasks.task import ClientTask
    from colonnade.protocol.forwarded import ResultOrigin
    from colonnade.protocol.tasks.client import TaskState
    from colonnade.telemetry.telemetry import Telemetry

__all__ = ["Changes", "SyncClient", "SyncCompleter", "SyncTask", "connect"]

# Concurrent callbacks: there is one user, and notifications come in order.
HANDLERS = 8
# For the cancellation of an interrupted call to be sent.
CANCEL_S = 5.0
# How late an interrupt may be seen.
SLICE_S = 1.0

T = TypeVar("T")


# ---------------------------------------------------------------- the loop


def _result(future: Future[T]) -> T:
    """The result of a future. An interrupt just before the wait is seen at the next slice."""
    while True:
        try:
            return future.result(SLICE_S)
        except TimeoutError:
            if future.done():
                return future.result()


class _Thread:
    """An event loop in a thread, as long as a client uses it."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.new_event_loop()
        self.pid: int = os.getpid()
        self.needed_by = 0
        self.handlers: ThreadPoolExecutor = ThreadPoolExecutor(HANDLERS, "colonnade.sync handler")
        self._thread = threading.Thread(target=self._run, name="colonnade.sync", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            self.loop.run_until_complete(_cancel_all())
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            self.loop.close()

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and wait for it; an interrupt cancels it."""
        if threading.current_thread() is self._thread or self.pid != os.getpid():
            work.close()
            raise LocalProtocolError(
                "a synchronous client cannot be used in its own event loop thread or after a fork; "
                "use the asynchronous client, or connect after the fork"
            )
        job = _Job(work)
        try:
            return _result(asyncio.run_coroutine_threadsafe(job.run(), self.loop))
        except CancelledError:
            raise ConnectionLost("the client was closed") from None
        except BaseException:
            job.cancel(self.loop)  # does nothing if the job itself raised
            raise

    def stop(self) -> None:
        """A client is closed: stop the loop with the last one."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(CANCEL_S)
        self.handlers.shutdown(wait=False)

    def in_thread(self, handler: Callable[..., T] | None) -> Callable[..., Any] | None:
        """A blocking callback as an asynchronous one."""
        if handler is None or inspect.iscoroutinefunction(handler):
            return handler
        callback: Callable[..., T] = handler

        async def run_in_thread(*arguments: Any) -> Any:
            # In this context, so that a call from there is known to come from a callback.
            run = partial(copy_context().run, callback, *arguments)
            result = await self.loop.run_in_executor(self.handlers, run)
            # A callable object, or a wrapper of a function, may be `async` all the same.
            return await result if inspect.isawaitable(result) else result

        return run_in_thread


class _Job(Generic[T]):
    """A coroutine that a thread waits for. The wait may be interrupted at any moment, also before
    the coroutine has started."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False
        self._done = threading.Event()

    async def run(self) -> T:
        self._task = asyncio.current_task()
        try:
            if self._cancelled:
                self._work.close()
                raise asyncio.CancelledError
            return await self._work
        finally:
            self._done.set()

    def cancel(self, loop: asyncio.AbstractEventLoop) -> None:
        """The wait was interrupted: cancel it, and wait for its end."""
        self._cancelled = True
        if self._task is not None and not self._done.is_set():
            loop.call_soon_threadsafe(self._task.cancel)
            self._done.wait(CANCEL_S)


async def _cancel_all() -> None:
    """Cancel what still runs: the client was closed while other threads waited."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=CANCEL_S)


_lock = threading.Lock()
_current: _Thread | None = None


def _acquire_thread() -> _Thread:
    global _current
    with _lock:
        if _current is None or _current.pid != os.getpid():
            _current = _Thread()
        _current.needed_by += 1
        return _current


def _release_thread(thread: _Thread) -> None:
    global _current
    with _lock:
        thread.needed_by -= 1
        if thread.needed_by:
            return
        if _current is thread:
            _current = None
    thread.stop()


_open: "set[SyncClient]" = set()


@atexit.register
def _close_all() -> None:
    for client in list(_open):
        with suppress(Exception):  # no caller is left to raise it to
            client.close()


# ---------------------------------------------------------------- the client


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
    sandbox: GivenSandbox = None,
    name: str | None = None,
    version: str | None = None,
    title: str | None = None,
    server_name: str | None = None,
    sample_tools: bool = False,
    sample_context: bool = False,
    extensions: Mapping[str, Mapping[str, Any]] | None = None,
    tasks: bool = True,
    telemetry: "bool | Telemetry" = False,
    ping_s: float | None = PING_S,
    max_list_bytes: int = MAX_LIST_BYTES,
    max_list_items: int = MAX_LIST_ITEMS,
) -> "SyncClient":
    """Connect to a server and return an open client: `with connect(…) as client`.

    The arguments are those of `colonnade.connect`. Callbacks may block.
    """
    thread = _acquire_thread()
    try:
        pending = connect_in_loop(
            target,
            headers=headers,
            auth=auth,
            timeout_s=timeout_s,
            on_elicit=thread.in_thread(on_elicit),
            on_sample=thread.in_thread(on_sample),
            on_log=thread.in_thread(on_log),
            on_progress=thread.in_thread(on_progress),
            on_stderr=thread.in_thread(on_stderr),
            roots=thread.in_thread(roots) if callable(roots) else roots,
            revision=revision,
            env=env,
            cwd=cwd,
            sandbox=sandbox,
            name=name,
            version=version,
            title=title,
            server_name=server_name,
            sample_tools=sample_tools,
            sample_context=sample_context,
            extensions=extensions,
            tasks=tasks,
            telemetry=telemetry,
            ping_s=ping_s,
            max_list_bytes=max_list_bytes,
            max_list_items=max_list_items,
        )

        async def open_client() -> Client:
            return await pending

        return SyncClient(thread.wait_for(open_client()), thread)
    except BaseException:
        _release_thread(thread)
        raise


class SyncClient:
    """A synchronous client of one server. See `colonnade.Client`."""

    def __init__(self, client: Client, thread: _Thread) -> None:
        self._client = client
        self._thread = thread
        self._closing = threading.Lock()
        self._closed = False
        _open.add(self)

    def __enter__(self) -> "SyncClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.name!r})"

    def close(self, why: str = "the client was closed") -> None:
        """Close the connection; from any thread, and more than once."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        _open.discard(self)
        try:
            self._thread.wait_for(self._client.close(why))
        finally:
            _release_thread(self._thread)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        if self._closed:
            work.close()
            raise ConnectionLost("the client was closed")
        return self._thread.wait_for(work)

    # ------------------------------------------------------------ the server

    @property
    def name(self) -> str:
        """The name of this server in errors."""
        return self._client.name

    @property
    def revision(self) -> str:
        """The negotiated revision."""
        return self._client.revision

    @property
    def server(self) -> t.Implementation | None:
        """The name and version of the server: for display and logs, never for decisions."""
        return self._client.server

    @property
    def capabilities(self) -> t.ServerCapabilities:
        """The capabilities of the server."""
        return self._client.capabilities

    @property
    def instructions(self) -> str | None:
        """The instructions of the server."""
        return self._client.instructions

    # ------------------------------------------------------------ tools

    def list_tools(
        self, *, fresh: bool = False, pages: list[Raw] | None = None
    ) -> list[ListedTool]:
        """List all tools, from all pages."""
        return self._wait(self._client.list_tools(fresh=fresh, pages=pages))

    @overload
    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: type[T],
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> ToolResult[T]: ...
    @overload
    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: Any = None,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> ToolResult[Any]: ...
    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: Any = None,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> ToolResult[Any]:
        """Call a tool. An error of the tool is a result; a protocol error is raised."""
        callback = self._thread.in_thread(on_progress)
        return self._wait(
            self._client.call_tool(
                name, arguments, returns=returns, timeout_s=timeout_s, on_progress=callback
            )
        )

    def start_task(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> "SyncTask":
        """Call a tool and return as soon as it runs as a task."""
        callback = self._thread.in_thread(on_progress)
        task = self._client.start_task(name, arguments, timeout_s=timeout_s, on_progress=callback)
        return SyncTask(self._wait(task), self._wait)

    def resume_task(
        self,
        handle: str,
        *,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
        answers: InputResponder | None = None,
    ) -> "SyncTask":
        """The task of a handle, which `task.handle` returned here or in another process;
        `answers` runs in the event loop."""
        callback = self._thread.in_thread(on_progress)

        async def resume() -> "ClientTask":  # a task belongs to the event loop
            return self._client.resume_task(
                handle, timeout_s=timeout_s, on_progress=callback, answers=answers
            )

        return SyncTask(self._wait(resume()), self._wait)

    def call_openai(
        self,
        tool_call: object,
        *,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> ToolResult[Any]:
        """Run a tool call of an OpenAI model; send back `result.to_openai()`."""
        callback = self._thread.in_thread(on_progress)
        call = self._client.call_openai(tool_call, timeout_s=timeout_s, on_progress=callback)
        return self._wait(call)

    def call_anthropic(
        self,
        tool_use: object,
        *,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> ToolResult[Any]:
        """Run a tool call of an Anthropic model; send back `result.to_anthropic()`."""
        callback = self._thread.in_thread(on_progress)
        call = self._client.call_anthropic(tool_use, timeout_s=timeout_s, on_progress=callback)
        return self._wait(call)

    # ------------------------------------------------------------ resources

    def list_resources(
        self, *, fresh: bool = False, pages: list[Raw] | None = None
    ) -> list[t.Resource]:
        """List all resources, from all pages."""
        return self._wait(self._client.list_resources(fresh=fresh, pages=pages))

    def list_resource_templates(
        self, *, fresh: bool = False, pages: list[Raw] | None = None
    ) -> list[t.ResourceTemplate]:
        """List all resource templates, from all pages."""
        return self._wait(self._client.list_resource_templates(fresh=fresh, pages=pages))

    def read_resource(
        self, uri: str, *, timeout_s: float | None = None, fresh: bool = False
    ) -> t.ReadResourceResult:
        """The contents of a resource."""
        return self._wait(self._client.read_resource(uri, timeout_s=timeout_s, fresh=fresh))

    def subscribe(self, uri: str) -> None:
        """Subscribe to a resource, in revisions with sessions; `listen` works in all."""
        self._wait(self._client.subscribe(uri))

    def unsubscribe(self, uri: str) -> None:
        """Unsubscribe from a resource."""
        self._wait(self._client.unsubscribe(uri))

    # ------------------------------------------------------------ prompts and completions

    def list_prompts(
        self, *, fresh: bool = False, pages: list[Raw] | None = None
    ) -> list[t.Prompt]:
        """List all prompts, from all pages."""
        return self._wait(self._client.list_prompts(fresh=fresh, pages=pages))

    def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> t.GetPromptResult:
        """The messages of a prompt."""
        return self._wait(self._client.get_prompt(name, arguments, timeout_s=timeout_s))

    def complete(
        self,
        argument: str,
        value: str = "",
        *,
        prompt: str | None = None,
        template: str | None = None,
        context: Mapping[str, str] | None = None,
    ) -> t.Completion:
        """Completions of an argument of a prompt, or of a variable of a template."""
        return self._wait(
            self._client.complete(
                argument, value, prompt=prompt, template=template, context=context
            )
        )

    def completer(
        self,
        argument: str,
        *,
        prompt: str | None = None,
        template: str | None = None,
        context: Mapping[str, str] | None = None,
    ) -> "SyncCompleter":
        """Completion while a user types: debounced and cached."""
        completer = self._client.completer(
            argument, prompt=prompt, template=template, context=context
        )
        return SyncCompleter(completer, self._wait)

    @overload
    def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        extension: str,
        returns: type[T],
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> T: ...
    @overload
    def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        extension: str,
        returns: None = None,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> dict[str, Any]: ...
    def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        extension: str,
        returns: Any = None,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> Any:
        """Send a request of an extension that both sides declared, and return its result."""
        return self._wait(
            self._client.request(
                method,
                params,
                extension=extension,
                returns=returns,
                timeout_s=timeout_s,
                on_progress=self._thread.in_thread(on_progress),
            )
        )

    def add_notification_handler(
        self, method: str, handler: "OnExtensionNotification", *, extension: str
    ) -> None:
        """Call a function with the params of each notification of an extension; it may block."""
        callback = self._thread.in_thread(handler)
        assert callback is not None
        self._client.add_notification_handler(method, callback, extension=extension)

    def ask(
        self,
        method: str,
        params: t.RequestParams,
        *,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
        answers: InputResponder | None = None,
        principal: str = "",
        log_level: t.LoggingLevel | None = None,
        wants_task: bool = False,
        on_task: "Callable[[ClientTask], Awaitable[bool]] | None" = None,
        origin: "ResultOrigin | None" = None,
        declared: InputCapabilities | None = None,
        relay: bool = False,
        relay_errors: bool = False,
        headers: Mapping[bytes, bytes] | None = None,
    ) -> t.ProtocolType:
        """Send any request and return the protocol's result; `answers` and `on_task` run in the
        event loop."""
        return self._wait(
            self._client.ask(
                method,
                params,
                timeout_s=timeout_s,
                on_progress=self._thread.in_thread(on_progress),
                answers=answers,
                principal=principal,
                log_level=log_level,
                wants_task=wants_task,
                on_task=on_task,
                origin=origin,
                declared=declared,
                relay=relay,
                relay_errors=relay_errors,
                headers=headers,
            )
        )

    # ------------------------------------------------------------ the connection

    def ping(self) -> None:
        """Check whether the server responds."""
        self._wait(self._client.ping())

    def set_log_level(self, level: t.LoggingLevel) -> None:
        """Set the minimum level of the server's log messages."""
        self._wait(self._client.set_log_level(level))

    def roots_changed(self, roots: RootInputs | None = None) -> None:
        """Notify the server that the roots have changed: to these, or what the callback returns."""
        self._wait(self._client.roots_changed(roots))

    @contextmanager
    def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resource_list: bool = False,
        resources: Iterable[str] = (),
    ) -> Generator["Changes"]:
        """Notifications of changed lists and of these resources, from the moment this is entered.

        >>> with client.listen(tools=True) as changes:
        ...     for change in changes: ...
        """
        subscription = self._client.listen(
            tools=tools, prompts=prompts, resource_list=resource_list, resources=resources
        )
        changes = self._wait(subscription.__aenter__())
        try:
            yield Changes(changes, self._wait)
        finally:
            if not self._closed:
                self._wait(subscription.__aexit__(None, None, None))


Wait: TypeAlias = Callable[[Coroutine[Any, Any, Any]], Any]


class SyncCompleter:
    """Completes one argument: `completer("par")`, from any thread."""

    def __init__(self, completer: Completer, wait: Wait) -> None:
        self._completer = completer
        self._wait = wait

    def __call__(self, value: str) -> t.Completion | None:
        """The completions of a value; None if a newer value was requested in the meantime."""
        found: t.Completion | None = self._wait(self._completer(value))
        return found


class SyncTask:
    """A task of a server: iterate over its states, or wait for its `result`. See
    `colonnade.ClientTask`."""

    def __init__(self, task: "ClientTask", wait: Wait) -> None:
        self._task = task
        self._wait = wait

    def __repr__(self) -> str:
        return repr(self._task)

    def __iter__(self) -> "Generator[TaskState]":
        """Its states, from the present one to the last."""
        states = aiter(self._task)
        while (state := self._wait(_next(states))) is not None:
            yield state

    @property
    def tool(self) -> str:
        """The name of the tool."""
        return self._task.tool

    @property
    def immediate_response(self) -> str | None:
        """The text for a model until there is a result, if the server sent one."""
        return self._task.immediate_response

    @property
    def handle(self) -> str | None:
        """The task as one string, for `client.resume_task`; None without a task."""
        return self._task.handle

    @property
    def state(self) -> "TaskState | None":
        """The state as it was last received; None if it was not yet."""
        return self._task.state

    @property
    def status(self) -> t.TaskStatus | None:
        """The status as it was last received; None if it was not yet."""
        return self._task.status

    @property
    def message(self) -> str | None:
        """What the server says about the status."""
        return self._task.message

    @property
    def done(self) -> bool:
        """Whether the task has ended, as far as is known."""
        return self._task.done

    @overload
    def result(self, *, returns: type[T]) -> ToolResult[T]: ...
    @overload
    def result(self, *, returns: Any = None) -> ToolResult[Any]: ...
    def result(self, *, returns: Any = None) -> ToolResult[Any]:
        """Wait for the result, which is that of `call_tool`."""
        found: ToolResult[Any] = self._wait(self._task.result(returns=returns))
        return found

    def refresh(self) -> "TaskState | None":
        """Ask for the present state once, and return it."""
        state: TaskState | None = self._wait(self._task.refresh())
        return state

    def respond(self) -> bool:
        """Respond to the input requests that the task waits for now; False if there are none."""
        return bool(self._wait(self._task.respond()))

    def cancel(self) -> None:
        """Cancel the task."""
        self._wait(self._task.cancel())


class Changes:
    """Iterates over changes: `for change in changes`. Ends when the server ends it."""

    def __init__(self, changes: AsyncIterator[Change], wait: Wait) -> None:
        self._changes = changes
        self._wait = wait

    def __iter__(self) -> "Changes":
        return self

    def __next__(self) -> Change:
        change: Change | None = self._wait(_next(self._changes))
        if change is None:
            raise StopIteration
        return change


async def _next(items: AsyncIterator[T]) -> T | None:
    return await anext(items, None)
