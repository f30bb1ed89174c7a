"""The manifest of a server: what it offered last, as data.

Rules: data only. Names are those on the server, so that the configuration decides what is shown,
and under which name.
"""

from msgspec import Raw, Struct
from msgspec.structs import replace

from colonnade.protocol import types as t


class ServerManifest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a server offered when it was last connected.

    `is_common` is whether all callers see the same lists, `is_process` whether it is a process that
    is started here, `has_bare_output` whether its structured content needs no wrapper. A list that
    was not read is None; its items are as the server wrote them in this `revision`, where they are
    shown so.
    """

    capabilities: t.ServerCapabilities
    instructions: str | None = None
    is_common: bool = False
    is_process: bool = False
    has_bare_output: bool = True
    revision: str | None = None
    tools: list[Raw] | None = None
    prompts: list[Raw] | None = None
    resources: list[Raw] | None = None
    templates: list[Raw] | None = None

    def without_lists(self) -> "ServerManifest":
        """The same without lists and instructions."""
        return replace(
            self, instructions=None, tools=None, prompts=None, resources=None, templates=None
        )
