"""What went wrong, told to a person: one sentence, the right exit code, their own lines of code.

Rules: nobody is shown our lines of a traceback but who asks for them (`--debug`). A sentence says
what happened, to what, and what to do. Standard output is never touched, and nothing has a colour.
"""

import contextlib
import os
import sys
import traceback
from typing import Final

from colonnade.errors import (
    AuthError,
    ChannelError,
    ColonnadeError,
    LocalProtocolError,
    Refused,
    ToolError,
)

# The exit codes of every command. 0 is fine; 1 is also "the tool said error".
FAILED: Final = 1
USAGE: Final = 2
AUTHORIZATION: Final = 3
UNREACHABLE: Final = 4
PROTOCOL: Final = 5
INTERRUPTED: Final = 130

# How a token goes along with a command; the variable holds the whole value of the header.
BY_HEADER: Final = "--header-env Authorization=VARIABLE, where VARIABLE is 'Bearer …'"

# More of what an exception says is no sentence; the traceback has all of it.
MAX_WORDS = 300

# What stands between the command and the code of its user, and is none of theirs.
_BETWEEN = ("colonnade", "click", "asyncio", "contextlib", "importlib", "runpy")


class Trouble(Exception):
    """The command cannot go on. `lines` are of a traceback; `mendable` by a change of the file."""

    def __init__(
        self, words: str, code: int = USAGE, *, lines: str = "", mendable: bool = False
    ) -> None:
        super().__init__(words)
        self.words = words
        self.code = code
        self.lines = lines
        self.mendable = mendable


class Voice:
    """How the command speaks: sentences on standard error, or records of the log."""

    def __init__(
        self,
        *,
        log_json: bool = False,
        debug: bool = False,
        log_level: str | None = None,
        access_log: bool = False,
    ) -> None:
        self.debug = debug
        self._log_json = log_json
        self._log_level = log_level
        self._access_log = access_log

    def prepare(self) -> None:
        """Log as it was asked for, before anything else logs."""
        if self._log_json or self._log_level is not None or self._access_log:
            from functools import partial

            from colonnade.logs import log_json
            from colonnade.transport.http_server.settings import prepare_log

            json = partial(log_json, None) if self._log_json else None
            prepare_log(self._log_level, access_log=self._access_log, json=json)

    def prepare_debug(self) -> None:
        """Log more, in the way that is set up by now."""
        import logging

        logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
        logging.getLogger("colonnade").setLevel(logging.DEBUG)

    def arguments(self) -> list[str]:
        """The same as it is typed."""
        level = ["--log-level", self._log_level] if self._log_level is not None else []
        return ["--debug"] * self.debug + ["--log-json"] * self._log_json + level

    def complain(self, trouble: Trouble) -> None:
        """Say what is wrong."""
        if self._log_json:
            extra = {"error": trouble.lines} if trouble.lines else {}
            self._log("error", trouble.words, extra)
        else:
            self._write(f"{trouble.lines}colonnade: {trouble.words}\n")

    def say(self, words: str) -> None:
        """Say what is going on."""
        if self._log_json:
            self._log("info", words, {})
        else:
            self._write(f"colonnade: {words}\n")

    def trace(self, error: BaseException) -> str:
        """The lines of a traceback that are for the person who reads it."""
        return whole(error) if self.debug else own(error)

    def _log(self, level: str, words: str, extra: dict[str, str]) -> None:
        import logging

        log = logging.getLogger("colonnade.cli")
        log.setLevel(logging.INFO)
        log.log(logging.getLevelNamesMapping()[level.upper()], "%s", words, extra=extra)

    def _write(self, words: str) -> None:
        with contextlib.suppress(OSError, ValueError, AttributeError):  # nobody listens
            encoding = sys.stderr.encoding or "utf-8"
            sys.stderr.write(words.encode(encoding, "backslashreplace").decode(encoding))
            sys.stderr.flush()


def code_of(error: ColonnadeError) -> int:
    """The exit code that an error means."""
    if isinstance(error, AuthError):
        return AUTHORIZATION
    if isinstance(error, ChannelError):
        return UNREACHABLE
    if isinstance(error, LocalProtocolError):
        return USAGE
    if isinstance(error, ToolError | Refused):
        return FAILED
    return PROTOCOL


def whole(error: BaseException) -> str:
    """All of a traceback."""
    return "".join(traceback.format_exception(error))


def own(error: BaseException) -> str:
    """A traceback without what stands between the command and the code of its user."""
    told = traceback.TracebackException.from_exception(error)
    _trim(told, _between())
    if told.stack or told.__cause__ or told.__context__:
        return "".join(told.format())
    # A file that could not be read has no lines that ran, but one that is wrong.
    return "".join(told.format_exception_only()) if isinstance(error, SyntaxError) else ""


def named(error: BaseException) -> str:
    """What was raised, in one line."""
    words = " ".join(str(error).split())
    if len(words) > MAX_WORDS:
        words = words[:MAX_WORDS] + "…"
    if isinstance(error, ColonnadeError) and words:
        return words
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def is_theirs(error: BaseException) -> bool:
    """Whether any line of the user's own code, or of what it called, was running."""
    between = _between()
    return any(not _is_in(f.filename, between) for f in traceback.extract_tb(error.__traceback__))


def _trim(told: traceback.TracebackException | None, between: tuple[str, ...]) -> None:
    if told is None:
        return
    told.stack[:] = [frame for frame in told.stack if not _is_in(frame.filename, between)]
    _trim(told.__cause__, between)
    _trim(told.__context__, between)
    for one in told.exceptions or ():
        _trim(one, between)


def _between() -> tuple[str, ...]:
    """Folders and files, as they begin in a traceback."""
    found = ["<frozen ", f"uvloop{os.sep}"]  # compiled code has no files
    for name in _BETWEEN:
        file = getattr(sys.modules.get(name), "__file__", None) or ""
        folder, last = os.path.split(file)
        found += [folder + os.sep if last == "__init__.py" else file] if file else []
    return tuple(found)


def _is_in(filename: str, between: tuple[str, ...]) -> bool:
    return filename.startswith(between)
