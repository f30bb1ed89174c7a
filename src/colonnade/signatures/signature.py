"""The signature of a function: its parameters, their JSON Schema, and decoding of arguments.

Each annotation is resolved once, here, when the function is registered; what cannot be decoded is
refused then, with a message that names the parameter and a fix.

Rules: a valid call is decoded in one pass and nothing more. Undeclared arguments are refused, in
the schema too: a misspelt optional one would be ignored silently otherwise. Invalid arguments raise
`Fault`, whatever they are; an absent argument is left to the function.
"""

import inspect
import types
import typing
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import cached_property, partial
from typing import Annotated, Any, Literal, NotRequired, TypeAlias, TypedDict, Union, cast

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import asdict, replace

from colonnade.errors import Fault, FaultKind, InvalidArgumentType, LocalProtocolError
from colonnade.protocol.json_checks import depth, may_be_deep
from colonnade.protocol.jsonrpc import MAX_DEPTH
from colonnade.protocol.schema.bounds import map_subschemas
from colonnade.protocol.schema.error_messages import (
    MAX_OPTIONS,
    MAX_PROBLEMS,
    ValidationProblem,
    expected,
    join_problems,
    json_type,
    suggestion,
    truncate,
)
from colonnade.protocol.schema.validate import Schema, admitted_types
from colonnade.signatures.codecs import Codec, MsgspecCodec
from colonnade.signatures.docstrings import ParsedDocstring, parse_docstring
from colonnade.signatures.type_hints import (
    Namespace,
    UnsupportedByMsgspec,
    metadata_library,
    refuse,
    refuse_value,
    signature_of,
    unwrapped,
)


class DecodingError(Exception):
    """These bytes are not a value of the annotation; the problems say why."""

    def __init__(self, problems: list[ValidationProblem]) -> None:
        super().__init__(join_problems(problems))
        self.problems = problems


def codec_for(annotation: Any, where: str, names: Namespace, *, outgoing: bool = False) -> Codec:
    """The codec for an annotation. Raises `LocalProtocolError` with a fix if there is none."""
    try:
        return MsgspecCodec(annotation, where, names, outgoing)
    except UnsupportedByMsgspec as unfit:
        from colonnade.signatures import pydantic_codec as signature_models

        if signature_models.installed():
            return signature_models.PydanticCodec(annotation, where, names, str(unfit), outgoing)
        refuse(
            where,
            f"this needs pydantic ({unfit}); pip install pydantic, or use plain types: "
            "str, int, float, bool, datetime, list, dict, Literal, a dataclass or a TypedDict",
        )


def decode_value(codec: Codec, raw: bytes) -> Any:
    """Decode a value of the annotation: as it is, else coerced. Raises `DecodingError`."""
    from colonnade.signatures.coerce import coerce, parse  # on use: most arguments are valid

    value = parse(raw)
    if value is msgspec.UNSET:
        raise DecodingError([ValidationProblem((), "not valid JSON")])
    with suppress(Exception):
        return codec.decode(raw)
    try:
        loose = coerce(value, codec.schema, scalars=codec.coerces)
        return codec.decode(msgspec.json.encode(loose))
    except Exception as error:  # validators of the author may raise anything
        found = codec.reporter.check(coerce(value, codec.schema))
        found += codec.further(error, value, found) if found else codec.problems_of(error, value)
        raise DecodingError(found[:MAX_PROBLEMS]) from None


class ParameterMarker:
    """Marks a parameter with an input request or a dependency."""


class ContextMarker:
    """Base of `Context` and `BlockingContext`, which mark a parameter by its annotation."""


CONTEXT_NAMES = frozenset({"Context", "BlockingContext"})

# Which parameters are not arguments: some names, or a predicate of (name, annotation). The
# predicate is called again with the default inside `Annotated`, so that `x: T = Marker()` works,
# too.
HiddenParameters: TypeAlias = Collection[str] | Callable[[str, Any], bool]

