"""What rules, approvals, pins and audit see of one request, and the protocols between them.

A `PolicyRequest` is made by the guard once the name of a request is resolved to a server. The same
bytes that it holds are sent.

Rules: data and protocols only. Nothing here decides, waits or writes. Arguments are decoded once,
and refused if a member is repeated: a rule must not see another value than the server.
"""

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, cast

import msgspec
from msgspec import Raw, Struct

from colonnade.errors import Fault, FaultKind, Refused
from colonnade.host.config.settings import ServerEntry
from colonnade.ports import RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.json_checks import decode_unique
from colonnade.protocol.negotiation import Peer
from colonnade.protocol.revision import NEWEST
from colonnade.protocol.schema.error_messages import expected, json_type

if TYPE_CHECKING:  # few requests are input requests
    from colonnade.host.input_requests import HostInputRequest
    from colonnade.protocol.input_requests import InputRequest

Action: TypeAlias = Literal["allow", "deny", "ask"]
# What a request is about. An input request of a server is about the tool, prompt or resource whose
# call it belongs to; without one its `name` is empty.
ItemKind: TypeAlias = Literal["tool", "prompt", "resource", "template"]

NO_ARGUMENTS: Raw = Raw(b"")
# The end of `ServerEntry.shown` of a server that is no command and no URL.
IN_PROCESS = " in this process"


class PolicyRequest(Struct, frozen=True, kw_only=True, dict=True):
    """One request, as rules, approvals, pins and audit see it.

    - `principal` is the authenticated caller, empty without authentication; `claims` are those of
      its verified token; `client` is the name of its client (`clientInfo`), empty for this program;
      `revision` is the one that it uses.
    - `server` is the key of the server, `identity` a digest of its command or URL, and `trusted`
      its setting.
    - `method` is that of the request: `tools/call`, `prompts/get`, `resources/read`,
      `completion/complete`, `tasks/get`; `elicitation/create`, `sampling/createMessage` and
      `roots/list` for what a server asks; `tools/list` and its siblings if an item is listed.
    - `name` is the name on the server, or the URI; `qualified` is the qualified name, also if an
      alias was called, or the URI. A qualified name may be shortened (it ends in a digest then);
      `full_name` is never, and `namespace` is what the server's names begin with.
    - `arguments` are the bytes that are sent: the arguments of a tool or prompt, or the params of
      an input request; empty if there are none.
    - `meta` are the unreserved keys of `_meta` that are sent, without trace context, as JSON; empty
      if there are none.
    - `definition` is the item as its server lists it for this caller, with the server's own name;
      None if it is not listed. `definition_digest` is a digest of it, empty without one.
    - `during` is, for what a server asks, the id of the call in the audit log that it belongs to.
    """

    principal: str
    claims: Mapping[str, Any]
    client: str
    revision: str
    server: str
    identity: str
    trusted: bool
    method: str
    kind: ItemKind
    name: str
    qualified: str
    arguments: Raw = NO_ARGUMENTS
    meta: Raw = NO_ARGUMENTS
    definition: t.ProtocolType | None = None
    definition_digest: str = ""
    during: str = ""
    namespace: str = ""

    @property
    def full_name(self) -> str:
        """The name of a tool or prompt with its namespace, as its server gives it, however long it
        is and whatever it contains."""
        return f"{self.namespace or self.qualified.partition('__')[0]}__{self.name}"

    @property
    def decoded_arguments(self) -> dict[str, Any]:
        """The arguments, decoded once; empty for null. Raises `Fault` for a value that is not an
        object, for a repeated member, and for invalid JSON."""
        # Not a `cached_property`: that takes a lock in Python 3.11, for each request.
        kept = cast("dict[str, Any]", self.__dict__)
        known: dict[str, Any] | None = kept.get("decoded_arguments")
        if known is None:
            decoded: object = decode_unique(self.arguments) if self.arguments else None
            if decoded is not None and not isinstance(decoded, dict):
                words = f"arguments: {expected(['object'], json_type(decoded))}"
                raise Fault(FaultKind.INVALID_PARAMS, words)
            known = cast("dict[str, Any]", decoded or {})
            kept["decoded_arguments"] = known
        return known

    @property
    def input_schema(self) -> Mapping[str, Any] | None:
        """The input schema of the tool that is called; None for all other requests."""
        is_call = self.method == "tools/call" and isinstance(self.definition, t.Tool)
        return cast("t.Tool", self.definition).input_schema if is_call else None

    @cached_property
    def arguments_digest(self) -> str:
        """The SHA-256 of the bytes that are sent, in hexadecimal."""
        return hashlib.sha256(self.arguments).hexdigest()

    @property
    def meta_digest(self) -> str:
        """The same of `meta`; empty if there is none."""
        return hashlib.sha256(self.meta).hexdigest() if self.meta else ""


