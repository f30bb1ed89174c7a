"""The load on stdio: lines made beforehand, raw reads and writes, all answers checked afterwards.

    rate = StdioLoad(process, ask, window=16).round(0.5)      # calls a second

So many requests are under way as the window says, no more and no fewer. Rules: nothing is encoded
or decoded while the clock runs, or the load would measure itself; a round with one wrong answer is
none; imports nothing of ours.
"""

import gc
import json
import os
import signal
import subprocess
import time

import msgspec

from benchmarks.wire import FIRST_ID, MODERN, Ask, Wrong, body, verify

# A server that says nothing for so long is broken, whatever the machine is doing.
PATIENCE_S = 60.0
# So many requests are kept as bytes; after the last one the first is sent again.
LINES = 100_000
# What is read from a pipe at once.
READ = 1 << 18


class Result(msgspec.Struct):
    content: msgspec.Raw


class Reply(msgspec.Struct):
    id: int
    result: Result


def _give_up(signum: int, frame: object) -> None:
    raise Wrong(f"no answer within {PATIENCE_S:.0f} s")


class StdioLoad:
    """A server as a child process, and the requests that it is sent."""

    def __init__(self, process: "subprocess.Popen[bytes]", ask: Ask, window: int) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._writing, self._reading = process.stdin.fileno(), process.stdout.fileno()
        self._ask, self._window = ask, window
        before, after = body(ask, MODERN)
        self._size = len(before) + len(b"%d" % FIRST_ID) + len(after) + 1
        self._blob = b"".join(
            before + b"%d" % number + after + b"\n"
            for number in [*range(FIRST_ID, FIRST_ID + LINES), *range(FIRST_ID, FIRST_ID + window)]
        )
        self._next = 0
        # Answered in the last round, with those that came after its end.
        self.calls = 0
        self._content: bytes | None = None
        signal.signal(signal.SIGALRM, _give_up)

    def round(self, seconds: float) -> float:
        """Ask for so long; how many answers came in a second."""
        read, write = os.read, os.write
        reading, writing, size, blob = self._reading, self._writing, self._size, self._blob
        at, sent, got = self._next, 0, 0
        pieces: list[bytes] = []
        gc.disable()
        signal.setitimer(signal.ITIMER_REAL, seconds + PATIENCE_S)
        try:
            begun = now = time.perf_counter()
            end = begun + seconds
            want = self._window
            while now < end:
                write(writing, blob[at * size : (at + want) * size])
                at = (at + want) % LINES
                sent += want
                piece = read(reading, READ)
                pieces.append(piece)
                want = piece.count(b"\n")
                got += want
                now = time.perf_counter()
                if not piece:
                    raise Wrong("the server has ended")
            rate = got / (now - begun)
            while got < sent and (piece := read(reading, READ)):
                pieces.append(piece)
                got += piece.count(b"\n")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            gc.enable()
        first, self._next, self.calls = self._next, at, sent
        self._check(b"".join(pieces), first, sent)
        return rate

    def _check(self, said: bytes, first: int, sent: int) -> None:
        """Every request was answered once, and with the right text."""
        lines = said.split(b"\n")[:-1]
        if self._content is None:
            answer = json.loads(lines[0])
            verify(self._ask, answer["id"], [answer])
            self._content = bytes(msgspec.json.decode(lines[0], type=Reply).result.content)
        decode = msgspec.json.Decoder(Reply).decode
        ids: list[int] = []
        for line in lines:
            reply = decode(line)
            ids.append(reply.id)
            if reply.result.content != self._content:
                verify(self._ask, reply.id, [json.loads(line)])
        wanted = [FIRST_ID + (first + nth) % LINES for nth in range(sent)]
        if sorted(ids) != sorted(wanted):
            raise Wrong(f"{len(ids)} answers to {sent} requests, or not to these")
