"""The audit log of a host: what was proposed, decided and done, as append-only lines of JSON.

    async with Host(servers, audit=AuditLog("audit")) as host:
        await host.call_tool("files__read", {"path": "a.txt"})

Each run of a process writes files of its own in one folder, so processes never share a file; each
line has the digest of the line before it, and a run begins with those of the runs before it.
`audit_verify` reads them.

Rules: a line is never changed. Lines are with the operating system at the end of the iteration of
the event loop, so while a request is on its way; if the log is `required` they are on the disk
before it is sent, and only then does a log that cannot be written refuse calls. Otherwise events
that cannot be written are counted, and the next line says how many. Contents of requests and
results are recorded only if they are configured, and error messages of servers are contents.
"""

import asyncio
import logging
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, TypeAlias, cast

from msgspec import Raw, Struct

from colonnade.errors import ColonnadeError, InvalidArgument, Refused, RemoteError
from colonnade.host.config.settings import AuditSettings
from colonnade.host.policy.audit.file import (
    MAX_FILE_BYTES,
    AuditFile,
    HeadKeeper,
    OpenStore,
    sync_and_close,
)
from colonnade.host.policy.audit.lines import (
    CONTENTS,
    MAX_SEARCHED,
    OUTCOMES,
    AuditContents,
    DigestKey,
    NameMembers,
    Redactor,
    encodable,
    members,
)
from colonnade.host.policy.request import (
    Consent,
    Decision,
    Denial,
    PolicyRequest,
    Unanswered,
)
from colonnade.ports import Store
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import encode

log: logging.Logger = logging.getLogger("colonnade.audit")

# Calls whose first members are kept until they end; of others they are encoded again.
MAX_OPEN_CALLS = 10_000
# What servers ask; their params are contents of another party.
INPUT_METHODS: Final = frozenset({"elicitation/create", "sampling/createMessage", "roots/list"})


class _OpenCall(Struct):
    """A call without an outcome: its id, when it began and how many events were lost by then, if
    that is known, and the members that all of its lines have, once they are encoded."""

    id: str
    began_ns: int | None = None
    lost: int = 0
    members: bytes = b""


# An event: its time and name, its call and the request, and a function with its argument that
# encodes the other members.
WaitingEvent: TypeAlias = tuple[int, bytes, _OpenCall, PolicyRequest, Callable[[Any], bytes], Any]

_OUTCOMES = frozenset(one.encode() for one in OUTCOMES)


