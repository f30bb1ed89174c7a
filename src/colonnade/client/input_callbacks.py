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
