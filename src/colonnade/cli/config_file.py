"""The configuration file of another program: read, kept beside itself, replaced in one step.

Rules: whoever reads the file sees the old text or the new one, never a part. Links are followed,
permissions kept; a file of ours is for its owner alone. A file that changed since it was read is
not written.
"""

import contextlib
import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any, Final

from colonnade.cli.errors import FAILED, Trouble
from colonnade.errors import Refused
from colonnade.host.config.reader import ConfigReader
from colonnade.host.config.trust import digest_of, forget, recall, remember
from colonnade.text import clean

# Claude Code keeps all that it remembers in the same file; a hundred times of that is no such file.
MAX_BYTES: Final = 64 * 1024 * 1024
# A file that was not there may come to hold a secret.
OWNER_ALONE: Final = 0o600


class EntryFile:
    """One file, as it was when it was read."""

    def __init__(self, path: str) -> None:
        self.shown: str = clean(path)
        self._path = os.path.realpath(path)
        self._seen: os.stat_result | None = None

    def read(self) -> str | None:
        """Its text; nothing, where there is no such file. Raises `Trouble`."""
        try:
            with open(self._path, "rb") as file:
                self._seen = os.fstat(file.fileno())
                data = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._trouble("cannot be read", error) from None
        if len(data) > MAX_BYTES:
            raise Trouble(f"{self.shown} has more than {MAX_BYTES >> 20} MiB", FAILED)
        return self._decoded(data)

    def _decoded(self, data: bytes) -> str:
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            column = error.start - (data.rfind(b"\n", 0, error.start) + 1) + 1
            where = f"{self.shown}, line {line}, column {column}"
            raise Trouble(f"{where}: no UTF-8; nothing was written", FAILED) from None

    # ------------------------------------------------------------ the copy beside it

    def kept_as(self, name: str) -> str:
        """Where the text is kept from before this server came or went."""
        return f"{self._path}.before-{re.sub(r'[^A-Za-z0-9_-]', '_', name)[:64]}"

    def kept(self, name: str) -> str | None:
        """That text, if there is one."""
        try:
            with open(self.kept_as(name), "rb") as file:
                return file.read(MAX_BYTES).decode("utf-8")
        except (OSError, UnicodeDecodeError):
            return None

    def forget(self, name: str) -> None:
        """Keep nothing of before: it is there again."""
        with contextlib.suppress(OSError):
            os.unlink(self.kept_as(name))

    # ------------------------------------------------------------ writing

    @property
    def has_folder(self) -> bool:
        """Whether the folder is there, in which the program looks for it."""
        return os.path.isdir(os.path.dirname(self._path))

    def replace(self, name: str, new: str | None, *, old: str | None = None) -> str:
        """Put a new text in the place of the file, or nothing; where the old text is kept, if one
        is given. Raises `Trouble`, and then the file is as it was."""
        kept = self.kept_as(name) if old is not None else ""
        try:
            data = None if new is None else new.encode("utf-8")
        except UnicodeEncodeError:
            raise Trouble("a name or a value is no text, and cannot be written", FAILED) from None
        try:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            if old is not None:
                self._write(kept, old.encode("utf-8"))
            if data is not None:
                self._write(self._path, data, is_it=True)
            else:
                self._check()
                os.unlink(self._path)
        except OSError as error:
            raise self._trouble("cannot be written", error) from None
        return kept

    def _write(self, path: str, data: bytes, *, is_it: bool = False) -> None:
        made, name = tempfile.mkstemp(prefix=".colonnade-", dir=os.path.dirname(path))
        try:
            with os.fdopen(made, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            self._give_rights(name)
            if is_it:
                self._check()
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise

    def _give_rights(self, name: str) -> None:
        """Those of the file itself, as far as we may."""
        os.chmod(name, stat.S_IMODE(self._seen.st_mode) if self._seen else OWNER_ALONE)
        if self._seen and hasattr(os, "chown"):
            with contextlib.suppress(OSError):
                os.chown(name, self._seen.st_uid, self._seen.st_gid)

    def _check(self) -> None:
        try:
            now = os.stat(self._path)
        except FileNotFoundError:
            now = None
        if _mark(now) != _mark(self._seen):
            words = f"{self.shown} was changed by somebody else just now; nothing was written"
            raise Trouble(f"{words}, so try again", FAILED)

    def _trouble(self, what: str, error: OSError) -> Trouble:
        return Trouble(f"{self.shown} {what}: {error.strerror or error}", FAILED)


def _mark(seen: os.stat_result | None) -> tuple[int, int, int] | None:
    return (seen.st_ino, seen.st_size, seen.st_mtime_ns) if seen else None


class Standing:
    """One file: `text` is what was read of it, nothing where it was not there."""

    def __init__(self, path: str, text: str | None) -> None:
        self._path = path
        self._key = os.path.realpath(path)
        before = self._read()
        self._servers = _servers(before)
        self._drawn = _drawn(before)
        # A file in a place of the user's own needs no trust.
        self._is_guarded = before.sources[0].needs_trust
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

    def _read(self) -> ConfigReader:
        """The file as every command reads it; nobody is asked."""
        reader = ConfigReader(strict=True)
        reader.read(self._path)
        return reader


def _digest(text: str | None) -> str:
    return "" if text is None else hashlib.sha256(text.encode("utf-8")).hexdigest()


def _whole(reader: ConfigReader) -> str:
    """The digest that is kept for a file."""
    return digest_of(reader.included.get(reader.sources[0].file, ()))


def _servers(reader: ConfigReader) -> list[tuple[str, Any]]:
    """Every server that would be used, as it stands there."""
    return [(draft.key, draft.node.value) for one in reader.sources for draft in one.drafts]


def _drawn(reader: ConfigReader) -> Sequence[tuple[str, str]]:
    """What else is read because of the file, and its digests."""
    file = reader.sources[0].file
    return [part for part in reader.included.get(file, ()) if part[0] != file]
