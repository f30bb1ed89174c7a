"""The time of a battery: real time and an offset, that all its processes read from one file."""

import mmap
import struct
from pathlib import Path
from time import time as real_time  # a client may replace time.time by this clock

_OFFSET = struct.Struct("<d")


class SimulatedClock:
    """The simulated time of day. The file is made by the battery, which alone moves the clock."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(_OFFSET.pack(0.0))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _OFFSET.size)

    @property
    def offset(self) -> float:
        return _OFFSET.unpack_from(self._shared)[0]

    def __call__(self) -> float:
        return real_time() + self.offset

    def forward(self, seconds: float) -> None:
        _OFFSET.pack_into(self._shared, 0, self.offset + seconds)
