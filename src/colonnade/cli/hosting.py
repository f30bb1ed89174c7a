"""The servers of a host, for what was typed: all of a configuration file, or one by itself.

Rules: nothing is started here. One server alone is called as `colonnade add` would call it, so that
its tools have the same names tomorrow, and elsewhere.
"""

import os
from typing import Any

from colonnade.cli.adding import name_for
from colonnade.cli.reaching import Reach, Terms, is_configuration, reach
from colonnade.cli.screen import Screen
from colonnade.cli.talking_many import config_for
from colonnade.client.targets import PROGRAMS
from colonnade.host.settings import Config, Entry, Settings


def servers_of(terms: Terms, screen: Screen) -> Config:
    """The servers that were named. Raises `Trouble`.

    To be called where no loop runs: somebody may be asked whether a file is to be trusted.
    """
    if is_configuration(terms.target):
        return config_for(terms, screen, "")
    found = reach(terms)
    key = name_for(terms.target)
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
