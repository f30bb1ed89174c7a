"""The audit log of a host: what was proposed, decided and done, as append-only lines of JSON.

    async with Host(servers, audit=AuditLog("audit")) as host:
        await host.call_tool("files__read", {"path": "a.txt"})

Each run of a process writes files of its own in one folder, so processes never share a file; each
line has the digest of the line before it, and a run begins with those of the runs before it.
`audit_verify` reads them.

Rules: a line is never changed. What is recorded of a call is at the operating system before the
call is sent, and on the disk if the log is `required`; only then does a log that cannot be written
refuse calls. Otherwise events that cannot be written are counted, and the next line says how many.
Contents of requests and results are recorded only if they are configured, and error messages of
servers are contents.
"""

import asyncio
import logging
import os
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from typing import Any, Final, cast

from msgspec import Raw, Struct

from colonnade.errors import ColonnadeError, InvalidArgument, Refused, RemoteError
from colonnade.host.config.settings import AuditSettings
from colonnade.host.policy.audit_file import (
    FOLDER_MODE,
    MAX_FILE_BYTES,
    AuditFile,
    HeadKeeper,
    OpenStore,
    sync_and_close,
)
from colonnade.host.policy.audit_lines import (
    CONTENTS,
    MAX_SEARCHED,
    AuditContents,
    DigestKey,
    Redactor,
    members,
)
from colonnade.host.policy.request import Consent, Decision, PolicyRequest
from colonnade.ports import Store
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import encode

log: logging.Logger = logging.getLogger("colonnade.audit")

# Calls whose first members are kept until they end; of others they are encoded again.
MAX_OPEN_CALLS = 10_000
# Combinations of names whose members are kept encoded, and the characters of one.
MAX_KNOWN = 2048
MAX_CACHED = 2048
# What servers ask; their params are contents of another party.
INPUT_METHODS: Final = frozenset({"elicitation/create", "sampling/createMessage", "roots/list"})


