"""The inbox: what waits for a person, one queue for each principal, in a store.

    inbox = Inbox(on_item=ask)                     # answered by a callback
    inbox = Inbox(SqliteStore(path), socket=True)  # by `colonnade inbox`; survives a restart

An item is an approval of a call, a form or a URL of a server, a sampling request or its result, the
roots that a server asks for, or definitions that are held. Callbacks, terminals and the control
socket answer all of them in the same way.

Rules: the first answer wins, by a swap in the store, and later ones get the answer that has won. An
answer is for the item as it was shown: its serial number is compared. Items, their bytes and the
time that they wait have limits. An item is never sent to the client whose call it belongs to.
"""

import asyncio
import contextlib
import hashlib
import inspect
import logging
import os
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from colonnade.client.input_callbacks import elicit_result
from colonnade.errors import ColonnadeError, ConnectionLost, Fault, InvalidArgument, Refused
from colonnade.ports import SERVER_PRINCIPAL, Store
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.elicitation import check_content
from colonnade.protocol.jsonrpc import encode

log: logging.Logger = logging.getLogger("colonnade.host")

# Open items of one principal: more than a person reads before the first of them expire.
MAX_ITEMS: Final = 64
# Of one item, with its answer: the arguments of a call with a document in them.
MAX_ITEM_BYTES: Final = 1024 * 1024
# Of all open items of one principal.
MAX_BYTES: Final = 8 * 1024 * 1024
# Records of one principal, with those that were answered: a page of names of the store.
MAX_RECORDS: Final = 1000
# How long an item waits: a person must find the window, read the item and decide.
DEADLINE_S: Final = 600.0
# How long an approval that was granted can be used by the identical call.
USABLE_S: Final = 600.0
# How long a call waits for its approval: as long as most clients wait for a response.
WAIT_S: Final = 120.0
# How long an answered item is kept, so that a second answer gets the first one.
ANSWERED_S: Final = 60.0
# How long an item of a call outlives its process, and how often it is renewed while that waits.
LEASE_S: Final = 30.0
RENEW_S: Final = 10.0
# For calls that are told to ask elsewhere: one step of the loop, and one of the store.
WITHDRAW_S: Final = 5.0
# After an error of the store, before it is listened to again.
RETRY_S: Final = 1.0

PREFIX: Final = "inbox/"
TOPIC: Final = "inbox"
ID_CHARACTERS: Final = 8
_KEY_CHARACTERS: Final = 32

# Items without a waiting call that callbacks have seen, so that they see each once.
MAX_SHOWN: Final = 1000

InboxKind: TypeAlias = Literal[
    "approval", "form", "url", "sampling", "sampling_result", "roots", "definitions"
]
ItemState: TypeAlias = Literal[
    "open", "accepted", "declined", "cancelled", "used", "expired", "withdrawn"
]
AnswerAction: TypeAlias = Literal["accept", "decline", "cancel"]
# Where a decision is remembered; empty for this call alone.
RememberScope: TypeAlias = Literal["", "session", "project", "always"]

_STATES: Final[dict[AnswerAction, ItemState]] = {
    "accept": "accepted",
    "decline": "declined",
    "cancel": "cancelled",
}


class InboxAnswer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to an item. `content` is JSON text: the content of a form, an edited sampling
    request or result, the roots that may be seen; empty for what is accepted as it is."""

    action: AnswerAction
    content: str = ""
    remember: RememberScope = ""


class InboxItem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One item. `content` is the exact JSON text of the arguments of a call, or of the params of an
    input request; `definition` that of the tool that is called, as the caller has seen it.

    `meta` are the unreserved keys of `_meta` that are sent with a call, as JSON text.
    `changes` says what is different from the last approval; `rule` is the rule that asked;
    `by_arguments` is whether its arguments decided that. `usable_until` is the end of a grant.
    """

    id: str
    key: str
    serial: str
    kind: InboxKind
    server: str
    created_at: float
    deadline: float
    content: str
    state: ItemState = "open"
    principal: str = ""
    client: str = ""
    identity: str = ""
    method: str = ""
    name: str = ""
    own_name: str = ""
    meta: str = ""
    definition: str = ""
    definition_digest: str = ""
    changes: tuple[str, ...] = ()
    rule: str = ""
    by_arguments: bool = False
    task: str = ""
    usable_until: float = 0.0
    answer: InboxAnswer | None = None
    answered_by: str = ""
    answered_at: float = 0.0

    @property
    def is_of_process(self) -> bool:
        """Whether only the process that waits for it can use the answer."""
        return self.kind not in ("approval", "definitions") and not self.task


