"""Rules: which one decides, what each condition matches, and that nothing gets around one."""

import logging
from typing import Any

import pytest
from msgspec.structs import replace

from colonnade.errors import InvalidArgument, InvalidArgumentType
from colonnade.host.policy.request import Action, PolicyRequest
from colonnade.host.policy.rules.rules import CombinedPolicy, FunctionRule, Policy, Rule
from colonnade.host.servers.naming import qualified_name
from colonnade.protocol import types as t
from host.policies import asked


def action(policy: Policy, request: PolicyRequest) -> Action:
    return policy.decide(request).action


def allowed(**conditions: Any) -> Policy:
    """What matches is allowed, everything else denied."""
    return Policy([Rule("allow", **conditions)], default="deny")


def denied(**conditions: Any) -> Policy:
    """What matches is denied, everything else allowed."""
    return Policy([Rule("deny", **conditions)], default="allow")


# ---------------------------------------------------------------- order


def test_the_first_rule_that_matches_decides() -> None:
    policy = Policy(
        [Rule("ask", tools="files__write"), Rule("deny", servers="files"), Rule("allow")]
    )
    assert action(policy, asked("files__write")) == "ask"
    assert action(policy, asked("files__read")) == "deny"
    assert action(policy, asked("git__log")) == "allow"


def test_the_default_decides_if_no_rule_matches() -> None:
    assert action(Policy([Rule("allow", tools="x__*")], default="deny"), asked()) == "deny"
    assert action(Policy(), asked()) == "ask"


def test_all_conditions_of_a_rule_must_hold() -> None:
    policy = allowed(servers="files", tools="read", principals="ann", arguments={"path": "/a"})
    assert action(policy, asked("files__read", {"path": "/a"}, principal="ann")) == "allow"
    assert action(policy, asked("files__read", {"path": "/b"}, principal="ann")) == "deny"
    assert action(policy, asked("files__read", {"path": "/a"}, principal="bob")) == "deny"
    assert action(policy, asked("files__write", {"path": "/a"}, principal="ann")) == "deny"
    assert action(policy, asked("git__read", {"path": "/a"}, principal="ann")) == "deny"


def test_a_decision_names_its_rule_and_the_version_of_the_policy() -> None:
    policy = Policy([Rule("deny", tools="*", name="nothing", place="colonnade.toml:3")])
    decision = policy.decide(asked())
    assert decision.rule == "rule 'nothing' (colonnade.toml:3)"
    assert decision.policy_version == policy.version
    assert decision.reason == "rule 'nothing' (colonnade.toml:3) says deny"


# ---------------------------------------------------------------- callers and servers


def test_a_rule_can_be_about_a_principal_a_client_and_a_server() -> None:
    assert action(allowed(principals=["ann", "dev-*"]), asked(principal="dev-7")) == "allow"
    assert action(allowed(principals=["ann", "dev-*"]), asked(principal="annette")) == "deny"
    assert action(allowed(clients="claude-*"), asked(client="claude-code")) == "allow"
    assert action(allowed(clients="claude-*"), asked(client="cursor")) == "deny"
    assert action(allowed(servers="fil?s"), asked("files__read")) == "allow"
    assert action(allowed(servers="git"), asked("files__read")) == "deny"


@pytest.mark.parametrize(
    ("condition", "claims", "expected"),
    [
        ({"groups": "interns"}, {"groups": ["staff", "interns"]}, True),
        ({"groups": "interns"}, {"groups": "interns"}, True),
        ({"groups": ["admins", "int*"]}, {"groups": ["interns"]}, True),
        ({"groups": "interns"}, {"groups": ["interns2"]}, False),
        ({"groups": "interns"}, {}, False),
        ({"groups": "interns"}, {"groups": {"interns": True}}, False),
        ({"admin": True}, {"admin": True}, True),
        ({"admin": True}, {"admin": "True"}, False),
        ({"admin": True}, {"admin": 1}, False),
        ({"level": 3}, {"level": 3}, True),
        ({"level": 1}, {"level": True}, False),
        ({"realm.roles": "r"}, {"realm": {"roles": ["r"]}}, True),
        ({"https://a.example/groups": "r"}, {"https://a.example/groups": ["r"]}, True),
        ({"realm.roles": "r"}, {"realm": ["roles"]}, False),
    ],
)
def test_a_rule_can_be_about_a_claim(
    condition: dict[str, Any], claims: dict[str, Any], expected: bool
) -> None:
    policy = allowed(claims=condition)
    assert action(policy, asked(claims=claims)) == ("allow" if expected else "deny")


