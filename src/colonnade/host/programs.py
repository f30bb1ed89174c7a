"""A program that is asked for a value: started, heard, and ended within its time.

Rules: its words are never a shell's, but where a person wrote a line for a shell and a dialect says
that it is one. What it prints is the value: it is in no error and no log, and neither is what it
says on standard error, which may hold as much. Nothing of it outlives its time.
"""

import asyncio
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from colonnade.errors import Refused

# What Claude Code gives such a command; a password manager that asks a person is not done by then.
HELPER_S: Final = 10.0
# A token, or a page of headers; what is longer is no such thing.
MAX_BYTES: Final = 64 * 1024

# What has a meaning for a shell, and none without one.
_SHELL: Final = frozenset("|&;<>()$`\\\"'*?[]#~=%!{}\n\r")


def words_of(line: str, platform: str = sys.platform) -> list[str]:
    """The words of a line that is written for a shell: one goes along only where it is needed."""
    if platform == "win32":
        return ["cmd", "/d", "/s", "/c", line]
    if line.strip() and not _SHELL & set(line):
        return shlex.split(line)
    return ["/bin/sh", "-c", line]


async def printed(
    words: Sequence[str], *, cwd: str | None, env: Mapping[str, str], limit_s: float = HELPER_S
) -> str:
    """What a program prints. Raises `Refused` where it fails, or takes too long."""
    name = os.path.basename(words[0])
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=cwd,
            env=dict(env),
            start_new_session=sys.platform != "win32",
        )
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise Refused(f"{name!r} cannot be started: {why}") from None
    try:
        async with asyncio.timeout(limit_s):
            data = await _read(process)
            code = await process.wait() if len(data) <= MAX_BYTES else await _end(process)
    except TimeoutError:
        await _end(process)
        raise Refused(f"{name!r} was not done within {limit_s:g} s, and was ended") from None
    except BaseException:
        await _end(process)
        raise
    if len(data) > MAX_BYTES:
        raise Refused(f"{name!r} printed more than {MAX_BYTES >> 10} KiB, which is no value")
    if code:
        raise Refused(f"{name!r} failed with exit code {code}; run it by hand to see why")
    return data.decode("utf-8", "replace").rstrip("\r\n")


async def _read(process: asyncio.subprocess.Process) -> bytes:
    data = b""
    if process.stdout is not None:
        while len(data) <= MAX_BYTES and (more := await process.stdout.read(MAX_BYTES)):
            data += more
    return data


async def _end(process: asyncio.subprocess.Process) -> int:
    """Leave nothing of it: not even what it has started itself."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            if process.returncode is None:
                process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    return await process.wait()
