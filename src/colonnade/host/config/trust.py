"""Trust on first use of configuration files: whether a file may start servers, for its exact bytes.

A file in a project folder could start anything for the user that opens that folder. So such a file
is shown to the user once, with all that it makes happen as it is written, and again when it, or a
file that it includes, has changed by a byte.

Rules: what was shown is what is used: one read, one digest. The text shown is complete, and cannot
control a terminal. A record has only a path and a digest, is written atomically, and counts only if
no other user could have written it.
"""

import hashlib
import os
import stat
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from colonnade.errors import Refused
from colonnade.host.config.actions import RequestedAction

FOLDER: Final = "trusted"
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


class TrustRequest(Struct, frozen=True, kw_only=True):
    """What a user is asked to trust: all actions that a file requests."""

    file: str
    digest: str
    actions: tuple[RequestedAction, ...]
    # Whether another version of this file was trusted.
    changed: bool = False


# A callback that asks the user; True to trust everything; None to use only what was trusted before.
Trust: TypeAlias = Callable[[TrustRequest], bool] | bool | None


def digest_of(parts: Iterable[tuple[str, str]]) -> str:
    """One digest of a file and the files that it includes: their paths and the digests of their
    content."""
    encoded = msgspec.json.encode(sorted(parts))
    return hashlib.sha256(encoded).hexdigest()


def is_trusted(file: str, digest: str, wanted: Sequence[RequestedAction], trust: Trust) -> bool:
    """Whether a file may be used; the user is asked if that is possible, and the answer is
    trusted."""
    if trust is True:
        return True
    key = os.path.realpath(file)
    trusted = recall(key)
    if trusted == digest:
        return True
    if trust is None or trust is False:
        return False
    question = TrustRequest(
        file=file, digest=digest, actions=tuple(wanted), changed=trusted is not None
    )
    if trust(question) is not True:
        return False
    remember(key, digest)
    return True


# ---------------------------------------------------------------- records


class _TrustRecord(Struct):
    file: str
    digest: str


def folder() -> Path:
    """The folder of the records."""
    from colonnade.client.auth import storage_folder

    return storage_folder() / FOLDER


def _file(key: str) -> Path:
    return folder() / f"{hashlib.sha256(os.fsencode(key)).hexdigest()}.json"


def recall(key: str) -> str | None:
    """The digest that was trusted for a path; None if there is no valid record."""
    try:
        with open(_file(key), "rb") as opened:
            seen = os.fstat(opened.fileno())
            data = opened.read()
        trusted = msgspec.json.decode(data, type=_TrustRecord)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    if sys.platform != "win32" and (seen.st_uid != os.getuid() or seen.st_mode & _OTHERS_WRITE):
        return None
    return trusted.digest if trusted.file == key else None


def remember(key: str, digest: str) -> None:
    """Record that a path is trusted with this digest. Raises `Refused`."""
    from colonnade.client.auth import write_private  # on use

    path = _file(key)
    try:
        write_private(path, msgspec.json.encode(_TrustRecord(key, digest)))
    except OSError as error:
        raise Refused(f"it cannot be stored in {path.parent}: {error.strerror}") from None


def forget(key: str) -> bool:
    """Remove the record of a path; whether there was one."""
    try:
        _file(key).unlink()
    except FileNotFoundError:
        return False
    return True