def test_decisions_are_not_remembered_across_callers() -> None:
    policy = Policy(
        [Rule("allow", claims={"groups": "a"}), Rule("ask", principals="ann")], default="deny"
    )
    for _ in range(2):
        assert action(policy, asked(claims={"groups": "a"})) == "allow"
        assert action(policy, asked(claims={"groups": "b"})) == "deny"
        assert action(policy, asked(principal="ann")) == "ask"
        assert action(policy, asked(principal="bob")) == "deny"


# ---------------------------------------------------------------- items


def test_without_servers_a_pattern_is_for_the_qualified_name() -> None:
    policy = allowed(tools="files__re*")
    assert action(policy, asked("files__read")) == "allow"
    assert action(policy, asked("files__write")) == "deny"


def test_a_server_cannot_name_its_tool_as_the_tool_of_another() -> None:
    """The own name of this tool is `files__read`."""
    impostor = asked("evil__files__read")
    assert impostor.name == "files__read"
    assert action(allowed(tools="files__*"), impostor) == "deny"
    assert action(allowed(tools="files__read"), impostor) == "deny"


LONG = "everything_in_the_whole_workspace_folder_of_a_project_delete"


def shortened(own: str, namespace: str = "files", limit: int = 45) -> PolicyRequest:
    """A request whose qualified name lacks a part of the name on the server."""
    request = asked("files__x")
    qualified = qualified_name(namespace, own, limit)
    return replace(request, name=own, qualified=qualified, namespace=namespace)


@pytest.mark.parametrize("strict", ["deny", "ask"])
def test_a_shortened_name_is_denied_by_a_pattern_of_the_full_or_of_the_shown_name(
    strict: Action,
) -> None:
    request = shortened(LONG)
    assert not request.qualified.endswith("_delete")
    for pattern in ("*_delete", "files__everything_*", f"files__{LONG}", request.qualified):
        policy = Policy([Rule(strict, tools=pattern)], default="allow")
        assert action(policy, request) == strict
        assert policy.hides(request) is (strict == "deny")
    assert action(denied(tools="*_remove"), request) == "allow"
    dotted = shortened("notes.delete")
    assert action(denied(tools="files__notes.*"), dotted) == "deny"


def test_the_full_namespace_of_a_shortened_name_is_denied() -> None:
    namespace = "the_archive_of_the_accounts_of_the_year"
    request = shortened("look", namespace)
    assert not request.qualified.startswith(f"{namespace}__")
    assert action(denied(tools=f"{namespace}__*"), request) == "deny"


def test_a_shortened_name_is_allowed_if_both_names_match_or_it_is_written_out() -> None:
    request = shortened(LONG)
    digest = request.qualified[-6:]
    assert action(allowed(tools="files__everything_*"), request) == "allow"
    assert action(allowed(tools=request.qualified), request) == "allow"
    assert action(allowed(tools=f"*{digest}"), request) == "deny"
    assert action(allowed(tools="*_delete"), request) == "deny"
    # `notes.delete` is shown as `files__notes_delete_…`: a pattern of names with `_` is not for it.
    assert action(allowed(tools="files__notes_*"), shortened("notes.delete")) == "deny"


def test_a_server_whose_full_names_may_be_allowed_is_not_hidden() -> None:
    namespace = "the_archive_of_the_accounts_of_the_year"
    request = shortened("", namespace)
    prefix = request.qualified.partition("__")[0] + "__"
    server = replace(request, qualified=prefix)
    assert not allowed(tools=f"{prefix}look").hides_server(server)
    assert not denied(tools=f"{namespace}__*").hides_server(server)
    assert allowed(tools="other__*").hides_server(server)


def test_with_servers_a_pattern_is_for_the_name_on_them() -> None:
    policy = denied(servers="*", tools="delete_*")
    assert action(policy, asked("files__delete_all")) == "deny"
    assert action(policy, asked("git__delete_branch")) == "deny"
    assert action(policy, asked("git__log")) == "allow"


