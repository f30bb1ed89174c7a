"""What goes out, made to fit the revision of whoever will read it.

Fields that came later or ended earlier are left out, blocks that the peer cannot know become
ones that it can (D18), values that were widened are narrowed (D17), and results and requests get
the stamps that the revision wants. Which noun needs what is worked out once for each type.

Rules: no I/O; what comes in is never changed; what fits already leaves as it came.
"""

from collections.abc import Callable
from types import UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin, get_type_hints

from msgspec import UNSET, Raw
from msgspec.structs import fields, replace

from portico.protocol import types as t
from portico.protocol.jsonrpc import encode
from portico.protocol.revision import OutputRoot, Revision

# How a result that nobody may keep is marked where every result must say something.
STALE_MS = 0
PRIVATE: t.CacheScope = "private"

WRAPPED = "result"
SELECTION = "one or more of, separated by commas: "


class Shaper:
    """Writes nouns for peers of one revision.

    `info` is who we are: it goes into the `_meta` of results where the revision wants that.
    `envelope` is what our requests say of us where there is no handshake.
    """

    def __init__(
        self,
        revision: Revision,
        info: t.Implementation | None = None,
        envelope: t.Envelope | None = None,
    ) -> None:
        self.revision = revision
        self._plans: dict[type[t.Noun], Plan | None] = {}
        self._info = Raw(encode(self.shape(info))) if info is not None else None
        self._envelope: dict[str, Any] = {}
        if envelope is not None and not revision.handshake:
            self._envelope = {
                name: Raw(encode(self._value(value)))
                for name, value in _members(envelope)
                if value is not None
            }
        stamp: dict[str, Any] = {"resultType": "complete"}
        if self._info is not None:
            stamp["_meta"] = {t.SERVER_INFO_KEY: self._info}
        self._stamp = encode(stamp)[1:-1]

    # ------------------------------------------------------------ whole messages

    def result(
        self, noun: t.Noun, origin: Revision | None = None, wrap: bool | None = None
    ) -> bytes:
        """The bytes of a result. `origin` is the revision of whoever it is passed on from.

        `wrap` says whether the tool's schema had to be wrapped, and so the value must be;
        without it, a value that is no object is.
        """
        shaped = self.shape(noun, origin, wrap)
        if not self.revision.stamped or not isinstance(shaped, t.Result):
            return encode(shaped)
        if isinstance(shaped, t.CacheableResult):
            shaped = _with_cache_hints(shaped)
        if shaped.meta is None and shaped.result_type is None:
            body = encode(shaped)
            return b"{%b,%b" % (self._stamp, body[1:]) if len(body) > 2 else b"{%b}" % self._stamp
        meta = dict(shaped.meta or {})
        if self._info is not None:
            meta.setdefault(t.SERVER_INFO_KEY, self._info)
        kind = shaped.result_type or "complete"
        return encode(replace(shaped, meta=meta or None, result_type=kind))

    def params(self, noun: t.Noun, progress_token: t.ProgressToken | None = None) -> bytes:
        """The bytes of params; those of a request get the envelope where there is one."""
        shaped = self.shape(noun)
        if isinstance(shaped, t.RequestParams):
            extra: dict[str, Any] = dict(self._envelope)
            if progress_token is not None:
                extra[t.PROGRESS_TOKEN_KEY] = progress_token
            if extra:
                shaped = replace(shaped, meta=(shaped.meta or {}) | extra)
        body = encode(shaped)
        return body if body != b"{}" else b""

    # ------------------------------------------------------------ one noun

    def shape(
        self, noun: t.Noun, origin: Revision | None = None, wrap: bool | None = None
    ) -> t.Noun:
        """The noun as this revision knows it; the very same one where nothing had to change."""
        plan = self._plan(type(noun))
        if plan is None:
            return noun
        changes: dict[str, Any] = {
            name: default for name, default in plan.drops if getattr(noun, name) is not default
        }
        for name in plan.walks:
            before = getattr(noun, name)
            after = self._value(before, origin)
            if after is not before:
                changes[name] = after
        if plan.special is not None:
            plan.special(self, noun, changes, Passing(origin, wrap))
        return replace(noun, **changes) if changes else noun

    def _value(self, value: Any, origin: Revision | None = None) -> Any:
        if isinstance(value, t.Noun):
            return self.shape(value, origin)
        if isinstance(value, list):
            items = cast("list[Any]", value)
            shaped = [self._value(item, origin) for item in items]
            return shaped if any(a is not b for a, b in zip(items, shaped, strict=True)) else items
        if isinstance(value, dict):
            members = cast("dict[str, Any]", value)
            return {name: self._value(item, origin) for name, item in members.items()}
        return value

    def _plan(self, noun: type[t.Noun]) -> "Plan | None":
        try:
            return self._plans[noun]
        except KeyError:
            self._plans[noun] = None  # a noun inside itself brings nothing new
            plan = self._plans[noun] = self._make_plan(noun)
            return plan

    def _make_plan(self, noun: type[t.Noun]) -> "Plan | None":
        marks = t.known(noun)
        drops = tuple(
            (field.name, field.default)
            for field in fields(noun)
            if field.name in marks and not self.revision.knows(*marks[field.name])
        )
        dropped = {name for name, _ in drops}
        walks = tuple(
            name
            for name, hint in get_type_hints(noun).items()
            if name in noun.__struct_fields__
            and name not in dropped
            and any(self._plan(inner) is not None for inner in _nouns(hint))
        )
        special = SPECIALS.get(noun)
        return Plan(drops, walks, special) if drops or walks or special else None

    # ------------------------------------------------------------ content blocks

    def block(self, block: Any, allowed: frozenset[str], origin: Revision | None = None) -> Any:
        """A content block as one of the kinds that are allowed here (D18)."""
        if isinstance(block, t.UnknownContent):
            if origin is self.revision:
                return block.whole.members
            return t.TextContent(text=f"[{block.type[:80]} content that cannot be shown here]")
        if block.type in allowed:
            return self.shape(block, origin)
        if isinstance(block, t.AudioContent) and "resource" in allowed:
            contents = t.ResourceContents(
                uri="audio:content", mime_type=block.mime_type, blob=block.data
            )
            return self.shape(t.EmbeddedResource(resource=contents, annotations=block.annotations))
        return self.shape(t.TextContent(text=_in_words(block)))


