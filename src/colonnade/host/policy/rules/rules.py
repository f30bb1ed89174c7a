"""The rules of a policy: which requests are allowed, denied, or asked about.

    Policy([
        Rule("deny", tools="*__delete_*"),
        Rule("ask", servers="files", tools="write", arguments={"path": "/srv/shared/**"}),
        Rule("allow", servers=["files", "git"]),
    ], default="ask")

The first rule that matches decides. All conditions of a rule must hold; one without conditions
matches every call. A string is compared in several readings (`patterns`), each is decided for
itself, and the strictest decision counts.

Rules: pure. No I/O, no clock, no exception for a request, whatever it contains.
"""

import hashlib
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, cast, get_args

import msgspec
from msgspec.structs import replace

from colonnade.errors import Fault, InvalidArgument, InvalidArgumentType
from colonnade.host.policy.request import Action, Decision, ItemKind, PolicyRequest, RuleSet
from colonnade.host.policy.rules.arguments import (
    ArgumentCondition,
    SchemaDefaults,
    comparison_of,
)
from colonnade.host.policy.rules.conditions import (
    INPUT_METHODS,
    AnnotationCondition,
    ClaimCondition,
    Condition,
    FactCondition,
    ItemCondition,
    Strings,
    annotation_condition,
    as_strings,
    claim_condition,
    globs,
    input_condition,
    text_patterns,
)
from colonnade.host.policy.rules.patterns import EVERY_READING, Glob, TextPattern

log: logging.Logger = logging.getLogger("colonnade.host")

# A policy is read by people; each call looks at all rules that fit its tool.
MAX_RULES = 1000
# Tools and callers for which the rules that fit are remembered; for further ones all are forgotten.
MAX_PREPARED = 4096
# Characters of the version, of a SHA-256.
VERSION_CHARACTERS = 16

# The label of a rule without a name and a place.
UNNAMED = "rule"

_INPUTS = frozenset(INPUT_METHODS.values())
_STRICTNESS: Final[Mapping[str, int]] = {"allow": 0, "ask": 1, "deny": 2}

# A rule that is a function: returns an action, or None if it does not decide.
RuleFunction: TypeAlias = Callable[[PolicyRequest], Action | None]


# ---------------------------------------------------------------- rules


