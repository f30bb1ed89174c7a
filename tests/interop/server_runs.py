"""A run of our client against a third-party server: it lists all, calls all, and keeps count.

Rules: every tool that is listed is called, or named with the reason why not. Every wait ends. A
call that fails does not end the visit; it is a failure of it.
"""

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from unittest import mock

from colonnade import connect
from colonnade.client.client import Client
from colonnade.client.results import ToolResult
from colonnade.protocol import types as t
from colonnade.protocol.revision import Revision
from interop.third_party_servers import ThirdPartyServer, reached

# A call takes milliseconds; these end what hangs, on the slowest machine.
CALL_S = 30.0
RUN_S = 240.0
# What was said before an answer is heard after it, though soon.
NOTIFICATION_S = 10.0
MODEL_SAYS = "Paris, of course"
# In our environment, and nobody else's business.
SECRET = "COLONNADE_INTEROP_SECRET"


@dataclass
class ServerRun:
    """One client at one server: what it called, what it heard, what failed."""

    server: ThirdPartyServer
    transport: str
    revision: Revision
    folder: Path
    spoken: str = "-"
    listed: dict[str, int] = field(default_factory=dict[str, int])
    # The scenes that were played, where there are such.
    seen: list[str] = field(default_factory=list[str])
    calls: int = 0
    called: set[str] = field(default_factory=set[str])
    left_out: dict[str, str] = field(default_factory=dict[str, str])
    failures: dict[str, str] = field(default_factory=dict[str, str])
    # The words of each question that the server asked, and of what it logged.
    asked: list[str] = field(default_factory=list[str])
    logged: list[Any] = field(default_factory=list[Any])
    stirred: asyncio.Event = field(default_factory=asyncio.Event)
    client: Client = field(init=False)

    def __str__(self) -> str:
        return f"{self.server}, {self.transport}, {self.revision.date}"

    async def check(self, what: str, step: Awaitable[Any]) -> Any:
        """What came of a step; where it raised, None, and a failure."""
        try:
            return await asyncio.wait_for(step, CALL_S)
        except Exception as error:  # whatever it is, the visit goes on and names it
            self.failures[what] = f"{type(error).__name__}: {error}"
            return None

    async def attempt(self, what: str, call: Awaitable[Any]) -> Any:
        """The same for a step that is one call."""
        self.calls += 1
        return await self.check(what, call)

    async def call(
        self, tool: str, arguments: Mapping[str, Any] | None = None, **more: Any
    ) -> ToolResult[Any]:
        """Call a tool; raises what the client raises, and for an answer that is an error."""
        self.calls += 1
        self.called.add(tool)
        result = await self.client.call_tool(tool, arguments, **more)
        assert not result.is_error, f"{tool} says: {result.text}"
        return result

    def stir(self) -> None:
        """Something was heard on the side."""
        self.stirred.set()

    def log(self, said: t.LoggingMessageNotificationParams) -> None:
        self.logged.append(said.data)
        self.stir()

    async def heard(self, told: Callable[[], bool], what: str) -> None:
        """Wait for what is heard on the side. Raises where it is not."""
        with suppress(TimeoutError):
            async with asyncio.timeout(NOTIFICATION_S):
                while not told():
                    self.stirred.clear()
                    await self.stirred.wait()
        assert told(), f"{what} was never heard"

    # ------------------------------------------------------------ what the server asks

    def elicited(self, asked: t.ElicitRequestParams) -> Any:
        """The user agrees to go, or types what fits each field that must be there."""
        self.asked.append(asked.message)
        if asked.requested_schema is None:
            return True
        return {"name": "Ada"} if "name" in asked.requested_schema.properties else {}

    def sampled(self, asked: t.CreateMessageRequestParams) -> str:
        self.asked.append("a model")
        return MODEL_SAYS

    def rooted(self) -> list[Path]:
        self.asked.append("roots")
        return [self.folder]


Plan: TypeAlias = Callable[[ServerRun], Awaitable[None]]


async def run_plan(
    server: ThirdPartyServer, transport: str, revision: Revision, plan: Plan
) -> ServerRun:
    """Go there, do what is planned, and come back."""
    with tempfile.TemporaryDirectory() as name, mock.patch.dict(os.environ, {SECRET: "leaked"}):
        run = ServerRun(server, transport, revision, Path(name).resolve())
        try:
            with reached(server, transport, run.folder) as target:
                await asyncio.wait_for(_inside(run, target, plan), RUN_S)
        except Exception as error:  # it was not reached, or not left
            run.failures["the visit"] = f"{type(error).__name__}: {error}"
        return run