class AnswerOutcome(NamedTuple):
    """Whether an answer has won, and the item as it is now; `why` is why it has not, if that is
    not its state."""

    won: bool
    item: InboxItem
    why: str = ""

    @property
    def sentence(self) -> str:
        """The outcome, for the person who answered."""
        item = self.item
        if self.why:
            return f"{item.id}: {self.why}"
        if self.won:
            return f"{item.id}: {item.state}"
        if item.state in ("expired", "withdrawn"):
            return f"{item.id}: too late, it is {item.state}"
        return f"{item.id}: already {_said(item)} by {item.answered_by or 'another answer'}"


def _said(item: InboxItem) -> str:
    return item.state if item.answer is None else _STATES[item.answer.action]


# Answers an item, now or later; None leaves it to others.
OnItem: TypeAlias = Callable[[InboxItem], InboxAnswer | Awaitable[InboxAnswer | None] | None]
OnItemChange: TypeAlias = Callable[[InboxItem], None]

CHANGED: Final = "it has changed since it was shown; look at it again"


class DefinitionAcceptor(Protocol):
    """The pins of a host, which accept what items of kind `definitions` show."""

    def has(self, item: InboxItem) -> bool:
        """Whether the definitions are of a server of this host."""
        ...

    async def accept(self, item: InboxItem) -> str:
        """Accept exactly what an item shows. Returns why it was not, empty if it was. Raises
        `ColonnadeError` if the store fails."""
        ...


_decoder = msgspec.json.Decoder(InboxItem)


def _decoded(value: bytes | None) -> InboxItem | None:
    if value is None:
        return None
    try:
        return _decoder.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        log.warning("an entry of the store is no item of an inbox; it is skipped")
        return None


def new_key(principal: str, match: bytes = b"") -> str:
    """The key of an item. Items with the same `match` are one; without it, each is different."""
    queue = hashlib.sha256(principal.encode("utf-8", "surrogatepass")).hexdigest()
    # Items of two principals have different ids, also for the same call.
    digest = hashlib.sha256(queue.encode() + (match or secrets.token_bytes(16))).hexdigest()
    return f"{PREFIX}{queue[:_KEY_CHARACTERS]}/{digest[:_KEY_CHARACTERS]}"


def new_item(
    kind: InboxKind, server: str, content: str, *, key: str, now: float, deadline_s: float
) -> InboxItem:
    """An item that waits from now on; the caller adds what it is about."""
    return InboxItem(
        id=key.rpartition("/")[2][:ID_CHARACTERS].upper(),
        key=key,
        serial=secrets.token_hex(8),
        kind=kind,
        server=server,
        created_at=now,
        deadline=now + deadline_s,
        content=content,
    )


def check_answer(item: InboxItem, answer: InboxAnswer) -> None:
    """Raise `InvalidArgument` for an answer that does not fit the item."""
    if answer.remember and item.kind not in ("approval", "roots"):
        raise InvalidArgument("only approvals and roots can be remembered", argument="remember")
    if answer.action != "accept" or not answer.content:
        if answer.action == "accept" and item.kind == "form":
            raise InvalidArgument("this form needs its content, as a JSON object")
        return
    try:
        if item.kind == "form":
            _check_form(item.content, answer.content)
        elif item.kind == "sampling":
            decode_as(t.CreateMessageRequestParams, msgspec.Raw(answer.content.encode()))
        elif item.kind == "sampling_result":
            decode_as(t.CreateMessageResult, msgspec.Raw(answer.content.encode()))
        elif item.kind == "roots":
            _check_roots(item.content, answer.content)
        else:
            raise InvalidArgument(f"an item of kind {item.kind!r} is answered without content")
    except Fault as fault:
        what = "" if item.kind == "form" else f"this does not fit the {item.kind}: "
        raise InvalidArgument(f"{what}{fault.message}") from None
    except UnicodeEncodeError:
        raise InvalidArgument("the answer is not Unicode text") from None


