"""The client for programs without a loop: the same names, and every call waits.

    from colonnade.sync import connect

    with connect("server.py") as client:
        client.call_tool("add", {"a": 1, "b": 2}).data

It is the same client, in a loop of its own in a thread of its own: so it works in notebooks, where
a loop runs already, in plain tests, and in many threads at once. The thread is there for as long as
somebody is connected; whoever forgets to close is closed at exit.

Rules: nothing is decided here, only waited for. What is interrupted is cancelled, and the server
learns so. A handler runs in a thread of its own, so that it may block, and may use the client.
"""

import asyncio
import atexit
import inspect
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, overload

from colonnade.client.cache import MAX_LIST_BYTES, MAX_LIST_ITEMS
from colonnade.client.client import Client as AsyncClient
from colonnade.client.client import Completer as AsyncCompleter
from colonnade.client.client import OnLog, OnProgress
from colonnade.client.connect import PING_S, GivenHeaders, Target
from colonnade.client.connect import connect as connect_in_loop
from colonnade.client.input_callbacks import Answering, OnElicit, OnSample
from colonnade.client.results import ToolResult
from colonnade.client.roots import GivenRoots, Rooted
from colonnade.client.subscriptions import Change
from colonnade.client.tools import Tool
from colonnade.client.transports import OnStderr
from colonnade.errors import ConnectionLost, LocalProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.link.link import TIMEOUT_S

if TYPE_CHECKING:
    from colonnade.auth.client.login import Auth

__all__ = ["Changes", "Client", "Completer", "connect"]

# Handlers at work at the same time: there is one user, and news comes in order.
HANDLERS = 8
# For what was interrupted to tell its server so.
FAREWELL_S = 5.0
# How long an interrupt may go unseen.
SLICE_S = 1.0

T = TypeVar("T")


# ---------------------------------------------------------------- the loop


def _result(future: Future[T]) -> T:
    """What comes of it. An interrupt that comes just before the wait begins is seen by the next."""
    while True:
        try:
            return future.result(SLICE_S)
        except TimeoutError:
            if future.done():
                return future.result()


class _Thread:
    """A loop in a thread, for as long as somebody needs it."""

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
        """What comes of this in the loop. Interrupting cancels it, and waits for that."""
        if threading.current_thread() is self._thread or self.pid != os.getpid():
            work.close()
            raise LocalProtocolError(
                "this client waits in a thread that cannot wait for itself, or was left behind by "
                "a fork; use the asynchronous one here, or connect after the fork"
            )
        job = _Job(work)
        try:
            return _result(asyncio.run_coroutine_threadsafe(job.run(), self.loop))
        except CancelledError:
            raise ConnectionLost("the client was closed") from None
        except BaseException:
            job.cancel(self.loop)  # nothing where it was the job itself that raised
            raise

    def stop(self) -> None:
        """Nobody needs it any more."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(FAREWELL_S)
        self.handlers.shutdown(wait=False)

    def in_thread(self, handler: Callable[..., T] | None) -> Callable[..., Any] | None:
        """A handler that blocks, as one that the loop can wait for."""
        if handler is None or inspect.iscoroutinefunction(handler):
            return handler
        asked: Callable[..., T] = handler

        async def called(*news: Any) -> Any:
            # In this context, so that a call from there is known to come from a handler.
            handle = partial(copy_context().run, asked, *news)
            made = await self.loop.run_in_executor(self.handlers, handle)
            # An object that is called, or a function around one, may be `async` all the same.
            return await made if inspect.isawaitable(made) else made

        return called


class _Job(Generic[T]):
    """Something that a thread waits for. It may be interrupted at any moment, also before this
    has begun."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._task: asyncio.Task[Any] | None = None
        self._unwanted = False
        self._over = threading.Event()

    async def run(self) -> T:
        self._task = asyncio.current_task()
        try:
            if self._unwanted:
                self._work.close()
                raise asyncio.CancelledError
            return await self._work
        finally:
            self._over.set()

    def cancel(self, loop: asyncio.AbstractEventLoop) -> None:
        """Nobody waits any more: let it come to its end."""
        self._unwanted = True
        if self._task is not None and not self._over.is_set():
            loop.call_soon_threadsafe(self._task.cancel)
            self._over.wait(FAREWELL_S)


