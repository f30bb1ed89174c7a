"""The capabilities of a server: computed from what is registered, and what was declared.

Rules: a capability is never set by hand, so that it cannot differ from the registry. Clients of
revisions with a handshake read the capabilities once: a kind that is registered first while they
are connected is logged.
"""

import logging
from collections.abc import Iterable
from typing import Literal, get_args

from colonnade.errors import InvalidArgument
from colonnade.protocol import types as t
from colonnade.server.registry import ServerRegistry

log: logging.Logger = logging.getLogger("colonnade.server")

Kind = Literal["tools", "resources", "prompts", "completions"]


class DeclaredKinds:
    """The kinds of what a server offers: those that are registered, and `declares`, those that are
    registered later. Raises `InvalidArgument` for one that there is not."""

    def __init__(self, registry: ServerRegistry, declares: Iterable[str]) -> None:
        known = get_args(Kind)
        self._declared = frozenset([declares] if isinstance(declares, str) else declares)
        unknown = sorted(self._declared - frozenset(known))
        if unknown:
            raise InvalidArgument(
                f"declares: unknown kinds {unknown}; there are {known}", argument="declares"
            )
        self._registry = registry
        self._served: frozenset[str] = frozenset()

    def current(self) -> frozenset[str]:
        """The kinds that are registered or declared; a list may be empty (R0975)."""
        registry = self._registry
        found = {
            "tools": bool(len(registry.tools)),
            "resources": bool(len(registry.resources) or len(registry.templates)),
            "prompts": bool(len(registry.prompts)),
            "completions": any(entry.completers for entry in registry.entries()),
        }
        return self._declared | {kind for kind, there in found.items() if there}

    def capabilities(self, logs: bool) -> t.ServerCapabilities:
        """The capabilities, without extensions; `logs` is whether logging is one."""
        kinds = self.current()
        return t.ServerCapabilities(
            tools=t.ToolsCapability(list_changed=True) if "tools" in kinds else None,
            resources=t.ResourcesCapability(list_changed=True, subscribe=True)
            if "resources" in kinds
            else None,
            prompts=t.PromptsCapability(list_changed=True) if "prompts" in kinds else None,
            completions={} if "completions" in kinds else None,
            logging={} if logs else None,
        )

    def on_served(self) -> None:
        """The server is served from now on."""
        self._served = self.current()

    def warn_of_new(self) -> None:
        """Log the kinds that were not there when the server was started, each once."""
        new = self.current() - self._served
        self._served |= new
        for kind in sorted(new):
            log.warning(
                "the first of the %s was registered while the server is running; connected clients "
                "of older revisions do not see them: declare them with Server(declares=[%r])",
                kind,
                kind,
            )
