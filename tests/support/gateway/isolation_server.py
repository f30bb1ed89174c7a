"""A server that elicits, logs, reports progress and remembers, and looks at each byte it receives.

    python isolation_server.py stdio FOLDER
    python isolation_server.py old|new FOLDER

This is a server behind the gateway of `isolation.py`. What a connection has said is remembered, in
the environment of the process as well, and is part of every result: a conversation that two clients
share shows. In FOLDER are the inbound tokens, which must not be received, and the file for findings.

Rules: each byte is looked at before the server reads it. A finding is written at once.
"""

import asyncio
import contextlib
import os
import re
import sys
import threading
from pathlib import Path
from weakref import WeakKeyDictionary

from colonnade import Context, Server
from colonnade.errors import Declined
from colonnade.ports import Session
from colonnade.transport.http_server.request import Limits
from colonnade.transport.http_server.runner import HttpRunner

CANARY = re.compile(rb"cnry[0-9a-f]{16}")
# Runs of characters that a token, or a part of one, could be.
RUN = re.compile(rb"[A-Za-z0-9_\-]{40,}")
READ_BYTES = 65536
# The longest part of a token that could be cut by the end of a read.
TAIL = 600
REMEMBERED = "ISOLATION_REMEMBERED"


class Findings:
    """The tokens that must not be seen, and the file for what was found."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "findings.txt"
        self._counts = folder / "received.txt"
        parts = (folder / "tokens.txt").read_bytes().split()
        # The head is the same in all of them; payloads and signatures are not.
        self._parts = {part for token in parts for part in token.split(b".")[1:]}
        self._heads = {token.split(b".")[0] for token in parts}
        self.received = 0

    def report(self, words: str) -> None:
        with self._path.open("a") as file:
            file.write(words + "\n")

    def count(self) -> None:
        with self._counts.open("a") as file:
            file.write(f"{self.received}\n")

    def has_token(self, data: bytes) -> bool:
        """Whether there is a token, its payload or its signature in some bytes."""
        if any(head in data for head in self._heads):
            return True
        return any(part in self._parts for run in RUN.findall(data) for part in run.split(b"."))

    def look(self, tail: bytes, data: bytes, where: str) -> bytes:
        """Look at what was received; what the next bytes are to be looked at with."""
        self.received += len(data)
        both = tail + data
        if self.has_token(both):
            self.report(f"{where} received an inbound token")
        return both[-TAIL:]


def make_server(findings: Findings, where: str, *, remembers: bool) -> Server:
    server = Server(where)
    # What each session has said; a process on stdio has one.
    said: WeakKeyDictionary[Session, set[str]] = WeakKeyDictionary()

    @server.tool
    async def work(canary: str, number: int, lines: int, ask: bool, ctx: Context) -> str:
        """Logs and reports, asks, and returns what it was told."""
        for line in range(lines):
            await ctx.info(f"{canary} log {number}.{line}")
            await ctx.progress(line + 1, lines, f"{canary} step {number}.{line}")
        answer = "nothing"
        if ask:
            try:
                answer = await ctx.elicit(f"{canary} form {number}", str)
            except Declined as no:
                answer = no.action
            else:
                if answer != f"{canary} answer {number}":
                    findings.report(f"{where}: {canary} form {number} was answered {answer!r}")
        known: set[str] = set()
        if remembers:
            assert ctx.session is not None
            known = said.setdefault(ctx.session, set())
            known.add(canary)
            if where == "pipe":  # elsewhere it is the environment of many clients, and would grow
                known |= set(os.environ.get(REMEMBERED, "").split())
                os.environ[REMEMBERED] = " ".join(sorted(known))
        return f"{canary} result {number}: {answer}; {' '.join(sorted(known))}"

    _ = work
    return server


def look_at_stdin(findings: Findings) -> None:
    """Put a pipe in front of stdin, and look at what goes through it."""
    real = os.dup(0)
    reading, writing = os.pipe()
    os.dup2(reading, 0)
    os.close(reading)

    def copy() -> None:
        tail = b""
        with contextlib.suppress(OSError):
            while data := os.read(real, READ_BYTES):
                tail = findings.look(tail, data, "pipe")
                while data:
                    data = data[os.write(writing, data) :]
        findings.count()
        os.close(writing)

    threading.Thread(target=copy, daemon=True).start()


def look_at_environment(findings: Findings) -> None:
    values = "\n".join(os.environ.values()).encode()
    if CANARY.search(values) or findings.has_token(values):
        findings.report("pipe: a canary or a token is in the environment of the process")


async def look_at_port(port: int, findings: Findings, where: str) -> int:
    """A port that leads to another one, on which what is received is looked at."""

    async def pump(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, looks: bool
    ) -> None:
        tail = b""
        with contextlib.suppress(OSError):
            while data := await reader.read(READ_BYTES):
                if looks:
                    tail = findings.look(tail, data, where)
                writer.write(data)
                await writer.drain()
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            back, forth = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(pump(reader, forth, looks=True), pump(back, writer, looks=False))

    relay = await asyncio.start_server(accept, "127.0.0.1", 0)
    return int(relay.sockets[0].getsockname()[1])


async def serve_http(server: Server, findings: Findings, where: str) -> None:
    # All sessions of the gateway are of one client to this server.
    limits = Limits(max_concurrent_requests_per_principal=25_000)
    site = HttpRunner(server.asgi(limits=limits), port=0)
    await site.start()
    print(await look_at_port(site.port, findings, where), flush=True)
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    findings.count()
    await site.stop(0.0)


def main() -> None:
    kind, folder, *rest = sys.argv[1:]
    findings = Findings(Path(folder))
    if kind == "stdio":
        look_at_environment(findings)
        look_at_stdin(findings)
        make_server(findings, "pipe", remembers="pooled" not in rest).run()
    else:
        where = f"http {kind}"
        server = make_server(findings, where, remembers=kind == "old")
        asyncio.run(serve_http(server, findings, where))


if __name__ == "__main__":
    main()