def _check_form(asked: str, given: str) -> None:
    params = decode_as(t.ElicitRequestParams, msgspec.Raw(asked.encode()))
    try:
        content: object = msgspec.json.decode(given)
    except (msgspec.DecodeError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise InvalidArgument("the content of a form is a JSON object")
    result = elicit_result(params, cast("dict[str, Any]", content))
    assert params.requested_schema is not None, "it is an item of kind `form`"
    check_content(params.requested_schema, result.content or {})


def _check_roots(asked: str, given: str) -> None:
    """The roots of an answer are some of those that were asked about."""
    all_roots = decode_as(t.ListRootsResult, msgspec.Raw(asked.encode())).roots
    chosen = decode_as(t.ListRootsResult, msgspec.Raw(given.encode())).roots
    if not {one.uri for one in chosen} <= {one.uri for one in all_roots}:
        raise InvalidArgument("an answer can only leave out roots, not add others")


class Inbox:
    """The items of all principals, and those who answer them.

    - `store` keeps the items: with one that other processes share, or that survives a restart, so
      do they. By default they are in memory.
    - `on_item` is called with each new item of this process, and returns an `InboxAnswer`, or None
      to leave it to others. `item.kind` says what it is: `definitions` are not a call.
    - `socket` is whether a host serves the control socket of `colonnade inbox` while it is entered.
    - `wait_s` is how long a call waits for its approval, `usable_s` how long the identical call can
      use one that was granted later, and `deadline_s` how long an item waits.
    - `clock` is the time of day in seconds, the same for all processes with this store.
    """

    def __init__(
        self,
        store: Store | None = None,
        *,
        on_item: OnItem | None = None,
        socket: bool = False,
        wait_s: float = WAIT_S,
        usable_s: float = USABLE_S,
        deadline_s: float = DEADLINE_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if store is None:
            from colonnade.store.memory import MemoryStore

            store = MemoryStore(clock=clock)
        if wait_s < 0 or usable_s <= 0 or deadline_s <= 0:
            raise InvalidArgument("wait_s is 0 or more; usable_s and deadline_s are more than 0")
        self.store: Store = store
        self.socket: bool = socket
        self.wait_s: float = wait_s
        self.usable_s: float = usable_s
        self.deadline_s: float = deadline_s
        self.clock: Callable[[], float] = clock
        self._answerers: dict[object, OnItem | None] = {}
        self._watchers: dict[object, OnItemChange] = {}
        self._acceptors: dict[object, DefinitionAcceptor] = {}
        # Serial numbers of posted items that callbacks have seen.
        self._shown: dict[str, None] = {}
        self._waiters: dict[str, set[asyncio.Event]] = {}
        # Set when one of them has ended.
        self._left = asyncio.Event()
        # Callbacks that have an item before them, by its serial number.
        self._asking: dict[asyncio.Task[None], str] = {}
        self._listener: asyncio.Task[None] | None = None
        # Items that are withdrawn at the end, because their answer is for a call of this process.
        self._own: dict[str, InboxItem] = {}
        if on_item is not None:
            self.attach(on_item)

    # ------------------------------------------------------------ who answers

    @property
    def has_approver(self) -> bool:
        """Whether a callback, a terminal or the control socket can answer now."""
        return bool(self._answerers)

    def attach(self, on_item: OnItem | None = None) -> Callable[[], None]:
        """Add one that answers, until the returned function is called: a callback, or with None a
        control socket, which reads and answers items by itself."""
        mark = object()
        self._answerers[mark] = on_item

        def detach() -> None:
            self._answerers.pop(mark, None)

        return detach

    def watch(self, callback: OnItemChange) -> Callable[[], None]:
        """Call a callback with each item that is new or has changed, as far as this process has
        heard of it, until the returned function is called."""
        mark = object()
        self._watchers[mark] = callback

        def unwatch() -> None:
            self._watchers.pop(mark, None)

        return unwatch

    def attach_pins(self, acceptor: DefinitionAcceptor) -> Callable[[], None]:
        """Add the pins of a host, until the returned function is called."""
        mark = object()
        self._acceptors[mark] = acceptor

        def detach() -> None:
            self._acceptors.pop(mark, None)

        return detach

    # ------------------------------------------------------------ items

    async def items(self, principal: str | None = None) -> list[InboxItem]:
        """The open items, the oldest first; those of one principal, if it is given."""
        prefix = PREFIX if principal is None else new_key(principal).rpartition("/")[0] + "/"
        found = await self._read_all(prefix)
        return sorted((one for one in found if one.state == "open"), key=lambda one: one.created_at)

    async def find(self, id: str, principal: str | None = None) -> InboxItem:
        """The item of an id, or of the beginning of one. Raises `InvalidArgument`."""
        wanted = id.strip().lower()
        prefix = PREFIX if principal is None else new_key(principal).rpartition("/")[0] + "/"
        fits = [
            one
            for one in await self._read_all(prefix)
            if wanted and one.key.rpartition("/")[2].startswith(wanted)
        ]
        if len(fits) != 1:
            problem = "there is no item" if not fits else "several items begin with"
            raise InvalidArgument(f"{problem} {id!r}", argument="id")
        return fits[0]

    async def _read_all(self, prefix: str) -> list[InboxItem]:
        found: list[InboxItem] = []
        after = ""
        while True:
            names = await self.store.names(SERVER_PRINCIPAL, prefix, after, MAX_RECORDS)
            for name in names:
                item = await self.read(name)
                if item is not None:
                    found.append(item)
            if len(names) < MAX_RECORDS:
                return found
            after = names[-1]

    async def read(self, key: str) -> InboxItem | None:
        """The item of a key as it is now, also one that is no longer open."""
        item = _decoded(await self.store.get(SERVER_PRINCIPAL, key))
        if item is not None and item.state == "open" and item.deadline <= self.clock():
            return replace(item, state="expired")
        return item

    async def open(self, item: InboxItem) -> InboxItem:
        """Add an item, or return the open one with the same key. Raises `Refused` if its principal
        has too many."""
        await self._check_room(item)
        while True:
            before = await self.store.get(SERVER_PRINCIPAL, item.key)
            there = _decoded(before)
            if there is not None and there.state == "open" and there.deadline > self.clock():
                if there.serial not in self._asking.values():  # of a process before this one
                    self._ask(there)
                return there
            if await self._put(item, before):
                break
        if item.is_of_process:
            self._own[item.serial] = item
        self._changed(item)
        self._ask(item)
        return item

    async def post(self, item: InboxItem) -> InboxItem:
        """Add an item that no call waits for. The one with its key stays if it has the same content
        and is open or was declined; otherwise it is replaced, so that an answer to what it showed
        is refused. Returns the one that is there. Raises `Refused` if there are too many."""
        await self._check_room(item)
        while True:
            before = await self.store.get(SERVER_PRINCIPAL, item.key)
            there = _decoded(before)
            if (
                there is not None
                and there.deadline > self.clock()
                and there.content == item.content
                and there.state in ("open", "declined")
            ):
                break
            if await self._put(item, before):
                if there is not None and there.state == "open":
                    self._changed(replace(there, state="withdrawn"))
                there = item
                self._changed(item)
                break
        if there.state == "open" and there.serial not in self._shown:
            self._shown[there.serial] = None
            if len(self._shown) > MAX_SHOWN:
                del self._shown[next(iter(self._shown))]
            self._ask(there)
        return there

    async def _check_room(self, item: InboxItem) -> None:
        size = len(encode(item))
        if size > MAX_ITEM_BYTES:
            words = f"{size} bytes; {MAX_ITEM_BYTES} at most"
            raise Refused(f"this is too large for the inbox: {words}")
        queue = item.key.rpartition("/")[0] + "/"
        # Definitions, which wait for days, take no room of what calls wait for.
        is_posted = item.kind == "definitions"
        every = await self._read_all(queue)
        records = [one for one in every if (one.kind == "definitions") is is_posted]
        waiting = [one for one in records if one.state == "open" and one.key != item.key]
        if len(waiting) >= MAX_ITEMS or len(records) >= MAX_RECORDS:
            raise Refused(f"the inbox is full: {len(waiting)} items wait; answer them first")
        if size + sum(len(one.content) + len(one.definition) for one in waiting) > MAX_BYTES:
            raise Refused(f"the inbox is full: its items have {MAX_BYTES} bytes; answer them first")

    async def _put(self, item: InboxItem, before: bytes | None) -> bool:
        kept_s = max(item.deadline - self.clock(), ANSWERED_S)
        if item.state != "open":
            kept_s = max(ANSWERED_S, item.usable_until - self.clock())
        elif self._is_leased(item):
            kept_s = LEASE_S
        return await self.store.swap(SERVER_PRINCIPAL, item.key, before, encode(item), kept_s)

    def _is_leased(self, item: InboxItem) -> bool:
        """Whether an item is renewed while its process waits, so that it goes with a process that
        was killed: other processes list the same store."""
        return item.is_of_process and self.store.is_shared

    async def _renew(self, item: InboxItem) -> None:
        """Keep an item that is still open for another while. One whose lease has ended, because
        this process was suspended, is there again."""
        before = await self.store.get(SERVER_PRINCIPAL, item.key)
        current = _decoded(before)
        if current is None or (current.serial == item.serial and current.state == "open"):
            await self._put(item, before)

    # ------------------------------------------------------------ answers

    async def answer(
        self,
        id: str,
        answer: InboxAnswer,
        *,
        serial: str = "",
        by: str = "",
        principal: str | None = None,
    ) -> AnswerOutcome:
        """Answer an item. `serial` is that of the item as it was shown, `by` says where the answer
        comes from. Raises `InvalidArgument` for an answer that does not fit, which changes
        nothing."""
        return await self._answer(await self.find(id, principal), answer, serial=serial, by=by)

    async def _answer(
        self, found: InboxItem, answer: InboxAnswer, *, serial: str, by: str
    ) -> AnswerOutcome:
        before = await self.store.get(SERVER_PRINCIPAL, found.key)
        item = _decoded(before)
        if item is None or serial not in ("", item.serial):
            is_newer = item is not None and item.state == "open" and item.kind == "definitions"
            expired = replace(found, state="expired")
            return AnswerOutcome(False, expired, CHANGED if is_newer else "")
        if item.state != "open" or item.deadline <= self.clock():
            return AnswerOutcome(False, await self.read(item.key) or found)
        check_answer(item, answer)
        acceptor = self._acceptor(item) if answer.action == "accept" else None
        now = self.clock()
        after = replace(
            item,
            state=_STATES[answer.action],
            answer=answer,
            answered_by=by,
            answered_at=now,
            usable_until=now + self.usable_s if item.kind == "approval" or item.task else 0.0,
        )
        if item.kind == "definitions":  # it is not asked about again
            after = replace(after, usable_until=item.deadline)
        if len(encode(after)) > 2 * MAX_ITEM_BYTES:
            raise InvalidArgument(f"the answer is too large; {MAX_ITEM_BYTES} bytes at most")
        if not await self._put(after, before):
            return AnswerOutcome(False, await self.read(item.key) or replace(item, state="expired"))
        self._changed(after)
        await self._publish(after)
        why = await acceptor.accept(after) if acceptor is not None else ""
        return AnswerOutcome(not why, after, why)

    def _acceptor(self, item: InboxItem) -> DefinitionAcceptor | None:
        """The pins that accept an item, if it has definitions. Raises `InvalidArgument` if they are
        of another host."""
        if item.kind != "definitions":
            return None
        for one in self._acceptors.values():
            if one.has(item):
                return one
        message = f"this host has no pins of server {item.server!r}; answer it in the one that has"
        raise InvalidArgument(message)

    async def use(self, item: InboxItem) -> bool:
        """Use an answer that was accepted, once in all processes; whether this was the first."""
        before = await self.store.get(SERVER_PRINCIPAL, item.key)
        current = _decoded(before)
        if current is None or current.serial != item.serial or current.state != "accepted":
            return False
        used = replace(current, state="used")
        if not await self._put(used, before):
            return False
        self._changed(used)
        return True

    async def withdraw(self, item: InboxItem) -> None:
        """End an item without an answer: its call has ended."""
        self._own.pop(item.serial, None)
        before = await self.store.get(SERVER_PRINCIPAL, item.key)
        current = _decoded(before)
        if current is None or current.serial != item.serial or current.state != "open":
            return
        gone = replace(current, state="withdrawn")
        if await self._put(gone, before):
            self._changed(gone)
            await self._publish(gone)

    async def withdraw_all(self) -> None:
        """End the items that calls of this process wait for, which are to ask elsewhere, and wait
        until they have heard of it."""
        with contextlib.suppress(ColonnadeError, TimeoutError):
            async with asyncio.timeout(WITHDRAW_S):
                while self._waiters:
                    for key in list(self._waiters):
                        item = await self.read(key)
                        if item is not None:
                            await self.withdraw(item)
                    self._left.clear()
                    if self._waiters:
                        await self._left.wait()

    # ------------------------------------------------------------ waiting

    async def wait(self, item: InboxItem, timeout_s: float | None = None) -> InboxItem:
        """Wait until an item is no longer open, for `timeout_s` at most, and no longer than its
        deadline; the item as it is then."""
        ends_at = item.deadline
        if timeout_s is not None:
            ends_at = min(ends_at, self.clock() + timeout_s)
        woken = asyncio.Event()
        self._waiters.setdefault(item.key, set()).add(woken)
        try:
            while True:
                woken.clear()
                if self._is_leased(item) and item.deadline > self.clock():
                    await self._renew(item)
                current = await self.read(item.key)
                if current is None or current.serial != item.serial:
                    return replace(item, state="expired")
                left_s = ends_at - self.clock()
                if current.state == "expired":
                    self._changed(current)
                if current.state != "open" or left_s <= 0:
                    return current
                self._listen()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(
                        min(left_s, RENEW_S) if self._is_leased(item) else left_s
                    ):
                        await woken.wait()
        finally:
            self._forget_waiter(item.key, woken)

    def is_waited_for(self, item: InboxItem) -> bool:
        """Whether a call of this process waits for an item."""
        return bool(self._waiters.get(item.key))

    def _forget_waiter(self, key: str, woken: asyncio.Event) -> None:
        waiters = self._waiters.get(key, set())
        waiters.discard(woken)
        self._left.set()
        if not waiters:
            self._waiters.pop(key, None)
        if not self._waiters and self._listener is not None:
            self._listener.cancel()
            self._listener = None

    def _changed(self, item: InboxItem) -> None:
        """Wake those who wait for an item, stop its callbacks, and call the watchers."""
        self._wake(item.key)
        if item.state != "open":
            self._own.pop(item.serial, None)
            for task, serial in list(self._asking.items()):
                if serial == item.serial and task is not asyncio.current_task():
                    task.cancel()
        for callback in list(self._watchers.values()):
            callback(item)

    def _wake(self, key: str) -> None:
        for woken in self._waiters.get(key, ()):
            woken.set()

    # ------------------------------------------------------------ other processes

    async def _publish(self, item: InboxItem) -> None:
        if self.store.is_shared:
            await self.store.publish(SERVER_PRINCIPAL, TOPIC, item.key.encode())

    def _listen(self) -> None:
        """Listen to answers in other processes, while something waits."""
        if self.store.is_shared and self._listener is None:
            self._listener = asyncio.get_running_loop().create_task(self._listen_until_cancelled())

    async def _listen_until_cancelled(self) -> None:
        while True:
            try:
                async with self.store.listen(SERVER_PRINCIPAL, TOPIC) as messages:
                    for key in list(self._waiters):  # answered before this was entered
                        self._wake(key)
                    async for message in messages:
                        await self._heard(message.decode("utf-8", "replace"))
            except ConnectionLost:
                continue
            except Exception as error:
                log.warning("the inbox cannot listen to its store: %s", error)
            await asyncio.sleep(RETRY_S)

    async def _heard(self, key: str) -> None:
        item = await self.read(key) if key in self._waiters else None
        if item is not None:
            self._changed(item)

    # ------------------------------------------------------------ callbacks

    def _ask(self, item: InboxItem) -> None:
        for on_item in list(self._answerers.values()):
            if on_item is not None:
                task = asyncio.get_running_loop().create_task(self._call_back(on_item, item))
                self._asking[task] = item.serial
                task.add_done_callback(self._asked)

    def _asked(self, task: "asyncio.Task[None]") -> None:
        self._asking.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a callback of the inbox failed; its item stays open", exc_info=error)

    async def _call_back(self, on_item: OnItem, item: InboxItem) -> None:
        returned = on_item(item)
        answer = await returned if inspect.isawaitable(returned) else returned
        if answer is not None:
            await self._answer(item, answer, serial=item.serial, by=_OWN_NAME)

    async def close(self) -> None:
        """Withdraw the items whose calls are of this process, and end the callbacks. Approvals
        stay: the identical call can still use them."""
        for item in list(self._own.values()):
            with contextlib.suppress(Refused, ConnectionLost):
                await self.withdraw(item)
        asking = [task for task in self._asking if task is not asyncio.current_task()]
        for task in asking:
            task.cancel()
        if asking:
            await asyncio.wait(asking)
        if self._listener is not None:
            self._listener.cancel()
            self._listener = None


_OWN_NAME: Final = f"this program (process {os.getpid()})"
