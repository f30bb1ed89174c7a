"""The record of a task: all that a server must know of it, as one entry of a store.

A record does not depend on the revision that it was created in. Both generations of tasks are
encoded from it: those of 2025-11-25, which are part of the core, and those of the extension.

Rules: no I/O, no clock, no randomness. A record holds a principal and scopes, never a token or a
header. Its result has an entry of its own, since it may be large and is read once.
"""

import hashlib
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from functools import cache
from math import inf, isfinite
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from colonnade.errors import Fault, FaultKind, InvalidArgument, RemoteError
from colonnade.protocol import types as t
from colonnade.protocol.codec.encode import encode_finite
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.negotiation import Peer
from colonnade.protocol.revision import EVERY, InputRequests, Revision

TERMINAL: Final[frozenset[t.TaskStatus]] = frozenset({"completed", "failed", "cancelled"})

# The version of the record that is written here. What a later one changes is converted on reading.
RECORD_VERSION = 1
# The shortest ttl that is given, whatever was requested: a task must live until its first poll.
MIN_TTL_S = 60.0


# ---------------------------------------------------------------- limits of one tool


class TaskLimits(Struct, frozen=True):
    """How long a task may run, how long it is kept after its end, and how often to poll it (D49).

    Raises `InvalidArgument` for what is not a positive, finite number of seconds.
    """

    max_run_s: float = 24 * 3600.0
    keep_s: float = 3600.0
    poll_interval_s: float | None = 1.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value: float | None = getattr(self, name)
            if value is not None and not 0 < value < inf:
                raise InvalidArgument(f"{name} must be a positive number of seconds", argument=name)

    def ttl_s(self, requested_ms: int | None) -> float | None:
        """The ttl for a requested one (R0538, D49); None if none was requested."""
        if requested_ms is None:
            return None
        longest = float(self.max_run_s + self.keep_s)
        shortest = min(MIN_TTL_S, longest)
        # Compared as it is: an integer of JSON can be larger than any float.
        if shortest * 1000 < requested_ms < longest * 1000:
            return requested_ms / 1000
        return shortest if requested_ms <= shortest * 1000 else longest


# ---------------------------------------------------------------- the record


_KINDS: Final[Mapping[str, FaultKind]] = MappingProxyType(
    {kind.name: kind for kind in FaultKind.members()}
)


class TaskError(Struct, frozen=True, omit_defaults=True):
    """The JSON-RPC error that a task ended with, or that an input request was answered with.

    `kind` is the kind of our own fault, whose code depends on the revision that reads it; without
    one, `code` is that of the error of another party.
    """

    message: str
    kind: str = ""
    code: int = 0
    data: Raw = t.ABSENT

    @classmethod
    def of(cls, error: Fault | RemoteError) -> "TaskError":
        """The error as it is recorded. Raises `LocalProtocolError` for data that JSON cannot
        hold."""
        data = t.ABSENT if error.data is None else Raw(encode_finite(error.data))
        if isinstance(error, Fault):
            return cls(error.message, kind=error.kind.name, data=data)
        return cls(error.message, code=error.code, data=data)

    def error(self) -> Fault | RemoteError:
        """The error to raise or to respond with: the same that the request would have had
        (R0575)."""
        data: Any = None if self.data is t.ABSENT else self.data
        if self.kind:
            return Fault(_KINDS.get(self.kind, FaultKind.INTERNAL), self.message, data)
        return RemoteError(self.code, self.message, data)

    def as_object(self, revision: Revision) -> "t.ErrorObject":
        """The error as part of a result, for a peer of this revision."""
        code = self.code
        if self.kind:
            code = revision.codes[_KINDS.get(self.kind, FaultKind.INTERNAL)]
        if self.data is t.ABSENT:
            return t.ErrorObject(code=code, message=self.message)
        return t.ErrorObject(code=code, message=self.message, data=self.data)


