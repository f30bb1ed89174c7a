"""Checks of a conversation with a server: process, revision, lists, schemas.

Rules: no tool is called; only lists are read. No user is prompted, and no browser is opened. Every
wait has a timeout, and the connection is closed before a check reports.
"""

import asyncio
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from colonnade.cli.commands.inspect import Finding, lint, supported_revisions
from colonnade.cli.connections import ServerListing, SingleServer
from colonnade.cli.doctor.check import Check, failed, ok, warned
from colonnade.cli.doctor.command import MAX_LINES, PROCESS, exited_check, meaning, polluted_check
from colonnade.cli.errors import PROTOCOL, UNREACHABLE, exit_code
from colonnade.cli.session import error_message
from colonnade.client.connect import (
    ConnectContext,
    accepted_revisions,
    create_client,
    transport_for,
)
from colonnade.client.input_callbacks import InputCallbacks
from colonnade.client.transports import ProcessTransport
from colonnade.errors import (
    AuthError,
    CannotConnect,
    ChannelError,
    ColonnadeError,
    ConnectionLost,
    Fault,
    LocalProtocolError,
    Output,
    RemoteProtocolError,
    TimedOut,
)
from colonnade.ports import ClientTransport, OpenConversation
from colonnade.protocol.schema.validate import Validator
from colonnade.text import one_line
from colonnade.transport.process.child import Child

REVISION, LISTS, SCHEMA = "revision", "lists", "schema"
CONVERSATION_CHECKS = (REVISION, LISTS, SCHEMA)
# The timeout of all pages of four lists, as a multiple of that of one response.
LISTS_FACTOR: Final = 4
# Lint findings in the table; `inspect` shows all of them.
MAX_FOUND: Final = 5
# The length of an error message in the table.
MAX_MESSAGE: Final = 300
# Lint rules whose findings a model provider or a client rejects; the others are advice.
REJECTED_RULES = frozenset(
    {"name", "root", "duplicate", "name-clash", "parameter-name", "count", "ref", "items"}
)


class TrackedTransport:
    """A transport to a child process that records the processes that were started."""

    def __init__(self, transport: ClientTransport) -> None:
        self._transport = transport
        self.children: list[Child] = []

    @property
    def name(self) -> str:
        """As the transport has it."""
        return self._transport.name

    @property
    def key(self) -> Hashable | None:
        """None: what is learned about a broken server is not cached."""
        return None

    @property
    def can_reconnect(self) -> bool:
        """As the transport has it."""
        return self._transport.can_reconnect

    @property
    def restarts(self) -> bool:
        """As the transport has it."""
        return self._transport.restarts

    @property
    def mirrors(self) -> bool:
        """As the transport has it."""
        return self._transport.mirrors

    @property
    def always_handshakes(self) -> bool:
        """As the transport has it."""
        return self._transport.always_handshakes

    @property
    def legacy_sse(self) -> ClientTransport | None:
        """As the transport has it."""
        return self._transport.legacy_sse

    async def open_channel(self, timeout_s: float) -> OpenConversation:
        """Start a process, and record it."""
        carry = await self._transport.open_channel(timeout_s)
        child = getattr(carry, "__self__", None)
        if isinstance(child, Child):
            self.children.append(child)
        return carry

    async def close(self) -> None:
        """Close the transport."""
        await self._transport.close()


@dataclass
class ConversationResult:
    """The outcome of a conversation."""

    # Why it could not be opened, and why its lists could not be read.
    error: ColonnadeError | None = None
    list_error: ColonnadeError | None = None
    revision: str = ""
    handshake: bool = False
    supported_revisions: list[str] | None = None
    server: str = ""
    listing: ServerListing | None = None
    children: list[Child] = field(default_factory=list[Child])
    # Lines on stdout that were not messages.
    non_messages: int = 0

    @property
    def refused(self) -> AuthError | None:
        """The error of a server that requires authentication, at the start or for a list."""
        for error in (self.error, self.list_error):
            if isinstance(error, AuthError):
                return error
        return None


async def open_conversation(
    target: Any, around: Mapping[str, Any], revision: str | None, timeout_s: float
) -> ConversationResult:
    """Connect to a server as a client does, and list everything. Raises `LocalProtocolError` for an
    invalid target."""
    transport = transport_for(target, ConnectContext(**around))
    tracked = TrackedTransport(transport) if isinstance(transport, ProcessTransport) else None
    client = create_client(
        tracked or transport,
        InputCallbacks(),
        accepts=accepted_revisions(revision),
        timeout_s=timeout_s,
    )
    result = ConversationResult(children=tracked.children if tracked is not None else [])
    try:
        try:
            await client.open()
        except ColonnadeError as error:
            result.error = error
            return result
        result.revision, result.handshake = client.revision, client.peer.revision.handshake
        if client.server is not None:
            result.server = f"{client.server.name} {client.server.version}"
        try:
            async with asyncio.timeout(LISTS_FACTOR * timeout_s):
                result.supported_revisions = await supported_revisions(client)
                result.listing = await SingleServer(client).list_all()
        except ColonnadeError as error:
            result.list_error = error
        except TimeoutError:
            result.list_error = TimedOut(f"listing timed out after {LISTS_FACTOR * timeout_s:g} s")
        return result
    finally:
        result.non_messages = sum(child.noise_lines for child in result.children)
        await client.close()


