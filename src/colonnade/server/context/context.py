"""The context of a running handler: progress, logging, elicitation, sampling, roots, the caller.

A handler sends input requests the same way in every revision. In revisions where they are JSON-RPC
requests, it waits for the response. In revisions where they are in an `input_required` result, the
input request ends the exchange: it is recorded, some iterations of the event loop later the
handler's task is cancelled, and what the handler returns is dropped; on the retry it runs again
from the top and finds the responses. The task is cancelled so that `except Exception` cannot catch
it and concurrent input requests make one round. A function in a thread cannot be cancelled: there
the call raises a `BaseException`.

Rules: no context variables. One `Context` for each run.
"""

import asyncio
import contextlib
import inspect
import logging
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast, overload

import msgspec

from colonnade.errors import (
    ChannelError,
    ConnectionLost,
    Fault,
    FaultKind,
    LocalProtocolError,
    RemoteError,
    ToolError,
)
from colonnade.ports import RequestContext, Session, Store
from colonnade.protocol import types as t
from colonnade.protocol.exchange import CallerLost
from colonnade.protocol.input_requests import (
    AnyInputResponse,
    is_supported,
    url_elicitation_required,
)
from colonnade.protocol.input_rounds import InputRounds
from colonnade.protocol.jsonrpc import RequestId, encode, encode_notification
from colonnade.protocol.revision import InputRequests
from colonnade.server.context.ask import (
    Ask,
    AskForm,
    AskUrl,
    InputParameter,
    InputSpec,
    Roots,
    Sample,
    Sampled,
    SamplePrompt,
)
from colonnade.server.handlers.content import clean
from colonnade.server.handlers.threads import Workers
from colonnade.server.hints import attribute_error, with_hints
from colonnade.signatures.signature import ContextMarker

# Progress and log messages of one call: a burst of a few hundred steps, then a steady rate.
BURST = 200
MESSAGES_PER_S = 50.0

if TYPE_CHECKING:
    from colonnade.middleware import TokenBucket
    from colonnade.server.auth import RequestHeaders

log: logging.Logger = logging.getLogger("colonnade.server")

# Iterations of the event loop between an input request and the end of its round: two, so that
# concurrent input requests share the round, and more for a sibling's failure in a TaskGroup.
LOOP_ITERATIONS = 8
# A handler that catches its cancellation is cancelled again after this time.
CLEAN_UP_S = 5.0

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")


class HandlerServer(Protocol):
    """The server of a handler, as far as `Context` uses it."""

    @property
    def workers(self) -> Workers: ...

    @property
    def state(self) -> Any: ...

    @property
    def store(self) -> Store: ...

    @property
    def logs(self) -> bool: ...

    async def read(self, context: "Context", uri: str) -> t.ReadResourceResult: ...


