"""One client for `scripts/replicas streams`, in a process of its own: ours, or the official SDK 1.x or 2.x.

    python stream_client.py '{"http": "http://…", "era": "2025-11-25", "calls": ["e1", "e2"]}'
    python stream_client.py '{"http": "http://…", "era": "2025-11-25", "follows": "file:///x"}'

Run by the Python of the SDK's environment; `mcp` is used if it is there. With `calls`, each of them is
sent at once in one session, again and again until the input ends, and a line of JSON says how it ended:
{"effect", "text"} or {"effect", "error", "said"}, where `said` is what the error says about the effect:
"unknown", "none", or null. The official clients end their session if the connection of a POST is lost
before its response begins: then "crashed" is set, and there is another session. With `follows`, a line says that it listens, and one each that something has
changed: {"changed": METHOD, "uri"}.

Rules: judges nothing. Each call is sent once.
"""

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false

import asyncio
import itertools
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any


def sdk_here() -> str:
    """The first number of the official SDK's version; empty without it."""
    try:
        return version("mcp").partition(".")[0]
    except PackageNotFoundError:
        return ""


SDK = sdk_here()

# A call that takes longer hangs: its tool takes two seconds.
WAIT_S = 45.0
MODERN = "2026-07-28"


def report(**line: Any) -> None:
    print(json.dumps(line), flush=True)


def said_by(error: BaseException) -> str | None:
    """What the fields of an error say about the effect of its request."""
    if getattr(error, "not_sent", False):
        return "none"
    if getattr(error, "effect_unknown", False):
        return "unknown"
    shown: Any = getattr(error, "error", error)
    data: Any = getattr(shown, "data", None)
    if isinstance(data, dict) and "effectUnknown" in data:
        return "unknown" if data["effectUnknown"] else "none"
    return None


async def ended_input() -> None:
    """Wait until the input ends."""
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    await reader.read()


def changed(message: Any) -> None:
    """Report a notification of the official SDKs."""
    told: Any = message.model_dump(by_alias=True, mode="json") if message is not None else {}
    if isinstance(told, dict) and str(told.get("method", "")).endswith("ed"):
        report(changed=told["method"], uri=(told.get("params") or {}).get("uri"))


@asynccontextmanager
async def official(spec: dict[str, Any]) -> AsyncGenerator[Any]:
    """A session of the official SDK."""
    import mcp
    from mcp.client.streamable_http import streamable_http_client

    async def told(message: Any) -> None:
        if not isinstance(message, Exception):
            changed(message)

    where = streamable_http_client(spec["http"])
    if SDK == "2":
        async with mcp.Client(where, mode="legacy", message_handler=told) as client:
            yield client
    else:
        async with (
            where as streams,
            mcp.ClientSession(*streams[:2], message_handler=told) as session,
        ):
            await session.initialize()
            yield session


@asynccontextmanager
async def ours(spec: dict[str, Any]) -> AsyncGenerator[Any]:
    """A session of Colonnade's client."""
    from colonnade import connect

    async with connect(spec["http"], revision=spec["era"]) as client:
        yield client


async def progressed(*_: Any) -> None:
    """Progress is not looked at."""


async def call(client: Any, tool: str, effect: str) -> None:
    """One call, and how it ended."""
    try:
        async with asyncio.timeout(WAIT_S):
            # With a callback it has a progress token, so that there are events.
            option = "progress_callback" if SDK else "on_progress"
            result = await client.call_tool(tool, {"effect": effect}, **{option: progressed})
    except TimeoutError:
        report(effect=effect, error=f"hung for {WAIT_S:g} s", said=None, hung=True)
    except Exception as error:
        report(effect=effect, error=f"{type(error).__name__}: {error}"[:300], said=said_by(error))
    except BaseException:  # it is cancelled with its session
        report(effect=effect, error="the client has ended its session", said=None, crashed=True)
        raise
    else:
        text: Any = result.text if SDK == "" else result.content[0].text
        report(effect=effect, text=text)


async def follow(client: Any, spec: dict[str, Any]) -> None:
    """Report what changes, until the input ends."""
    uri = spec["follows"]
    if SDK:
        subscribed: Any = uri
        if SDK == "1":
            from pydantic import AnyUrl

            subscribed = AnyUrl(uri)
        await client.subscribe_resource(subscribed)
        report(listens=True)
        await ended_input()
        return
    methods = {"resource": "notifications/resources/updated"}
    async with client.listen(tools=True, resources=[uri]) as changes:
        report(listens=True)
        ending = asyncio.ensure_future(ended_input())

        async def report_all() -> None:
            async for change in changes:
                kind = methods.get(change.kind, f"notifications/{change.kind}/list_changed")
                report(changed=kind, uri=change.uri)
            report(ended=True)

        reporting = asyncio.ensure_future(report_all())
        await asyncio.wait({ending, reporting}, return_when=asyncio.FIRST_COMPLETED)
        if reporting.done():
            reporting.result()
        await ending
        reporting.cancel()


async def main(spec: dict[str, Any]) -> None:
    open_session = official if SDK else ours
    if "follows" in spec:
        async with open_session(spec) as client:
            await follow(client, spec)
        return
    ending = asyncio.ensure_future(ended_input())
    tools: list[str] = spec["tools"]
    numbers = itertools.count()

    async def calls(client: Any, name: str, tool: str) -> None:
        while not ending.done():
            await call(client, tool, f"{name}/{next(numbers)}")

    while not ending.done():
        try:
            async with open_session(spec) as client, asyncio.TaskGroup() as group:
                for number, name in enumerate(spec["calls"]):
                    group.create_task(calls(client, name, tools[number % len(tools)]))
        except Exception as error:
            report(crash=f"{error!r}"[:300])


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
