"""Approvals: a person allows one exact request, once.

An approval is for a principal, a server, its tool, the bytes of the arguments, the unreserved keys
of `_meta`, the definition that the person saw and the version of the policy. If any of them is
different, it is another request, and is asked about anew. A request that was approved after its
caller had stopped waiting is allowed when the identical request comes again, until the approval
expires.

Rules: an approval is used once, in all processes with the same store. It is never an elicitation:
nothing here is sent to the client that calls. Without anyone to ask, a request is refused at once.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from colonnade.errors import Declined, Refused
from colonnade.host.input_requests import HostInputRequest
from colonnade.host.policy.approvals.inbox import (
    Inbox,
    InboxAnswer,
    InboxItem,
    InboxKind,
    ItemState,
    new_item,
    new_key,
)
from colonnade.host.policy.approvals.remembered import RememberedRule, RememberedRules
from colonnade.host.policy.request import (
    REMEMBERED,
    Consent,
    Decision,
    Denial,
    DenialRemembered,
    DeniedByPerson,
    ForwardInput,
    NotAnswered,
    PolicyRequest,
    Unanswered,
)
from colonnade.ports import SERVER_PRINCIPAL
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.input_requests import InputRequest
from colonnade.protocol.jsonrpc import encode

log: logging.Logger = logging.getLogger("colonnade.host")

# The last approval of a tool is compared with the next: as long as a person remembers it.
LAST_APPROVAL_S: Final = 30 * 24 * 3600.0
# Of the arguments and the definition of the last approval; what is larger is not compared.
MAX_COMPARED_BYTES: Final = 64 * 1024
# Lines of differences, and characters of each: a screen.
MAX_CHANGES: Final = 40
MAX_CHANGE: Final = 400

LAST_PREFIX: Final = "approved/"

NO_APPROVER: Final = "it needs the approval of a person, and there is no way to ask one"
ATTACH: Final = (
    "pass Host(inbox=Inbox(on_item=…)), or set socket = true in [approvals] of colonnade.toml "
    "and run `colonnade inbox`"
)


class LastApproval(Struct, frozen=True, omit_defaults=True):
    """What a person approved the last time: arguments, definition and `_meta`, as JSON text."""

    arguments: str
    definition: str
    definition_digest: str
    meta: str = ""


def exact_request(request: PolicyRequest, decision: Decision) -> bytes:
    """What an approval is for, beside the principal."""
    return encode(
        [
            request.server,
            request.identity,
            request.method,
            request.name,
            request.arguments_digest,
            request.meta_digest,
            request.definition_digest,
            decision.policy_version,
        ]
    )


class Approvals:
    """Asks the people behind an inbox. `remembered` has the decisions that they remember."""

    def __init__(self, inbox: Inbox, remembered: RememberedRules | None = None) -> None:
        self.inbox: Inbox = inbox
        self.remembered: RememberedRules = remembered or RememberedRules()
        self._unwatch = inbox.watch(self._answered)

    def close(self) -> None:
        """Stop to remember the answers of this inbox."""
        self._unwatch()

    def _answered(self, item: InboxItem) -> None:
        """Remember an answer, if its person wants that; also one that comes after the call."""
        if item.state in ("accepted", "declined") and item.answer is not None:
            scope = item.answer.remember
            if scope and item.state == "accepted" and item.answer.content:
                # A rule is a yes or a no: the next request would get what was left out of this one.
                log.warning(
                    "the answer to %s holds for this call only: it was edited, and only an answer "
                    "that accepts the item as it is can be remembered",
                    item.id,
                )
            elif scope:
                try:
                    self.remembered_as(self.remembered.add(item, scope))
                except Refused as refused:
                    log.warning("the answer to %s holds for this call only: %s", item.id, refused)

    def remembered_as(self, rule: RememberedRule) -> None:
        """An answer is remembered as this rule: for terminals, which show it."""

    # ------------------------------------------------------------ requests of callers

    async def approve(self, request: PolicyRequest, decision: Decision) -> Consent:
        """Ask for this exact request. Raises `Refused` if it is declined or expires, and at once
        if there is no way to ask."""
        consent = self.recall(request, decision)
        if consent is not None:
            return consent
        key = new_key(request.principal, exact_request(request, decision))
        granted = await self.inbox.read(key)
        if granted is not None and await self._use(granted):
            await self._keep_last(granted)
            return Consent(approval=granted.id, by=granted.answered_by)
        ends_at = self.inbox.clock() + self.inbox.wait_s
        while True:
            item = await self._open(await self._item("approval", key, request, decision))
            item = await self._wait(item, ends_at - self.inbox.clock())
            if await self._use(item):
                await self._keep_last(item)
                return Consent(approval=item.id, by=item.answered_by)
            if item.state not in ("accepted", "used") or ends_at <= self.inbox.clock():
                raise _refusal(item)
            consent = self.recall(request, decision)  # an identical request has used the approval
            if consent is not None:
                return consent

    def recall(self, request: PolicyRequest, decision: Decision) -> Consent | None:
        """The consent of a remembered decision; None if there is none. Raises `Refused` for a
        denial."""
        rule = self.remembered.find(request, decision)
        if rule is None:
            return None
        if rule.action == "deny":
            hint = f"`colonnade policy forget {rule.id}` removes that decision"
            denied = DenialRemembered(
                "a person has denied it, and this is remembered", hint=hint, reason="approval"
            )
            denied.denial = Denial("", by=REMEMBERED, rule=rule.sentence)
            raise denied
        return Consent(by=REMEMBERED, rule=rule.sentence)

    async def _use(self, item: InboxItem) -> bool:
        """Whether an approval allows the request now; it is used by that."""
        if item.state != "accepted" or item.usable_until <= self.inbox.clock():
            return False
        return await self.inbox.use(item)

    async def _open(self, item: InboxItem) -> InboxItem:
        if not self.inbox.has_approver:
            raise Refused(NO_APPROVER, hint=ATTACH, reason="no_approver")
        return await self.inbox.open(item)

    async def _wait(self, item: InboxItem, timeout_s: float | None) -> InboxItem:
        try:
            return await self.inbox.wait(item, timeout_s)
        except asyncio.CancelledError:
            if not self.inbox.is_waited_for(item):
                await asyncio.shield(self.inbox.withdraw(item))
            raise

    async def _item(
        self, kind: InboxKind, key: str, request: PolicyRequest, decision: Decision
    ) -> InboxItem:
        now = self.inbox.clock()
        try:
            content = bytes(request.arguments).decode()
            meta = bytes(request.meta).decode()
        except UnicodeDecodeError:
            raise Refused(
                "its arguments or `_meta` are not Unicode text, so they cannot be shown"
            ) from None
        definition = "" if request.definition is None else encode(request.definition).decode()
        item = new_item(
            kind, request.server, content, key=key, now=now, deadline_s=self.inbox.deadline_s
        )
        item = replace(
            item,
            principal=request.principal,
            client=request.client,
            identity=request.identity,
            method=request.method,
            name=request.qualified,
            own_name=request.name,
            meta=meta,
            definition=definition,
            definition_digest=request.definition_digest,
            rule=decision.rule,
            by_arguments=decision.by_arguments,
        )
        return replace(item, changes=await self._changes(item))

    # ------------------------------------------------------------ the last approval

    async def _changes(self, item: InboxItem) -> tuple[str, ...]:
        value = await self.inbox.store.get(SERVER_PRINCIPAL, _last_key(item))
        if value is None:
            return ()
        try:
            last = msgspec.json.decode(value, type=LastApproval)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return ()
        return tuple(changes_since(last, item))

    async def _keep_last(self, item: InboxItem) -> None:
        size = len(item.content) + len(item.definition) + len(item.meta)
        last = LastApproval("", "", item.definition_digest)
        if size <= MAX_COMPARED_BYTES:
            last = LastApproval(item.content, item.definition, item.definition_digest, item.meta)
        await self.inbox.store.put(SERVER_PRINCIPAL, _last_key(item), encode(last), LAST_APPROVAL_S)

    # ------------------------------------------------------------ requests of servers

    async def review_input(
        self,
        request: PolicyRequest,
        decision: Decision,
        input_request: InputRequest,
        forward: ForwardInput,
    ) -> Raw:
        """Ask whether an input request of a server may be answered, and return the result: that of
        `forward`, perhaps of an edited request and edited itself. Raises `Refused`."""
        if isinstance(input_request.params, t.ElicitRequestParams):
            # A client or a callback may answer a form without a person.
            await self.approve(request, decision)
            return await forward(input_request)
        input_request = await self.review_request(request, decision, input_request)
        response = await forward(input_request)
        return await self.review_response(request, decision, input_request, response)

    async def review_request(
        self, request: PolicyRequest, decision: Decision, input_request: InputRequest
    ) -> InputRequest:
        """The person sees and may change what the model is sent (R0098). A request for the roots
        has nothing to see: they are shown."""
        if not isinstance(input_request.params, t.CreateMessageRequestParams):
            return input_request
        content = encode(input_request.params).decode()
        answer = await self._review("sampling", content, request, decision)
        if not answer.content:
            return input_request
        params = decode_as(t.CreateMessageRequestParams, Raw(answer.content.encode()))
        return replace(input_request, params=params)

    async def review_response(
        self,
        request: PolicyRequest,
        decision: Decision,
        input_request: InputRequest,
        response: Raw,
    ) -> Raw:
        """The person sees what the model wrote, or the roots (R0094), before the server does, and
        may change the one and leave out some of the other."""
        kind: InboxKind = "sampling_result"
        if isinstance(input_request.params, t.ListRootsRequestParams):
            kind, request = "roots", replace(request, arguments=response)
            if self.recall(request, decision) is not None:
                return response
        answer = await self._review(kind, bytes(response).decode(), request, decision)
        return Raw(answer.content.encode()) if answer.content else response

    async def _review(
        self, kind: InboxKind, content: str, request: PolicyRequest, decision: Decision
    ) -> InboxAnswer:
        item = await self._item(kind, new_key(request.principal), request, decision)
        item = await self._wait(await self._open(replace(item, content=content, changes=())), None)
        if item.state != "accepted" or item.answer is None:
            raise _refusal(item)
        return item.answer

    # ------------------------------------------------------------ this program's input requests

    async def answer_input(self, request: HostInputRequest) -> Any:
        """Answer an elicitation for a host without `on_input_request`: returns and raises what that
        callback does. Raises `Declined` if there is no person to ask."""
        params = request.params
        if not isinstance(params, t.ElicitRequestParams):
            raise Declined("there is no model for sampling; pass Host(on_input_request=…)")
        if not self.inbox.has_approver:
            raise Declined("there is no person to ask", action="cancel")
        item = self._input_item(request, params)
        answered = await self.inbox.read(item.key) if item.task else None
        if answered is None or not await self.inbox.use(answered):  # it was not while we were gone
            answered = await self._wait(await self.inbox.open(item), None)
            await self.inbox.use(answered)
        item = answered
        if item.state == "cancelled":
            return None
        if item.state != "accepted" or item.answer is None:
            action = "decline" if item.state == "declined" else "cancel"
            raise Declined(f"the request was {item.state}", action=action)
        return True if item.kind == "url" else msgspec.json.decode(item.answer.content)

    def _input_item(self, request: HostInputRequest, params: t.ElicitRequestParams) -> InboxItem:
        call = request.calls[-1] if request.calls else None
        principal = call.caller if call is not None else ""
        content = encode(params).decode()
        task = call.task if call is not None else ""
        match = encode([request.server, task, content]) if task else b""
        item = new_item(
            "url" if params.mode == "url" else "form",
            request.server,
            content,
            key=new_key(principal, match),
            now=self.inbox.clock(),
            deadline_s=self.inbox.deadline_s,
        )
        return replace(
            item,
            principal=principal,
            method="elicitation/create",
            name=call.name if call is not None else "",
            task=task,
        )


_ENDED: Final[Mapping[ItemState, Unanswered]] = {
    "open": "waiting",
    "used": "waiting",
    "cancelled": "dismissed",
    "withdrawn": "withdrawn",
}


def _refusal(item: InboxItem) -> Refused:
    """Why there is no approval, and what the caller can do."""
    hint = "call again to ask anew"
    if item.state == "open":
        what, hint = f"it is waiting for approval {item.id}", "call again with the same arguments"
    elif item.state == "declined":
        denied = DeniedByPerson("the user denied it", server=item.server, reason="approval")
        denied.denial = Denial("", approval=item.id, by=item.answered_by)
        return denied
    else:
        what = f"approval {item.id} is {item.state}"
    refused = NotAnswered(what, server=item.server, hint=hint, reason="approval")
    refused.ended = _ENDED.get(item.state, "expired")
    return refused


def _last_key(item: InboxItem) -> str:
    match = encode([item.server, item.identity, item.method, item.own_name])
    return LAST_PREFIX + new_key(item.principal, match)


# ---------------------------------------------------------------- differences


def changes_since(last: LastApproval, item: InboxItem) -> list[str]:
    """What is different from the last approval of a tool, one line each."""
    found: list[str] = []
    if last.definition_digest != item.definition_digest:
        lines = list(differences("definition", _json(last.definition), _json(item.definition)))
        found += lines or ["definition: it is another one than at the last approval"]
    if last.arguments or last.definition:  # they were not too large
        found += differences("", _json(last.arguments), _json(item.content))
        found += differences("_meta", _json(last.meta), _json(item.meta))
    shown = [one if len(one) <= MAX_CHANGE else one[:MAX_CHANGE] + "…" for one in found]
    more = len(shown) - MAX_CHANGES
    return [*shown[:MAX_CHANGES], f"and {more} more"] if more > 0 else shown


def differences(path: str, before: object, after: object) -> Iterator[str]:
    """The members in which two JSON values differ, with their paths."""
    old, new = _members(before), _members(after)
    if old is not None and new is not None:
        for name in dict.fromkeys((*old, *new)):
            inner = f"{path}.{name}" if path else name
            if name not in new:
                yield f"{inner}: removed, it was {_text(old[name])}"
            elif name not in old:
                yield f"{inner}: added, {_text(new[name])}"
            else:
                yield from differences(inner, old[name], new[name])
        return
    if before != after or type(before) is not type(after):  # 1 is not true
        yield f"{path or 'arguments'}: {_text(before)} -> {_text(after)}"


def _members(value: object) -> dict[str, object] | None:
    return cast("dict[str, object]", value) if isinstance(value, dict) else None


def _json(text: str) -> object:
    try:
        return msgspec.json.decode(text) if text else {}
    except (msgspec.DecodeError, RecursionError):
        return text


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()
