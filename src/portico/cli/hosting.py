"""The servers of a host, for what was typed: all of a configuration file, or one by itself.

Rules: nothing is started here. One server alone is called by what was typed, so that the names of
its tools are the same the next time.
"""

import os
import re
from typing import Any, Final

from portico.cli.reaching import Reach, Terms, is_configuration, reach
from portico.cli.screen import Screen
from portico.cli.talking_many import config_for
from portico.client.targets import PROGRAMS
from portico.host.settings import Config, Entry, Settings

# What a server is called where nothing can be made of what was typed.
NAMELESS: Final = "server"
# Letters and digits make a name.
_OTHERS = re.compile(r"[^A-Za-z0-9]+")
# What many servers are called, and what says nothing.
_PLAIN: Final = frozenset({"http", "https", "mcp", "sse", "main", "server", "www", "api"})
MAX_KEY: Final = 30


def servers_of(terms: Terms, screen: Screen) -> Config:
    """The servers that were named. Raises `Trouble`.

    To be called where no loop runs: somebody may be asked whether a file is to be trusted.
    """
    if is_configuration(terms.target):
        return config_for(terms, screen, "")
    found = reach(terms)
    key = key_of(found.shown)
    target = _target(found)

    async def resolve() -> Any:
        return target

    settings = Settings(timeout_s=terms.timeout_s, revision=terms.revision or None)
    entry = Entry(
        key=key, resolve=resolve, fingerprint=found.shown, shown=found.shown, settings=settings
    )
    return Config(entries={key: entry})


def _target(found: Reach) -> dict[str, Any]:
    """What reaches a server, as configurations have it."""
    target: str | list[str] = found.target
    if isinstance(target, str) and "://" in target:
        return {"url": target, "headers": dict(found.options["headers"])}
    if isinstance(target, str):
        target = [PROGRAMS[os.path.splitext(target)[1].lower()], target]
    return {"command": target[0], "args": target[1:], "env": found.options["env"]}


def key_of(shown: str) -> str:
    """What to call a server, by what it was called on the command line."""
    words = [word for word in _OTHERS.split(os.path.splitext(shown)[0]) if word]
    telling = [word for word in words if word.lower() not in _PLAIN] or words or [NAMELESS]
    return telling[-1][:MAX_KEY].lower()
