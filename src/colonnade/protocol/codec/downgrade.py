"""Downgrade: one protocol type, changed to what an older revision knows.

Most of it is derived once for each type, from the `since` and `until` of its fields. The few types
whose values were widened have a rule of their own, at the end of this file.

Rules: the argument is never changed; what fits already is returned as the very same object.
"""

from collections.abc import Callable, Mapping
from functools import cache, cached_property
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin

from msgspec import UNSET, Raw, Struct
from msgspec.structs import fields, replace

from colonnade.errors import LocalProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.revision import OutputRoot, Revision
from colonnade.protocol.schema.bounds import Schema, map_subschemas
from colonnade.protocol.types import TextContent

# The member that holds a result that is not an object, where only objects are allowed (D17).
WRAPPED = "result"

# Booleans here are as old as JSON Schema itself, and every validator knows them.
_BOOLEAN_BY_TRADITION = frozenset({"additionalProperties", "additionalItems"})
# Keywords that references expect at the root, and those that apply to the document as a whole.
_DEFINITIONS = frozenset({"$defs", "definitions"})
_ROOT_KEYWORDS = _DEFINITIONS | {"$schema", "$id"}
_REFERENCES = ("$ref", "$dynamicRef")


def is_object_schema(schema: Schema) -> bool:
    """Whether a schema declares objects."""
    return schema.get("type") == "object"


def wrapped_schema(schema: Schema) -> Schema:
    """The schema of `{"result": value}`; definitions stay at the root, where references look.

    One with an absolute `$id` moves whole: its references are relative to that, wherever it stands.
    """
    if "://" in str(schema.get("$id")):
        inner = {keyword: value for keyword, value in schema.items() if keyword != "$schema"}
        outer = {keyword: value for keyword, value in schema.items() if keyword == "$schema"}
        return outer | {"type": "object", "properties": {WRAPPED: inner}, "required": [WRAPPED]}
    moved = _moved(schema)
    inner = {keyword: value for keyword, value in moved.items() if keyword not in _ROOT_KEYWORDS}
    outer = {keyword: value for keyword, value in moved.items() if keyword in _ROOT_KEYWORDS}
    return outer | {"type": "object", "properties": {WRAPPED: inner}, "required": [WRAPPED]}


def _moved(schema: Schema) -> Schema:
    """The schema with its internal references adjusted to the new place."""
    copy = map_subschemas(schema, _moved_below)
    for keyword in _REFERENCES:
        target = copy.get(keyword)
        if isinstance(target, str) and _points_into_what_moves(target):
            copy[keyword] = f"#/properties/{WRAPPED}{target[1:]}"
    return copy


def _moved_below(_keyword: str, schema: Any) -> Any:
    # A subschema with an `$id` is a document of its own: its references do not leave it.
    if not isinstance(schema, dict) or "$id" in schema:
        return cast("Any", schema)
    return _moved(cast("Schema", schema))


def _points_into_what_moves(target: str) -> bool:
    if target == "#":
        return True
    return target.startswith("#/") and target.split("/")[1] not in _DEFINITIONS


def without_boolean_schemas(schema: Schema) -> Schema:
    """The same schema with `true` and `false` as `{}` and `{"not": {}}` (D17)."""
    shaped = map_subschemas(schema, _as_object)
    return schema if shaped == schema else shaped


def _as_object(keyword: str, schema: Any) -> Any:
    if isinstance(schema, bool):
        if keyword in _BOOLEAN_BY_TRADITION:
            return schema
        return {} if schema else {"not": {}}
    if isinstance(schema, dict):
        return map_subschemas(cast("Schema", schema), _as_object)
    return schema


# The description of a multi-select in a form that has only strings.
SELECTION = "one or more of, separated by commas: "
# The URI of audio in a revision without audio blocks; it names nothing that could be read (D18).
AUDIO_URI = "audio:content"
# What is quoted of an unknown block type.
MAX_TYPE_CHARS = 80


class DowngradeContext(Struct, frozen=True):
    """What is known of one message: the revision that it came from, and whether its tool wraps
    results."""

    origin: Revision | None = None
    wrap: bool = False


OWN = DowngradeContext()
WRAPPING = DowngradeContext(wrap=True)

Changes = dict[str, Any]
Rule = Callable[["Downgrader", Any, Changes, DowngradeContext], None]


