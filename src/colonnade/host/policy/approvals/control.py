"""The control socket of an inbox, and its client: how `colonnade inbox` reaches hosts.

Each host has a Unix domain socket of its own in one folder of the user. A message is one line of
JSON; a response has one line, and `watch` gets a line for each change.

Rules: only the user of the host can use its socket: the folder is of that user and closed to all
others, and both ends compare the user of the other. Messages, connections and the time for a
message have limits. A socket whose process is gone is removed, never one whose process runs.
"""

import asyncio
import contextlib
import hashlib
import logging
import os
import secrets
import socket
import stat
import struct
import sys
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from colonnade.errors import CannotConnect, ColonnadeError, ConnectionLost, Refused
from colonnade.host.policy.approvals.inbox import MAX_ITEM_BYTES, Inbox, InboxAnswer, InboxItem
from colonnade.host.policy.approvals.remembered import RememberedRule, RememberedRules

log: logging.Logger = logging.getLogger("colonnade.host")

# An item with its answer, whose quotes and control characters are escaped.
MAX_LINE_BYTES: Final = 8 * MAX_ITEM_BYTES
# Of the name that an answer gives for where it comes from.
MAX_NAME: Final = 200
# Terminals and pages of one user.
MAX_CONNECTIONS: Final = 16
# For a connection that does not read its responses.
WRITE_S: Final = 30.0
# For the next request: a connection that sends none must not keep others out.
REQUEST_S: Final = 60.0
# For a response of a host, which is on this machine.
RESPONSE_S: Final = 30.0
# In a list: items, and characters of the content of each; `show` has all of one.
MAX_LISTED: Final = 500
MAX_LISTED_CHARACTERS: Final = 2000
# The longest path of a socket: 104 bytes on macOS, 108 on Linux, with a NUL.
MAX_PATH_BYTES: Final = 103

FOLDER: Final = "run"
SUFFIX: Final = ".sock"
_OWN_SOCKET: Final = 0o600
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class ControlRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message to a host. `rules` and `forget` are about the decisions that its session
    remembers."""

    do: Literal["list", "show", "answer", "watch", "rules", "forget"]
    id: str = ""
    serial: str = ""
    answer: InboxAnswer | None = None
    by: str = ""


class ControlResponse(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message of a host. `won` is whether an answer was the first, or a rule was removed;
    `left_off` is how many items a list has beyond those that it shows; `rules` are remembered
    decisions, of an answer the one that it has made."""

    error: str = ""
    name: str = ""
    pid: int = 0
    items: tuple[InboxItem, ...] = ()
    left_off: int = 0
    won: bool = False
    sentence: str = ""
    rules: tuple[RememberedRule, ...] = ()


# ---------------------------------------------------------------- the folder


def control_folder() -> Path:
    """The folder of the sockets of this user."""
    from colonnade.client.auth import HOME_VARIABLE, storage_folder

    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if _is_own_runtime(runtime) and not os.environ.get(HOME_VARIABLE):
        folder = Path(runtime) / "colonnade"
    else:
        folder = storage_folder() / FOLDER
    longest = len(os.fsencode(folder)) + len("/4194304-0000") + len(SUFFIX)
    if longest > MAX_PATH_BYTES:
        short = hashlib.sha256(os.fsencode(folder)).hexdigest()[:8]
        folder = Path(tempfile.gettempdir()) / f"colonnade-{_own_uid()}-{short}"
    return folder


def _is_own_runtime(folder: str) -> bool:
    """Whether a runtime folder can be used: a relative path is invalid (XDG Base Directory), and
    `sudo` may leave that of another user."""
    if not os.path.isabs(folder):
        return False
    try:
        return os.stat(folder).st_uid == _own_uid()
    except OSError:
        return True  # it says so where the folder is made


def _own_uid() -> int:
    return os.getuid() if sys.platform != "win32" else 0


def check_folder(folder: Path) -> None:
    """Raise `Refused` for a folder that another user could use."""
    seen = folder.lstat()
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != _own_uid() or seen.st_mode & _OTHERS:
        raise Refused(
            f"{folder} must be a folder of this user that is closed to others",
            hint=f"remove it, or run `chmod 700 {folder}`",
        )