EMPTY: Any = inspect.Parameter.empty
_KINDS = {
    inspect.Parameter.VAR_POSITIONAL: "callers send arguments by name; take one list instead of *",
    inspect.Parameter.VAR_KEYWORD: "callers need to know the names; take one dict instead of **",
    inspect.Parameter.POSITIONAL_ONLY: "callers send arguments by name; remove the '/'",
}
# Attributes of a pydantic Field about the parameter, not about its values.
_PARAMETER_ATTRIBUTES = (
    *("alias", "alias_priority", "validation_alias", "serialization_alias"),
    *("default", "default_factory", "validate_default"),
)


# Types that are encoded as they were written, or shorter: a float is not, `1e3` becomes `1000.0`.
_NEVER_LONGER = (str, int, bool, types.NoneType)


class HiddenParameter(Struct, frozen=True):
    """A parameter that is not an argument: it is filled in by the server."""

    name: str
    annotation: Any
    default: Any


class Parameter(Struct, frozen=True, eq=False):
    """One argument: its name in the function and on the wire."""

    name: str
    wire_name: str
    required: bool
    codec: Codec
    schema: Schema
    fill: Callable[[], Any] | None


class Signature:
    """The arguments of a function: their schema, and their decoder."""

    def __init__(
        self, function: Any, *, hidden: HiddenParameters = (), name: str = "", closed: bool = True
    ) -> None:
        """Inspect a function. Raises `LocalProtocolError` for parameters that JSON cannot fill.

        With `closed=False` undeclared arguments are ignored, and the schema does not forbid them.
        """
        plain = unwrapped(function)
        self.name: str = name or getattr(plain, "__name__", type(function).__name__)
        self.docs: ParsedDocstring = parse_docstring(plain.__doc__ or _own_doc(function))
        self.hidden: dict[str, HiddenParameter] = {}
        self.names: Namespace = Namespace.of(function)
        self.returns: Any = EMPTY
        self._closed = closed
        self.parameters: tuple[Parameter, ...] = tuple(self._collect(function, hidden))
        self.schema: Schema = self._write()
        self._prepare()

    # ------------------------------------------------------------ registration

    def _collect(self, function: Any, hidden: HiddenParameters) -> "list[Parameter]":
        try:
            signature = signature_of(function)
        except (TypeError, ValueError) as error:
            raise InvalidArgumentType(
                f"{self.name}: cannot be inspected as a function: {error}"
            ) from None
        if signature.return_annotation is not EMPTY:
            self.returns = self.names.evaluate(signature.return_annotation, f"{self.name}: return")
        given: Collection[str] = function.keywords if isinstance(function, partial) else ()
        found: list[Parameter] = []
        for parameter in signature.parameters.values():
            where = f"{self.name}: parameter {parameter.name!r}"
            if parameter.name in given:  # bound by a partial; it may be a secret
                continue
            annotation = self._annotation(parameter, where, hidden)
            if _hides(hidden, parameter, annotation):
                self.hidden[parameter.name] = HiddenParameter(
                    parameter.name, annotation, parameter.default
                )
            elif parameter.kind in _KINDS:
                refuse(where, _KINDS[parameter.kind])
            else:
                found.append(self._parameter(parameter, annotation, where))
        _refuse_twins(found, self.name)
        return found

    def _annotation(
        self, parameter: inspect.Parameter, where: str, hidden: HiddenParameters
    ) -> Any:
        if parameter.annotation is EMPTY:
            return Any
        try:
            annotation = self.names.evaluate(parameter.annotation, where)
        except LocalProtocolError:
            # `if TYPE_CHECKING: from colonnade import Context` is common, and such parameters are
            # hidden.
            if _hides(hidden, parameter, parameter.annotation):
                return parameter.annotation
            raise
        refuse_value(annotation, where)
        return annotation

    def _parameter(self, parameter: inspect.Parameter, annotation: Any, where: str) -> Parameter:
        default = parameter.default
        if _is_field(default):
            annotation, default = Annotated[annotation, default], EMPTY
        annotation, settings = _split(annotation, where)
        fill = None
        if default is EMPTY and settings.fill:
            default, fill = settings.default, settings.fill
        elif default is not EMPTY:
            fill = _copying(default)
        if default is None:  # `x: int = None` means that None is allowed
            annotation = _optional(annotation)
        codec = codec_for(annotation, where, self.names)
        schema = dict(codec.schema)
        words = self.docs.parameters.get(parameter.name)
        if words and "description" not in schema:
            schema["description"] = words
        if default is not EMPTY:
            schema = _with_default(schema, codec, default, where)
        required = default is EMPTY and fill is None
        wire = settings.alias or parameter.name
        return Parameter(parameter.name, wire, required, codec, schema, fill)

    def _write(self) -> Schema:
        definitions: Schema = {}
        properties = {p.wire_name: _hoisted(p.schema, definitions) for p in self.parameters}
        schema: Schema = {"type": "object", "properties": properties}
        if required := [p.wire_name for p in self.parameters if p.required]:
            schema["required"] = required
        if self._closed:
            schema["additionalProperties"] = False
        if definitions:
            schema["$defs"] = definitions
        return schema

    def _prepare(self) -> None:
        """Build the decoder: one struct for all arguments, whose fields are the parameters."""
        fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
        wires: dict[str, str] = {}
        self._renamed: list[tuple[str, str]] = []
        self._models: list[tuple[str, Callable[[bytes], Any]]] = []
        for parameter in self.parameters:
            attribute = parameter.name
            if attribute.startswith("__"):  # not allowed in structs
                attribute = f"dunder{attribute}"
                self._renamed.append((attribute, parameter.name))
            wires[attribute] = parameter.wire_name
            kind: Any = Raw
            if isinstance(parameter.codec, MsgspecCodec) and parameter.codec.alone:
                kind = parameter.codec.type
            else:
                self._models.append((parameter.name, parameter.codec.decode))
            plain = (attribute, kind)
            fields.append(plain if parameter.required else (*plain, UNSET))
        self._optional = [p.name for p in self.parameters if not p.required]
        self._fills = [(p.name, p.fill) for p in self.parameters if p.fill]
        # Whether the decoded struct can be passed to the function as it is.
        self._bare = not (self._renamed or self._optional or self._models or self._fills)
        struct = msgspec.defstruct(
            "Arguments", fields, rename=wires, forbid_unknown_fields=self._closed, kw_only=True
        )
        self._decode = msgspec.json.Decoder(struct).decode

    def output(self) -> Codec | None:
        """The codec of the return annotation, or None if there is none.

        Raises `LocalProtocolError` for a type that has no schema.
        """
        if self.returns in (EMPTY, type(None)):
            return None
        return codec_for(self.returns, f"{self.name}: return", self.names, outgoing=True)

    # ------------------------------------------------------------ calls

    @cached_property
    def _plain_decoder(self) -> Callable[[Raw], dict[str, Any]] | None:
        """Created on use. A dict ignores undeclared members: the length reveals them."""
        fields: dict[str, Any] = {}
        for parameter in self.parameters:
            codec = parameter.codec
            if (
                parameter.fill is not None
                or parameter.wire_name != parameter.name
                or not isinstance(codec, MsgspecCodec)
                or not _is_never_longer(codec.type)
            ):
                return None
            kind = codec.type
            fields[parameter.name] = kind if parameter.required else NotRequired[kind]
        made = cast("Any", TypedDict)("Arguments", fields)
        return msgspec.json.Decoder(made).decode

    def decode_plain(self, raw: Raw) -> dict[str, Any] | None:
        """The same as `decode`, for arguments that are plain and valid; None for all others.

        They are recognised by their length: encoded again, nothing becomes longer, and what was
        duplicated or is not declared is gone. So these need no `refuse_duplicate_members`.
        """
        decode = self._plain_decoder
        if decode is None or not raw:
            return None
        try:
            found = decode(raw)
            return found if len(_encode(found)) == len(raw) else None
        except Exception:  # whatever it is, `decode` reports it
            return None

    def decode(self, raw: bytes | Raw) -> dict[str, Any]:
        """The arguments to call the function with. Raises a `Fault` that names all problems."""
        raw = bytes(raw) or b"{}"
        # Shorter than this, it cannot nest too deep.
        if len(raw) > 2 * MAX_DEPTH and may_be_deep(raw, MAX_DEPTH) and depth(raw) > MAX_DEPTH:
            raise _fault(
                [ValidationProblem((), f"nested deeper than {MAX_DEPTH} levels; flatten it")]
            )
        try:
            found = asdict(self._decode(raw))
            if self._bare:
                return found
            for attribute, name in self._renamed:
                found[name] = found.pop(attribute)
            for name in self._optional:
                if found[name] is UNSET:
                    del found[name]
            for name, decode in self._models:
                if name in found:
                    found[name] = decode(bytes(found[name]))
        except Exception:  # the slow path coerces values and reports problems
            found = self._decode_slowly(raw)
        for name, fill in self._fills:
            if name not in found:
                found[name] = fill()
        return found

    def _decode_slowly(self, raw: bytes) -> dict[str, Any]:
        try:
            members = _members.decode(raw)
        except Exception:
            raise _fault(
                [ValidationProblem((), "expected an object of arguments, in JSON")]
            ) from None
        found: dict[str, Any] = {}
        problems: list[ValidationProblem] = []
        for parameter in self.parameters:
            sent = members.pop(parameter.wire_name, None)
            if sent is None:
                if parameter.required:
                    problems.append(
                        ValidationProblem((), f"missing required argument {parameter.wire_name!r}")
                    )
                continue
            try:
                found[parameter.name] = decode_value(parameter.codec, bytes(sent))
            except DecodingError as error:
                problems += [_placed(problem, parameter, sent) for problem in error.problems]
        if self._closed:
            known = [parameter.wire_name for parameter in self.parameters]
            problems += _unknown(list(members)[:MAX_PROBLEMS], known)
        if problems:
            raise _fault(problems)
        return found