class TypePlan(Struct, frozen=True):
    """What to change in values of one type."""

    drops: tuple[tuple[str, Any], ...]
    walks: tuple[str, ...]
    says: bool  # whether it is a whole message, whose `_meta` has keys of the protocol
    rule: Rule | None


UNCHANGED = TypePlan((), (), says=False, rule=None)


class TypePlans(dict[type[t.ProtocolType], TypePlan | None]):
    """The plans of one revision, each made when its type is first used."""

    def __init__(self, revision: Revision) -> None:
        super().__init__()
        self._revision = revision

    @cached_property
    def foreign(self) -> frozenset[str]:
        """The `_meta` keys that only other revisions define."""
        return frozenset(key for key in reserved() if not _known_key(key, self._revision))

    def __missing__(self, obj: type[t.ProtocolType]) -> TypePlan | None:
        drops = self._drops(obj)
        own = _rule_of(obj) or NO_RULE
        hidden = {name for name, _ in drops} | own.fields
        walks = tuple(
            name
            for name, inner in inside(obj).items()
            if name not in hidden and any(self._changes(kind) for kind in _nested_deeply(inner))
        )
        says = issubclass(obj, MESSAGES)
        found = TypePlan(drops, walks, says, own.rule)
        plan = found if drops or walks or says or own.rule else None
        self[obj] = plan
        return plan

    def _drops(self, obj: type[t.ProtocolType]) -> tuple[tuple[str, Any], ...]:
        ranges = t.field_ranges(obj).items()
        absent = {name for name, span in ranges if not self._revision.knows(*span)}
        if not absent:  # `fields` evaluates all annotations
            return ()
        return tuple((field.name, field.default) for field in fields(obj) if field.name in absent)

    def _changes(self, obj: type[t.ProtocolType]) -> bool:
        return _rule_of(obj) is not None or bool(self._drops(obj))


def _rule_of(obj: type[t.ProtocolType]) -> "TypeRule | None":
    """The rule of a type, or of the one that it is made from, as a listed tool is from a tool."""
    return next((RULES[one.__name__] for one in obj.__mro__ if one.__name__ in RULES), None)


class PlainBlocks(dict[type[Any], bool]):
    """Whether blocks of a type are sent unchanged: most results hold nothing else."""

    def __init__(self, revision: Revision, plans: TypePlans) -> None:
        super().__init__()
        self._known = revision.blocks
        self._plans = plans

    def __missing__(self, kind: type[Any]) -> bool:
        sent = kind in _types_in(t.ContentBlock) and kind.type in self._known
        self[kind] = sent and self._plans[kind] is None
        return self[kind]


class Downgrader:
    """Downgrades values to one revision. There is one for each: `downgrader(revision)`."""

    def __init__(self, revision: Revision) -> None:
        self.revision = revision
        self._plans = TypePlans(revision)
        self.plain: PlainBlocks = PlainBlocks(revision, self._plans)

    def absent_members(self, kind: type[t.ProtocolType]) -> tuple[tuple[str, Any], ...] | None:
        """The members that this revision lacks, with their defaults, if an object of this type
        without `_meta` needs no other change; None if it may."""
        plan = self._plans[kind] or UNCHANGED
        return plan.drops if not plan.walks and plan.rule is None else None

    def downgrade(self, obj: t.ProtocolType, context: DowngradeContext = OWN) -> t.ProtocolType:
        """Return the value as this revision knows it. Raises `LocalProtocolError` if that is
        impossible."""
        plan = self._plans[type(obj)]
        if plan is None:
            return obj
        changes: Changes = {}
        for name, default in plan.drops:
            if getattr(obj, name) is not default:
                changes[name] = default
        for name in plan.walks:
            before = getattr(obj, name)
            after = self.value(before, context)
            if after is not before:
                changes[name] = after
        if plan.says:
            message: Any = obj
            if message.meta is not None:
                self._downgrade_meta(message.meta, changes)
        if plan.rule is not None:
            plan.rule(self, obj, changes, context)
        return replace(obj, **changes) if changes else obj

    def value(self, value: Any, context: DowngradeContext = OWN) -> Any:
        """Downgrade a protocol type, or a list or dict of them."""
        if isinstance(value, t.ProtocolType):
            return self.downgrade(value, context)
        if isinstance(value, list | tuple):
            items = cast("list[Any]", value)
            return _kept(items, [self.value(item, context) for item in items])
        if isinstance(value, dict):
            members = cast("dict[str, Any]", value)
            shaped = {name: self.value(item, context) for name, item in members.items()}
            same = all(shaped[name] is item for name, item in members.items())
            return members if same else shaped
        return value

    def _downgrade_meta(self, meta: dict[str, Any], changes: Changes) -> None:
        """Remove the `_meta` keys that only other revisions define."""
        foreign = self._plans.foreign
        if "meta" not in changes and not foreign.isdisjoint(meta):
            kept = {key: item for key, item in meta.items() if key not in foreign}
            changes["meta"] = kept or None

    # ------------------------------------------------------------ content blocks

    def block(self, block: Any, allowed: frozenset[str], context: DowngradeContext) -> Any:
        """Return a content block as one of the types that are allowed here (D18)."""
        if isinstance(block, t.UnknownContent):
            if context.origin is self.revision:
                return block.whole.members
            return TextContent(text=_placeholder(block.type[:MAX_TYPE_CHARS]))
        if not isinstance(block, t.Block):
            raise LocalProtocolError(
                f"content is a list of content blocks, got {type(block).__name__}; "
                "use TextContent(text=...) or another block"
            )
        if block.type in allowed:
            return self.downgrade(block, context)
        annotations = getattr(block, "annotations", None)
        if isinstance(block, t.AudioContent) and "resource" in allowed:
            sound = t.ResourceContents(uri=AUDIO_URI, mime_type=block.mime_type, blob=block.data)
            return self.downgrade(
                t.EmbeddedResource(resource=sound, annotations=annotations), context
            )
        return self.downgrade(TextContent(text=_as_text(block), annotations=annotations), context)


