"""The official Python SDK, 1.x or 2.x, as a client of the everything-server, or of any.

    python drive_mcp.py '{"era": "2026-07-28", "http": "http://...", "leave_out": ["ping"]}'

or with "sse", an address, too, or "stdio", a command. Run by the Python of the SDK's environment.
Plays every scenario on one connection and prints what it saw, a line of JSON for each:
{"scenario", "seen"} or {"scenario", "failed"}. With "steps" it plays those instead, at any server:

    {"scenario": "sum", "do": "call", "params": {"name": "add", "arguments": {"a": 1, "b": 2}}}

Rules: judges nothing; what was seen is in the words of the wire. Imports nothing of ours.
"""

# pyright: reportMissingImports=false

import contextlib
import json
import sys
import traceback
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from importlib.metadata import version
from typing import Any

import anyio
import mcp.shared.exceptions
from mcp import ClientSession, StdioServerParameters
from mcp import types as t
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

SECOND = version("mcp").startswith("2.")
REFUSED = mcp.shared.exceptions.MCPError if SECOND else mcp.shared.exceptions.McpError
MODERN = "2026-07-28"
SCENARIO_S = 30.0
# Twice in an answer, and still below what 2.x takes as one event (a mebibyte).
LARGE = 400_000
AT_ONCE = 20
WATCHED = "test://watched-resource"
MODEL_SAYS = "Paris, of course"
FOLDER = "file:///projects/interop"
# What the user types into a field of this name; a field that is not here is left out.
TYPED: dict[str, Any] = {
    "username": "ada",
    "email": "ada@example.com",
    "name": "Ada",
    "age": 36,
    "ok": True,
    "value": True,
    "color": "green",
    "context": "interop",
    "untitledSingle": "option2",
    "titledSingle": "value2",
    "legacyEnum": "opt2",
    "untitledMulti": ["option1", "option3"],
    "titledMulti": ["value1", "value3"],
}


def wire(value: Any) -> Any:
    """A model of the SDK as it would be sent."""
    return value.model_dump(by_alias=True, mode="json", exclude_none=True)