def make_folder(folder: Path) -> None:
    """Make the folder. Raises `Refused`."""
    from colonnade.client.auth import make_private_folder  # on use

    try:
        make_private_folder(folder)
    except OSError as error:
        raise Refused(f"cannot create {folder}: {error.strerror}") from None
    check_folder(folder)


def peer_uid(connection: socket.socket) -> int | None:
    """The user of the process at the other end; None if the platform does not say."""
    if sys.platform == "linux":
        size = struct.calcsize("3i")
        _, uid, _ = struct.unpack(
            "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        )
        return uid
    if sys.platform == "darwin":
        # LOCAL_PEERCRED of SOL_LOCAL: struct xucred, with its version and the user first.
        _, uid = struct.unpack_from("=Ii", connection.getsockopt(0, 1, 76))
        return uid
    return None


def is_own_user(uid: int | None) -> bool:
    """Whether a connection may use the socket. The folder alone decides if the platform does not
    say whose connection it is."""
    return uid is None or uid == _own_uid()


# ---------------------------------------------------------------- server


class ControlServer:
    """Serves the control socket of an inbox while it is entered. `name` says which host it is."""

    def __init__(
        self,
        inbox: Inbox,
        remembered: RememberedRules | None = None,
        *,
        name: str = "",
        folder: Path | None = None,
    ) -> None:
        self._inbox = inbox
        self._remembered = remembered
        self._name = name or os.path.basename(sys.argv[0] or "python")
        self._folder = folder
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._stack = contextlib.ExitStack()
        self.path: Path | None = None

    async def __aenter__(self) -> "ControlServer":
        if not hasattr(asyncio, "start_unix_server"):
            raise Refused("there is no control socket on this platform; pass Inbox(on_item=…)")
        folder = self._folder or control_folder()
        make_folder(folder)
        path = folder / f"{os.getpid()}-{secrets.token_hex(2)}{SUFFIX}"
        try:
            self._server = await asyncio.start_unix_server(
                self._connected, str(path), limit=MAX_LINE_BYTES
            )
        except OSError as error:
            raise Refused(f"cannot open the socket {path}: {error.strerror or error}") from None
        self._stack.callback(_unlink, path)
        path.chmod(_OWN_SOCKET)
        self.path = path
        self._stack.callback(self._inbox.attach())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stack.close()
        if self._server is not None:
            self._server.close()
        connections = dict(self._connections)
        for task in connections:
            task.cancel()
        if connections:
            await asyncio.wait(connections)
        for writer in connections.values():  # also of a task that was cancelled before it began
            await _close(writer)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        if not is_own_user(peer_uid(connection)) or len(self._connections) >= MAX_CONNECTIONS:
            log.warning("a connection to the control socket was refused")
            writer.close()
            return
        task = asyncio.get_running_loop().create_task(self._run(reader, writer))
        self._connections[task] = writer
        task.add_done_callback(lambda done: self._connections.pop(done, None))

    async def _run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._serve(reader, writer)
        except (ConnectionError, TimeoutError, ValueError):  # gone, or a line that is too long
            pass
        except asyncio.CancelledError:  # the server is closed
            pass
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await _next_line(reader):
            try:
                request = msgspec.json.decode(line, type=ControlRequest)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                await _write(writer, ControlResponse(error="this is not a request"))
                return
            if request.do == "watch":
                await self._watch(reader, writer)
                return
            await _write(writer, await self._respond(request))

    async def _respond(self, request: ControlRequest) -> ControlResponse:
        try:
            response = await self._do(request)
        except ColonnadeError as error:
            response = ControlResponse(error=error.sentence)
        return replace(response, name=self._name, pid=os.getpid())

    async def _do(self, request: ControlRequest) -> ControlResponse:
        inbox, remembered = self._inbox, self._remembered
        if request.do == "show":
            return ControlResponse(items=(await inbox.find(request.id),))
        if request.do == "answer" and request.answer is not None:
            outcome = await inbox.answer(
                request.id, request.answer, serial=request.serial, by=request.by[:MAX_NAME]
            )
            made = None
            if outcome.won and remembered is not None:
                made = remembered.made_by(outcome.item)
            return ControlResponse(
                items=(outcome.item,),
                won=outcome.won,
                sentence=outcome.sentence,
                rules=(made,) if made is not None else (),
            )
        if request.do == "rules":
            rules = remembered.list() if remembered is not None else []
            return ControlResponse(rules=tuple(one for one in rules if one.scope == "session"))
        if request.do == "forget":
            return ControlResponse(won=remembered is not None and remembered.remove(request.id))
        items = await inbox.items()
        shown = tuple(map(_brief, items[:MAX_LISTED]))
        return ControlResponse(items=shown, left_off=len(items) - len(shown))

    async def _watch(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Write a line at each change, until the other end closes."""
        changed = asyncio.Event()
        changed.set()
        unwatch = self._inbox.watch(lambda _: changed.set())
        ended = asyncio.ensure_future(reader.read(1))
        ended.add_done_callback(lambda _: changed.set())
        try:
            while not ended.done():
                await changed.wait()
                changed.clear()
                await _write(writer, ControlResponse(name=self._name, pid=os.getpid()))
        finally:
            unwatch()
            ended.cancel()


async def _next_line(reader: asyncio.StreamReader) -> bytes:
    """The next request; empty at the end. Raises `TimeoutError` and `ValueError`."""
    async with asyncio.timeout(REQUEST_S):
        return await reader.readline()


def _brief(item: InboxItem) -> InboxItem:
    """An item in a list, with the beginning of its content."""
    content, meta = item.content[:MAX_LISTED_CHARACTERS], item.meta[:MAX_LISTED_CHARACTERS]
    return replace(item, content=content, meta=meta, definition="")


async def _write(writer: asyncio.StreamWriter, message: Struct) -> None:
    writer.write(msgspec.json.encode(message) + b"\n")
    async with asyncio.timeout(WRITE_S):
        await writer.drain()


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(WRITE_S):
            await writer.wait_closed()


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


# ---------------------------------------------------------------- client


class ControlClient:
    """A connection to the control socket of one host. Enter it to connect."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> "ControlClient":
        check_folder(self.path.parent)
        try:
            self._reader, self._writer = await asyncio.open_unix_connection(
                str(self.path), limit=MAX_LINE_BYTES
            )
        except OSError as error:
            raise CannotConnect(f"cannot connect to {self.path}: {error.strerror}") from error
        if not is_own_user(peer_uid(self._writer.get_extra_info("socket"))):
            await _close(self._writer)
            raise Refused(f"{self.path} is the socket of another user", hint="do not answer there")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._writer is not None:
            await _close(self._writer)

    async def request(self, request: ControlRequest) -> ControlResponse:
        """The response to a request. Raises `Refused` for an error of the host, and
        `ConnectionLost` if it is gone."""
        assert self._writer is not None, "enter it first"
        try:
            await _write(self._writer, request)
            async with asyncio.timeout(RESPONSE_S):
                response = await self._read()
        except (OSError, TimeoutError) as error:
            raise ConnectionLost(f"the host of {self.path.name} does not respond") from error
        if response is None:
            raise ConnectionLost(f"the host of {self.path.name} has closed its socket")
        if response.error:
            raise Refused(response.error)
        return response

    async def changes(self) -> AsyncGenerator[None]:
        """One value at the beginning and after each change, until the host is gone. Nothing else
        can be requested on this connection."""
        assert self._writer is not None, "enter it first"
        await _write(self._writer, ControlRequest(do="watch"))
        with contextlib.suppress(OSError):
            while await self._read() is not None:
                yield

    async def _read(self) -> ControlResponse | None:
        assert self._reader is not None, "enter it first"
        try:
            line = await self._reader.readline()
            return msgspec.json.decode(line, type=ControlResponse) if line else None
        except (ValueError, msgspec.MsgspecError) as error:
            raise ConnectionLost(
                f"the host of {self.path.name} sent an invalid response"
            ) from error


async def find_sockets(folder: Path | None = None) -> list[Path]:
    """The sockets of all hosts of this user that run. Those of processes that are gone are
    removed. Raises `Refused` if another user could have made them."""
    folder = folder or control_folder()
    if not folder.exists():
        return []
    check_folder(folder)
    found: list[Path] = []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            async with ControlClient(path):
                found.append(path)
        except CannotConnect:
            if not _runs(path):
                _unlink(path)
    return found


def _runs(path: Path) -> bool:
    """Whether the process that a socket is named after exists."""
    number = path.name.partition("-")[0]
    if not number.isdecimal():
        return True  # it is not one of ours
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