@cache
def downgrader(revision: Revision) -> Downgrader:
    """The downgrader of a revision; every connection shares it."""
    return Downgrader(revision)


def _kept(before: Any, after: list[Any]) -> Any:
    """The list that was there, if nothing in it changed."""
    return before if all(map(_same, before, after)) else after


def _same(one: Any, other: Any) -> bool:
    return one is other


# ---------------------------------------------------------------- nested types


@cache
def inside(obj: type[t.ProtocolType]) -> Mapping[str, tuple[type[t.ProtocolType], ...]]:
    """The fields of a type that may hold protocol types, and which."""
    hints = t.field_annotations(obj)
    held = {name: tuple(_types_in(hints[name])) for name in obj.__struct_fields__}
    return MappingProxyType({name: kinds for name, kinds in held.items() if kinds})


def _types_in(hint: Any) -> list[type[t.ProtocolType]]:
    """The protocol types that an annotation may hold."""
    if isinstance(hint, type) and issubclass(hint, t.ProtocolType):
        return [hint]
    if get_origin(hint) in (list, dict, Union, UnionType, Annotated):
        return [obj for part in get_args(hint) for obj in _types_in(part)]
    return []


def _nested_deeply(types: tuple[type[t.ProtocolType], ...]) -> set[type[t.ProtocolType]]:
    """These types and all types nested in them."""
    found: set[type[t.ProtocolType]] = set()
    rest = list(types)
    while rest:
        obj = rest.pop()
        if obj not in found:
            found.add(obj)
            rest += [kind for kinds in inside(obj).values() for kind in kinds]
    return found


# ---------------------------------------------------------------- reserved `_meta` keys

# The types of whole params or results.
MESSAGES = (t.RequestParams, t.NotificationParams, t.Result, t.InputResponse)


@cache
def reserved() -> dict[str, list[tuple[t.RevisionRange, ...]]]:
    """The keys that some revision defines, each with its ranges: all of one must include a
    revision."""
    names: dict[str, list[tuple[t.RevisionRange, ...]]] = {}
    for obj in (t.Envelope, t.RequestMeta, t.NotificationMeta, t.ResultMeta):
        for field in fields(obj):
            span = t.field_ranges(obj).get(field.name, t.RevisionRange())
            names.setdefault(field.encode_name, []).append((obj.available, span))
    return names


def _known_key(key: str, revision: Revision) -> bool:
    return any(all(revision.knows(*span) for span in spans) for spans in reserved()[key])


# ---------------------------------------------------------------- rules of single types


def _placeholder(kind: str) -> str:
    return f"[{kind} content that cannot be shown here]"


