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
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Coroutine
from typing import Any

from colonnade import (
    AuthError,
    ClientCredentials,
    EnterpriseLogin,
    Login,
    WorkloadIdentity,
    connect,
)
from colonnade.auth.client.login import Auth
from colonnade.client.client import Client
from colonnade.protocol import types as t

Scenario = Callable[[Client], Coroutine[Any, Any, None]]
SCENARIOS: dict[str, Scenario] = {}
# The only warning that is wanted, in the scenario that is about it.
LEFT_OUT = "is left out"


def scenario(name: str) -> Callable[[Scenario], Scenario]:
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


@scenario("tools_call")
async def tools_call(client: Client) -> None:
    equal(await names(client), ["add_numbers"])
    await say(client, "add_numbers", "The sum of 5 and 3 is 8", a=5, b=3)


@scenario("json-schema-2020-12-preservation")
async def schema_kept(client: Client) -> None:
    tools = {tool.name: tool for tool in await client.list_tools()}
    schema = tools["json_schema_2020_12_tool"].input_schema
    echoed = await client.call_tool("json_schema_echo", {"schema": schema})
    equal(echoed.is_error, False)


# ---------------------------------------------------------------- with a handshake


@scenario("initialize")
async def initialize(client: Client) -> None:
    equal(client.server, t.Implementation(name="test-server", version="1.0.0"))
    await client.ping()


@scenario("elicitation-sep1034-client-defaults")
async def defaults(client: Client) -> None:
    """The question comes on the stream of the session, not on that of the call."""
    equal(await names(client), ["test_client_elicitation_defaults"])
    result = await client.call_tool("test_client_elicitation_defaults", {})
    head, _, content = result.text.partition(": ")
    equal(head, "Elicitation completed")
    wanted = {"name": "John Doe", "age": 30, "score": 95.5, "status": "active", "verified": True}
    equal(json.loads(content), wanted)


@scenario("sse-retry")
async def polled(client: Client) -> None:
    equal(await names(client), ["test_reconnection"])
    await say(client, "test_reconnection", "Reconnection test completed successfully")


# ---------------------------------------------------------------- without one


@scenario("request-metadata")
async def metadata(client: Client) -> None:
    equal(await names(client), [])
    equal((await client.call_tool("anything", {})).content, [])


@scenario("http-standard-headers")
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


@scenario("http-custom-headers")
async def custom_headers(client: Client) -> None:
    calls = json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])["toolCalls"]
    equal(await names(client), [call["name"] for call in calls])
    for call in calls:
        equal((await client.call_tool(call["name"], call["arguments"])).is_error, False)


@scenario("http-invalid-tool-headers")
async def invalid_headers(client: Client) -> None:
    """One tool can be used; each of the others is left out, and a warning says so."""
    equal(await names(client), ["valid_tool"])
    await say(client, "valid_tool", "Tool call received", region="us-west1")


@scenario("sep-2322-client-request-state")
async def request_state(client: Client) -> None:
    await say(client, "test_mrtr_echo_state", "echo-state-ok")
    await say(client, "test_mrtr_no_state", "no-state-ok")
    await say(client, "test_mrtr_no_result_type", "no-result-type-test-ok")


@scenario("json-schema-ref-no-deref")
async def reference_left_alone(client: Client) -> None:
    [tool] = await client.list_tools()
    reference = tool.input_schema["properties"]["profile"]["$ref"]
    equal(reference.startswith("http://"), True)


# ---------------------------------------------------------------- who we are

REDIRECT_URI = "http://localhost:3000/callback"
DOCUMENT = "https://conformance-test.local/client-metadata.json"
# Where the suite, or its server, is not what it should be, and a client must not go on.
STOPS = {
    "auth/resource-mismatch": "is the metadata of",
    "auth/iss-supported-missing": "has no iss, which",
    "auth/iss-wrong-issuer": "is from another issuer",
    "auth/iss-unexpected": "is from another issuer",
    "auth/iss-normalized": "is from another issuer",
    "auth/metadata-issuer-mismatch": "is the metadata of another issuer",
    "auth/scope-retry-limit": "not sufficient",
}


