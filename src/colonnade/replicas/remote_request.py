"""Requests that another replica must run: what they need is there, such as a process with state.

The caller is the replica that a client has reached. It describes the request to the runner, which
handles it as its own; notifications, input requests and the response come back to the client.

Nothing runs twice, and a request that was given up is not begun: its id is taken in the store, by
the runner before it begins, or by a caller that got no acknowledgement. Every request ends: with
its response, or within seconds of the death of a replica with an error that says whether it may
have had an effect.

Rules: neither headers nor tokens leave the caller. Both sides name each other in every message, and
what another replica sends of a request is ignored. Times on the wire are those of the day.
"""

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from colonnade.errors import (
    ColonnadeError,
    ConnectionLost,
    Fault,
    FaultKind,
    Refused,
    RemoteError,
)
from colonnade.ports import SERVER_PRINCIPAL, RequestContext, Responder, Service
from colonnade.protocol.jsonrpc import encode_error
from colonnade.protocol.revision import error_code
from colonnade.replicas.remote_messages import (
    MAX_CHECKED,
    MAX_KEY_CHARACTERS,
    REMOTE_VERSION,
    WINDOW_BYTES,
    WINDOW_MESSAGES,
    CheckedRequest,
    RemoteBegin,
    RemoteCall,
    RemoteCancel,
    RemoteCheck,
    RemoteChecked,
    RemoteEnd,
    RemoteFailure,
    RemoteFault,
    RemoteInputResponse,
    RemotePhase,
    RemoteStarted,
    RunnerMessage,
    decode_input_request,
    decode_remote,
    describe_request,
    encode_remote,
    input_error,
    restore_exchange,
)
from colonnade.replicas.remote_run import MAX_FRAME_BYTES, MESSAGE, RemoteRequestContext, RemoteRun
from colonnade.replicas.replica import Replica, ReplicaLost

log: logging.Logger = logging.getLogger("colonnade.replicas")

# Requests that wait for other replicas, and those that run here for others.
MAX_WAITING_CALLS = 1024
MAX_RUNS = 1024
MAX_RUN_BYTES = 64 * 1024 * 1024
# How long a runner may take to acknowledge a request, as long as its lease has not lapsed.
START_TIMEOUT_S = 3.5
# A runner that was stopped does not begin what it reads later than this; the id stays taken for
# longer, whatever the clocks of two machines differ by.
START_WINDOW_S = 60.0
TAKEN_S = 600.0
# Requests that were begun within that window: what is in the store may be deleted by others.
MAX_BEGUN = 65_536
# Timeout of a check. After a response the next check follows sooner, so that a caller learns within
# a second that the runner was killed.
CHECK_S = 1.0
CHECK_EVERY_S = 0.5
# Without a check for so long, the caller is dead or has given up.
LOST_CALLER_S = 5.0
# How long a caller waits beyond the deadline, at which the runner ends the request.
DEADLINE_GRACE_S = 2.0
# Messages that need an acknowledgement are sent again for this long. An outage of the store, with
# the time until the other replica listens again, is usually shorter.
DELIVERY_S = 20.0
# How long the store may take to say whose an id is: to a caller that gives up, and to a runner.
GIVE_UP_TIMEOUT_S = 1.0
TAKE_TIMEOUT_S = 3.0

BEGIN, INPUT, CHECK, CANCEL, END = (
    f"remote {kind}" for kind in ("begin", "input", "check", "cancel", "end")
)

M = TypeVar("M", bound=Struct)


class WaitingCall:
    """A request of this replica that another one runs: its state, and what is to be delivered."""

    def __init__(self, call: RemoteCall, context: RequestContext) -> None:
        self.call = call
        self.context = context
        self.queue: deque[RunnerMessage] = deque()
        self.outcome: RemoteEnd | RemoteFailure | None = None
        self.changed: asyncio.Event = asyncio.Event()
        self.inputs: dict[int, asyncio.Task[None]] = {}
        self.credited = 0
        self.uncredited_bytes = 0

    def put(self, message: RunnerMessage) -> None:
        """Take a message of the runner."""
        accepted = self.call.accepts(message)
        if isinstance(accepted, RemoteFailure):
            self.end(accepted)
        elif accepted:
            self.queue.append(message)
            if len(self.queue) > 2 * WINDOW_MESSAGES:  # the runner does not wait for credit
                self.end(RemoteFailure("the replica that runs the request sends too fast", True))
            self.changed.set()

    @property
    def may_run(self) -> bool:
        """Whether it may still run, or begin: the begin may be on its way."""
        if isinstance(self.outcome, RemoteFailure):
            return self.outcome.effect_unknown
        return self.outcome is None

    def end(self, outcome: RemoteEnd | RemoteFailure | None) -> None:
        """Take the outcome, once; None is no outcome yet."""
        if outcome is not None and self.outcome is None:
            self.outcome = outcome
            self.changed.set()


