"""Requests and whole calls for tests of the audit log, and the files that it has written."""

from pathlib import Path
from typing import Any

from msgspec import Raw

from colonnade.host.policy.audit.log import AuditLog
from colonnade.host.policy.request import Decision, PolicyRequest
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import encode

KEY = bytes(range(32))
ALLOWED = Decision("allow", "colonnade.toml:12", False, "7f2a", "files are allowed")
ASKED = Decision("ask", "colonnade.toml:13", False, "7f2a", "no rule matches")
DENIED = Decision("deny", "colonnade.toml:14", True, "7f2a", "it is denied with these arguments")


def request(
    arguments: Any = None,
    *,
    server: str = "files",
    name: str = "read",
    method: str = "tools/call",
    principal: str = "alex",
    client: str = "chat",
) -> PolicyRequest:
    """A request for a tool."""
    return PolicyRequest(
        principal=principal,
        claims={},
        client=client,
        revision="2026-07-28",
        server=server,
        identity="1d" * 32,
        trusted=False,
        method=method,
        kind="tool",
        name=name,
        qualified=f"{server}__{name}",
        arguments=Raw(encode({"path": "a.txt"} if arguments is None else arguments)),
        definition_digest="de" * 32,
    )


def result(text: str = "hello") -> t.CallToolResult:
    """The result of a tool."""
    return t.CallToolResult(content=[t.TextContent(text=text)])


def opened(folder: Path, **options: Any) -> AuditLog:
    """An audit log with a key that tests know."""
    return AuditLog(folder, key=KEY, **options)


def call(log: AuditLog, asked: PolicyRequest | None = None, text: str = "hello") -> str:
    """Record a whole call; returns its id."""
    asked = asked or request()
    id = log.proposed(asked)
    log.decided(id, asked, ALLOWED)
    log.executed(id, asked, "2025-06-18")
    log.returned(id, asked, result(text))
    return id


def files(folder: Path) -> list[Path]:
    """The files of a log, in their order."""
    return sorted(folder.glob("*.jsonl"))


def lines(folder: Path) -> list[bytes]:
    """All lines of a log, in their order."""
    return [line for file in files(folder) for line in file.read_bytes().splitlines()]
