"""The callbacks of a client: elicitation, sampling, roots, and the queue of progress and log calls.

A callback returns plain values, which are converted to the protocol's result here. Input requests
that arrive as requests of the server go through `answer`, those of an `input_required` result
through `respond_all`.

Rules: a capability without a callback is not advertised. No form value is invented, except for the
defaults of the form. The exception of a callback is never sent to the server.
"""

import asyncio
import contextlib
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar, copy_context
from typing import Any, TypeAlias, cast

import msgspec
from msgspec import Raw, Struct

from colonnade.client.roots import ClientRoots, GivenRoots
from colonnade.errors import (
    Declined,
    Fault,
    FaultKind,
    InvalidArgument,
    LocalProtocolError,
    RemoteError,
    without_frames,
)
from colonnade.ports import InputResponder, RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.elicitation import with_defaults
from colonnade.protocol.input_requests import (
    AnyInputResponse,
    InputRequest,
    decode_url_elicitations,
)
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.negotiation import Peer
from colonnade.signatures.codecs import to_json_value

log: logging.Logger = logging.getLogger("colonnade.client")

# The content of the form (a dict, or any object with fields), the value of its only field, True for
# URL mode; None to cancel. Raise `Declined` to decline.
Elicited: TypeAlias = Any
OnElicit: TypeAlias = Callable[[t.ElicitRequestParams], Elicited | Awaitable[Elicited]]
# The text of the model. Raise `Declined` if the user refuses.
Sampled: TypeAlias = str | t.CreateMessageResult
OnSample: TypeAlias = Callable[[t.CreateMessageRequestParams], Sampled | Awaitable[Sampled]]

# Rate limit of sampling requests (R0106): each costs money, and users cannot review more.
MAX_SAMPLES = 60
SAMPLES_S = 60.0


class SamplingRate:
    """Counts sampling requests: at most `MAX_SAMPLES` within `SAMPLES_S`."""

    def __init__(self) -> None:
        self._sampled_at: deque[float] = deque()

    def check(self, now: float) -> None:
        """Count one more. Raises `Fault` if that is too many."""
        while self._sampled_at and self._sampled_at[0] <= now - SAMPLES_S:
            self._sampled_at.popleft()
        if len(self._sampled_at) >= MAX_SAMPLES:
            message = f"more than {MAX_SAMPLES} sampling requests within {SAMPLES_S:g} s"
            raise Fault(FaultKind.TOO_MANY, f"{message}; try again later")
        self._sampled_at.append(now)


