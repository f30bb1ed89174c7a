"""A server with all that the official conformance suite asks a server for, under the names it uses,
and the little more that the official clients need to show all they can (tests/interop).

    .venv/bin/python tests/conformance/everything_server.py [PORT]     # no port: any; it is printed
    .venv/bin/python tests/conformance/everything_server.py stdio

`COLONNADE_STORE` is the path of an SQLite file or a `redis://` URL for several processes that serve the
same clients; without it the state is in memory.

Rules: written with the public decorators alone, as any author would write it: what the suite finds
here is what Colonnade gives everybody. Nothing looks at the revision of its caller. What one call leaves for another is in the
store, since that one may be served by another process.
"""

import asyncio
import base64
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from colonnade import (
    Ask,
    Audio,
    BlockingContext,
    Context,
    Fault,
    FaultKind,
    File,
    Handler,
    Image,
    Message,
    RequestContext,
    Roots,
    Sample,
    Server,
    ToolError,
)
from colonnade.ports import Store
from colonnade.protocol.types import (
    ElicitSchema,
    EnumItems,
    EnumOption,
    PrimitiveSchema,
    ProtocolType,
)
from colonnade.store.sqlite import SqliteStore
from colonnade.transport.http_server.runner import HttpRunner

# A picture of one red pixel, and a sound without a single sample.
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
SILENCE = base64.b64decode("UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQAAAAA=")
# The suite looks whether messages come one by one, not all with the result.
STEP_S = 0.05
# A cancellation that has not come by then is lost.
CANCELLED_S = 10.0
# How long a job runs before it fails.
FAILING_S = 1.0
# How long the store has what a call left there.
KEPT_S = 3600.0
WATCHED = "test://watched-resource"


def open_store(url: str) -> Store | None:
    """The store of a URL; None without one."""
    if "://" in url:
        from colonnade.store.redis import RedisStore

        return RedisStore(url)
    return SqliteStore(url) if url else None


store = open_store(os.environ.get("COLONNADE_STORE", ""))


@asynccontextmanager
async def opened(server: Server) -> AsyncGenerator[None]:
    yield
    if store is not None:
        await store.close()


server = Server(
    "colonnade-everything",
    version="1.0",
    instructions="Everything that the conformance suite calls.",
    store=store,
    # No secret, since it is only for tests: processes that share a store share their keys.
    keys=[b"everything in one key of 32 byte"] if store else (),
    lifespan=opened,
)


# ---------------------------------------------------------------- tools: what they return


@server.tool
def test_simple_text() -> str:
    """Answers with plain text."""
    return "This is a simple text response for testing."


@server.tool
def test_image_content() -> Image:
    """Answers with a picture."""
    return Image(PIXEL, format="png")


@server.tool
def test_audio_content() -> Audio:
    """Answers with a sound."""
    return Audio(SILENCE, format="wav")


@server.tool
def test_embedded_resource() -> File:
    """Answers with a resource and its contents."""
    return File("This is an embedded resource content.", uri="test://embedded-resource")


@server.tool
def test_multiple_content_types() -> list[str | Image | File]:
    """Answers with text, a picture and a resource at once."""
    record = '{"test": "data", "value": 123}'
    return [
        "Multiple content types test:",
        Image(PIXEL, format="png"),
        File(record, uri="test://mixed-content-resource", mime_type="application/json"),
    ]


@dataclass
class Reading:
    place: str
    celsius: float


@server.tool
def test_structured_content(place: str) -> Reading:
    """Answers with an object of a known shape."""
    return Reading(place, 21.5)


@server.tool
def test_structured_list() -> list[int]:
    """Answers with a list, which not every revision can send as it is."""
    return [1, 2, 3]


@server.tool
def test_error_handling() -> str:
    """Always fails, in words that a model can read."""
    raise ToolError("This tool intentionally returns an error for testing")


# ---------------------------------------------------------------- tools: while they run


@server.tool
async def test_tool_with_logging(ctx: Context) -> str:
    """Sends three log messages on its way."""
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.info(line)
        await asyncio.sleep(STEP_S)
    return "Tool with logging executed successfully"


@server.tool
async def test_logging_tool(ctx: Context) -> str:
    """Logs at every level; only what the caller wants to hear is sent."""
    await ctx.debug("a detail")
    await ctx.info("an event")
    await ctx.error("a failure")
    return "Logged"