class Rule:
    """One rule of a policy.

    - `principals`, `clients` and `servers` are patterns (`dev-*`) of the authenticated caller, the
      name of its client, and the key of the server.
    - `claims` are claims of the caller's token, each with a pattern or several: `groups`.
    - `tools` and `prompts` are patterns of qualified names; in a rule with `servers`, of names on
      these servers. `resources` are patterns of URIs and URI templates. A rule with one of the
      three is only about such items.
    - `requests` are what a server asks: `elicitation`, `sampling`, `roots`. A rule with it is only
      about that, and `tools` then are those whose calls it belongs to.
    - `arguments` are conditions on values of the arguments, by their path.
    - `annotations` are hints of tools (`readOnlyHint`), of trusted servers only.
    - `name` is for people, and `place` where it is written.

    Raises `InvalidArgument` for a rule that cannot be used.
    """

    def __init__(
        self,
        action: Action,
        *,
        principals: Strings | None = None,
        claims: Mapping[str, Any] | None = None,
        clients: Strings | None = None,
        servers: Strings | None = None,
        tools: Strings | None = None,
        prompts: Strings | None = None,
        resources: Strings | None = None,
        requests: Strings | None = None,
        arguments: Mapping[str, Any] | None = None,
        annotations: Mapping[str, bool] | None = None,
        name: str = "",
        place: str = "",
    ) -> None:
        if action not in get_args(Action):
            expected = "expected 'allow', 'deny' or 'ask'"
            raise InvalidArgument(f"action: {action!r}; {expected}", argument="action")
        self.action: Action = action
        self.name = name
        self.place = place
        self.conditions: tuple[Condition, ...] = ()
        facts = {"principal": principals, "client": clients, "server": servers}
        found: list[Condition] = [
            FactCondition(what, globs(given, f"{what}s"))
            for what, given in facts.items()
            if given is not None
        ]
        found += [claim_condition(one, value) for one, value in (claims or {}).items()]
        if requests is not None:
            found.append(input_condition(as_strings(requests, "requests")))
        item = self._item_condition(tools, prompts, resources, is_own=servers is not None)
        found += [item] if item is not None else []
        if annotations is not None:
            found.append(annotation_condition(annotations))
        strict = action != "allow"
        found += [
            ArgumentCondition.of(path, comparison_of(given, path, strict=strict), strict=strict)
            for path, given in (arguments or {}).items()
        ]
        self.conditions = tuple(found)
        self.is_about_inputs: bool = requests is not None
        self._on_arguments = tuple(one for one in found if isinstance(one, ArgumentCondition))
        self.on_arguments: bool = bool(self._on_arguments)
        given = (principals, claims, clients, servers, tools, prompts, resources, requests)
        self._written = (action, *given, arguments, annotations)

    def _item_condition(
        self,
        tools: Strings | None,
        prompts: Strings | None,
        resources: Strings | None,
        *,
        is_own: bool,
    ) -> ItemCondition | None:
        if tools is None and prompts is None and resources is None:
            return None
        names: dict[ItemKind, tuple[Glob, ...]] = {}
        if tools is not None:
            names["tool"] = globs(tools, "tools")
        if prompts is not None:
            names["prompt"] = globs(prompts, "prompts")
        uris: tuple[TextPattern, ...] = ()
        if resources is not None:
            uris = text_patterns(resources, "resources", crosses=self.action != "allow")
        return ItemCondition(names, uris, is_own, self.action != "allow")

    def __repr__(self) -> str:
        return f"<Rule {self.label}: {self.action}>"

    @property
    def label(self) -> str:
        """The rule for people: its name, or its place."""
        named = f"rule {self.name!r}" if self.name else ""
        label = f"{named} ({self.place})" if named and self.place else named or self.place
        return label or UNNAMED

    @property
    def public_label(self) -> str:
        """The rule for callers on other machines: its name, without its place."""
        return f"rule {self.name!r}" if self.name else "a rule"

    @property
    def written(self) -> dict[str, Any]:
        """Its conditions as they were given, by name; without those that it does not have."""
        names = ("action", "principals", "claims", "clients", "servers", "tools", "prompts")
        names = (*names, "resources", "requests", "arguments", "annotations")
        pairs = zip(names, self._written, strict=True)
        return {name: value for name, value in pairs if value is not None}

    @property
    def identity(self) -> object:
        """What the version of a policy depends on."""
        return self.written

    def readings(self, request: PolicyRequest, *, without_arguments: bool = False) -> int:
        """The readings in which it matches, as bits."""
        if self.is_about_inputs is not (request.method in _INPUTS):
            return 0
        found = EVERY_READING
        for one in self.conditions:
            if without_arguments and one.on_arguments:
                continue
            found &= one.readings(request)
            if not found:
                return 0
        return found

    def argument_readings(
        self, arguments: dict[str, Any] | None, readings: int, defaults: SchemaDefaults | None
    ) -> int:
        """The subset of these readings in which the arguments match, once all other conditions
        match. Arguments that cannot be read (None) match `deny` and `ask`, and never `allow`.
        `defaults` are the defaults of the tool's input schema, if any."""
        if arguments is None:
            return 0 if self.on_arguments and self.action == "allow" else readings
        for one in self._on_arguments:
            readings &= one.readings_of(arguments, defaults)
            if not readings:
                break
        return readings

    def problem(self, request: PolicyRequest) -> str:
        """Why it does not match; empty if it does."""
        if self.is_about_inputs and request.method not in _INPUTS:
            return f"it is about what servers ask, not about {request.method}"
        if request.method in _INPUTS and not self.is_about_inputs:
            return "it has no 'requests', so it is not about what servers ask"
        for one in self.conditions:
            found = one.readings(request)
            if found != EVERY_READING:
                why = one.problem(request)
                return why if not found else f"{why}, in one of its readings"
        return ""