async def _cancel_all() -> None:
    """End what is still at work: somebody closed while others waited."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=FAREWELL_S)


_lock = threading.Lock()
_current: _Thread | None = None


def _join() -> _Thread:
    global _current
    with _lock:
        if _current is None or _current.pid != os.getpid():
            _current = _Thread()
        _current.needed_by += 1
        return _current


def _part(thread: _Thread) -> None:
    global _current
    with _lock:
        thread.needed_by -= 1
        if thread.needed_by:
            return
        if _current is thread:
            _current = None
    thread.stop()


_open: "set[Client]" = set()


@atexit.register
def _close_all() -> None:
    for client in list(_open):
        with suppress(Exception):  # there is nobody left to tell
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
    name: str | None = None,
    version: str | None = None,
    title: str | None = None,
    server_name: str | None = None,
    sample_tools: bool = False,
    sample_context: bool = False,
    ping_s: float | None = PING_S,
    max_list_bytes: int = MAX_LIST_BYTES,
    max_list_items: int = MAX_LIST_ITEMS,
) -> "Client":
    """A client of a server, open already: `with connect(…) as client`, or `client.close()`.

    All of it is as in `colonnade.connect`. Handlers may block.
    """
    thread = _join()
    try:
        connecting = connect_in_loop(
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
            name=name,
            version=version,
            title=title,
            server_name=server_name,
            sample_tools=sample_tools,
            sample_context=sample_context,
            ping_s=ping_s,
            max_list_bytes=max_list_bytes,
            max_list_items=max_list_items,
        )

        async def opened() -> AsyncClient:
            return await connecting

        return Client(thread.wait_for(opened()), thread)
    except BaseException:
        _part(thread)
        raise


class Client:
    """One server, as a program sees it that waits for every answer. See `colonnade.Client`."""

    def __init__(self, client: AsyncClient, thread: _Thread) -> None:
        self._client = client
        self._thread = thread
        self._closing = threading.Lock()
        self._closed = False
        _open.add(self)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.name!r})"

    def close(self, why: str = "the client was closed") -> None:
        """End the conversation. At any time, in any thread, and twice."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        _open.discard(self)
        try:
            self._thread.wait_for(self._client.close(why))
        finally:
            _part(self._thread)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        if self._closed:
            work.close()
            raise ConnectionLost("the client was closed")
        return self._thread.wait_for(work)

    # ------------------------------------------------------------ who is there

    @property
    def name(self) -> str:
        """What this server is called in errors."""
        return self._client.name

    @property
    def revision(self) -> str:
        """The revision that the two speak."""
        return self._client.revision

    @property
    def server(self) -> t.Implementation | None:
        """What the server says it is: for people and logs, never for decisions."""
        return self._client.server

    @property
    def capabilities(self) -> t.ServerCapabilities:
        """What the server offered when it was last asked."""
        return self._client.capabilities

    @property
    def instructions(self) -> str | None:
        """What the server says of its use."""
        return self._client.instructions

    # ------------------------------------------------------------ tools

    def list_tools(self, *, fresh: bool = False) -> list[Tool]:
        """Every tool, from all pages."""
        return self._wait(self._client.list_tools(fresh=fresh))

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
        """Call a tool. An error of the tool is a result; one of the protocol is raised."""
        progressed = self._thread.in_thread(on_progress)
        return self._wait(
            self._client.call_tool(
                name, arguments, returns=returns, timeout_s=timeout_s, on_progress=progressed
            )
        )

    def call_openai(
        self,
        tool_call: object,
        *,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> ToolResult[Any]:
        """Make the call that OpenAI's model asks for; `result.to_openai()` answers it."""
        told = self._thread.in_thread(on_progress)
        call = self._client.call_openai(tool_call, timeout_s=timeout_s, on_progress=told)
        return self._wait(call)

    def call_anthropic(
        self,
        tool_use: object,
        *,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> ToolResult[Any]:
        """Make the call that Anthropic's model asks for; `result.to_anthropic()` answers it."""
        told = self._thread.in_thread(on_progress)
        call = self._client.call_anthropic(tool_use, timeout_s=timeout_s, on_progress=told)
        return self._wait(call)

    # ------------------------------------------------------------ resources

    def list_resources(self, *, fresh: bool = False) -> list[t.Resource]:
        """Every resource that has an address of its own, from all pages."""
        return self._wait(self._client.list_resources(fresh=fresh))

    def list_resource_templates(self, *, fresh: bool = False) -> list[t.ResourceTemplate]:
        """Every template of addresses, from all pages."""
        return self._wait(self._client.list_resource_templates(fresh=fresh))

    def read_resource(
        self, uri: str, *, timeout_s: float | None = None, fresh: bool = False
    ) -> t.ReadResourceResult:
        """The contents of a resource."""
        return self._wait(self._client.read_resource(uri, timeout_s=timeout_s, fresh=fresh))

    def subscribe(self, uri: str) -> None:
        """Ask for news of a resource, where the revision has sessions; `listen` works in all."""
        self._wait(self._client.subscribe(uri))

    def unsubscribe(self, uri: str) -> None:
        """Ask for no more news of a resource."""
        self._wait(self._client.unsubscribe(uri))

    # ------------------------------------------------------------ prompts and completions

    def list_prompts(self, *, fresh: bool = False) -> list[t.Prompt]:
        """Every prompt, from all pages."""
        return self._wait(self._client.list_prompts(fresh=fresh))

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
        """What an argument of a prompt, or a variable of a template, may become."""
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
    ) -> "Completer":
        """Completion for somebody who types: asks after a pause, and not twice for the same."""
        completer = self._client.completer(
            argument, prompt=prompt, template=template, context=context
        )
        return Completer(completer, self._wait)

    def ask(
        self,
        method: str,
        params: t.RequestParams,
        *,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
        answers: Answering | None = None,
        principal: str = "",
        log_level: t.LoggingLevel | None = None,
    ) -> t.ProtocolType:
        """The result of any request, as the protocol has it; `answers` are asked in the loop."""
        return self._wait(
            self._client.ask(
                method,
                params,
                timeout_s=timeout_s,
                on_progress=self._thread.in_thread(on_progress),
                answers=answers,
                principal=principal,
                log_level=log_level,
            )
        )

    # ------------------------------------------------------------ the conversation itself

    def ping(self) -> None:
        """See whether the server is there."""
        self._wait(self._client.ping())

    def set_log_level(self, level: t.LoggingLevel) -> None:
        """How much is to be logged from now on."""
        self._wait(self._client.set_log_level(level))

    def roots_changed(self, roots: Rooted | None = None) -> None:
        """Others are the roots now: these, or what the handler says that was given for them."""
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
        """Changes of lists and of these resources, from the moment this is entered.

        >>> with client.listen(tools=True) as changes:
        ...     for change in changes: ...
        """
        listening = self._client.listen(
            tools=tools, prompts=prompts, resource_list=resource_list, resources=resources
        )
        changes = self._wait(listening.__aenter__())
        try:
            yield Changes(changes, self._wait)
        finally:
            if not self._closed:
                self._wait(listening.__aexit__(None, None, None))


Wait: TypeAlias = Callable[[Coroutine[Any, Any, Any]], Any]


class Completer:
    """Completes one argument: `completer("par")`, from as many threads as somebody types in."""

    def __init__(self, completer: AsyncCompleter, wait: Wait) -> None:
        self._completer = completer
        self._wait = wait

    def __call__(self, value: str) -> t.Completion | None:
        """What this may become; None where something newer was asked for meanwhile."""
        found: t.Completion | None = self._wait(self._completer(value))
        return found


class Changes:
    """Changes as they come: `for change in changes`. Ends when the server ends it."""

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


async def _next(changes: AsyncIterator[Change]) -> Change | None:
    return await anext(changes, None)
