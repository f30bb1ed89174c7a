"""The request of a task: what its handler sees in place of the request that created it.

It is rebuilt from the record, in any process. The handler waits for input as in revisions where
input requests are JSON-RPC requests; its effects and the responses to it are in the record before
it goes on.

Rules: no connection and no credentials, only the principal and its scopes.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from colonnade.errors import ConnectionLost, Fault
from colonnade.ports import TaskJournal
from colonnade.protocol import types as t
from colonnade.protocol.codec.encode import Encoder
from colonnade.protocol.exchange import Exchange, NonHttpRequestFields
from colonnade.protocol.jsonrpc import Request, SplitParams, encode, encode_notification
from colonnade.protocol.methods import CALL_TOOL
from colonnade.protocol.revision import EVERY, Revision, Tasks
from colonnade.protocol.tasks.record import TaskRecord

if TYPE_CHECKING:
    from colonnade.protocol.input_requests import InputRequest


@cache
def notification_encoder(revision: Revision) -> Encoder:
    """The encoder of what is sent to the client of a task, beside responses."""
    return Encoder(revision)


def revision_of(record: TaskRecord) -> Revision:
    """The revision of the client of a task."""
    revision = EVERY.get(record.revision)
    assert revision is not None  # else the record has no peer
    return revision


class TaskRequest(NonHttpRequestFields):
    """One run of a task, as a request.

    `notify` sends a notification to the sessions that follow the task; `log_level` and `debug` are
    those of the request that created it, if this is still the same process.
    """

    def __init__(
        self,
        record: TaskRecord,
        journal: TaskJournal,
        notify: Callable[[bytes], None],
        *,
        log_level: "t.LoggingLevel | None" = None,
        debug: bool = False,
    ) -> None:
        self.fault: Fault | None = None
        self._journal = journal
        self._notify = notify
        self._debug = debug
        self._id = record.id
        peer, revision = record.peer(), revision_of(record)
        arguments = bytes(record.arguments)
        params = encode({"name": record.tool, "arguments": Raw(arguments)})
        self.exchange: Exchange = Exchange(
            request=Request(record.id, CALL_TOOL.name, Raw(params), encode(record.id)),
            params=SplitParams(name=record.tool, arguments=Raw(arguments)),
            method=CALL_TOOL,
            peer=replace(peer, log_level=log_level),
            encoder=notification_encoder(revision),
            principal=record.principal,
            # The extension has no log messages of tasks (R1199).
            logs=revision.tasks is Tasks.CORE,
            scopes=None if record.scopes is None else frozenset(record.scopes),
        )

    def __repr__(self) -> str:
        return f"TaskRequest({self._id!r})"

    @property
    def task_journal(self) -> TaskJournal:
        """The journal of the task."""
        return self._journal

    @property
    def session(self) -> None:
        """None: a task outlives sessions."""
        return None

    @property
    def debug(self) -> bool:
        """Whether the caller is sent the exception of a handler that failed."""
        return self._debug

    async def send(self, frame: bytes) -> None:
        """Send a notification to the sessions that follow the task (R0548)."""
        self.post(frame)

    def post(self, frame: bytes) -> bool:
        """Send it; it is dropped if no session follows the task."""
        message: dict[str, Any] = msgspec.json.decode(frame)
        params: dict[str, Any] = message.get("params") or {}
        meta: Mapping[str, Any] = params.get("_meta") or {}
        params["_meta"] = {**meta, t.RELATED_TASK_KEY: {"taskId": self._id}}
        self._notify(encode_notification(message["method"], encode(params)))
        return True

    async def ask(self, input_request: "InputRequest") -> Raw:
        """Not used: a task has no connection, and its journal sends input requests."""
        raise ConnectionLost("a task has no connection of its own")

    async def hang_up(self) -> None:
        """Does nothing: there is no connection."""
