"""Edit the configuration file of another program: read it, back it up, replace it atomically.

Rules: a reader of the file sees the old content or the new one, never a part. Symbolic links are
followed, those of a project's file only within the project; permissions are kept, and a new file is
readable by its owner only. A file that changed since it was read is not written.
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

from colonnade.cli.errors import FAILED, CliError
from colonnade.errors import Refused
from colonnade.host.config.reader import ConfigReader
from colonnade.host.config.trust import digest_of, forget, recall, remember
from colonnade.text import clean

# Claude Code keeps all its state in the same file; one a hundred times larger is something else.
MAX_BYTES: Final = 64 * 1024 * 1024
# A new file may come to hold a secret.
OWNER_ONLY: Final = 0o600


class ConfigFileEditor:
    """One file, as it was when it was read. With `project` (the folder of a project), raises
    `CliError` for a file that a symbolic link puts outside of that folder."""

    def __init__(self, path: str, *, project: str = "") -> None:
        self.shown: str = clean(path)
        self._path = os.path.realpath(path)
        if project and not is_below(self._path, os.path.realpath(project)):
            # The author of a project made the link; the user did not name the file it leads to.
            real = clean(self._path)
            raise CliError(
                f"{self.shown} is a symbolic link out of this project, to {real}; nothing was "
                "read or written",
                FAILED,
                hint=f"if that is the file you mean, use --file {clean(quote(self._path))}",
            )
        self._seen: os.stat_result | None = None

    def read(self) -> str | None:
        """Its content; None if there is no such file. Raises `CliError`."""
        try:
            with open(self._path, "rb") as file:
                self._seen = os.fstat(file.fileno())
                data = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._error("cannot be read", error) from None
        if len(data) > MAX_BYTES:
            raise CliError(f"{self.shown} is larger than {MAX_BYTES >> 20} MiB", FAILED)
        return self._decoded(data)

    def _decoded(self, data: bytes) -> str:
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            column = error.start - (data.rfind(b"\n", 0, error.start) + 1) + 1
            where = f"{self.shown}, line {line}, column {column}"
            raise CliError(f"{where}: not valid UTF-8; nothing was written", FAILED) from None

    # ------------------------------------------------------------ backup

    def backup_path(self, name: str) -> str:
        """Where the content is kept from before a server was added or removed."""
        return f"{self._path}.before-{re.sub(r'[^A-Za-z0-9_-]', '_', name)[:64]}"

    def backup(self, name: str) -> str | None:
        """That content, if there is any."""
        try:
            with open(self.backup_path(name), "rb") as file:
                return file.read(MAX_BYTES).decode("utf-8")
        except (OSError, UnicodeDecodeError):
            return None

    def forget(self, name: str) -> None:
        """Delete the backup of a server."""
        with contextlib.suppress(OSError):
            os.unlink(self.backup_path(name))

    # ------------------------------------------------------------ writing

    @property
    def has_folder(self) -> bool:
        """Whether the directory of the file exists."""
        return os.path.isdir(os.path.dirname(self._path))

    def replace(self, name: str, new: str | None, *, old: str | None = None) -> str:
        """Replace the content, or delete the file if `new` is None; `old` is written to the backup,
        whose path is returned. Raises `CliError`, and then the file is unchanged."""
        backup = self.backup_path(name) if old is not None else ""
        try:
            data = None if new is None else new.encode("utf-8")
        except UnicodeEncodeError:
            raise CliError("a name or value cannot be encoded as UTF-8", FAILED) from None
        try:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            if old is not None:
                self._write(backup, old.encode("utf-8"))
            if data is not None:
                self._write(self._path, data, is_target=True)
            else:
                self._check_unchanged()
                os.unlink(self._path)
        except OSError as error:
            raise self._error("cannot be written", error) from None
        return backup

    def _write(self, path: str, data: bytes, *, is_target: bool = False) -> None:
        made, name = tempfile.mkstemp(prefix=".colonnade-", dir=os.path.dirname(path))
        try:
            with os.fdopen(made, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            self._copy_permissions(name)
            if is_target:
                self._check_unchanged()
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise

    def _copy_permissions(self, name: str) -> None:
        """Copy mode and owner of the file, as far as possible."""
        os.chmod(name, stat.S_IMODE(self._seen.st_mode) if self._seen else OWNER_ONLY)
        if self._seen and hasattr(os, "chown"):
            with contextlib.suppress(OSError):
                os.chown(name, self._seen.st_uid, self._seen.st_gid)

    def _check_unchanged(self) -> None:
        try:
            now = os.stat(self._path)
        except FileNotFoundError:
            now = None
        if _identity(now) != _identity(self._seen):
            raise CliError(
                f"{self.shown} was changed by another program; nothing was written",
                FAILED,
                hint="try again",
            )

    def _error(self, what: str, error: OSError) -> CliError:
        return CliError(f"{self.shown} {what}: {error.strerror or error}", FAILED)


def is_below(path: str, folder: str) -> bool:
    """Whether a path is in a folder or its subfolders. Both are absolute and free of links."""
    try:
        return path != folder and os.path.commonpath((path, folder)) == folder
    except ValueError:  # on another drive
        return False


def _identity(seen: os.stat_result | None) -> tuple[int, int, int] | None:
    return (seen.st_ino, seen.st_size, seen.st_mtime_ns) if seen else None


class FileTrust:
    """Keeps a file trusted when we edit it. `text` is its content before, None if it is new."""

    def __init__(self, path: str, text: str | None) -> None:
        self._path = path
        self._key = os.path.realpath(path)
        before = self._read()
        self._servers = _servers(before)
        self._included = _included(before)
        # A file in the user's own directories needs no trust.
        self._is_guarded = before.sources[0].needs_trust
        is_same = before.sources[0].digest == _digest(text)
        known = text is None or recall(self._key) == _full_digest(before)
        self._is_trusted = is_same and known

    def keep(self, new: str | None, typed: Mapping[str, Any] | None = None) -> str:
        """Trust the file with its new content; `typed` are the servers that the user has just
        added. Returns a message for the user, or an empty string."""
        if new is None:
            forget(self._key)
            return ""
        if not self._is_guarded:
            return ""
        after = self._read()
        known = [*self._servers, *(typed or {}).items()]
        is_ours = after.sources[0].digest == _digest(new) and _included(after) == self._included
        shown = clean(self._path)
        if self._is_trusted and is_ours and all(one in known for one in _servers(after)):
            try:
                remember(self._key, _full_digest(after))
            except Refused as error:
                return f"{shown} is not trusted: {clean(str(error))}"
            return ""
        if not after.untrusted:
            return ""  # it asks for nothing
        hint = f"review it, then run colonnade config trust {clean(quote(self._path))}"
        return f"{shown} was not trusted before, and is not now; {hint}"

    def _read(self) -> ConfigReader:
        """Read the file as every command does, without prompting."""
        reader = ConfigReader(strict=True)
        reader.read(self._path)
        return reader


def _digest(text: str | None) -> str:
    return "" if text is None else hashlib.sha256(text.encode("utf-8")).hexdigest()


def _full_digest(reader: ConfigReader) -> str:
    """The digest that is stored for a file."""
    return digest_of(reader.included.get(reader.sources[0].file, ()))


def _servers(reader: ConfigReader) -> list[tuple[str, Any]]:
    """Every server that would be used, as the file has it."""
    return [(draft.key, draft.node.value) for one in reader.sources for draft in one.drafts]


def _included(reader: ConfigReader) -> Sequence[tuple[str, str]]:
    """Other files that are read because of this one, with their digests."""
    file = reader.sources[0].file
    return [part for part in reader.included.get(file, ()) if part[0] != file]
