"""The tasks that `colonnade call` and `colonnade chat` have started, kept in files of the user
until their result was printed.

Rules: a record has the target and the handle, never arguments, headers, environment variables or
results. Only the user can read it.
"""

import asyncio
import contextlib
import hashlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from colonnade.cli.errors import USAGE, CliError
from colonnade.cli.options import ConnectionOptions
from colonnade.cli.terminal import Terminal
from colonnade.client.auth import storage_folder, write_private
from colonnade.client.results import ToolResult
from colonnade.errors import ChannelError, ColonnadeError, InvalidArgument
from colonnade.protocol.tasks.client import TaskHandle
from colonnade.text import clean, cut

if TYPE_CHECKING:  # a command for a single server needs no host
    from colonnade.client.tasks.task import ClientTask
    from colonnade.host.tasks import HostTask

FOLDER = "tasks"
# The store of the tasks of all chats, which is created for the first of them.
CHAT_FILE = "chat.db"
ID_CHARACTERS = 8
MAX_SHOWN = 60


class KeptTask(Struct, frozen=True, omit_defaults=True):
    """A task, and how to connect to its server again. `folder` is where the command was run;
    `chat_server` is the key of the server if `colonnade chat` has started the task."""

    id: str
    handle: str
    tool: str
    target: str | tuple[str, ...]
    folder: str
    created_at: float
    revision: str = ""
    chat_server: str = ""

    @property
    def is_remote(self) -> bool:
        """Whether its server runs without this command, as far as the target shows."""
        return isinstance(self.target, str) and "://" in self.target

    @property
    def shown_target(self) -> str:
        """The target, as it is typed; a URL without its query and user, which may be secret."""
        if self.chat_server:
            return f"colonnade chat, server {self.chat_server}"
        if not isinstance(self.target, str):
            return "-- " + " ".join(self.target)
        if "://" in self.target:
            from colonnade.cli.options import display_url

            return display_url(self.target)
        return self.target or "the configuration of its folder"


_decoder = msgspec.json.Decoder(KeptTask)


def _folder() -> Path:
    return storage_folder() / FOLDER


def keep_task(handle: str, tool: str, options: ConnectionOptions) -> KeptTask:
    """Keep a task that was started. Raises `CliError` if that is not possible."""
    id = hashlib.sha256(handle.encode()).hexdigest()[:ID_CHARACTERS]
    kept = KeptTask(
        id, handle, tool, options.target, os.getcwd(), time.time(), revision=options.revision
    )
    folder = _folder()
    try:
        write_private(folder / f"{id}.json", msgspec.json.encode(kept))
    except OSError as error:
        raise CliError(f"the task cannot be kept in {folder}: {error.strerror}") from None
    return kept


def forget_task(kept: KeptTask) -> None:
    """Delete the record of a task; the task itself is not changed."""
    with contextlib.suppress(OSError):
        (_folder() / f"{kept.id}.json").unlink()


def kept_tasks() -> list[KeptTask]:
    """All records, the oldest first. What cannot be read is skipped."""
    found: list[KeptTask] = []
    with contextlib.suppress(FileNotFoundError):
        for path in _folder().glob("*.json"):
            with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
                found.append(_decoder.decode(path.read_bytes()))
    return sorted(found, key=lambda one: one.created_at)


def chat_tasks() -> list[KeptTask]:
    """The tasks that chats have started and not read the result of, the oldest first."""
    path = storage_folder() / CHAT_FILE
    if not path.exists():
        return []
    from colonnade.host.tasks import HostTaskRecord, HostTaskRecords
    from colonnade.store.sqlite import SqliteStore

    async def read() -> list[HostTaskRecord]:
        store = SqliteStore(path)
        try:
            return await HostTaskRecords(store).list()
        finally:
            await store.close()

    return [
        KeptTask(one.id, one.handle, one.tool, "", "", one.created_at, chat_server=one.server)
        for one in asyncio.run(read())
    ]


def find_task(id: str) -> KeptTask:
    """The task of an id, of the beginning of one, or of a handle. Raises `CliError`."""
    tasks = kept_tasks()
    for one in chat_tasks():
        if id == one.id:
            raise CliError(
                f"colonnade chat has started {id}", USAGE, hint=f"type /tasks {id} in a chat"
            )
    for one in tasks:
        if id in (one.id, one.handle):
            return one
    fits = [one for one in tasks if id and one.id.startswith(id)]
    if len(fits) == 1:
        return fits[0]
    if fits:
        raise CliError(f"{clean(id)} is the beginning of several tasks", USAGE)
    try:
        handle = TaskHandle.decode(id)
    except InvalidArgument:
        raise CliError(
            f"there is no task {cut(clean(id), MAX_SHOWN)}",
            USAGE,
            hint="colonnade tasks ls lists those that colonnade call has started",
        ) from None
    if "://" not in handle.server or "?" in handle.server:
        raise CliError(
            "this handle does not name a URL", USAGE, hint="resume it where it was started"
        )
    short = hashlib.sha256(id.encode()).hexdigest()[:ID_CHARACTERS]
    return KeptTask(short, id, handle.tool, handle.server, os.getcwd(), time.time())


async def wait_for_task(
    task: "ClientTask | HostTask", kept: KeptTask, terminal: Terminal
) -> ToolResult[Any]:
    """Wait for a task. If the wait is interrupted, the task goes on, and how to find it again is
    printed."""
    try:
        result = await task.result()
    except (asyncio.CancelledError, ChannelError):
        terminal.clear()
        words = "the task goes on" if kept.is_remote else "its server may go on with the task"
        words = f"{words}; wait for it with: colonnade tasks wait {kept.id}"
        terminal.note(f"colonnade: {words}\ncolonnade: its handle is {clean(kept.handle)}\n")
        raise
    except ColonnadeError:
        forget_task(kept)
        raise
    forget_task(kept)
    return result
