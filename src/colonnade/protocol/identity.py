"""Who we are and what we offer, and how each revision is told of it.

Rules: plain data, checked once: what could not be told to a peer never becomes an identity.
"""

from typing import TypeAlias

from msgspec import Struct, field

from colonnade.errors import LocalProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.methods import Side, declares
from colonnade.protocol.revision import Revision, Revisions
from colonnade.protocol.shape import Shaper

Shapers: TypeAlias = dict[Revision, tuple[t.Implementation | None, Shaper]]


class Identity(Struct, frozen=True):
    """Who we are and what we offer. `named` is whether to say it where a revision leaves it open.

    Raises `LocalProtocolError` for what could not be told to anybody.
    """

    info: t.Implementation
    capabilities: t.ServerCapabilities | t.ClientCapabilities
    instructions: str | None = None
    named: bool = True
    # A server's writers, each with whom it signs as. A server whose offers change has several
    # identities and gives all of them the same, so that they share what was written.
    shapers: Shapers = field(default_factory=dict[Revision, tuple[t.Implementation | None, Shaper]])

    def __post_init__(self) -> None:
        encode([self.info, self.capabilities, self.instructions])
        for identifier in self.capabilities.extensions or ():
            if not t.valid_extension_id(identifier):  # R0926
                raise LocalProtocolError(f"{identifier!r} is no extension: name it a.b/c")

    @property
    def side(self) -> Side:
        """The side that has such capabilities."""
        server = isinstance(self.capabilities, t.ServerCapabilities)
        return Side.SERVER if server else Side.CLIENT

    @property
    def logs(self) -> bool:
        """Whether we declared that we log, without which nothing may be logged (R0153)."""
        return declares(self.capabilities, "logging")

    def shaper(self, revision: Revision) -> Shaper:
        """A writer for peers of this revision, which signs as us."""
        info = self.info if self.named else None
        if isinstance(self.capabilities, t.ServerCapabilities):
            known = self.shapers.get(revision)
            if known is None or known[0] is not info:
                known = self.shapers[revision] = (info, Shaper(revision, info))
            return known[1]
        envelope = t.Envelope(
            version=revision.date, capabilities=self.capabilities, client_info=info
        )
        return Shaper(revision, None, envelope)

    def greeting(self, revision: Revision) -> "t.InitializeRequestParams":
        """The first word of a client."""
        if not isinstance(self.capabilities, t.ClientCapabilities):
            raise LocalProtocolError("initialize is the first word of a client")
        return t.InitializeRequestParams(
            protocol_version=revision.date, capabilities=self.capabilities, client_info=self.info
        )

    def welcome(self, revision: Revision) -> "t.InitializeResult":
        """A server's answer to it."""
        return t.InitializeResult(
            protocol_version=revision.date,
            capabilities=self._offered,
            server_info=self.info,
            instructions=self.instructions,
        )

    def discovery(self, accepts: Revisions) -> "t.DiscoverResult":
        """A server's answer to `server/discover`, which it always has (R0924)."""
        return t.DiscoverResult(
            supported_versions=accepts.dates,  # D11: newest first
            capabilities=self._offered,
            instructions=self.instructions,
        )

    @property
    def _offered(self) -> t.ServerCapabilities:
        if not isinstance(self.capabilities, t.ServerCapabilities):
            raise LocalProtocolError("only a server says what it offers")
        return self.capabilities