class InputCallbacks:
    """The callbacks for input requests. Those that are not `async` must not block.

    `sample_tools` and `sample_context` say that `on_sample` supports tools and the requested
    context.
    """

    def __init__(
        self,
        *,
        on_elicit: OnElicit | None = None,
        on_sample: OnSample | None = None,
        roots: GivenRoots | None = None,
        model: str = "unknown",
        sample_tools: bool = False,
        sample_context: bool = False,
    ) -> None:
        if (sample_tools or sample_context) and on_sample is None:
            raise InvalidArgument(
                "sample_tools and sample_context need on_sample=", argument="on_sample"
            )
        self._on_elicit = on_elicit
        self._on_sample = on_sample
        self.roots: ClientRoots | None = ClientRoots(roots) if roots is not None else None
        self._model = model
        self._sampling = t.SamplingCapability(
            tools={} if sample_tools else None, context={} if sample_context else None
        )
        self._sampling_rate = SamplingRate()

    @property
    def capabilities(self) -> t.ClientCapabilities:
        """The capabilities that there are callbacks for."""
        return t.ClientCapabilities(
            elicitation=t.ElicitationCapability(form={}, url={}) if self._on_elicit else None,
            sampling=self._sampling if self._on_sample else None,
            roots=t.RootsCapability(list_changed=True) if self.roots is not None else None,
        )

    async def answer(self, request: RequestContext) -> bytes | None:
        """Respond to an input request that arrived as a request; the encoded response."""
        exchange = request.exchange
        try:
            if exchange.input_request is None:
                raise Fault(FaultKind.METHOD_NOT_FOUND, f"method not found: {exchange.method.name}")
            # One that came on the stream of a request is answered by the owner of that.
            responder: InputResponder = exchange.owner or self
            return exchange.settle(await responder.respond(exchange.input_request))
        except Declined as no:
            request.fault = Fault(FaultKind.USER_REJECTED, str(no) or "the user declined")
        except Fault as fault:
            request.fault = without_frames(fault)
        except Exception as error:
            self.log_failure(exchange.method.name, error)
            request.fault = Fault(FaultKind.INTERNAL, "a callback of the client failed")
        return exchange.fail(request.fault)

    async def respond_all(
        self, requests: Mapping[str, InputRequest]
    ) -> dict[str, AnyInputResponse]:
        """Respond to the input requests of a result, one after the other: there is one user."""
        return {key: await self.respond(request) for key, request in requests.items()}

    async def respond(self, request: InputRequest) -> AnyInputResponse:
        """Respond to one input request. Raises `Declined` if the result cannot express that."""
        params = request.params
        if isinstance(params, t.ElicitRequestParams):
            try:
                return elicit_result(params, await _call_handler(self._on_elicit, params))
            except Declined as error:
                return t.ElicitResult(action=error.action)
        if isinstance(params, t.CreateMessageRequestParams):
            self._sampling_rate.check(asyncio.get_running_loop().time())
            return sampling_result(await _call_handler(self._on_sample, params), self._model)
        return t.ListRootsResult(
            roots=await self.roots.reachable() if self.roots is not None else []
        )

    def log_failure(self, method: str, error: Exception) -> None:
        """Log the exception of a callback, which is not sent to the server."""
        log.error("the callback for %s raised %s", method, type(error).__name__, exc_info=error)


async def _call_handler(handler: Callable[..., Any] | None, *arguments: Any) -> Any:
    if handler is None:  # not advertised, so refused before
        raise Fault(FaultKind.METHOD_NOT_FOUND, "the client has no callback for this")
    result = handler(*arguments)
    return await result if inspect.isawaitable(result) else result


def elicit_result(params: t.ElicitRequestParams, returned: Elicited) -> t.ElicitResult:
    """The `ElicitResult` for what a callback returned, in form or URL mode."""
    if isinstance(returned, t.ElicitResult):
        return returned
    if returned is None:
        return t.ElicitResult(action="cancel")
    form = params.requested_schema
    if params.mode == "url" or form is None:
        if not isinstance(returned, bool):
            raise LocalProtocolError("on_elicit must return True or False for a URL elicitation")
        return t.ElicitResult(action="accept" if returned else "decline")
    content: Any = msgspec.to_builtins(returned, enc_hook=to_json_value)
    if not isinstance(content, dict):
        if len(form.properties) != 1:
            fields = ", ".join(form.properties)
            raise LocalProtocolError(f"the form has several fields: return a dict with {fields}")
        content = {next(iter(form.properties)): content}
    given = cast("dict[str, Any]", content)
    filled = {name: value for name, value in given.items() if value is not None}
    return t.ElicitResult(action="accept", content=with_defaults(form, filled))


def sampling_result(returned: Sampled | None, model: str) -> t.CreateMessageResult:
    """The `CreateMessageResult` for what a callback returned."""
    if isinstance(returned, t.CreateMessageResult):
        return returned
    if isinstance(returned, str):
        content = t.TextContent(text=returned)
        return t.CreateMessageResult(role="assistant", content=content, model=model)
    if returned is None:
        raise Declined("the user declined the sampling request")
    message = f"on_sample must return a str or a CreateMessageResult, not {type(returned).__name__}"
    raise LocalProtocolError(message)


class Model(Struct, frozen=True, kw_only=True):
    """The strengths of a model, each from 0 to 1; `cheapness` is the opposite of cost."""

    cheapness: float = 0.5
    speed: float = 0.5
    intelligence: float = 0.5


