"""One client for `scripts/replicas forms`, in a process of its own: ours, or the official SDK 1.x or 2.x.

    python form_client.py URL

Run by the Python of the SDK's environment; `mcp` is used if it is there. Each line of its input is
JSON: {"call": EFFECT} calls the tool `consent`, {"answer": EFFECT} accepts the form of this call. A
line of its output says what happened: {"asked": EFFECT}, {"effect", "text"} for a result,
{"effect", "error", "said"} for an error, where `said` is what it says about the effect: "unknown",
"none", or null; {"crash"} if the session has ended.

Rules: judges nothing. Each call and each answer is sent once.
"""

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false

import asyncio
import json
import sys
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

# A call that takes longer hangs: no outage takes as long.
WAIT_S = 60.0
ERA = "2025-11-25"


def sdk_here() -> str:
    """The first number of the official SDK's version; empty without it."""
    try:
        return version("mcp").partition(".")[0]
    except PackageNotFoundError:
        return ""


SDK = sdk_here()


def report(**line: Any) -> None:
    print(json.dumps(line), flush=True)


def said_by(error: BaseException) -> str | None:
    """What the fields of an error say about the effect of its request."""
    if getattr(error, "not_sent", False):
        return "none"
    if getattr(error, "effect_unknown", False):
        return "unknown"
    data: Any = getattr(getattr(error, "error", error), "data", None)
    if isinstance(data, dict) and "effectUnknown" in data:
        return "unknown" if data["effectUnknown"] else "none"
    return None


class Forms:
    """The forms that wait for an answer, by the effect that their message names."""

    def __init__(self) -> None:
        self._answered: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def answer(self, effect: str) -> None:
        self._answered[effect].set()

    async def ask(self, message: str) -> dict[str, Any]:
        effect = message.rpartition(" ")[2]
        report(asked=effect)
        await self._answered[effect].wait()
        return {"agreed": True}


@asynccontextmanager
async def official(url: str, forms: Forms) -> AsyncGenerator[Any]:
    """A session of the official SDK."""
    import mcp
    from mcp import types
    from mcp.client.streamable_http import streamable_http_client

    async def elicit(context: Any, params: Any) -> Any:
        return types.ElicitResult(action="accept", content=await forms.ask(params.message))

    where = streamable_http_client(url)
    if SDK == "2":
        async with mcp.Client(where, mode="legacy", elicitation_callback=elicit) as client:
            yield client
    else:
        async with (
            where as streams,
            mcp.ClientSession(*streams[:2], elicitation_callback=elicit) as session,
        ):
            await session.initialize()
            yield session


@asynccontextmanager
async def ours(url: str, forms: Forms) -> AsyncGenerator[Any]:
    """A session of Colonnade's client."""
    from colonnade import connect

    async def elicit(request: Any) -> dict[str, Any]:
        return await forms.ask(request.message)

    async with connect(url, revision=ERA, on_elicit=elicit) as client:
        yield client


async def call(client: Any, effect: str) -> None:
    """One call, and how it ended."""
    try:
        async with asyncio.timeout(WAIT_S):
            result = await client.call_tool("consent", {"effect": effect})
    except TimeoutError:
        report(effect=effect, error=f"hung for {WAIT_S:g} s", said=None, hung=True)
    except Exception as error:
        report(effect=effect, error=f"{type(error).__name__}: {error}"[:300], said=said_by(error))
    except BaseException:  # it is cancelled with its session
        report(effect=effect, error="the client has ended its session", said=None)
        raise
    else:
        text: Any = result.text if SDK == "" else result.content[0].text
        report(effect=effect, text=text)


async def main(url: str) -> None:
    forms = Forms()
    reader = asyncio.StreamReader(limit=2**20)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    open_session = official if SDK else ours
    while not reader.at_eof():
        try:
            async with open_session(url, forms) as client, asyncio.TaskGroup() as group:
                while line := await reader.readline():
                    told = json.loads(line)
                    if "call" in told:
                        group.create_task(call(client, told["call"]))
                    else:
                        forms.answer(told["answer"])
        except Exception as error:
            report(crash=f"{error!r}"[:300])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
