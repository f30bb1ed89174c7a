"""The manifest of a server: what it offered last, as data.

Rules: data only. Names are those on the server, so that the configuration decides what is shown,
and under which name.
"""

from msgspec import Struct
from msgspec.structs import replace

from colonnade.protocol import types as t


class ServerManifest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a server offered when it was last connected.

    `is_common` is whether all callers see the same lists, `is_process` whether it is a process that
    is started here, `has_bare_output` whether its structured content needs no wrapper. A list that
    was not read is None.
    """

    capabilities: t.ServerCapabilities
    instructions: str | None = None
    is_common: bool = False
    is_process: bool = False
    has_bare_output: bool = True
    tools: list[t.Tool] | None = None
    prompts: list[t.Prompt] | None = None
    resources: list[t.Resource] | None = None
    templates: list[t.ResourceTemplate] | None = None

    def without_lists(self) -> "ServerManifest":
        """The same without lists and instructions."""
        return replace(
            self, instructions=None, tools=None, prompts=None, resources=None, templates=None
        )
