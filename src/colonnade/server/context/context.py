"""What a handler may know and do while it runs: progress, log, questions, the caller.

A handler asks the same way in every revision. Where questions go by request, asking waits on the
way back. Where they go by result, asking ends the exchange: the question is registered, some turns
of the loop later the handler's task is cancelled, and what the handler returns is dropped; on the
retry it runs again from the top and finds its answers. It is cancelled, not raised through, so
that `except Exception` cannot swallow it and gathered questions make one round. A function in a
thread cannot be cancelled: there the question raises, past everything that catches `Exception`.

Rules: facts come in as arguments; no context variables. One `Context` for each run.
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
    Asked,
    AskForm,
    AskVisit,
    Marked,
    Prompting,
    Roots,
    Sample,
    Sampled,
)
from colonnade.server.handlers.content import clean
from colonnade.server.handlers.threads import Workers
from colonnade.server.options import CallerLost, Situation, hinted, no_attribute

# A long job reports each step of a hundred at once; a person reads ten lines a second at best.
BURST = 200
PER_S = 50.0


class Ration:
    """A bucket of messages that fills again. `missed` counts what was left out."""

    __slots__ = ("_left", "_since", "missed")

    def __init__(self) -> None:
        self._left = float(BURST)
        self._since = 0.0
        self.missed: int = 0

    def take(self, now: float) -> bool:
        """Whether one more may be sent now."""
        self._left = min(BURST, self._left + (now - self._since) * PER_S)
        self._since = now
        if self._left < 1:
            self.missed += 1
            return False
        self._left -= 1
        return True


if TYPE_CHECKING:
    from colonnade.server.auth import RequestHeaders

log: logging.Logger = logging.getLogger("colonnade.server")

# Turns of the loop between a question and the end of its round: two, so that questions asked side
# by side are asked together, and some more for a sibling's failure to come through a TaskGroup.
TURNS = 8
# A handler that goes on after its question was put is stopped again after so long.
CLEAN_UP_S = 5.0

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")


class Home(Protocol):
    """The server that a handler belongs to, as far as a handler sees it."""

    @property
    def workers(self) -> Workers: ...

    @property
    def state(self) -> Any: ...

    @property
    def store(self) -> Store: ...

    @property
    def logs(self) -> bool: ...

    async def read(self, context: "Context", uri: str) -> t.ReadResourceResult: ...


class Context(Situation):
    """The caller's side of a running handler.

    A parameter annotated `Context` gets one; it is hidden from the schema. A function that is not
    `async` gets a `BlockingContext`, which has the same names and waits.
    """

    def __init__(self, request: RequestContext, interview: InputRounds, home: Home) -> None:
        self._request = request
        self._interview = interview
        self._home = home
        self._loop = asyncio.get_running_loop()
        self._root = asyncio.current_task(self._loop)
        self._once: dict[str, asyncio.Future[Any]] = {}
        self._waiting: set[asyncio.Future[None]] = set()
        self._threads: set[asyncio.Future[None]] = set()
        self._timer: asyncio.Handle | None = None
        self._ration: Ration | None = None
        self._fell_back = False
        self._cancels = 0
        self._pauses = 0
        self._left_s = 0.0
        self.deadline: asyncio.Timeout | None = None
        # Who waits for the answer to a question that went by request.
        self.asking: set[asyncio.Task[Any]] = set()
        self.asked: bool = False
        self.unwinding: bool = False
        self.over: bool = False

    if not TYPE_CHECKING:  # or nothing would be unknown to a type checker

        def __getattr__(self, name: str) -> Any:
            raise no_attribute(self, name)

    # ------------------------------------------------------------ who

    @property
    def principal(self) -> str:
        """Who is calling, as the verifier said; empty without one."""
        return self._request.exchange.principal

    @property
    def claims(self) -> dict[str, Any]:
        """What the caller's token says (`sub`, `email`, …), after it was verified; a copy, and
        empty without a token. Over Streamable HTTP only: not on `/sse`."""
        from copy import deepcopy  # on use

        return deepcopy(dict(self._request.claims))

    @property
    def headers(self) -> "RequestHeaders":
        """The headers of the HTTP request, by name in any case; empty where there is no HTTP, and
        on `/sse`.

        Credentials are not among them: see `principal` and `claims`.
        """
        from colonnade.server.auth import RequestHeaders  # on use

        return RequestHeaders(self._request.headers)

    @property
    def request_id(self) -> RequestId:
        """The id of the request, as the client chose it: the same again only by its will."""
        return self._request.exchange.request.id

    @property
    def client(self) -> t.Implementation | None:
        """What the client says it is: for people and logs, never for decisions."""
        return self._request.exchange.peer.info

    @property
    def capabilities(self) -> t.ClientCapabilities:
        """What the client declared."""
        return cast("t.ClientCapabilities", self._request.exchange.peer.capabilities)

    @property
    def revision(self) -> str:
        """The revision that this client speaks."""
        return self._request.exchange.peer.revision.date

    @property
    def session(self) -> Session | None:
        """Where the revision has sessions; None where each request stands for itself."""
        return self._request.session

    @property
    def current_request(self) -> RequestContext:
        """The exchange itself, for those who know the protocol."""
        return self._request

    @property
    def state(self) -> Any:
        """What the server's lifespan gave."""
        return self._home.state

    # ------------------------------------------------------------ while it runs

    async def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report progress to a caller that wants it; what does not go up is left out (D32).

        Of more than some hundred at once the caller sees a part, the last of `total` always.
        """
        exchange = self._request.exchange
        last = exchange.last_progress
        if last is not None and progress <= last:
            self._warn_of_progress(last, progress)
            return
        frame = exchange.progress(progress, total, message)
        if frame is not None and (progress == total or self._may_say("progress")):
            await self._send(frame)

    report_progress = progress  # as other libraries call it

    def _warn_of_progress(self, last: float, progress: float) -> None:
        if not self._fell_back:
            self._fell_back = True
            log.warning(
                "%s: progress went from %g to %g; it must go up, and what does not is left out",
                self._request.exchange.params.name or self._request.exchange.method.name,
                last,
                progress,
            )

    @hinted
    async def log(self, level: t.LoggingLevel, data: Any, logger: str | None = None) -> None:
        """Send a log message to a caller that wants this level. Never put a secret into it.

        What JSON cannot carry is sent as its words; what looks like a credential is left out.
        """
        exchange = self._request.exchange
        if not exchange.logs and not exchange.peer.revision.handshake:
            exchange.logs = self._home.logs  # what counts is what is declared by now
        if not exchange.wants(level) or not self._may_say("log messages"):
            return
        from colonnade.logs import redact_data  # on use: most servers never get here

        try:
            frame = exchange.log(level, redact_data(msgspec.to_builtins(data)), logger)
        except (LocalProtocolError, TypeError, ValueError, RecursionError):
            frame = exchange.log(level, redact_data(clean(str(data))), logger)
        await self._send(frame)

    @hinted
    async def debug(self, data: Any, logger: str | None = None) -> None:
        """Log at this level."""
        await self.log("debug", data, logger)

    @hinted
    async def info(self, data: Any, logger: str | None = None) -> None:
        """Log at this level."""
        await self.log("info", data, logger)

    @hinted
    async def notice(self, data: Any, logger: str | None = None) -> None:
        """Log at this level."""
        await self.log("notice", data, logger)

    @hinted
    async def warning(self, data: Any, logger: str | None = None) -> None:
        """Log at this level."""
        await self.log("warning", data, logger)

    @hinted
    async def error(self, data: Any, logger: str | None = None) -> None:
        """Log at this level."""
        await self.log("error", data, logger)

    @hinted
    async def critical(self, data: Any, logger: str | None = None) -> None:
        """Log at this level."""
        await self.log("critical", data, logger)

    @hinted
    async def alert(self, data: Any, logger: str | None = None) -> None:
        """Log at this level."""
        await self.log("alert", data, logger)

    @hinted
    async def emergency(self, data: Any, logger: str | None = None) -> None:
        """Log at this level."""
        await self.log("emergency", data, logger)

    def _may_say(self, what: str) -> bool:
        """Whether the caller is told one more thing beside the answer (R0085, R0157)."""
        if self._ration is None:
            self._ration = Ration()
        may = self._ration.take(self._loop.time())
        if not may and self._ration.missed == 1:
            method = self._request.exchange.method.name
            log.warning(
                "a %s sends more %s than a client can follow; some are left out", method, what
            )
        return may

    async def _send(self, frame: bytes | None) -> None:
        if frame is not None and not self._request.post(frame):
            try:
                await self._request.send(frame)
            except ConnectionLost as lost:
                raise CallerLost(str(lost)) from lost

    async def read(self, uri: str) -> t.ReadResourceResult:
        """Read one of this server's own resources, as this caller. Raises `ToolError` for none."""
        try:
            return await self._home.read(self, uri)
        except Fault as fault:
            if fault.kind is not FaultKind.RESOURCE_MISSING:
                raise
            # To the caller, who asked for something else, it is a failure like any other.
            raise ToolError(f"there is no resource {uri[:80]!r}") from fault

    async def hang_up(self) -> None:
        """Let a long call's connection go; a client that can comes back for the rest."""
        await self._request.hang_up()

    # ------------------------------------------------------------ questions

    @overload
    async def elicit(self, message: str, type: type[T], *, key: str | None = None) -> T: ...
    @overload
    async def elicit(self, message: str, type: Any, *, key: str | None = None) -> Any: ...
    @hinted
    async def elicit(self, message: str, type: Any, *, key: str | None = None) -> Any:
        """Ask the user for a value of a type. Raises `Declined`."""
        return await self.put(Ask(message, type, key=key))

    async def elicit_form(
        self, message: str, form: t.ElicitSchema, *, key: str | None = None
    ) -> dict[str, t.ElicitValue]:
        """Show the user a form that you wrote yourself. Raises `Declined`."""
        return await self.put(AskForm(message, form, key=key))

    async def elicit_url(
        self,
        message: str,
        url: str,
        *,
        id: str | None = None,
        key: str | None = None,
        by_error: bool = False,
    ) -> None:
        """Send the user to an address. Consent is all that this tells; raises `Declined`.

        Whether the user has done what they went for is for you to check, on the next run (D25).
        With `by_error` the call ends here and is to be made again, where a revision can say so.
        """
        visit = AskVisit(message, url, id=id, key=key)
        if by_error:
            self.visit_by_error(visit)
        await self.put(visit)

    def visit_by_error(self, visit: AskVisit) -> None:
        """End the call with an error that asks for a visit, where the revision has one."""
        peer = self._request.exchange.peer
        question = visit.question()
        able = is_supported(question, self.capabilities, peer.revision)
        if able and peer.revision.elicitation.url_required_error:
            raise url_elicitation_required([question], peer)

    async def visited(self, id: str) -> None:
        """Tell the client that the visit of this id is over, where a revision can say so."""
        exchange = self._request.exchange
        method = "notifications/elicitation/complete"
        if method in exchange.peer.revision.methods and not exchange.settled:
            params = t.ElicitationCompleteNotificationParams(elicitation_id=id)
            await self._send(encode_notification(method, exchange.encoder.params(params)))

    @hinted
    async def sample(
        self,
        prompt: Prompting,
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
        """Let the client's model write something. Raises `Declined`."""
        question = Sample(
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
        return cast("Sampled", await self.put(question))

    async def roots(self, *, key: str | None = None) -> list[t.Root]:
        """The folders that the client lets this server know of."""
        return await self.put(Roots(key=key))

    @overload
    async def ask(self, one: Asked[A], /) -> tuple[A]: ...
    @overload
    async def ask(self, one: Asked[A], two: Asked[B], /) -> tuple[A, B]: ...
    @overload
    async def ask(self, one: Asked[A], two: Asked[B], three: Asked[C], /) -> tuple[A, B, C]: ...
    @overload
    async def ask(self, *questions: Asked[Any]) -> tuple[Any, ...]: ...
    async def ask(self, *questions: Asked[Any]) -> tuple[Any, ...]:
        """Ask several questions in one round; the answers in their order. Raises `Declined`."""
        return await put_all(self, questions)

    async def put(self, asked: Asked[T], *, threaded: bool = False) -> T:
        """Ask one question and get its value. `threaded` is whether a thread waits for it."""
        return asked.value(await self._pose(asked, threaded))

    async def declared(
        self, parameters: Iterable[Marked], arguments: Mapping[str, Any]
    ) -> list[Any]:
        """The values of parameters that questions answer, all asked in one round."""
        return await together(self._declared(one, arguments) for one in parameters)

    async def _declared(self, parameter: Marked, arguments: Mapping[str, Any]) -> Any:
        asked = parameter.asked.about(arguments)
        absent = inspect.Parameter.empty
        if asked is None:
            return None if parameter.default is absent else parameter.default
        peer = self._request.exchange.peer
        if not is_supported(asked.question(), self.capabilities, peer.revision):
            if parameter.default is not absent:  # D10
                return parameter.default
            if parameter.optional:
                return None
        try:
            return await self.put(asked)
        except ToolError:
            if parameter.optional:
                return None
            raise

    async def _pose(self, asked: Asked[Any], threaded: bool) -> AnyInputResponse:
        """Put one question, in whichever way the revision asks."""
        exchange = self._request.exchange
        if self.unwinding:
            raise asyncio.CancelledError
        if exchange.settled or self.over:
            raise LocalProtocolError("the exchange is over; nothing can be asked any more")
        question = asked.question()
        key, answer = self._interview.ask(question, asked.key)
        if answer is not None:
            return answer
        if exchange.peer.revision.input_requests is InputRequests.IN_RESULT:
            await self._unwind(threaded)
        try:
            with self._paused(), self._open():
                raw = await self._request.ask(question)
            return self._interview.receive_response(key, raw)
        except RemoteError as error:
            refused = self._interview.receive_error(key, error)
            if isinstance(refused, ToolError):
                raise refused from error
            raise ToolError(f"the client could not answer: {error}") from error
        except ChannelError as error:
            raise ToolError(f"the client did not answer: {error}") from error
        except Fault as fault:
            raise ToolError(f"the client's answer does not fit: {fault.message}") from fault

    @contextlib.contextmanager
    def _open(self) -> Generator[None]:
        """A question that nobody waits for any more, once the run is over, is given up."""
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self.asking.add(task)
        try:
            yield
        finally:
            self.asking.discard(task)

    @contextlib.contextmanager
    def _paused(self) -> Generator[None]:
        """A person may take longer than the function has: its time stands still."""
        deadline = self.deadline
        if deadline is None:
            yield
            return
        when = deadline.when()
        if self._pauses == 0 and when is not None:
            self._left_s = when - self._loop.time()
            deadline.reschedule(None)
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            if self._pauses == 0 and not self.over:
                with contextlib.suppress(RuntimeError):  # it was left meanwhile
                    deadline.reschedule(self._loop.time() + self._left_s)

    async def once(self, key: str, make: Callable[[], T | Awaitable[T]]) -> T:
        """Run something once in all the runs of this call, and get its result on each.

        The result must be JSON. It is not exactly-once: a retry that is sent twice runs the rest
        twice; what must never happen twice needs a store.
        """
        kept = self.kept(key)
        if kept is not None:
            return cast("T", msgspec.json.decode(kept))
        running = self._once.get(key)
        if running is None:
            running = self._once[key] = self._loop.create_future()
            try:
                made = make()
                value = await made if inspect.isawaitable(made) else made
                running.set_result(self.keep(key, value))
            except BaseException:
                del self._once[key]
                running.cancel()
                raise
        return cast("T", await running)

    def kept(self, key: str) -> bytes | None:
        """What `keep` has, of this run or an earlier one."""
        kept = self._interview.kept(key)
        return bytes(kept) if kept is not None else None

    def keep(self, key: str, value: T) -> T:
        """Remember a result, and what will be found instead of it: its JSON."""
        data = encode(value)
        self._interview.keep(key, data)
        return cast("T", msgspec.json.decode(data))

    # ------------------------------------------------------------ unwinding

    async def _unwind(self, threaded: bool) -> None:
        """Wait for the end that a question by result brings."""
        self.asked = True
        if self._timer is None:
            self._timer = self._loop.call_soon(self._turn_by_turn, TURNS)
        future: asyncio.Future[None] = self._loop.create_future()
        (self._threads if threaded else self._waiting).add(future)
        await future

    def _turn_by_turn(self, left: int) -> None:
        if left > 1:
            self._timer = self._loop.call_soon(self._turn_by_turn, left - 1)
            return
        self.unwinding = True
        for future in self._threads:
            future.cancel()  # which raises in the thread, and ends the run from there
        if self._waiting:
            self._cancel()
        else:
            self._timer = self._loop.call_later(CLEAN_UP_S, self._cancel)

    def _cancel(self) -> None:
        if self._root is not None:
            self._cancels += 1
            self._root.cancel()
            self._timer = self._loop.call_later(CLEAN_UP_S, self._cancel)

    def close(self) -> int:
        """The run is over: whoever still waits is let go. How often we cancelled its task."""
        self.over = True
        if self._timer is not None:
            self._timer.cancel()
        for future in self._waiting | self._threads:
            future.cancel()
        for task in self.asking:
            if task is not self._root:
                task.cancel()
        return self._cancels


async def together(questions: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All of them at once; where one fails, the others are given up."""
    tasks = [asyncio.ensure_future(question) for question in questions]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def put_all(
    context: Context, questions: Sequence[Asked[Any]], *, threaded: bool = False
) -> tuple[Any, ...]:
    """Ask several in one round; where one cannot be put, nobody is asked the others."""
    revision = context.current_request.exchange.peer.revision
    for one in questions if revision.input_requests is InputRequests.AS_REQUEST else ():
        if not is_supported(one.question(), context.capabilities, revision):
            await context.put(one, threaded=threaded)  # which says why
    return tuple(await together(context.put(one, threaded=threaded) for one in questions))
