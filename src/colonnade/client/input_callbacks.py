"""What a client answers when a server asks: its user's decision, its model's words, its roots.

A handler gets the question and says what it knows, in plain values; here that becomes the answer
that the protocol wants. Questions by request are answered through `answer`, those by result through
`to_all`. Rules: what nobody gave a handler for is not advertised. Nothing that a person did not say
is made up, but for the defaults that a form brings along. Why a handler failed is never told to the
server.
"""

import asyncio
import contextlib
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar, copy_context
from typing import Any, Protocol, TypeAlias, cast

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
)
from colonnade.ports import RequestContext
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

# The content of the form (a dict, or anything with fields), the value of its only field, True for
# a visit; None for a user who went away. `Declined` is raised for one who says no.
Elicited: TypeAlias = Any
OnElicit: TypeAlias = Callable[[t.ElicitRequestParams], Elicited | Awaitable[Elicited]]
# What the model wrote. `Declined` is raised where the user does not want that.
Sampled: TypeAlias = str | t.CreateMessageResult
OnSample: TypeAlias = Callable[[t.CreateMessageRequestParams], Sampled | Awaitable[Sampled]]

# What a server may have a model say in a minute (R0106): each costs money, and nobody reads more.
MAX_SAMPLES = 60
SAMPLES_S = 60.0


class Answering(Protocol):
    """Whoever is asked what came by result, or by an error: for one call, or for all of them."""

    async def to(self, question: InputRequest) -> AnyInputResponse:
        """The answer to one question. Raises `Declined` where none can say so by itself."""
        ...

    async def to_all(self, questions: Mapping[str, InputRequest]) -> dict[str, AnyInputResponse]:
        """The answers to several, by their names."""
        ...


class Answers:
    """The handlers that a program gave for questions. Those that are not `async` must not block.

    `sample_tools` and `sample_context` say that `on_sample` lets a model use tools, and gives it
    the context that a server asks for.
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
                "sample_tools and sample_context say more of an on_sample=", argument="on_sample"
            )
        self._on_elicit = on_elicit
        self._on_sample = on_sample
        self.roots: ClientRoots | None = ClientRoots(roots) if roots is not None else None
        self._model = model
        self._sampling = t.SamplingCapability(
            tools={} if sample_tools else None, context={} if sample_context else None
        )
        self._sampled_at: deque[float] = deque()

    @property
    def capabilities(self) -> t.ClientCapabilities:
        """What the handlers can answer, and nothing else."""
        return t.ClientCapabilities(
            elicitation=t.ElicitationCapability(form={}, url={}) if self._on_elicit else None,
            sampling=self._sampling if self._on_sample else None,
            roots=t.RootsCapability(list_changed=True) if self.roots is not None else None,
        )

    async def answer(self, request: RequestContext) -> bytes | None:
        """The bytes of an answer to a question that went by request."""
        exchange = request.exchange
        try:
            if exchange.input_request is None:
                raise Fault(FaultKind.METHOD_NOT_FOUND, f"there is no {exchange.method.name} here")
            return exchange.settle(await self.to(exchange.input_request))
        except Declined as no:
            request.fault = Fault(FaultKind.USER_REJECTED, str(no) or "the user said no")
        except Fault as fault:
            request.fault = fault
        except Exception as error:
            self.failed(exchange.method.name, error)
            request.fault = Fault(FaultKind.INTERNAL, "the client could not answer")
        return exchange.fail(request.fault)

    async def to_all(self, questions: Mapping[str, InputRequest]) -> dict[str, AnyInputResponse]:
        """The answers to questions that came by result, one after the other: there is one user."""
        return {key: await self.to(question) for key, question in questions.items()}

    async def to(self, question: InputRequest) -> AnyInputResponse:
        """The answer to one question. Raises `Declined` where none can say so by itself."""
        params = question.params
        if isinstance(params, t.ElicitRequestParams):
            try:
                return elicited(params, await _said(self._on_elicit, params))
            except Declined:
                return t.ElicitResult(action="decline")
        if isinstance(params, t.CreateMessageRequestParams):
            self._count()
            return sampled(await _said(self._on_sample, params), self._model)
        return t.ListRootsResult(roots=await self.roots.now() if self.roots is not None else [])

    def _count(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._sampled_at and self._sampled_at[0] <= now - SAMPLES_S:
            self._sampled_at.popleft()
        if len(self._sampled_at) >= MAX_SAMPLES:
            words = f"more than {MAX_SAMPLES} questions to the model within {SAMPLES_S:g} s"
            raise Fault(FaultKind.TOO_MANY, f"{words}; ask again later")
        self._sampled_at.append(now)

    def failed(self, method: str, error: Exception) -> None:
        """A handler raised what is no answer; the server learns only that there is none."""
        log.error("the handler of %s raised %s", method, type(error).__name__, exc_info=error)


async def _said(handler: Callable[..., Any] | None, *question: Any) -> Any:
    if handler is None:  # it was not advertised, and so was refused before
        raise Fault(FaultKind.METHOD_NOT_FOUND, "nobody answers this here")
    made = handler(*question)
    return await made if inspect.isawaitable(made) else made


def elicited(params: t.ElicitRequestParams, said: Elicited) -> t.ElicitResult:
    """What a handler said to a form or a visit, as the answer that it means."""
    if isinstance(said, t.ElicitResult):
        return said
    if said is None:
        return t.ElicitResult(action="cancel")
    form = params.requested_schema
    if params.mode == "url" or form is None:
        if not isinstance(said, bool):
            raise LocalProtocolError("a visit is answered with True or False: its URL was shown")
        return t.ElicitResult(action="accept" if said else "decline")
    content: Any = msgspec.to_builtins(said, enc_hook=to_json_value)
    if not isinstance(content, dict):
        if len(form.properties) != 1:
            fields = ", ".join(form.properties)
            raise LocalProtocolError(f"the form has several fields: answer a dict with {fields}")
        content = {next(iter(form.properties)): content}
    given = cast("dict[str, Any]", content)
    filled = {name: value for name, value in given.items() if value is not None}
    return t.ElicitResult(action="accept", content=with_defaults(form, filled))


def sampled(said: Sampled | None, model: str) -> t.CreateMessageResult:
    """What a handler said for a model, as the answer that it means."""
    if isinstance(said, t.CreateMessageResult):
        return said
    if isinstance(said, str):
        content = t.TextContent(text=said)
        return t.CreateMessageResult(role="assistant", content=content, model=model)
    if said is None:
        raise Declined("the user does not want a model to be asked")
    words = f"a model's words are a str or a CreateMessageResult, not {type(said).__name__}"
    raise LocalProtocolError(words)


class Model(Struct, frozen=True, kw_only=True):
    """What a model is good at, each from 0 to 1; `cheapness` is the opposite of cost."""

    cheapness: float = 0.5
    speed: float = 0.5
    intelligence: float = 0.5


def choose_model(
    preferences: t.ModelPreferences | None, models: Mapping[str, Model] | Iterable[str]
) -> str:
    """The name of the model that fits best; the first of those that fit equally well.

    The first hint that is part of the name of a model decides (R0181, R0184); priorities choose
    among those that it names, or among all where none is (R0185).
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
    return max(known, key=lambda name: _fit(preferences, known[name]))