class CallerFacts(Struct, frozen=True):
    """What rules may look at of a caller; `claims` encoded, so that it can be a key."""

    principal: str = ""
    claims: bytes = b""
    client: str = ""
    revision: str = NEWEST.date

    @classmethod
    def of(cls, context: RequestContext) -> "CallerFacts":
        """Those of a request."""
        exchange = context.exchange
        return cls.of_caller(exchange.principal, exchange.peer, context.claims)

    @classmethod
    def of_caller(cls, principal: str, peer: Peer, claims: Mapping[str, Any]) -> "CallerFacts":
        """Those of a caller with a client, and the claims of its token."""
        return cls(
            principal,
            msgspec.json.encode(dict(claims), order="sorted") if claims else b"",
            peer.info.name if peer.info is not None else "",
            peer.revision.date,
        )


class Decision(Struct, frozen=True):
    """What the rules say of a request.

    `rule` is the place or the name of the rule that decides, for people; `by_arguments` is whether
    the arguments had a part in it, so that other arguments may be allowed; `policy_version` is the
    version of the rules; `reason` says in one sentence why; `is_default` is whether no rule
    matches. `public_rule` is the name of the rule without its place: callers on other machines must
    not learn the paths of this one.
    """

    action: Action
    rule: str
    by_arguments: bool
    policy_version: str
    reason: str
    is_default: bool = False
    public_rule: str = "a rule"


class Consent(Struct, frozen=True):
    """How a request with the decision `ask` came to be allowed: `approval` is the id of the
    approval, `by` who gave it, and `rule` the remembered rule that allowed it, if it was one."""

    approval: str = ""
    by: str = ""
    rule: str = ""


# Who has answered, of a remembered decision.
REMEMBERED: Final = "a remembered decision"


class Denial(Struct, frozen=True):
    """How a request with the decision `ask` came to be denied by an answer: as `Consent`, with the
    `reason`."""

    reason: str
    approval: str = ""
    by: str = ""
    rule: str = ""


# Why a request that was asked about has no answer: its approval has expired or was withdrawn; the
# call has stopped waiting while its approval was open; a person has dismissed it; the call was
# cancelled; there was no way to ask; or the inbox could not take it.
Unanswered: TypeAlias = Literal[
    "expired", "withdrawn", "waiting", "dismissed", "cancelled", "no_approver", "failed"
]


class DeniedByPerson(Refused):
    """A person has said no: it is not asked about again in the same place."""

    denial: Denial = Denial("")


class DenialRemembered(DeniedByPerson):
    """A remembered decision says no, for as long as it is remembered."""


class NotAnswered(Refused):
    """No person has answered, and none has said no."""

    ended: Unanswered = "expired"


def server_identity(entry: ServerEntry) -> str:
    """A digest of the command or the URL of a server, which settings, headers and environment do
    not change; of its key for a server in this process. Words of a command that name files of its
    working folder count as their absolute paths: the same words are another program elsewhere."""
    shown = entry.shown
    text = f"{entry.key}\n{shown}" if shown.endswith(IN_PROCESS) or not shown else shown
    if entry.local_paths:
        text = repr((text, entry.local_paths))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def digest_of(definition: t.ProtocolType | None) -> str:
    """The digest of a definition; empty for None. Equal if only the order of keys differs."""
    if definition is None:
        return ""
    return hashlib.sha256(msgspec.json.encode(definition, order="sorted")).hexdigest()


