"""What the rules say of a request, and what they are told about it.

Rules: a decision is of the rules alone: nothing here waits, asks or records. Without rules
everything is allowed.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from colonnade.host.policy.request import (
    Decision,
    PolicyRequest,
    RuleSet,
    digest_of,
    server_identity,
)
from colonnade.host.servers.generation import HostedServer
from colonnade.protocol import types as t

# Definitions whose digests are remembered; a host has fewer, or they are computed again.
MAX_DIGESTS: Final = 10_000
# Asked about if there is a person to ask and no rule: what they reveal leaves the user's hands.
REVIEWED_METHODS = frozenset({"sampling/createMessage", "roots/list"})
# Never asked about: a completion has no effect.
UNASKED_METHODS = frozenset({"completion/complete"})
NO_RULES = Decision("allow", "no rule", False, "", "there are no rules", is_default=True)
_STRICTNESS: Final[Mapping[str, int]] = {"allow": 0, "ask": 1, "deny": 2}


class PolicyDecisions:
    """The rules of a host, and what is computed for them. `reviews_input` is whether sampling and
    roots that no rule is about are asked about: where there is a person to ask."""

    def __init__(self, rules: RuleSet | None, *, reviews_input: bool) -> None:
        self.rules = rules
        self.reviews_input = reviews_input
        self._identities: WeakKeyDictionary[HostedServer, str] = WeakKeyDictionary()
        # Definitions are kept by their lists; the digest of each is computed once.
        self._digests: OrderedDict[int, tuple[t.ProtocolType, str]] = OrderedDict()

    @property
    def version(self) -> str:
        """The version of the rules; empty without any."""
        return self.rules.version if self.rules is not None else ""

    @property
    def uses_definitions(self) -> bool:
        """Whether a decision may depend on the definition of an item."""
        return self.rules is not None and self.rules.uses_definitions

    def identity(self, server: HostedServer) -> str:
        """The identity of a server."""
        found = self._identities.get(server)
        if found is None:
            found = self._identities[server] = server_identity(server.entry)
        return found

    def digest(self, definition: t.ProtocolType | None) -> str:
        """The digest of a definition."""
        if definition is None:
            return ""
        found = self._digests.get(id(definition))
        if found is None or found[0] is not definition:
            if len(self._digests) >= MAX_DIGESTS:
                self._digests.popitem(last=False)
            found = self._digests[id(definition)] = definition, digest_of(definition)
        return found[1]

    def hide(self, request: PolicyRequest) -> bool:
        """Whether the rules deny an item whatever its arguments are."""
        return self.rules is not None and self.rules.hides(request)

    def hide_server(self, request: PolicyRequest) -> bool:
        """Whether the rules deny everything of a server."""
        return self.rules is not None and self.rules.hides_server(request)

    def decide(self, request: PolicyRequest) -> Decision:
        """What the rules say; `allow` without rules."""
        if self.rules is None:
            return self._reviewed(request, NO_RULES)
        if request.method.startswith("tasks/"):  # the arguments of its call are not known any more
            action = "deny" if self.rules.hides(request) else "allow"
            reason = "a task is decided as the list of tools is"
            return Decision(action, "the rules", False, self.rules.version, reason)
        decision = self.rules.decide(request)
        if decision.action == "ask" and request.method in UNASKED_METHODS:
            return replace(decision, action="allow", reason="it is not asked about")
        return self._reviewed(request, decision) if decision.is_default else decision

    def _reviewed(self, request: PolicyRequest, decision: Decision) -> Decision:
        """The same decision, but `ask` for sampling and roots that no rule is about."""
        is_default = decision.is_default and self.reviews_input
        if is_default and request.method in REVIEWED_METHODS:
            return replace(decision, action="ask", by_arguments=True)
        return decision

    def strictest(self, requests: Sequence[PolicyRequest]) -> PolicyRequest:
        """The request that the rules are strictest with; the last one if they decide the same. A
        server that asks during several calls does not say for which."""
        return max(reversed(requests), key=lambda one: _STRICTNESS[self.decide(one).action])
