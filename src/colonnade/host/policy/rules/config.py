"""`[[policy]]` of `colonnade.toml`: rules, with file, line and column in errors.

    [[policy]]
    servers = "files"
    tools = ["write", "delete_*"]
    arguments = { path = "/srv/shared/**" }
    action = "ask"

    [[policy]]                  # without conditions: the default
    action = "deny"

Rules: nothing is resolved or started. A policy with an error denies everything until it is fixed:
a rule that is left out would allow what it denies. Of several files each decides, and the strictest
decision counts, so that a project's file can only restrict. No value is in a message.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from colonnade.errors import LocalProtocolError
from colonnade.host.config.entry import SourceNode
from colonnade.host.config.files import ConfigFile
from colonnade.host.config.settings import HostProblem, Place
from colonnade.host.policy.request import Action
from colonnade.host.policy.rules.arguments import COMPARISONS
from colonnade.host.policy.rules.conditions import HINTS, INPUT_METHODS
from colonnade.host.policy.rules.patterns import Glob
from colonnade.host.policy.rules.rules import MAX_RULES, CombinedPolicy, Policy, Rule
from colonnade.text import closest

# Keys with patterns, with tables, and the others.
PATTERNS: Final = ("principals", "clients", "servers", "tools", "prompts", "resources")
TABLES: Final = ("claims", "arguments", "annotations")
RULE_KEYS: Final = ("action", "name", *PATTERNS, "requests", *TABLES, "test")
TEST_KEYS: Final = (
    *("server", "tool", "prompt", "resource", "request", "arguments"),
    *("principal", "client", "claims", "trusted", "annotations", "expect"),
)
ACTIONS: Final = ("allow", "deny", "ask")
# What users of other policies write.
SYNONYMS: Final = {
    "effect": "action",
    "do": "action",
    "decision": "action",
    "tool": "tools",
    "server": "servers",
    "prompt": "prompts",
    "resource": "resources",
    "uris": "resources",
    "principal": "principals",
    "users": "principals",
    "who": "principals",
    "client": "clients",
    "args": "arguments",
    "where": "arguments",
    "groups": "claims",
    "tests": "test",
}
BROKEN_HINT: Final = (
    "until it is fixed every call is denied, or after a reload what was in force before stays"
)


class PolicyTest(Struct, frozen=True, kw_only=True):
    """A case of `[[policy.test]]`: a request, and what is expected of the policy."""

    place: Place
    expect: Action
    server: str
    tool: str = ""
    prompt: str = ""
    resource: str = ""
    request: str = ""
    arguments: Mapping[str, Any] = {}
    principal: str = ""
    client: str = ""
    claims: Mapping[str, Any] = {}
    trusted: bool | None = None
    annotations: Mapping[str, bool] = {}


def policy_of(
    files: Sequence[ConfigFile],
    servers: Iterable[str],
    problems: list[HostProblem],
    warnings: list[HostProblem],
) -> Policy | CombinedPolicy:
    """The policy of several files. Errors are added to `problems`."""
    known = tuple(servers)
    policies = [_policy_of_file(one, known, problems, warnings) for one in files]
    return policies[0] if len(policies) == 1 else CombinedPolicy(policies)


def _policy_of_file(
    file: ConfigFile,
    servers: Sequence[str],
    problems: list[HostProblem],
    warnings: list[HostProblem],
) -> Policy:
    if file.policy is None:
        problem = HostProblem("", "its policy cannot be read", Place(file.file, 1, 1, "policy"))
        problems.append(problem._replace(hint=BROKEN_HINT))
        return Policy((), default="deny")
    reading = PolicyReader(file.policy)
    problems += [*reading.problems, *reading.test_problems]
    if reading.problems:
        summary = "the policy has errors"
        problems.append(HostProblem("", summary, file.policy.place, hint=BROKEN_HINT))
    warnings += reading.warnings
    warnings += reading.unknown_servers(servers)
    return reading.policy


class PolicyReader:
    """The rules and the tests of one `[[policy]]`: `policy`, which denies everything if there are
    `problems`, and `tests`."""

    def __init__(self, node: SourceNode) -> None:
        self.problems: list[HostProblem] = []
        self.warnings: list[HostProblem] = []
        self.tests: list[PolicyTest] = []
        # Those of tests, which do not make the policy invalid.
        self.test_problems: list[HostProblem] = []
        self._nodes: list[SourceNode] = []
        rules: list[Rule] = []
        if node.members is not None and list(node.members) == ["test"]:
            self._read_tests(node.members)  # a file with nothing but cases
        elif node.items is None or not all(one.members is not None for one in node.items):
            self._wrong(node, "expected tables [[policy]]")
        elif len(node.items) > MAX_RULES:
            self._wrong(node, f"a policy has at most {MAX_RULES} rules")
        else:
            for one in node.items:
                rule = self._rule(one)
                if rule is not None:
                    rules.append(rule)
            self._warn_of_order(node.items, rules)
        self.policy: Policy = Policy(() if self.problems else rules, default=self._default)

    @property
    def _default(self) -> Action:
        return "deny" if self.problems else "ask"

    @property
    def has_rules(self) -> bool:
        """Whether there are rules, valid or not, or only tests."""
        return bool(self.policy.rules or self.problems)

    def _wrong(self, node: SourceNode, summary: str, hint: str = "") -> None:
        self.problems.append(HostProblem("", summary, node.place, hint=hint))

    # ------------------------------------------------------------ rules

    def _rule(self, node: SourceNode) -> Rule | None:
        members = node.members or {}
        self._read_tests(members)
        before = len(self.problems)
        for key, one in members.items():
            if key not in RULE_KEYS:
                self._unknown(one, key, RULE_KEYS)
        self._nodes.append(node)
        action = members.get("action")
        if action is None:
            if "test" in members and len(members) == 1:
                return None  # a table that holds nothing but tests
            self._wrong(node, "'action' is missing", "write allow, deny or ask")
        elif action.value not in ACTIONS:
            self._wrong(action, 'expected one of "allow", "deny" and "ask"')
        given = {key: one for key, one in members.items() if key in RULE_KEYS}
        self._check_shapes(given)
        if len(self.problems) > before:
            return None
        return self._build(node, given)

    def _check_shapes(self, given: Mapping[str, SourceNode]) -> None:
        for key, one in given.items():
            if key in (*PATTERNS, "requests"):
                self._check_strings(one)
                if key == "requests":
                    self._check_requests(one)
            elif key in TABLES and one.members is None:
                self._wrong(one, "expected a table")
            elif key == "name" and not isinstance(one.value, str):
                self._wrong(one, "expected a string")
        for one in _members(given.get("annotations")):
            self._check_hint(one)
        for name, one in _named(given.get("arguments")):
            self._check_argument(name, one)

    def _check_strings(self, node: SourceNode) -> None:
        values = node.items if node.items is not None else (node,)
        if not values or not all(isinstance(one.value, str) for one in values):
            self._wrong(node, "expected a string or a list of strings")

    def _check_requests(self, node: SourceNode) -> None:
        values = node.items if node.items is not None else (node,)
        for one in values:
            if isinstance(one.value, str) and one.value not in INPUT_METHODS:
                self._wrong(one, 'expected "elicitation", "sampling" or "roots"')

    def _check_hint(self, node: SourceNode) -> None:
        name = node.key.rpartition(".")[2]
        if name not in HINTS:
            self._unknown(node, name, tuple(HINTS))
        elif not isinstance(node.value, bool):
            self._wrong(node, "expected true or false")

    def _check_argument(self, name: str, node: SourceNode) -> None:
        for key, one in (node.members or {}).items():
            if key not in COMPARISONS:
                known = ", ".join(COMPARISONS)
                hint = f'known keys: {known}; write "{name}.{key}" in quotes for a path'
                self._wrong(one, "unknown key", hint)

    def _build(self, node: SourceNode, given: Mapping[str, SourceNode]) -> Rule | None:
        place = node.place
        values = {key: one.value for key, one in given.items() if key != "test"}
        where = f"{place.file}:{place.line}"
        try:
            return Rule(**values, place=where)
        except LocalProtocolError as error:
            at = given.get(error.argument or "", node)
            self._wrong(at, _without_key(str(error), error.argument), "")
            return None

    def _unknown(self, node: SourceNode, key: str, known: Sequence[str]) -> None:
        meant = SYNONYMS.get(key, "")
        meant = meant if meant in known else closest(key, known) or ""
        hint = f"did you mean {meant}?" if meant else f"known keys: {', '.join(known)}"
        self._wrong(node, "unknown key", hint)

    def _warn_of_order(self, nodes: Sequence[SourceNode], rules: Sequence[Rule]) -> None:
        """A rule after one without conditions is never reached."""
        if self.problems:
            return
        for rule, node in zip(rules, [one for one in nodes if one.get("action")], strict=True):
            if not rule.conditions and rule is not rules[-1]:
                message = "the rules below are not reached: this one matches every call"
                self.warnings.append(HostProblem("", message, node.place))
                return

    def unknown_servers(self, servers: Sequence[str]) -> list[HostProblem]:
        """A warning for each pattern of a server that matches none."""
        found: list[HostProblem] = []
        for rule in self._nodes:
            node = rule.get("servers")
            values = () if node is None else node.items if node.items is not None else (node,)
            for one in values:
                if not isinstance(one.value, str) or self.problems:
                    continue
                pattern = Glob(one.value)
                if not any(pattern.matches(key) for key in servers):
                    message = "no server of these files matches it"
                    found.append(HostProblem("", message, one.place))
        return found

    # ------------------------------------------------------------ tests

    def _read_tests(self, members: Mapping[str, SourceNode]) -> None:
        before = len(self.problems)
        for one in self._tests_of(members):
            self._test(one)
        self.test_problems += self.problems[before:]
        del self.problems[before:]

    def _tests_of(self, members: Mapping[str, SourceNode]) -> Sequence[SourceNode]:
        node = members.get("test")
        if node is None:
            return ()
        if node.items is None:
            self._wrong(node, "expected tables [[policy.test]]")
            return ()
        return node.items

    def _test(self, node: SourceNode) -> None:
        before = len(self.problems)
        members = node.members
        if members is None:
            self._wrong(node, "expected a table")
            return
        for key, one in members.items():
            if key not in TEST_KEYS:
                self._unknown(one, key, TEST_KEYS)
            else:
                self._check_test_value(key, one)
        for key in ("expect", "server"):
            if key not in members:
                self._wrong(node, f"'{key}' is missing")
        items = [one for one in ("tool", "prompt", "resource", "request") if one in members]
        if not items:
            self._wrong(node, "'tool', 'prompt', 'resource' or 'request' is missing")
        if len(self.problems) == before:
            values = {key: one.value for key, one in members.items()}
            self.tests.append(PolicyTest(place=node.place, **values))

    def _check_test_value(self, key: str, node: SourceNode) -> None:
        if key in ("arguments", "claims", "annotations"):
            if node.members is None:
                self._wrong(node, "expected a table")
        elif key == "trusted":
            if not isinstance(node.value, bool):
                self._wrong(node, "expected true or false")
        elif key == "expect" and node.value not in ACTIONS:
            self._wrong(node, 'expected one of "allow", "deny" and "ask"')
        elif key == "request" and node.value not in INPUT_METHODS:
            self._wrong(node, 'expected one of "elicitation", "sampling" and "roots"')
        elif not isinstance(node.value, str):
            self._wrong(node, "expected a string")


def _members(node: SourceNode | None) -> Iterable[SourceNode]:
    return () if node is None or node.members is None else node.members.values()


def _named(node: SourceNode | None) -> Iterable[tuple[str, SourceNode]]:
    return () if node is None or node.members is None else node.members.items()


def _without_key(message: str, key: str) -> str:
    """The message of an error of the API, without the name of the parameter that is the key."""
    return message.removeprefix(f"{key}: ").removeprefix(f"{key}.") if key else message