class RemoteRequests:
    """The requests that this replica lets others run, and those that it runs for them.

    `service` handles the latter; the context that it gets is a `RemoteRequestContext`. `clock` is
    the time of the day.
    """

    def __init__(
        self, replica: Replica, service: Service, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._replica = replica
        self._service = service
        self._routes: dict[str, Responder] = {}
        self._clock = clock
        self._waiting: dict[str, WaitingCall] = {}
        self._runs: dict[str, RemoteRun] = {}
        self._run_bytes = 0
        # The ids of requests that were begun here, and until when a copy would be begun again.
        self._begun: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._checker: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._check_now = asyncio.Event()
        self._unreadable: set[type[Struct]] = set()
        self._closed = False
        replica.handle(BEGIN, self._on_begin)
        replica.handle(MESSAGE, self._on_message)
        replica.handle(INPUT, self._on_input_response)
        replica.handle(CHECK, self._on_check)
        replica.handle(CANCEL, self._on_cancel)
        replica.handle(END, self._on_end)
        replica.on_missed(self._check_now.set)

    def route(self, prefix: str, respond: Responder) -> None:
        """Let another function than the service respond to requests whose key begins with this."""
        self._routes[prefix] = respond

    def _responder(self, key: str) -> Responder:
        for prefix, respond in self._routes.items():
            if key.startswith(prefix):
                return respond
        return self._service.respond

    async def drain(self, timeout_s: float) -> None:
        """Wait until what runs here for others has ended, and they have its responses."""
        runs = [run.task for run in self._runs.values() if run.task is not None]
        if runs:
            await asyncio.wait(runs, timeout=timeout_s)

    async def close(self) -> None:
        """Cancel what runs here for others, with an error for them; fail what waits. The replica is
        closed after it."""
        self._closed = True
        for run in self._runs.values():
            if run.task is not None:
                run.task.cancel()
        for waiting in self._waiting.values():
            waiting.end(RemoteFailure("this replica stops", effect_unknown=True))
        runs = [run.task for run in self._runs.values() if run.task is not None]
        if runs:
            await asyncio.wait(runs, timeout=CHECK_S)
        tasks = [*self._tasks, *filter(None, (self._checker, self._watcher))]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CHECK_S)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _decode(self, type: type[M], body: bytes) -> M | None:
        """A message of another replica; None for one that is ignored, which is logged once."""
        message = decode_remote(type, body)
        if message is None and type not in self._unreadable:
            self._unreadable.add(type)
            log.warning("a %s of another release is ignored, as are others", type.__name__)
        return message

    async def _deliver_to(self, replica: str, kind: str, body: bytes) -> None:
        """Send a message until there is a response to it; it may arrive several times."""
        try:
            await self._replica.request_again(replica, kind, body, DELIVERY_S)
        except ReplicaLost as error:
            log.debug("a message was not delivered: %s", error)
        except ColonnadeError as error:
            log.warning("a message to replica %s was not sent: %s", replica, error)

    # ------------------------------------------------------------ the caller

    async def run(
        self, context: RequestContext, replica: str, key: str, *, timeout_s: float | None = None
    ) -> bytes | None:
        """Let another replica run a request: its encoded response, errors included.

        `key` says what the request is for there. Without an outcome the response is an error whose
        message, and `effectUnknown` of its data, say whether the request may have had an effect.
        Raises `ConnectionLost` if the client is gone, which cancels the request.
        """
        if len(key) > MAX_KEY_CHARACTERS:
            raise Refused(f"a key of {len(key)} characters; at most {MAX_KEY_CHARACTERS}")
        call = RemoteCall(secrets.token_hex(16), replica)
        if self._closed or len(self._waiting) >= MAX_WAITING_CALLS:
            reason = "this replica stops" if self._closed else "too many requests wait for others"
            return _fail(context, call.on_refused(reason))
        now = self._clock()
        deadline = None if timeout_s is None else now + timeout_s
        begin = describe_request(context, call.id, key, now + START_WINDOW_S, deadline)
        body = encode_remote(begin)
        waiting = self._waiting[call.id] = WaitingCall(call, context)
        beginning = self._spawn(self._begin(waiting, body))
        self._start_checker()
        try:
            async with asyncio.timeout(None if timeout_s is None else timeout_s + DEADLINE_GRACE_S):
                await self._deliver(waiting)
        except TimeoutError:
            waiting.end(RemoteFailure("the request did not end by its deadline", True))
        finally:
            del self._waiting[call.id]
            beginning.cancel()
            for task in waiting.inputs.values():
                task.cancel()
            if waiting.may_run:
                self._spawn(self._cancel(call))
        if isinstance(waiting.outcome, RemoteEnd):
            return _settle(context, waiting.outcome)
        assert waiting.outcome is not None
        return _fail(context, waiting.outcome)

    async def _begin(self, waiting: WaitingCall, body: bytes) -> None:
        """Send begin, and wait until it is acknowledged or certainly not started."""
        call = waiting.call
        try:
            response = await self._replica.request(call.runner, BEGIN, body, START_TIMEOUT_S)
        except ReplicaLost as error:
            if call.phase is not RemotePhase.STARTING:
                return  # a message of the runner has come
            if error.not_sent and not error.is_unheard:
                waiting.end(call.on_refused(str(error)))
                return
            given_up = await self._take(call.id, b"given up", GIVE_UP_TIMEOUT_S)
            if call.phase is RemotePhase.STARTING:
                waiting.end(call.on_unacknowledged(error.sentence, given_up=given_up))
            return
        except ColonnadeError as error:
            waiting.end(call.on_refused(str(error)))
            return
        except Exception as error:
            log.exception("a request was not passed on to replica %s", call.runner)
            waiting.end(call.on_unacknowledged(type(error).__name__, given_up=False))
            return
        started = self._decode(RemoteStarted, response)
        if started is None:
            words = "the replica that is to run the request is of another release"
            waiting.end(call.on_unacknowledged(words, given_up=False))
        elif started.refusal:
            waiting.end(call.on_refused(started.refusal))
        else:
            call.on_started()

    async def _take(self, id: str, value: bytes, timeout_s: float) -> bool:
        """Take the id of a request: a runner that does not get it does not begin, and a caller that
        does not get it knows that the runner may have begun."""
        with suppress(ColonnadeError, TimeoutError):
            async with asyncio.timeout(timeout_s):
                return await self._replica.store.add(
                    SERVER_PRINCIPAL, f"remote {id}", value, TAKEN_S
                )
        return False

    async def _cancel(self, call: RemoteCall) -> None:
        body = encode_remote(RemoteCancel(REMOTE_VERSION, call.id))
        await self._deliver_to(call.runner, CANCEL, body)

    async def _deliver(self, waiting: WaitingCall) -> None:
        """Pass the messages of the runner on to the client until there is an outcome."""
        while not isinstance(waiting.outcome, RemoteFailure):
            if waiting.queue:
                await self._pass_on(waiting, waiting.queue.popleft())
            elif waiting.outcome is not None:
                return
            else:
                waiting.changed.clear()
                await waiting.changed.wait()

    async def _pass_on(self, waiting: WaitingCall, message: RunnerMessage) -> None:
        context, call = waiting.context, waiting.call
        match message.form:
            case "notification":
                await context.send(message.body)
            case "input_request":
                task = self._spawn(self._ask(waiting, message))
                waiting.inputs[message.input] = task
            case "withdrawal":
                task = waiting.inputs.pop(message.input, None)
                if task is not None:
                    task.cancel()
                call.on_input_settled(message.input)
            case "hang_up":
                await context.hang_up()
        call.delivered = message.number
        waiting.uncredited_bytes += len(message.body)
        if (
            call.delivered - waiting.credited >= WINDOW_MESSAGES // 4
            or waiting.uncredited_bytes >= WINDOW_BYTES // 4
        ):
            waiting.credited, waiting.uncredited_bytes = call.delivered, 0
            check = RemoteCheck(REMOTE_VERSION, [CheckedRequest(call.id, call.delivered)])
            with suppress(ColonnadeError):  # the next check says it, too
                await self._replica.send(call.runner, CHECK, encode_remote(check))

    async def _ask(self, waiting: WaitingCall, message: RunnerMessage) -> None:
        """Send an input request to the client, and its response to the runner."""
        id, number = message.id, message.input
        try:
            request = decode_input_request(message.body)
            if request is None:
                raise ConnectionLost("the input request is of another release")
            result = bytes(await waiting.context.ask(request))
            if len(result) > MAX_FRAME_BYTES:
                raise ConnectionLost("the response to the input request is too large")
            response = RemoteInputResponse(REMOTE_VERSION, id, number, result, None, "", b"")
        except Exception as error:
            response = input_error(id, number, error)
        await self._deliver_to(waiting.call.runner, INPUT, encode_remote(response))
        waiting.call.on_input_settled(number)
        waiting.inputs.pop(number, None)

    async def _on_message(self, sender: str, body: bytes) -> None:
        message = self._decode(RunnerMessage, body)
        waiting = None if message is None else self._waiting.get(message.id)
        if message is not None and waiting is not None and waiting.call.runner == sender:
            waiting.put(message)

    async def _on_end(self, sender: str, body: bytes) -> None:
        end = self._decode(RemoteEnd, body)
        waiting = None if end is None else self._waiting.get(end.id)
        if end is None or waiting is None or waiting.call.runner != sender:
            return
        if waiting.call.on_end():
            waiting.end(end)

    # ------------------------------------------------------------ checks of the caller

    def _start_checker(self) -> None:
        if self._checker is None or self._checker.done():
            self._checker = asyncio.get_running_loop().create_task(self._check_all())

    async def _check_all(self) -> None:
        """Check the runners of all requests once a second, as long as there are any."""
        loop = asyncio.get_running_loop()
        while self._waiting:
            began = loop.time()
            by_runner: dict[str, list[WaitingCall]] = {}
            for waiting in self._waiting.values():
                if waiting.call.phase is RemotePhase.RUNNING:
                    by_runner.setdefault(waiting.call.runner, []).append(waiting)
            responded = await asyncio.gather(
                *(
                    self._check(runner, calls[first : first + MAX_CHECKED])
                    for runner, calls in by_runner.items()
                    for first in range(0, len(calls), MAX_CHECKED)
                )
            )
            pause_s = CHECK_EVERY_S if all(responded) else CHECK_S
            with suppress(TimeoutError):
                async with asyncio.timeout_at(began + pause_s):
                    await self._check_now.wait()
            self._check_now.clear()

    async def _check(self, runner: str, calls: list[WaitingCall]) -> bool:
        """Check some requests at one runner. Returns whether the runner has responded."""
        alive: bool | None = None
        requests = [CheckedRequest(one.call.id, one.call.delivered) for one in calls]
        try:
            body = encode_remote(RemoteCheck(REMOTE_VERSION, requests))
            response = await self._replica.probe(runner, CHECK, body, CHECK_S)
            checked = self._decode(RemoteChecked, response)
        except ColonnadeError as error:
            checked = None
            alive = False if isinstance(error, ReplicaLost) and error.has_ended else None
        if checked is not None and len(checked.sent) == len(calls):
            for one, sent in zip(calls, checked.sent, strict=True):
                one.end(one.call.on_check(sent))
            return True
        if alive is None:
            try:
                alive = await self._replica.is_alive(runner)
            except ColonnadeError:
                alive = True
        for one in calls:
            one.end(one.call.on_failed_check(alive))
        return False

    # ------------------------------------------------------------ the runner

    async def _on_begin(self, sender: str, body: bytes) -> bytes:
        refusal = await self._start_run(sender, body)
        if refusal:
            log.info("a request of replica %s is not run: %s", sender, refusal)
        return encode_remote(RemoteStarted(REMOTE_VERSION, refusal))

    async def _start_run(self, sender: str, body: bytes) -> str:
        """Start a request; why not, if it is not started."""
        begin = self._decode(RemoteBegin, body)
        if begin is None:
            return "the replica that is to run the request is of another release"
        size = len(body)
        if begin.id in self._runs or begin.id in self._begun:
            return ""  # a repeated message: the response to the first copy may have been lost
        if len(self._runs) >= MAX_RUNS or self._run_bytes + size > MAX_RUN_BYTES:
            return "the replica that is to run the request is too busy"
        try:
            exchange = restore_exchange(begin, self._service.identity)
        except Fault as fault:
            return fault.message
        run = RemoteRun(begin, sender, exchange, self._replica, asyncio.get_running_loop().time())
        # From here on a cancellation finds it.
        self._runs[begin.id] = run
        self._run_bytes += size
        refusal = self._refusal(run)
        name = self._replica.name.encode()
        if not refusal and not await self._take(begin.id, name, TAKE_TIMEOUT_S):
            refusal = "the request was given up, or the store is away"
        # Once more: this process may have been stopped meanwhile.
        refusal = refusal or self._refusal(run)
        if refusal:
            self._forget(run, size)
            return refusal
        self._note_begun(begin)
        run.task = self._spawn(self._run(run, size))
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.get_running_loop().create_task(self._watch())
        return ""

    def _note_begun(self, begin: RemoteBegin) -> None:
        begun, now = self._begun, self._clock()
        while begun and (len(begun) >= MAX_BEGUN or next(iter(begun.values())) < now):
            del begun[next(iter(begun))]
        begun[begin.id] = begin.start_until

    def _refusal(self, run: RemoteRun) -> str:
        begin, now = run.begin, self._clock()
        if self._closed:
            return "the replica that is to run the request stops"
        if run.cancelled:
            return "the request was cancelled"
        if now > begin.start_until or (begin.deadline is not None and now >= begin.deadline):
            return (
                "the request reached the replica that is to run it too late, or the clocks of the "
                "two replicas differ"
            )
        if not self._replica.holds_lease:
            return "the replica that is to run the request has lost its lease"
        return ""

    def _forget(self, run: RemoteRun, size: int) -> None:
        del self._runs[run.begin.id]
        self._run_bytes -= size

    async def _run(self, run: RemoteRun, size: int) -> None:
        context = RemoteRequestContext(run, self._spawn)
        try:
            response = await self._respond(run, context)
            if run.cancelled:
                return
            fault = None if context.fault is None else RemoteFault.of(context.fault)
            if len(response) > MAX_FRAME_BYTES:
                words = "the response is too large to be passed on by another replica"
                large = Fault(FaultKind.INTERNAL, words)
                code = error_code(large, run.exchange.peer.revision)
                response = encode_error(run.begin.raw_id, code, words, None)
                fault = RemoteFault.of(large)
            end = RemoteEnd(REMOTE_VERSION, run.begin.id, run.sent, response, fault)
            run.end_inputs()
            await self._deliver_to(run.caller, END, encode_remote(end))
        finally:
            run.end_inputs()
            self._forget(run, size)

    async def _respond(self, run: RemoteRun, context: RemoteRequestContext) -> bytes:
        """The encoded response; empty if there is none."""
        deadline = run.begin.deadline
        limit_s = None if deadline is None else max(deadline - self._clock(), 0.0)
        timeout = asyncio.timeout(limit_s)
        try:
            async with timeout:
                return await self._responder(context.key)(context) or b""
        except asyncio.CancelledError:
            words = "the replica that ran the request stopped"
        except TimeoutError:
            words = "the request did not end by its deadline"
            if not timeout.expired():
                words = "the server failed; its log says why"
        except ConnectionLost as error:
            words = f"the request was given up: {error.summary}"
        except Exception as error:
            log.error("the service raised %s", type(error).__name__, exc_info=error)
            words = "the server failed; its log says why"
        context.fault = RemoteFailure(words, effect_unknown=True).fault()
        return run.exchange.fail(context.fault) or b""

    async def _watch(self) -> None:
        """End the requests of callers that do not check them any more."""
        now = asyncio.get_running_loop().time
        while self._runs:
            await asyncio.sleep(CHECK_S)
            for run in self._runs.values():
                if now() - run.last_check > LOST_CALLER_S and run.task is not None:
                    run.cancelled = True
                    run.task.cancel()

    def _run_of(self, sender: str, id: str) -> RemoteRun | None:
        run = self._runs.get(id)
        return run if run is not None and run.caller == sender else None

    async def _on_check(self, sender: str, body: bytes) -> bytes | None:
        check = self._decode(RemoteCheck, body)
        if check is None:
            return None
        sent: list[int | None] = []
        for request in check.requests:
            run = self._run_of(sender, request.id)
            if run is not None:
                run.last_check = asyncio.get_running_loop().time()
                run.credit(request.delivered)
            sent.append(None if run is None else run.sent)
        return encode_remote(RemoteChecked(REMOTE_VERSION, sent))

    async def _on_cancel(self, sender: str, body: bytes) -> None:
        cancel = self._decode(RemoteCancel, body)
        run = None if cancel is None else self._run_of(sender, cancel.id)
        if run is not None and not run.cancelled:
            run.cancelled = True
            if run.task is not None:
                run.task.cancel()

    async def _on_input_response(self, sender: str, body: bytes) -> None:
        response = self._decode(RemoteInputResponse, body)
        run = None if response is None else self._run_of(sender, response.id)
        future = None if response is None or run is None else run.inputs.get(response.input)
        if response is None or future is None or future.done():
            return
        if response.code is not None:
            data: Any = msgspec.json.decode(response.data) if response.data else None
            future.set_exception(RemoteError(response.code, response.message, data))
        elif response.message:
            future.set_exception(ConnectionLost(response.message))
        else:
            future.set_result(Raw(response.result))


def _fail(context: RequestContext, failure: RemoteFailure) -> bytes | None:
    context.fault = failure.fault()
    return context.exchange.fail(context.fault)


def _settle(context: RequestContext, end: RemoteEnd) -> bytes | None:
    if end.fault is not None:
        context.fault = end.fault.fault()
    exchange = context.exchange
    return exchange.settle_encoded(end.response) if end.response else exchange.abandon()