class Context(ContextMarker):
    """The request of a running handler, and the connection to its caller.

    A parameter annotated `Context` gets one; it is not in the input schema. A function that is not
    `async` gets a `BlockingContext`, which has the same methods, without `await`.
    """

    def __init__(self, request: RequestContext, rounds: InputRounds, server: HandlerServer) -> None:
        self._request = request
        self._rounds = rounds
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._root = asyncio.current_task(self._loop)
        self._once_results: dict[str, asyncio.Future[Any]] = {}
        self._waiting: set[asyncio.Future[None]] = set()
        self._threads: set[asyncio.Future[None]] = set()
        self._timer: asyncio.Handle | None = None
        self._rate_limit: TokenBucket | None = None
        self._rate_warned = False
        self._progress_warned = False
        self._cancel_count = 0
        self._pause_count = 0
        self._remaining_s = 0.0
        self.deadline: asyncio.Timeout | None = None
        # The tasks that wait for the response to an input request.
        self.input_tasks: set[asyncio.Task[Any]] = set()
        self.input_requested: bool = False
        self.unwinding: bool = False
        self.finished: bool = False

    if not TYPE_CHECKING:  # a type checker would accept every attribute

        def __getattr__(self, name: str) -> Any:
            raise attribute_error(self, name)

    # ------------------------------------------------------------ the caller

    @property
    def principal(self) -> str:
        """The authenticated caller; empty without authentication."""
        return self._request.exchange.principal

    @property
    def claims(self) -> dict[str, Any]:
        """The claims of the caller's verified token (`sub`, `email`, …), as a copy; empty without
        a token. Over Streamable HTTP only, not on `/sse`."""
        from copy import deepcopy  # on use

        return deepcopy(dict(self._request.claims))

    @property
    def headers(self) -> "RequestHeaders":
        """The headers of the HTTP request, by case-insensitive name; empty without HTTP and on
        `/sse`.

        Credentials are left out: see `principal` and `claims`.
        """
        from colonnade.server.auth import RequestHeaders  # on use

        return RequestHeaders(self._request.headers)

    @property
    def request_id(self) -> RequestId:
        """The JSON-RPC id of the request, chosen by the client; not unique across requests."""
        return self._request.exchange.request.id

    @property
    def client(self) -> t.Implementation | None:
        """The name and version that the client sent: for display and logs, not for decisions."""
        return self._request.exchange.peer.info

    @property
    def capabilities(self) -> t.ClientCapabilities:
        """The declared capabilities of the client."""
        return cast("t.ClientCapabilities", self._request.exchange.peer.capabilities)

    @property
    def revision(self) -> str:
        """The protocol revision of this client."""
        return self._request.exchange.peer.revision.date

    @property
    def session(self) -> Session | None:
        """The session; None in revisions where each request is independent."""
        return self._request.session

    @property
    def current_request(self) -> RequestContext:
        """The request as middleware sees it."""
        return self._request

    @property
    def state(self) -> Any:
        """The value that the server's lifespan yielded."""
        return self._server.state

    # ------------------------------------------------------------ while it runs

    async def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report progress, if the caller requested it; values must increase, others are dropped
        (D32).

        Above a rate limit some are dropped, but never the one that equals `total`.
        """
        exchange, task = self._request.exchange, self._request.task_journal
        if task is not None:
            if progress == total or self._may_send("progress"):
                await task.report_progress(progress, total, message)
            return
        last = exchange.last_progress
        if last is not None and progress <= last:
            self._warn_about_progress(last, progress)
            return
        frame = exchange.progress(progress, total, message)
        if frame is not None and (progress == total or self._may_send("progress")):
            await self._send(frame)

    report_progress = progress  # the name in other libraries

    def _warn_about_progress(self, last: float, progress: float) -> None:
        if not self._progress_warned:
            self._progress_warned = True
            log.warning(
                "%s: progress went from %g to %g; it must increase, and other values are dropped",
                self._request.exchange.params.name or self._request.exchange.method.name,
                last,
                progress,
            )

    @with_hints
    async def log(self, level: t.LoggingLevel, data: Any, logger: str | None = None) -> None:
        """Send a log message, if the caller requested this level. Never log secrets.

        A value that cannot be encoded as JSON is sent as its `str()`; what looks like a credential
        is redacted.
        """
        exchange = self._request.exchange
        if not exchange.logs and not exchange.peer.revision.handshake:
            exchange.logs = self._server.logs  # as currently declared
        if not exchange.wants(level) or not self._may_send("log messages"):
            return
        from colonnade.logs import redact_data  # on use: few servers log

        try:
            frame = exchange.log(level, redact_data(msgspec.to_builtins(data)), logger)
        except (LocalProtocolError, TypeError, ValueError, RecursionError):
            frame = exchange.log(level, redact_data(clean(str(data))), logger)
        await self._send(frame)

    @with_hints
    async def debug(self, data: Any, logger: str | None = None) -> None:
        """Log at this level."""
        await self.log("debug", data, logger)

    @with_hints
    async def info(self, data: Any, logger: str | None = None) -> None:
        """Log at this level."""
        await self.log("info", data, logger)

    @with_hints
    async def notice(self, data: Any, logger: str | None = None) -> None:
        """Log at this level."""
        await self.log("notice", data, logger)

    @with_hints
    async def warning(self, data: Any, logger: str | None = None) -> None:
        """Log at this level."""
        await self.log("warning", data, logger)

    @with_hints
    async def error(self, data: Any, logger: str | None = None) -> None:
        """Log at this level."""
        await self.log("error", data, logger)

    @with_hints
    async def critical(self, data: Any, logger: str | None = None) -> None:
        """Log at this level."""
        await self.log("critical", data, logger)

    @with_hints
    async def alert(self, data: Any, logger: str | None = None) -> None:
        """Log at this level."""
        await self.log("alert", data, logger)

    @with_hints
    async def emergency(self, data: Any, logger: str | None = None) -> None:
        """Log at this level."""
        await self.log("emergency", data, logger)

    async def notify(self, method: str, params: Mapping[str, Any], *, extension: str) -> None:
        """Send a notification of an extension that belongs to this request, if the caller declared
        the extension: `await ctx.notify("search/found", {"hits": 3}, extension=search.id)`.

        Above a rate limit some are dropped.
        """
        from colonnade.protocol.extensions import notification_params  # on use: few servers do

        sent = notification_params(method, params)
        frame = self._request.exchange.notify_extension(extension, method, sent)
        if frame is not None and self._may_send("notifications"):
            await self._send(frame)

    def _may_send(self, what: str) -> bool:
        """Whether the rate limit allows one more notification (R0085, R0157)."""
        now = self._loop.time()
        if self._rate_limit is None:
            from colonnade.middleware import TokenBucket  # on use

            self._rate_limit = TokenBucket(BURST, now)
        allowed = self._rate_limit.take(MESSAGES_PER_S, BURST, now) == 0.0
        if not allowed and not self._rate_warned:
            self._rate_warned = True
            method = self._request.exchange.method.name
            log.warning(
                "a %s request sends %s faster than the rate limit; some are dropped", method, what
            )
        return allowed

    async def _send(self, frame: bytes | None) -> None:
        if frame is not None and not self._request.post(frame):
            try:
                await self._request.send(frame)
            except ConnectionLost as lost:
                raise CallerLost(str(lost)) from lost

    async def read(self, uri: str) -> t.ReadResourceResult:
        """Read one of this server's resources, as this caller. Raises `ToolError` if not found."""
        try:
            return await self._server.read(self, uri)
        except Fault as fault:
            if fault.kind is not FaultKind.RESOURCE_MISSING:
                raise
            # The caller requested something else: not a -32002 of its own request.
            raise ToolError(f"there is no resource {uri[:80]!r}") from fault

    async def hang_up(self) -> None:
        """Close the HTTP stream of a long call; a client that supports resumption reconnects."""
        await self._request.hang_up()

    # ------------------------------------------------------------ input requests

    @overload
    async def elicit(self, message: str, type: type[T], *, key: str | None = None) -> T: ...
    @overload
    async def elicit(self, message: str, type: Any, *, key: str | None = None) -> Any: ...
    @with_hints
    async def elicit(self, message: str, type: Any, *, key: str | None = None) -> Any:
        """Elicit a value of a type from the user. Raises `Declined`."""
        return await self.request_input(Ask(message, type, key=key))

    async def elicit_form(
        self, message: str, form: t.ElicitSchema, *, key: str | None = None
    ) -> dict[str, t.ElicitValue]:
        """Elicit with an explicit form schema. Raises `Declined`."""
        return await self.request_input(AskForm(message, form, key=key))

    async def elicit_url(
        self,
        message: str,
        url: str,
        *,
        id: str | None = None,
        key: str | None = None,
        by_error: bool = False,
    ) -> None:
        """URL elicitation: ask the user to open a URL. Raises `Declined`.

        It returns once the user consents. Whether the user completed the page is yours to check,
        on the next call (D25). With `by_error` the call ends with an error that tells the client to
        retry, in revisions that have it.
        """
        url_request = AskUrl(message, url, id=id, key=key)
        if by_error:
            self.raise_url_elicitation(url_request)
        await self.request_input(url_request)

    def raise_url_elicitation(self, url_request: AskUrl) -> None:
        """End the call with -32042 (URL elicitation required), in revisions that have it."""
        peer = self._request.exchange.peer
        input_request = url_request.input_request()
        supported = is_supported(input_request, self.capabilities, peer.revision)
        if supported and peer.revision.elicitation.url_required_error:
            raise url_elicitation_required([input_request], peer)

    async def elicitation_complete(self, id: str) -> None:
        """Notify the client that the URL elicitation of this id is complete, in revisions that
        have that."""
        exchange = self._request.exchange
        method = "notifications/elicitation/complete"
        if method in exchange.peer.revision.methods and not exchange.settled:
            params = t.ElicitationCompleteNotificationParams(elicitation_id=id)
            await self._send(encode_notification(method, exchange.encoder.params(params)))

    @with_hints
    async def sample(
        self,
        prompt: SamplePrompt,
        *,
        max_tokens: int = 1000,
        system: str | None = None,
        temperature: float | None = None,
        stop: list[str] | None = None,
        preferences: t.ModelPreferences | None = None,
        tools: list[t.Tool] | None = None,
        tool_choice: t.ToolChoice | None = None,
        key: str | None = None,
    ) -> Sampled:
        """Sample from the client's model. Raises `Declined`."""
        input_request = Sample(
            prompt,
            max_tokens=max_tokens,
            system=system,
            temperature=temperature,
            stop=stop,
            preferences=preferences,
            tools=tools,
            tool_choice=tool_choice,
            key=key,
        )
        return cast("Sampled", await self.request_input(input_request))

    async def roots(self, *, key: str | None = None) -> list[t.Root]:
        """The roots of the client."""
        return await self.request_input(Roots(key=key))

    @overload
    async def ask(self, one: InputSpec[A], /) -> tuple[A]: ...
    @overload
    async def ask(self, one: InputSpec[A], two: InputSpec[B], /) -> tuple[A, B]: ...
    @overload
    async def ask(
        self, one: InputSpec[A], two: InputSpec[B], three: InputSpec[C], /
    ) -> tuple[A, B, C]: ...
    @overload
    async def ask(self, *inputs: InputSpec[Any]) -> tuple[Any, ...]: ...
    async def ask(self, *inputs: InputSpec[Any]) -> tuple[Any, ...]:
        """Send several input requests in one round; their values in order. Raises `Declined`."""
        return await request_inputs(self, inputs)

    async def request_input(self, spec: InputSpec[T], *, threaded: bool = False) -> T:
        """Send one input request and decode its response. `threaded`: a thread waits for it."""
        return spec.decode(await self._send_input_request(spec, threaded))

    async def resolve_inputs(
        self, parameters: Iterable[InputParameter], arguments: Mapping[str, Any]
    ) -> list[Any]:
        """The values of parameters marked with input requests, all sent in one round."""
        return await gather_all(self._resolve_input(one, arguments) for one in parameters)

    async def _resolve_input(self, parameter: InputParameter, arguments: Mapping[str, Any]) -> Any:
        spec = parameter.spec.with_arguments(arguments)
        absent = inspect.Parameter.empty
        if spec is None:
            return None if parameter.default is absent else parameter.default
        peer = self._request.exchange.peer
        if not is_supported(spec.input_request(), self.capabilities, peer.revision):
            if parameter.default is not absent:  # D10
                return parameter.default
            if parameter.optional:
                return None
        try:
            return await self.request_input(spec)
        except ToolError:
            if parameter.optional:
                return None
            raise

    async def _send_input_request(self, spec: InputSpec[Any], threaded: bool) -> AnyInputResponse:
        """Send one input request, in the form of the revision."""
        exchange = self._request.exchange
        if self.unwinding:
            raise asyncio.CancelledError
        if exchange.settled or self.finished:
            raise LocalProtocolError("the call is over; no input can be requested any more")
        input_request = spec.input_request()
        key, response = self._rounds.ask(input_request, spec.key)
        if response is not None:
            return response
        if exchange.peer.revision.input_requests is InputRequests.IN_RESULT:
            await self._wait_for_unwind(threaded)
        try:
            task = self._request.task_journal
            with self._paused(), self._tracked():
                if task is None:
                    raw = await self._request.ask(input_request)
                else:
                    raw = await task.request_input(key, input_request)
            return self._rounds.receive_response(key, raw)
        except RemoteError as error:
            refused = self._rounds.receive_error(key, error)
            if isinstance(refused, ToolError):
                raise refused from error
            raise ToolError(
                f"the client returned an error for the input request: {error}"
            ) from error
        except ChannelError as error:
            raise ToolError(f"the client did not respond to the input request: {error}") from error
        except Fault as fault:
            raise ToolError(f"the client sent an invalid response: {fault.message}") from fault

    @contextlib.contextmanager
    def _tracked(self) -> Generator[None]:
        """Track the current task, so that `close` cancels its input request."""
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self.input_tasks.add(task)
        try:
            yield
        finally:
            self.input_tasks.discard(task)

    @contextlib.contextmanager
    def _paused(self) -> Generator[None]:
        """Pause the timeout of the function while it waits for the user."""
        deadline = self.deadline
        if deadline is None:
            yield
            return
        when = deadline.when()
        if self._pause_count == 0 and when is not None:
            self._remaining_s = when - self._loop.time()
            deadline.reschedule(None)
        self._pause_count += 1
        try:
            yield
        finally:
            self._pause_count -= 1
            if self._pause_count == 0 and not self.finished:
                with contextlib.suppress(RuntimeError):  # it has been exited meanwhile
                    deadline.reschedule(self._loop.time() + self._remaining_s)

    async def once(self, key: str, make: Callable[[], T | Awaitable[T]]) -> T:
        """Run a function once across all rounds of this call; each round gets the same result.

        The result must be a JSON value. It is not exactly-once: a retry that is sent twice runs
        the rest twice; what must never happen twice needs a store. In a task the result is stored
        before this returns, so a run after a crash of the server gets it, too.
        """
        saved_result = self.saved_result(key)
        if saved_result is not None:
            return cast("T", msgspec.json.decode(saved_result))
        running = self._once_results.get(key)
        if running is None:
            running = self._once_results[key] = self._loop.create_future()
            try:
                if self._request.task_journal is not None:
                    await self._request.task_journal.check_lease()
                result = make()
                value = await result if inspect.isawaitable(result) else result
                running.set_result(await self.keep_result(key, value))
            except BaseException:
                del self._once_results[key]
                running.cancel()
                raise
        return cast("T", await running)

    def saved_result(self, key: str) -> bytes | None:
        """The JSON that `save_result` saved, in this round or an earlier one."""
        saved_result = self._rounds.kept(key)
        return bytes(saved_result) if saved_result is not None else None

    def save_result(self, key: str, value: T) -> T:
        """Save a result; returns it as later rounds get it, decoded from its JSON."""
        data = encode(value)
        self._rounds.keep(key, data)
        return cast("T", msgspec.json.decode(data))

    async def keep_result(self, key: str, value: T) -> T:
        """Save a result, in a task also in its store; returns it as `save_result` does."""
        task = self._request.task_journal
        if task is not None:
            await task.record_effect(key, encode(value))
        return self.save_result(key, value)

    @property
    def rounds(self) -> InputRounds:
        """The input requests of this run."""
        return self._rounds

    # ------------------------------------------------------------ unwinding

    async def _wait_for_unwind(self, threaded: bool) -> None:
        """Wait to be cancelled at the end of the `input_required` round."""
        self.input_requested = True
        if self._timer is None:
            self._timer = self._loop.call_soon(self._count_down, LOOP_ITERATIONS)
        future: asyncio.Future[None] = self._loop.create_future()
        (self._threads if threaded else self._waiting).add(future)
        await future

    def _count_down(self, remaining: int) -> None:
        if remaining > 1:
            self._timer = self._loop.call_soon(self._count_down, remaining - 1)
            return
        self.unwinding = True
        for future in self._threads:
            future.cancel()  # raises `CallEnded` in the thread, which ends the run
        if self._waiting:
            self._cancel()
        else:
            self._timer = self._loop.call_later(CLEAN_UP_S, self._cancel)

    def _cancel(self) -> None:
        if self._root is not None:
            self._cancel_count += 1
            self._root.cancel()
            self._timer = self._loop.call_later(CLEAN_UP_S, self._cancel)

    def close(self) -> int:
        """End the run and cancel what still waits. Returns how often this cancelled its task."""
        self.finished = True
        if self._timer is not None:
            self._timer.cancel()
        for future in self._waiting | self._threads:
            future.cancel()
        for task in self.input_tasks:
            if task is not self._root:
                task.cancel()
        return self._cancel_count


async def gather_all(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines concurrently; if one fails, cancel the others."""
    tasks = [asyncio.ensure_future(one) for one in coroutines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def request_inputs(
    context: Context, inputs: Sequence[InputSpec[Any]], *, threaded: bool = False
) -> tuple[Any, ...]:
    """Send several input requests in one round; none if the client lacks a capability for one."""
    revision = context.current_request.exchange.peer.revision
    for one in inputs if revision.input_requests is InputRequests.AS_REQUEST else ():
        if not is_supported(one.input_request(), context.capabilities, revision):
            await context.request_input(one, threaded=threaded)  # raises, with the reason
    return tuple(await gather_all(context.request_input(one, threaded=threaded) for one in inputs))