class Passing:
    """What the caller knows of one message: where it came from, and whether its tool wraps."""

    __slots__ = ("origin", "wrap")

    def __init__(self, origin: Revision | None, wrap: bool | None) -> None:
        self.origin = origin
        self.wrap = wrap


Special = Callable[[Shaper, Any, dict[str, Any], Passing], None]


class Plan:
    """What to do with a noun: fields to leave out, fields to look into, and its own rule."""

    __slots__ = ("drops", "special", "walks")

    def __init__(
        self,
        drops: tuple[tuple[str, Any], ...],
        walks: tuple[str, ...],
        special: Special | None,
    ) -> None:
        self.drops = drops
        self.walks = walks
        self.special = special


def _members(noun: t.Noun) -> list[tuple[str, Any]]:
    names = zip(noun.__struct_encode_fields__, noun.__struct_fields__, strict=True)
    return [(wire, getattr(noun, name)) for wire, name in names]


def _nouns(hint: Any) -> list[type[t.Noun]]:
    """The nouns that a field of this type may hold."""
    if isinstance(hint, type) and issubclass(hint, t.Noun):
        return [hint]
    if get_origin(hint) in (list, dict, Union, UnionType, Annotated):
        return [noun for inner in get_args(hint) for noun in _nouns(inner)]
    return []


def _with_cache_hints(result: t.CacheableResult) -> t.CacheableResult:
    """R0996: a complete list, read or discovery says how long and for whom it keeps."""
    if result.result_type not in (None, "complete"):
        return result
    ttl_ms = STALE_MS if result.ttl_ms is None else max(result.ttl_ms, 0)
    return replace(result, ttl_ms=ttl_ms, cache_scope=result.cache_scope or PRIVATE)


