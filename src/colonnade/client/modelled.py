"""A call that a model wants made, answered in words that it can act on.

Rules: what a model did wrong (a tool that is none, arguments that are none, or that the server
refuses) is a result that says so, for the model; what it cannot mend (a server that is gone, a
time-out) is raised, for the program.
"""

from collections.abc import Awaitable, Callable, Mapping
from difflib import get_close_matches
from typing import Any, TypeAlias

from colonnade.client.results import ToolResult
from colonnade.errors import RemoteError
from colonnade.protocol import types as t
from colonnade.providers.calls import Call
from colonnade.providers.names import lead_back, safe_name
from colonnade.providers.schemas import without_fillers

# Names that are offered to a model that took a wrong one.
MAX_OFFERED = 5

Schemas: TypeAlias = Mapping[str, dict[str, Any]]
CallTool: TypeAlias = Callable[[str, dict[str, Any]], Awaitable[ToolResult[Any]]]


async def call_for_model(
    call: Call, known: Schemas, relist: Callable[[], Awaitable[Schemas]], call_tool: CallTool
) -> ToolResult[Any]:
    """Make a call of a model. `known` are the schemas of the tools that a list has told of."""
    name = lead_back(call.name, known)
    if name is None:
        known = await relist()
        name = lead_back(call.name, known)
    if name is None:
        return _refusal(call, _no_such(call.name, known))
    if call.problem:
        return _refusal(call, f"{call.name}: {call.problem}")
    try:
        result = await call_tool(name, without_fillers(call.arguments, known[name]))
    except RemoteError as error:
        return _refusal(call, f"{call.name} was refused: {error}")
    result.call = call
    return result


def _no_such(wanted: str, known: Schemas) -> str:
    names = [safe_name(name) for name in known]
    near = get_close_matches(wanted, names, n=MAX_OFFERED) or names[:MAX_OFFERED]
    more = f"; there is {', '.join(near)}" if near else "; there is none at all"
    return f"there is no tool {wanted!r}{more}"


def _refusal(call: Call, words: str) -> ToolResult[Any]:
    said = t.CallToolResult(content=[t.TextContent(text=words)], is_error=True)
    result: ToolResult[Any] = ToolResult(call.name, said)
    result.call = call
    return result