class TaskRecord(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="v", tag=1):
    """One task. Times are in seconds since the epoch.

    `arguments` are those of the call, raw; with `responses` and `journal` they are all that a run
    from the top needs. `digests` has the digest of every input request that the task ever sent, by
    key (R1182); `responses` and `refusals` have what was answered, `pending` the rest. `journal`
    has the results of `ctx.once`. `run_until` ends a run; `ttl_s` counts from the creation, and is
    None until the end of the task unless it was requested.

    A worker has the lease until `lease_until`; None is no lease. `lease_number` counts the leases:
    what a worker does with an older number is dropped (fencing). `parked` is whether the handler
    was unwound and waits for input. `attempt` counts the workers that lost their lease since the
    task last advanced, by an effect or a response. `result_of` is the number of the lease whose
    entry has the result, 0 without one: a worker that lost its lease may write its own, and never
    that of another.
    """

    id: str
    principal: str
    tool: str
    revision: str
    created_at: float
    updated_at: float
    run_until: float
    keep_s: float
    arguments: Raw = Raw(b"{}")
    capabilities: t.ClientCapabilities = t.ClientCapabilities()
    scopes: tuple[str, ...] | None = None
    progress_token: t.ProgressToken | None = None
    ttl_s: float | None = None
    poll_interval_s: float | None = None
    status: t.TaskStatus = "working"
    message: str | None = None
    is_error: bool = False
    error: TaskError | None = None
    result_of: int = 0
    pending: dict[str, t.AnyInputRequest] = {}
    digests: dict[str, str] = {}
    responses: dict[str, Raw] = {}
    refusals: dict[str, TaskError] = {}
    journal: dict[str, Raw] = {}
    progress: float | None = None
    attempt: int = 0
    lease_owner: str = ""
    lease_until: float | None = None
    lease_number: int = 0
    parked: bool = False

    def __repr__(self) -> str:
        return f"TaskRecord({self.id!r}, {self.tool!r}, {self.status!r})"

    @property
    def ended(self) -> bool:
        """Whether its status is terminal."""
        return self.status in TERMINAL

    def peer(self) -> Peer:
        """The client as the handler sees it: its input requests are recorded and waited for.

        Raises `InvalidArgument` for a revision that is not known here.
        """
        revision = EVERY.get(self.revision)
        if revision is None:
            raise InvalidArgument(f"a task of revision {self.revision[:20]!r}, which is not known")
        return Peer(inside_task(revision), self.capabilities)


@cache
def inside_task(revision: Revision) -> Revision:
    """The revision that the handler of a task sees.

    A handler that runs in a task can wait for input in every revision: `tasks/update` or
    `tasks/result` carry the response. So it never ends with an `input_required` result.
    """
    return replace(revision, input_requests=InputRequests.AS_REQUEST)


def new_task(
    *,
    id: str,
    principal: str,
    tool: str,
    arguments: Raw,
    peer: Peer,
    limits: TaskLimits,
    now: float,
    scopes: frozenset[str] | None = None,
    progress_token: "t.ProgressToken | None" = None,
    requested_ttl_ms: int | None = None,
) -> TaskRecord:
    """The record of a new task, which is `working` (R0526). Raises `InvalidArgument` for an id
    that `make_task_id` did not make."""
    if not is_task_id(id):  # R0524
        raise InvalidArgument("the id of a new task is one of make_task_id", argument="id")
    if not isinstance(peer.capabilities, t.ClientCapabilities):
        raise InvalidArgument("only a server has tasks, and only for a client", argument="peer")
    ttl_s = limits.ttl_s(requested_ttl_ms)
    run_s = limits.max_run_s if ttl_s is None else min(limits.max_run_s, ttl_s)
    return TaskRecord(
        id=id,
        principal=principal,
        tool=tool,
        revision=peer.revision.date,
        created_at=float(now),
        updated_at=float(now),
        run_until=float(now + run_s),
        keep_s=float(limits.keep_s),
        arguments=Raw(bytes(arguments) or b"{}"),
        capabilities=peer.capabilities,
        scopes=None if scopes is None else tuple(sorted(scopes)),
        progress_token=progress_token,
        ttl_s=ttl_s,
        poll_interval_s=limits.poll_interval_s and float(limits.poll_interval_s),
    )