# ---------------------------------------------------------------- what the guard calls


class RuleSet(Protocol):
    """What the guard needs of a policy."""

    @property
    def version(self) -> str:
        """Changes with the rules."""
        ...

    @property
    def uses_definitions(self) -> bool:
        """Whether a decision may depend on the definition of an item."""
        ...

    def decide(self, request: PolicyRequest) -> Decision:
        """What the rules say of a request. Never raises."""
        ...

    def hides(self, request: PolicyRequest) -> bool:
        """Whether an item is denied whatever its arguments are."""
        ...

    def hides_server(self, request: PolicyRequest) -> bool:
        """Whether everything of a server is denied. The request has no name."""
        ...


class AuditSink(Protocol):
    """The record of what was proposed, decided and done. `call` is the id that `proposed` returned.

    Each method raises `Refused` if it cannot be recorded and must be; the request ends then.
    """

    def proposed(self, request: PolicyRequest) -> str:
        """A request has arrived; returns its id."""
        ...

    def decided(self, call: str, request: PolicyRequest, decision: Decision) -> None:
        """The rules have decided."""
        ...

    def asked(self, call: str, request: PolicyRequest, decision: Decision) -> None:
        """A person is about to be asked."""
        ...

    def answered(self, call: str, request: PolicyRequest, answer: Consent | Denial) -> None:
        """A person, or a remembered rule, has answered."""
        ...

    def unanswered(self, call: str, request: PolicyRequest, ended: Unanswered, why: str) -> None:
        """There is no answer; `why` is the reason, for people."""
        ...

    def executed(self, call: str, request: PolicyRequest, revision: str) -> Awaitable[None] | None:
        """The request is about to be sent; `revision` is the one of the server. If an awaitable is
        returned, it is sent after that; it raises `Refused` as well."""
        ...

    def became_task(self, call: str, request: PolicyRequest, handle: str) -> None:
        """The call has become a task of its server; `handle` stands for it."""
        ...

    def returned(self, call: str, request: PolicyRequest, result: t.ProtocolType | Raw) -> None:
        """There is a result, as the server sent it."""
        ...

    def abandoned(self, call: str, request: PolicyRequest, error: BaseException) -> None:
        """It ended without a result: refused, an error, cancelled."""
        ...

    async def close(self) -> None:
        """The host is closed."""
        ...


# Sends an input request on to the caller of the call (a callback of this program, or the client),
# and returns the raw result.
ForwardInput: TypeAlias = "Callable[[InputRequest], Awaitable[Raw]]"


class Approver(Protocol):
    """Where a person decides: the inbox. An approval is never an elicitation, so nothing here is
    sent to the client that calls."""

    async def approve(self, request: PolicyRequest, decision: Decision) -> Consent:
        """Ask for this exact request. Raises `Refused` if it is declined or expires, and at once
        if there is no way to ask."""
        ...

    async def review_input(
        self,
        request: PolicyRequest,
        decision: Decision,
        input_request: "InputRequest",
        forward: ForwardInput,
    ) -> Raw:
        """Ask whether an input request of a server may be answered, and return the result: that of
        `forward`, perhaps of an edited request and edited itself. Raises `Refused`."""
        ...

    async def review_request(
        self, request: PolicyRequest, decision: Decision, input_request: "InputRequest"
    ) -> "InputRequest":
        """The first half, for a client that answers in its next request: show sampling, which may
        be edited. Raises `Refused`."""
        ...

    async def review_response(
        self,
        request: PolicyRequest,
        decision: Decision,
        input_request: "InputRequest",
        response: Raw,
    ) -> Raw:
        """The other half: show the result of the model or the roots, which may be edited. Raises
        `Refused`."""
        ...

    async def answer_input(self, request: "HostInputRequest") -> Any:
        """Answer an input request for a host without `on_input_request`: returns and raises what
        that callback does."""
        ...