def test_a_rule_about_tools_is_not_about_prompts_or_resources() -> None:
    policy = denied(tools="*")
    assert action(policy, asked(kind="tool")) == "deny"
    assert action(policy, asked("files__p", kind="prompt", method="prompts/get")) == "allow"
    assert action(policy, asked("a://b", kind="resource", method="resources/read")) == "allow"
    assert action(denied(prompts="files__*"), asked("files__p", kind="prompt")) == "deny"
    assert action(denied(prompts="files__*"), asked("files__p", kind="tool")) == "allow"


@pytest.mark.parametrize(
    "uri",
    [
        "file:///etc/passwd",
        "file:///srv/../etc/passwd",
        "file:///srv/%2e%2e/etc/passwd",
        "file:///srv/..%2fetc/passwd",
        "file:///etc//passwd",
        "file:///./etc/passwd",
        "FILE:///etc/passwd",
        "file:///ETC/passwd",
        "file:///e%74c/passwd",
        "file:///etc\\passwd",
        "file:///\uff45tc/passwd",
        "file:///etc",
    ],
)
def test_no_way_to_write_a_uri_gets_around_a_rule_that_denies_it(uri: str) -> None:
    request = asked(uri, kind="resource", method="resources/read")
    assert action(denied(resources="file:///etc/**"), request) == "deny"
    assert action(allowed(resources="file:///srv/**"), request) == "deny"
    assert denied(resources="file:///etc/**").hides(request)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("C:\\Windows\\**", "C:/Windows/x"),
        ("/srv/my%20secret", "/srv/my secret"),
        ("/srv/my%20secret", "/srv/%6Dy%20secret"),
        ("/etc/", "/etc"),
        ("/etc//passwd", "/etc/passwd"),
        ("/etc/./passwd", "/etc/passwd"),
    ],
)
def test_no_way_to_write_a_rule_lets_another_spelling_of_a_path_through(
    pattern: str, path: str
) -> None:
    policy = denied(arguments={"path": pattern})
    assert action(policy, asked("files__read", {"path": path})) == "deny"


# ---------------------------------------------------------------- annotations


@pytest.mark.spec("R0294")
def test_annotations_of_a_server_that_is_not_trusted_do_not_count() -> None:
    policy = allowed(annotations={"readOnlyHint": True})
    hints = t.ToolAnnotations(read_only_hint=True)
    assert action(policy, asked(annotations=hints, trusted=True)) == "allow"
    assert action(policy, asked(annotations=hints, trusted=False)) == "deny"


def test_a_hint_that_a_tool_does_not_give_has_the_default_of_the_specification() -> None:
    policy = denied(annotations={"destructiveHint": True})
    assert action(policy, asked(trusted=True)) == "deny"
    harmless = t.ToolAnnotations(destructive_hint=False)
    assert action(policy, asked(trusted=True, annotations=harmless)) == "allow"
    assert action(denied(annotations={"readOnlyHint": True}), asked(trusted=True)) == "allow"


def test_annotations_are_about_tools_that_are_listed() -> None:
    policy = denied(annotations={"destructiveHint": True})
    assert action(policy, asked("files__p", kind="prompt", trusted=True)) == "allow"


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("condition", "arguments", "expected"),
    [
        ({"path": "/srv/**"}, {"path": "/srv/a/b"}, True),
        ({"path": "/srv/*"}, {"path": "/srv/a/b"}, False),
        ({"path": "/srv/**"}, {"path": "/srv/../etc"}, False),
        ({"path": "/srv/**"}, {"path": "/srv/%2e%2e/etc"}, False),
        ({"path": "/srv/**"}, {"path": "/srv/..\\..\\etc"}, False),
        ({"path": "/srv/**"}, {"path": ["/srv/a"]}, False),
        ({"path": "/srv/**"}, {}, False),
        ({"path": ["/a", "/b"]}, {"path": "/b"}, True),
        ({"amount": {"max": 100}}, {"amount": 100}, True),
        ({"amount": {"max": 100}}, {"amount": 100.5}, False),
        ({"amount": {"max": 100}}, {"amount": "5"}, False),
        ({"amount": {"max": 100}}, {"amount": True}, False),
        ({"amount": {"min": 1, "max": 3}}, {"amount": 2}, True),
        ({"amount": {"above": 1}}, {"amount": 1}, False),
        ({"amount": {"below": 1}}, {"amount": 0}, True),
        ({"env": ["dev", "test"]}, {"env": "test"}, True),
        ({"env": ["dev", "test"]}, {"env": "prod"}, False),
        ({"env": {"not": "prod*"}}, {"env": "dev"}, True),
        ({"env": {"not": "prod*"}}, {"env": "production"}, False),
        ({"env": {"not": "prod*"}}, {"env": "PROD"}, False),
        ({"force": False}, {"force": False}, True),
        ({"force": False}, {"force": 0}, False),
        ({"count": 1}, {"count": 1.0}, True),
        ({"count": 1}, {"count": True}, False),
        ({"force": {"present": False}}, {}, True),
        ({"force": {"present": False}}, {"force": None}, False),
        ({"user.name": "ann"}, {"user": {"name": "ann"}}, True),
        ({"/user/na.me": "ann"}, {"user": {"na.me": "ann"}}, True),
        ({"paths.*": "/srv/**"}, {"paths": ["/srv/a", "/srv/b"]}, True),
        ({"paths.*": "/srv/**"}, {"paths": ["/srv/a", "/etc/b"]}, False),
        ({"paths.*": "/srv/**"}, {"paths": []}, False),
        ({"paths.0": "/srv/**"}, {"paths": ["/srv/a"]}, True),
    ],
)
def test_allow_needs_that_every_value_matches(
    condition: dict[str, Any], arguments: dict[str, Any], expected: bool
) -> None:
    policy = allowed(arguments=condition)
    assert action(policy, asked(arguments=arguments)) == ("allow" if expected else "deny")