class Client:
    """A connection, and everything that was said to it unasked."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.modern = spec["era"] == MODERN
        self.api: Any = None
        self.session: Any = None
        self.greeting: Any = None
        self.notices: list[dict[str, Any]] = []
        self.logs: list[Any] = []
        self.questions: list[dict[str, Any]] = []
        self._heard = anyio.Event()

    # ------------------------------------------------------------ what the server asks and says

    async def elicited(self, context: Any, params: Any) -> Any:
        asked = wire(params)
        self.questions.append({"method": "elicitation/create", "params": asked})
        if "decline" in asked["message"]:
            return t.ElicitResult(action="decline")
        if "url" in asked:
            return t.ElicitResult(action="accept")
        fields = asked["requestedSchema"]["properties"]
        content = {name: TYPED[name] for name in fields if name in TYPED}
        return t.ElicitResult(action="accept", content=content)

    async def sampled(self, context: Any, params: Any) -> Any:
        self.questions.append({"method": "sampling/createMessage", "params": wire(params)})
        says = t.TextContent(type="text", text=MODEL_SAYS)
        return t.CreateMessageResult(role="assistant", content=says, model="interop")

    async def rooted(self, context: Any) -> Any:
        self.questions.append({"method": "roots/list", "params": {}})
        return t.ListRootsResult(roots=[t.Root(uri=FOLDER, name="interop")])

    async def logged(self, params: Any) -> None:
        self.logs.append(wire(params))
        self._hear()

    async def told(self, message: Any) -> None:
        if isinstance(message, Exception):
            self.notices.append({"method": "exception", "params": repr(message)})
        elif hasattr(message, "model_dump"):
            self.notices.append(wire(message))
        self._hear()

    def _hear(self) -> None:
        self._heard.set()
        self._heard = anyio.Event()

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait for something that is said to us."""
        while not true():
            await self._heard.wait()

    def heard(self, *methods: str) -> list[dict[str, Any]]:
        """The notices with these methods, in their order."""
        return [notice for notice in self.notices if notice["method"] in methods]

    # ------------------------------------------------------------ what we ask

    async def call(self, name: str, arguments: dict[str, Any] | None = None, **more: Any) -> Any:
        return wire(await self.api.call_tool(name, arguments or {}, **more))

    async def asked(self, name: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
        """Call a tool that asks; its result and its questions."""
        self.questions.clear()
        result = await self.call(name, arguments)
        return {"result": result, "questions": list(self.questions)}

    async def refused(self, doing: Awaitable[Any]) -> dict[str, Any]:
        """The error that a request is answered with."""
        try:
            result = await doing
        except REFUSED as error:
            return wire(error.error)
        raise AssertionError(f"no error, but {result!r}")


# ---------------------------------------------------------------- the scenarios


async def meet(client: Client) -> Any:
    if SECOND:
        api = client.api
        revision, server = api.protocol_version, api.server_info
        instructions, capabilities = api.instructions, api.server_capabilities
    else:
        said = client.greeting
        revision, server = said.protocolVersion, said.serverInfo
        instructions, capabilities = said.instructions, said.capabilities
    return {
        "revision": str(revision),
        "server": wire(server),
        "instructions": instructions,
        "capabilities": wire(capabilities),
    }


async def lists(client: Client) -> Any:
    api = client.api
    return {
        "tools": wire(await api.list_tools())["tools"],
        "resources": wire(await api.list_resources())["resources"],
        "templates": wire(await api.list_resource_templates())["resourceTemplates"],
        "prompts": wire(await api.list_prompts())["prompts"],
    }


async def call(client: Client) -> Any:
    return await client.call("test_simple_text")


async def content(client: Client) -> Any:
    names = ("image_content", "audio_content", "embedded_resource", "multiple_content_types")
    return {name: await client.call(f"test_{name}") for name in names}


async def structured(client: Client) -> Any:
    return {
        "object": await client.call("test_structured_content", {"place": "Turin"}),
        "list": await client.call("test_structured_list"),
    }


async def raw_schema(client: Client) -> Any:
    contact = {"name": "Ada", "contactMethod": "email", "email": "ada@example.com"}
    return {
        "fits": await client.call("json_schema_2020_12_tool", contact),
        "does not": await client.call("json_schema_2020_12_tool", {"name": "Ada"}),
    }


async def mirrored(client: Client) -> Any:
    return await client.call("test_x_mcp_header", {"region": "Zürich, west"})


async def large(client: Client) -> Any:
    """As much as no pipe takes at once."""
    result = await client.call("test_structured_content", {"place": "x" * LARGE})
    return [len(result["content"][0]["text"]), len(result["structuredContent"]["place"])]


async def at_once(client: Client) -> Any:
    seen: dict[str, Any] = {}

    async def one(place: str) -> None:
        seen[place] = await client.call("test_structured_content", {"place": place})

    async with anyio.create_task_group() as group:
        for place in map(str, range(AT_ONCE)):
            group.start_soon(one, place)
    return {place: result["structuredContent"]["place"] for place, result in seen.items()}


async def tool_error(client: Client) -> Any:
    return await client.call("test_error_handling")


async def unknown_tool(client: Client) -> Any:
    return await client.refused(client.api.call_tool("no_such_tool", {}))


async def bad_argument(client: Client) -> Any:
    return await client.call("test_structured_content", {"place": 7})


async def read(client: Client) -> Any:
    uris = ("test://static-text", "test://static-binary", "test://template/42/data")
    return [wire(await client.api.read_resource(uri))["contents"] for uri in uris]


async def unknown_resource(client: Client) -> Any:
    return await client.refused(client.api.read_resource("test://nowhere"))


async def prompt(client: Client) -> Any:
    words = {"arg1": "one", "arg2": "two"}
    about = {"resourceUri": "test://shown"}
    get = client.api.get_prompt
    return {
        "words": wire(await get("test_prompt_with_arguments", words)),
        "image": wire(await get("test_prompt_with_image")),
        "resource": wire(await get("test_prompt_with_embedded_resource", about)),
    }


async def prompt_asks(client: Client) -> Any:
    client.questions.clear()
    given = wire(await client.api.get_prompt("test_input_required_result_prompt"))
    return {"result": given, "questions": list(client.questions)}


async def complete(client: Client) -> Any:
    ref = t.PromptReference(type="ref/prompt", name="test_prompt_with_arguments")
    return wire(await client.api.complete(ref, {"name": "arg1", "value": "test"}))


async def progress(client: Client) -> Any:
    steps: list[Any] = []

    async def step(done: float, total: float | None, message: str | None) -> None:
        steps.append([done, total, message])

    result = await client.call("test_tool_with_progress", progress_callback=step)
    return {"steps": steps, "result": result}


async def logging(client: Client) -> Any:
    client.logs.clear()
    if not client.modern:  # there, every request of this connection says its level
        await client.api.set_logging_level("info")
    result = await client.call("test_logging_tool")
    await client.until(lambda: len(client.logs) >= 2)
    return {"logs": list(client.logs), "result": result}


async def elicit(client: Client) -> Any:
    return await client.asked("test_elicitation", {"message": "Who are you?"})


async def elicit_declined(client: Client) -> Any:
    return await client.asked("test_elicitation", {"message": "You may decline"})


async def elicit_defaults(client: Client) -> Any:
    return await client.asked("test_elicitation_sep1034_defaults")


async def elicit_choices(client: Client) -> Any:
    return await client.asked("test_elicitation_sep1330_enums")


async def elicit_url(client: Client) -> Any:
    return await client.asked("test_elicitation_url")


async def elicit_twice(client: Client) -> Any:
    return await client.asked("test_input_required_result_multi_round")


async def elicit_while_streaming(client: Client) -> Any:
    return await client.asked("test_streaming_elicitation")


async def sample(client: Client) -> Any:
    return await client.asked("test_sampling", {"prompt": "Which city?"})


async def roots(client: Client) -> Any:
    return await client.asked("test_input_required_result_list_roots")


async def ask_together(client: Client) -> Any:
    return await client.asked("test_input_required_result_multiple_inputs")


async def unable(client: Client) -> Any:
    """Another client of the same kind, which cannot be asked anything."""
    other = Client(client.spec)
    async with connected(other, able=False):
        try:
            return {"result": await other.call("test_missing_capability")}
        except REFUSED as error:
            return {"error": wire(error.error)}


async def subscribe(client: Client) -> Any:
    """Hear of a change; leave; change it again, and something else: only that is heard."""
    updated, changed = "notifications/resources/updated", "notifications/tools/list_changed"
    client.notices.clear()
    async with watching(client, resources=[WATCHED]):
        await client.call("test_trigger_resource_update")
        await client.until(lambda: bool(client.heard(updated)))
    async with watching(client, tools=True):
        await client.call("test_trigger_resource_update")
        await client.call("test_trigger_tool_change")
        await client.until(lambda: bool(client.heard(changed)))
        there = [tool["name"] for tool in (await lists(client))["tools"]]
        await client.call("test_trigger_tool_change")
        await client.until(lambda: len(client.heard(changed)) >= 2)
    heard = client.heard(updated, changed)
    return {
        "notices": [[one["method"], one.get("params", {}).get("uri")] for one in heard],
        "new tool": "test_fleeting_tool" in there,
    }


@contextlib.asynccontextmanager
async def watching(
    client: Client, *, resources: list[str] | None = None, tools: bool = False
) -> AsyncGenerator[None]:
    """Be told of changes, in the way of the era."""
    if client.modern:
        wanted = {"resource_subscriptions": resources or [], "tools_list_changed": tools}
        async with client.api.listen(**wanted):
            yield
        return
    for uri in resources or []:
        await client.api.subscribe_resource(uri)
    yield
    for uri in resources or []:
        await client.api.unsubscribe_resource(uri)


async def cancel(client: Client) -> Any:
    """Cancel a call that is known to run; the server says when its handler has ended."""
    running = anyio.Event()
    answered: list[Any] = []
    ticket = {"ticket": f"mcp {id(client)}"}

    async def step(*_: Any) -> None:
        running.set()

    async def wait() -> None:
        # An error is no result; nothing at all is better.
        with contextlib.suppress(REFUSED):
            name = "test_until_cancelled"
            answered.append(await client.call(name, ticket, progress_callback=step))

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await running.wait()
        if not SECOND:
            # 1.x cancels nothing by itself; it lets its user send the notification.
            about = t.CancelledNotificationParams(requestId=client.session._request_id - 1)
            cancelled = t.ClientNotification(t.CancelledNotification(params=about))
            await client.session.send_notification(cancelled)
        group.cancel_scope.cancel()
    ended = await client.call("test_cancelled", ticket)
    return {"server": ended, "answered": answered}


async def reconnect(client: Client) -> Any:
    return await client.call("test_reconnection")


async def ping(client: Client) -> Any:
    return wire(await client.api.send_ping())


SCENARIOS: dict[str, Callable[[Client], Awaitable[Any]]] = {
    "meet": meet,
    "list": lists,
    "call": call,
    "content": content,
    "structured": structured,
    "raw schema": raw_schema,
    "mirrored header": mirrored,
    "large": large,
    "at once": at_once,
    "tool error": tool_error,
    "unknown tool": unknown_tool,
    "bad argument": bad_argument,
    "read": read,
    "unknown resource": unknown_resource,
    "prompt": prompt,
    "prompt that asks": prompt_asks,
    "complete": complete,
    "progress": progress,
    "logging": logging,
    "elicit": elicit,
    "elicit, declined": elicit_declined,
    "elicit, defaults": elicit_defaults,
    "elicit, choices": elicit_choices,
    "elicit, url": elicit_url,
    "elicit, twice": elicit_twice,
    "elicit, streaming": elicit_while_streaming,
    "sample": sample,
    "roots": roots,
    "ask together": ask_together,
    "ask the unable": unable,
    "subscribe": subscribe,
    "cancel": cancel,
    "reconnect": reconnect,
    "ping": ping,
}


# ---------------------------------------------------------------- steps of a spec


async def step(client: Client, wanted: dict[str, Any]) -> Any:
    """A result or an error, with the questions and the progress that came before it."""
    api, do, params = client.api, wanted["do"], wanted.get("params", {})
    if do == "meet":
        return await meet(client)
    if do == "list":
        return await lists(client)
    client.questions.clear()
    steps: list[Any] = []

    async def progressed(done: float, total: float | None, message: str | None) -> None:
        steps.append([done, total, message])

    if do == "call":
        given = params.get("arguments", {})
        doing = api.call_tool(params["name"], given, progress_callback=progressed)
    elif do == "read":
        doing = api.read_resource(params["uri"])
    elif do == "prompt":
        doing = api.get_prompt(params["name"], params.get("arguments"))
    else:
        doing = api.complete(t.PromptReference(**params["ref"]), params["argument"])
    seen: dict[str, Any] = {"questions": client.questions, "steps": steps}
    try:
        seen["result"] = wire(await doing)
    except REFUSED as error:
        seen["error"] = wire(error.error)
    return seen


# ---------------------------------------------------------------- connecting


@contextlib.asynccontextmanager
async def connected(client: Client, *, able: bool = True) -> AsyncGenerator[None]:
    """A connection of the era, over the transport that the spec names; can it be asked?"""
    callbacks: dict[str, Any] = {
        "elicitation_callback": client.elicited,
        "sampling_callback": client.sampled,
        "list_roots_callback": client.rooted,
        "logging_callback": client.logged,
        "message_handler": client.told,
    }
    if not able:
        callbacks.clear()
    spec = client.spec
    if SECOND:
        mode = "auto" if client.modern else "legacy"
        facade = mcp.Client(transport(spec), mode=mode, log_level="info", **callbacks)
        async with facade as client.api:
            client.session = client.api.session
            yield
    else:
        async with transport(spec) as streams, ClientSession(*streams[:2], **callbacks) as session:
            client.api = client.session = session
            client.greeting = await session.initialize()
            yield


def transport(spec: dict[str, Any]) -> Any:
    if "http" in spec:
        return streamable_http_client(spec["http"])
    if "sse" in spec:
        return sse_client(spec["sse"])
    command, *arguments = spec["stdio"]
    return stdio_client(StdioServerParameters(command=command, args=arguments))


def report(**line: Any) -> None:
    print(json.dumps(line), flush=True)


async def main(spec: dict[str, Any]) -> None:
    client = Client(spec)
    chosen = {name: run for name, run in SCENARIOS.items() if name not in spec.get("leave_out", ())}
    if "steps" in spec:
        chosen = {one["scenario"]: partial(step, wanted=one) for one in spec["steps"]}
    async with connected(client):
        for name, scenario in chosen.items():
            try:
                with anyio.fail_after(SCENARIO_S):
                    report(scenario=name, seen=await scenario(client))
            except Exception:
                report(scenario=name, failed=traceback.format_exc())
    report(scenario="leave", seen="left")


if __name__ == "__main__":
    warnings.simplefilter("ignore", UserWarning)  # 2.x warns of what the newest revision dropped
    anyio.run(main, json.loads(sys.argv[1]))
