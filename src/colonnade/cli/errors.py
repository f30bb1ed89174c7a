"""Errors of the command line: one message, an exit code, and the traceback of the user's code.

Rules: frames of Colonnade itself are shown with `--debug` only. A message says what happened, to
what, and what to do. Messages go to stderr, and nothing is coloured.
"""

import contextlib
import os
import sys
import traceback
from collections.abc import Generator
from typing import Final

from colonnade.errors import (
    AuthError,
    ChannelError,
    ColonnadeError,
    LocalProtocolError,
    Refused,
    TaskEnded,
    ToolError,
)

# Exit codes of all commands; 0 is success. FAILED is also a tool result with `isError`.
FAILED: Final = 1
USAGE: Final = 2
AUTHORIZATION: Final = 3
UNREACHABLE: Final = 4
PROTOCOL: Final = 5
INTERRUPTED: Final = 130

# How to pass a token to a command; the variable holds the whole value of the header.
TOKEN_OPTION: Final = "--header-env Authorization=VARIABLE, where VARIABLE is 'Bearer …'"

# Log lines of commands that a person or a client starts; `serve` adds the time.
LOG_FORMAT: Final = "%(levelname)s %(name)s: %(message)s"

# An exception message longer than this is cut in our message; the traceback has all of it.
MAX_MESSAGE = 300

# Packages whose frames stand between the command and the user's code in a traceback.
_INTERNAL = ("colonnade", "click", "asyncio", "concurrent", "contextlib", "importlib", "runpy")


class CliError(Exception):
    """The command cannot continue.

    `hint` says what to do; `traceback` is shown above the message; `retry_on_change` means that a
    change of the user's file may fix it, so `--reload` waits for one.
    """

    def __init__(
        self,
        summary: str,
        code: int = USAGE,
        *,
        hint: str = "",
        traceback: str = "",
        retry_on_change: bool = False,
    ) -> None:
        super().__init__(summary)
        self.summary = summary
        self.hint = hint
        self.code = code
        self.traceback = traceback
        self.retry_on_change = retry_on_change

    @property
    def message(self) -> str:
        """The summary, and what to do."""
        return f"{self.summary}; {self.hint}" if self.hint else self.summary

    def __str__(self) -> str:
        return self.message


class Reporter:
    """Reports errors and events on standard error, as lines of text or as JSON log records."""

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

    def configure_logging(self) -> None:
        """Set up logging as the options say; call it before anything else logs."""
        if self._log_json or self._log_level is not None or self._access_log:
            from functools import partial

            from colonnade.logs import log_json
            from colonnade.transport.http_server.settings import prepare_log

            json = partial(log_json, None) if self._log_json else None
            prepare_log(self._log_level, access_log=self._access_log, json=json)

    def enable_debug(self) -> None:
        """Log debug messages, through the handlers that are set up by now."""
        import logging

        logging.basicConfig(format=LOG_FORMAT)
        logging.getLogger("colonnade").setLevel(logging.DEBUG)

    def arguments(self) -> list[str]:
        """The command-line options that make the same reporter."""
        level = ["--log-level", self._log_level] if self._log_level is not None else []
        return ["--debug"] * self.debug + ["--log-json"] * self._log_json + level

    def error(self, error: CliError) -> None:
        """Report an error."""
        if self._log_json:
            extra = {"error": error.traceback} if error.traceback else {}
            self._log("error", error.message, extra)
        else:
            self._write(f"{error.traceback}colonnade: {error.message}\n")

    def info(self, message: str) -> None:
        """Report an event."""
        if self._log_json:
            self._log("info", message, {})
        else:
            self._write(f"colonnade: {message}\n")

    def traceback(self, error: BaseException) -> str:
        """The traceback to show: of the user's code, or all of it with `--debug`."""
        return full_traceback(error) if self.debug else user_traceback(error)

    def _log(self, level: str, message: str, extra: dict[str, str]) -> None:
        import logging

        log = logging.getLogger("colonnade.cli")
        log.setLevel(logging.INFO)
        log.log(logging.getLevelNamesMapping()[level.upper()], "%s", message, extra=extra)

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError, AttributeError):  # it is closed
            encoding = sys.stderr.encoding or "utf-8"
            sys.stderr.write(text.encode(encoding, "backslashreplace").decode(encoding))
            sys.stderr.flush()


def exit_code(error: ColonnadeError) -> int:
    """The exit code for an error."""
    if isinstance(error, AuthError):
        return AUTHORIZATION
    if isinstance(error, ChannelError):
        return UNREACHABLE
    if isinstance(error, LocalProtocolError):
        return USAGE
    if isinstance(error, ToolError | Refused | TaskEnded):
        return FAILED
    return PROTOCOL


def describe_exception(error: BaseException) -> str:
    """The type and the message of an exception, on one line."""
    message = " ".join(str(error).split())
    if len(message) > MAX_MESSAGE:
        message = message[:MAX_MESSAGE] + "…"
    if isinstance(error, ColonnadeError) and message:
        return message
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


# ---------------------------------------------------------------- stdout


class OutputClosed(BrokenPipeError):
    """The reader of stdout has closed it, as `head` does: the command ends quietly."""


@contextlib.contextmanager
def output() -> Generator[None, None, None]:
    """Write to stdout. Raises `OutputClosed`, or `CliError` if it cannot be written."""
    try:
        yield
    except BrokenPipeError as error:
        discard_output()
        raise OutputClosed(*error.args) from None
    except OSError as error:
        discard_output()
        why = error.strerror or str(error)
        raise CliError(f"cannot write to stdout: {why}", FAILED) from None


def discard_output() -> None:
    """Discard what is still in the buffer of stdout at the end of the process."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


# ---------------------------------------------------------------- tracebacks


def full_traceback(error: BaseException) -> str:
    """Format the whole traceback."""
    return "".join(traceback.format_exception(error))


def user_traceback(error: BaseException) -> str:
    """Format a traceback without the frames of Colonnade and of what it runs on."""
    summary = traceback.TracebackException.from_exception(error)
    _remove_frames(summary, _internal_prefixes())
    if summary.stack or summary.__cause__ or summary.__context__:
        return "".join(summary.format())
    # A file with a syntax error has no frame, but a line that is wrong.
    return "".join(summary.format_exception_only()) if isinstance(error, SyntaxError) else ""


def is_user_error(error: BaseException) -> bool:
    """Whether a frame of the user's code, or of what it called, is in the traceback."""
    internal = _internal_prefixes()
    frames = traceback.extract_tb(error.__traceback__)
    return any(not frame.filename.startswith(internal) for frame in frames)


def _remove_frames(summary: traceback.TracebackException | None, internal: tuple[str, ...]) -> None:
    if summary is None:
        return
    summary.stack[:] = [one for one in summary.stack if not one.filename.startswith(internal)]
    _remove_frames(summary.__cause__, internal)
    _remove_frames(summary.__context__, internal)
    for one in summary.exceptions or ():
        _remove_frames(one, internal)


def _internal_prefixes() -> tuple[str, ...]:
    """How the file names of internal frames begin."""
    found = ["<frozen ", f"uvloop{os.sep}"]  # compiled code has no file
    for name in _INTERNAL:
        file = getattr(sys.modules.get(name), "__file__", None) or ""
        folder, last = os.path.split(file)
        found += [folder + os.sep if last == "__init__.py" else file] if file else []
    return tuple(found)
