"""`colonnade`, with figures about its memory: `python measured_gateway.py FILE gateway …`.

For each SIGUSR1 a line of JSON is appended to FILE: the resident memory before and after free memory
is given back to the system (`malloc_trim`), the objects that the garbage collector knows, the most
frequent of them, and, if PYTHONTRACEMALLOC is set, the bytes of all live objects and where most of
them were allocated. MEASURED_IDLE_S is how long unused lists of callers are kept, in seconds.
"""

import ctypes
import gc
import json
import os
import signal
import sys
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

MIB = 1024 * 1024


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


def measure() -> dict[str, Any]:
    gc.collect()
    known = gc.get_objects()
    kinds = Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in known)
    found: dict[str, Any] = {"objects": len(known), "kinds": kinds.most_common(60)}
    del known
    found["tasks"] = kinds["_asyncio.Task"]
    if tracemalloc.is_tracing():
        found["live_mib"] = tracemalloc.get_traced_memory()[0] / MIB
        statistics = tracemalloc.take_snapshot().statistics("lineno")[:25]
        found["places"] = [[str(one.traceback), one.size, one.count] for one in statistics]
    found["resident_mib"] = resident_mib()
    ctypes.CDLL(None).malloc_trim(0)
    found["trimmed_mib"] = resident_mib()
    return found


def main() -> int:
    from colonnade.__main__ import main as start
    from colonnade.gateway import manifests
    from colonnade.host.servers import generation

    output = Path(sys.argv.pop(1))

    def on_signal(*_: object) -> None:
        with output.open("a") as file:
            file.write(json.dumps(measure()) + "\n")

    signal.signal(signal.SIGUSR1, on_signal)
    if idle_s := os.environ.get("MEASURED_IDLE_S"):
        generation.LISTS_IDLE_S = manifests.LISTS_IDLE_S = float(idle_s)
    return start()


if __name__ == "__main__":
    sys.exit(main())