class AuditLog:
    """An audit log in a folder, which is created if it is not there.

    - `required`: a call is sent only once it is recorded on the disk. Without it, a log that cannot
      be written is reported, and calls go on.
    - `contents`: `"none"` records digests alone, `"arguments"` also the arguments of calls, `"all"`
      also results, error messages, and what servers ask and are answered; without secrets.
    - `redact`: names of members that are not recorded, beside those of passwords, tokens and keys.
    - `heads`: a store for the last line of this run, or a file for one, which `colonnade audit
      verify` compares.
    - `key`: for digests of contents; by default a key of this user, which is not in the folder.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        required: bool = False,
        contents: AuditContents = "none",
        redact: Iterable[str] = (),
        max_file_bytes: int = MAX_FILE_BYTES,
        heads: Store | str | os.PathLike[str] | None = None,
        key: bytes | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        if contents not in CONTENTS:
            expected = ", ".join(map(repr, CONTENTS))
            raise InvalidArgument(f"contents={contents!r}: expected one of {expected}")
        names = [redact] if isinstance(redact, str) else list(redact)
        if not all(names):
            raise InvalidArgument("redact has an empty name, which would match every member")
        self.path: str = os.path.abspath(os.fspath(path))
        self.required: bool = required
        self.contents: AuditContents = contents
        self._recorded = CONTENTS[: CONTENTS.index(contents) + 1]
        self._redactor = Redactor(names, os.environ)
        # Here, not in the event loop: reading it takes milliseconds.
        self._key = DigestKey(key if key is not None else _user_key())
        cached = partial(NameMembers, self._redactor)
        self._names = cached("principal", "client", "server", "method", "name")
        self._about = cached("revision", "kind", "identity", "definition")
        self._decision = cached("action", "rule", "policy")
        self._rule = cached("rule")
        self._revision = cached("server_revision")
        self._error = cached("error")
        self._clock = clock
        self._file = AuditFile(
            self.path, max_file_bytes, clock, self._describe, is_durable=required
        )
        self._lock = threading.RLock()
        self._open_calls: dict[str, _OpenCall] = {}
        self._count = 0
        # Events that are not encoded and written yet: that is done while the request is on its way.
        self._waiting: deque[WaitingEvent] = deque()
        self._is_soon = False
        self._sync: asyncio.Task[None] | None = None
        self._heads = HeadKeeper(_opener(heads), self._file) if heads is not None else None

    def __repr__(self) -> str:
        return f"<AuditLog {self.path}>"

    # ------------------------------------------------------------ events

    def proposed(self, request: PolicyRequest) -> str:
        """A request has arrived; returns its id."""
        now = self._clock()
        with self._lock:
            if self._file.prepare():
                self._begin_process()
            self._count += 1
            call = f"{self._file.chain.run}-{self._count}"
            if len(self._open_calls) >= MAX_OPEN_CALLS:
                self._open_calls.pop(next(iter(self._open_calls)), None)
            kept = self._open_calls[call] = _OpenCall(call, now, self._file.lost)
            self._waiting.append((now, b"proposed", kept, request, self._proposed, request))
        if not self._is_soon:
            self._flush_soon()
        return call

    def _proposed(self, request: PolicyRequest) -> bytes:
        fields = self._about.encode(
            (request.revision, request.kind, request.identity, request.definition_digest)
        )
        if request.during:
            fields += b',"during":"%b"' % request.during.encode()
        if request.arguments:
            records = "all" if request.method in INPUT_METHODS else "arguments"
            fields += b',"arguments":' + self._described(bytes(request.arguments), records)
        return fields

    def decided(self, call: str, request: PolicyRequest, decision: Decision) -> None:
        """The rules have decided."""
        # Its reason may quote the arguments that it matched, and those are contents.
        names = decision.action, decision.rule, decision.policy_version
        self._append(b"decided", call, request, self._decision.encode, names)

    def asked(self, call: str, request: PolicyRequest, decision: Decision) -> None:
        """A person is about to be asked."""
        self._append(b"asked", call, request, self._rule.encode, (decision.rule,))

    def answered(self, call: str, request: PolicyRequest, answer: Consent | Denial) -> None:
        """A person, or a remembered rule, has answered."""
        self._append(b"answered", call, request, self._answered, answer)

    def _answered(self, answer: Consent | Denial) -> bytes:
        name = self._redactor.name
        fields = {"action": "allow", "approval": name(answer.approval), "by": name(answer.by)}
        if isinstance(answer, Denial):
            fields |= {"action": "deny", "reason": self._redactor.message(answer.reason)}
        if answer.rule:
            fields["rule"] = name(answer.rule)
        return members(fields)

    def unanswered(self, call: str, request: PolicyRequest, ended: Unanswered, why: str) -> None:
        """There is no answer; `why` is the reason, for people."""
        self._append(b"unanswered", call, request, self._unanswered, (ended, why))

    def _unanswered(self, about: tuple[Unanswered, str]) -> bytes:
        ended, why = about
        return members({"ended": ended, "reason": self._redactor.message(why)})

    def executed(self, call: str, request: PolicyRequest, revision: str) -> Awaitable[None] | None:
        """The request is about to be sent; `revision` is the one of the server.

        Await what is returned before it is sent, if it is not None. Raises `Refused`, or the
        awaitable does, if the log is required and the events of this call are not written.
        """
        self._append(b"executed", call, request, self._revision.encode, (revision,))
        if not self.required:
            return None
        failure = self.flush()
        kept = self._open_calls.get(call)
        if failure is not None or (kept is not None and kept.lost != self._file.lost):
            raise _not_recorded(failure)
        return self._on_disk()

    def returned(self, call: str, request: PolicyRequest, result: t.ProtocolType | Raw) -> None:
        """There is a result, as the server sent it."""
        # Encoded now: the caller may change it before it is written.
        raw = bytes(result) if isinstance(result, Raw) else encode(result)
        is_error = bool(getattr(result, "is_error", None))
        self._append(b"returned", call, request, self._returned, (raw, is_error))

    def _returned(self, result: tuple[bytes, bool]) -> bytes:
        raw, is_error = result
        fields = b'"is_error":true' if is_error else b'"is_error":false'
        if raw:  # the roots of a server are in the configuration
            fields += b',"result":' + self._described(raw, "all")
        return fields

    def became_task(self, call: str, request: PolicyRequest, handle: str) -> None:
        """The call has become a task of its server; `handle` stands for it."""
        self._append(b"task", call, request, self._became_task, handle)

    def _became_task(self, handle: str) -> bytes:
        # A handle gives access to the result, so it is not in the log.
        return b'"task":"%b"' % self._key.digest(handle.encode())

    def abandoned(self, call: str, request: PolicyRequest, error: BaseException) -> None:
        """It ended without a result: refused, an error, cancelled."""
        was_cancelled = isinstance(error, asyncio.CancelledError | GeneratorExit)
        event = b"abandoned" if was_cancelled else b"failed"
        code = error.code if isinstance(error, RemoteError) else None
        about = type(error).__name__, code, _message(error)[:MAX_SEARCHED]
        self._append(event, call, request, self._abandoned, about)

    def _abandoned(self, error: tuple[str, int | None, str]) -> bytes:
        name, code, message = error
        fields = self._error.encode((name,))
        if code is not None:
            fields += b',"code":%d' % code
        if message:
            # Servers and clients write error messages, too.
            fields += b',"message":' + self._described(encode(encodable(message)), "all")
        return fields

    # ------------------------------------------------------------ members

    def _begin_members(self, call: _OpenCall, request: PolicyRequest) -> bytes:
        """What all lines of a call have; it is kept."""
        names = self._names.encode(
            (request.principal, request.client, request.server, request.method, request.name)
        )
        call.members = b'"call":"%b",%b' % (call.id.encode(), names)
        return call.members

    def _described(self, raw: bytes, records: AuditContents) -> bytes:
        """The digest and the size of contents, and the contents themselves if these, and those that
        need less, are recorded."""
        digest, size = self._key.digest(raw), len(raw)
        if records not in self._recorded:
            return b'{"digest":"%b","bytes":%d}' % (digest, size)
        content = encode(self._redactor.content(raw))
        return b'{"digest":"%b","bytes":%d,"content":%b}' % (digest, size, content)

    def _describe(self) -> dict[str, Any]:
        """What the head of each file says of this log."""
        return {"contents": self.contents, "required": self.required, "key": self._key.id}

    # ------------------------------------------------------------ writing

    def _begin_process(self) -> None:
        """Begin another run in a process that was forked: it has the open file of its parent, and
        the events that wait there."""
        self._waiting.clear()
        self._open_calls.clear()
        self._is_soon = False
        self._sync = None
        if self._heads is not None:
            self._heads.forget()

    def _append(
        self,
        event: bytes,
        call: str,
        request: PolicyRequest,
        encode_fields: Callable[[Any], bytes],
        about: Any,
    ) -> None:
        kept = self._open_calls.get(call) or _OpenCall(call)
        self._waiting.append((self._clock(), event, kept, request, encode_fields, about))
        if event in _OUTCOMES:
            self._open_calls.pop(call, None)
        if not self._is_soon:
            self._flush_soon()

    def _flush_soon(self) -> None:
        """Write what waits at the end of this iteration of the event loop."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.flush()
            return
        self._is_soon = True
        loop.call_soon(self._flush_now)
        if self._heads is not None:
            self._heads.start(loop)

    def _flush_now(self) -> None:
        self._is_soon = False
        self.flush()

    def flush(self) -> OSError | None:
        """Write what waits; returns why it could not be written."""
        with self._lock:
            return self._file.write(self._lines()) if self._waiting else None

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """The times and the members of the events that wait, without those that each line has."""
        for _ in range(len(self._waiting)):  # other threads may add to them
            time_ns, name, call, request, encode_fields, about = self._waiting.popleft()
            try:
                common = call.members or self._begin_members(call, request)
                fields = encode_fields(about)
                if name in _OUTCOMES and call.began_ns is not None:
                    fields += b',"duration_us":%d' % (max(time_ns - call.began_ns, 0) // 1000)
                yield time_ns, b'"event":"%b",%b,%b' % (name, common, fields)
            except Exception as error:  # the others are recorded all the same
                log.error("an event cannot be recorded: %s", type(error).__name__, exc_info=error)
                self._file.count_lost(1)

    def check(self) -> OSError | None:
        """Make the folder, if it is not there; returns why no file can be made in it."""
        return self._file.check_folder()

    @property
    def dropped(self) -> int:
        """Events that could not be written, and that no line says yet."""
        return self._file.dropped

    async def _on_disk(self) -> None:
        """Wait until what is written is on the disk; calls that wait together share the wait."""
        run, wanted = self._file.chain.run, self._file.chain.seq
        while self._file.chain.run == run and self._file.synced < wanted:
            if self._sync is None:
                self._sync = asyncio.create_task(self._fsync())
                self._sync.add_done_callback(self._fsync_ended)
            try:
                await asyncio.shield(self._sync)
            except OSError as error:
                raise _not_recorded(error) from None

    async def _fsync(self) -> None:
        run, seq = self._file.chain.run, self._file.chain.seq
        await _in_thread(sync_and_close, self._file.duplicate())
        if self._file.chain.run == run:
            self._file.synced = seq

    def _fsync_ended(self, task: "asyncio.Task[None]") -> None:
        self._sync = None
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the audit log %s cannot be synchronised: %s", self.path, error)

    async def close(self) -> None:
        """Write a last line. May be called twice; an event after it begins another run."""
        self.flush()
        with self._lock:
            last = self._file.close()
            self._is_soon = False
        if self._heads is not None:
            await self._heads.close(last)


async def _in_thread(function: Callable[[int], None], argument: int) -> None:
    """Run a function in a thread of its own: the pool of the loop may be full of handlers."""
    done: Future[None] = Future()

    def run() -> None:
        try:
            done.set_result(function(argument))
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name="colonnade-audit", daemon=True).start()
    await asyncio.wrap_future(done)


