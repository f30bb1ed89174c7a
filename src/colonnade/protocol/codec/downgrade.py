"""One noun, made to fit one revision: what to leave out, what to look into, what to say otherwise.

Most of it is worked out once for each type of noun, from the `since` and `until` beside its fields.
The few nouns whose values were widened have a rule of their own, at the end of this file.

Rules: what comes in is never changed; what fits already leaves as the very same object.
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
from colonnade.protocol.types import CallToolResult, TextContent

# The member that holds a result which is no object, where only objects may be results (D17).
WRAPPED = "result"

# A boolean here is as old as JSON Schema itself, and every reader knows it.
_BOOLEAN_BY_TRADITION = frozenset({"additionalProperties", "additionalItems"})
# What a reference from anywhere finds at the root, and what holds for the document as a whole.
_DEFINITIONS = frozenset({"$defs", "definitions"})
_ROOT_KEYWORDS = _DEFINITIONS | {"$schema", "$id"}
_REFERENCES = ("$ref", "$dynamicRef")


def is_object_schema(schema: Schema) -> bool:
    """Whether a schema's values are objects, by its own word."""
    return schema.get("type") == "object"


def wrapped_schema(schema: Schema) -> Schema:
    """The schema of `{"result": value}`; definitions stay at the root, where references look.

    One with an absolute `$id` moves whole: its references start from that, wherever it stands.
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
    """The schema with every reference into it following it to its new place."""
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


# How a form asks for several choices where it can only ask for words.
SELECTION = "one or more of, separated by commas: "
# The address of sound where there is no block for it; it names nothing that could be read (D18).
SOUND_URI = "audio:content"
# What is quoted of a kind of block that nobody knows.
MAX_KIND_CHARS = 80


class DowngradeContext(Struct, frozen=True):
    """What is known of one message: the revision that it came from, and whether its tool wraps."""

    origin: Revision | None = None
    wrap: bool = False


OWN = DowngradeContext()
WRAPPING = DowngradeContext(wrap=True)

Changes = dict[str, Any]
Rule = Callable[["Downgrader", Any, Changes, DowngradeContext], None]


class TypePlan(Struct, frozen=True):
    """What to do with a type of noun."""

    drops: tuple[tuple[str, Any], ...]
    walks: tuple[str, ...]
    says: bool  # whether it is a whole message, whose `_meta` has names of the protocol
    rule: Rule | None


class TypePlans(dict[type[t.ProtocolType], TypePlan | None]):
    """The plans of one revision, each made when its type of noun is first seen."""

    def __init__(self, revision: Revision) -> None:
        super().__init__()
        self._revision = revision

    @cached_property
    def foreign(self) -> frozenset[str]:
        """The names in `_meta` that other revisions give a meaning."""
        return frozenset(key for key in reserved() if not _known_key(key, self._revision))

    def __missing__(self, noun: type[t.ProtocolType]) -> TypePlan | None:
        drops = self._drops(noun)
        own = RULES.get(noun.__name__, NO_RULE)
        hidden = {name for name, _ in drops} | own.fields
        walks = tuple(
            name
            for name, inner in inside(noun).items()
            if name not in hidden and any(self._changes(kind) for kind in _reached(inner))
        )
        says = issubclass(noun, MESSAGES) and bool(self.foreign)
        found = TypePlan(drops, walks, says, own.rule)
        plan = found if drops or walks or says or own.rule else None
        self[noun] = plan
        return plan

    def _drops(self, noun: type[t.ProtocolType]) -> tuple[tuple[str, Any], ...]:
        marks = t.field_ranges(noun)
        return tuple(
            (field.name, field.default)
            for field in fields(noun)
            if field.name in marks and not self._revision.knows(*marks[field.name])
        )

    def _changes(self, noun: type[t.ProtocolType]) -> bool:
        return noun.__name__ in RULES or bool(self._drops(noun))


class PlainBlocks(dict[type[Any], bool]):
    """Whether a block needs no second look, by its type: most results hold nothing else."""

    def __init__(self, revision: Revision, plans: TypePlans) -> None:
        super().__init__()
        self._known = revision.blocks
        self._plans = plans

    def __missing__(self, kind: type[Any]) -> bool:
        sent = kind in _nouns(t.ContentBlock) and kind.type in self._known
        self[kind] = sent and self._plans[kind] is None
        return self[kind]


class Downgrader:
    """Makes nouns fit one revision. There is one for each: `fitter(revision)`."""

    def __init__(self, revision: Revision) -> None:
        self.revision = revision
        self._plans = TypePlans(revision)
        self._any_root = revision.output_root is OutputRoot.ANY
        self._object_root = revision.output_root is OutputRoot.OBJECT
        self.plain: PlainBlocks = PlainBlocks(revision, self._plans)

    def downgrade(self, noun: t.ProtocolType, passing: DowngradeContext = OWN) -> t.ProtocolType:
        """The noun as this revision knows it. Raises `LocalProtocolError` if it cannot be told."""
        kind = type(noun)
        if kind is CallToolResult:
            usual = self.plain_tool_result(noun, passing.wrap)
            if usual is not None:
                return usual
        plan = self._plans[kind]
        if plan is None:
            return noun
        changes: Changes = {}
        for name, default in plan.drops:
            if getattr(noun, name) is not default:
                changes[name] = default
        for name in plan.walks:
            before = getattr(noun, name)
            after = self.value(before, passing)
            if after is not before:
                changes[name] = after
        if plan.says:
            message: Any = noun
            if message.meta is not None:
                self._fit_meta(message.meta, changes)
        if plan.rule is not None:
            plan.rule(self, noun, changes, passing)
        return replace(noun, **changes) if changes else noun

    def plain_tool_result(self, result: Any, wrap: bool | None) -> CallToolResult | None:
        """A tool's result, where it is nothing but blocks that may stay as they are, and a value.

        This is the hot path, guarded by `benchmarks/core.py`; the plan would come to the same.
        """
        if result.meta is not None or result.result_type is not None:
            return None
        plain = self.plain
        for block in result.content:
            if not plain[type(block)]:
                return None
        value = result.structured_content
        if value is UNSET or self._any_root:
            return result
        if not self._object_root:
            return None
        if not wrap and is_object(value):
            return result
        return CallToolResult(
            content=result.content, structured_content={WRAPPED: value}, is_error=result.is_error
        )

    def value(self, value: Any, passing: DowngradeContext = OWN) -> Any:
        """A noun, or a list or dict of them."""
        if isinstance(value, t.ProtocolType):
            return self.downgrade(value, passing)
        if isinstance(value, list | tuple):
            items = cast("list[Any]", value)
            return _kept(items, [self.value(item, passing) for item in items])
        if isinstance(value, dict):
            members = cast("dict[str, Any]", value)
            shaped = {name: self.value(item, passing) for name, item in members.items()}
            same = all(shaped[name] is item for name, item in members.items())
            return members if same else shaped
        return value

    def _fit_meta(self, meta: dict[str, Any], changes: Changes) -> None:
        """Without the names in `_meta` by which another revision says what it is."""
        foreign = self._plans.foreign
        if "meta" not in changes and not foreign.isdisjoint(meta):
            kept = {key: item for key, item in meta.items() if key not in foreign}
            changes["meta"] = kept or None

    # ------------------------------------------------------------ content blocks

    def block(self, block: Any, allowed: frozenset[str], passing: DowngradeContext) -> Any:
        """A content block as one of the kinds that are allowed here (D18)."""
        if isinstance(block, t.UnknownContent):
            if passing.origin is self.revision:
                return block.whole.members
            return TextContent(text=_unseen(block.type[:MAX_KIND_CHARS]))
        if not isinstance(block, t.Block):
            raise LocalProtocolError(
                f"content is made of blocks, not of {type(block).__name__}; "
                "use TextContent(text=...) or another block"
            )
        if block.type in allowed:
            return self.downgrade(block, passing)
        annotations = getattr(block, "annotations", None)
        if isinstance(block, t.AudioContent) and "resource" in allowed:
            sound = t.ResourceContents(uri=SOUND_URI, mime_type=block.mime_type, blob=block.data)
            return self.downgrade(
                t.EmbeddedResource(resource=sound, annotations=annotations), passing
            )
        return self.downgrade(TextContent(text=_in_words(block), annotations=annotations), passing)


@cache
def downgrader(revision: Revision) -> Downgrader:
    """The fitter for a revision; what it has worked out serves every conversation."""
    return Downgrader(revision)


def _kept(before: Any, after: list[Any]) -> Any:
    """What was there, if nothing in it is new."""
    return before if all(map(_same, before, after)) else after


def _same(one: Any, other: Any) -> bool:
    return one is other


# ---------------------------------------------------------------- what is inside a noun


@cache
def inside(noun: type[t.ProtocolType]) -> Mapping[str, tuple[type[t.ProtocolType], ...]]:
    """The fields of a noun that may hold nouns, and which."""
    hints = t.field_annotations(noun)
    held = {name: tuple(_nouns(hints[name])) for name in noun.__struct_fields__}
    return MappingProxyType({name: kinds for name, kinds in held.items() if kinds})


def _nouns(hint: Any) -> list[type[t.ProtocolType]]:
    """The nouns that a field of this type may hold."""
    if isinstance(hint, type) and issubclass(hint, t.ProtocolType):
        return [hint]
    if get_origin(hint) in (list, dict, Union, UnionType, Annotated):
        return [noun for part in get_args(hint) for noun in _nouns(part)]
    return []


def _reached(nouns: tuple[type[t.ProtocolType], ...]) -> set[type[t.ProtocolType]]:
    """These nouns and all that are inside them, however deep."""
    found: set[type[t.ProtocolType]] = set()
    rest = list(nouns)
    while rest:
        noun = rest.pop()
        if noun not in found:
            found.add(noun)
            rest += [kind for kinds in inside(noun).values() for kind in kinds]
    return found


# ---------------------------------------------------------------- the protocol's names in `_meta`

# The nouns that are a whole message's params or result.
MESSAGES = (t.RequestParams, t.NotificationParams, t.Result, t.InputResponse)


@cache
def reserved() -> dict[str, list[tuple[t.RevisionRange, ...]]]:
    """The names that some revision gives a meaning, each with its spans: all of one must hold."""
    names: dict[str, list[tuple[t.RevisionRange, ...]]] = {}
    for noun in (t.Envelope, t.RequestMeta, t.NotificationMeta, t.ResultMeta):
        for field in fields(noun):
            span = t.field_ranges(noun).get(field.name, t.RevisionRange())
            names.setdefault(field.encode_name, []).append((noun.available, span))
    return names


def _known_key(key: str, revision: Revision) -> bool:
    return any(all(revision.knows(*span) for span in spans) for spans in reserved()[key])


# ---------------------------------------------------------------- rules of single nouns


def _unseen(kind: str) -> str:
    return f"[{kind} content that cannot be shown here]"


def _in_words(block: t.ProtocolType) -> str:
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
            return _unseen(str(block.__struct_config__.tag))


def is_object(value: Any) -> bool:
    """Whether a value is written as a JSON object."""
    if isinstance(value, dict):
        return True
    if value is None or isinstance(value, str | int | float | list | tuple):
        return False
    return bytes(value if isinstance(value, Raw) else encode(value)).lstrip()[:1] == b"{"


def _fit_content(
    fitter: Downgrader,
    noun: "t.CallToolResult | t.ToolResultContent",
    changes: Changes,
    passing: DowngradeContext,
) -> None:
    content, allowed = noun.content, fitter.revision.blocks
    if not all(fitter.plain[type(block)] for block in content):
        after = _kept(content, [fitter.block(block, allowed, passing) for block in content])
        if after is not content:
            changes["content"] = after
    value = noun.structured_content
    if value is UNSET:
        return
    root = fitter.revision.output_root
    if root is OutputRoot.OBJECT and (passing.wrap or not is_object(value)):
        changes["structured_content"] = {WRAPPED: value}
    elif root is OutputRoot.NONE and not content:
        # Nothing would be left of it.
        changes["content"] = [TextContent(text=encode(value).decode())]


def _fit_prompt_message(
    fitter: Downgrader, noun: "t.PromptMessage", changes: Changes, passing: DowngradeContext
) -> None:
    after = fitter.block(noun.content, fitter.revision.blocks, passing)
    if after is not noun.content:
        changes["content"] = after


def wraps(tool: t.Tool, revision: Revision) -> bool:
    """Whether what a tool returns goes out as `{"result": value}`, because its schema does."""
    schema = tool.output_schema
    return (
        revision.output_root is OutputRoot.OBJECT
        and schema is not None
        and not is_object_schema(schema)
    )


def _fit_tool(
    fitter: Downgrader, noun: t.Tool, changes: Changes, passing: DowngradeContext
) -> None:
    revision = fitter.revision
    if not revision.boolean_schemas:
        schema = without_boolean_schemas(noun.input_schema)
        if schema is not noun.input_schema:
            changes["input_schema"] = schema
    if noun.output_schema is not None and "output_schema" not in changes:
        schema = noun.output_schema
        if not revision.boolean_schemas:
            schema = without_boolean_schemas(schema)
        if wraps(noun, revision):
            schema = wrapped_schema(schema)
        if schema is not noun.output_schema:
            changes["output_schema"] = schema
    if "title" in changes and revision.knows(*t.field_ranges(t.Tool)["annotations"]):
        # The annotations had a title before the tool itself did.
        annotations = noun.annotations or t.ToolAnnotations()
        title = annotations.title or noun.title
        changes["annotations"] = replace(annotations, title=title)
    else:
        _fit_described(fitter, noun, changes, passing)


def _fit_described(
    fitter: Downgrader,
    noun: "t.Tool | t.Prompt | t.PromptArgument",
    changes: Changes,
    passing: DowngradeContext,
) -> None:
    """Where the name is an identifier, the words for people begin with the title."""
    title, words = noun.title or "", noun.description or ""
    if "title" in changes and not words.startswith(title):
        changes["description"] = f"{title}: {words}" if words else title


def _fit_named(
    fitter: Downgrader,
    noun: "t.Resource | t.ResourceTemplate",
    changes: Changes,
    passing: DowngradeContext,
) -> None:
    """Before it had a title, the name of a resource was what people read; its URI tells it."""
    if "title" in changes:
        changes["name"] = noun.title


def _fit_messages(
    fitter: Downgrader,
    noun: "t.CreateMessageRequestParams",
    changes: Changes,
    passing: DowngradeContext,
) -> None:
    """Where a message holds one block, a message of several becomes several messages."""
    sampling = fitter.revision.sampling
    messages: list[t.SamplingMessage] = []
    for message in noun.messages:
        content = message.content
        blocks = content if isinstance(content, list) else [content]
        turns = [fitter.block(block, sampling.blocks, passing) for block in blocks]
        if sampling.arrays and isinstance(content, list):
            turns = [_kept(content, turns)]
        fit = cast("t.SamplingMessage", fitter.downgrade(message, passing))
        messages += [fit if turn is content else replace(fit, content=turn) for turn in turns]
    after = _kept(noun.messages, messages) if len(messages) == len(noun.messages) else messages
    if after is not noun.messages:
        changes["messages"] = after


def _fit_sampled(
    fitter: Downgrader, noun: "t.CreateMessageResult", changes: Changes, passing: DowngradeContext
) -> None:
    sampling = fitter.revision.sampling
    before = noun.content
    blocks = before if isinstance(before, list) else [before]
    shaped = [fitter.block(block, sampling.blocks, passing) for block in blocks]
    if sampling.arrays and isinstance(before, list):
        after = _kept(before, shaped)
    elif len(shaped) == 1:
        after = shaped[0]
    else:
        texts = [one.text if isinstance(one, TextContent) else _in_words(one) for one in shaped]
        after = TextContent(text="\n".join(texts))
    if after is not before:
        changes["content"] = after


def _fit_question(
    fitter: Downgrader, noun: "t.ElicitRequestParams", changes: Changes, passing: DowngradeContext
) -> None:
    if (noun.mode or "form") not in fitter.revision.elicitation.modes:
        raise LocalProtocolError(
            f"an elicitation of mode {noun.mode} cannot be put to a peer of "
            f"{fitter.revision.date}; look at its revision and its capabilities first"
        )


def _fit_field(
    fitter: Downgrader, noun: "t.PrimitiveSchema", changes: Changes, passing: DowngradeContext
) -> None:
    """Titled choices as names beside values; several choices as words, which can be read back."""
    facts = fitter.revision.elicitation
    if noun.one_of is not None and not facts.titled_enums:
        changes["enum"] = [option.const for option in noun.one_of]
        changes["enum_names"] = [option.title for option in noun.one_of]
    if noun.type == "array" and not facts.multi_select:
        items = noun.items or t.EnumItems()
        choices = [option.const for option in items.any_of or ()] or list(items.enum or ())
        about = f"{noun.description} " if noun.description else ""
        changes["type"] = "string"
        changes["description"] = f"{about}({SELECTION}{', '.join(choices)})"
    if noun.default is not None and noun.type != "boolean" and not facts.all_defaults:
        changes["default"] = None


def _fit_elicited(
    fitter: Downgrader, noun: "t.ElicitResult", changes: Changes, passing: DowngradeContext
) -> None:
    """Several choices as words, for a peer that asked in words."""
    if fitter.revision.elicitation.multi_select:
        return
    content = noun.content or {}
    if any(isinstance(value, list) for value in content.values()):
        changes["content"] = {
            name: ", ".join(value) if isinstance(value, list) else value
            for name, value in content.items()
        }


class TypeRule(Struct, frozen=True):
    """The rule of one type of noun, and the fields that it alone looks after."""

    rule: Rule | None
    fields: frozenset[str] = frozenset()


NO_RULE = TypeRule(None)
# By the name of a noun, so that it is made by whoever needs one; no two share theirs.
RULES: dict[str, TypeRule] = {
    "CallToolResult": TypeRule(_fit_content, frozenset({"content"})),
    "ToolResultContent": TypeRule(_fit_content, frozenset({"content"})),
    "PromptMessage": TypeRule(_fit_prompt_message, frozenset({"content"})),
    "Tool": TypeRule(_fit_tool),
    "Prompt": TypeRule(_fit_described),
    "PromptArgument": TypeRule(_fit_described),
    "Resource": TypeRule(_fit_named),
    "ResourceTemplate": TypeRule(_fit_named),
    "CreateMessageRequestParams": TypeRule(_fit_messages, frozenset({"messages"})),
    "SamplingMessage": TypeRule(None, frozenset({"content"})),  # its params see to it
    "CreateMessageResult": TypeRule(_fit_sampled, frozenset({"content"})),
    "ElicitRequestParams": TypeRule(_fit_question),
    "PrimitiveSchema": TypeRule(_fit_field),
    "ElicitResult": TypeRule(_fit_elicited),
}