def _in_words(block: Any) -> str:
    if isinstance(block, t.ResourceLink):
        about = f"{block.title or block.name}: " if block.title or block.name else ""
        return f"{about}{block.uri}"
    if isinstance(block, t.ToolUseContent):
        return f"[call of {block.name}] {encode(block.input).decode()}"
    if isinstance(block, t.ToolResultContent):
        texts = [inner.text for inner in block.content if isinstance(inner, t.TextContent)]
        return "\n".join(texts) or "[a result without text]"
    return f"[{block.type} content that cannot be shown here]"


# ---------------------------------------------------------------- rules of single nouns


def _shape_content(
    shaper: Shaper,
    noun: t.CallToolResult | t.ToolResultContent,
    changes: dict[str, Any],
    passing: Passing,
) -> None:
    allowed = shaper.revision.blocks
    after = [shaper.block(block, allowed, passing.origin) for block in noun.content]
    if any(a is not b for a, b in zip(noun.content, after, strict=True)):
        changes["content"] = after
    value = noun.structured_content
    if value is not UNSET and shaper.revision.output_root is OutputRoot.OBJECT:
        wrap = passing.wrap if passing.wrap is not None else not isinstance(value, dict | Raw)
        if wrap:
            changes["structured_content"] = {WRAPPED: value}


def _shape_prompt_message(
    shaper: Shaper, noun: t.PromptMessage, changes: dict[str, Any], passing: Passing
) -> None:
    changes["content"] = shaper.block(noun.content, shaper.revision.blocks, passing.origin)


def _shape_tool(shaper: Shaper, noun: t.Tool, changes: dict[str, Any], passing: Passing) -> None:
    revision = shaper.revision
    if not revision.boolean_schemas:
        changes["input_schema"] = without_boolean_schemas(noun.input_schema)
    if noun.output_schema is not None and revision.output_root is OutputRoot.OBJECT:
        schema = without_boolean_schemas(noun.output_schema)
        changes["output_schema"] = schema if is_object_schema(schema) else wrapped_schema(schema)
    if noun.title is not None and "title" in changes and "annotations" not in changes:
        # The annotations had a title before the tool itself did.
        annotations = noun.annotations or t.ToolAnnotations()
        title = annotations.title or noun.title
        if revision.knows(*t.known(t.Tool)["annotations"]):
            changes["annotations"] = replace(annotations, title=title)


def _shape_messages(
    shaper: Shaper, noun: t.CreateMessageRequestParams, changes: dict[str, Any], passing: Passing
) -> None:
    """Where a message holds one block, a message of several becomes several messages."""
    sampling = shaper.revision.sampling
    messages: list[t.SamplingMessage] = []
    for message in noun.messages:
        blocks = message.content if isinstance(message.content, list) else [message.content]
        shaped = [shaper.block(block, sampling.blocks, passing.origin) for block in blocks]
        if sampling.arrays:
            content = shaped if isinstance(message.content, list) else shaped[0]
            messages.append(replace(message, content=content))
        else:
            messages.extend(replace(message, content=block, meta=None) for block in shaped)
    changes["messages"] = messages


def _shape_sampled(
    shaper: Shaper, noun: t.CreateMessageResult, changes: dict[str, Any], passing: Passing
) -> None:
    sampling = shaper.revision.sampling
    blocks = noun.content if isinstance(noun.content, list) else [noun.content]
    shaped = [shaper.block(block, sampling.blocks, passing.origin) for block in blocks]
    if not isinstance(noun.content, list):
        changes["content"] = shaped[0]
    elif sampling.arrays:
        changes["content"] = shaped
    elif len(shaped) == 1:
        changes["content"] = shaped[0]
    else:
        texts = [b.text if isinstance(b, t.TextContent) else _in_words(b) for b in shaped]
        changes["content"] = t.TextContent(text="\n".join(texts))


