"""Questions of servers, all in one place: who asks, for which call, and what is answered.

    async def on_question(question: Question) -> object:
        print(f"{question.server} asks: {question.params.message}")
        return {"seat": "12A"}

A question goes back the way the call came: for a call of this program that is its `on_question`.
Where a server asks by result the call is known; where it asks by request, it is one of those that
are under way in that conversation, and all of them are named.

Rules: with nobody to ask nothing is offered, and everything is refused at once. Nothing that a
person did not say is made up. A handler that fails, or never answers, has refused; no server
learns why.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import msgspec
from msgspec import Raw

from colonnade.client.input_callbacks import elicited, sampled
from colonnade.errors import Declined, Fault, FaultKind, LocalProtocolError, RemoteError
from colonnade.host.servers.session import Asking
from colonnade.ports import Turn
from colonnade.protocol import types as t
from colonnade.protocol.input_requests import AnyInputResponse, is_supported, without_context
from colonnade.protocol.input_requests import InputRequest as Asked
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.negotiation import Peer
from colonnade.protocol.revision import NEWEST

log: logging.Logger = logging.getLogger("colonnade.host")

# A person must find the window, read the question and decide.
ASK_S = 600.0
# What is logged is wanted, where a handler was given.
LOG_LEVEL: t.LoggingLevel = "info"


class Calling(NamedTuple):
    """A call that is under way: its name in the catalogue, or an address; its arguments; and who
    makes it."""

    name: str
    arguments: dict[str, Any]
    caller: str
    method: str = "tools/call"


class Question(NamedTuple):
    """What a server asks: `kind` is "elicit" for a person's words and "sample" for a model's, and
    `params` the question. Which folders it may know of is for the configuration to say.

    `calls` are those that it may be about: exactly one where that is known, and none where the
    server asks by itself.
    """

    server: str
    kind: Literal["elicit", "sample"]
    params: t.ElicitRequestParams | t.CreateMessageRequestParams
    calls: tuple[Calling, ...] = ()


# The answer, as `on_elicit` and `on_sample` of a client give it; None, and every exception, is no.
OnQuestion: TypeAlias = Callable[[Question], Any | Awaitable[Any]]


class Named(Asked, frozen=True):
    """A question on its way to whoever answers, with the server that asks and the calls."""

    server: str = ""
    turns: tuple[Turn, ...] = ()


class Desk:
    """Answers the questions that belong to calls of this program."""

    def __init__(self, on_question: OnQuestion | None = None, ask_s: float = ASK_S) -> None:
        self._on_question = on_question
        self._ask_s = ask_s
        able = t.ClientCapabilities()
        if on_question is not None:
            able = t.ClientCapabilities(
                elicitation=t.ElicitationCapability(form={}, url={}),
                sampling=t.SamplingCapability(),
            )
        # This program, as the one who calls: what it can answer, and what it wants to hear.
        self.peer: Peer = Peer(NEWEST, able)
        self.listening: Peer = Peer(NEWEST, able, None, LOG_LEVEL)

    @property
    def is_open(self) -> bool:
        """Whether anybody is there."""
        return self._on_question is not None

    async def ask(self, asked: Asked) -> Raw:
        """The answer, as it would travel. Raises `RemoteError` where there is none."""
        server, turns = (asked.server, asked.turns) if isinstance(asked, Named) else ("", ())
        params = asked.params
        if isinstance(params, t.ListRootsRequestParams):
            raise _refusal("roots are for the configuration to say")
        kind = "elicit" if isinstance(params, t.ElicitRequestParams) else "sample"
        calls = tuple(calling for turn in turns if (calling := _calling(turn)) is not None)
        question = Question(server, kind, params, calls)
        try:
            answer = Raw(encode(_answer(params, await self._said(question))))
            asked.decode_response(answer, NEWEST)  # what does not fit the question is no answer
            return answer
        except Declined as no:
            if isinstance(params, t.ElicitRequestParams):
                return Raw(encode(t.ElicitResult(action="decline")))
            raise _refusal(str(no) or "the user said no") from None
        except Exception as error:
            log.error("server %r is not answered: %s", server, _reason(error), exc_info=error)
            if isinstance(params, t.ElicitRequestParams):
                return Raw(encode(t.ElicitResult(action="cancel")))
            raise _refusal("there is no answer") from None

    async def _said(self, question: Question) -> Any:
        if self._on_question is None:
            raise Declined("there is nobody to ask")
        made = self._on_question(question)
        if not inspect.isawaitable(made):
            return made
        limit = asyncio.timeout(self._ask_s)
        try:
            async with limit:
                return await made
        except TimeoutError:
            if limit.expired():
                raise TimeoutError(f"nothing was said in {self._ask_s:g} s") from None
            raise


def _answer(
    params: t.ElicitRequestParams | t.CreateMessageRequestParams, said: Any
) -> AnyInputResponse:
    if isinstance(params, t.ElicitRequestParams):
        return elicited(params, said)
    return sampled(said, "unknown")


def _reason(error: Exception) -> str:
    """Why there is no answer, for whoever wrote the handler."""
    if isinstance(error, Fault | LocalProtocolError):
        return f"what on_question gave is no answer: {error}"
    return f"on_question raised {type(error).__name__}: {error}"


def _refusal(words: str) -> RemoteError:
    return RemoteError(NEWEST.codes[FaultKind.USER_REJECTED], words)


def _calling(turn: Turn) -> Calling | None:
    """The call of a turn, for people; lists are nobody's call."""
    exchange = turn.exchange
    name = exchange.params.name if exchange.params.name is not None else exchange.params.uri
    if not isinstance(name, str):
        return None
    arguments: dict[str, Any] = {}
    raw = exchange.params.arguments
    if raw:
        given: Any = msgspec.json.decode(raw)
        arguments = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    return Calling(name, arguments, exchange.principal, exchange.method.name)


def asking_of(server: str) -> Asking:
    """What puts the questions of a server to whoever made the call that they are about."""

    async def ask(turns: tuple[Turn, ...], asked: Asked) -> Raw:
        # A list is nobody's call: who is with the server for one is asked nothing.
        calls = tuple(turn for turn in turns if turn.exchange.method.may_require_input)
        if not calls:
            raise _refusal("nobody has made a call that this could be about")
        # The latest is the likeliest; they are all of one caller.
        peer = calls[-1].exchange.peer
        able = peer.capabilities
        if not isinstance(able, t.ClientCapabilities):
            able = t.ClientCapabilities()
        if not is_supported(asked, able, peer.revision):
            asked = without_context(asked)
        if not is_supported(asked, able, peer.revision):
            code = peer.revision.codes[FaultKind.METHOD_NOT_FOUND]
            raise RemoteError(code, f"the caller cannot be asked for {asked.kind.method}")
        return await calls[-1].wire.ask(Named(asked.params, server, calls))

    return ask
