"""What is typed to say which server, and how to reach it: a target, and the flags that all share.

A file that uses Colonnade is started as `colonnade run` starts it; any other one as its interpreter
does. What stands after `--` is a command line, taken as it is.

Rules: no value of a header or a variable is ever in an error. Nothing is started here.
"""

import os
import sys
from collections.abc import Sequence
from math import isfinite
from typing import Any, NamedTuple

from colonnade.cli.errors import Trouble
from colonnade.cli.loader import CONFIGURATIONS, read

# No target was typed: then it is what `colonnade config explain` finds for this folder.
FOUND = ""
# What that is called in an error.
CONFIGURED = "the configuration files of this folder"
SCRIPTS = (".js", ".mjs", ".cjs")
SCHEMES = ("http", "https")
# As long as a program waits; the client's own number, which is not loaded before it is needed.
TIMEOUT_S = 60.0


class Terms(NamedTuple):
    """Which server, and how to speak to it, as it was typed."""

    target: str | tuple[str, ...]
    as_json: bool = False
    revision: str = ""
    headers: tuple[str, ...] = ()
    header_envs: tuple[str, ...] = ()
    envs: tuple[str, ...] = ()
    timeout_s: float = TIMEOUT_S
    debug: bool = False
    # Of a configuration, this server alone.
    server: str = ""


class Reach(NamedTuple):
    """What `connect` is given, and what people call it."""

    target: Any
    options: dict[str, Any]
    shown: str
    # Whether it is an address, and nobody has said who we are.
    asks_who: bool = False


def reach(terms: Terms) -> Reach:
    """Understand which server is meant. Raises `Trouble`."""
    target, shown, own = place(terms)
    if terms.server:
        raise Trouble("--server names one of a configuration, and this is a server by itself")
    headers = [*map(header, terms.headers), *map(header_from_env, terms.header_envs)]
    env = dict(map(variable, terms.envs))
    options: dict[str, Any] = {"timeout_s": terms.timeout_s}
    if terms.revision:
        options["revision"] = known_revision(terms.revision)
    is_url = isinstance(target, str) and "://" in target
    if is_url and env:
        raise Trouble("--env is for a server that is started here, and this is an address")
    if headers and not is_url:
        raise Trouble("--header goes to an address; a server that is started here has --env")
    if is_url:
        options["headers"] = headers
    else:
        options["env"] = env
        if own:
            from colonnade.transport.process.python_file import search_path

            options["server_name"] = shown
            options["env"] = {**search_path(), **env}
    said = any(name.lower() == "authorization" for name, _ in headers)
    return Reach(target, options, shown, is_url and not said)


def is_configuration(target: str | tuple[str, ...]) -> bool:
    """Whether this is a file that holds servers rather than being one."""
    if not isinstance(target, str):
        return False
    if target == FOUND:
        return True
    return os.path.splitext(target)[1].lower() in CONFIGURATIONS and os.path.isfile(target)


def shown_configuration(terms: Terms) -> str:
    """What a configuration is called in a sentence."""
    return str(terms.target) or CONFIGURED


def place(terms: Terms) -> tuple[str | list[str], str, bool]:
    """What to connect to, what it is called, and whether it is one of our own servers. Raises
    `Trouble`."""
    target = terms.target
    if not isinstance(target, str):
        if not target or not target[0]:
            raise Trouble("after -- comes the command that starts it: -- uvx mcp-server-git")
        return list(target), os.path.basename(target[0]) or target[0], False
    if "://" in target:
        return target, address(target), False
    ending = os.path.splitext(target)[1].lower()
    if is_configuration(target):
        raise Trouble(
            f"{target} is a configuration, and this takes one server: name its address, its file, "
            "or its command line after --"
        )
    if ending in SCRIPTS and os.path.isfile(target):
        return target, target, False
    from colonnade.transport.process.python_file import (
        imports_colonnade,
        run_command,
    )  # `run` needs none of it

    found = read(target)
    if found.path and not found.name and not imports_colonnade(found.path):
        if not ending:
            return [sys.executable, found.path], target, False
        return target, target, False
    return run_command(target, debug=terms.debug), target, True


def address(url: str) -> str:
    """A URL for people: without its query, which may hold a key. Raises `Trouble`."""
    if url.partition("://")[0].lower() not in SCHEMES:
        scheme = url.partition("://")[0]
        raise Trouble(f"MCP is not spoken over {scheme}; write https://… or http://…")
    try:
        from urllib.parse import urlsplit  # `colonnade run` needs none of it

        parts = urlsplit(url)
    except ValueError:
        raise Trouble("this is no address: its host or its port cannot be read") from None
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


# ---------------------------------------------------------------- flags


def header(text: str) -> tuple[str, str]:
    """`NAME:VALUE`. Raises `Trouble`, which never has the value."""
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise Trouble("--header takes NAME:VALUE, and has no colon in it, or nothing before it")
    return name.strip(), value.strip()


def header_from_env(text: str) -> tuple[str, str]:
    """`NAME=VARIABLE`: the value is in the environment. Raises `Trouble`."""
    name, equals, variable = text.partition("=")
    if not equals or not name.strip() or not variable.strip():
        raise Trouble("--header-env takes NAME=VARIABLE, such as Authorization=TOKEN")
    if variable.strip() not in os.environ:
        raise Trouble(f"--header-env {name.strip()}: the environment has no such variable")
    return name.strip(), os.environ[variable.strip()].strip()


def variable(text: str) -> tuple[str, str]:
    """`NAME=VALUE`, or `NAME` for what the environment has. Raises `Trouble`."""
    name, equals, value = text.partition("=")
    if not name:
        raise Trouble("--env takes NAME, or NAME=VALUE")
    if equals:
        return name, value
    if name not in os.environ:
        raise Trouble(f"--env {name}: the environment has no such variable; write {name}=VALUE")
    return name, os.environ[name]


def known_revision(date: str) -> str:
    """The date of a revision. Raises `Trouble` for any other one."""
    from colonnade.protocol.revision import EVERY

    if date not in EVERY.dates:
        raise Trouble(f"--as {date}: there is no such revision; there are {_and(EVERY.dates)}")
    return date


def _and(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)


def seconds(text: str) -> float:
    """A number of seconds. Raises `Trouble`."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not (isfinite(found) and found > 0):
        raise Trouble(f"--timeout {text}: it takes a number of seconds above 0")
    return found
