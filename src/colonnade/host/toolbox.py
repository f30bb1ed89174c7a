"""Which tools a model is shown: all, or, where they are too many, a search and what it found.

A model that is shown a thousand tools chooses badly and pays for each of them in each round. So
beyond a bound it is shown one tool of ours, `find_tools`, and then what it has found: the full
definitions, from the next round on. What it found first makes room for what it found last, but what
it has called stays longest.

Rules: a model may call what whoever runs it allowed, whether it was found or not, and nothing else.
Nothing is called here.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from colonnade.client.text import cut, first_line
from colonnade.errors import LocalProtocolError
from colonnade.host.offered import HostTool
from colonnade.providers import openai

# Models choose well among some dozens; providers refuse more than 128.
MAX_TOOLS: Final = 40
# What one search gives, if the model does not say, and at the most.
FOUND: Final = 5
MAX_FOUND: Final = 20
# Of what is told to a model: servers that are named, names that are near, a line about a tool.
MAX_NAMED: Final = 30
MAX_NEAR: Final = 5
MAX_LINE: Final = 200

FIND: Final = "find_tools"


class Toolbox:
    """What a model may call, and what of it is shown in the next round.

    `only` are the names that it may call, None for all that there are.
    """

    def __init__(self, only: Iterable[str] | None = None, max_tools: int = MAX_TOOLS) -> None:
        if max_tools < 2:
            raise LocalProtocolError("max_tools must be at least 2: a search, and what it found")
        self._only = None if only is None else frozenset(only)
        self._max_tools = max_tools
        # In the order in which they were found, so that what a provider keeps of a conversation
        # stays good; with each the moment when it was last of use.
        self._found: dict[str, int] = {}
        self._moment = 0
        # Every tool that may be called, by its name.
        self.tools: Mapping[str, HostTool] = {}
        self._named: Mapping[str, HostTool] = {}
        # What the search is called here; nothing where all tools are shown.
        self.search: str = ""

    def learn(self, tools: Iterable[HostTool]) -> None:
        """These are the tools now. Raises `LocalProtocolError` for one that was named and is none;
        a tool that has gone later is no mistake of who named it."""
        listed = list(tools)
        named = {name: tool for tool in listed for name in names_of(tool)}
        if self._only is not None:
            if not self._named and (missing := sorted(self._only - named.keys())):
                near = get_close_matches(missing[0], named, n=MAX_NEAR)
                more = f"; there is {', '.join(near)}" if near else ""
                raise LocalProtocolError(f"tools=: there is no tool {missing[0]!r}{more}")
            listed = [tool for tool in listed if not self._only.isdisjoint(names_of(tool))]
        self.tools = {tool.name: tool for tool in listed}
        self._named = {name: tool for tool in listed for name in names_of(tool)}
        self.search = ""
        if len(listed) > self._max_tools:
            self.search = FIND
            while self.search in self._named:  # somebody's alias
                self.search += "_"

    def get(self, name: str) -> HostTool | None:
        """The tool that a model means by a name; None where it is none that it may call."""
        return self._named.get(name)

    def entries(self) -> list[dict[str, Any]]:
        """The tools that a model is shown now, as Chat Completions has them."""
        if not self.search:
            return [tool.to_openai() for tool in self.tools.values()]
        found = [self.tools[name] for name in self._found if name in self.tools]
        return [self._finder(), *(tool.to_openai() for tool in found)]

    def found(self, tools: Iterable[HostTool]) -> list[HostTool]:
        """A search gave these; those of them that may be called are shown from now on."""
        allowed = [self.tools[tool.name] for tool in tools if tool.name in self.tools]
        for tool in allowed:
            self._found.setdefault(tool.name, 0)
        self.used(*(tool.name for tool in reversed(allowed)))  # the best is kept longest
        return allowed

    def used(self, *names: str) -> None:
        """Tools were found, or called: they are shown for longer than those before."""
        if not self.search:
            return
        for name in names:
            self._moment += 1
            self._found[name] = self._moment
        while len(self._found) >= self._max_tools:
            del self._found[min(self._found, key=self._found.__getitem__)]

    # ------------------------------------------------------------ words for a model

    def no_such(self, name: str) -> str:
        """What a model is told that wants a tool which is none."""
        near = get_close_matches(name, self.tools, n=MAX_NEAR)
        if not near and not self.search:
            near = list(self.tools)[:MAX_NEAR]
        if near:
            return f"there is no tool {name!r}; there is {', '.join(near)}"
        more = f"; look for one with {self.search}" if self.search else "; there is none at all"
        return f"there is no tool {name!r}{more}"

    def told(self, words: str, found: list[HostTool]) -> str:
        """What a model is told that has searched."""
        if not found:
            return f"No tool was found for {words!r}; try other words. {self._servers()}"
        lines = [f"- {tool.signature}: {_line(tool.description)}" for tool in found]
        return "\n".join(["Found, and can be called from now on:", *lines])

    def _finder(self) -> dict[str, Any]:
        words = (
            f"Find tools by what they do. There are {len(self.tools)}, and only those that were "
            f"found can be seen. {self._servers()}"
        )
        what = "What the tool should do, in a few words, such as: list commits of a repository"
        parameters: dict[str, Any] = {
            "type": "object",
            "properties": {
                "words": {"type": "string", "description": what},
                "limit": {"type": "integer", "description": f"How many, 1 to {MAX_FOUND}"},
            },
            "required": ["words"],
        }
        return openai.tool_entry(self.search, words, parameters, "chat", want_strict=True)

    def _servers(self) -> str:
        counts: dict[str, int] = {}
        for tool in self.tools.values():
            counts[tool.server] = counts.get(tool.server, 0) + 1
        named = [f"{server} ({count})" for server, count in list(counts.items())[:MAX_NAMED]]
        more = ", and others" if len(counts) > MAX_NAMED else ""
        return f"They are of these servers: {', '.join(named)}{more}."


def names_of(tool: HostTool) -> tuple[str, ...]:
    """All names of a tool in the catalogue."""
    return (tool.name, *tool.aliases)


def _line(description: str | None) -> str:
    return cut(first_line(description), MAX_LINE) or "it does not say what it does"