def _as_text(block: t.ProtocolType) -> str:
    match block:
        case t.ResourceLink():
            name = block.title or block.name
            return f"{name}: {block.uri}" if name else block.uri
        case t.ToolUseContent():
            return f"[call of {block.name}] {encode(block.input).decode()}"
        case t.ToolResultContent():
            texts = [inner.text for inner in block.content if isinstance(inner, TextContent)]
            return "\n".join(texts) or "[a result without text]"
        case _:
            return _placeholder(str(block.__struct_config__.tag))


def is_object(value: Any) -> bool:
    """Whether a value is encoded as a JSON object."""
    if isinstance(value, dict):
        return True
    if value is None or isinstance(value, str | int | float | list | tuple):
        return False
    return bytes(value if isinstance(value, Raw) else encode(value)).lstrip()[:1] == b"{"


def _downgrade_content(
    downgrader: Downgrader,
    obj: "t.CallToolResult | t.ToolResultContent",
    changes: Changes,
    context: DowngradeContext,
) -> None:
    content, allowed = obj.content, downgrader.revision.blocks
    if not all(downgrader.plain[type(block)] for block in content):
        after = _kept(content, [downgrader.block(block, allowed, context) for block in content])
        if after is not content:
            changes["content"] = after
    value = obj.structured_content
    if value is UNSET:
        return
    root = downgrader.revision.output_root
    if root is OutputRoot.OBJECT and (context.wrap or not is_object(value)):
        changes["structured_content"] = {WRAPPED: value}
    elif root is OutputRoot.NONE and not content:
        # Otherwise nothing would be left of the result.
        changes["content"] = [TextContent(text=encode(value).decode())]


def _downgrade_prompt_message(
    downgrader: Downgrader, obj: "t.PromptMessage", changes: Changes, context: DowngradeContext
) -> None:
    after = downgrader.block(obj.content, downgrader.revision.blocks, context)
    if after is not obj.content:
        changes["content"] = after


def wraps(tool: t.Tool, revision: Revision) -> bool:
    """Whether results of a tool are sent as `{"result": value}`, because its schema is."""
    schema = tool.output_schema
    return (
        revision.output_root is OutputRoot.OBJECT
        and schema is not None
        and not is_object_schema(schema)
    )


def _downgrade_tool(
    downgrader: Downgrader, obj: t.Tool, changes: Changes, context: DowngradeContext
) -> None:
    revision = downgrader.revision
    if not revision.boolean_schemas:
        schema = without_boolean_schemas(obj.input_schema)
        if schema is not obj.input_schema:
            changes["input_schema"] = schema
    if obj.output_schema is not None and "output_schema" not in changes:
        schema = obj.output_schema
        if not revision.boolean_schemas:
            schema = without_boolean_schemas(schema)
        if wraps(obj, revision):
            schema = wrapped_schema(schema)
        if schema is not obj.output_schema:
            changes["output_schema"] = schema
    if "title" in changes and revision.knows(*t.field_ranges(t.Tool)["annotations"]):
        # The annotations had a title before the tool itself did.
        annotations = obj.annotations or t.ToolAnnotations()
        title = annotations.title or obj.title
        changes["annotations"] = replace(annotations, title=title)
    else:
        _downgrade_described(downgrader, obj, changes, context)


def _downgrade_described(
    downgrader: Downgrader,
    obj: "t.Tool | t.Prompt | t.PromptArgument",
    changes: Changes,
    context: DowngradeContext,
) -> None:
    """Put the title before the description, where the name is an identifier."""
    title, words = obj.title or "", obj.description or ""
    if "title" in changes and not words.startswith(title):
        changes["description"] = f"{title}: {words}" if words else title


def _downgrade_named(
    downgrader: Downgrader,
    obj: "t.Resource | t.ResourceTemplate",
    changes: Changes,
    context: DowngradeContext,
) -> None:
    """Use the title as the name: before there were titles, the name of a resource was displayed."""
    if "title" in changes:
        changes["name"] = obj.title


def _downgrade_messages(
    downgrader: Downgrader,
    obj: "t.CreateMessageRequestParams",
    changes: Changes,
    context: DowngradeContext,
) -> None:
    """Split a message of several blocks into several messages, where a message holds one block."""
    sampling = downgrader.revision.sampling
    messages: list[t.SamplingMessage] = []
    for message in obj.messages:
        content = message.content
        blocks = content if isinstance(content, list) else [content]
        turns = [downgrader.block(block, sampling.blocks, context) for block in blocks]
        if sampling.arrays and isinstance(content, list):
            turns = [_kept(content, turns)]
        fit = cast("t.SamplingMessage", downgrader.downgrade(message, context))
        messages += [fit if turn is content else replace(fit, content=turn) for turn in turns]
    after = _kept(obj.messages, messages) if len(messages) == len(obj.messages) else messages
    if after is not obj.messages:
        changes["messages"] = after


