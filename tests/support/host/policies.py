"""Requests for tests of policies, and servers that policies are tried on."""

from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from colonnade import Server
from colonnade.host.policy.request import ItemKind, PolicyRequest, digest_of
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import encode


def asked(
    qualified: str = "files__read",
    arguments: Mapping[str, Any] | bytes | None = None,
    *,
    kind: ItemKind = "tool",
    method: str = "tools/call",
    principal: str = "",
    client: str = "",
    claims: Mapping[str, Any] | None = None,
    trusted: bool = False,
    annotations: t.ToolAnnotations | None = None,
) -> PolicyRequest:
    """A request; for a resource the name is the URI, and its server is `files`."""
    server, _, own = qualified.partition("__") if kind in ("tool", "prompt") else ("files", "", "")
    raw = arguments if isinstance(arguments, bytes) else encode(dict(arguments or {}))
    definition = None
    if kind == "tool":
        definition = t.Tool(name=own, input_schema={"type": "object"}, annotations=annotations)
    return PolicyRequest(
        principal=principal,
        claims=claims or {},
        client=client,
        revision="2026-07-28",
        server=server,
        identity="0",
        trusted=trusted,
        method=method,
        kind=kind,
        name=own or qualified,
        qualified=qualified,
        arguments=Raw(raw),
        definition=definition,
        definition_digest=digest_of(definition),
    )


def files(*, extra: bool = True) -> Server:
    """A server with tools, prompts and resources; without `extra`, without those whose name begins
    with `secret`."""
    server = Server("files")

    @server.tool
    def read(path: str) -> str:
        return f"contents of {path}"

    @server.tool
    def write(path: str, text: str = "") -> str:
        return f"wrote {path}"

    @server.prompt
    def summarize(topic: str) -> str:
        return f"summarize {topic}"

    @server.resource("notes://today")
    def today() -> str:
        return "today"

    @server.resource("notes://public/{name}")
    def note(name: str) -> str:
        return name

    @server.completion(summarize, "topic")
    def topics(value: str) -> list[str]:
        return [value]

    @server.completion(note, "name")
    def names(value: str) -> list[str]:
        return [value]

    _ = read, write, summarize, today, note, topics, names
    if extra:
        _add_secrets(server)
    return server


def _add_secrets(server: Server) -> None:
    @server.tool
    def secret_wipe(path: str) -> str:
        return f"wiped {path}"

    @server.prompt
    def secret_plan(topic: str) -> str:
        return f"plan {topic}"

    @server.resource("notes://secret")
    def secret() -> str:
        return "secret"

    @server.resource("notes://private/{name}")
    def private(name: str) -> str:
        return name

    _ = secret_wipe, secret_plan, secret, private