class _RecordVersion(Struct):
    v: int


_version_decoder = msgspec.json.Decoder(_RecordVersion)
_record_decoder = msgspec.json.Decoder(TaskRecord)
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def encode_record(record: TaskRecord) -> bytes:
    """The record as JSON. A record that was decoded has the very same bytes again.

    Raises `LocalProtocolError` for what JSON cannot hold.
    """
    return encode(record)


def decode_record(data: bytes) -> TaskRecord:
    """The record that `encode_record` wrote. Raises `InvalidArgument` for anything else."""
    try:
        version = _version_decoder.decode(data).v
    except _UNREADABLE:
        raise InvalidArgument("this entry of the store is not a task record") from None
    if version != RECORD_VERSION:
        words = f"a task record of version {version}; this program has version {RECORD_VERSION}"
        raise InvalidArgument(words, hint="use the program that wrote it, or delete it")
    try:
        return _record_decoder.decode(data)
    except _UNREADABLE as error:
        raise InvalidArgument(f"a task record that cannot be decoded: {error}") from None


# ---------------------------------------------------------------- task ids, digests and cursors


# Milliseconds since the epoch in 48 bits, until the year 10889, and 128 random bits (R0579, R1215).
_TASK_ID = re.compile(r"[0-9a-f]{12}-[0-9a-f]{32}")
_MAX_MS = 2**48 - 1
RANDOM_BYTES = 16
# 64 bits keep the names in one store, and the tasks in one log, apart.
_DIGEST_CHARACTERS = 16
# Those of `encode_cursor` have 62.
MAX_CURSOR_CHARACTERS = 64
_CURSOR = b"t"


def make_task_id(now: float, random: bytes) -> str:
    """A new task id: ids sort by their time of creation. `random` is from a CSPRNG.

    The time makes a cursor the id of the last task of a page; it is no secret, since the task has
    it as `createdAt`. Raises `InvalidArgument` for fewer or more random bytes than 16.
    """
    if len(random) != RANDOM_BYTES:
        raise InvalidArgument(f"a task id needs {RANDOM_BYTES} random bytes", argument="random")
    if not isfinite(now) or not 0 <= now * 1000 <= _MAX_MS:
        raise InvalidArgument("now must be in seconds since the epoch", argument="now")
    return f"{int(now * 1000):012x}-{random.hex()}"


def is_task_id(text: str) -> bool:
    """Whether `make_task_id` can have made this: whatever else is sent is no key for a store."""
    return _TASK_ID.fullmatch(text) is not None


def short_digest(text: str) -> str:
    """A digest to write instead of what is not to be shown, or cannot be part of a key."""
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARACTERS]


def unknown_task() -> Fault:
    """The one refusal of a task id: unknown, of another caller, or expired (D48).

    All have the same bytes, so that probing never learns whether another caller has such a task.
    """
    return Fault(FaultKind.INVALID_PARAMS, "there is no such task, or it has expired")


def encode_cursor(last: str) -> str:
    """The cursor of the page after the task with this id."""
    return urlsafe_b64encode(_CURSOR + last.encode()).rstrip(b"=").decode()


def decode_cursor(cursor: str) -> str:
    """The id of the last task of the page before. Raises `Fault` (R0569).

    The task need not exist any longer: a cursor is a position.
    """
    if len(cursor) <= MAX_CURSOR_CHARACTERS:
        try:
            found = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
            last = found.removeprefix(_CURSOR).decode("ascii")
        except ValueError:
            last = ""
        if is_task_id(last) and encode_cursor(last) == cursor:
            return last
    raise Fault(FaultKind.INVALID_PARAMS, "the cursor is not valid; list again without it")