class FunctionRule:
    """A function as a rule. It is called with the request and returns `"allow"`, `"deny"`, `"ask"`,
    or None if it does not decide; an exception is `deny`, and is logged.

    It is called for lists as well (`method` is `tools/list` then, and there are no arguments), and
    for each server as a whole (`method` and `name` are empty): `"deny"` hides the server with all
    of its items then, as if it did not exist. After None the server is shown, since an item of it
    may be allowed; with `servers=True` the rules after it decide. With `servers=False` it is not
    called for servers, and one of which it denies every item is still known by its name: for a
    function that denies every name but some. With `arguments=True` it is called for neither, and
    hides nothing. Change `version` with what it does: an approval is for one version of a policy.
    """

    def __init__(
        self,
        function: RuleFunction,
        *,
        name: str = "",
        version: str = "",
        arguments: bool = False,
        servers: bool | None = None,
    ) -> None:
        if not callable(cast("object", function)) or inspect.iscoroutinefunction(function):
            message = f"a rule is a function that is not async, not {function!r}"
            raise InvalidArgumentType(message, argument="rules")
        self.function = function
        self.version = version
        self.on_arguments = arguments
        self.on_servers: bool | None = False if arguments else servers
        module = getattr(function, "__module__", "")
        self.qualified_name: str = f"{module}.{getattr(function, '__qualname__', 'function')}"
        self.name: str = name or self.qualified_name

    def __repr__(self) -> str:
        return f"<FunctionRule {self.name}>"

    @property
    def label(self) -> str:
        """The rule for people."""
        return f"function {self.name}"

    @property
    def public_label(self) -> str:
        """The rule for callers on other machines."""
        return self.label

    @property
    def identity(self) -> object:
        """What the version of a policy depends on."""
        return ["function", self.qualified_name, self.version]

    def call(self, request: PolicyRequest) -> Action | None:
        """What the function says. Never raises: what fails, denies."""
        try:
            said: object = self.function(request)
        except Exception as error:
            log.error("the rule %s failed, so it denies", self.name, exc_info=error)
            return "deny"
        if said is None or said in ("allow", "deny", "ask"):
            return said
        log.error("the rule %s returned %r, so it denies", self.name, said)
        return "deny"


AnyRule: TypeAlias = Rule | FunctionRule


# ---------------------------------------------------------------- a policy


class RuleStep(NamedTuple):
    """What one rule says of a request: None if it does not match, and `why` then."""

    rule: AnyRule
    action: Action | None
    why: str


