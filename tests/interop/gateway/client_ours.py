"""Our client as a driver of the steps of a spec.

    python client_ours.py '{"era": "2026-07-28", "http": "http://...", "steps": [...]}'

Takes the specs of drive_mcp.py that have steps, and prints the same lines.

Rules: judges nothing; what was seen is in the words of the wire.
"""

import asyncio
import json
import sys
import traceback
from typing import Any

import msgspec

from colonnade import connect
from colonnade.client.client import Client
from colonnade.errors import RemoteError
from colonnade.protocol import types as t

STEP_S = 30.0
MODEL_SAYS = "Paris, of course"
ROOT = "file:///projects/interop"
# What the user types into a field of this name; a field that is not here is left out.
TYPED = {"name": "Ada"}

questions: list[Any] = []


def wire(value: Any) -> Any:
    """A type of the protocol as it would be sent."""
    return json.loads(msgspec.json.encode(value))


def elicited(asked: t.ElicitRequestParams) -> Any:
    questions.append({"method": "elicitation/create", "params": wire(asked)})
    if asked.mode == "url":
        return True
    fields = asked.requested_schema.properties if asked.requested_schema is not None else {}
    return {name: TYPED[name] for name in fields if name in TYPED}


def sampled(asked: t.CreateMessageRequestParams) -> str:
    questions.append({"method": "sampling/createMessage", "params": wire(asked)})
    return MODEL_SAYS


def rooted() -> list[str]:
    questions.append({"method": "roots/list", "params": {}})
    return [ROOT]


async def step(client: Client, do: str, params: dict[str, Any]) -> Any:
    """A result or an error, with the questions and the progress that came before it."""
    if do == "list":
        return {
            "tools": wire(await client.list_tools()),
            "resources": wire(await client.list_resources()),
            "templates": wire(await client.list_resource_templates()),
            "prompts": wire(await client.list_prompts()),
        }
    questions.clear()
    progress: list[Any] = []

    def progressed(done: float, total: float | None, message: str | None) -> None:
        progress.append([done, total, message])

    seen: dict[str, Any] = {"questions": questions, "steps": progress}
    try:
        if do == "call":
            name, given = params["name"], params["arguments"]
            result = await client.call_tool(name, given, on_progress=progressed)
            seen["result"] = wire(result.untouched)
        elif do == "read":
            seen["result"] = wire(await client.read_resource(params["uri"]))
        elif do == "prompt":
            seen["result"] = wire(await client.get_prompt(params["name"], params["arguments"]))
        else:
            argument, prompt = params["argument"], params["ref"]["name"]
            found = await client.complete(argument["name"], argument["value"], prompt=prompt)
            seen["result"] = {"completion": wire(found)}
    except RemoteError as error:
        seen["error"] = {"code": error.code, "message": error.message, "data": error.data}
    return seen


async def main(spec: dict[str, Any]) -> None:
    async with connect(
        spec.get("http") or spec["stdio"],
        revision=spec["era"],
        on_elicit=elicited,
        on_sample=sampled,
        roots=rooted,
    ) as client:
        for wanted in spec["steps"]:
            line: dict[str, Any] = {"scenario": wanted["scenario"]}
            try:
                async with asyncio.timeout(STEP_S):
                    line["seen"] = await step(client, wanted["do"], wanted.get("params", {}))
            except Exception:  # whatever it is, the next step is played
                line["failed"] = traceback.format_exc()
            print(json.dumps(line), flush=True)
    print(json.dumps({"scenario": "leave", "seen": "left"}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
