"""The time of a battery: real time and an offset, that all its processes read from one file.

A client whose every request must be sent and answered at one time has a shared lock on the file
meanwhile (flock): the clock moves by minutes, which no request takes.
"""

import asyncio
import fcntl
import mmap
import struct
from pathlib import Path
from time import time as real_time  # a client may replace time.time by this clock

_OFFSET = struct.Struct("<d")
# How often it is tried to move the clock, and how long: no request takes as long.
TRY_S = 0.001
MOVE_S = 120.0


class SimulatedClock:
    """The simulated time of day. The file is made by the battery, which alone moves the clock."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(_OFFSET.pack(0.0))
        self._path = path
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _OFFSET.size)

    @property
    def offset(self) -> float:
        return _OFFSET.unpack_from(self._shared)[0]

    def __call__(self) -> float:
        return real_time() + self.offset

    async def forward(self, seconds: float) -> None:
        """Move the clock, once no client has locked it. Raises `TimeoutError`."""
        with self._path.open("rb") as file:
            async with asyncio.timeout(MOVE_S):
                while True:
                    try:
                        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        break
                    except BlockingIOError:
                        await asyncio.sleep(TRY_S)
            _OFFSET.pack_into(self._shared, 0, self.offset + seconds)