async def _inside(run: ServerRun, target: str | list[str], plan: Plan) -> None:
    stdio = not isinstance(target, str)
    async with connect(
        target,
        # The newest is found out, as it is for everybody; an older one is asked for.
        revision=None if run.revision is run.server.speaks[0] else run.revision.date,
        timeout_s=CALL_S,
        on_elicit=run.elicited,
        on_sample=run.sampled,
        on_log=run.log,
        roots=run.rooted,
        env={"MEMORY_FILE_PATH": str(run.folder / "memory.json")} if stdio else None,
        cwd=run.folder if stdio else None,
        server_name=run.server.name,
    ) as client:
        run.client, run.spoken = client, client.revision
        assert client.revision == run.revision.date, f"it speaks {client.revision}"
        await plan(run)


# ---------------------------------------------------------------- everything that there is


async def list_all(run: ServerRun) -> None:
    """Count what is offered, page by page."""
    client, offers = run.client, run.client.capabilities
    listings: list[tuple[str, bool, Callable[[], Awaitable[list[Any]]]]] = [
        ("tools", offers.tools is not None, client.list_tools),
        ("resources", offers.resources is not None, client.list_resources),
        ("templates", offers.resources is not None, client.list_resource_templates),
        ("prompts", offers.prompts is not None, client.list_prompts),
    ]
    for what, offered, listing in listings:
        if offered:
            found = await run.attempt(f"list {what}", listing())
            run.listed[what] = len(found or [])


async def call_all(
    run: ServerRun,
    table: Mapping[str, Mapping[str, Any]],
    wanted: Mapping[str, str],
    network: Iterable[str] = (),
) -> None:
    """Call every tool in the order of the table, then those that it does not have.

    `wanted` has words that are in what a tool says; `network` those that need one.
    """
    tools = {tool.name: tool for tool in await run.client.list_tools()}
    for name, tool in tools.items():
        if tool.execution is not None and tool.execution.task_support == "required":
            run.left_out[name] = "it only runs as a task"
        elif name in network:
            run.left_out[name] = "it needs a network"
    for name in [*table, *(name for name in tools if name not in table)]:
        if name in run.left_out:
            continue
        if name not in tools:
            run.failures[name] = "it is not listed any more"
            continue
        given = table[name] if name in table else made_up(tools[name].input_schema)
        await run.check(name, _called(run, name, given, wanted.get(name, "")))


async def _called(run: ServerRun, name: str, arguments: Mapping[str, Any], wanted: str) -> None:
    result = await run.call(name, arguments)
    assert result.content, "it answered nothing"
    shown = result.text
    assert wanted in shown, f"{wanted!r} is not in {shown!r}"
    result.data  # noqa: B018  which is checked against the schema that the tool has given


async def read_all(run: ServerRun, variables: Mapping[str, str]) -> None:
    """Read every resource, and one of each template."""
    if run.client.capabilities.resources is None:
        return
    uris = [one.uri for one in await run.client.list_resources()]
    templates = await run.client.list_resource_templates()
    uris += [template.uri_template.format(**variables) for template in templates]
    for uri in uris:
        read = await run.attempt(f"read {uri}", run.client.read_resource(uri))
        if read is not None and not read.contents:
            run.failures[f"read {uri}"] = "nothing is in it"


async def get_all(run: ServerRun, arguments: Mapping[str, str]) -> None:
    """Get every prompt."""
    if run.client.capabilities.prompts is None:
        return
    for prompt in await run.client.list_prompts():
        names = [one.name for one in prompt.arguments or ()]
        given = {name: arguments[name] for name in names if name in arguments}
        got = await run.attempt(
            f"prompt {prompt.name}", run.client.get_prompt(prompt.name, given or None)
        )
        if got is not None and not got.messages:
            run.failures[f"prompt {prompt.name}"] = "no message is in it"


async def complete_all(run: ServerRun) -> None:
    """Complete every argument of every prompt, and every variable of every template."""
    client = run.client
    if client.capabilities.completions is None:
        return
    for prompt in await client.list_prompts():
        for one in prompt.arguments or ():
            step = client.complete(one.name, "", prompt=prompt.name)
            await run.attempt(f"complete {prompt.name} {one.name}", step)
    for template in await client.list_resource_templates():
        uri = template.uri_template
        for name in [part.partition("}")[0] for part in uri.split("{")[1:]]:
            step = client.complete(name, "", template=uri)
            await run.attempt(f"complete {uri} {name}", step)


def made_up(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments that fit a schema: those that must be there, as plain as they can be."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    return {name: _value(properties.get(name, {})) for name in schema.get("required", ())}


def _value(schema: Mapping[str, Any]) -> Any:
    for fixed in ("const", "default"):
        if fixed in schema:
            return schema[fixed]
    for choices in ("enum", "examples"):
        if schema.get(choices):
            return schema[choices][0]
    match schema.get("type"):
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case "array":
            return [_value(schema.get("items", {}))]
        case "object":
            return made_up(schema)
        case _:
            return "text"