@pytest.mark.parametrize(
    ("condition", "arguments", "expected"),
    [
        ({"path": "/etc/*"}, {"path": "/etc/ssl/key"}, True),
        ({"path": "/etc/**"}, {"path": "/etc"}, True),
        ({"path": "/etc/**"}, {"path": "/srv/../etc/x"}, True),
        ({"path": "/etc/**"}, {"path": "/srv/..%2fetc/x"}, True),
        ({"path": "/etc/**"}, {"path": "/ETC/x"}, True),
        ({"path": "/etc/**"}, {"path": ["/srv", "/etc/x"]}, True),
        ({"path": "/etc/**"}, {"path": {"a": [{"b": "/etc/x"}]}}, True),
        ({"path": "/etc/**"}, {"other": "/etc/x"}, False),
        ({"path": "/etc/**"}, {"path": "/srv/x"}, False),
        ({"command": "rm *"}, {"command": "rm -rf /"}, True),
        ({"amount": {"above": 100}}, {"amount": "1e3"}, True),
        ({"amount": {"above": 100}}, {"amount": 99}, False),
        ({"force": True}, {"force": "true"}, True),
        ({"env": "prod"}, {"env": "PROD"}, True),
        ({"env": {"not": ["dev", "test"]}}, {"env": "prod"}, True),
        ({"env": {"not": ["dev", "test"]}}, {"env": "dev"}, False),
        ({"env": {"not": "dev"}}, {"env": "DEV"}, True),
    ],
)
def test_deny_needs_that_one_value_matches(
    condition: dict[str, Any], arguments: dict[str, Any], expected: bool
) -> None:
    policy = denied(arguments=condition)
    assert action(policy, asked(arguments=arguments)) == ("deny" if expected else "allow")


def test_the_strictest_of_the_readings_of_a_value_counts() -> None:
    policy = Policy(
        [
            Rule("ask", arguments={"path": "/srv/**"}),
            Rule("deny", arguments={"path": "/etc/**"}),
            Rule("allow"),
        ]
    )
    assert action(policy, asked(arguments={"path": "/srv/a"})) == "ask"
    assert action(policy, asked(arguments={"path": "/srv/../etc/x"})) == "deny"
    decision = policy.decide(asked(arguments={"path": "/srv/../etc/x"}))
    assert decision.by_arguments
    assert "readings" in decision.reason


@pytest.mark.parametrize(
    "arguments", [b'{"path": "/srv/a", "path": "/etc/x"}', b'{"path": "\\ud800"}']
)
def test_arguments_that_cannot_be_read_match_deny_and_never_allow(arguments: bytes) -> None:
    request = asked(arguments=arguments)
    assert action(allowed(arguments={"path": "/**"}), request) == "deny"
    assert action(denied(arguments={"path": "/etc/**"}), request) == "deny"


def test_a_value_below_too_many_others_counts_for_deny() -> None:
    many = {"paths": ["/srv"] * 20_000}
    assert action(denied(arguments={"paths": "/etc/**"}), asked(arguments=many)) == "deny"
    assert action(allowed(arguments={"paths.*": "/srv"}), asked(arguments=many)) == "deny"