class Policy:
    """Rules in their order, and the default for calls that none of them matches.

    Input requests of servers that no rule with `requests` matches are allowed: they belong to a
    call that was, and are answered by a callback, the client or the inbox.
    """

    def __init__(
        self, rules: Iterable[AnyRule | RuleFunction] = (), default: Action = "ask"
    ) -> None:
        if default not in get_args(Action):
            expected = "expected 'allow', 'deny' or 'ask'"
            raise InvalidArgument(f"default: {default!r}; {expected}", argument="default")
        self.rules: tuple[AnyRule, ...] = tuple(
            one if isinstance(one, Rule | FunctionRule) else FunctionRule(one) for one in rules
        )
        if len(self.rules) > MAX_RULES:
            raise InvalidArgument(f"a policy has at most {MAX_RULES} rules", argument="rules")
        self.default: Action = default
        # Rules of a program have no place, so they have a number.
        self._labels = {
            id(one): one.label if one.label != UNNAMED else f"{UNNAMED} {number}"
            for number, one in enumerate(self.rules, 1)
        }
        self._public_labels = {self._labels[id(one)]: one.public_label for one in self.rules}
        identity = [default, *(one.identity for one in self.rules)]
        text = msgspec.json.encode(identity, order="deterministic")
        self.version: str = hashlib.sha256(text).hexdigest()[:VERSION_CHARACTERS]
        conditions = [
            each for one in self.rules if isinstance(one, Rule) for each in one.conditions
        ]
        self.has_functions: bool = any(isinstance(one, FunctionRule) for one in self.rules)
        self.uses_definitions: bool = self.has_functions or any(
            isinstance(one, AnnotationCondition) for one in conditions
        )
        self._uses_claims = any(isinstance(one, ClaimCondition) for one in conditions)
        self._prepared: dict[tuple[object, ...], PreparedRules] = {}

    def __repr__(self) -> str:
        return f"<Policy {self.version}: {len(self.rules)} rules, default {self.default}>"

    @property
    def first_that_asks(self) -> str:
        """The label of the first rule with the action `ask`; empty if there is none."""
        found = (one for one in self.rules if isinstance(one, Rule) and one.action == "ask")
        return next((self._labels[id(one)] for one in found), "")

    # ------------------------------------------------------------ decisions

    def decide(self, request: PolicyRequest) -> Decision:
        """What the rules say of a request. Never raises."""
        key = (
            request.method,
            request.server,
            request.qualified,
            request.name,
            request.principal,
            request.client,
            request.trusted,
            request.definition_digest,
            msgspec.json.encode(request.claims) if self._uses_claims and request.claims else b"",
        )
        prepared = self._prepared.get(key)
        if prepared is None:
            if len(self._prepared) >= MAX_PREPARED:
                self._prepared.clear()
            prepared = self._prepared[key] = self.prepare(request)
        return prepared.decide(request)

    def prepare(self, request: PolicyRequest) -> "PreparedRules":
        """The rules that can match requests with these facts, whatever their arguments are."""
        candidates: list[RuleCandidate] = []
        for rule in self.rules:
            if isinstance(rule, FunctionRule):
                candidates.append(RuleCandidate(rule, EVERY_READING, self.label_of(rule)))
                continue
            found = rule.readings(request, without_arguments=True)
            if found:
                candidates.append(RuleCandidate(rule, found, self.label_of(rule)))
            if found == EVERY_READING and not rule.on_arguments:
                break
        return PreparedRules(self, tuple(candidates), request)

    def label_of(self, rule: AnyRule) -> str:
        """A rule of this policy for people: its name, its place, or its number."""
        return self._labels.get(id(rule), rule.label)

    def public_label(self, label: str) -> str:
        """The rule with a label, or the default, for callers on other machines."""
        return self._public_labels.get(label, label)

    def default_for(self, request: PolicyRequest) -> tuple[Action, str]:
        """The action if no rule matches, and its name."""
        if request.method in _INPUTS:
            return "allow", "no rule about what servers ask"
        return self.default, "the default"

    def hides(self, request: PolicyRequest) -> bool:
        """Whether an item is denied whatever its arguments are."""
        open_readings = EVERY_READING
        for rule in self.rules:
            if isinstance(rule, FunctionRule):
                said = None if rule.on_arguments else rule.call(request)
                if rule.on_arguments or said in ("allow", "ask"):
                    return False
                if said == "deny":
                    return True
                continue
            found = rule.readings(request, without_arguments=True) & open_readings
            if not found:
                continue
            if rule.action == "deny" and not rule.on_arguments:
                return True  # the strictest reading counts
            if rule.action != "deny":
                open_readings &= ~found
            if not open_readings:
                return False
        return self.default == "deny"

    def hides_server(self, request: PolicyRequest) -> bool:
        """Whether everything of a server is denied. The request has no name; `qualified` is the
        prefix of the server's qualified names."""
        for rule in self.rules:
            if isinstance(rule, FunctionRule):
                said = "allow" if rule.on_servers is False else rule.call(request)
                if said is not None or rule.on_servers is None:  # it may allow an item
                    return said == "deny"
                continue
            if rule.is_about_inputs or not all(one.may_hold(request) for one in rule.conditions):
                continue
            is_certain = not any(one.on_item for one in rule.conditions)
            if rule.action != "deny":
                return False
            if is_certain:
                return True
        return self.default == "deny"

    def explain(self, request: PolicyRequest) -> list[RuleStep]:
        """What each rule says, up to the one that decides."""
        steps: list[RuleStep] = []
        open_readings = EVERY_READING
        for rule in self.rules:
            if isinstance(rule, FunctionRule):
                said = rule.call(request)
                steps.append(RuleStep(rule, said, "" if said else "the function does not decide"))
                open_readings = 0 if said else open_readings
            else:
                found = _readings(rule, request) & open_readings
                steps.append(
                    RuleStep(rule, rule.action if found else None, _problem(rule, request))
                )
                open_readings &= ~found
            if not open_readings:
                break
        return steps


class RuleCandidate(NamedTuple):
    """A rule that is left for a tool and a caller, the readings in which the rest of it matches,
    and its label."""

    rule: AnyRule
    readings: int
    label: str


