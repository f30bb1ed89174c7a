"""A client's side of the conversation: found, kept, and begun anew where it ended.

Rules: every wait ends. What may have had an effect is never sent again: only what the server has
certainly not heard, and what only looks (D19). Whatever a conversation that is over still says is
not heard. One at a time begins anew, and whoever else needs it waits for that.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias

from msgspec import Raw

from colonnade.client.probe import (
    MEMORY,
    Attempt,
    Discover,
    Known,
    Means,
    Memory,
    Opening,
    Outcome,
    find,
)
from colonnade.client.transports import ChildWay, Way
from colonnade.errors import (
    CannotConnect,
    ColonnadeError,
    ConnectionLost,
    FaultKind,
    LocalProtocolError,
    RemoteError,
    RemoteProtocolError,
)
from colonnade.ports import Conversation, Hearer, Progressing, RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.link.events import NotificationReceived
from colonnade.protocol.link.handshake import Phase
from colonnade.protocol.link.link import DISCOVER, PING, SET_LEVEL, DuplexLink
from colonnade.protocol.methods import Side
from colonnade.protocol.negotiation import Identity
from colonnade.protocol.revision import NEWEST, Revisions

log: logging.Logger = logging.getLogger("colonnade.client")

# For a server that ignores what it does not know. One that is started by a package manager may
# take as long before it says anything; it is then greeted, and asked once more if it refuses that.
# Not shorter: eight FastMCP servers that a host starts at once on two cores answer after 6 s, and
# would be spoken to in an older revision. Python `mcp` 2.3 and rmcp 3.8 wait as long. It is paid
# once for a command that does not answer (twice where it stays alive), and remembered.
PROBE_S = 10.0

# What a server says to a request that it does not understand at all (D13).
UNKNOWN_STATUSES = frozenset({400, 404, 405, 406, 415})

# What only looks, or says the same twice: asked again where the answer was lost (D19).
HARMLESS = frozenset(
    {
        DISCOVER,
        PING,
        SET_LEVEL,
        "tools/list",
        "prompts/list",
        "prompts/get",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "resources/subscribe",
        "resources/unsubscribe",
        "completion/complete",
    }
)

# Members of an enumeration are looked up at some cost, and this one for every request.
CLOSED = Phase.CLOSED

Headers = Iterable[tuple[str, str]]
# Called with a conversation that was begun anew, before anybody else speaks in it.
Renewed: TypeAlias = Callable[[Conversation, Opening], Awaitable[None]]


class Ear:
    """Hears one conversation for a client, for as long as it is the client's."""

    def __init__(self, hearer: Hearer) -> None:
        self._hearer = hearer
        self.deaf = False

    def answer(self, request: RequestContext) -> Awaitable[bytes | None]:
        """The answer to a question of the server."""
        return self._hearer.answer(request)

    def told(self, told: NotificationReceived) -> None:
        """Pass on what the server tells."""
        if not self.deaf:
            self._hearer.told(told)

    def missed(self) -> None:
        """It told something that nobody heard."""
        if not self.deaf:
            self._hearer.missed()

    def gone(self) -> None:
        """It has ended."""
        if not self.deaf:
            self._hearer.gone()