@server.tool
async def test_tool_with_progress(ctx: Context) -> str:
    """Reports progress three times."""
    for done in (0, 50, 100):
        await ctx.progress(done, 100, f"{done} of 100")
        await asyncio.sleep(STEP_S)
    return "Progress was reported"


@server.tool
async def test_reconnection(ctx: Context) -> str:
    """Lets the connection go before it is done; the client comes back for the result."""
    await ctx.hang_up()
    await asyncio.sleep(2 * STEP_S)
    return "Reconnection test completed successfully"


@server.tool
async def test_until_cancelled(ticket: str, ctx: Context) -> str:
    """Says that it runs, and then runs until its caller cancels it."""
    await ctx.progress(0, message="Running")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await server.store.put(ctx.principal, f"cancelled {ticket}", b"", KEPT_S)
        raise
    return "Nobody cancelled"


@server.tool
async def test_cancelled(ticket: str, ctx: Context) -> str:
    """Waits until the call with this ticket has been cancelled."""
    async with asyncio.timeout(CANCELLED_S):
        while await server.store.get(ctx.principal, f"cancelled {ticket}") is None:
            await asyncio.sleep(STEP_S)
    return "Cancelled"


# ---------------------------------------------------------------- tools: what they ask


@server.tool
async def test_sampling(prompt: str, ctx: Context) -> str:
    """Lets the client's model answer a prompt."""
    reply = await ctx.sample(prompt, max_tokens=100)
    return f"LLM response: {reply.text}"


@dataclass
class Account:
    username: str
    email: str


@server.tool
def test_elicitation(message: str, ctx: BlockingContext) -> str:
    """Asks the user who they are."""
    account = ctx.elicit(message, Account)
    return f"User response: {account.username}, {account.email}"


@server.tool
async def test_elicitation_url(ctx: Context) -> str:
    """Sends the user to an address."""
    await ctx.elicit_url("Please sign in", "https://example.com/sign-in")
    return "The user agreed to go"


@dataclass
class Profile:
    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


@server.tool
async def test_elicitation_sep1034_defaults(
    profile: Annotated[Profile, Ask("Please review your profile")],
) -> str:
    """Asks with a form whose every field has a default."""
    return f"Elicitation completed: {profile}"


def titled(*names: str) -> list[EnumOption]:
    """Choices with words to show: `value1` is shown as the first of these."""
    return [EnumOption(const=f"value{nth}", title=name) for nth, name in enumerate(names, start=1)]


# Written out, as no type says that an Enum is to be sent in the old way of giving it titles.
CHOICES = ElicitSchema(
    properties={
        "untitledSingle": PrimitiveSchema(type="string", enum=["option1", "option2", "option3"]),
        "titledSingle": PrimitiveSchema(type="string", one_of=titled("First", "Second", "Third")),
        "legacyEnum": PrimitiveSchema(
            type="string", enum=["opt1", "opt2", "opt3"], enum_names=["One", "Two", "Three"]
        ),
        "untitledMulti": PrimitiveSchema(
            type="array", items=EnumItems(type="string", enum=["option1", "option2", "option3"])
        ),
        "titledMulti": PrimitiveSchema(
            type="array", items=EnumItems(any_of=titled("First", "Second", "Third"))
        ),
    }
)


@server.tool
async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Asks with a form of every kind of choice."""
    chosen = await ctx.elicit_form("Please choose", CHOICES)
    return f"Elicitation completed: {chosen}"


@server.tool
async def test_missing_capability(ctx: Context) -> str:
    """Needs a client that has a model."""
    reply = await ctx.sample("Say something", max_tokens=10)
    return reply.text


@server.tool
async def test_streaming_elicitation(ctx: Context) -> str:
    """Asks while its answer may already be streaming."""
    await ctx.progress(1, 2)
    return "Confirmed" if await ctx.elicit("Shall I go on?", bool) else "Not confirmed"


# ---------------------------------------------------------------- tools: questions with names


@dataclass
class Person:
    name: str


@dataclass
class Confirmation:
    ok: bool


@dataclass
class Colour:
    color: str


@dataclass
class Consent:
    confirm: bool


@dataclass
class SignedConsent:
    name: str
    confirm: bool


CAPITAL = "What is the capital of France?"


@server.tool
async def test_input_required_result_elicitation(ctx: Context) -> str:
    """Asks for a name, and greets."""
    person = await ctx.elicit("What is your name?", Person, key="user_name")
    return f"Hello, {person.name}!"


@server.tool
async def test_input_required_result_sampling(ctx: Context) -> str:
    """Asks the client's model."""
    reply = await ctx.sample(CAPITAL, max_tokens=100, key="capital_question")
    return f"The model says: {reply.text}"