def _not_recorded(error: OSError | None) -> Refused:
    why = "some of its events were lost"
    if error is not None:
        why = error.strerror or type(error).__name__
    return Refused(
        f"the call was not sent: the audit log cannot be written ({why}), and it is required",
        reason="audit",
        hint="free disk space or repair its folder, which the log of the host names; or set"
        " required = false in [audit]",
    )


def open_audit_log(settings: AuditSettings) -> AuditLog:
    """The audit log of a configuration."""
    return AuditLog(
        settings.path or default_folder(),
        required=settings.required,
        contents=cast("AuditContents", settings.contents),
        redact=settings.redact,
        heads=settings.heads or None,
    )


def default_folder() -> str:
    """The folder of a log that has no path."""
    from colonnade.client.auth import storage_folder  # on use

    return str(storage_folder() / "audit")


def _opener(heads: Store | str | os.PathLike[str]) -> OpenStore:
    """Opens the store of the heads; whether it is closed with the log."""
    if not isinstance(heads, str | os.PathLike):
        return lambda: (heads, None)
    path = os.path.abspath(heads)

    def open_file() -> tuple[Store, Callable[[], Awaitable[None]]]:
        from colonnade.store.sqlite import SqliteStore  # on use

        store = SqliteStore(path)
        return store, store.close

    return open_file


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as failure:  # of an exception class of the application
        return f"(cannot be shown: {type(failure).__name__})"


def _user_key() -> bytes:
    """The key of this user for digests; a random one if it cannot be stored."""
    from colonnade.client.auth import file_key, make_private_folder, storage_folder  # on use

    folder = storage_folder()
    try:
        make_private_folder(folder)
        return file_key(folder / "audit.key")
    except (OSError, ColonnadeError) as error:
        log.warning("digests of this run cannot be compared with others: %s", error)
        return secrets.token_bytes(32)
