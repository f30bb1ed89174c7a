"""How a configuration file stands with whoever uses it, before and after a command wrote into it.

What a person typed themselves needs no second question. So trust goes on where the file was not
there before, or was trusted with exactly the bytes that it had.

Rules: trusted is what was trusted before and what was typed, and nothing besides: no server that
comes to light by a change, no byte that another wrote meanwhile, no file drawn in that is new. What
nobody trusted stays so, and a line says it.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any

from colonnade.cli.text import clean
from colonnade.errors import Refused
from colonnade.host.config import Reader
from colonnade.host.trust import digest_of, forget, recall, remember


class Standing:
    """One file: `text` is what was read of it, nothing where it was not there."""

    def __init__(self, path: str, text: str | None) -> None:
        self._path = path
        self._key = os.path.realpath(path)
        before = self._read()
        self._servers = _servers(before)
        self._drawn = _drawn(before)
        # A file in a place of the user's own needs no trust.
        self._is_guarded = before.sources[0].guarded
        is_same = before.sources[0].digest == _digest(text)
        known = text is None or recall(self._key) == _whole(before)
        self._is_trusted = is_same and known

    def goes_on(self, new: str | None, typed: Mapping[str, Any] | None = None) -> str:
        """Keep the trust for what was written: `typed` are the servers in it that a person has just
        typed. What to tell them, if there is anything."""
        if new is None:
            forget(self._key)
            return ""
        if not self._is_guarded:
            return ""
        after = self._read()
        known = [*self._servers, *(typed or {}).items()]
        is_ours = after.sources[0].digest == _digest(new) and _drawn(after) == self._drawn
        shown = clean(self._path)
        if self._is_trusted and is_ours and all(one in known for one in _servers(after)):
            try:
                remember(self._key, _whole(after))
            except Refused as error:
                return f"{shown} is not trusted: {clean(str(error))}"
            return ""
        if not after.untrusted:
            return ""  # it wants nothing
        words = f"{shown} was not trusted before, and is not now; look at it, and then"
        return f"{words}: colonnade config trust {clean(quote(self._path))}"

    def _read(self) -> Reader:
        """The file as every command reads it; nobody is asked."""
        reader = Reader(strict=True)
        reader.read(self._path)
        return reader


def _digest(text: str | None) -> str:
    return "" if text is None else hashlib.sha256(text.encode("utf-8")).hexdigest()


def _whole(reader: Reader) -> str:
    """The digest that is kept for a file."""
    return digest_of(reader.drawn.get(reader.sources[0].file, ()))


def _servers(reader: Reader) -> list[tuple[str, Any]]:
    """Every server that would be used, as it stands there."""
    return [(draft.key, draft.node.value) for one in reader.sources for draft in one.drafts]


def _drawn(reader: Reader) -> Sequence[tuple[str, str]]:
    """What else is read because of the file, and its digests."""
    file = reader.sources[0].file
    return [part for part in reader.drawn.get(file, ()) if part[0] != file]
