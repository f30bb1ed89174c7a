"""Running a handler that may ask, over as many rounds as its questions take.

Where questions go by request the handler simply waits. Where they go by result, its questions are
its result: the round ends, the state is sealed, and the retry begins from the top.

Rules: settled means settled: what a handler does after its round has ended is dropped. A
cancellation of ours never leaves this file, and one of somebody else's always does.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

from colonnade.auth.seal import RequestStateStorage, SingleUse
from colonnade.ports import RequestContext, Seal
from colonnade.protocol import types as t
from colonnade.protocol.input_rounds import InputRounds, open_request_state, subject_of
from colonnade.protocol.revision import InputRequests
from colonnade.server.context.context import Context, Home
from colonnade.server.handlers.function import Body

log: logging.Logger = logging.getLogger("colonnade.server")

# How long a client may take between a question and its answer.
STATE_LIFETIME_S = 600.0


class Interviewer:
    """Runs the handlers of a server that may ask."""

    def __init__(
        self,
        seal: Callable[[], Seal],
        home: Home,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._depot = RequestStateStorage(seal, lambda: home.store)
        self._home = home
        self._clock = clock

    async def run(
        self,
        request: RequestContext,
        params: t.InputResponseRequestParams,
        body: Body,
        once: bool = False,
    ) -> t.ProtocolType:
        """Run a handler. Where questions go by result, they are its result.

        With `once` the answers to a round are taken only once, however often they are sent.
        """
        interview = await self._interview(request, params, once)
        context = Context(request, interview, self._home)
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        before = task.cancelling()
        result: t.ProtocolType | None = None
        try:
            result = await body(context)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            others = task.cancelling() > before + context.close()
            if not context.unwinding or (others and isinstance(error, asyncio.CancelledError)):
                raise  # it failed before, or somebody else wants this to end
        finally:
            context.close()
            if context.asking:
                # Questions that nobody waits for any more are taken back before the answer goes
                # out: over HTTP it ends the stream that they are on.
                await asyncio.sleep(0)
        while task.cancelling() > before:
            # Ours, and those that a TaskGroup leaves behind before Python 3.13.
            task.uncancel()
        if result is not None and not context.asked:
            return result
        return await self._demand(request, interview)

    async def _interview(
        self, request: RequestContext, params: t.InputResponseRequestParams, once: bool
    ) -> InputRounds:
        exchange = request.exchange
        memory = None
        if exchange.peer.revision.input_requests is not InputRequests.IN_RESULT:
            return InputRounds(exchange.peer, exchange.method)
        if params.request_state is not None:
            secret = await self._depot.load(params.request_state, exchange.principal)
            memory = open_request_state(
                params.request_state,
                lambda _: secret,
                principal=exchange.principal,
                method=exchange.method.name,
                subject=subject_of(exchange.request.params),
                now=self._clock(),
            )
            if once:
                spent = SingleUse(self._home.store)
                await spent.spend(params.request_state, memory, now=self._clock())
        return InputRounds(exchange.peer, exchange.method, memory, params.input_responses)

    async def _demand(
        self, request: RequestContext, interview: InputRounds
    ) -> t.InputRequiredResult:
        exchange = request.exchange
        if interview.unused:
            log.warning(
                "%s asks something else than last time: %d answers were not asked for; freeze "
                "what changes with ctx.once",
                exchange.method.name,
                len(interview.unused),
            )
        secret = interview.request_state(
            principal=exchange.principal,
            subject=subject_of(exchange.request.params),
            expires_at=self._clock() + STATE_LIFETIME_S,
        )
        state = await self._depot.save(secret, exchange.principal, STATE_LIFETIME_S)
        return interview.input_required(state)


class Keys:
    """A ring of keys for an audience; without keys, one that lives as long as the process."""

    def __init__(self, keys: Sequence[bytes], audience: str) -> None:
        # Whether nobody else can open what this seals.
        self.private: bool = not keys
        self._audience = audience
        self._ring: Seal | None = None
        if keys:
            self._ring = self._made(keys)

    def _made(self, keys: Sequence[bytes]) -> Seal:
        from colonnade.auth.seal import KeyRing

        return KeyRing(keys, audience=self._audience)

    @property
    def ring(self) -> Seal:
        """The ring itself."""
        if self._ring is None:
            self._ring = self._made(())
        return self._ring

    def seal(self, secret: bytes) -> str:
        """Text that only this ring opens. Raises `Fault` for more than may travel."""
        return self.ring.seal(secret)

    def unseal(self, text: str) -> bytes:
        """What was sealed. Raises `Fault` for anything else."""
        return self.ring.unseal(text)
