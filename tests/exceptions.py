"""Where we and an official schema differ on purpose, each with its sentence.

`TOO_NARROW`: the schema refuses what the specification's words, or its TypeScript source, allow;
we send it. `TOO_WIDE`: the schema admits what the words forbid; we refuse it.
"""

from typing import NamedTuple


class Difference(NamedTuple):
    dates: tuple[str, ...]
    definition: str
    sentence: str


ALL = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")

TOO_NARROW = (
    Difference(
        ("2025-06-18", "2025-11-25", "2026-07-28"),
        "ElicitResult",
        "content takes no fractions, though forms ask for type number; a number is a number.",
    ),
    Difference(
        ("2026-07-28",),
        "JSONValue",
        "takes no fractions and no null, though it stands for any JSON value.",
    ),
    Difference(
        ("2024-11-05", "2025-03-26", "2025-06-18"),
        "JSONRPCError",
        "requires an id, while JSON-RPC answers what it cannot read with id null (D2).",
    ),
    Difference(
        ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"),
        "ClientCapabilities, ServerCapabilities",
        "do not list extensions; capabilities are not a closed set, so it is kept (D33).",
    ),
    Difference(
        ("2025-06-18", "2025-11-25"),
        "NumberSchema",
        "takes whole numbers as bounds alone; its source says number.",
    ),
)

TOO_WIDE = (
    Difference(("2025-03-26",), "JSONRPCBatchRequest", "admits an empty batch; JSON-RPC does not."),
    Difference(
        ("2026-07-28",),
        "InputRequiredResult",
        "admits one with neither questions nor state; the page demands at least one.",
    ),
    Difference(ALL, "RequestId", "admits integers of any length; ids are bounded here."),
    Difference(
        ("2025-11-25", "2026-07-28"),
        "CreateMessageRequestParams",
        "admits uses of tools without their results; the page demands each answered.",
    ),
)
