"""Many servers in one host: those that we did not write, ours, and some that are broken.

Rules: real processes and sockets, each server in a folder of its own. A call that fails does not
end the run; it is a failure of it. Nothing that was started outlives the run.
"""

import asyncio
import sys
from collections.abc import Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from colonnade import ChannelError, Host, HostTool
from interop.peers import ROOT
from interop.reference_servers import PAGE, page
from interop.server_runs import CALL_S, RUN_S
from interop.third_party_servers import (
    EVERYTHING,
    FETCH,
    FILESYSTEM,
    GIT,
    MEMORY,
    TIME,
    ThirdPartyServer,
    reached,
)

EXAMPLES = ROOT / "examples"
# Servers that are none: one that ends at once, one that is not there, one that nobody serves. Port
# 9 throws away what it is sent where anything is there at all, and that is no answer either.
BROKEN: dict[str, Any] = {
    "ends": [sys.executable, "-c", "raise SystemExit('it has no licence')"],
    "absent": ["colonnade-has-no-such-program"],
    "nowhere": "http://127.0.0.1:9/mcp",
}


class HostedServer(NamedTuple):
    """A server that we did not write, by the key that it has in the host."""

    key: str
    server: ThirdPartyServer
    transport: str = "stdio"


class Call(NamedTuple):
    """A call by its name in the catalogue, and words of the answer."""

    name: str
    arguments: Mapping[str, Any]
    says: str


@dataclass
class HostRun:
    """What came of a host with all of them in it."""

    keys: list[str]
    tools: list[HostTool] = field(default_factory=list[HostTool])
    prompts: dict[str, str] = field(default_factory=dict[str, str])
    resources: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    # What a search found, by name.
    found: list[str] = field(default_factory=list[str])
    # By server: what cannot be listed, and why; the revision that is spoken.
    problems: dict[str, str] = field(default_factory=dict[str, str])
    revisions: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    instructions: dict[str, str] = field(default_factory=dict[str, str])
    answers: dict[str, str] = field(default_factory=dict[str, str])
    failures: dict[str, str] = field(default_factory=dict[str, str])
    # By server: how a call of one is refused that cannot be reached.
    refusals: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def listed(self) -> dict[str, int]:
        """How many tools each server has."""
        return {key: sum(tool.server == key for tool in self.tools) for key in self.keys}


@contextmanager
def hosted_targets(hosted: Iterable[HostedServer], folder: Path) -> Generator[dict[str, Any]]:
    """What reaches each of them, as entries of a configuration would say it."""
    found: dict[str, Any] = {}
    with ExitStack() as stack:
        for key, server, transport in hosted:
            home = folder / key
            home.mkdir()
            target = stack.enter_context(reached(server, transport, home))
            if isinstance(target, str):
                found[key] = {"url": target}
                continue
            env = {"MEMORY_FILE_PATH": str(home / "memory.json")} if server is MEMORY else {}
            found[key] = {"command": target[0], "args": target[1:], "env": env}
        yield found


async def run_host(targets: Mapping[str, Any], calls: Iterable[Call], search: str = "") -> HostRun:
    """Put all into one host, list all, and make these calls at once."""
    run = HostRun(list(targets))

    async def make(call: Call) -> None:
        try:
            answer = await asyncio.wait_for(host.call_tool(call.name, call.arguments), CALL_S)
            run.answers[call.name] = answer.text
            assert not answer.is_error, answer.text
            assert call.says in answer.text, f"{call.says!r} is not in {answer.text!r}"
        except Exception as error:  # whatever it is, the others go on
            run.failures[call.name] = f"{type(error).__name__}: {error}"

    async def refuse(key: str) -> None:
        try:
            await asyncio.wait_for(host.call_tool(f"{key}__anything"), CALL_S)
        except ChannelError as error:
            run.refusals[key] = str(error)

    async with asyncio.timeout(RUN_S), Host(targets, wait_s=CALL_S) as host:
        run.tools = await host.list_tools()
        run.prompts = {one.name: one.server for one in await host.list_prompts()}
        run.resources = [(one.server, one.uri) for one in await host.list_resources()]
        run.found = [one.name for one in await host.search(search)]
        run.problems = {one.server: one.message for one in host.problems}
        await asyncio.gather(*map(make, calls), *map(refuse, BROKEN.keys() & targets.keys()))
        run.revisions = {one.key: one.revision for one in host.status()}
        run.instructions = dict(host.instructions)
    return run


def unlisted(run: HostRun) -> dict[str, str]:
    """Servers that could not be listed, but for those that cannot be."""
    strange = {key: words for key, words in run.problems.items() if key not in BROKEN}
    for key in BROKEN.keys() & set(run.keys) - run.problems.keys():
        strange[key] = "it is broken, and not reported"
    return strange


# ---------------------------------------------------------------- all that is published

PUBLISHED = (
    HostedServer("everything", EVERYTHING, "http"),
    HostedServer("files", FILESYSTEM),
    HostedServer("memory", MEMORY),
    HostedServer("fetch", FETCH),
    HostedServer("git", GIT),
    HostedServer("time", TIME),
)


def published_calls(folder: Path, url: str) -> list[Call]:
    """A call of each published server."""
    ada = {"name": "Ada", "entityType": "person", "observations": ["writes programs"]}
    noon = {"source_timezone": "Etc/UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    return [
        Call("everything__echo", {"message": "Grüße 🌍"}, "Grüße 🌍"),
        Call("everything__get-sum", {"a": 2, "b": 3.5}, "5.5"),
        Call("files__read_text_file", {"path": str(folder / "files/notes.txt")}, "one\ntwo"),
        Call("memory__create_entities", {"entities": [ada]}, "Ada"),
        Call("fetch__fetch", {"url": url, "raw": True}, PAGE),
        Call("git__git_diff_unstaged", {"repo_path": str(folder / "git")}, "+third"),
        Call("time__convert_time", noon, "21:00"),
    ]


def run_published(folder: Path) -> HostRun:
    """The published servers, one of our examples and the broken ones, in one host."""
    with page() as url, hosted_targets(PUBLISHED, folder) as targets:
        everyone = {**targets, "weather": EXAMPLES / "weather.py", **BROKEN}
        calls = [
            *published_calls(folder, url),
            Call("weather__forecast", {"city": "Oslo", "days": 1}, "Oslo"),
        ]
        run = asyncio.run(run_host(everyone, calls))
    run.failures |= unlisted(run)
    return run