def _shape_field(
    shaper: Shaper, noun: t.PrimitiveSchema, changes: dict[str, Any], passing: Passing
) -> None:
    """Titled choices as names beside values; several choices as words, which can be read back."""
    facts = shaper.revision.elicitation
    if noun.one_of is not None and not facts.titled_enums:
        changes["enum"] = [option.const for option in noun.one_of]
        changes["enum_names"] = [option.title for option in noun.one_of]
    if noun.type == "array" and not facts.multi_select:
        choices = [option.const for option in (noun.items and noun.items.any_of) or ()]
        choices = choices or list((noun.items and noun.items.enum) or ())
        about = f"{noun.description} " if noun.description else ""
        changes["type"] = "string"
        changes["description"] = f"{about}({SELECTION}{', '.join(choices)})"
    if noun.default is not None and noun.type != "boolean" and not facts.all_defaults:
        changes["default"] = None


def _shape_elicited(
    shaper: Shaper, noun: t.ElicitResult, changes: dict[str, Any], passing: Passing
) -> None:
    """Several choices as words, for a peer that asked in words."""
    if noun.content is not None and not shaper.revision.elicitation.multi_select:
        changes["content"] = {
            name: ", ".join(value) if isinstance(value, list) else value
            for name, value in noun.content.items()
        }


SPECIALS: dict[type[t.Noun], Special] = {
    t.CallToolResult: _shape_content,
    t.ToolResultContent: _shape_content,
    t.PromptMessage: _shape_prompt_message,
    t.Tool: _shape_tool,
    t.CreateMessageRequestParams: _shape_messages,
    t.CreateMessageResult: _shape_sampled,
    t.PrimitiveSchema: _shape_field,
    t.ElicitResult: _shape_elicited,
}


# ---------------------------------------------------------------- schemas


def is_object_schema(schema: dict[str, Any]) -> bool:
    """Whether a schema's values are objects, by its own word."""
    return schema.get("type") == "object"


def wrapped_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of `{"result": value}`; definitions stay at the root, where references look."""
    inner = {name: value for name, value in schema.items() if name not in _ROOT_KEYWORDS}
    outer = {name: value for name, value in schema.items() if name in _ROOT_KEYWORDS}
    return outer | {"type": "object", "properties": {WRAPPED: inner}, "required": [WRAPPED]}


_ROOT_KEYWORDS = frozenset({"$schema", "$id", "$defs", "definitions"})
_SUBSCHEMA = frozenset(
    {
        "items",
        "additionalProperties",
        "not",
        "if",
        "then",
        "else",
        "contains",
        "propertyNames",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
_SUBSCHEMAS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED_SUBSCHEMAS = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
)


def without_boolean_schemas(schema: dict[str, Any]) -> dict[str, Any]:
    """The same schema with `true` and `false` as objects; the same object where there are none.

    D17: only subschemas of properties are objects by the older schemas; keywords whose value may
    be a boolean by tradition (`additionalProperties`) stay as they are.
    """
    changes: dict[str, Any] = {}
    for keyword, value in schema.items():
        after = _without_booleans(keyword, value)
        if after is not value:
            changes[keyword] = after
    return schema | changes if changes else schema


def _without_booleans(keyword: str, value: Any) -> Any:
    if keyword in _NAMED_SUBSCHEMAS and isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        shaped = {name: _subschema(inner) for name, inner in members.items()}
        return shaped if any(shaped[name] is not members[name] for name in members) else members
    if keyword in _SUBSCHEMAS and isinstance(value, list):
        items = cast("list[Any]", value)
        after = [_subschema(inner) for inner in items]
        return after if any(a is not b for a, b in zip(items, after, strict=True)) else items
    if keyword in _SUBSCHEMA and isinstance(value, dict):
        return without_boolean_schemas(cast("dict[str, Any]", value))
    return value


def _subschema(schema: Any) -> Any:
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    return (
        without_boolean_schemas(cast("dict[str, Any]", schema))
        if isinstance(schema, dict)
        else schema
    )
