"""What a handler may know and do while it runs: progress, log, questions, the caller.

A handler asks the same way in every revision. Where questions go by request, asking waits on the
way back. Where they go by result, asking ends the exchange: the question is registered, two turns
of the loop later the handler's task is cancelled, and what the handler returns is dropped; on the
retry it runs again from the top and finds its answers. It is cancelled, not raised through, so
that `except Exception` cannot swallow it and gathered questions make one round.

Rules: facts come in as arguments; no context variables. One `Context` for each run.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import msgspec

from portico.errors import Declined, LocalProtocolError, RemoteError
from portico.ports import Session, Turn
from portico.protocol import types as t
from portico.protocol.interview import Interview
from portico.protocol.jsonrpc import encode
from portico.protocol.questions import AnyAnswer, Question
from portico.protocol.revision import Asking

log = logging.getLogger("portico.server")

T = TypeVar("T")

Read = Callable[[Turn, str], Awaitable[t.ReadResourceResult]]


class Context:
    """The caller's side of a running handler.

    A parameter annotated `Context` gets one; it is hidden from the schema.
    """

    def __init__(self, turn: Turn, interview: Interview, read: Read) -> None:
        self._turn = turn
        self._interview = interview
        self._read = read
        self._root = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        self._once: dict[str, asyncio.Future[Any]] = {}
        self.asked = False

    # ------------------------------------------------------------ who

    @property
    def principal(self) -> str:
        """Who is calling, as the verifier said; empty without one."""
        return self._turn.exchange.principal

    @property
    def client(self) -> t.Implementation | None:
        """What the client says it is: for people and logs, never for decisions."""
        return self._turn.exchange.peer.info

    @property
    def capabilities(self) -> t.ClientCapabilities:
        """What the client declared."""
        return cast("t.ClientCapabilities", self._turn.exchange.peer.capabilities)

    @property
    def revision(self) -> str:
        """The revision that this client speaks."""
        return self._turn.exchange.peer.revision.date

    @property
    def session(self) -> Session | None:
        """Where the revision has sessions; None where each request stands for itself."""
        return self._turn.session

    # ------------------------------------------------------------ while it runs

    async def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report progress to a caller that wants it. It must go up."""
        await self._send(self._turn.exchange.progress(progress, total, message))

    async def log(self, level: t.LoggingLevel, data: Any, logger: str | None = None) -> None:
        """Send a log message to a caller that wants this level. Never put a secret into it."""
        await self._send(self._turn.exchange.log(level, data, logger))

    async def debug(self, data: Any, logger: str | None = None) -> None:
        await self.log("debug", data, logger)

    async def info(self, data: Any, logger: str | None = None) -> None:
        await self.log("info", data, logger)

    async def notice(self, data: Any, logger: str | None = None) -> None:
        await self.log("notice", data, logger)

    async def warning(self, data: Any, logger: str | None = None) -> None:
        await self.log("warning", data, logger)

    async def error(self, data: Any, logger: str | None = None) -> None:
        await self.log("error", data, logger)

    async def critical(self, data: Any, logger: str | None = None) -> None:
        await self.log("critical", data, logger)

    async def _send(self, frame: bytes | None) -> None:
        if frame is not None:
            await self._turn.wire.send(frame)

    async def read(self, uri: str) -> t.ReadResourceResult:
        """Read one of this server's own resources, as this caller."""
        return await self._read(self._turn, uri)

    # ------------------------------------------------------------ questions

    async def pose(self, question: Question, key: str | None = None) -> AnyAnswer:
        """Ask one question and get its answer, in whichever way the revision asks."""
        key, answer = self._interview.ask(question, key)
        if answer is not None:
            return answer
        exchange = self._turn.exchange
        if exchange.peer.revision.asking is Asking.BY_REQUEST:
            try:
                raw = await self._turn.wire.ask(question)
            except RemoteError as error:
                raise self._interview.refused(key, error) from error
            return self._interview.answered(key, raw)
        if exchange.settled:
            raise LocalProtocolError("the exchange is over; nothing can be asked any more")
        self._unwind()
        await self._loop.create_future()  # until the task is cancelled
        raise LocalProtocolError("a cancelled handler went on")

    def _unwind(self) -> None:
        if not self.asked:
            self.asked = True
            # Two turns, so that questions asked side by side are asked in one round.
            self._loop.call_soon(self._loop.call_soon, self._cancel)

    def _cancel(self) -> None:
        if self._root is not None:
            self._root.cancel()

    async def sample(self, params: t.CreateMessageRequestParams) -> t.CreateMessageResult:
        """Let the client's model write something."""
        return cast("t.CreateMessageResult", await self.pose(Question(params)))

    async def roots(self) -> list[t.Root]:
        """The folders that the client lets this server know of."""
        answer = await self.pose(Question(t.ListRootsRequestParams()))
        return cast("t.ListRootsResult", answer).roots

    async def elicit_form(
        self, message: str, form: t.ElicitSchema, key: str | None = None
    ) -> dict[str, t.ElicitValue]:
        """Show the user a form. Raises `Declined`."""
        params = t.ElicitRequestParams(message=message, requested_schema=form)
        return _accepted(await self.pose(Question(params), key))

    async def elicit_url(self, message: str, url: str, elicitation_id: str) -> None:
        """Send the user to an address. Consent is all that this tells; raises `Declined`.

        Whether the user has done what they went for is for you to check, on the next run (D25).
        """
        params = t.ElicitRequestParams(
            message=message, mode="url", url=url, elicitation_id=elicitation_id
        )
        _accepted(await self.pose(Question(params)))

    async def once(self, key: str, make: Callable[[], T | Awaitable[T]]) -> T:
        """Run something once in all the runs of this call, and get its result on each.

        The result must be JSON. It is not exactly-once: a retry that is sent twice runs the rest
        twice; what must never happen twice needs a store.
        """
        kept = self._interview.kept(key)
        if kept is not None:
            return cast("T", msgspec.json.decode(kept))
        running = self._once.get(key)
        if running is None:
            running = self._once[key] = self._loop.create_future()
            try:
                made = make()
                value = await made if inspect.isawaitable(made) else made
            except BaseException as error:
                del self._once[key]
                running.cancel()
                raise error
            self._interview.keep(key, encode(value))
            running.set_result(value)
        return cast("T", await running)


def _accepted(answer: AnyAnswer) -> dict[str, t.ElicitValue]:
    if not isinstance(answer, t.ElicitResult) or answer.action != "accept":
        said = answer.action if isinstance(answer, t.ElicitResult) else "nothing"
        words = {"decline": "the user declined", "cancel": "the user closed the question"}
        raise Declined(words.get(said, "the user gave no answer"))
    return answer.content or {}