def open_page(url: str) -> str:
    """What a browser does with a person who says yes to everything: where it is sent back to."""

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(
            self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
        ) -> None:
            return None

    try:
        urllib.request.build_opener(Stay).open(url, timeout=10)
    except urllib.error.HTTPError as error:
        with error:
            return error.headers["Location"]
    raise RuntimeError("the page to log in at sent nobody back")


def operator_says(url: str) -> str:
    """The issuer that a client was registered with: whoever registered it knows, and the suite
    does not say."""
    parts = urllib.parse.urlsplit(url)
    place = f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{parts.path}"
    with urllib.request.urlopen(place, timeout=10) as reply:
        return json.load(reply)["authorization_servers"][0]


def auth_for(scenario: str, url: str) -> Auth | None:
    """How we log in, as the scenario's context says."""
    if not scenario.startswith("auth/"):
        return None
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    match scenario:
        case "auth/client-credentials-jwt":
            return ClientCredentials(
                issuer=operator_says(url),
                client_id=context["client_id"],
                private_key=context["private_key_pem"],
                algorithm=context["signing_algorithm"],
            )
        case "auth/client-credentials-basic":
            id, secret = context["client_id"], context["client_secret"]
            issuer = operator_says(url)
            return ClientCredentials(issuer=issuer, client_id=id, client_secret=secret)
        case "auth/enterprise-managed-authorization":
            return EnterpriseLogin(
                issuer=operator_says(url),
                client_id=context["client_id"],
                client_secret=context["client_secret"],
                idp_token_endpoint=context["idp_token_endpoint"],
                idp_client_id=context["idp_client_id"],
                identity=context["idp_id_token"],
            )
        case "auth/wif-jwt-bearer":
            id, jwt = context["client_id"], context["valid_jwt"]
            return WorkloadIdentity(issuer=operator_says(url), client_id=id, assertion=jwt)
        case "auth/pre-registration":
            return Login(
                issuer=context["issuer"],
                client_id=context["client_id"],
                client_secret=context["client_secret"],
                redirect_uri=REDIRECT_URI,
                on_redirect=open_page,
            )
        case _:
            return Login(
                client_metadata_url=DOCUMENT, redirect_uri=REDIRECT_URI, on_redirect=open_page
            )


async def protected(client: Client) -> None:
    equal(await names(client), ["test-tool"])
    equal((await client.call_tool("test-tool", {})).is_error, False)


async def stopped(scenario: str, playing: Coroutine[Any, Any, None]) -> None:
    """See that a client stops, and why."""
    try:
        await playing
    except AuthError as error:
        equal(STOPS[scenario] in str(error), True)
        return
    raise RuntimeError("it went on")


# ---------------------------------------------------------------- the program


class LogCollector(logging.Handler):
    """What was warned of."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


async def run_scenario(scenario: str, revision: str, url: str) -> None:
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
        auth=auth_for(scenario, url),
        # Its servers agree to whatever they are asked for, and the scenario is about this one.
        revision=revision if scenario.startswith(f"auth/{revision}-") else None,
        on_elicit=elicited,
        on_sample=lambda asked: "Paris",
        roots=["file:///projects/conformance"],
    ) as client:
        opened.append(client)
        await SCENARIOS.get(scenario, protected)(client)
        equal(client.revision, revision)


def main() -> None:
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    revision = os.environ["MCP_CONFORMANCE_PROTOCOL_VERSION"]
    heard = LogCollector()
    logging.getLogger().addHandler(heard)
    playing = run_scenario(scenario, revision, sys.argv[-1])
    asyncio.run(stopped(scenario, playing) if scenario in STOPS else playing)
    left_out = [line for line in heard.lines if LEFT_OUT in line]
    equal([line for line in heard.lines if line not in left_out], [])
    equal(len(left_out), 11 if scenario == "http-invalid-tool-headers" else 0)
    print("finished")


if __name__ == "__main__":
    main()
