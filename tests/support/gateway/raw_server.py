"""A server that sends prepared bytes as results and errors, and clients that read the raw result."""

from typing import Any

import msgspec
from msgspec import Raw

from colonnade import Client, Server
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import ServerEntry, Settings
from colonnade.ports import RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import encode_error, encode_result

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")


class RawServer(Server):
    """A server whose tool `odd`, resource `odd://one` and prompt `odd` have the outcome that was
    set last: the bytes of a result, or code, message and data of an error. `lists` are the bytes of
    lists, by method."""

    def __init__(self, output_schema: dict[str, Any] | None = None) -> None:
        super().__init__("raw")
        self.result: bytes = b"{}"
        self.error: tuple[int, str, Any] | None = None
        self.lists: dict[str, bytes] = {}

        def odd() -> None: ...

        self.tool(name="odd")(odd)
        if output_schema is not None:
            definition = self.tools["odd"].definition
            self.tools["odd"].definition = msgspec.structs.replace(
                definition, output_schema=output_schema
            )
        self.resource("odd://one")(odd)
        self.prompt(name="odd")(odd)

    async def respond(self, request: RequestContext) -> bytes | None:
        exchange = request.exchange
        listed = self.lists.get(exchange.method.name)
        if listed is not None:
            return exchange.settle_encoded(encode_result(exchange.request.raw_id, listed))
        if exchange.method.name not in ("tools/call", "resources/read", "prompts/get"):
            return await super().respond(request)
        raw_id = exchange.request.raw_id
        if self.error is not None:
            return exchange.settle_encoded(encode_error(raw_id, *self.error))
        return exchange.settle_encoded(encode_result(raw_id, self.result))

    def entry(self, revision: str, key: str = "s") -> ServerEntry:
        """This server in one revision, for a host."""
        return entry_of(key, self, Settings(revision=revision))


async def raw_call(client: Client, name: str) -> Raw:
    """The result of a tool without arguments, as it was written."""
    params = t.CallToolRequestParams(name=name, arguments=Raw(b"{}"))
    return await client.conversation.request("tools/call", params, 30.0)


async def raw_request(client: Client, method: str, **params: Any) -> Raw:
    """The result of a request, as it was written."""
    kind: Any = client.peer.revision.methods[method].params
    return await client.conversation.request(method, kind(**params), 30.0)


def members(raw: Raw) -> dict[str, bytes]:
    """The members of an object, as they were written."""
    return {name: bytes(value) for name, value in _members.decode(raw).items()}


_members = msgspec.json.Decoder(dict[str, Raw])