_members: msgspec.json.Decoder[dict[str, Raw]] = msgspec.json.Decoder(dict[str, Raw])
_encode = msgspec.json.Encoder().encode


def _is_never_longer(kind: Any) -> bool:
    origin = typing.get_origin(kind)
    if origin is Annotated:
        return _is_never_longer(kind.__origin__)
    if origin in (Union, types.UnionType):
        return all(map(_is_never_longer, typing.get_args(kind)))
    return origin is Literal or kind in _NEVER_LONGER


def _own_doc(function: Any) -> str | None:
    """The docstring of a callable object: its class may have one that its `__call__` lacks."""
    return None if isinstance(function, partial) else function.__doc__


def _fault(problems: list[ValidationProblem]) -> Fault:
    return Fault(FaultKind.INVALID_PARAMS, join_problems(problems))


def _placed(problem: ValidationProblem, parameter: Parameter, sent: Raw) -> ValidationProblem:
    words = problem.message
    if bytes(sent).strip() == b"null" and not parameter.required:
        words += "; leave it out to use the default"
    return ValidationProblem((parameter.wire_name, *problem.path), words)


def _unknown(names: list[str], known: list[str]) -> Iterator[ValidationProblem]:
    """One problem for each; the known arguments are listed once."""
    listed = f"; there are {', '.join(map(repr, known[:MAX_OPTIONS])) or 'none'}"
    for name in names:
        hint = suggestion(name, known)
        yield ValidationProblem((), f"unknown argument {truncate(name)!r}{hint or listed}")
        listed = listed if hint else ""


