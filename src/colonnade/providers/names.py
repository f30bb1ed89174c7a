"""Names that model providers accept, made from any name, and the way back.

    safe_name("notes.write")            # "notes_write_80c18f42e2d6"
    lead_back("notes_write_80c18f42e2d6", ["notes.read", "notes.write"])

Rules: pure. The safe name depends on the name alone, never on its neighbours, so that it is the
same tomorrow, in another process, and when the list changes. A safe name is its own safe name.
"""

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from colonnade.errors import LocalProtocolError

# What OpenAI and Anthropic both accept; one name beyond it makes them refuse the whole request.
MAX_NAME: Final = 64
# Of a digest, in hexadecimal digits: 48 bits, so that nobody meets a clash by chance.
DIGEST: Final = 12

_SAFE = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_NAME}}}")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


def is_safe(name: str) -> bool:
    """Whether model providers accept this name as it is."""
    return _SAFE.fullmatch(name) is not None


def safe_name(name: str) -> str:
    """This name where it is safe; else what can be read of it, with a digest of all of it."""
    return name if is_safe(name) else digested(name)


def digested(name: str, room: int = MAX_NAME, unreadable: str = "tool") -> str:
    """What can be read of a name, with a digest of all of it, in so many characters."""
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST]
    readable = _UNSAFE.sub("_", name)[: room - DIGEST - 1].strip("_")
    return f"{readable or unreadable}_{digest}"


def lead_back(safe: str, names: Iterable[str]) -> str | None:
    """Which of these names a model means by a safe name; None where it is none of them.

    Raises `LocalProtocolError` where it is several: somebody called a thing what our digest calls
    another, and guessing would call the wrong one.
    """
    meant = {name for name in names if safe_name(name) == safe}
    if len(meant) > 1:
        raise LocalProtocolError(
            f"{safe!r} is what models are told for all of {', '.join(map(repr, sorted(meant)))}; "
            "call one of them by its own name with call_tool"
        )
    return meant.pop() if meant else None
