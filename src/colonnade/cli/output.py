"""Standard output that cannot be written: closed by its reader, or on a disk that is full.

Rules: imported by every command, so it imports little. After an error nothing is written any more.
"""

import contextlib
import os
import sys
from collections.abc import Generator

from colonnade.cli.trouble import FAILED, Trouble


class OutputClosed(BrokenPipeError):
    """The reader of standard output has closed it, as `head` does: the command ends quietly."""


@contextlib.contextmanager
def output() -> Generator[None, None, None]:
    """Write to standard output. Raises `OutputClosed`, or `Trouble` where it cannot be written."""
    try:
        yield
    except BrokenPipeError as error:
        discard_output()
        raise OutputClosed(*error.args) from None
    except OSError as error:
        discard_output()
        why = error.strerror or str(error)
        raise Trouble(f"standard output cannot be written: {why}", FAILED) from None


def discard_output() -> None:
    """What is still in the buffer of standard output at the end of the process goes nowhere."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