def choose_model(
    preferences: t.ModelPreferences | None, models: Mapping[str, Model] | Iterable[str]
) -> str:
    """The name of the best model for these preferences; the first of equally good ones.

    The first hint that is part of the name of a model decides (R0181, R0184); the priorities choose
    among the models that it matches, or among all if none does (R0185).
    """
    known: dict[str, Model]
    if isinstance(models, Mapping):
        known = dict(cast("Mapping[str, Model]", models))
    else:
        known = {name: Model() for name in models}
    if not known:
        raise LocalProtocolError("there is no model to choose from")
    if preferences is None:
        return next(iter(known))
    for hint in preferences.hints or ():
        wanted = (hint.name or "").lower()
        named = {name: model for name, model in known.items() if wanted in name.lower()}
        if wanted and named:
            known = named
            break
    return max(known, key=lambda name: _score(preferences, known[name]))


def _score(wanted: t.ModelPreferences, model: Model) -> float:
    return (
        (wanted.cost_priority or 0.0) * model.cheapness
        + (wanted.speed_priority or 0.0) * model.speed
        + (wanted.intelligence_priority or 0.0) * model.intelligence
    )


# URL elicitations that were accepted and may still be reported complete.
MAX_PENDING = 1000


class UrlElicitations:
    """The URL elicitations of one client, and which of them are complete."""

    def __init__(self, answers: InputCallbacks) -> None:
        self._callbacks = answers
        self._pending: dict[str, asyncio.Event] = {}

    def complete(self, id: str) -> None:
        """Mark one as complete. R0605: unknown and completed ids are ignored."""
        completed = self._pending.get(id)
        if completed is not None:
            completed.set()

    async def answer(
        self,
        error: RemoteError,
        attempts: dict[str, int],
        peer: Peer,
        timeout_s: float,
        answers: InputResponder | None = None,
    ) -> bool:
        """Whether to send the request again after this error: all its URLs were accepted.

        `attempts` counts the elicitations of this call; `answers` responds to them, by default the
        client's callbacks. Raises `Declined` if the user declines.
        """
        requests = self._decode_requests(error, peer)
        if not requests or any(
            attempts.get(_elicitation_id(request), 0) > 1 for request in requests
        ):
            return False
        for request in requests:
            id = _elicitation_id(request)
            attempts[id] = attempts.get(id, 0) + 1
            if attempts[id] == 1:
                await self._request_consent(request, answers or self._callbacks)
            else:
                await self._wait(id, timeout_s)
        return True

    def _decode_requests(self, error: RemoteError, peer: Peer) -> list[InputRequest]:
        rules = peer.revision
        if not rules.elicitation.url_required_error:
            return []
        if error.code != rules.codes[FaultKind.URL_ELICITATION_REQUIRED]:
            return []
        data = Raw(encode(error.data))
        with contextlib.suppress(Fault):  # then it is an ordinary error
            return decode_url_elicitations(data, self._callbacks.capabilities, peer)
        return []

    async def _request_consent(self, request: InputRequest, answers: InputResponder) -> None:
        id = _elicitation_id(request)
        while len(self._pending) >= MAX_PENDING:
            self._pending.pop(next(iter(self._pending)))
        self._pending[id] = asyncio.Event()
        answer = await answers.respond(request)
        if not isinstance(answer, t.ElicitResult) or answer.action != "accept":
            self._pending.pop(id, None)
            raise Declined("the user declined to open the URL of the server")

    async def _wait(self, id: str, timeout_s: float) -> None:
        completed = self._pending.get(id)
        if completed is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await completed.wait()
            self._pending.pop(id, None)


def _elicitation_id(request: InputRequest) -> str:
    params = request.params
    assert isinstance(params, t.ElicitRequestParams)
    return params.elicitation_id or ""


# ---------------------------------------------------------------- callback queue


# Calls that wait for a slow callback; a server can send as many in a second.
MAX_WAITING = 1000
# Of all waiting messages: a log message may be as large as any message, 64 MiB.
MAX_WAITING_BYTES = 16 * 1024 * 1024
# For a cancelled callback to clean up.
CLEAN_UP_S = 5.0
# How long a call, or `close`, waits for callbacks after the response: long enough for some that
# write to a disk or a database, short enough that one that hangs is noticed.
CATCH_UP_S = 10.0

