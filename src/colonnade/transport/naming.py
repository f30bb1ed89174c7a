"""What a server is called on a terminal.

Rules: for people alone; what goes over the wire has the version as it is.
"""

from typing import Final

from colonnade.protocol.types import Implementation

# What a server is called that was given no version; it is not worth saying.
UNVERSIONED: Final = "0"


def called(info: Implementation) -> str:
    """Its name, and its version if it was given one."""
    return info.name if info.version == UNVERSIONED else f"{info.name} {info.version}"