class _OpenCall(Struct):
    """A call without an outcome: the members that all of its lines have, and when it began."""

    members: bytes
    began_ns: int


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
        self._redactor = Redactor(names, os.environ)
        # Here, not in the event loop: reading it takes milliseconds.
        self._key = DigestKey(key if key is not None else _user_key())
        self._clock = clock
        self._file = AuditFile(
            self.path, max_file_bytes, clock, self._describe, is_durable=required
        )
        self._lock = threading.RLock()
        self._open_calls: dict[str, _OpenCall] = {}
        self._known: dict[tuple[tuple[str, str], ...], bytes] = {}
        self._count = 0
        self._is_scheduled = False
        self._sync: asyncio.Task[None] | None = None
        self._heads = HeadKeeper(_opener(heads), self._file) if heads is not None else None

    def __repr__(self) -> str:
        return f"<AuditLog {self.path}>"

    # ------------------------------------------------------------ events

    def proposed(self, request: PolicyRequest) -> str:
        """A request has arrived; returns its id."""
        with self._lock:
            self._prepare()
            self._count += 1
            call = f"{self._file.chain.run}-{self._count}"
        began_ns = self._clock()
        common = self._members(call, request)
        if len(self._open_calls) >= MAX_OPEN_CALLS:
            self._open_calls.pop(next(iter(self._open_calls)), None)
        self._open_calls[call] = _OpenCall(common, began_ns)
        body = b'"event":"proposed",%b,%b' % (
            common,
            self._cached(
                revision=request.revision,
                kind=request.kind,
                identity=request.identity,
                definition=request.definition_digest,
            ),
        )
        if request.during:
            body += b',"during":"%b"' % request.during.encode()
        if request.arguments:
            records = "all" if request.method in INPUT_METHODS else "arguments"
            arguments = self._described(bytes(request.arguments), records)
            body = b'%b,"arguments":%b' % (body, arguments)
        self._append(body, began_ns)
        return call

    def decided(self, call: str, request: PolicyRequest, decision: Decision) -> None:
        """The rules have decided."""
        # Its reason may quote the arguments that it matched, and those are contents.
        fields = self._cached(
            action=decision.action, rule=decision.rule, policy=decision.policy_version
        )
        self._event(b"decided", call, request, fields)

    def asked(self, call: str, request: PolicyRequest, decision: Decision) -> None:
        """A person is about to be asked."""
        self._event(b"asked", call, request, self._cached(rule=decision.rule))

    def answered(
        self, call: str, request: PolicyRequest, consent: Consent | None, why: str
    ) -> None:
        """A person, or a remembered rule, has answered; None is a refusal, and `why` its reason."""
        if consent is None:
            fields = {"action": "deny", "reason": self._redactor.message(why)}
        else:
            name = self._redactor.name
            fields = {"action": "allow", "approval": name(consent.approval), "by": name(consent.by)}
            if consent.rule:
                fields["rule"] = name(consent.rule)
        self._event(b"answered", call, request, members(fields))

    def executed(self, call: str, request: PolicyRequest, revision: str) -> Awaitable[None] | None:
        """The request is about to be sent; `revision` is the one of the server.

        Await what is returned before it is sent, if it is not None. Raises `Refused`, or the
        awaitable does, if the log is required and cannot be written.
        """
        self._event(b"executed", call, request, self._cached(server_revision=revision))
        failure = self.flush()
        if not self.required:
            return None
        if failure is not None:
            raise _not_recorded(failure)
        return self._on_disk()

    def returned(self, call: str, request: PolicyRequest, result: t.ProtocolType | Raw) -> None:
        """There is a result, as the server sent it."""
        raw = bytes(result) if isinstance(result, Raw) else encode(result)
        is_error = b"true" if getattr(result, "is_error", None) else b"false"
        fields = b'"is_error":%b' % is_error
        if raw:  # the roots of a server are in the configuration
            fields += b',"result":%b' % self._described(raw, "all")
        self._ended(b"returned", call, request, fields)

    def became_task(self, call: str, request: PolicyRequest, handle: str) -> None:
        """The call has become a task of its server; `handle` stands for it."""
        # A handle gives access to the result, so it is not in the log.
        fields = b'"task":"%b"' % self._key.digest(handle.encode()).encode()
        self._event(b"task", call, request, fields)

    def abandoned(self, call: str, request: PolicyRequest, error: BaseException) -> None:
        """It ended without a result: refused, an error, cancelled."""
        fields = self._cached(error=type(error).__name__)
        if isinstance(error, RemoteError):
            fields += b',"code":%d' % error.code
        message = _message(error)
        if message:
            # Servers and clients write error messages, too.
            described = self._described(encode(message[:MAX_SEARCHED]), "all")
            fields += b',"message":%b' % described
        was_cancelled = isinstance(error, asyncio.CancelledError | GeneratorExit)
        self._ended(b"abandoned" if was_cancelled else b"failed", call, request, fields)

    def _event(self, event: bytes, call: str, request: PolicyRequest, fields: bytes) -> None:
        kept = self._open_calls.get(call)
        common = kept.members if kept is not None else self._members(call, request)
        body = b'"event":"%b",%b,%b' % (event, common, fields)
        self._append(body, self._clock())

    def _ended(self, event: bytes, call: str, request: PolicyRequest, fields: bytes) -> None:
        kept = self._open_calls.get(call)
        if kept is not None:
            micros = max(self._clock() - kept.began_ns, 0) // 1000
            fields = b'%b,"duration_us":%d' % (fields, micros)
        self._event(event, call, request, fields)
        self._open_calls.pop(call, None)

    # ------------------------------------------------------------ members

    def _members(self, call: str, request: PolicyRequest) -> bytes:
        """What all lines of a call have."""
        return b'"call":"%b",%b' % (
            call.encode(),
            self._cached(
                principal=request.principal,
                client=request.client,
                server=request.server,
                method=request.method,
                name=request.name,
            ),
        )

    def _cached(self, **fields: str) -> bytes:
        """Names as members, redacted and truncated: the same ones are in many lines."""
        key = tuple(fields.items())
        found = self._known.get(key)
        if found is None:
            name = self._redactor.name
            found = members({field: name(text) for field, text in key})
            if sum(map(len, fields.values())) <= MAX_CACHED:
                if len(self._known) >= MAX_KNOWN:
                    self._known.clear()
                self._known[key] = found
        return found

    def _described(self, raw: bytes, records: AuditContents) -> bytes:
        """The digest and the size of contents, and the contents themselves if these, and those that
        need less, are recorded."""
        digest, size = self._key.digest(raw).encode(), len(raw)
        if CONTENTS.index(self.contents) < CONTENTS.index(records):
            return b'{"digest":"%b","bytes":%d}' % (digest, size)
        content = encode(self._redactor.content(raw))
        return b'{"digest":"%b","bytes":%d,"content":%b}' % (digest, size, content)

    def _describe(self) -> dict[str, Any]:
        """What the head of each file says of this log."""
        return {"contents": self.contents, "required": self.required, "key": self._key.id}

    # ------------------------------------------------------------ writing

    def _prepare(self) -> None:
        """Begin another run in a process that was forked: it has the open file of its parent."""
        if self._file.prepare():
            self._is_scheduled, self._sync = False, None
            self._open_calls.clear()
            if self._heads is not None:
                self._heads.forget()

    def _append(self, body: bytes, time_ns: int) -> None:
        with self._lock:
            self._prepare()
            self._file.append(body, time_ns)
            if self._is_scheduled:
                return
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                self._file.flush()
                return
            self._is_scheduled = True
            loop.call_soon(self._flush_scheduled)
            if self._heads is not None:
                self._heads.start(loop)

    def _flush_scheduled(self) -> None:
        self._is_scheduled = False
        self.flush()

    def flush(self) -> OSError | None:
        """Write what waits; returns why it could not be written."""
        with self._lock:
            return self._file.flush()

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
        with self._lock:
            last = self._file.close()
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


def _not_recorded(error: OSError) -> Refused:
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
    from colonnade.client.auth import file_key, storage_folder  # on use

    folder = storage_folder()
    try:
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        return file_key(folder / "audit.key")
    except (OSError, ColonnadeError) as error:
        log.warning("digests of this run cannot be compared with others: %s", error)
        return secrets.token_bytes(32)