# ---------------------------------------------------------------- pydantic Field and defaults


class _FieldSettings(Struct, frozen=True):
    """What a Field says about its parameter: an alias, and a default."""

    alias: str = ""
    default: Any = EMPTY
    fill: Callable[[], Any] | None = None


def _is_field(one: Any) -> bool:
    return any(kind.__name__ == "FieldInfo" for kind in type(one).__mro__) and bool(
        metadata_library(one)
    )


def _split(annotation: Any, where: str) -> tuple[Any, _FieldSettings]:
    """The annotation without what its Field says about the parameter, and that."""
    settings = _FieldSettings()
    if typing.get_origin(annotation) is not Annotated:
        return annotation, settings
    items: list[Any] = []
    for item in annotation.__metadata__:
        if _is_field(item):
            settings = _read_field(item, settings, where)
            from copy import copy

            item = copy(item)
            blank = type(item)()
            for attribute in _PARAMETER_ATTRIBUTES:
                setattr(item, attribute, getattr(blank, attribute))
        items.append(item)
    return Annotated[(annotation.__origin__, *items)], settings


def _read_field(field: Any, settings: _FieldSettings, where: str) -> _FieldSettings:
    blank = type(field)()
    alias = field.validation_alias or field.alias
    if alias is not None and not isinstance(alias, str):
        refuse(where, "only one alias is supported; write Field(alias='name')")
    if alias is not None:
        settings = replace(settings, alias=alias)
    if field.default is not blank.default:
        from copy import deepcopy

        value = field.default
        settings = replace(settings, default=value, fill=lambda: deepcopy(value))
    if field.default_factory is not None:
        if _needs_arguments(field.default_factory):
            refuse(
                where,
                "a default_factory gets no arguments here; compute the default in the function",
            )
        settings = replace(settings, default=EMPTY, fill=field.default_factory)
    return settings


