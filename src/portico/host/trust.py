"""Whether what a file wants to start may be started: a person's word, for these bytes alone.

Whoever puts a file into a folder could have anything started by whoever opens that folder. So such
a file is shown to a person once, with every command line and address as it stands there, and again
when it, or a file that it draws in, has changed by a byte.

Rules: what was asked for is what is used: one reading, one digest. What is shown is whole, and acts
on no terminal. What is kept says nothing but a path and a digest, is written in one step, and
counts only where nobody else could have written it.
"""

import contextlib
import hashlib
import os
import shlex
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from portico.client.text import clean
from portico.errors import Refused
from portico.host.drafts import Draft, Said
from portico.host.references import Template
from portico.host.showing import words

FOLDER: Final = "trusted"
_OWN_FOLDER, _OWN_FILE = 0o700, 0o600
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


class Wish(NamedTuple):
    """One thing that a file wants: for which server, and what, made safe for a terminal."""

    server: str
    what: Literal["run", "reach", "set", "send", "ask", "read", "in"]
    text: str


class TrustQuestion(Struct, frozen=True, kw_only=True):
    """What a person is asked: whether all that this file wants may happen."""

    file: str
    digest: str
    wishes: tuple[Wish, ...]
    # Whether another version of this file was trusted.
    changed: bool = False


# Asks a person; or it is known already; or only what is kept counts.
Trust: TypeAlias = Callable[[TrustQuestion], bool] | bool | None


def digest_of(parts: Iterable[tuple[str, str]]) -> str:
    """One digest for a file and for all that it draws in: paths, and digests of contents."""
    told = msgspec.json.encode(sorted(parts))
    return hashlib.sha256(told).hexdigest()


def is_trusted(file: str, digest: str, drafts: Iterable[Draft], trust: Trust) -> bool:
    """Whether a file may be used; a person is asked where that is possible, and remembered."""
    if trust is True:
        return True
    key = os.path.realpath(file)
    kept = recall(key)
    if kept == digest:
        return True
    if trust is None or trust is False:
        return False
    question = TrustQuestion(
        file=file, digest=digest, wishes=tuple(wishes(drafts)), changed=kept is not None
    )
    if trust(question) is not True:
        return False
    remember(key, digest)
    return True


# ---------------------------------------------------------------- what is shown


def wishes(drafts: Iterable[Draft]) -> list[Wish]:
    """All that servers want, as it stands in their files, whole."""
    found: list[Wish] = []
    for draft in drafts:
        key = clean(draft.key)
        url, cwd = draft.get("url"), draft.get("cwd")
        if draft.get("command") is not None:
            found.append(Wish(key, "run", clean(shlex.join(words(draft)))))
        if url is not None:
            found.append(Wish(key, "reach", clean(url.value.text)))
        if cwd is not None:
            found.append(Wish(key, "in", clean(cwd.value.text)))
        for field, what in (("env", "set"), ("headers", "send")):
            for name, said in draft.table(field).items():
                found.append(Wish(key, what, clean(f"{name}={_text(said)}")))  # type: ignore[arg-type]
        for field, what in (("env_file", "read"), ("headers_helper", "ask")):
            said = draft.get(field)
            if said is not None:
                found.append(Wish(key, what, clean(_text(said))))  # type: ignore[arg-type]
        found += _asked(draft, key)
    return found


def _text(said: Said) -> str:
    return said.value.text if isinstance(said.value, Template) else ""


def _asked(draft: Draft, key: str) -> list[Wish]:
    """The programs that are asked for values."""
    return [
        Wish(key, "ask", clean(shlex.join(part.words)))
        for said in draft.fields.values()
        if isinstance(said.value, Template)
        for part in said.value.references
        if part.kind == "command"
    ]


# ---------------------------------------------------------------- what is kept


class _Kept(Struct):
    file: str
    digest: str


def folder() -> Path:
    """Where it is kept: beside the logins."""
    from portico.client.authorizing import home

    return home() / FOLDER


def _file(key: str) -> Path:
    return folder() / f"{hashlib.sha256(os.fsencode(key)).hexdigest()}.json"


def recall(key: str) -> str | None:
    """The digest that was trusted for a path; None where there is none that counts."""
    try:
        with open(_file(key), "rb") as opened:
            seen = os.fstat(opened.fileno())
            data = opened.read()
        kept = msgspec.json.decode(data, type=_Kept)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    if sys.platform != "win32" and (seen.st_uid != os.getuid() or seen.st_mode & _OTHERS_WRITE):
        return None
    return kept.digest if kept.file == key else None


def remember(key: str, digest: str) -> None:
    """Keep that a path may be used with this content. Raises `Refused`."""
    path = _file(key)
    try:
        path.parent.mkdir(mode=_OWN_FOLDER, parents=True, exist_ok=True)
        if sys.platform != "win32":
            path.parent.chmod(_OWN_FOLDER)
        made, name = tempfile.mkstemp(prefix=".new-", dir=path.parent)
        try:
            with os.fdopen(made, "wb") as file:
                file.write(msgspec.json.encode(_Kept(key, digest)))
            os.chmod(name, _OWN_FILE)
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
    except OSError as error:
        raise Refused(f"it cannot be kept in {path.parent}: {error.strerror}") from None


def forget(key: str) -> bool:
    """Trust a path no more; whether it was trusted."""
    try:
        _file(key).unlink()
    except FileNotFoundError:
        return False
    return True