@server.tool
async def test_input_required_result_list_roots(ctx: Context) -> str:
    """Asks for the client's folders."""
    roots = await ctx.roots(key="client_roots")
    return f"Folders: {', '.join(root.uri for root in roots)}"


@server.tool
async def test_input_required_result_request_state(ctx: Context) -> str:
    """Remembers, through the client, what it did before it asked."""
    state = await ctx.once("state", lambda: "state-ok")
    await ctx.elicit("Please confirm", Confirmation, key="confirm")
    return state


@server.tool
async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Asks the user, the model and the client in one round."""
    person, reply, roots = await ctx.ask(
        Ask("What is your name?", Person, key="user_name"),
        Sample("Write a greeting", max_tokens=50, key="greeting"),
        Roots(key="client_roots"),
    )
    return f"{reply.text} to {person.name} with {len(roots)} folders"


@server.tool
async def test_input_required_result_multi_round(ctx: Context) -> str:
    """Asks twice; the second question needs the first answer."""
    person = await ctx.elicit("Step 1: What is your name?", Person, key="step1")
    words = f"Step 2: What is your favorite color, {person.name}?"
    colour = await ctx.elicit(words, Colour, key="step2")
    return f"{person.name} likes {colour.color}"


@server.tool
async def test_input_required_result_tampered_state(ctx: Context) -> str:
    """Asks, and goes on only with the state that it gave."""
    await ctx.elicit("Please confirm", Confirmation, key="confirm")
    return "The state is whole"


@server.tool
async def test_input_required_result_capabilities(
    person: Annotated[Person | None, Ask("What is your name?", key="user_name")],
    capital: Annotated[str | None, Sample(CAPITAL, max_tokens=100, key="capital_question")],
) -> str:
    """Asks only what this client can answer."""
    return f"{person.name if person else 'Nobody'} hears of {capital or 'nothing'}"


# ---------------------------------------------------------------- tools: their schemas


@server.tool
def test_x_mcp_header(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})],
) -> str:
    """Takes an argument that clients mirror in a header."""
    return f"Region: {region}"


CONTACT_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


@server.tool(input_schema=CONTACT_SCHEMA)
def json_schema_2020_12_tool(**contact: Any) -> str:
    """Takes arguments of a schema that is written out, with every keyword of its dialect."""
    return f"Contact: {contact}"


# ---------------------------------------------------------------- tools: what changes


def test_fleeting_tool() -> str:
    """Comes and goes."""
    return "Still here"


def test_fleeting_prompt() -> str:
    """Comes and goes."""
    return "Still here"


async def is_there(name: str) -> bool:
    """Whether what comes and goes is there now: that is in the store, for all processes."""
    return await server.store.get("", f"fleeting {name}") is not None


async def change(name: str) -> None:
    """Let it come, or go again."""
    if not await server.store.add("", f"fleeting {name}", b"", KEPT_S):
        await server.store.delete("", f"fleeting {name}")


async def refresh_tools() -> None:
    """Register the tool of this process, or remove it; clients that listen hear of it."""
    name = test_fleeting_tool.__name__
    there = await is_there(name)
    if there and name not in server.tools:
        server.tool(test_fleeting_tool)
    elif not there and name in server.tools:
        server.tools.remove(name)


async def refresh_prompts() -> None:
    """Register the prompt of this process, or remove it; clients that listen hear of it."""
    name = test_fleeting_prompt.__name__
    there = await is_there(name)
    if there and name not in server.prompts:
        server.prompt(test_fleeting_prompt)
    elif not there and name in server.prompts:
        server.prompts.remove(name)


@server.middleware
async def fresh_lists(request: RequestContext, call_next: Handler) -> ProtocolType:
    """Another process may have changed what this one lists."""
    if request.method == "tools/list":
        await refresh_tools()
    elif request.method == "prompts/list":
        await refresh_prompts()
    return await call_next(request)


@server.tool
async def test_trigger_tool_change() -> str:
    """Adds a tool, or takes it away again; clients that listen hear of it."""
    await refresh_tools()  # without this there may be nothing to change here
    await change(test_fleeting_tool.__name__)
    await refresh_tools()
    return "The tools have changed"


@server.tool
async def test_trigger_prompt_change() -> str:
    """Adds a prompt, or takes it away again; clients that listen hear of it."""
    await refresh_prompts()  # without this there may be nothing to change here
    await change(test_fleeting_prompt.__name__)
    await refresh_prompts()
    return "The prompts have changed"


@server.tool
def test_trigger_resource_update() -> str:
    """Says that the watched resource has changed; clients that subscribed to it hear of it."""
    server.updated(WATCHED)
    return "The watched resource has changed"


# ---------------------------------------------------------------- tools: tasks


@server.tool
def greet(name: str) -> str:
    """Greets; never a task."""
    return f"Hello, {name}!"


@server.tool(task=True)
async def slow_compute(seconds: float, label: str = "") -> str:
    """Takes its time."""
    await asyncio.sleep(seconds)
    return f"Computed {label} in {seconds:g} s"


@server.tool(task="required")
async def failing_job() -> str:
    """Fails after a while."""
    await asyncio.sleep(FAILING_S)
    raise ToolError("The job failed, as it always does")


@server.tool(task=True)
async def protocol_error_job() -> str:
    """Ends with a JSON-RPC error."""
    raise Fault(FaultKind.INTERNAL, "The job ended with a protocol error")


@server.tool(task=True)
async def confirm_delete(filename: str, ctx: Context) -> str:
    """Asks before it deletes."""
    answer = await ctx.elicit(f"Delete {filename}?", Consent)
    return f"{'Deleted' if answer.confirm else 'Kept'} {filename}"


@server.tool(task=True)
async def multi_input(ctx: Context) -> str:
    """Asks two things at once."""
    one, two = await ctx.ask(Ask("Who are you?", SignedConsent), Ask("Go on?", SignedConsent))
    return f"{one.name} and {two.name}"


@server.tool(task="required")
async def test_tool_with_task(
    person: Annotated[Person, Ask("What is your name?", key="user_name")],
) -> str:
    """Asks for a name, and then greets in a task."""
    return f"Hello, {person.name}!"


# ---------------------------------------------------------------- resources


@server.resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """Text that never changes."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """A picture that never changes."""
    return PIXEL


@server.resource(WATCHED, mime_type="text/plain")
def watched_resource() -> str:
    """Text that clients subscribe to."""
    return "Watched resource content"


@server.resource("test://template/{id}/data", mime_type="application/json")
def template_data(id: str) -> dict[str, Any]:
    """A record by its id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


