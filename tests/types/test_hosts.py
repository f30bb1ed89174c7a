"""What a type checker makes of a host, and that it is so when run."""

from pathlib import Path
from typing import Any, Literal, assert_type

from client.shop import shop
from colonnade import (
    AuditLog,
    Containment,
    FunctionRule,
    Gateway,
    Host,
    HostInputRequest,
    HostTask,
    HostTool,
    Inbox,
    InboxAnswer,
    InboxItem,
    OpenAICompatible,
    Pins,
    Policy,
    PolicyRequest,
    Rule,
    Sandbox,
    UpstreamCredentials,
    connect,
)
from colonnade.client.results import ToolResult
from colonnade.host.agent.loop import Model, ModelCall, Run
from colonnade.host.agent.openai_model import Message
from colonnade.host.caller import HostCaller
from colonnade.host.config.settings import HostProblem
from colonnade.host.servers.listings import HostPrompt, HostResource, HostResourceTemplate
from colonnade.host.servers.session import Status
from colonnade.ports import EndpointRequest
from colonnade.protocol import types as t
from colonnade.store.memory import MemoryStore
from live import live


def on_input_request(question: HostInputRequest) -> object:
    assert_type(question.server, str)
    assert_type(question.params, t.ElicitRequestParams | t.CreateMessageRequestParams)
    return None


@live
async def test_a_host_has_the_types_that_it_says() -> None:
    async with Host({"shop": shop()}, on_input_request=on_input_request) as host:
        assert_type(host, Host)
        tools = assert_type(await host.list_tools(), list[HostTool])
        assert isinstance(tools[0], HostTool)
        result = await host.call_tool("shop__add", {"a": 1, "b": 2}, returns=int)
        assert_type(result, ToolResult[int])
        assert assert_type(result.data, int) == 3
        assert_type(await host.call_tool("shop__add", {"a": 1, "b": 2}), ToolResult[Any])
        assert_type(await host.search("add"), list[HostTool])
        assert_type(await host.list_prompts(), list[HostPrompt])
        assert_type(await host.list_resources(), list[HostResource])
        assert_type(await host.list_resource_templates(), list[HostResourceTemplate])
        assert_type(host.problems, list[HostProblem])
        assert_type(host.status(), list[Status])
        assert_type(host.instructions, dict[str, str])
        ada = assert_type(host.caller("ada"), HostCaller)
        assert (await ada.call_tool("shop__add", {"a": 2, "b": 2}, returns=int)).data == 4
        assert_type(host.tool("shop__add"), HostTool | None)
        task = assert_type(await host.start_task("shop__add", {"a": 1, "b": 2}), HostTask)
        assert_type(await task.result(returns=int), ToolResult[int])
        assert_type(await host.tasks(), list[HostTask])
        assert task.done


def no_purchases(request: PolicyRequest) -> Literal["deny"] | None:
    assert_type(request.principal, str)
    return "deny" if request.name == "buy" else None


def on_item(item: InboxItem) -> InboxAnswer:
    assert_type(item.server, str)
    return InboxAnswer(action="accept")


@live
async def test_a_policy_and_a_gateway_have_the_types_that_they_say(tmp_path: Path) -> None:
    host = Host(
        {"shop": shop()},
        policy=Policy([Rule("allow", tools="shop__add"), FunctionRule(no_purchases)]),
        pins=Pins(MemoryStore()),
        audit=AuditLog(tmp_path / "audit"),
        inbox=Inbox(on_item=on_item),
        containment=Containment(),
    )
    assert assert_type(Sandbox(read=("data",), network=True), Sandbox).network
    gateway = assert_type(Gateway(host), Gateway)
    async with connect(gateway) as client:
        result = await client.call_tool("shop__add", {"a": 1, "b": 2}, returns=int)
        assert assert_type(result.data, int) == 3


@live
async def test_a_model_at_an_endpoint_is_one_for_a_run() -> None:
    model: Model = OpenAICompatible("http://127.0.0.1:9/v1", model="tiny")
    assert isinstance(model, OpenAICompatible)

    def parrot(messages: list[Message], tools: list[Any]) -> object:
        return {"role": "assistant", "content": "hello"}

    async with Host({"shop": shop()}) as host:
        run = assert_type(await host.run(parrot, "hello"), Run)
        assert_type(run.text, str)
        assert_type(run.calls, list[ModelCall])
        assert (run.text, run.calls) == ("hello", [])


def identify(request: EndpointRequest) -> str | None:
    return None


@live
async def test_a_host_takes_the_credentials_of_its_callers() -> None:
    upstream = UpstreamCredentials("https://host.example.com", identify=identify)
    assert_type(upstream, UpstreamCredentials)
    async with Host({"shop": shop()}, upstream=upstream) as host:
        assert_type(await host.list_tools(caller="ada"), list[HostTool])
