"""Where the log of a crash is: shown, for a server that was started here.

The result of a tool that crashed has an id and nothing else; the traceback with that id is in the
log of the server, which for a child is its standard error. Nothing else reads that, so it goes to
our own log, which is for the operator of this program.

Rules: nothing of it goes into a result, which may be another caller's or a model's. Only the lines
from the id on are taken.
"""

import logging
import re
from typing import TYPE_CHECKING

from colonnade.protocol import types as t

if TYPE_CHECKING:  # a client of a URL never pays for children
    from colonnade.transport.child import Child

log: logging.Logger = logging.getLogger("colonnade.client")

# How the result of a crash ends: `forecast failed (id 4f2a91)`.
CRASH = re.compile(r"failed \(id ([0-9a-f]{6})\)$")


def crash_id(result: t.CallToolResult) -> str | None:
    """The id of a crash; None where the result is of anything else."""
    if len(result.content) != 1 or not isinstance(result.content[0], t.TextContent):
        return None
    found = CRASH.search(result.content[0].text)
    return found[1] if found else None


def show_crash(child: "Child | None", result: t.CallToolResult) -> None:
    """Log what a child wrote of the crash that a result is about, if it is about one."""
    id = crash_id(result) if child is not None else None
    if child is None or id is None:
        return
    lines = child.lines_since(id)
    if lines:
        log.warning("%s logged:\n    %s", child.whom, "\n    ".join(lines))
