"""A client that does what the official conformance suite waits for in each of its scenarios.

    MCP_CONFORMANCE_SCENARIO=tools_call MCP_CONFORMANCE_PROTOCOL_VERSION=2026-07-28 \\
        .venv/bin/python tests/conformance/everything_client.py URL

The suite says by the environment which scenario it plays and in which revision, and gives the
address. The revision is found out, as it is for any server, and then compared.

Rules: written with `connect` alone, as any author would write it. It looks at every answer, and
says `finished` as its last word where all were right; a warning that nobody waits for is a failure.
"""

import asyncio
import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from portico import connect
from portico.client.client import Client
from portico.protocol import types as t

Scenario = Callable[[Client], Awaitable[None]]
SCENARIOS: dict[str, Scenario] = {}
# The only warning that is wanted, in the scenario that is about it.
LEFT_OUT = "is left out"


def plays(name: str) -> Callable[[Scenario], Scenario]:
    """The scenario of the suite that a function plays."""

    def kept(scenario: Scenario) -> Scenario:
        SCENARIOS[name] = scenario
        return scenario

    return kept


def equal(seen: object, wanted: object) -> None:
    """Raise where these are not the same: unlike an assertion, also under -O."""
    if seen != wanted:
        raise RuntimeError(f"saw {seen!r}, wanted {wanted!r}")


async def names(client: Client) -> list[str]:
    return [tool.name for tool in await client.list_tools()]


async def say(client: Client, tool: str, wanted: str, **arguments: Any) -> None:
    """Call a tool, and see that it says this."""
    result = await client.call_tool(tool, arguments)
    equal((result.is_error, result.text), (False, wanted))


# ---------------------------------------------------------------- both eras


@plays("tools_call")
async def tools_call(client: Client) -> None:
    equal(await names(client), ["add_numbers"])
    await say(client, "add_numbers", "The sum of 5 and 3 is 8", a=5, b=3)


@plays("json-schema-2020-12-preservation")
async def schema_kept(client: Client) -> None:
    tools = {tool.name: tool for tool in await client.list_tools()}
    schema = tools["json_schema_2020_12_tool"].input_schema
    echoed = await client.call_tool("json_schema_echo", {"schema": schema})
    equal(echoed.is_error, False)


# ---------------------------------------------------------------- with a handshake


@plays("initialize")
async def initialize(client: Client) -> None:
    equal(client.server, t.Implementation(name="test-server", version="1.0.0"))
    await client.ping()


@plays("elicitation-sep1034-client-defaults")
async def defaults(client: Client) -> None:
    """The question comes on the stream of the session, not on that of the call."""
    equal(await names(client), ["test_client_elicitation_defaults"])
    result = await client.call_tool("test_client_elicitation_defaults", {})
    head, _, content = result.text.partition(": ")
    equal(head, "Elicitation completed")
    wanted = {"name": "John Doe", "age": 30, "score": 95.5, "status": "active", "verified": True}
    equal(json.loads(content), wanted)


@plays("sse-retry")
async def polled(client: Client) -> None:
    equal(await names(client), ["test_reconnection"])
    await say(client, "test_reconnection", "Reconnection test completed successfully")


# ---------------------------------------------------------------- without one


@plays("request-metadata")
async def metadata(client: Client) -> None:
    equal(await names(client), [])
    equal((await client.call_tool("anything", {})).content, [])


@plays("http-standard-headers")
async def standard_headers(client: Client) -> None:
    for tool in await names(client):
        await say(client, tool, "Headers test completed")
    resources = await client.list_resources()
    equal(len(resources), 2)
    for resource in resources:
        equal((await client.read_resource(resource.uri)).contents, [])
    prompts = await client.list_prompts()
    equal([prompt.name for prompt in prompts], ["test_prompt"])
    equal((await client.get_prompt("test_prompt")).messages, [])


@plays("http-custom-headers")
async def custom_headers(client: Client) -> None:
    calls = json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])["toolCalls"]
    equal(await names(client), [call["name"] for call in calls])
    for call in calls:
        equal((await client.call_tool(call["name"], call["arguments"])).is_error, False)


@plays("http-invalid-tool-headers")
async def invalid_headers(client: Client) -> None:
    """One tool can be used; each of the others is left out, and a warning says so."""
    equal(await names(client), ["valid_tool"])
    await say(client, "valid_tool", "Tool call received", region="us-west1")


@plays("sep-2322-client-request-state")
async def request_state(client: Client) -> None:
    await say(client, "test_mrtr_echo_state", "echo-state-ok")
    await say(client, "test_mrtr_no_state", "no-state-ok")
    await say(client, "test_mrtr_no_result_type", "no-result-type-test-ok")


@plays("json-schema-ref-no-deref")
async def reference_left_alone(client: Client) -> None:
    [tool] = await client.list_tools()
    reference = tool.input_schema["properties"]["profile"]["$ref"]
    equal(reference.startswith("http://"), True)


# ---------------------------------------------------------------- the program


class Heard(logging.Handler):
    """What was warned of."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


async def play(scenario: str, revision: str, url: str) -> None:
    """Play one scenario; raises where an answer is not what it should be."""
    opened: list[Client] = []

    async def elicited(asked: t.ElicitRequestParams) -> dict[str, Any]:
        if scenario == "elicitation-sep1034-client-defaults":
            return {}  # the user has accepted, and typed nothing
        # Between the two rounds of this call, another one that is none of its business.
        await say(opened[0], "test_mrtr_unrelated", "unrelated-ok")
        return {"confirmed": True}

    async with connect(
        url,
        timeout_s=20,
        on_elicit=elicited,
        on_sample=lambda asked: "Paris",
        roots=["file:///projects/conformance"],
    ) as client:
        opened.append(client)
        await SCENARIOS[scenario](client)
        equal(client.revision, revision)


def main() -> None:
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    revision = os.environ["MCP_CONFORMANCE_PROTOCOL_VERSION"]
    heard = Heard()
    logging.getLogger().addHandler(heard)
    asyncio.run(play(scenario, revision, sys.argv[-1]))
    left_out = [line for line in heard.lines if LEFT_OUT in line]
    equal([line for line in heard.lines if line not in left_out], [])
    equal(len(left_out), 11 if scenario == "http-invalid-tool-headers" else 0)
    print("finished")


if __name__ == "__main__":
    main()