def _fit(wanted: t.ModelPreferences, model: Model) -> float:
    return (
        (wanted.cost_priority or 0.0) * model.cheapness
        + (wanted.speed_priority or 0.0) * model.speed
        + (wanted.intelligence_priority or 0.0) * model.intelligence
    )


# Visits that were agreed to and may still be reported complete.
MAX_OPEN = 1000


class Visits:
    """Where the user of one client was sent, and what of it is known to be over."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._open: dict[str, asyncio.Event] = {}

    def complete(self, id: str) -> None:
        """A visit is over. R0605: nothing for what is unknown, or was over before."""
        over = self._open.get(id)
        if over is not None:
            over.set()

    async def answer(
        self,
        error: RemoteError,
        made: dict[str, int],
        peer: Peer,
        timeout_s: float,
        answers: Answering | None = None,
    ) -> bool:
        """Whether to ask again after this error: all that it wants visited was agreed to.

        `made` counts the visits of this call; `answers` is whose it is, if not ours. Raises
        `Declined` for a user who does not want to.
        """
        questions = self._asked(error, peer)
        if not questions or any(made.get(_id(question), 0) > 1 for question in questions):
            return False
        for question in questions:
            id = _id(question)
            made[id] = made.get(id, 0) + 1
            if made[id] == 1:
                await self._agree(question, answers or self._answers)
            else:
                await self._wait(id, timeout_s)
        return True

    def _asked(self, error: RemoteError, peer: Peer) -> list[InputRequest]:
        rules = peer.revision
        if not rules.elicitation.url_required_error:
            return []
        if error.code != rules.codes[FaultKind.URL_ELICITATION_REQUIRED]:
            return []
        data = Raw(encode(error.data))
        with contextlib.suppress(Fault):  # then it is an error like any other
            return decode_url_elicitations(data, self._answers.capabilities, peer)
        return []

    async def _agree(self, question: InputRequest, answers: Answering) -> None:
        id = _id(question)
        while len(self._open) >= MAX_OPEN:
            self._open.pop(next(iter(self._open)))
        self._open[id] = asyncio.Event()
        answer = await answers.to(question)
        if not isinstance(answer, t.ElicitResult) or answer.action != "accept":
            self._open.pop(id, None)
            raise Declined("the user does not want to visit the page that the server asks for")

    async def _wait(self, id: str, timeout_s: float) -> None:
        over = self._open.get(id)
        if over is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await over.wait()
            self._open.pop(id, None)


def _id(question: InputRequest) -> str:
    params = question.params
    assert isinstance(params, t.ElicitRequestParams)
    return params.elicitation_id or ""


# ---------------------------------------------------------------- callback queue


log: logging.Logger = logging.getLogger("colonnade.client")

# News that waits for a slow handler; a server says as much in a second if it wants to.
MAX_WAITING = 1000
# All that waits, as it was sent: a log message may be as large as any message, 64 MiB.
MAX_WAITING_BYTES = 16 * 1024 * 1024
# For a handler that was stopped to clean up.
CLEAN_UP_S = 5.0
# How long a call, or `close`, waits for callbacks after the response has come: long enough for some
# that write to a disk or a database, short enough that one that hangs is noticed.
CATCH_UP_S = 10.0

# The callbacks that this code runs for, if it does. A call that a callback makes must not wait for
# that callback, also where it is made in another task or thread: the program's own code is in
# between, so that no argument can carry this.
_inside: ContextVar["Hearing | None"] = ContextVar("colonnade.client.input_callbacks", default=None)


class Hearing:
    """Calls handlers one after the other, in a task only while one of them waits."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[..., Any], tuple[Any, ...], int]] = deque()
        self._bytes = 0
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._dropped = 0
        # Whether waiting for what is at work now has taken too long already.
        self._late = False

    @property
    def behind(self) -> bool:
        """Whether callbacks are at work, or wait for their turn."""
        return self._task is not None

    def tell(self, handler: Callable[..., Any], *news: Any, size: int = 0) -> None:
        """Call a handler now, or after those that are still at work. `size` is how many bytes the
        server sent for this."""
        if self._closed:
            return
        if self._task is not None:
            self._keep(handler, news, size)
            return
        made = _called(handler, news)
        if made is not None:
            context = copy_context()
            context.run(_inside.set, self)
            work = self._work(made)
            self._task = asyncio.get_running_loop().create_task(work, context=context)

    def _keep(self, handler: Callable[..., Any], news: tuple[Any, ...], size: int) -> None:
        # What is too large for the limit by itself is kept while nothing else of size waits.
        fits = not self._bytes or self._bytes + size <= MAX_WAITING_BYTES or not size
        if len(self._waiting) < MAX_WAITING and fits:
            self._waiting.append((handler, news, size))
            self._bytes += size
            return
        if not self._dropped:
            log.warning("%r is too slow: news is dropped", handler)
        self._dropped += 1

    async def _work(self, made: Awaitable[Any] | None) -> None:
        try:
            while made is not None or self._waiting:
                if made is not None:
                    await _awaited(made)
                made = self._next()
        finally:
            self._task = None
            self._late = False

    def _next(self) -> Awaitable[Any] | None:
        if not self._waiting:
            return None
        handler, news, size = self._waiting.popleft()
        self._bytes -= size
        return _called(handler, news)

    async def caught_up(self) -> None:
        """Wait until every handler that was called so far is done, or nothing is heard any more.

        It returns after `CATCH_UP_S` in any case; then, until all have been called, at once.
        """
        task = self._task
        if task is None or self._late or _inside.get() is self:
            return
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((_reach, (reached,), 0))
        waited_for = [task, reached]
        first = asyncio.FIRST_COMPLETED
        done, _ = await asyncio.wait(waited_for, timeout=CATCH_UP_S, return_when=first)
        reached.cancel()
        if not done:
            self._late = True
            words = "a callback is slow: not waited for after %g s; %d messages wait for it"
            log.warning(words, CATCH_UP_S, self._count())

    async def close(self) -> None:
        """Hear no more: what is at work is stopped."""
        left = 0 if self._closed or _inside.get() is self else self._count()
        if left:
            log.warning("closed before every callback was called: %d messages are dropped", left)
        self._closed = True
        self._waiting.clear()
        self._bytes = 0
        task = self._task
        if task is not None and task is not asyncio.current_task():
            await asyncio.sleep(0)  # what was called has begun
            task.cancel()
            await asyncio.wait([task], timeout=CLEAN_UP_S)

    def _count(self) -> int:
        return sum(handler is not _reach for handler, _, _ in self._waiting)


def _reach(mark: "asyncio.Future[None]") -> None:
    if not mark.done():
        mark.set_result(None)


def _called(handler: Callable[..., Any], news: tuple[Any, ...]) -> Awaitable[Any] | None:
    """Call a handler; what is still to be waited for, if it waits."""
    try:
        made = handler(*news)
    except Exception as error:
        _complain(error)
        return None
    return made if inspect.isawaitable(made) else None


async def _awaited(made: Awaitable[Any]) -> None:
    try:
        await made
    except Exception as error:
        _complain(error)


def _complain(error: Exception) -> None:
    log.error("a handler of news raised %s", type(error).__name__, exc_info=error)