# ---------------------------------------------------------------- what is hidden


def test_an_item_is_hidden_if_it_is_denied_whatever_its_arguments_are() -> None:
    always = denied(tools="files__read")
    assert always.hides(asked())
    assert always.decide(asked()).by_arguments is False
    sometimes = denied(arguments={"path": "/etc/**"})
    assert not sometimes.hides(asked())
    assert sometimes.decide(asked(arguments={"path": "/etc/x"})).by_arguments


def test_an_item_that_some_arguments_allow_is_not_hidden() -> None:
    assert not allowed(arguments={"path": "/srv/**"}).hides(asked())
    assert allowed(tools="git__*").hides(asked())
    assert not Policy([Rule("ask", tools="files__*")], default="deny").hides(asked())


def test_a_server_is_hidden_if_all_of_it_is_denied() -> None:
    server = asked("files__")
    assert denied(servers="files").hides_server(server)
    assert not denied(servers="files", tools="*").hides_server(server)  # there are prompts
    assert allowed(servers="git").hides_server(server)
    assert allowed(tools="git__*").hides_server(server)
    assert not allowed(tools="*__read").hides_server(server)
    assert not allowed(resources="file:///**").hides_server(server)
    assert not denied(principals="ann").hides_server(server)
    assert denied(principals="ann").hides_server(asked("files__", principal="ann"))
    assert not Policy([lambda request: None], default="deny").hides_server(server)
    assert allowed(requests="roots").hides_server(server)


# ---------------------------------------------------------------- what servers ask


def test_input_requests_are_matched_by_rules_about_them_alone() -> None:
    sampling = asked(method="sampling/createMessage")
    assert action(denied(requests="sampling"), sampling) == "deny"
    assert action(denied(requests="elicitation"), sampling) == "allow"
    assert action(denied(servers="files"), sampling) == "allow"
    assert action(Policy(default="deny"), sampling) == "allow"
    assert action(denied(requests="sampling"), asked()) == "allow"


def test_a_rule_about_input_requests_can_name_the_tool_and_what_is_asked() -> None:
    policy = denied(
        requests="elicitation", tools="files__*", arguments={"url": {"not": "https://a.example/**"}}
    )
    method = "elicitation/create"
    assert action(policy, asked(arguments={"url": "https://b.example/"}, method=method)) == "deny"
    assert action(policy, asked(arguments={"url": "https://a.example/x"}, method=method)) == "allow"
    assert action(policy, asked("git__x", {"url": "https://b.example/"}, method=method)) == "allow"


# ---------------------------------------------------------------- functions


def test_a_function_can_be_a_rule() -> None:
    def at_night(request: PolicyRequest) -> Action | None:
        return "deny" if request.decoded_arguments.get("night") else None

    policy = Policy([at_night, Rule("allow")])
    assert action(policy, asked(arguments={"night": True})) == "deny"
    assert action(policy, asked(arguments={"night": False})) == "allow"


def test_a_function_that_fails_denies_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def broken(request: PolicyRequest) -> Action | None:
        raise KeyError(request.name)

    with caplog.at_level(logging.ERROR, "colonnade.host"):
        assert action(Policy([broken], default="allow"), asked()) == "deny"
    assert "broken" in caplog.text


def test_a_function_that_returns_nonsense_denies() -> None:
    def nonsense(request: PolicyRequest) -> Any:
        return True

    policy = Policy([FunctionRule(nonsense)], default="allow")
    assert action(policy, asked()) == "deny"


def test_a_function_hides_what_it_denies_unless_it_looks_at_arguments() -> None:
    def deny(request: PolicyRequest) -> Action | None:
        return "deny"

    assert Policy([deny]).hides(asked(method="tools/list"))
    assert not Policy([FunctionRule(deny, arguments=True)]).hides(asked(method="tools/list"))


def test_an_async_function_is_refused() -> None:
    async def later(request: PolicyRequest) -> None:
        pass

    rules: Any = [later]
    with pytest.raises(InvalidArgumentType, match="not async"):
        Policy(rules)


# ---------------------------------------------------------------- versions


