"""Limits of a JSON Schema document: its subschemas, references and validation cost.

Rules: nothing is fetched, nothing is validated here. A document that is too large, that refers
outside itself or that could make a validator work without end is refused with `UnusableSchema`, in
time linear in the document, before any value is validated.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, cast

from msgspec import Struct

Schema: TypeAlias = dict[str, Any]

DRAFT_2020_12 = "https://json-schema.org/draft/2020-12/schema"
DRAFT_07 = "http://json-schema.org/draft-07/schema"

# A message nests to 64 levels at most, so a schema or a value that arrived in one does too.
MAX_DEPTH = 64
# The largest real tool schemas (generated from OpenAPI) have some 1,500 subschemas.
MAX_SUBSCHEMAS = 4_000
# Objects, arrays and scalars of the document together: enumerations and examples count too.
MAX_NODES = 50_000
# All strings of the document together; a schema is read by a model, whose context is smaller.
MAX_TEXT = 1_000_000
# Steps for one node of a value; more than every limit is as good as unlimited.
MAX_STEPS = 1 << 40
# Members and items, counted for every alternative that applies a subschema to them.
MAX_LINKS = 40_000
# Comparing with an enumeration costs about one step for this many of its values.
_ENUM_STEP = 8
# Dividing by a fraction is exact, with integers as long as both exponents require: 26 µs at worst,
# 1 µs for prices.
_FRACTION_STEPS = 64
# A longer integer is passed as a string, which takes the square of its length.
_WORD_BITS = 64

_ONE_IN_PLACE = ("not", "if", "then", "else")
_MANY_IN_PLACE = ("allOf", "anyOf", "oneOf")
_MAP_IN_PLACE = ("dependentSchemas", "dependencies")
_ONE_MEMBER = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_ONE_ITEM = ("items", "additionalItems", "contains", "unevaluatedItems")
_MANY_ITEMS = ("prefixItems", "items")
_DEFINITIONS = ("$defs", "definitions")
# Keywords that hold a subschema and never apply it.
_ONE_SAID = ("contentSchema",)
_SINGLE = frozenset((*_ONE_IN_PLACE, *_ONE_MEMBER, *_ONE_ITEM, *_ONE_SAID))
_LISTS = frozenset((*_MANY_IN_PLACE, *_MANY_ITEMS))
_MAPS = frozenset((*_MAP_IN_PLACE, "properties", "patternProperties", *_DEFINITIONS))
# If `true` and `false` are tried one after the other, they cost a step like any subschema.
_COSTLY_BOOLEANS = frozenset((*_MANY_IN_PLACE, *_MAP_IN_PLACE, "patternProperties"))
_TRIVIAL: Schema = {}
# Annotations: keywords that admit or refuse no value.
ANNOTATIONS = frozenset({"title", "description", "default", "examples", "$comment", "deprecated"})


_MEMBER, _ITEM = 0, 1
# Whether of a member or of an item; which one, or any; the subschema that is applied to it.
_Link: TypeAlias = tuple[int, str | int | None, int]


class UnusableSchema(ValueError):
    """This document cannot be used; the message says why and what to do."""


class _Node(Struct, eq=False):
    """One subschema, and those that it applies to the same value, its members or its items."""

    document: Schema
    base: str
    in_place: list[int] = []
    links: list[_Link] = []

    @property
    def weight(self) -> int:
        """The steps of its own keywords, whatever the value; each may also be a problem."""
        steps = 1 + _length(self.document.get("enum")) // _ENUM_STEP
        steps += _length(self.document.get("required"))
        for keyword in ("dependentRequired", "dependencies"):
            names = self.document.get(keyword)
            if isinstance(names, dict):
                steps += sum(1 + _length(one) for one in cast(Schema, names).values())
        divisor = self.document.get("multipleOf")
        if isinstance(divisor, float) and not divisor.is_integer():
            steps += _FRACTION_STEPS
        return steps


def _length(one: Any) -> int:
    return len(cast(list[Any], one)) if isinstance(one, list) else 0


def measure(value: Any, *, text: int = 64, square: bool = False) -> list[int]:
    """The weight of a JSON value at each depth: a node counts 1, and 1 more per `text` characters.

    With `square`, strings count by the square of their length; long integers always do. Raises
    `UnusableSchema` if it nests too deep; iterative, so that it never exhausts the stack.
    """
    levels: list[int] = []
    layer: list[Any] = [value]
    while layer:
        if len(levels) > MAX_DEPTH:
            raise UnusableSchema(f"nested deeper than {MAX_DEPTH} levels; flatten it")
        weight, below = len(layer), list[Any]()
        for item in layer:
            if isinstance(item, dict):
                mapping = cast(dict[Any, Any], item)
                below.extend(mapping.values())
                below.extend(key for key in mapping if type(key) is str)
            elif isinstance(item, list | tuple):
                below.extend(cast(list[Any], item))
            elif type(item) is str:
                weight += (len(item) * len(item) if square else len(item)) // text
            elif type(item) is int:
                weight += (item.bit_length() // _WORD_BITS) ** 2
        levels.append(weight)
        layer = below
    return levels


def estimate_costs(document: Any) -> list[int]:
    """The most steps that a validator needs for one node of a value, at each depth of it.

    Raises `UnusableSchema` for a document that is not a schema, too large, or refers outside
    itself.
    """
    if isinstance(document, bool):
        return [1] * (MAX_DEPTH + 1)
    if not isinstance(document, dict):
        raise UnusableSchema("a schema must be a JSON object")
    if sum(measure(document, text=MAX_TEXT // MAX_NODES)) > MAX_NODES:
        raise UnusableSchema("the schema is too large; split it or describe less")
    return _costs(_Graph(cast(Schema, document)).nodes)


def subschemas(document: Schema) -> Iterator[tuple[str, str | int | None, Any]]:
    """Every subschema that stands in this one, with its keyword and its place there."""
    for keyword in document:
        value = document[keyword]
        if keyword in _SINGLE and not isinstance(value, list):
            yield keyword, None, value
        elif keyword in _LISTS and isinstance(value, list):
            for index, one in enumerate(cast(list[Any], value)):
                yield keyword, index, one
        elif keyword in _MAPS and isinstance(value, dict):
            for name, one in cast(Schema, value).items():
                if not isinstance(one, list):  # "dependencies" of draft-07 may list names
                    yield keyword, name, one


def map_subschemas(document: Schema, change: Callable[[str, Any], Any]) -> Schema:
    """A copy in which each subschema is replaced by `change(keyword, subschema)`."""
    copy = dict(document)
    for keyword in document:
        value = document[keyword]
        if keyword in _SINGLE and not isinstance(value, list):
            copy[keyword] = change(keyword, value)
        elif keyword in _LISTS and isinstance(value, list):
            copy[keyword] = [change(keyword, one) for one in cast(list[Any], value)]
        elif keyword in _MAPS and isinstance(value, dict):
            copy[keyword] = {
                name: one if isinstance(one, list) else change(keyword, one)
                for name, one in cast(Schema, value).items()
            }
    return copy


def dialect(document: Any) -> str:
    """The dialect of a document. Raises `UnusableSchema` for an unknown one."""
    if not isinstance(document, dict) or "$schema" not in document:
        return DRAFT_2020_12  # R0461
    named = str(cast(Schema, document)["$schema"])
    bare = named.removesuffix("#").removeprefix("https:").removeprefix("http:")
    for known in (DRAFT_2020_12, DRAFT_07):
        if bare == known.partition(":")[2]:
            return known
    # R0463
    raise UnusableSchema(
        f"the dialect {named[:200]!r} is not supported; write {DRAFT_2020_12!r} or "
        f"'{DRAFT_07}#', or leave '$schema' out"
    )


class _Graph:
    """The subschemas of a document, found by their keywords and by references."""

    def __init__(self, document: Schema) -> None:
        self.nodes: list[_Node] = []
        self._dialect = dialect(document)
        self._index: dict[int, int] = {}
        self._resources: dict[str, Schema] = {"": document}
        self._anchors: dict[tuple[str, str], Schema] = {}
        self._dynamic: dict[str, list[Schema]] = {}
        self._collect(document, "")
        position = 0
        while position < len(self.nodes):  # a reference may find more
            self._connect(self.nodes[position])
            position += 1

    def _collect(self, document: Schema, base: str) -> None:
        waiting = [(document, base)]
        while waiting:
            one, base = waiting.pop()
            if id(one) in self._index:
                continue
            if len(self.nodes) >= MAX_SUBSCHEMAS:
                raise UnusableSchema(f"more than {MAX_SUBSCHEMAS} subschemas; split the schema")
            base = self._name(one, base)
            self._index[id(one)] = len(self.nodes)
            self.nodes.append(_Node(one, base))
            for keyword, _, child in subschemas(one):
                if isinstance(child, dict):
                    waiting.append((cast(Schema, child), base))
                elif not isinstance(child, bool):
                    raise UnusableSchema(f"the value of {keyword!r} is not a schema")

    def _name(self, document: Schema, base: str) -> str:
        """Record the names by which this subschema can be referred to; returns the base of what
        it holds."""
        if "$schema" in document and dialect(document) != self._dialect:
            raise UnusableSchema("a subschema names another dialect; use one")
        identity = document.get("$id")
        if isinstance(identity, str) and identity.startswith("#"):  # anchors of draft-07
            self._anchors[base, identity[1:]] = document
        elif isinstance(identity, str):
            base = _joined(base, identity)
            self._resources[base] = document
        for keyword in ("$anchor", "$dynamicAnchor"):
            anchor = document.get(keyword)
            if isinstance(anchor, str):
                self._anchors[base, anchor] = document
        if isinstance(anchor := document.get("$dynamicAnchor"), str):
            self._dynamic.setdefault(anchor, []).append(document)
        return base

    def _connect(self, node: _Node) -> None:
        for keyword, place, child in subschemas(node.document):
            if isinstance(child, bool):
                if keyword not in _COSTLY_BOOLEANS:
                    continue
                child = _TRIVIAL
                self._collect(child, "")
            target = self._index[id(child)]
            if keyword == "properties":
                node.links.append((_MEMBER, place, target))
            elif keyword in _ONE_MEMBER or keyword == "patternProperties":
                node.links.append((_MEMBER, None, target))
            elif keyword in _ONE_ITEM or keyword in _MANY_ITEMS:
                node.links.append((_ITEM, place, target))
            elif keyword not in _DEFINITIONS and keyword not in _ONE_SAID:
                node.in_place.append(target)
        for keyword in ("$ref", "$dynamicRef"):
            reference = node.document.get(keyword)
            if isinstance(reference, str):
                node.in_place.extend(self._targets(reference, node.base, keyword))

    def _targets(self, reference: str, base: str, keyword: str) -> Iterator[int]:
        uri, _, fragment = reference.partition("#")
        uri = _joined(base, uri) if uri else base
        found = self._resources.get(uri)
        # R0756, R0758: what is not in the document is never fetched, and never assumed to be valid.
        if found is None:
            raise UnusableSchema(
                f"refers to {reference[:200]!r}, which is outside the schema and never fetched; "
                "put the definition under '$defs'"
            )
        from urllib.parse import unquote

        targets: list[Any] = [self._locate(found, uri, unquote(fragment))]
        if keyword == "$dynamicRef":
            targets += self._dynamic.get(fragment, [])
        for target in targets:
            if isinstance(target, dict):
                self._collect(cast(Schema, target), uri)
                yield self._index[id(cast(Schema, target))]
            elif not isinstance(target, bool):
                raise UnusableSchema(f"refers to {reference[:200]!r}, which is not defined")

    def _locate(self, resource: Schema, uri: str, fragment: str) -> Any:
        if not fragment:
            return resource
        if not fragment.startswith("/"):
            return self._anchors.get((uri, fragment))
        found: Any = resource
        for part in fragment[1:].split("/"):
            part = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict):
                found = cast(Schema, found).get(part)
            elif isinstance(found, list) and part.isascii() and part.isdigit() and len(part) < 9:
                found = cast(list[Any], found)[int(part) :][:1]
                found = found[0] if found else None
            else:
                return None
        return found


def _joined(base: str, uri: str) -> str:
    from urllib.parse import urljoin  # on use: few schemas have identifiers or references

    try:
        return urljoin(base, uri).rstrip("#")
    except ValueError:  # brackets without an IP address
        raise UnusableSchema(f"{uri[:200]!r} is not a URI; correct it, or leave it out") from None


def _costs(nodes: list[_Node]) -> list[int]:
    """Follow the worst path into a value: how often is some subschema tried at each depth?

    A union whose members lead back to it multiplies at every depth, which is how a small document
    makes a validator work for years. R0759
    """
    upwards = _order(nodes)[::-1]
    links = _links(nodes, upwards)
    steps = [0] * len(nodes)
    for index in upwards:
        steps[index] = nodes[index].weight + sum(steps[one] for one in nodes[index].in_place)
        steps[index] = min(steps[index], MAX_STEPS)
    costs = [steps[0]]
    while len(costs) <= MAX_DEPTH:
        below = [min(_most(ahead, steps), MAX_STEPS) for ahead in links]
        if below == steps:
            return costs + costs[-1:] * (MAX_DEPTH + 1 - len(costs))
        costs.append(below[0])
        steps = below
    return costs


def _links(nodes: list[_Node], upwards: list[int]) -> list[dict[_Link, int]]:
    """For each subschema: what it applies to a member or an item, itself and in its branches."""
    links: list[dict[_Link, int]] = [{} for _ in nodes]
    total = 0
    for index in upwards:
        ahead = links[index]
        for link in nodes[index].links:
            ahead[link] = ahead.get(link, 0) + 1
        for one in nodes[index].in_place:
            for link, count in links[one].items():
                ahead[link] = min(ahead.get(link, 0) + count, MAX_STEPS)
        total += len(ahead)
        if total > MAX_LINKS:
            raise UnusableSchema("its alternatives are too intertwined; split the schema")
    return links


def _most(ahead: dict[_Link, int], steps: list[int]) -> int:
    """The steps for the member, or the item, to which most is applied."""
    named: dict[str | int, int] = {}
    wild = [0, 0]
    for (kind, place, target), count in ahead.items():
        if place is None:
            wild[kind] += count * steps[target]
        else:
            named[place] = named.get(place, 0) + count * steps[target]
    best = [0, 0]
    for place, count in named.items():
        kind = isinstance(place, int)
        best[kind] = max(best[kind], count)
    return max(wild[0] + best[0], wild[1] + best[1])


def _order(nodes: list[_Node]) -> list[int]:
    """The subschemas so that each stands before those it applies to the same value."""
    incoming = [0] * len(nodes)
    for node in nodes:
        for target in node.in_place:
            incoming[target] += 1
    order = [index for index, count in enumerate(incoming) if not count]
    for index in order:  # grows while it is read
        for target in nodes[index].in_place:
            incoming[target] -= 1
            if not incoming[target]:
                order.append(target)
    if len(order) != len(nodes):
        raise UnusableSchema("a definition refers to itself without a member or item between")
    return order


def tuple_items(places: Sequence[object]) -> Schema:
    """The `items` of an array with these `prefixItems`, and no others: what any of them may be.

    It admits nothing more, since no item follows the last place. But clients refuse an array
    without `items`, and those without support for `prefixItems` use it.
    """
    kinds: list[Schema] = []
    for place in places:
        said = cast("Schema", place) if isinstance(place, dict) else {}
        kind = {word: value for word, value in said.items() if word not in ANNOTATIONS}
        if kind not in kinds:
            kinds.append(kind)
    if {} in kinds or not kinds:
        return {}
    return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