# ---------------------------------------------------------------- prompts


@server.prompt
def test_simple_prompt() -> str:
    """Says one fixed thing."""
    return "This is a simple prompt for testing."


@server.prompt
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """Says what it was given.

    Args:
        arg1: The first word.
        arg2: The second word.
    """
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.completion(test_prompt_with_arguments, "arg1")
def first_words(typed: str) -> list[str]:
    return [word for word in ("testable", "tested", "tester", "paris") if word.startswith(typed)]


@server.prompt
def test_prompt_with_embedded_resource(
    uri: Annotated[str, Field(alias="resourceUri", description="What to embed.")],
) -> list[Message]:
    """Shows a resource, and asks about it."""
    return [
        Message(File("Embedded resource content for testing.", uri=uri)),
        Message("Please process the embedded resource above."),
    ]


@server.prompt
def test_prompt_with_image() -> list[Message]:
    """Shows a picture, and asks about it."""
    return [
        Message(Image(PIXEL, format="png")),
        Message("Please analyze the image above."),
    ]


@dataclass
class Background:
    context: str


@server.prompt
async def test_input_required_result_prompt(ctx: Context) -> str:
    """Asks what the prompt should be about."""
    about = await ctx.elicit("What context should I use?", Background, key="user_context")
    return f"Use this context: {about.context}"


def announce(site: HttpRunner) -> None:
    """Say where it is, for whoever started it with port 0."""
    print(site.url, flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["stdio"]:
        server.run()
    else:
        server.run("http", port=int(sys.argv[1]) if sys.argv[1:] else 0, started=announce)
