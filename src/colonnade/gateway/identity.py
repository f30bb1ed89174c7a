"""What a gateway says of itself: its capabilities, and the instructions of its servers.

Rules: a capability is declared if a server has it, or if a server is not known yet: clients of
revisions with a handshake read the capabilities once. Instructions are text for a model from each
server; they are gathered only if the operator says so, and bounded.
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from colonnade.protocol import types as t
from colonnade.protocol.negotiation import Callers
from colonnade.text import clean

# A page of text for each server, and four pages for all of them: a model reads it with each
# conversation.
MAX_SERVER_INSTRUCTIONS = 2048
MAX_INSTRUCTIONS = 8192
# The setting that gathers the instructions of the servers.
GATHERED = "gathered"


def gateway_capabilities(
    servers: Iterable[t.ServerCapabilities | None],
) -> t.ServerCapabilities:
    """The capabilities of a gateway to servers with these; None for one that is not known yet."""
    known = list(servers)
    is_open = any(one is None for one in known)
    found = [one for one in known if one is not None]

    def has(kind: str) -> bool:
        return is_open or any(getattr(one, kind) is not None for one in found)

    return t.ServerCapabilities(
        tools=t.ToolsCapability(list_changed=True) if has("tools") else None,
        resources=t.ResourcesCapability(list_changed=True, subscribe=True)
        if has("resources")
        else None,
        prompts=t.PromptsCapability(list_changed=True) if has("prompts") else None,
        # In 2024-11-05 a server has completions without declaring them.
        completions={} if has("completions") or has("prompts") else None,
        logging={},
        # Each generation of tasks if a server has it: they are relayed, not translated. The client
        # of a call that is not known yet is told what may be.
        tasks=CORE_TASKS if is_open or any(one.tasks is not None for one in found) else None,
        extensions={t.TASKS_EXTENSION_ID: {}}
        if is_open or any(t.TASKS_EXTENSION_ID in (one.extensions or ()) for one in found)
        else None,
    )


CORE_TASKS = t.ServerTasksCapability(
    listing={}, cancel={}, requests=t.ServerTaskRequests(tools=t.TasksOfTools(call={}))
)


def for_callers(capabilities: t.ServerCapabilities, callers: Callers) -> t.ServerCapabilities:
    """The capabilities that these callers get: those that are not distinguished get no list of
    tasks (R0580)."""
    if capabilities.tasks is None or callers is not Callers.ANONYMOUS:
        return capabilities
    return replace(capabilities, tasks=replace(capabilities.tasks, listing=None))


def gathered_instructions(own: str | None, servers: Mapping[str, str]) -> str | None:
    """The instructions of all servers, each below its key; `own` for what the operator wrote."""
    if own != GATHERED:
        return own
    parts: list[str] = []
    left = MAX_INSTRUCTIONS
    for key, words in servers.items():
        text = clean(words, lines=True).strip()[:MAX_SERVER_INSTRUCTIONS]
        part = f"## {key}\n\n{text}"
        if len(part) > left:
            break
        left -= len(part) + 2
        parts.append(part)
    return "\n\n".join(parts) or None