class PreparedRules:
    """The rules that are left for a tool and a caller: only arguments decide now."""

    def __init__(
        self, policy: Policy, candidates: tuple[RuleCandidate, ...], request: PolicyRequest
    ) -> None:
        self._policy = policy
        self._candidates = candidates
        # Without conditions on arguments there is one decision.
        self._is_fixed = all(
            isinstance(one.rule, Rule) and not one.rule.on_arguments for one in candidates
        )
        self._defaults = None if self._is_fixed else SchemaDefaults.of(request)
        self._decision: Decision | None = None
        # Of policies without functions, by the rule that decides and how: as many as candidates.
        self._decisions: dict[tuple[str, str, bool, bool], Decision] = {}

    def decide(self, request: PolicyRequest) -> Decision:
        """What the rules say of a request. Never raises."""
        if self._decision is not None:
            return self._decision
        if not self._is_fixed:
            return self._decided(request, _arguments(request))
        self._decision = self._decided(request, {})
        return self._decision

    def _decided(self, request: PolicyRequest, arguments: dict[str, Any] | None) -> Decision:
        open_readings = EVERY_READING
        found: list[tuple[Action, str]] = []
        for rule, most, label in self._candidates:
            if isinstance(rule, FunctionRule):
                action, readings = rule.call(request), open_readings
            else:
                readings = open_readings & most
                if readings and rule.on_arguments:
                    readings = rule.argument_readings(arguments, readings, self._defaults)
                if not readings:
                    continue
                action = rule.action
            if action is None:
                continue
            found.append((action, label))
            open_readings &= ~readings
            if not open_readings:
                break
        is_default = not found
        if open_readings:
            found.append(self._policy.default_for(request))
        action, label = found[0]
        if len(found) > 1:
            action, label = max(found, key=lambda one: _STRICTNESS[one[0]])
        key = action, label, len(found) > 1, is_default
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._decision_of(request, action, label, several=len(found) > 1)
            decision = replace(decision, is_default=is_default)
            if not self._policy.has_functions:
                self._decisions[key] = decision
        return decision

    def _decision_of(
        self, request: PolicyRequest, action: Action, label: str, *, several: bool
    ) -> Decision:
        by_arguments = False
        if request.method in _INPUTS:
            by_arguments = True
        elif action == "deny":
            by_arguments = not self._policy.hides(request)
        elif action == "ask":
            by_arguments = not self._is_fixed
        reason = f"{label} says {action}"
        if several:
            reason += ", for one of the readings of a value"
        version, public = self._policy.version, self._policy.public_label(label)
        return Decision(action, label, by_arguments, version, reason, public_rule=public)


def _readings(rule: Rule, request: PolicyRequest) -> int:
    """The readings in which a rule matches."""
    found = rule.readings(request, without_arguments=True)
    if not found:
        return 0
    return rule.argument_readings(_arguments(request), found, SchemaDefaults.of(request))


def _arguments(request: PolicyRequest) -> dict[str, Any] | None:
    """The arguments of a request; None if they are not an object, or cannot be read, for instance
    because of a repeated member."""
    try:
        return request.decoded_arguments
    except Fault:
        return None


def _problem(rule: Rule, request: PolicyRequest) -> str:
    try:
        return rule.problem(request)
    except Fault as fault:
        return fault.message


def first_that_asks(rules: RuleSet | None) -> str:
    """The label of the first rule with the action `ask`; empty if none has it, as far as it is
    known: functions are not called, and the default is no rule."""
    if isinstance(rules, CombinedPolicy):
        found = (first_that_asks(one) for one in rules.policies)
        return next((one for one in found if one), "")
    return rules.first_that_asks if isinstance(rules, Policy) else ""


class CombinedPolicy:
    """Several policies, each of which decides; the strictest decision counts. So what one of them
    adds can only restrict the others."""

    def __init__(self, policies: Sequence[RuleSet]) -> None:
        self.policies: tuple[RuleSet, ...] = tuple(policies)
        self.version: str = hashlib.sha256(
            " ".join(one.version for one in self.policies).encode()
        ).hexdigest()[:VERSION_CHARACTERS]
        self.uses_definitions: bool = any(one.uses_definitions for one in self.policies)

    def __repr__(self) -> str:
        return f"<CombinedPolicy {self.version}: {len(self.policies)} policies>"

    def decide(self, request: PolicyRequest) -> Decision:
        """The strictest decision; of several the first. Never raises."""
        decisions = [one.decide(request) for one in self.policies]
        decision = max(decisions, key=lambda one: _STRICTNESS[one.action])
        by_arguments = decision.by_arguments and not self.hides(request)
        if decision.action == "ask":  # each of them asks: a remembered decision answers all
            by_arguments = any(one.by_arguments for one in decisions if one.action == "ask")
        return replace(
            decision,
            policy_version=self.version,
            by_arguments=by_arguments,
            is_default=all(one.is_default for one in decisions),
        )

    def hides(self, request: PolicyRequest) -> bool:
        """Whether one of them denies an item whatever its arguments are."""
        return any(one.hides(request) for one in self.policies)

    def hides_server(self, request: PolicyRequest) -> bool:
        """Whether one of them denies everything of a server."""
        return any(one.hides_server(request) for one in self.policies)