def _downgrade_sampling_result(
    downgrader: Downgrader,
    obj: "t.CreateMessageResult",
    changes: Changes,
    context: DowngradeContext,
) -> None:
    sampling = downgrader.revision.sampling
    before = obj.content
    blocks = before if isinstance(before, list) else [before]
    shaped = [downgrader.block(block, sampling.blocks, context) for block in blocks]
    if sampling.arrays and isinstance(before, list):
        after = _kept(before, shaped)
    elif len(shaped) == 1:
        after = shaped[0]
    else:
        texts = [one.text if isinstance(one, TextContent) else _as_text(one) for one in shaped]
        after = TextContent(text="\n".join(texts))
    if after is not before:
        changes["content"] = after


def _downgrade_elicitation(
    downgrader: Downgrader,
    obj: "t.ElicitRequestParams",
    changes: Changes,
    context: DowngradeContext,
) -> None:
    if (obj.mode or "form") not in downgrader.revision.elicitation.modes:
        raise LocalProtocolError(
            f"an elicitation of mode {obj.mode} cannot be sent to a peer of "
            f"{downgrader.revision.date}; check its revision and its capabilities first"
        )


def _downgrade_form_field(
    downgrader: Downgrader, obj: "t.PrimitiveSchema", changes: Changes, context: DowngradeContext
) -> None:
    """Titled choices become `enumNames`; a multi-select becomes a string, which is split again
    later."""
    facts = downgrader.revision.elicitation
    if obj.one_of is not None and not facts.titled_enums:
        changes["enum"] = [option.const for option in obj.one_of]
        changes["enum_names"] = [option.title for option in obj.one_of]
    if obj.type == "array" and not facts.multi_select:
        items = obj.items or t.EnumItems()
        choices = [option.const for option in items.any_of or ()] or list(items.enum or ())
        about = f"{obj.description} " if obj.description else ""
        changes["type"] = "string"
        changes["description"] = f"{about}({SELECTION}{', '.join(choices)})"
    if obj.default is not None and obj.type != "boolean" and not facts.all_defaults:
        changes["default"] = None


def _downgrade_elicit_result(
    downgrader: Downgrader, obj: "t.ElicitResult", changes: Changes, context: DowngradeContext
) -> None:
    """Join selections into a string, for a peer without multi-select."""
    if downgrader.revision.elicitation.multi_select:
        return
    content = obj.content or {}
    if any(isinstance(value, list) for value in content.values()):
        changes["content"] = {
            name: ", ".join(value) if isinstance(value, list) else value
            for name, value in content.items()
        }


class TypeRule(Struct, frozen=True):
    """The rule of one type, and the fields that it alone handles."""

    rule: Rule | None
    fields: frozenset[str] = frozenset()


NO_RULE = TypeRule(None)
# By the name of a type, so that none is created here; the names are unique.
RULES: dict[str, TypeRule] = {
    "CallToolResult": TypeRule(_downgrade_content, frozenset({"content"})),
    "ToolResultContent": TypeRule(_downgrade_content, frozenset({"content"})),
    "PromptMessage": TypeRule(_downgrade_prompt_message, frozenset({"content"})),
    "Tool": TypeRule(_downgrade_tool),
    "Prompt": TypeRule(_downgrade_described),
    "PromptArgument": TypeRule(_downgrade_described),
    "Resource": TypeRule(_downgrade_named),
    "ResourceTemplate": TypeRule(_downgrade_named),
    "CreateMessageRequestParams": TypeRule(_downgrade_messages, frozenset({"messages"})),
    "SamplingMessage": TypeRule(None, frozenset({"content"})),  # handled with its params
    "CreateMessageResult": TypeRule(_downgrade_sampling_result, frozenset({"content"})),
    "ElicitRequestParams": TypeRule(_downgrade_elicitation),
    "PrimitiveSchema": TypeRule(_downgrade_form_field),
    "ElicitResult": TypeRule(_downgrade_elicit_result),
}
