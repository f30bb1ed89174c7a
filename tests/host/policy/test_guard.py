"""The guard: in which order a request passes it, what it refuses, and that nothing is sent then."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw

from colonnade import Context, Host, HostInputRequest, Refused, RemoteError, Server
from colonnade.client.results import ToolResult
from colonnade.errors import ColonnadeError
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Config, Settings
from colonnade.host.policy.guard import PolicyGuard
from colonnade.host.policy.request import (
    Consent,
    Decision,
    Denial,
    ForwardInput,
    PolicyRequest,
)
from colonnade.host.policy.rules.rules import Policy, Rule
from colonnade.protocol import types as t
from colonnade.protocol.input_requests import InputRequest
from colonnade.protocol.jsonrpc import encode
from host.policies import files
from live import live

ASK = Policy(default="ask")


class Person:
    """Approves everything, and keeps what it was asked; `before` runs before it approves."""

    def __init__(self, before: Callable[[], Any] | None = None) -> None:
        self.requests: list[PolicyRequest] = []
        self.inputs: list[InputRequest] = []
        self._before = before

    async def approve(self, request: PolicyRequest, decision: Decision) -> Consent:
        self.requests.append(request)
        if self._before is not None:
            waited = self._before()
            if asyncio.iscoroutine(waited):
                await waited
        return Consent(approval="1", by="ann")

    async def review_input(
        self,
        request: PolicyRequest,
        decision: Decision,
        input_request: InputRequest,
        forward: ForwardInput,
    ) -> Raw:
        self.requests.append(request)
        self.inputs.append(input_request)
        return await forward(input_request)

    async def review_request(
        self, request: PolicyRequest, decision: Decision, input_request: InputRequest
    ) -> InputRequest:
        raise NotImplementedError

    async def review_response(
        self,
        request: PolicyRequest,
        decision: Decision,
        input_request: InputRequest,
        response: Raw,
    ) -> Raw:
        raise NotImplementedError

    async def answer_input(self, request: HostInputRequest) -> Any:
        return {}


class Unwilling(Person):
    """Declines everything."""

    async def approve(self, request: PolicyRequest, decision: Decision) -> Consent:
        raise Refused("declined", reason="approval")

    async def review_input(
        self,
        request: PolicyRequest,
        decision: Decision,
        input_request: InputRequest,
        forward: ForwardInput,
    ) -> Raw:
        raise Refused("declined", reason="approval")


class Recorder:
    """An audit log in a list; `full` are the steps that cannot be written."""

    def __init__(self, *full: str) -> None:
        self.steps: list[str] = []
        self.requests: list[PolicyRequest] = []
        self._full = full

    def _record(self, step: str, request: PolicyRequest, more: object = "") -> None:
        if step in self._full:
            raise Refused("the audit log is full", reason="audit")
        self.steps.append(f"{step} {request.qualified} {more}".strip())
        self.requests.append(request)

    def proposed(self, request: PolicyRequest) -> str:
        self._record("proposed", request)
        return "1"

    def decided(self, call: str, request: PolicyRequest, decision: Decision) -> None:
        self._record("decided", request, decision.action)

    def asked(self, call: str, request: PolicyRequest, decision: Decision) -> None:
        self._record("asked", request)

    def answered(self, call: str, request: PolicyRequest, answer: Consent | Denial) -> None:
        self._record("answered", request, getattr(answer, "reason", "") or answer.by)

    def unanswered(self, call: str, request: PolicyRequest, ended: str, why: str) -> None:
        self._record("unanswered", request, ended)

    def executed(self, call: str, request: PolicyRequest, revision: str) -> None:
        self._record("executed", request, revision)

    def returned(self, call: str, request: PolicyRequest, result: object) -> None:
        self._record("returned", request, type(result).__name__)

    def abandoned(self, call: str, request: PolicyRequest, error: BaseException) -> None:
        self._record("abandoned", request, type(error).__name__)

    def became_task(self, call: str, request: PolicyRequest, handle: str) -> None:
        self._record("task", request)

    async def close(self) -> None:
        pass


class Counted(Server):
    """Keeps the params of each call that arrives."""

    def __init__(self, name: str = "counted") -> None:
        super().__init__(name, instructions="read this")
        self.calls: list[bytes] = []
        self.description = b"Pay an amount."

    async def respond(self, request: Any) -> bytes | None:
        if request.exchange.method.name == "tools/call":
            self.calls.append(bytes(request.exchange.params.arguments))
        response = await super().respond(request)
        return response and response.replace(b"Pay an amount.", self.description)


def counted() -> Counted:
    server = Counted()

    @server.tool
    def pay(amount: float, to: str = "") -> str:
        """Pay an amount."""
        return f"paid {amount} {to}".strip()

    @server.tool
    def other() -> None:
        pass

    _ = pay, other
    return server


async def pay(host: Host, amount: float = 5) -> ToolResult[Any]:
    return await host.call_tool("shop__pay", {"amount": amount})


# ---------------------------------------------------------------- decisions


@live
async def test_a_call_that_is_denied_by_its_arguments_says_which_rule_and_is_not_sent() -> None:
    server = counted()
    rule = Rule("deny", arguments={"amount": {"above": 100}}, name="no large sums")
    async with Host({"shop": server}, policy=Policy([rule], default="allow")) as host:
        assert (await pay(host, 5)).text == "paid 5.0"
        with pytest.raises(Refused, match="no large sums") as refused:
            await pay(host, 500)
    assert (refused.value.reason, refused.value.rule) == ("rule", "rule 'no large sums'")
    assert server.calls == [b'{"amount":5}']


@live
async def test_without_a_way_to_ask_it_is_refused_at_once_with_what_to_do() -> None:
    server = counted()
    async with Host({"shop": server}, policy=ASK) as host:
        with pytest.raises(Refused, match="colonnade inbox") as refused:
            await pay(host)
    assert refused.value.reason == "no_approver"
    assert server.calls == []


@live
async def test_what_was_approved_is_what_is_sent() -> None:
    server, person = counted(), Person()
    async with Host({"shop": server}, policy=ASK, inbox=person) as host:
        assert (await pay(host, 7)).text == "paid 7.0"
    (request,) = person.requests
    assert server.calls == [bytes(request.arguments)] == [b'{"amount":7}']
    assert request.decoded_arguments == {"amount": 7}
    assert (request.server, request.name, request.qualified) == ("shop", "pay", "shop__pay")
    assert isinstance(request.definition, t.Tool)
    assert request.definition.name == "pay"
    assert request.definition_digest


@live
async def test_what_was_declined_is_not_sent() -> None:
    server = counted()
    async with Host({"shop": server}, policy=ASK, inbox=Unwilling()) as host:
        with pytest.raises(Refused, match="declined") as refused:
            await pay(host)
    assert refused.value.reason == "approval"
    assert server.calls == []


@live
async def test_a_client_of_the_host_gets_a_refusal_as_an_error_of_the_tool() -> None:
    server = counted()
    async with Host({"shop": server}, policy=ASK) as host:
        run = await host.run(_model_that_pays(), "pay")
        assert "needs an approval" in str(run.messages)
    assert server.calls == []


def _model_that_pays() -> Any:
    def model(messages: list[Any], tools: list[Any]) -> Any:
        call = {"id": "1", "function": {"name": "shop__pay", "arguments": '{"amount": 1}'}}
        message: dict[str, Any] = {"role": "assistant", "content": "done"}
        if not any(one["role"] == "tool" for one in messages):
            message = {"role": "assistant", "tool_calls": [call]}
        return {"choices": [{"message": message}]}

    return model


# ---------------------------------------------------------------- changes while it waits


@live
async def test_a_policy_that_changed_since_the_approval_is_obeyed() -> None:
    server = counted()
    entries = {"shop": entry_of("shop", server)}

    def host_with(after: Policy) -> tuple[Host, Person]:
        person = Person(lambda: host.reload(Config(entries=entries, policy=after)))
        host = Host(Config(entries=entries, policy=ASK), inbox=person)
        return host, person

    for after, words in (
        (Policy([Rule("deny", tools="*")]), "has no tool"),
        (Policy([Rule("deny", arguments={"amount": 5})], "allow"), "denied with these arguments"),
        (Policy([Rule("ask", tools="*")]), "changed"),
    ):
        host, _ = host_with(after)
        async with host:
            with pytest.raises(ColonnadeError, match=words):
                await pay(host)
    assert server.calls == []
    host, _ = host_with(Policy(default="allow"))
    async with host:
        assert (await pay(host)).text == "paid 5.0"


@live
async def test_a_definition_that_changed_since_the_approval_is_refused() -> None:
    server, arrived = counted(), asyncio.Event()

    async def change() -> None:
        server.description = b"Pay somebody else."
        server.disable("other")
        await arrived.wait()

    async with Host({"shop": server}, policy=ASK, inbox=Person(change)) as host:
        await host.list_tools()
        host.watch(lambda _: arrived.set())
        with pytest.raises(Refused, match="has changed since it was approved") as refused:
            await pay(host)
    assert refused.value.reason == "changed"
    assert server.calls == []


@live
async def test_other_rules_hide_at_once_what_a_caller_has_listed() -> None:
    """A reload replaces pins, audit log and inbox before the rules; what a caller lists between the
    two is decided by the rules before."""
    async with Host({"shop": counted()}, policy=Policy(default="allow")) as host:
        assert "shop__pay" in [tool.name for tool in await host.list_tools()]
        guard = host._runtime.guard
        assert isinstance(guard, PolicyGuard)
        assert guard.set_rules(Policy(default="deny"))
        assert await host.list_tools() == []


# ---------------------------------------------------------------- audit


@live
async def test_each_step_of_a_call_is_recorded() -> None:
    audit = Recorder()
    async with Host({"shop": counted()}, policy=ASK, audit=audit, inbox=Person()) as host:
        await pay(host)
    assert audit.steps == [
        "proposed shop__pay",
        "decided shop__pay ask",
        "asked shop__pay",
        "answered shop__pay ann",
        "executed shop__pay 2026-07-28",
        "returned shop__pay CallToolResult",
    ]


@live
async def test_refusals_are_recorded() -> None:
    audit = Recorder()
    rule = Rule("deny", arguments={"amount": {"above": 100}})
    policy = Policy([rule], default="ask")
    async with Host({"shop": counted()}, policy=policy, audit=audit, inbox=Unwilling()) as host:
        for amount in (500, 5):
            with pytest.raises(Refused):
                await pay(host, amount)
    assert audit.steps == [
        "proposed shop__pay",
        "decided shop__pay deny",
        "abandoned shop__pay Refused",
        "proposed shop__pay",
        "decided shop__pay ask",
        "asked shop__pay",
        "answered shop__pay declined",
        "abandoned shop__pay Refused",
    ]


@live
async def test_a_call_of_a_hidden_tool_is_recorded_and_one_of_an_unknown_tool_is_not() -> None:
    audit = Recorder()
    policy = Policy([Rule("deny", tools="files__secret_*", prompts="*__secret_*")], "allow")
    async with Host({"files": files()}, policy=policy, audit=audit) as host:
        for name in ("files__secret_wipe", "files__nothing", "other__x"):
            with pytest.raises(RemoteError):
                await host.call_tool(name)
        with pytest.raises(RemoteError):
            await host.get_prompt("files__secret_plan")
    assert audit.steps == [
        "proposed files__secret_wipe",
        "decided files__secret_wipe deny",
        "abandoned files__secret_wipe HiddenNow",
        "proposed files__secret_plan",
        "decided files__secret_plan deny",
        "abandoned files__secret_plan HiddenNow",
    ]


@live
async def test_requests_for_a_hidden_uri_and_for_hidden_completions_are_recorded() -> None:
    def vault() -> Server:
        server = Server("vault")

        @server.resource("secret://{name}")
        def read(name: str) -> str:
            return name

        @server.resource("secret://one")
        def one() -> str:
            return "1"

        @server.prompt
        def plan(name: str) -> str:
            return name

        @server.completion(read, "name")
        def names(value: str) -> list[str]:
            return [value]

        _ = one, plan, names
        return server

    audit = Recorder()
    deny = Rule("deny", servers="b", resources="secret://**")
    named = Rule("deny", resources="secret://hidden*", prompts="b__plan")
    servers = {"a": Server("a"), "b": vault()}
    async with Host(servers, policy=Policy([deny, named], "allow"), audit=audit) as host:
        with pytest.raises(RemoteError):  # server b lists it
            await host.read_resource("secret://one")
        with pytest.raises(RemoteError):  # it would be hidden on every server
            await host.read_resource("secret://hidden")
        with pytest.raises(RemoteError):
            await host.complete("name", "x", template="secret://{name}")
        with pytest.raises(RemoteError):
            await host.complete("name", "x", prompt="b__plan")
        with pytest.raises(RemoteError):
            await host.read_resource("unknown://x")
        with pytest.raises(RemoteError):
            await host.complete("name", "x", prompt="a__plan")
    hidden = [step.split()[1] for step in audit.steps if step.startswith("abandoned")]
    assert hidden == ["secret://one", "secret://hidden", "secret://{name}", "b__plan"]
    servers_of = {one.qualified: one.server for one in audit.requests}
    assert (servers_of["secret://one"], servers_of["secret://{name}"]) == ("b", "b")


@pytest.mark.parametrize("step", ["proposed", "decided", "executed"])
@live
async def test_a_step_that_must_be_recorded_and_cannot_be_stops_the_call(step: str) -> None:
    server = counted()
    async with Host({"shop": server}, policy=Policy(default="allow"), audit=Recorder(step)) as host:
        with pytest.raises(Refused, match="audit log is full"):
            await pay(host)
    assert server.calls == []


@live
async def test_an_end_that_cannot_be_recorded_does_not_replace_the_error() -> None:
    async with Host({"shop": counted()}, policy=ASK, audit=Recorder("abandoned")) as host:
        with pytest.raises(Refused, match="needs an approval"):
            await pay(host)


# ---------------------------------------------------------------- other requests


@live
async def test_prompts_resources_and_completions_pass_the_guard() -> None:
    audit = Recorder()
    async with Host({"files": files()}, policy=Policy(default="allow"), audit=audit) as host:
        await host.get_prompt("files__summarize", {"topic": "a"})
        await host.read_resource("notes://today")
        await host.read_resource("notes://today", "files")
        await host.complete("topic", "a", prompt="files__summarize")
        await host.complete("name", "b", template="notes://public/{name}")
    proposed = [
        one for step, one in zip(audit.steps, audit.requests, strict=True) if "prop" in step
    ]
    assert [(one.method, one.kind, one.name, bytes(one.arguments)) for one in proposed] == [
        ("prompts/get", "prompt", "summarize", b'{"topic":"a"}'),
        ("resources/read", "resource", "notes://today", b""),
        ("resources/read", "resource", "notes://today", b""),
        ("completion/complete", "prompt", "summarize", b'{"topic":"a"}'),
        ("completion/complete", "template", "notes://public/{name}", b'{"name":"b"}'),
    ]


@live
async def test_a_resource_that_is_denied_is_not_read_from_a_server_that_is_named() -> None:
    policy = Policy([Rule("deny", resources="notes://secret")], default="allow")
    async with Host({"files": files()}, policy=policy) as host:
        with pytest.raises(RemoteError, match="no server lists the resource 'notes://secret'"):
            await host.read_resource("notes://secret", "files")
        with pytest.raises(RemoteError, match="no server lists the resource"):
            await host.read_resource("notes://%73ecret", "files")


@live
async def test_prompts_and_resources_are_asked_about() -> None:
    person = Person()
    async with Host({"files": files()}, policy=ASK, inbox=person) as host:
        await host.get_prompt("files__summarize", {"topic": "a"})
        await host.read_resource("notes://today")
        await host.complete("topic", "a", prompt="files__summarize")
    assert [one.method for one in person.requests] == ["prompts/get", "resources/read"]


@live
async def test_the_result_of_a_task_passes_the_guard() -> None:
    server, audit = Server("slow"), Recorder()

    @server.tool(task=True)
    async def work() -> str:
        return "done"

    _ = work
    async with Host({"slow": server}, policy=ASK, audit=audit, inbox=Person()) as host:
        task = await host.start_task("slow__work")
        assert (await task.result()).text == "done"
    methods = [one.method for one in audit.requests]
    assert "tasks/get" in methods


# ---------------------------------------------------------------- what servers ask


def curious(revision: str) -> Any:
    server = Server("curious")

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Which seat?", str)
        return f"seat {answer}"

    @server.tool
    async def think(ctx: Context) -> str:
        return (await ctx.sample("say hello")).text

    @server.tool
    async def where(ctx: Context) -> str:
        return str([root.uri for root in await ctx.roots()])

    _ = ask, think, where
    settings = Settings(revision=revision, sampling=True, roots=("/srv",))
    return entry_of("curious", server, settings)


def answers(request: HostInputRequest) -> Any:
    return "12A" if request.kind == "elicit" else "hello"


REVISIONS = ["2025-06-18", "2025-11-25", "2026-07-28"]


async def asked_for(host: Host, tool: str) -> str:
    try:
        return (await host.call_tool(f"curious__{tool}")).text
    except ColonnadeError as error:
        return f"{type(error).__name__} {error}"


@pytest.mark.parametrize("revision", REVISIONS)
@live
async def test_rules_decide_on_what_servers_ask(revision: str) -> None:
    for requests, tool in (("elicitation", "ask"), ("sampling", "think"), ("roots", "where")):
        server, expected = curious(revision), {"ask": "12A", "think": "hello", "where": "srv"}
        allow = Policy(default="allow")
        async with Host({"curious": server}, policy=allow, on_input_request=answers) as host:
            assert expected[tool] in await asked_for(host, tool)
        deny = Policy([Rule("deny", requests=requests)], default="allow")
        async with Host({"curious": server}, policy=deny, on_input_request=answers) as host:
            assert expected[tool] not in await asked_for(host, tool)
        ask = Policy([Rule("ask", requests=requests)], default="allow")
        async with Host({"curious": server}, policy=ask, on_input_request=answers) as host:
            assert expected[tool] not in await asked_for(host, tool)
        person = Person()
        async with Host(
            {"curious": server}, policy=ask, inbox=person, on_input_request=answers
        ) as host:
            assert expected[tool] in await asked_for(host, tool)
        # A form is approved before the callback gets it; the rest is reviewed.
        assert len(person.inputs) == (requests != "elicitation")
        (request,) = person.requests
        assert request.server == "curious"
        if requests != "roots":
            assert (request.name, request.qualified) == (tool, f"curious__{tool}")
        if requests == "elicitation":
            assert request.decoded_arguments["message"] == "Which seat?"
        elif requests == "sampling":
            assert bytes(request.arguments) == encode(person.inputs[0].params)


@live
async def test_what_a_server_asks_and_is_denied_is_not_asked_about() -> None:
    person, policy = Person(), Policy([Rule("deny", requests="elicitation")], default="allow")
    async with Host(
        {"curious": curious("2026-07-28")}, policy=policy, inbox=person, on_input_request=answers
    ) as host:
        assert "12A" not in await asked_for(host, "ask")
    assert person.requests == []


@live
async def test_what_a_server_asks_is_recorded() -> None:
    audit = Recorder()
    async with Host(
        {"curious": curious("2026-07-28")},
        policy=Policy(default="allow"),
        audit=audit,
        on_input_request=answers,
    ) as host:
        await asked_for(host, "ask")
    pairs = zip(audit.steps, audit.requests, strict=True)
    steps = [step.split()[0] for step, one in pairs if one.method == "elicitation/create"]
    assert steps == ["proposed", "decided", "executed", "returned"]


@live
async def test_without_a_callback_the_inbox_answers_what_servers_ask() -> None:
    class Answering(Person):
        async def answer_input(self, request: HostInputRequest) -> Any:
            return answers(request)

    async with Host({"curious": curious("2026-07-28")}, inbox=Answering()) as host:
        assert "12A" in await asked_for(host, "ask")


@live
async def test_json_in_a_string_is_judged_before_a_server_makes_an_object_of_it() -> None:
    server = Server("mail")
    names: list[str] = []

    @server.tool
    def invite(user: dict[str, str], force: bool = True) -> str:
        names.append(user["name"])
        return user["name"]

    rules = [
        Rule("deny", servers="mail", arguments={"user.name": "admin"}),
        Rule("deny", servers="mail", arguments={"force": True}),
    ]
    async with Host({"mail": server}, policy=Policy(rules, default="allow")) as host:
        for denied in (
            {"user": '{"name": "admin"}', "force": False},
            {"user": '{"name": "ann"}', "force": "TRUE"},
            {"user": '{"name": "ann"}'},
        ):
            with pytest.raises(Refused):
                await host.call_tool("mail__invite", denied)
        result = await host.call_tool("mail__invite", {"user": '{"name": "ann"}', "force": "false"})
        assert (result.text, names) == ("ann", ["ann"])
