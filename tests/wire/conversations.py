"""Every conversation: a revision on a wire, from beginning to end, and its golden transcript.

Rules: a conversation is recorded once, when it is first needed; all of HTTP share one server.
"""

import asyncio
import contextlib
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TextIO
from urllib.parse import urlsplit

from colonnade.protocol.revision import ALL, ChangeNotifications, HttpBinding, Revision
from wire.clients import TESTS, WAIT_S, Duplex, Pipe, WireClient
from wire.clients_http import Events, HttpClient, Posts
from wire.script import (
    CAN,
    EVERYTHING,
    MAIN,
    Step,
    able_to_do_everything,
    able_to_do_nothing,
    early,
    ending,
)
from wire.script_http import steps_for
from wire.transcript import JSON, Transcript

FOLDER = Path(__file__).resolve().parent / "goldens"
CONVERSATION_S = 120.0
# What is shown of a conversation that failed.
LAST_LINES = 60


class Conversation(NamedTuple):
    """A revision on a wire."""

    revision: Revision
    wire: str

    @property
    def name(self) -> str:
        return f"{self.revision.date}-{self.wire}"

    @property
    def golden(self) -> Path:
        return FOLDER / f"{self.name}.txt"


def _conversations() -> list[Conversation]:
    found: list[Conversation] = []
    for revision in ALL:
        found.append(Conversation(revision, "stdio"))
        if revision.http.binding is HttpBinding.HTTP_SSE:
            found.append(Conversation(revision, "sse"))
        # The first revision, too: deployed clients of it post to one path (D8).
        found.append(Conversation(revision, "http"))
    return found


CONVERSATIONS = _conversations()


@dataclass
class Recording:
    """The transcript of a conversation, and what the server logged meanwhile."""

    transcript: Transcript
    log: str


class WireServer:
    """The process that serves every conversation over HTTP, and their recordings."""

    def __init__(self, port: int, process: subprocess.Popen[str], log: Path) -> None:
        self.port = port
        self.process = process
        self.log = log
        self._recordings: dict[Conversation, Recording] = {}

    def recording(self, conversation: Conversation) -> Recording:
        """The recording of a conversation."""
        if conversation not in self._recordings:
            self._recordings[conversation] = asyncio.run(self._record(conversation))
        return self._recordings[conversation]

    async def _record(self, conversation: Conversation) -> Recording:
        transcript = Transcript(conversation.revision)
        before = self.log.stat().st_size
        with tempfile.TemporaryFile("w+") as own:
            try:
                async with asyncio.timeout(CONVERSATION_S):
                    await _run(conversation, transcript, self, own)
            except BaseException as error:
                error.add_note("\n".join(["so far:", *transcript.lines[-LAST_LINES:]]))
                raise
            if conversation.wire == "stdio":
                own.seek(0)
                return Recording(transcript, own.read())
        return Recording(transcript, self.log.read_bytes()[before:].decode())

    async def connect(
        self, conversation: Conversation, exits: contextlib.AsyncExitStack
    ) -> WireClient:
        """One more client over HTTP, until the stack is left."""
        client = await self.http_client(
            conversation, Transcript(conversation.revision), CAN[conversation.revision.date]
        )
        exits.push_async_callback(client.close)
        return client

    async def http_client(
        self, conversation: Conversation, transcript: Transcript, can: JSON
    ) -> HttpClient:
        """A client over HTTP, as the conversation needs it."""
        if conversation.wire == "sse":
            return await Events.start(transcript, conversation.revision, can, self.port)
        return Posts(transcript, conversation.revision, can, self.port)


@contextlib.contextmanager
def serving(folder: Path) -> Generator[WireServer]:
    """Serve over HTTP for as long as this is entered."""
    log = folder / "server.log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "wire.server", "http"],
            cwd=TESTS,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        assert process.stdout is not None
        port = urlsplit(process.stdout.readline().strip()).port
        assert port is not None, log.read_text()
        yield WireServer(port, process, log)
        process.terminate()
        assert process.wait(WAIT_S) == 0, log.read_text()
    finally:
        process.kill()
        process.wait(WAIT_S)
        if process.stdout is not None:
            process.stdout.close()


# ---------------------------------------------------------------- one conversation


async def _run(
    conversation: Conversation, transcript: Transcript, server: WireServer, log: TextIO
) -> None:
    def talking(can: JSON) -> contextlib.AbstractAsyncContextManager[WireClient]:
        return _connected(conversation, transcript, can, server, log)

    async with talking(CAN[conversation.revision.date]) as client:
        if isinstance(client, Duplex):
            await _run_step(client, early)
        for step in MAIN:
            await _run_step(client, step)
        for step in steps_for(client) if isinstance(client, HttpClient) else ():
            await _run_step(client, step)
        if (
            isinstance(client, Pipe)
            and client.revision.change_notifications is ChangeNotifications.LISTEN
        ):
            await _run_step(client, ending)
    for step, can in ((able_to_do_nothing, {}), (able_to_do_everything, EVERYTHING)):
        async with talking(can) as client:
            await _run_step(client, step)


async def _run_step(client: WireClient, step: Step) -> None:
    client.transcript.step(step.__doc__ or "")
    await step(client)


@contextlib.asynccontextmanager
async def _connected(
    conversation: Conversation, transcript: Transcript, can: JSON, server: WireServer, log: TextIO
) -> AsyncGenerator[WireClient]:
    transcript.step("A client comes")
    if conversation.wire == "stdio":
        client: WireClient = await Pipe.start(transcript, conversation.revision, can, log)
    else:
        client = await server.http_client(conversation, transcript, can)
    try:
        yield client
        transcript.step("It goes")
    finally:
        await client.close()
