"""Values that an official schema admits, at random.

Rules: only the keywords that the official schemas use; a new one fails loudly.
"""

from typing import Any

from hypothesis import strategies as st

import type_strategies

KNOWN = frozenset(
    {
        "$ref", "$schema", "additionalProperties", "allOf", "anyOf", "const", "default",
        "description", "enum", "format", "items", "maximum", "maxItems", "minimum", "properties",
        "required", "type",
    }
)  # fmt: skip
FORMATS = {
    "uri": type_strategies.NAMES.map("https://example.com/{}".format),
    "uri-template": type_strategies.NAMES.map("a://{{{}}}".format),
    "byte": st.just("AA=="),
}


def value_of(
    schema: dict[str, Any], title: str, seen: type_strategies.Presence
) -> st.SearchStrategy[Any]:
    """Values of a definition, or of one of its properties (`Title.params`).

    `seen` takes note of the optional members that were drawn.
    """
    table: dict[str, Any] = schema.get("$defs") or schema["definitions"]
    name, _, member = title.partition(".")
    node = table[name]["properties"][member] if member else table[name]
    return _Maker(table, seen).make(node)


class _Maker:
    def __init__(self, table: dict[str, Any], seen: type_strategies.Presence) -> None:
        self._table = table
        self._seen = seen
        self._made: dict[str, st.SearchStrategy[Any]] = {}

    def make(self, node: dict[str, Any]) -> st.SearchStrategy[Any]:
        unknown = set(node) - KNOWN
        assert not unknown, f"the generator does not know {unknown}"
        if "$ref" in node:
            return self._definition(node["$ref"].rpartition("/")[2])
        if "const" in node:
            return st.just(node["const"])
        if "enum" in node:
            return st.sampled_from(node["enum"])
        if "anyOf" in node:
            return st.one_of([self.make(option) for option in node["anyOf"]])
        if "allOf" in node:
            parts = [self.make(part) for part in node["allOf"]]
            return st.tuples(*parts).map(lambda found: {k: v for d in found for k, v in d.items()})
        kind = node.get("type")
        if isinstance(kind, list):
            return st.one_of([self._typed(one, node) for one in kind])
        return self._typed(kind, node)

    def _definition(self, name: str) -> st.SearchStrategy[Any]:
        if name not in self._made:
            self._made[name] = st.deferred(lambda: self.make(self._table[name]))
            if name in ("JSONValue", "JSONObject"):
                self._made[name] = (
                    type_strategies.VALUES if name == "JSONValue" else type_strategies.OBJECTS
                )
        return self._made[name]

    def _typed(self, kind: str | None, node: dict[str, Any]) -> st.SearchStrategy[Any]:
        match kind:
            case "string":
                return FORMATS.get(node.get("format", ""), type_strategies.WORDS)
            case "integer":
                return _integers(node) | _integers(node).map(float).filter(lambda f: abs(f) < 2**53)
            case "number":
                return st.floats(
                    node.get("minimum", -1e6), node.get("maximum", 1e6), allow_nan=False
                ) | _integers(node)
            case "boolean":
                return st.booleans()
            case "null":
                return st.none()
            case "array":
                return st.lists(self.make(node["items"]), max_size=2)
            case "object":
                return self._object(node)
            case _:
                return type_strategies.VALUES | st.floats(-9, 9) | st.none()

    def _object(self, node: dict[str, Any]) -> st.SearchStrategy[Any]:
        made = {name: self.make(inner) for name, inner in node.get("properties", {}).items()}
        needed = {
            name: made.pop(name, type_strategies.VALUES)
            for name in sorted(node.get("required", ()))
        }
        more = node.get("additionalProperties", {})
        others = self.make(more) if isinstance(more, dict) else type_strategies.VALUES
        extra = st.dictionaries(type_strategies.NAMES.map("x_{}".format), others, max_size=1)

        @st.composite
        def members(draw: st.DrawFn) -> dict[str, Any]:
            found = draw(extra) | {name: draw(strategy) for name, strategy in needed.items()}
            for name, strategy in made.items():
                there = draw(st.booleans())
                self._seen.note(there)
                if there:
                    found[name] = draw(strategy)
            return found

        return members()


def _integers(node: dict[str, Any]) -> st.SearchStrategy[int]:
    return st.integers(int(node.get("minimum", -(2**31))), int(node.get("maximum", 2**31)))
