"""Runs handlers that send input requests, over as many `input_required` rounds as they need.

In revisions where input requests are JSON-RPC requests, the handler waits for the response. In
others the result is `input_required`: the round ends, the request state is encrypted, and the retry
runs the handler from the top.

Rules: what a handler does after its round has ended is dropped. A cancellation by this module is
never raised out of it, and any other always is.
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
from colonnade.server.context.context import Context, HandlerServer
from colonnade.server.handlers.function import Body

log: logging.Logger = logging.getLogger("colonnade.server")

# The lifetime of a request state: the time for the user to respond.
STATE_LIFETIME_S = 600.0


class InputRoundsRunner:
    """Runs the handlers of a server that may send input requests."""

    def __init__(
        self,
        seal: Callable[[], Seal],
        server: HandlerServer,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._state_storage = RequestStateStorage(seal, lambda: server.store)
        self._server = server
        self._clock = clock

    async def run(
        self,
        request: RequestContext,
        params: t.InputResponseRequestParams,
        body: Body,
        once: bool = False,
    ) -> t.ProtocolType:
        """Run a handler; the result is its own, or `input_required`.

        With `once` a request state is accepted only once, however often it is sent.
        """
        rounds = await self._load_rounds(request, params, once)
        context = Context(request, rounds, self._server)
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        cancelling_before = task.cancelling()
        result: t.ProtocolType | None = None
        try:
            result = await body(context)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            cancelled_elsewhere = task.cancelling() > cancelling_before + context.close()
            if not context.unwinding or (
                cancelled_elsewhere and isinstance(error, asyncio.CancelledError)
            ):
                raise  # it failed before, or the request was cancelled
        finally:
            context.close()
            if context.input_tasks:
                # Input requests that are no longer awaited are cancelled before the response is
                # sent: over HTTP it ends their stream.
                await asyncio.sleep(0)
        while task.cancelling() > cancelling_before:
            # Our cancellations, and those that a TaskGroup leaves behind before Python 3.13.
            task.uncancel()
        if result is not None and not context.input_requested:
            return result
        return await self._input_required(request, rounds)

    async def _load_rounds(
        self, request: RequestContext, params: t.InputResponseRequestParams, once: bool
    ) -> InputRounds:
        exchange = request.exchange
        memory = None
        if request.task_journal is not None:
            return InputRounds(exchange.peer, exchange.method, saved=request.task_journal.effects)
        if exchange.peer.revision.input_requests is not InputRequests.IN_RESULT:
            return InputRounds(exchange.peer, exchange.method)
        if params.request_state is not None:
            secret = await self._state_storage.load(params.request_state, exchange.principal)
            memory = open_request_state(
                params.request_state,
                lambda _: secret,
                principal=exchange.principal,
                method=exchange.method.name,
                subject=subject_of(exchange.request.params),
                now=self._clock(),
            )
            if exchange.record is not None:
                exchange.record.earlier_traceparent = memory.traceparent
            if once:
                spent = SingleUse(self._server.store)
                await spent.spend(params.request_state, memory, now=self._clock())
        return InputRounds(exchange.peer, exchange.method, memory, params.input_responses)

    async def _input_required(
        self, request: RequestContext, rounds: InputRounds
    ) -> t.InputRequiredResult:
        exchange = request.exchange
        if exchange.record is not None and not rounds.traceparent:
            rounds.traceparent = exchange.record.traceparent
        if rounds.unused:
            log.warning(
                "%s sent other input requests than in the last round: %d responses were not used; "
                "wrap values that change between rounds in ctx.once",
                exchange.method.name,
                len(rounds.unused),
            )
        secret = rounds.request_state(
            principal=exchange.principal,
            subject=subject_of(exchange.request.params),
            expires_at=self._clock() + STATE_LIFETIME_S,
        )
        state = await self._state_storage.save(secret, exchange.principal, STATE_LIFETIME_S)
        return rounds.input_required(state)


class Keys:
    """A key ring for an audience; without keys, a random one for the life of the process."""

    def __init__(self, keys: Sequence[bytes], audience: str) -> None:
        # Whether the key is random, so that other replicas cannot decrypt.
        self.private: bool = not keys
        self._audience = audience
        self._ring: Seal | None = None
        if keys:
            self._ring = self._make_ring(keys)

    def _make_ring(self, keys: Sequence[bytes]) -> Seal:
        from colonnade.auth.seal import KeyRing

        return KeyRing(keys, audience=self._audience)

    def share(self, key: bytes) -> None:
        """Use this key instead of a random one, if no keys were given."""
        if self.private:
            self._ring = self._make_ring((key,))

    @property
    def ring(self) -> Seal:
        """The key ring."""
        if self._ring is None:
            self._ring = self._make_ring(())
        return self._ring

    def seal(self, secret: bytes) -> str:
        """Encrypt a secret. Raises `Fault` if it is too large."""
        return self.ring.seal(secret)

    def unseal(self, text: str) -> bytes:
        """Decrypt a secret. Raises `Fault` if it was not encrypted by this key ring."""
        return self.ring.unseal(text)

    def encrypt(self, secret: bytes, place: bytes) -> bytes:
        """Encrypt a value for one place of a store."""
        return self.ring.encrypt(secret, place)

    def decrypt(self, data: bytes, place: bytes) -> bytes:
        """Decrypt a value. Raises `Fault` if this key ring did not encrypt it for the place."""
        return self.ring.decrypt(data, place)
