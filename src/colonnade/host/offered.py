"""What a host offers of its servers: their tools, prompts and resources, and whose each is.

Rules: what a server says of a thing is passed on as it said it; only names are the catalogue's, and
those of resources are not: an address is what it is. What whoever connects to us is sent is the
plain noun of the protocol, which has no word about where it came from.
"""

from msgspec.structs import asdict

from colonnade.client.offered import Tool
from colonnade.protocol import types as t


class HostTool(Tool, kw_only=True):
    """A tool of one of many servers. `name` is its name in the catalogue, `server` the key of its
    server, `original` what that server calls it; `aliases` are further names for it."""

    server: str
    original: str
    aliases: tuple[str, ...] = ()

    @classmethod
    def kept(
        cls, tool: t.Tool, server: str, original: str, aliases: tuple[str, ...] = ()
    ) -> "HostTool":
        """The same, as it stands in a catalogue."""
        return cls(**asdict(tool), server=server, original=original, aliases=aliases)


class HostPrompt(t.Prompt, kw_only=True):
    """A prompt of one of many servers; the names are as with a tool."""

    server: str
    original: str
    aliases: tuple[str, ...] = ()

    @classmethod
    def kept(
        cls, prompt: t.Prompt, server: str, original: str, aliases: tuple[str, ...] = ()
    ) -> "HostPrompt":
        """The same, as it stands in a catalogue."""
        return cls(**asdict(prompt), server=server, original=original, aliases=aliases)


class HostResource(t.Resource, kw_only=True):
    """A resource of one of many servers, under the address that the server gave it."""

    server: str

    @classmethod
    def kept(cls, resource: t.Resource, server: str) -> "HostResource":
        """The same, as it stands in a catalogue."""
        return cls(**asdict(resource), server=server)


class HostResourceTemplate(t.ResourceTemplate, kw_only=True):
    """A template of addresses of one of many servers."""

    server: str

    @classmethod
    def kept(cls, template: t.ResourceTemplate, server: str) -> "HostResourceTemplate":
        """The same, as it stands in a catalogue."""
        return cls(**asdict(template), server=server)
