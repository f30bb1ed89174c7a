"""Every play: a revision on a wire, from the first word to the last, and its golden transcript.

Rules: a play is played once, by whoever asks first; the server over HTTP is one for all of them.
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
from wire.clients import TESTS, WAIT_S, Duplex, Pipe, Talk
from wire.clients_http import Events, Posts, Visitor
from wire.script import (
    CAN,
    EVERYTHING,
    MAIN,
    Scene,
    able_to_do_everything,
    able_to_do_nothing,
    early,
    ending,
)
from wire.script_http import scenes_for
from wire.transcript import JSON, Transcript

FOLDER = Path(__file__).resolve().parent / "goldens"
PLAY_S = 120.0
# What is shown of a play that failed.
LAST_LINES = 60


class Play(NamedTuple):
    """A revision on a wire."""

    revision: Revision
    wire: str

    @property
    def name(self) -> str:
        return f"{self.revision.date}-{self.wire}"

    @property
    def golden(self) -> Path:
        return FOLDER / f"{self.name}.txt"


def _plays() -> list[Play]:
    found: list[Play] = []
    for revision in ALL:
        found.append(Play(revision, "stdio"))
        if revision.http.binding is HttpBinding.HTTP_SSE:
            found.append(Play(revision, "sse"))
        # The first revision, too: deployed clients of it post to one path (D8).
        found.append(Play(revision, "http"))
    return found


PLAYS = _plays()


@dataclass
class Played:
    """What came of a play, and what the server wrote into its log meanwhile."""

    transcript: Transcript
    log: str


class Stand:
    """The process that serves every play over HTTP, and what was played on it."""

    def __init__(self, port: int, process: subprocess.Popen[str], log: Path) -> None:
        self.port = port
        self.process = process
        self.log = log
        self._played: dict[Play, Played] = {}

    def played(self, play: Play) -> Played:
        """A play, played."""
        if play not in self._played:
            self._played[play] = asyncio.run(self._play(play))
        return self._played[play]

    async def _play(self, play: Play) -> Played:
        transcript = Transcript(play.revision)
        before = self.log.stat().st_size
        with tempfile.TemporaryFile("w+") as own:
            try:
                async with asyncio.timeout(PLAY_S):
                    await _perform(play, transcript, self, own)
            except BaseException as error:
                error.add_note("\n".join(["so far:", *transcript.lines[-LAST_LINES:]]))
                raise
            if play.wire == "stdio":
                own.seek(0)
                return Played(transcript, own.read())
        return Played(transcript, self.log.read_bytes()[before:].decode())

    async def come(self, play: Play, exits: contextlib.AsyncExitStack) -> Talk:
        """One more client over HTTP, until the stack is left."""
        talk = await self.visitor(play, Transcript(play.revision), CAN[play.revision.date])
        exits.push_async_callback(talk.close)
        return talk

    async def visitor(self, play: Play, transcript: Transcript, can: JSON) -> Visitor:
        """A client over HTTP, in the way of the play."""
        if play.wire == "sse":
            return await Events.start(transcript, play.revision, can, self.port)
        return Posts(transcript, play.revision, can, self.port)


@contextlib.contextmanager
def standing(folder: Path) -> Generator[Stand]:
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
        yield Stand(port, process, log)
        process.terminate()
        assert process.wait(WAIT_S) == 0, log.read_text()
    finally:
        process.kill()
        process.wait(WAIT_S)
        if process.stdout is not None:
            process.stdout.close()


# ---------------------------------------------------------------- one play


async def _perform(play: Play, transcript: Transcript, stand: Stand, log: TextIO) -> None:
    def talking(can: JSON) -> contextlib.AbstractAsyncContextManager[Talk]:
        return _talking(play, transcript, can, stand, log)

    async with talking(CAN[play.revision.date]) as talk:
        if isinstance(talk, Duplex):
            await _act(talk, early)
        for scene in MAIN:
            await _act(talk, scene)
        for scene in scenes_for(talk) if isinstance(talk, Visitor) else ():
            await _act(talk, scene)
        if (
            isinstance(talk, Pipe)
            and talk.revision.change_notifications is ChangeNotifications.LISTEN
        ):
            await _act(talk, ending)
    for scene, can in ((able_to_do_nothing, {}), (able_to_do_everything, EVERYTHING)):
        async with talking(can) as talk:
            await _act(talk, scene)


async def _act(talk: Talk, scene: Scene) -> None:
    talk.transcript.scene(scene.__doc__ or "")
    await scene(talk)


@contextlib.asynccontextmanager
async def _talking(
    play: Play, transcript: Transcript, can: JSON, stand: Stand, log: TextIO
) -> AsyncGenerator[Talk]:
    transcript.scene("A client comes")
    if play.wire == "stdio":
        talk: Talk = await Pipe.start(transcript, play.revision, can, log)
    else:
        talk = await stand.visitor(play, transcript, can)
    try:
        yield talk
        transcript.scene("It goes")
    finally:
        await talk.close()