def test_the_version_changes_with_the_rules_and_not_with_their_names() -> None:
    def one(request: PolicyRequest) -> Action | None:
        return None

    first = Policy([Rule("deny", tools="a")])
    assert first.version == Policy([Rule("deny", tools="a", name="x", place="y:1")]).version
    others = [
        Policy([Rule("deny", tools="b")]),
        Policy([Rule("ask", tools="a")]),
        Policy([Rule("deny", prompts="a")]),
        Policy([Rule("deny", tools="a")], default="deny"),
        Policy([Rule("deny", tools="a", arguments={"a": 1})]),
        Policy([Rule("deny", tools="a"), Rule("deny", tools="a")]),
        Policy([one]),
        Policy([FunctionRule(one, version="2")]),
    ]
    assert len({first.version, *(policy.version for policy in others)}) == len(others) + 1


# ---------------------------------------------------------------- several policies


def test_of_several_policies_the_strictest_decision_counts() -> None:
    user = Policy([Rule("deny", tools="files__write"), Rule("ask", tools="git__*")], "allow")
    project = Policy([Rule("allow")])
    strict = Policy([Rule("deny", servers="git")], "allow")
    both = CombinedPolicy([user, project])
    assert both.decide(asked("files__write")).action == "deny"
    assert both.decide(asked("git__log")).action == "ask"
    assert both.decide(asked("files__read")).action == "allow"
    three = CombinedPolicy([user, project, strict])
    assert three.decide(asked("git__log")).action == "deny"
    assert three.hides(asked("git__log"))
    assert not both.hides(asked("git__log"))
    assert three.hides_server(asked("git__"))
    assert three.version != both.version
    assert three.decide(asked()).policy_version == three.version


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("conditions", "argument"),
    [
        ({"tools": []}, "tools"),
        ({"tools": "[a"}, "tools"),
        ({"tools": 5}, "tools"),
        ({"tools": [5]}, "tools"),
        ({"resources": "a" * 1000}, "resources"),
        ({"servers": ["x"] * 1000}, "servers"),
        ({"requests": "ping"}, "requests"),
        ({"annotations": {"safe": True}}, "annotations"),
        ({"annotations": {"readOnlyHint": "yes"}}, "annotations"),
        ({"claims": {"groups": {}}}, "claims"),
        ({"claims": {"groups": "[a"}}, "claims"),
        ({"arguments": {"a": None}}, "arguments"),
        ({"arguments": {"a": {"min": "1"}}}, "arguments"),
        ({"arguments": {"a": {"least": 1}}}, "arguments"),
        ({"arguments": {"a": {}}}, "arguments"),
        ({"arguments": {"a": []}}, "arguments"),
        ({"arguments": {"a": "[x"}}, "arguments"),
        ({"arguments": {"a..b": 1}}, "arguments"),
        ({"arguments": {"a": {"present": True, "min": 1}}}, "arguments"),
    ],
)
def test_a_rule_that_cannot_be_used_is_refused(conditions: dict[str, Any], argument: str) -> None:
    with pytest.raises((InvalidArgument, InvalidArgumentType)) as refused:
        Rule("deny", **conditions)
    assert refused.value.argument == argument


def test_an_unknown_action_is_refused() -> None:
    action: Any = "permit"
    with pytest.raises(InvalidArgument, match="action"):
        Rule(action)
    with pytest.raises(InvalidArgument, match="default"):
        Policy(default=action)


def test_a_policy_of_too_many_rules_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="at most 1000"):
        Policy([Rule("deny")] * 1001)


# ---------------------------------------------------------------- explanations


def test_an_explanation_says_of_each_rule_why_it_does_not_match() -> None:
    policy = Policy(
        [
            Rule("deny", principals="bob"),
            Rule("deny", tools="git__*"),
            Rule("deny", prompts="*"),
            Rule("allow", annotations={"readOnlyHint": True}),
            Rule("ask", arguments={"path": "/etc/**"}),
            Rule("ask", requests="roots"),
            Rule("allow", tools="files__*"),
            Rule("deny"),
        ]
    )
    steps = policy.explain(asked(arguments={"path": "/srv"}, principal="ann"))
    assert [step.why for step in steps] == [
        "the principal 'ann' does not match 'bob'",
        "the tool 'files__read' does not match 'git__*'",
        "it is about prompts, not about a tool",
        "server 'files' is not trusted, so its annotations do not count",
        "the argument 'path' does not match",
        "it is about what servers ask, not about tools/call",
        "",
    ]
    assert [step.action for step in steps] == [None] * 6 + ["allow"]
