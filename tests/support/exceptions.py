"""Where we and an official schema differ on purpose, each with its sentence.

`TOO_NARROW`: the schema refuses what the specification's words, or its TypeScript source, allow;
we send it. `TOO_WIDE`: the schema admits what the words forbid; we refuse it. Where an example can
show the difference it stands here, and a test sees that it still does.
"""

from typing import Any, NamedTuple


class Difference(NamedTuple):
    dates: tuple[str, ...]
    definition: str
    sentence: str
    examples: tuple[Any, ...] = ()


ALL = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")

TOO_NARROW = (
    Difference(
        ("2025-06-18", "2025-11-25", "2026-07-28"),
        "ElicitResult",
        "content takes no fractions, though forms ask for type number; a number is a number.",
        ({"action": "accept", "content": {"price": 1.5}},),
    ),
    Difference(
        ("2026-07-28",),
        "JSONValue",
        "takes no fractions and no null, though it stands for any JSON value.",
        (1.5, None),
    ),
    Difference(
        ("2024-11-05", "2025-03-26", "2025-06-18"),
        "JSONRPCError",
        "requires an id, while JSON-RPC answers what it cannot read with id null (D2).",
        ({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "m"}},),
    ),
    Difference(
        ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"),
        "ClientCapabilities, ServerCapabilities",
        "do not list extensions; capabilities are not a closed set, so it is kept (D33).",
    ),
)

TOO_WIDE = (
    Difference(
        ("2025-03-26",), "JSONRPCBatchRequest", "admits an empty batch; JSON-RPC does not.", ([],)
    ),
    Difference(
        ("2026-07-28",),
        "InputRequiredResult",
        "admits one with neither questions nor state; the page demands at least one.",
        ({"resultType": "input_required"},),
    ),
    Difference(ALL, "RequestId", "admits ids of any length; here they are bounded.", ("x" * 9999,)),
    Difference(
        ("2025-11-25", "2026-07-28"),
        "CreateMessageRequestParams",
        "admits uses of tools without their results; the page demands each answered.",
        (
            {
                "maxTokens": 1,
                "messages": [
                    {
                        "role": "assistant",
                        "content": {"type": "tool_use", "id": "1", "name": "n", "input": {}},
                    }
                ],
            },
        ),
    ),
)