class Speaker:
    """Speaks with one server, on a way that may be gone more than once."""

    def __init__(
        self,
        way: Way,
        hearer: Hearer,
        identity: Identity,
        accepts: Revisions,
        timeout_s: float,
        renewed: Renewed,
        memory: Memory = MEMORY,
    ) -> None:
        self.way = way
        self._hearer = hearer
        self._identity = identity
        self._accepts = accepts
        self._timeout_s = timeout_s
        self._renewed = renewed
        self._memory = memory
        self._conversation: Conversation | None = None
        # The one that is being opened: nobody speaks in it yet.
        self._tried: Conversation | None = None
        self._ear: Ear | None = None
        self._gone_by: Way = way
        self._lock = asyncio.Lock()
        # Whether anybody looks at what follows.
        self.watched: bool = False
        # Requests that wait for an answer, and when the server was last heard of.
        self.busy: int = 0
        self.heard_at: float = 0.0
        self._closed: str | None = None

    @property
    def conversation(self) -> Conversation:
        """The one that is held now, or is being opened. Raises before there is any."""
        conversation = self._conversation or self._tried
        if conversation is None:
            raise LocalProtocolError("this client is not open yet")
        return conversation

    @property
    def closed(self) -> bool:
        """Whether it was closed on this side."""
        return self._closed is not None

    @property
    def over(self) -> bool:
        """Whether there is no conversation now, on whichever side it ended."""
        return self._conversation is None or self._conversation.link.phase is Phase.CLOSED

    def note(self) -> None:
        """The server is there at this moment, as far as anybody knows."""
        self.heard_at = asyncio.get_running_loop().time()

    # ------------------------------------------------------------ opening

    def limit(self, accepts: Revisions) -> None:
        """Speak only these, from the next opening on."""
        self._accepts = accepts

    async def open(self) -> Opening:
        """Find the revision and begin. Raises where there is none in common, or nobody."""
        opening = await self._find()
        self._conversation = self._tried
        return opening

    async def _find(self) -> Opening:
        known = self._memory.recall(self.way.key)
        means = Means(restarts=self.way.restarts, older=self.way.older is not None)
        finding = find(self._spoken(), means, known)
        try:
            attempt = next(finding)
            while True:
                attempt = finding.send(await self._try(attempt))
        except StopIteration as found:
            opening: Opening = found.value
        except ConnectionLost as lost:
            raise self._not_reached(lost) from lost.__cause__
        assert self._tried is not None
        if not opening.revision.handshake:
            # The revision alone: what such a server offers may change with every request, so that
            # nothing is refused for what it offered once.
            self._tried.link.adopt(opening.revision)
        if self._accepts.enveloped:  # else nobody has asked whether it is a modern one
            # Twice silent is an answer: or what ignores the probe would cost that wait each time.
            sure = opening.sure or (known is not None and not known.sure)
            kept = Known(opening.revision.handshake, opening.older, sure)
            self._memory.keep(self.way.key, kept)
        return opening

    def _not_reached(self, lost: ConnectionLost) -> ColonnadeError:
        """What ended before it had begun, such as a child that exits at its start, was not reached;
        unless it was ended here."""
        if self._closed is not None:
            return lost
        error = CannotConnect(*lost.args, server=lost.server, hint=lost.hint, output=lost.output)
        error.status = lost.status
        return error

    def _spoken(self) -> Revisions:
        """The revisions that can be spoken on this way."""
        if not self.way.greets:
            return self._accepts
        if not self._accepts.handshakes:
            dates = ", ".join(self._accepts.dates)
            words = f"{dates} is not spoken by HTTP with SSE; leave out revision=, or the type sse"
            raise LocalProtocolError(words)
        return Revisions(self._accepts.handshakes)

    async def _try(self, attempt: Attempt) -> Outcome:
        try:
            if isinstance(attempt, Discover):
                conversation = await self._fresh(self.way)
                seconds = self._timeout_s if attempt.patient else probe_s(self._timeout_s)
                params = t.RequestParams()
                return await conversation.request(
                    DISCOVER, params, seconds, probing=attempt.revision
                )
            way = self.way.older if attempt.older else self.way
            conversation = await self._fresh(way or self.way)
            return await conversation.initialize(attempt.revision, self._timeout_s)
        except ColonnadeError as error:
            return error

    async def _fresh(self, way: Way) -> Conversation:
        """A conversation in which nothing was agreed on yet."""
        tried = self._tried
        if tried is not None and way is self._gone_by and tried.link.phase is Phase.NEW:
            return tried
        await self._leave("another try")
        if self._closed is not None:
            raise ConnectionLost(self._closed)
        carry = await way.reach(self._timeout_s)
        link = DuplexLink(Side.CLIENT, self._identity, self._accepts)
        self._ear, self._gone_by = Ear(self._hearer), way
        tried = self._tried = carry(link, self._ear)
        if self._closed is not None:  # while it was reached
            await tried.leave(self._closed)
            raise ConnectionLost(self._closed)
        return tried

    async def _leave(self, why: str) -> None:
        """End the one that was tried last, which is also the one that is held, if one is."""
        if self._tried is not None and self._ear is not None:
            self._ear.deaf = True
            await self._tried.leave(why)

    async def close(self, why: str) -> None:
        """End it, and the way; at any time, in any task, and twice."""
        self._closed = self._closed or why
        if self._tried is not None:
            await self._tried.leave(why)
        await self.way.close()

    # ------------------------------------------------------------ speaking

    async def request(
        self,
        method: str,
        params: t.RequestParams,
        timeout_s: float,
        progressed: Progressing | None = None,
        headers: Headers = (),
    ) -> Raw:
        """The raw answer to a request, from a conversation begun anew where that does no harm."""
        watched = self.watched
        if watched:
            self.busy += 1
        try:
            conversation = self._conversation
            if (
                conversation is None
                or self._closed is not None
                or conversation.link.phase is CLOSED
            ):
                conversation = await self.ready(method)
            try:
                return await conversation.request(
                    method, params, timeout_s, progressed=progressed, headers=headers
                )
            except ColonnadeError as error:
                await self._recover(method, conversation, error)
            return await self.conversation.request(
                method, params, timeout_s, progressed=progressed, headers=headers
            )
        finally:
            if watched:
                self.busy -= 1
                self.note()

    async def _recover(
        self, method: str, conversation: Conversation, error: ColonnadeError
    ) -> None:
        """Make it possible to ask once more, where that does no harm; else raise the error."""
        if self._closed is not None or not self.way.repeats:
            raise error
        if not (may_repeat(method, error) or await self._was_exchanged(conversation, error)):
            raise error
        log.info("%s: %s is sent again: %s", self.way.name, method, error)
        if not isinstance(error, ConnectionLost) or error.not_sent or self.over:
            await self.renew(conversation)

    async def _was_exchanged(self, conversation: Conversation, error: ColonnadeError) -> bool:
        """Whether another server stands there by now, which does not speak as we do any more.

        It has done nothing of what it was asked; but that it was exchanged must prove true.
        """
        peer = conversation.link.peer
        if peer is None or peer.revision.handshake:
            return False
        if isinstance(error, RemoteError):
            suspect = error.code == NEWEST.codes[FaultKind.VERSION_UNSUPPORTED]
        else:
            suspect = isinstance(error, RemoteProtocolError) and error.status in UNKNOWN_STATUSES
        if not suspect:
            return False
        try:
            raw = await conversation.request(DISCOVER, t.RequestParams(), self._timeout_s)
            return peer.revision.date not in decode_as(t.DiscoverResult, raw).supported_versions
        except (RemoteError, RemoteProtocolError):
            return True
        except ColonnadeError:  # whatever this is, it is no reason to begin anew
            return False

    async def ready(self, method: str) -> Conversation:
        """A conversation to say this in: the one that is held, or a new one if it has ended."""
        if self._closed is not None:
            raise ConnectionLost(f"{self._closed} before {method}")
        if self._conversation is None:
            raise LocalProtocolError(f"{method} before this client is open")
        if self.over:
            if not self.way.repeats:
                raise ConnectionLost(f"the connection ended before {method}")
            await self.renew(self.conversation)
            if self.over:
                raise ConnectionLost(f"the connection ended once more before {method}")
        return self.conversation

    async def renew(self, seen: Conversation) -> None:
        """Begin anew after this conversation, unless somebody has."""
        async with self._lock:
            if self._closed is not None:
                raise ConnectionLost(self._closed)
            if self._conversation is not seen:
                return
            child = self.way.child if isinstance(self.way, ChildWay) else None
            why = child.lost if child is not None else None
            await self._leave("it is begun anew")
            opening = await self._find()
            if why is not None:
                words = "%s; it was started again, and what it held in memory is gone%s"
                log.warning(words, why.sentence, why.output)
            assert self._tried is not None
            await self._renewed(self._tried, opening)
            self._conversation = self._tried


def probe_s(limit_s: float) -> float:
    """How long a probe waits: half of a short limit at most (a host's `start_s`, say), so that time
    is left for the handshake after it."""
    return min(PROBE_S, limit_s / 2)


def may_repeat(method: str, error: ColonnadeError) -> bool:
    """Whether this may be sent once more: the server has not heard it, or it only looks (D19)."""
    if not isinstance(error, ConnectionLost):
        return False
    return error.not_sent or (error.status is None and method in HARMLESS)
