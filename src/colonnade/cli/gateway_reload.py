"""SIGHUP for `colonnade gateway`: its configuration is read again while it serves.

Rules: a configuration that cannot be used changes nothing and is logged. Nobody is asked: a file
that has changed is used once it is trusted. A terminal that is closed ends the gateway, as before.
"""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from colonnade.cli.errors import CliError
from colonnade.errors import ColonnadeError
from colonnade.host.config.inline import is_broken
from colonnade.text import clean

if TYPE_CHECKING:  # loaded when the command runs
    from colonnade.host.config.settings import Config
    from colonnade.host.host import Host

log: logging.Logger = logging.getLogger("colonnade.gateway")

KEPT = "the configuration before it stays in force"


class GatewayReload:
    """Reads the configuration of a gateway again: `read` returns it, or raises `CliError`."""

    def __init__(self, host: "Host", config: "Config", read: Callable[[], "Awaitable[Config]"]):
        self._host = host
        self._config = config
        self._read = read
        self._is_requested = False
        self._task: asyncio.Task[None] | None = None

    def listen(self) -> None:
        """Read it again at each SIGHUP, in the running loop, until that ends."""
        if not hasattr(signal, "SIGHUP"):
            return
        # A shell that ends sends the same signal, unless `nohup` has said that it is to be ignored.
        ends = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and _has_terminal()
        handler = self._request_or_end if ends else self.request
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, handler)

    def _request_or_end(self) -> None:
        if _has_terminal():
            self.request()
        else:
            os.kill(os.getpid(), signal.SIGTERM)

    def request(self) -> None:
        """Read it again; once more after a reload that goes on."""
        self._is_requested = True
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while self._is_requested:
            self._is_requested = False
            await self.reload()

    async def reload(self) -> bool:
        """Use the configuration as it is now; False if the one before it stays in force."""
        try:
            config = await self._read()
            wrong = [one for one in config.problems if one.untrusted]
            if wrong or is_broken(config, self._config):
                known = {one.message for one in self._config.problems}
                new = [one for one in config.problems if one.message not in known]
                raise CliError(str((wrong or new or config.problems)[0]))
            await self._host.reload(config)
        except (CliError, ColonnadeError) as error:
            log.error("%s; %s", clean(str(error)).rstrip("."), KEPT)
            return False
        except Exception:
            log.error("the configuration cannot be read; %s", KEPT, exc_info=True)
            return False
        before = {one.message for one in self._config.problems}
        self._config = config
        for problem in config.problems:
            if problem.message not in before:
                log.warning("%s", clean(str(problem)))
        log.info("the configuration was read again: %d servers", len(self._host.servers))
        return True


def _has_terminal() -> bool:
    """Whether this process has a controlling terminal."""
    with contextlib.suppress(OSError):
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
        return True
    return False
