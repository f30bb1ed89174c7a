"""The steps of one guarded request in the audit log, and its refusals.

Rules: a step that must be recorded and cannot be ends the request (`Refused`). The end of a request
never raises: the error that ended it is raised. A refusal says what to do.
"""

import asyncio
import logging
from collections.abc import Awaitable, Generator
from contextlib import contextmanager, suppress
from typing import Final

from msgspec import Raw
from msgspec.structs import replace

from colonnade.errors import Refused
from colonnade.host.policy.request import (
    AuditSink,
    Consent,
    Decision,
    Denial,
    DeniedByPerson,
    NotAnswered,
    PolicyRequest,
    Unanswered,
)
from colonnade.host.servers.session import SessionCall
from colonnade.protocol import types as t

log: logging.Logger = logging.getLogger("colonnade.host")


# ---------------------------------------------------------------- refusals

# What to do where there is no way to ask.
ADD_APPROVER: Final = (
    "add [approvals] with socket = true to colonnade.toml and answer in "
    '"colonnade inbox", pass Host(inbox=…)'
)


class HiddenNow(Refused):
    """An item is hidden from its caller since the name was resolved."""


def denied(request: PolicyRequest, decision: Decision) -> Refused:
    """The refusal of a request that the rules deny; `HiddenNow` if other arguments do not help."""
    if not decision.by_arguments:
        return HiddenNow(decision.reason, server=request.server, reason="rule", rule=decision.rule)
    what = f"{request.qualified!r} is denied with these arguments by"
    return Refused(
        f"{what} {decision.rule}",
        server=request.server,
        reason="rule",
        rule=decision.rule,
        public=f"{what} {decision.public_rule}",
    )


def no_approver(steps: "RequestSteps", decision: Decision) -> Refused:
    """The refusal of a request that needs an approval where there is no way to ask for one, which
    is recorded."""
    request = steps.request
    what, why = request.qualified or request.method, "and there is no way to ask for one"
    refused = Refused(
        f"{what!r} needs an approval ({decision.rule}), {why}",
        server=request.server,
        hint=f"{ADD_APPROVER}, or allow it with a rule",
        reason="no_approver",
        rule=decision.rule,
        public=f"{what!r} needs an approval ({decision.public_rule}), {why}",
    )
    steps.unanswered("no_approver", str(refused))
    return refused


# ---------------------------------------------------------------- steps


class RequestSteps:
    """The steps of one request in the audit log, if there is one."""

    __slots__ = ("_audit", "consent", "decision", "id", "is_in_flight", "request")

    def __init__(self, audit: AuditSink | None, request: PolicyRequest) -> None:
        self._audit = audit
        self.request: PolicyRequest = request
        # Until it has a result or an error.
        self.is_in_flight: bool = True
        # What the rules said, and who allowed it.
        self.decision: Decision | None = None
        self.consent: Consent | None = None
        # In the audit log; empty without one.
        self.id: str = audit.proposed(request) if audit is not None else ""

    @property
    def is_recorded(self) -> bool:
        """Whether there is an audit log of it."""
        return self._audit is not None

    def decided(self, decision: Decision) -> None:
        """The rules have decided."""
        self.decision = decision
        if self._audit is not None:
            self._audit.decided(self.id, self.request, decision)

    def asked(self, decision: Decision) -> None:
        """A person is about to be asked."""
        if self._audit is not None:
            self._audit.asked(self.id, self.request, decision)

    def answered(self, answer: Consent | Denial) -> None:
        """A person has answered."""
        if isinstance(answer, Consent):
            self.consent = answer
        if self._audit is not None:
            self._audit.answered(self.id, self.request, answer)

    def unanswered(self, ended: Unanswered, why: str) -> None:
        """There is no answer."""
        if self._audit is not None:
            self._audit.unanswered(self.id, self.request, ended, why)

    @contextmanager
    def asking(self, decision: Decision) -> Generator[None]:
        """While a person is asked: records a denial, or that there is no answer."""
        self.asked(decision)
        try:
            yield
        except DeniedByPerson as denied:
            self.answered(replace(denied.denial, reason=str(denied)))
            raise
        except NotAnswered as refused:
            self.unanswered(refused.ended, str(refused))
            raise
        except Refused as refused:
            if refused.reason == "no_approver":
                self.unanswered("no_approver", str(refused))
            elif refused.reason == "approval":  # of an approver of the program
                self.answered(Denial(str(refused)))
            else:
                self.unanswered("failed", str(refused))
            raise
        except (asyncio.CancelledError, GeneratorExit):
            with suppress(Refused):
                self.unanswered("cancelled", "the call was cancelled")
            raise
        except BaseException as error:  # such as the loss of the connection to the server
            with suppress(Refused):
                self.unanswered("failed", f"it ended with {type(error).__name__}")
            raise

    def executed(self, call: SessionCall | None) -> Awaitable[None] | None:
        """It is about to be sent. What is returned is awaited first."""
        if self._audit is None:
            return None
        revision = call.client.peer.revision.date if call is not None else ""
        return self._audit.executed(self.id, self.request, revision)

    def became_task(self, handle: str) -> None:
        """The call has become a task."""
        if self._audit is not None:
            self._audit.became_task(self.id, self.request, handle)

    def returned(self, result: t.ProtocolType | Raw) -> None:
        """There is a result."""
        if self._audit is not None:
            self._audit.returned(self.id, self.request, result)

    def abandoned(self, error: BaseException) -> None:
        """It ended without a result. Never raises: the error that ended it is raised."""
        if self._audit is not None:
            try:
                self._audit.abandoned(self.id, self.request, error)
            except Refused as refused:
                log.error("the end of a request is not in the audit log: %s", refused)


async def done(recorded: Awaitable[None] | None) -> None:
    """Wait until a step is recorded, if it has to be waited for."""
    if recorded is not None:
        await recorded
