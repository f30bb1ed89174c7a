"""Many servers under one roof: one catalogue of all that they offer, and one way to use it.

    async with Host({"notes": server, "git": ["uvx", "mcp-server-git"]}) as host:
        for tool in await host.list_tools():
            print(tool.name, "of", tool.server)
        result = await host.call_tool("notes__add", {"text": "Buy milk"})

Rules: nothing is started before it is needed. A server sees what is sent to it and nothing of the
others. One that is broken, slow or gone is a problem in `problems`, and nobody else's.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from colonnade.client.connect import client_info
from colonnade.client.targets import Target
from colonnade.errors import ColonnadeError, Fault, LocalProtocolError
from colonnade.host.calls import Calls
from colonnade.host.offered import HostTool
from colonnade.host.own import configured, is_broken
from colonnade.host.questions import Desk, OnQuestion
from colonnade.host.roof import OnChange, OnEvent, Roof
from colonnade.host.settings import Config, Entry, Problem
from colonnade.host.shelves import WAIT_S
from colonnade.host.supervisor import Status
from colonnade.ports import Handler, Middleware

if TYPE_CHECKING:  # most servers ask nobody who they are
    from colonnade.auth.logins import Auth
    from colonnade.host.config import File
    from colonnade.host.inputs import Inputs, OnInput
    from colonnade.host.trust import Trust

log: logging.Logger = logging.getLogger("colonnade.host")


class Host(Calls):
    """Servers by their keys, and everything that they offer.

    A server is whatever `connect` takes, or an `Entry` with settings of its own. `on_question`
    answers what servers ask (without it they are told that nobody can be asked), `on_event` hears
    of each server that starts, stops or fails, `layers` are around every request, the first
    outermost, and `auth` says who we are at a URL. Whoever looks at the whole catalogue waits
    `wait_s` for one server, at the most. `name`, `version` and `title` are what servers are told
    of this program (`clientInfo`), as with `connect`.
    """

    def __init__(
        self,
        servers: Mapping[str, Target | Entry] | Config,
        *,
        on_question: OnQuestion | None = None,
        on_event: OnEvent | None = None,
        layers: Iterable[Middleware] = (),
        auth: "Callable[[str], Auth | None] | None" = None,
        wait_s: float = WAIT_S,
        name: str | None = None,
        version: str | None = None,
        title: str | None = None,
    ) -> None:
        self._read: Callable[[], Config] | None = None
        # What was last said by files that could be read, or by a program.
        self._sound: Config = configured(servers)
        roof = Roof(
            self._sound,
            Desk(on_question),
            layers=layers,
            wait_s=wait_s,
            on_event=on_event,
            auth=auth,
            info=client_info(name, version, title),
        )
        super().__init__(roof, "")

    @classmethod
    def from_config(
        cls,
        paths: "File | Sequence[File]",
        *,
        trust: "Trust" = None,
        on_input: "OnInput | Inputs | None" = None,
        folder: "File | None" = None,
        on_question: OnQuestion | None = None,
        on_event: OnEvent | None = None,
        layers: Iterable[Middleware] = (),
        auth: "Callable[[str], Auth | None] | None" = None,
        wait_s: float = WAIT_S,
        name: str | None = None,
        version: str | None = None,
        title: str | None = None,
    ) -> "Host":
        """The servers of a file, or of several: of Claude Desktop, Claude Code, VS Code, Cursor,
        Codex, or our own `colonnade.toml`. What is wrong with one, or a file that is not there, is
        in `problems` and is logged; nothing is raised.

        A project's file is used only as far as somebody trusts it: `trust` is asked, or True.
        `on_input` answers VS Code's inputs, and `folder` is the one that is worked in, if not this.
        The rest is as with `Host` itself.
        """
        from colonnade.host.config import read_config
        from colonnade.host.inputs import Inputs

        inputs = (
            on_input if isinstance(on_input, Inputs) else Inputs(on_input)
        )  # which are not asked for twice

        logged: set[Problem] = set()

        def read() -> Config:
            config = read_config(paths, trust=trust, on_input=inputs, folder=folder)
            for problem in config.problems:
                if problem not in logged:
                    log.warning("%s", problem)
            logged.clear()  # what was mended and comes again is news
            logged.update(config.problems)
            return config

        host = cls(
            read(),
            on_question=on_question,
            on_event=on_event,
            layers=layers,
            auth=auth,
            wait_s=wait_s,
            name=name,
            version=version,
            title=title,
        )
        host._read = read
        return host

    def __repr__(self) -> str:
        return f"<Host of {', '.join(map(repr, self.servers)) or 'no servers'}>"

    async def __aenter__(self) -> "Host":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End every server, and whatever is under way on it; at any time, and twice."""
        await self._roof.close()

    # ------------------------------------------------------------ who is there

    def caller(self, name: str) -> Calls:
        """The same tools, prompts and resources, used on behalf of somebody else than others."""
        return Calls(self._roof, name)

    @property
    def servers(self) -> tuple[str, ...]:
        """The keys of all servers, in the order of the configuration."""
        return tuple(self._roof.snapshot.hosted)

    @property
    def prefixes(self) -> tuple[str, ...]:
        """What the names of each server's tools and prompts begin with, up to the `__`."""
        return self._roof.snapshot.prefixes

    def server_of(self, name: str) -> str | None:
        """The key of the server that a name, or an alias, leads to, whether that has such a thing
        or not. No server is asked."""
        try:
            return self._roof.snapshot.holder("tools", name, "").key
        except Fault:
            return None

    @property
    def problems(self) -> list[Problem]:
        """What is wrong with the configuration, and what could not be listed when somebody last
        looked; none of it keeps anything else from working."""
        return self._roof.snapshot.problems

    @property
    def failures(self) -> dict[str, ColonnadeError]:
        """Why servers could not be listed when somebody last looked, by their keys: for whoever
        wants to know more than the words in `problems`."""
        hosted = self._roof.snapshot.hosted
        return {key: one.failure for key, one in hosted.items() if one.failure is not None}

    @property
    def instructions(self) -> dict[str, str]:
        """What each server says of its use, by its key; of those that were started."""
        hosted = self._roof.snapshot.hosted
        return {key: one.instructions for key, one in hosted.items() if one.instructions}

    def tool(self, name: str, caller: str = "") -> HostTool | None:
        """The tool that a name of the catalogue, or an alias, leads to, as it was last listed for
        this caller; None where no list had it. For layers that decide by the tool, whatever it was
        called."""
        return self._roof.snapshot.tool(name, caller)

    def status(self) -> list[Status]:
        """How every server is at this moment."""
        return [one.supervised.status for one in self._roof.snapshot.hosted.values()]

    def restart(self, server: str) -> None:
        """Start a server anew for its next call, also one that was given up."""
        try:
            self._roof.snapshot.server(server).restart()
        except Fault as fault:
            raise LocalProtocolError(fault.message) from None

    # ------------------------------------------------------------ the handler

    @property
    def handler(self) -> Handler:
        """What answers every request, with its layers around it: for whoever serves this host."""
        return self._roof.handler

    def use(self, layer: Middleware) -> Middleware:
        """Put a layer around every request, inside those that are there."""
        self._roof.use(layer)
        return layer

    # ------------------------------------------------------------ changes

    async def reload(self, servers: Mapping[str, Target | Entry] | Config | None = None) -> None:
        """Other servers from now on; without any, what the files of `from_config` say now. Those
        whose entry is the same go on; calls that are under way on others finish there, and then
        those stop. A file that cannot be read any more changes nothing but `problems`."""
        if servers is not None:
            config = self._sound = configured(servers)
        elif self._read is None:
            raise LocalProtocolError("this host has no files: say which servers there are now")
        else:
            config = self._read()
            if is_broken(config, self._sound):
                config = replace(config, entries=self._sound.entries)
            else:
                self._sound = config
        self._roof.reload(config)

    def watch(self, callback: OnChange) -> Callable[[], None]:
        """Be told of changes in the catalogue: a server said that a list is another, or there was
        a reload. Ends with a call of what this returns."""
        return self._roof.watch(callback)