def _needs_arguments(factory: Callable[..., Any]) -> bool:
    """Whether it cannot be called without arguments; `list` can, and `dict` has no signature."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except ValueError:
        return False
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return any(one.default is EMPTY and one.kind not in optional for one in parameters)


def _copying(default: Any) -> Callable[[], Any] | None:
    """A factory of copies, for a default that one call could change for the next.

    What is hashable is not copied: a sentinel is compared by identity.
    """
    if type(default).__hash__ is not None:
        return None
    from copy import deepcopy  # on use: most defaults are immutable

    try:
        deepcopy(default)
    except Exception:  # it may contain a lock; then it is shared, as in Python
        return None
    return lambda: deepcopy(default)


def _optional(annotation: Any) -> Any:
    if typing.get_origin(annotation) is Annotated:
        inner = _optional(annotation.__origin__)
        return Annotated[(inner, *annotation.__metadata__)]
    return Union[annotation, None]  # noqa: UP007


def _with_default(schema: Schema, codec: Codec, default: Any, where: str) -> Schema:
    """The schema with the default, if JSON can hold it and the type admits it.

    One of another JSON type is a mistake. One out of bounds may mean that none was sent.
    """
    try:
        return {**schema, "default": msgspec.json.decode(codec.encode(default))}
    except LocalProtocolError:
        kinds, kind = admitted_types(codec.schema, codec.schema), json_type(default)
        fits = kind in kinds or (kind == "integer" and "number" in kinds)
        if isinstance(default, str | int | float) and not fits:
            words = expected(kinds, kind)
            refuse(where, f"its default {truncate(repr(default))} is invalid: {words}")
        return schema


def _hides(hidden: HiddenParameters, parameter: inspect.Parameter, annotation: Any) -> bool:
    """Whether it is hidden; a marker may stand in `Annotated` or be the default."""
    if not callable(hidden):
        return parameter.name in hidden
    if hidden(parameter.name, annotation):
        return True
    marked: Any = Annotated[annotation, parameter.default]
    return parameter.default is not EMPTY and hidden(parameter.name, marked)


def _refuse_twins(parameters: list[Parameter], name: str) -> None:
    wires = [parameter.wire_name for parameter in parameters]
    for wire in wires:
        if wires.count(wire) > 1:
            refuse(name, f"two parameters have the wire name {wire!r}; give each its own alias")


def _hoisted(schema: Schema, definitions: Schema) -> Schema:
    """The schema of a parameter with its definitions moved to the root, under unique names."""
    names: dict[str, str] = {}
    for name, one in schema.get("$defs", {}).items():
        free, number = name, 2
        while definitions.get(free, one) != one:
            free, number = f"{name}{number}", number + 1
        names[f"#/$defs/{name}"] = free

    def moved(document: Any) -> Any:
        if not isinstance(document, dict):
            return document
        copied = map_subschemas(cast(Schema, document), lambda _, child: moved(child))
        if copied.get("$ref") in names:
            copied["$ref"] = f"#/$defs/{names[copied['$ref']]}"
        return copied

    for name, one in schema.get("$defs", {}).items():
        definitions[names[f"#/$defs/{name}"]] = moved(one)
    return moved({key: one for key, one in schema.items() if key != "$defs"})
