"""A round-robin balancer for tests: each HTTP request goes to the next process, and nothing is sticky.

Rules: a connection has one request, of the client and to the process, and ends with its response.
What goes wrong is counted, not repaired: a request is sent once, and elsewhere only if its connection
is refused.
"""

import asyncio
import contextlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self, cast

# How long a process may take to start, or to end after SIGTERM.
START_S = 60.0
# How long a client may take to read a whole response and to close its connection.
CLOSE_S = 10.0
# Headers of one connection, and those that say how long a body is, which is sent in one piece.
HOP_BY_HOP = frozenset(
    {"connection", "content-length", "http2-settings", "keep-alive", "transfer-encoding", "upgrade"}
)


class Relay:
    """A round-robin balancer: each request goes to the next port, and its connection ends with it."""

    def __init__(self, ports: list[int]) -> None:
        self.ports = ports
        self.next = 0
        self.kinds: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.by_port: Counter[int] = Counter()
        # Ports that are tried last, since their /ready does not respond 200; others find them.
        self.not_ready: set[int] = set()
        self.refused = 0
        # Called with the headers and the body of each request, and the port that it is sent to.
        self.on_sent: Callable[[dict[str, str], bytes, int], None] | None = None
        # Called with the request line, the headers and the body of each request, and the response.
        self.on_response: Callable[[str, dict[str, str], bytes, bytes], None] | None = None
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
        split = (line.partition(":") for line in lines[1:] if line)
        headers = {name.lower(): value.strip() for name, _, value in split}
        body = await _read_body(reader, headers)
        kind = _kind(lines[0].split()[0], headers, body)
        self.kinds[kind] += 1
        server_reader, server_writer = await self._connect(headers, body)
        kept = [line for line in lines if line and line.partition(":")[0].lower() not in HOP_BY_HOP]
        if body or "content-length" in headers:
            kept.append(f"Content-Length: {len(body)}")
        new_head = "\r\n".join([*kept, "Connection: close"]) + "\r\n\r\n"
        server_writer.write(new_head.encode("latin-1") + body)
        response = bytearray()
        back = asyncio.create_task(self._back(server_reader, writer, kind, response))
        gone = asyncio.create_task(reader.read(1))
        try:
            await asyncio.wait({back, gone}, return_when=asyncio.FIRST_COMPLETED)
            if back.done() and back.result() and not gone.done():
                # The client has the whole response, and closes.
                server_writer.transport.abort()
                await asyncio.wait({gone}, timeout=CLOSE_S)
        finally:
            server_writer.transport.abort()
            for task in (back, gone):
                task.cancel()
            await asyncio.wait({back, gone})
            if self.on_response is not None:
                self.on_response(lines[0], headers, body, bytes(response))
            await _close(server_writer)

    async def _connect(
        self, headers: dict[str, str], body: bytes
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the next process, or to the one after it if the connection is refused."""
        first = self.next % len(self.ports)
        self.next += 1
        order = self.ports[first:] + self.ports[:first]
        order.sort(key=self.not_ready.__contains__)
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
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        kind: str,
        response: bytearray,
    ) -> bool:
        """Pass a response on; whether the process ended its connection itself."""
        with contextlib.suppress(OSError, EOFError):
            head = await reader.readuntil(b"\r\n\r\n")
            status = int(head.split(b" ", 2)[1])
            if status >= 400:
                self.failures[f"{kind}: {status}"] += 1
            writer.write(head)
            response += head
            while chunk := await reader.read(65536):
                writer.write(chunk)
                if self.on_response is not None:
                    response += chunk
                await writer.drain()
            writer.write_eof()
            return True
        return False


async def is_ready(port: int) -> bool:
    """Whether /ready of a process responds 200."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    try:
        writer.write(b"GET /ready HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
        return b" 200 " in await reader.readline()
    except OSError:
        return False
    finally:
        await _close(writer)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def _read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() != "chunked":
        return await reader.readexactly(int(headers.get("content-length", "0")))
    chunks: list[bytes] = []
    while size := int((await reader.readline()).partition(b";")[0], 16):
        chunks.append((await reader.readexactly(size + 2))[:-2])
    while (await reader.readline()).strip():  # trailers
        pass
    return b"".join(chunks)


def _kind(method: str, headers: dict[str, str], body: bytes) -> str:
    if method != "POST":
        return f"{method} with Last-Event-ID" if "last-event-id" in headers else method
    try:
        message = json.loads(body)
    except ValueError:
        return "not JSON"
    if isinstance(message, dict):
        return str(cast("dict[str, object]", message).get("method", "response"))
    return "batch" if isinstance(message, list) else "not JSON-RPC"


class RelayedProcesses:
    """Processes of one Python program, and the relay in front of them.

    The program gets `arguments`, and the port as the last of them; 0 is a free one. The first line
    that it prints has its URL.
    """

    def __init__(
        self,
        program: Path,
        *arguments: str,
        count: int = 3,
        environment: Mapping[str, str] | None = None,
        log: IO[bytes] | None = None,
    ) -> None:
        self.program = program
        self.arguments = arguments
        self.count = count
        self.environment = environment
        self.log = log
        self.processes: list[asyncio.subprocess.Process] = []
        self.relay: Relay

    async def __aenter__(self) -> Self:
        try:
            ports = [await self._start(0) for _ in range(self.count)]
        except BaseException:
            await self._stop()
            raise
        self.relay = await Relay(ports).__aenter__()
        return self

    async def _start(self, port: int) -> int:
        """Start one more process that serves; its port."""
        process = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-W",
                "error",
                str(self.program),
                *self.arguments_of_next(),
                str(port),
            ),
            stdout=asyncio.subprocess.PIPE,
            stderr=self.log,
            env=self.environment,
        )
        self.processes.append(process)
        assert process.stdout is not None
        async with asyncio.timeout(START_S):
            url = (await process.stdout.readline()).decode()
        if "http://" not in url:
            raise RuntimeError(f"a process did not start; it printed {url!r}")
        return int(url.split("http://")[1].split(":")[1].split("/")[0])

    def arguments_of_next(self) -> Sequence[str]:
        """The arguments of the next process, without its port."""
        return self.arguments

    async def restart(self, index: int) -> None:
        """End a process by SIGTERM, and start another one on its port."""
        process = self.processes[index]
        process.terminate()
        async with asyncio.timeout(START_S):
            if await process.wait() != 0:
                raise RuntimeError(f"a process ended with {process.returncode}")
        await self._start(self.relay.ports[index])
        self.processes[index] = self.processes.pop()

    async def kill_and_start(self, index: int) -> None:
        """Kill a process (SIGKILL), and start another one on its port."""
        process = self.processes[index]
        process.kill()
        await process.wait()
        await self._start(self.relay.ports[index])
        self.processes[index] = self.processes.pop()

    async def __aexit__(self, *_: object) -> None:
        await self.relay.__aexit__()
        await self._stop()

    async def _stop(self) -> None:
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
