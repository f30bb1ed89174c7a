"""Long computations in slices, so that the loop does other work between them.

A computation is a generator that yields wherever it may be interrupted, and returns its result.

Rules: what a stranger's lists are used for is computed in slices; no step of it takes more than a
few milliseconds.
"""

import asyncio
from collections.abc import Generator
from typing import TypeAlias, TypeVar

# How long the loop is kept from other work at a time; a timer may have to wait for two of them.
SLICE_S = 0.002

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]


def at_once(steps: Steps[T]) -> T:
    """The result, without a pause."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: T = end.value
        return result


async def in_slices(steps: Steps[T]) -> T:
    """The result, with other work of the loop in between."""
    now = asyncio.get_running_loop().time
    until = now() + SLICE_S
    try:
        while True:
            next(steps)
            if now() >= until:
                await asyncio.sleep(0)
                until = now() + SLICE_S
    except StopIteration as end:
        result: T = end.value
        return result
