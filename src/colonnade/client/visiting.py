"""Web pages that a server wants to be visited before it goes on, where it asks that by an error.

Rules: nobody is sent anywhere twice for one call. Consent is not completion (D25): what is wanted
again is waited for, and not asked again; and that wait ends. Nothing is ever fetched here (R0630).
"""

import asyncio
import contextlib

from msgspec import Raw

from colonnade.client.answers import Answering, Answers
from colonnade.errors import Declined, Fault, FaultKind, RemoteError
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.negotiation import Peer
from colonnade.protocol.questions import Question, read_url_required

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

    def _asked(self, error: RemoteError, peer: Peer) -> list[Question]:
        rules = peer.revision
        if not rules.elicitation.by_error:
            return []
        if error.code != rules.codes[FaultKind.URL_ELICITATION_REQUIRED]:
            return []
        data = Raw(encode(error.data))
        with contextlib.suppress(Fault):  # then it is an error like any other
            return read_url_required(data, self._answers.capabilities, peer)
        return []

    async def _agree(self, question: Question, answers: Answering) -> None:
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


def _id(question: Question) -> str:
    params = question.params
    assert isinstance(params, t.ElicitRequestParams)
    return params.elicitation_id or ""