# The queue whose callback is running. A call that a callback makes must not wait for that callback,
# also from another task or thread. The program's own code is in between, so no argument can carry
# this.
_current_queue: ContextVar["CallbackQueue | None"] = ContextVar(
    "colonnade.client.input_callbacks", default=None
)


class CallbackQueue:
    """Calls callbacks one after the other, in a task only while one of them awaits."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[..., Any], tuple[Any, ...], int]] = deque()
        self._bytes = 0
        # Set while callbacks are running or waiting.
        self.task: asyncio.Task[None] | None = None
        self._closed = False
        self._dropped = 0
        # Whether a wait for the running callbacks has timed out.
        self._timed_out = False

    def call(self, handler: Callable[..., Any], *arguments: Any, size: int = 0) -> None:
        """Call a callback now, or after those that are still running. `size` is the size of the
        message in bytes."""
        if self._closed:
            return
        if self.task is not None:
            self._keep(handler, arguments, size)
            return
        pending = _call(handler, arguments)
        if pending is not None:
            context = copy_context()
            context.run(_current_queue.set, self)
            work = self._work(pending)
            self.task = asyncio.get_running_loop().create_task(work, context=context)

    def _keep(self, handler: Callable[..., Any], arguments: tuple[Any, ...], size: int) -> None:
        # A message above the limit is kept if no other one waits.
        fits = not self._bytes or self._bytes + size <= MAX_WAITING_BYTES or not size
        if len(self._waiting) < MAX_WAITING and fits:
            self._waiting.append((handler, arguments, size))
            self._bytes += size
            return
        if not self._dropped:
            log.warning("%r is too slow: messages are dropped", handler)
        self._dropped += 1

    async def _work(self, pending: Awaitable[Any] | None) -> None:
        try:
            while pending is not None or self._waiting:
                if pending is not None:
                    await _await(pending)
                pending = self._next()
        finally:
            self.task = None
            self._timed_out = False

    def _next(self) -> Awaitable[Any] | None:
        if not self._waiting:
            return None
        handler, arguments, size = self._waiting.popleft()
        self._bytes -= size
        return _call(handler, arguments)

    async def wait_for_callbacks(self) -> None:
        """Wait until all calls that were queued so far are done, or the queue is closed.

        Waits at most `CATCH_UP_S`; after such a timeout, not at all until the queue is empty.
        """
        task = self.task
        if task is None or self._timed_out or _current_queue.get() is self:
            return
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((_set_marker, (reached,), 0))
        waited_for = [task, reached]
        first = asyncio.FIRST_COMPLETED
        done, _ = await asyncio.wait(waited_for, timeout=CATCH_UP_S, return_when=first)
        reached.cancel()
        if not done:
            self._timed_out = True
            message = "a callback is slow: stopped waiting after %g s; %d messages are queued"
            log.warning(message, CATCH_UP_S, self._count_pending())

    async def close(self) -> None:
        """Drop what is queued and cancel the running callback."""
        left = 0 if self._closed or _current_queue.get() is self else self._count_pending()
        if left:
            log.warning("closed before every callback was called: %d messages are dropped", left)
        self._closed = True
        self._waiting.clear()
        self._bytes = 0
        task = self.task
        if task is not None and task is not asyncio.current_task():
            await asyncio.sleep(0)  # let the callback start
            task.cancel()
            await asyncio.wait([task], timeout=CLEAN_UP_S)

    def _count_pending(self) -> int:
        return sum(handler is not _set_marker for handler, _, _ in self._waiting)


def _set_marker(mark: "asyncio.Future[None]") -> None:
    if not mark.done():
        mark.set_result(None)


def _call(handler: Callable[..., Any], arguments: tuple[Any, ...]) -> Awaitable[Any] | None:
    """Call a callback; the awaitable that it returned, if it did."""
    try:
        pending = handler(*arguments)
    except Exception as error:
        _log_error(error)
        return None
    return pending if inspect.isawaitable(pending) else None


async def _await(pending: Awaitable[Any]) -> None:
    try:
        await pending
    except Exception as error:
        _log_error(error)


def _log_error(error: Exception) -> None:
    log.error("a callback raised %s", type(error).__name__, exc_info=error)
