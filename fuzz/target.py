"""What a target is, what it finds, and what must hold of everything that we send.

Rules: a check takes a case and nothing else, so that a case can be kept, shrunk and run again.
"""

import ast
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final, NamedTuple, Protocol, TypeVar

from colonnade.errors import ColonnadeError, Fault
from colonnade.protocol.jsonrpc import (
    MAX_ID_BYTES,
    Batch,
    ErrorResponse,
    Frame,
    decode,
    encode_error,
)
from colonnade.protocol.revision import NEWEST, error_code

# Our longest sentence has 300 characters of up to 4 bytes; beside it stand our own dates.
MAX_ANSWER_BYTES: Final = 2048 + MAX_ID_BYTES
# What goes into a log: a sentence of ours, and a short piece of what the peer sent.
MAX_WORDS: Final = 1024

T = TypeVar("T")


class Case(NamedTuple):
    """One thing to try: in which setting, and the inputs in their order."""

    where: str
    parts: tuple[bytes, ...]


NOTHING: Final = Case("", ())


class Finding(AssertionError):
    """Something that must hold does not; `case` is what shows it, once that is known."""

    def __init__(self, words: str, case: Case = NOTHING, target: str = "") -> None:
        shown = [f"{target} {case.where}", *map(repr, case.parts)] if target else []
        super().__init__("\n".join([words, *shown]))
        self.words = words
        self.case = case


class Target(Protocol):
    """A part of the core under fire."""

    @property
    def name(self) -> str: ...

    def draw(self, rng: Random, most: int) -> Case:
        """A case of at most this many inputs."""
        ...

    def check(self, case: Case) -> list[str]:
        """The kind of answer to each input. Raises `Finding`, or whatever the core let out."""
        ...


def attempt(target: Target, case: Case) -> list[str]:
    """Check a case; whatever is raised becomes a `Finding` that shows the case."""
    try:
        return target.check(case)
    except Finding as finding:
        raise Finding(finding.words, case, target.name) from finding.__cause__
    except Exception as error:
        words = f"{type(error).__name__} was let out: {str(error)[:200]}"
        raise Finding(words, case, target.name) from error


def held(fact: object, words: str) -> None:
    if not fact:
        raise Finding(words)


def ours(act: Callable[[], T], longest: int = MAX_WORDS) -> T | ColonnadeError:
    """What comes of an act, or our own error; any other one gets through."""
    try:
        return act()
    except ColonnadeError as error:
        held(len(str(error)) <= longest, f"an error of {len(str(error))} characters")
        return error


# ---------------------------------------------------------------- what we send


def check_sent(data: bytes) -> Frame | Batch:
    """One line that we can read ourselves, without a fault in it."""
    held(b"\n" not in data and b"\r" not in data, "we sent a line break")
    try:
        frame = decode(data)
    except Fault as fault:
        raise Finding(f"we sent what we cannot read: {fault.message}: {data[:300]!r}") from fault
    if isinstance(frame, Batch):
        held(not any(isinstance(item, Fault) for item in frame.items), "we sent a bad batch")
    return frame


def check_answer(data: bytes) -> Frame | Batch:
    """The same of an answer to something that a stranger sent: it is short besides."""
    frame = check_sent(data)
    items = len(frame.items) if isinstance(frame, Batch) else 1
    held(len(data) <= items * MAX_ANSWER_BYTES, f"an answer of {len(data)} bytes")
    return frame


def check_fault(fault: Fault) -> None:
    """A fault can be told: it becomes an error that is short, one line, and readable."""
    held(len(fault.message) <= MAX_WORDS, f"a fault of {len(fault.message)} characters")
    held(len(fault.raw_id) <= MAX_ID_BYTES, f"a fault with an id of {len(fault.raw_id)} bytes")
    code = error_code(fault, NEWEST)
    frame = check_answer(encode_error(fault.raw_id, code, fault.message, fault.data))
    held(
        isinstance(frame, ErrorResponse) and frame.code == code, "a fault was not told as an error"
    )


# ---------------------------------------------------------------- kept cases

REGRESSIONS: Final = Path(__file__).parent / "regressions"


def kept_cases() -> list[tuple[str, str, Case]]:
    """Every case in `regressions/`: its explanation, its target, and what to try.

    A file has the explanation behind `#`, then the target and the setting, then one Python
    literal of bytes for each input.
    """
    found: list[tuple[str, str, Case]] = []
    for path in sorted(REGRESSIONS.glob("*.txt")):
        words, setting, *lines = path.read_text("utf-8").splitlines()
        target, _, where = setting.partition(" ")
        parts = tuple(ast.literal_eval(line) for line in lines if line)
        found.append((words.removeprefix("# "), target, Case(where, parts)))
    return found