# ---------------------------------------------------------------- process


def process_check(result: ConversationResult, fix: str) -> Check:
    """Check that the process runs, and that its stdout has only messages."""
    error = result.error
    child = result.children[-1] if result.children else None
    if error is None:
        if result.non_messages:
            return polluted_check(result.non_messages, _printed(result), works=True)
        return ok(PROCESS, "it runs, and its stdout has only messages")
    if child is None or (isinstance(error, CannotConnect) and child.failure is None):
        return failed(PROCESS, UNREACHABLE, one_line(error.summary), one_line(error.hint) or fix)
    if result.non_messages and isinstance(error, ChannelError) and not _has_failed(child):
        return polluted_check(result.non_messages, _printed(result), works=False)
    if isinstance(error, CannotConnect | ConnectionLost) and child.failure is not None:
        return exited_check(child.failure, _lines(error.output), fix)
    return ok(PROCESS, "it runs")


def _has_failed(child: Child) -> bool:
    """Whether it exited with an error, which says more than its stdout."""
    return child.exit_status not in (None, 0)


def _lines(output: Output) -> list[str]:
    return [one_line(line) for line in output.stderr or output.stdout]


def _printed(result: ConversationResult) -> str:
    return next((line for child in result.children for line in child.printed), "")


# ---------------------------------------------------------------- revision, lists, schemas


def revision_check(result: ConversationResult, wanted: str) -> Check:
    """Check which revision was negotiated, and which others are supported."""
    error = result.error
    if error is not None:
        lines = _lines(result.children[-1].output) if result.children else []
        return _revision_failure(error, wanted, lines[-MAX_LINES:])
    server = f"{one_line(result.server)} uses" if result.server else "it uses"
    if result.supported_revisions is not None:
        others = [one_line(date) for date in result.supported_revisions if date != result.revision]
        more = f", and supports {', '.join(others)}" if others else ", and supports no other"
        return ok(REVISION, f"{server} {result.revision}{more}")
    newer = "as requested" if wanted else "and supports nothing newer"
    return ok(REVISION, f"{server} {result.revision} (with a handshake), {newer}")


def _revision_failure(error: ColonnadeError, wanted: str, lines: list[str]) -> Check:
    message = one_line(error.sentence)[:MAX_MESSAGE]
    if isinstance(error, TimedOut):
        fix = "check that it is an MCP server; use --timeout if it is slow to start"
        return failed(REVISION, UNREACHABLE, message, meaning(lines) or fix, lines)
    if isinstance(error, ChannelError):
        return failed(REVISION, UNREACHABLE, message, "see its log", lines)
    if wanted:
        fix = f"leave out --as {wanted} to see which revision it uses"
        return failed(REVISION, PROTOCOL, message, fix)
    fix = "report it to the author; --as REVISION tries an older one"
    return failed(REVISION, PROTOCOL, message, fix)


def lists_check(result: ConversationResult) -> Check:
    """Check that everything can be listed."""
    if result.list_error is not None or result.listing is None:
        error = result.list_error or RemoteProtocolError("it returned no lists")
        message = error.sentence if isinstance(error, ChannelError) else error_message(error)
        message = one_line(message)[:MAX_MESSAGE]
        return failed(LISTS, exit_code(error), message, "report it to the author; see its log")
    listing = result.listing
    counts = [
        (len(listing.tools), "tool"),
        (len(listing.prompts), "prompt"),
        (len(listing.resources), "resource"),
        (len(listing.templates), "template"),
    ]
    parts = [f"{count} {word}{'s' if count > 1 else ''}" for count, word in counts if count]
    if not parts:
        return warned(LISTS, "it lists nothing", "check that it has the settings that it needs")
    return ok(LISTS, ", ".join(parts))


def schema_check(listing: ServerListing, fix: str) -> Check:
    """Check that clients and models can use the schemas. `fix` is a command that shows more."""
    broken = [
        f"{one_line(tool.name)}: {one_line(message)[:MAX_MESSAGE]}"
        for tool in listing.tools
        if (message := _schema_error(tool.input_schema))
    ]
    if broken:
        message = f"{_tools(len(broken))} an invalid input schema"
        return failed(SCHEMA, PROTOCOL, message, "fix the schema in the server", broken[:MAX_FOUND])
    findings = [
        one for one in lint(*listing) if one.rule in REJECTED_RULES and one.level == "warning"
    ]
    if findings:
        message = f"some model provider or client rejects {_items(len(findings))}"
        return warned(SCHEMA, message, fix, [_format_finding(one) for one in findings[:MAX_FOUND]])
    return ok(SCHEMA, "names and schemas are valid for all known clients and models")


def _schema_error(schema: Mapping[str, Any]) -> str:
    try:
        Validator(schema).compile()
    except (Fault, LocalProtocolError) as error:
        return str(error)
    return ""


def _tools(count: int) -> str:
    return "1 tool has" if count == 1 else f"{count} tools have"


def _items(count: int) -> str:
    return "1 item" if count == 1 else f"{count} items"


def _format_finding(one: Finding) -> str:
    return f"{one_line(one.where)}: {one.message}"
