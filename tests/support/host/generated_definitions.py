"""Definitions of tools, prompts, resources and templates that are made up from a number, each of
their members changed, and the same bytes written in another way.

Rules: the same number gives the same definition.
"""

import copy
import json
import random
import string
from collections.abc import Iterator
from typing import Any

from colonnade.host.policy.pins.definitions import KEY_MEMBER, LIST_MEMBER, ItemKind

LISTED: tuple[ItemKind, ...] = ("tool", "prompt", "resource", "template")
_WORDS = [
    "read",
    "write",
    "a",
    "file",
    "the",
    "user's",
    "calendar",
    "数据",
    "naïve",
    "—",
    "per",
    "line\nreturns\tan",
    "“object”",
]


def generate(seed: int, kind: ItemKind | None = None) -> tuple[ItemKind, dict[str, Any]]:
    """One definition, with members of a vendor and of later revisions."""
    rng = random.Random(seed)
    kind = kind or LISTED[seed % len(LISTED)]
    made: dict[str, Any] = {
        "name": f"item_{seed}",
        "title": _words(rng),
        "description": _words(rng),
        "icons": [{"src": f"https://example.org/{seed}.png", "sizes": ["48x48", "any"]}],
        "x-vendor": {"level": rng.randint(-5, 5), "flags": [True, None, rng.random()]},
        "_meta": {"com.example/page": f"ui://page/{seed}", "com.example/order": seed},
    }
    if kind == "tool":
        made |= {
            "inputSchema": _schema(rng, 3),
            "outputSchema": _schema(rng, 2),
            "annotations": {"readOnlyHint": rng.random() < 0.5, "title": _words(rng)},
            "execution": {"taskSupport": rng.choice(["forbidden", "optional"])},
        }
    elif kind == "prompt":
        made["arguments"] = [
            {"name": f"a{n}", "description": _words(rng), "required": rng.random() < 0.5}
            for n in range(rng.randint(1, 3))
        ]
    else:
        scheme = f"notes://{seed}/"
        made[KEY_MEMBER[kind]] = scheme + ("{path}" if kind == "template" else "a.txt")
        made["mimeType"] = "text/plain"
        made["annotations"] = {"audience": ["user"], "priority": rng.random()}
    return kind, made


def _words(rng: random.Random) -> str:
    return " ".join(rng.choices(_WORDS, k=rng.randint(2, 12)))


def _schema(rng: random.Random, depth: int) -> dict[str, Any]:
    names = ["".join(rng.choices(string.ascii_lowercase, k=6)) for _ in range(rng.randint(1, 3))]
    properties: dict[str, Any] = {}
    for name in names:
        if depth and rng.random() < 0.4:
            properties[name] = _schema(rng, depth - 1)
        else:
            properties[name] = rng.choice(
                [
                    {"type": "string", "enum": ["a", "b.c", ""], "description": _words(rng)},
                    {"type": "number", "maximum": rng.random() * 10**6, "default": 1.5e-7},
                    {"type": "integer", "minimum": -(2**60), "examples": [1, 2.5, [3], {}]},
                    {"anyOf": [{"type": "null"}, {"const": {"deep": [{"er": False}]}}]},
                ]
            )
    return {"type": "object", "properties": properties, "required": names[:1]}


def page(kind: ItemKind, *definitions: dict[str, Any]) -> bytes:
    """A page of a list with these definitions, as a server may send it."""
    return json.dumps({LIST_MEMBER[kind]: list(definitions), "nextCursor": None}).encode()


def mutants(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The value with each of its members changed, removed or renamed, and with one more."""
    if isinstance(value, dict):
        yield f"{path}+", {**value, "added": 0}
        for key, inner in value.items():
            rest = {name: one for name, one in value.items() if name != key}
            yield f"{path}.{key} removed", rest
            yield f"{path}.{key} renamed", {**rest, f"{key}\u200b": inner}
            for where, one in mutants(inner, f"{path}.{key}"):
                yield where, {**copy.deepcopy(value), key: one}
    elif isinstance(value, list):
        yield f"{path}+", [*value, None]
        for number, inner in enumerate(value):
            yield f"{path}[{number}] removed", value[:number] + value[number + 1 :]
            for where, one in mutants(inner, f"{path}[{number}]"):
                yield where, [*value[:number], one, *value[number + 1 :]]
    elif isinstance(value, str):
        yield f"{path} appended", f"{value}\u200b"
        yield f"{path} emptied", None
    elif isinstance(value, bool) or value is None:
        yield path, 1 if value is None else not value
        yield f"{path} as a string", str(value)
    else:
        yield f"{path} more", value + 1 if isinstance(value, int) else value * 2 + 1
        yield f"{path} as a string", str(value)


def rewritten(value: Any, rng: random.Random) -> str:
    """The same JSON value in other bytes: other order, whitespace, escapes and numbers."""
    space = lambda: rng.choice(["", " ", "\n", "\t "])  # noqa: E731
    if isinstance(value, dict):
        pairs = list(value.items())
        rng.shuffle(pairs)
        inner = ",".join(
            f"{space()}{rewritten(key, rng)}{space()}:{space()}{rewritten(one, rng)}{space()}"
            for key, one in pairs
        )
        return "{" + inner + "}"
    if isinstance(value, list):
        return "[" + ",".join(space() + rewritten(one, rng) for one in value) + space() + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=rng.random() < 0.5)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**6:
        return rng.choice([str(value), f"{value}.0", f"{value}e0"])
    return json.dumps(value)
