"""What references stand for, looked up when a server is about to be reached, and not before.

Rules: a value that was looked up goes to whoever asked, and is kept by nobody. Errors name the
reference and never what was found.
"""

import asyncio
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from colonnade.errors import Refused
from colonnade.host.drafts import Origin
from colonnade.host.inputs import Input, Inputs
from colonnade.host.programs import printed
from colonnade.host.references import Reference, Template

# A key or a token in a file; what is longer is no such thing.
MAX_FILE_BYTES = 64 * 1024
# Where a variable may have a default, and what stands before its name there.
_DEFAULTED = {"claude-code": "", "colonnade": "env:"}
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class Surroundings(NamedTuple):
    """What a lookup is made in: variables, a home, a person, and the questions of each file."""

    env: Mapping[str, str]
    home: str
    inputs: Inputs
    questions: Mapping[str, Mapping[str, Input]]

    def folder(self, name: str, origin: Origin) -> str:
        """What the editors call the folder that is open, and what goes with it."""
        return {
            "workspaceFolder": origin.folder,
            "workspaceFolderBasename": os.path.basename(origin.folder),
            "userHome": self.home,
            "pathSeparator": os.sep,
            "/": os.sep,
        }[name]

    def path(self, text: str, origin: Origin) -> str:
        """A path that a file names: from its own folder, or from the home."""
        if text == "~" or text.startswith(("~/", "~\\")):
            text = self.home + text[1:]
        return os.path.normpath(os.path.join(os.path.dirname(origin.file), text))


async def text_of(template: Template, origin: Origin, around: Surroundings) -> str | None:
    """A value as it is used; None where it is left out. Raises `Refused`."""
    found: list[str] = []
    for part in template.parts:
        one = part if isinstance(part, str) else await _looked_up(part, origin, around)
        if one is None:
            return None
        found.append(one)
    return "".join(found)


async def _looked_up(part: Reference, origin: Origin, around: Surroundings) -> str | None:
    if part.kind == "folder":
        return around.folder(part.name, origin)
    if part.kind == "env":
        return _variable(part, around)
    if part.kind == "input":
        return await around.inputs.answer(around.questions[origin.file][part.name])
    if part.kind == "keyring":
        from colonnade.auth.keyring import keyring_password

        service, _, name = part.name.rpartition("/")
        return await asyncio.to_thread(keyring_password, service, name)
    if part.kind == "file":
        return await asyncio.to_thread(_first_line, around.path(part.name, origin))
    return await printed(part.words, cwd=os.path.dirname(origin.file) or None, env=around.env)


def _variable(part: Reference, around: Surroundings) -> str | None:
    found = around.env.get(part.name)
    if part.optional:
        return found or None
    if found is None:
        found = part.default  # which is not for an empty variable, unlike in a shell
    if found is None:
        raise Refused(f"the variable {part.name} is not set")
    return found


def _first_line(path: str) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES)
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}") from None
    try:
        return data.decode("utf-8").removeprefix("\ufeff").partition("\n")[0].rstrip("\r")
    except UnicodeDecodeError:
        raise Refused(f"{path} is no text") from None


# ---------------------------------------------------------------- before anything is looked up


def missing(template: Template, origin: Origin, around: Surroundings) -> Iterator[str]:
    """What can be said already of references that will lead to nothing."""
    for part in template.references:
        if part.kind == "env":
            is_needed = part.default is None and not part.optional
            if is_needed and part.name not in around.env:
                kind = _DEFAULTED.get(origin.dialect)
                more = f", or write ${{{kind}{part.name}:-default}}" if kind is not None else ""
                yield f"the variable {part.name} is not set; set it{more}"
        elif part.kind == "input":
            if part.name not in around.questions.get(origin.file, {}):
                yield f"there is no input {part.name} in this file; add one to its inputs"
            elif not around.inputs.can_ask:
                yield f"nobody is there to answer the input {part.name}"
        elif part.kind == "file":
            path = around.path(part.name, origin)
            if not os.path.isfile(path):
                yield f"there is no file {path}"


def remarks(template: Template, origin: Origin, around: Surroundings) -> Iterator[str]:
    """What is odd about references, and does no harm here."""
    for part in template.references:
        if part.kind == "env" and part.name not in around.env and part.default == "":
            yield f"the variable {part.name} is not set, and so it is empty"
        elif part.kind == "file" and sys.platform != "win32":
            path = around.path(part.name, origin)
            if os.path.isfile(path) and os.stat(path).st_mode & _OTHERS:
                yield f"others than you may read {path}; chmod 600 it"
