"""Conversations through three processes on one store, each request to the next of them.

    python tests/support/replica_processes.py [--conversations N] [--store URL] [--at-once N]

This is `scripts/replicas`. A relay gives each HTTP request to the next process, over a connection of
its own, and to the one after it only if that connection is refused. The client is Colonnade's, in each of the five revisions and over HTTP+SSE. What was sent is
counted by kind of message, and so is each failure: a response with an error status, or a conversation
that did not end as it should.
"""

import argparse
import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from colonnade import connect

PROGRAM = Path(__file__).with_name("replica_server.py")
START_S = 60.0
WAIT_S = 30.0
SSE = "HTTP+SSE"
REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28", SSE)


class Relay:
    """A round-robin balancer: each request goes to the next port, and its connection ends with it."""

    def __init__(self, ports: list[int]) -> None:
        self.ports = ports
        self.next = 0
        self.kinds: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.by_port: Counter[int] = Counter()
        self.refused = 0
        # Called with the headers and the body of each request, and the port that it is sent to.
        self.on_sent: Callable[[dict[str, str], bytes, int], None] | None = None
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> "Relay":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, backlog=1024)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await asyncio.sleep(0)  # for connections that are being accepted
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: writer.transport.abort())  # also if it never began

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, EOFError):
                await self._relay(reader, writer)
        finally:
            await _close(writer)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        headers = {n.lower(): v for n, _, v in (line.partition(": ") for line in lines[1:])}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        kind = _kind(lines[0].split()[0], headers, body)
        self.kinds[kind] += 1
        server_reader, server_writer = await self._connect(headers, body)
        kept = [line for line in lines if line and not line.lower().startswith("connection:")]
        server_writer.write(
            ("\r\n".join([*kept, "Connection: close"]) + "\r\n\r\n").encode() + body
        )
        back = asyncio.create_task(self._back(server_reader, writer, kind))
        gone = asyncio.create_task(reader.read(1))
        try:
            await asyncio.wait({back, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not gone.done():  # the client has the whole response, and closes
                await asyncio.wait({gone}, timeout=1.0)
        finally:
            server_writer.transport.abort()
            for task in (back, gone):
                task.cancel()
            await asyncio.wait({back, gone})
            await _close(server_writer)

    async def _connect(
        self, headers: dict[str, str], body: bytes
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the next process, or to the one after it if the connection is refused."""
        first = self.next % len(self.ports)
        self.next += 1
        order = self.ports[first:] + self.ports[:first]
        while True:
            port = order.pop(0)
            try:
                connected = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                self.refused += 1
                if not order:
                    raise
                continue
            except OSError:  # it was closed before it was accepted
                self._note(headers, body, port)
                raise
            self._note(headers, body, port)
            return connected

    def _note(self, headers: dict[str, str], body: bytes, port: int) -> None:
        self.by_port[port] += 1
        if self.on_sent is not None:
            self.on_sent(headers, body, port)

    async def _back(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kind: str
    ) -> None:
        with contextlib.suppress(OSError, EOFError):
            head = await reader.readuntil(b"\r\n\r\n")
            status = int(head.split(b" ", 2)[1])
            if status >= 400:
                self.failures[f"{kind}: {status}"] += 1
            writer.write(head)
            while chunk := await reader.read(65536):
                writer.write(chunk)
                await writer.drain()
            writer.write_eof()


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def _kind(method: str, headers: dict[str, str], body: bytes) -> str:
    if method != "POST":
        return f"{method} with Last-Event-ID" if "last-event-id" in headers else method
    message = json.loads(body)
    if isinstance(message, list):
        return "batch"
    return message.get("method") or "response"


class ReplicaProcesses:
    """The processes, and the relay in front of them."""

    def __init__(
        self,
        store: str,
        folder: Path,
        count: int = 3,
        shutdown_delay_s: float = 0.0,
        program: Path = PROGRAM,
    ) -> None:
        self.program = program
        self.store = store
        self.folder = folder
        self.count = count
        self.shutdown_delay_s = shutdown_delay_s
        self.processes: list[asyncio.subprocess.Process] = []
        self.relay: Relay
        self._names = 0

    async def __aenter__(self) -> "ReplicaProcesses":
        ports: list[int] = []
        for _ in range(self.count):
            process, port = await self._start(0)
            self.processes.append(process)
            ports.append(port)
        self.relay = await Relay(ports).__aenter__()
        return self

    async def _start(self, port: int) -> tuple[asyncio.subprocess.Process, int]:
        """A process that serves, and its port."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "error", self.program, self.store, self.folder),
            *(str(port), str(self.shutdown_delay_s)),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert process.stdout is not None
        async with asyncio.timeout(START_S):
            url = (await process.stdout.readline()).decode()
        return process, int(url.split("http://")[1].split(":")[1].split("/")[0])

    async def restart(self, index: int) -> None:
        """End a process by SIGTERM, and start another one on its port."""
        process = self.processes[index]
        process.terminate()
        async with asyncio.timeout(START_S):
            if await process.wait() != 0:
                raise RuntimeError(f"a process ended with {process.returncode}")
        self.processes[index], _ = await self._start(self.relay.ports[index])

    async def kill_and_start(self, index: int) -> None:
        """Kill a process (SIGKILL), and start another one on its port."""
        process = self.processes[index]
        process.kill()
        await process.wait()
        self.processes[index], _ = await self._start(self.relay.ports[index])

    async def __aexit__(self, *_: object) -> None:
        await self.relay.__aexit__()
        for process in self.processes:
            if process.returncode is None:
                process.terminate()
        for process in self.processes:
            await process.wait()

    async def kill(self) -> None:
        """Kill the first process that is alive, which the relay then leaves out."""
        process = next(one for one in self.processes if one.returncode is None)
        process.kill()
        await process.wait()
        del self.relay.ports[0]

    async def converse(self, revision: str) -> None:
        """One conversation with every kind of message that a revision has. Raises
        `AssertionError` and errors of the client."""
        self._names += 1
        name = f"{revision.replace('+', '-')}-{self._names}"
        async with asyncio.timeout(WAIT_S):
            await self._converse(revision, name)

    async def _converse(self, revision: str, name: str) -> None:
        target: Any = self.relay.url + "/mcp"
        options: dict[str, Any] = {"revision": revision}
        if revision == SSE:
            target, options = {"type": "sse", "url": self.relay.url + "/sse"}, {}
        logged: list[object] = []
        reports: list[float] = []
        elicits = revision not in ("2024-11-05", "2025-03-26", SSE)
        async with connect(
            target,
            on_elicit=lambda request: {"name": name},
            on_log=lambda message: logged.append(message),
            **options,
        ) as client:
            assert (await client.call_tool("add", {"a": 1, "b": 2}, returns=int)).data == 3
            counted = await client.call_tool(
                "count", {"to": 3}, on_progress=lambda done, *_: reports.append(done)
            )
            assert not counted.is_error
            assert reports == [1, 2, 3]
            if elicits:
                painted = await client.call_tool("paint")
                assert painted.text == name, painted
            assert (await client.call_tool("long")).text == "the end"
            await client.set_log_level("debug")
            while not logged:  # the other processes are told, which takes a moment
                await client.call_tool("log")
            await self._be_cancelled(client, name)
            uri = f"file:///{name}"
            async with client.listen(resources=[uri]) as changes:
                await client.call_tool("touch", {"uri": uri})
                async for change in changes:
                    assert change.uri == uri
                    break
            assert len(await client.list_tools(fresh=True)) == 7

    async def _be_cancelled(self, client: Any, name: str) -> None:
        begun = asyncio.Event()
        call = asyncio.create_task(
            client.call_tool("wait", {"name": name}, on_progress=lambda *_: begun.set())
        )
        await begun.wait()
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await call
        while not (self.folder / name).exists():
            await asyncio.sleep(0.01)
        (self.folder / name).unlink()


def _line_of(error: BaseException | None) -> str | None:
    """The line of a conversation that failed."""
    while error is not None:
        for place in reversed(traceback.extract_tb(error.__traceback__)):
            if place.name == "_converse":
                return place.line
        error = error.__cause__ or error.__context__
    return None


async def run(conversations: int, store: str, at_once: int) -> int:
    failed: Counter[str] = Counter()
    done = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        async with ReplicaProcesses(store or str(path / "store.db"), path) as processes:
            started = time.monotonic()
            numbers = iter(range(conversations))

            async def work() -> None:
                nonlocal done
                for number in numbers:
                    revision = REVISIONS[number % len(REVISIONS)]
                    try:
                        await processes.converse(revision)
                    except Exception as error:
                        line = _line_of(error)
                        what = f"{type(error).__name__}: {str(error)[:160]}"
                        failed[f"{revision}: {what}, in: {line}"] += 1
                    done += 1
                    if done % 100 == 0:
                        took_s = time.monotonic() - started
                        print(f"{done} conversations in {took_s:.0f} s", file=sys.stderr)

            await asyncio.gather(*(work() for _ in range(at_once)))
            took_s = time.monotonic() - started
            relay = processes.relay
            print(f"{done} conversations in {took_s:.0f} s, {sum(failed.values())} failed")
            print(f"{sum(relay.kinds.values())} requests, by process:", *relay.by_port.values())
            for kind, number in relay.kinds.most_common():
                print(f"{number:>9}  {kind}")
            for what, number in (failed + relay.failures).most_common():
                print(f"{number:>9}  FAILED {what}")
    return 1 if failed or relay.failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--conversations", type=int, default=2_000)
    parser.add_argument("--store", default="", help="a redis:// URL; by default an SQLite file")
    parser.add_argument("--at-once", type=int, default=8)
    options = parser.parse_args()
    return asyncio.run(run(options.conversations, options.store, options.at_once))


if __name__ == "__main__":
    sys.exit(main())
