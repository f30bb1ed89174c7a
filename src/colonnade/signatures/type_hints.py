"""Type hints: resolving annotations, and rewriting them for msgspec.

An annotation is rewritten so that msgspec decodes it exactly as pydantic would, or
`UnsupportedByMsgspec` is raised: then pydantic has to decode it. What no library could decode from
JSON is refused here.

Rules: no value is decoded here; classes of the author are only inspected, never changed.
"""

import enum
import inspect
import sys
import types
import typing
from abc import ABC, abstractmethod
from collections import abc
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, TypeAlias, TypeVar, Union, cast

from msgspec import Meta

from colonnade.errors import InvalidArgumentType, LocalProtocolError

# The formats of types that are strings in JSON, by module and class; those of msgspec are not here.
TEXT_FORMATS: dict[str, dict[str, str]] = {
    "pathlib": dict.fromkeys(
        ("Path", "PurePath", "PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath"), "path"
    ),
    "ipaddress": {
        "IPv4Address": "ipv4",
        "IPv6Address": "ipv6",
        "IPv4Network": "ipv4network",
        "IPv6Network": "ipv6network",
        "IPv4Interface": "ipv4interface",
        "IPv6Interface": "ipv6interface",
    },
    "re": {"Pattern": "regex"},
}


class _IsBytes(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, bytes)


class Utf8(metaclass=_IsBytes):
    """Stands for `bytes`, which msgspec would decode from base64."""


def text_format(cls: Any) -> str | None:
    """The format of a type that is a string in JSON; None for other types."""
    if cls is Utf8:
        return "binary"
    module, name = getattr(cls, "__module__", ""), getattr(cls, "__name__", "")
    return TEXT_FORMATS.get(str(module).partition(".")[0], {}).get(str(name))


def is_decimal(cls: Any) -> bool:
    """Whether this is `decimal.Decimal`."""
    return getattr(cls, "__name__", "") == "Decimal" and cls.__module__ in ("decimal", "_pydecimal")


# ---------------------------------------------------------------- type hints


# The bounds that annotated_types and msgspec both have, by the former's class names.
_BOUNDS = {
    "Gt": "gt",
    "Ge": "ge",
    "Lt": "lt",
    "Le": "le",
    "MultipleOf": "multiple_of",
    "MinLen": "min_length",
    "MaxLen": "max_length",
}
BOUNDS = frozenset({*_BOUNDS.values(), "pattern", "tz"})
_META = (*_BOUNDS.values(), *("pattern", "tz", "title", "description", "examples"))
_META_EXTRA = ("extra_json_schema", "extra")
# Attributes of a pydantic Field that msgspec has as well.
_FIELD_NOTES = ("title", "description", "examples")
_FIELD_READ = frozenset(
    {*_FIELD_NOTES, "annotation", "metadata", "deprecated", "json_schema_extra"}
)


class UnsupportedByMsgspec(Exception):
    """msgspec cannot decode this as it is meant; the message names it."""


# The metadata of one `Annotated`: bounds and notes that msgspec knows, and the rest.
AnnotatedMetadata: TypeAlias = tuple[dict[str, Any], dict[str, Any], list[Any]]


def collect_metadata(items: Iterable[Any], where: str) -> AnnotatedMetadata:
    """Sort each item. Raises `LocalProtocolError` for an item that no library understands."""
    bounds: dict[str, Any] = {}
    notes: dict[str, Any] = {}
    foreign: list[Any] = []
    for item in items:
        for name, value in _item_facts(item, where):
            kind = bounds if name in BOUNDS else notes
            if name == "foreign" or kind.get(name, value) != value:
                foreign.append(item)
            else:
                kind[name] = value
    return bounds, notes, foreign


def _item_facts(item: Any, where: str) -> Iterator[tuple[str, Any]]:
    """One item as arguments of `Meta`; `foreign` if msgspec has no equivalent."""
    if item is None:  # pydantic's conint() and the like leave some
        return
    whose, name = metadata_library(item), type(item).__name__
    if isinstance(item, Meta):
        for attribute in (*_META, *_META_EXTRA):
            if (value := getattr(item, attribute)) is not None:
                yield attribute, value
    elif isinstance(item, str):
        yield "description", item
    elif whose == "pydantic":
        yield from _field_facts(item, where)
    elif hasattr(item, "__is_annotated_types_grouped_metadata__"):
        for inner in item:
            yield from _item_facts(inner, where)
    elif whose == "annotated_types" and name in _BOUNDS:
        yield _BOUNDS[name], getattr(item, _BOUNDS[name])
    elif whose == "annotated_types" and name == "Timezone" and item.tz in (None, ...):
        yield "tz", item.tz is ...
    elif whose == "annotated_types" and name in ("Predicate", "Not"):
        yield "foreign", item
    elif isinstance(documentation := getattr(item, "documentation", None), str):
        yield "description", documentation
    else:
        refuse(
            where,
            f"{name!r} in Annotated is not supported; leave it out, or use a string, "
            "msgspec.Meta, annotated_types or pydantic.Field",
        )


def _field_facts(item: Any, where: str) -> Iterator[tuple[str, Any]]:
    """A pydantic Field with nothing but bounds and descriptions is as good as `Meta`; more is
    foreign."""
    field_info = next((one for one in type(item).__mro__ if one.__name__ == "FieldInfo"), None)
    if field_info is None:
        yield "foreign", item
        return
    blank = field_info()
    said = [slot for slot in field_slots(item) if getattr(item, slot) != getattr(blank, slot)]
    extra: Any = item.json_schema_extra
    if not _FIELD_READ.issuperset(said) or callable(extra):
        yield "foreign", item
        return
    for inner in item.metadata:
        yield from _item_facts(inner, where)
    for name in _FIELD_NOTES:
        if (value := getattr(item, name)) is not None:
            yield name, value
    if item.deprecated:
        extra = {"deprecated": True, **cast(dict[str, Any], extra or {})}
    if extra:
        yield "extra_json_schema", extra


def field_slots(field: Any) -> list[str]:
    """The public attributes of a pydantic Field."""
    owner: Any = next(one for one in type(field).__mro__ if one.__name__ == "FieldInfo")
    return [slot for slot in cast(Sequence[str], owner.__slots__) if not slot.startswith("_")]


def metadata_library(item: Any) -> str:
    """The library that this metadata belongs to, without importing it."""
    kinds = item.__mro__ if isinstance(item, type) else type(item).__mro__
    roots = {kind.__module__.partition(".")[0] for kind in kinds}
    hooks = ("__get_pydantic_core_schema__", "__get_pydantic_json_schema__")
    if roots & {"pydantic", "pydantic_core"} or any(hasattr(item, hook) for hook in hooks):
        return "pydantic"
    return "annotated_types" if "annotated_types" in roots else ""


def refuse(where: str, problem: str) -> NoReturn:
    """Raise `InvalidArgumentType` for an annotation that cannot be used: where, why, and what to
    do."""
    raise InvalidArgumentType(f"{where}: {problem}")


# From Python 3.14 on annotations are evaluated lazily (PEP 649), so that a name that only a type
# checker imports would be a bare NameError there. As a ForwardRef it comes to `Namespace.evaluate`,
# whose message says where it stands and what to do.
_LAZY = "annotationlib" in sys.stdlib_module_names
_FORWARD: Any = import_module("annotationlib").Format.FORWARDREF if _LAZY else None
_SIGNATURE: dict[str, Any] = {"annotation_format": _FORWARD} if _LAZY else {}
_ANNOTATIONS: dict[str, Any] = {"format": _FORWARD} if _LAZY else {}


def signature_of(function: Any) -> inspect.Signature:
    """The signature of a function, with names that cannot be resolved left as they are.

    Raises `TypeError` and `ValueError` as `inspect.signature` does.
    """
    return inspect.signature(function, **_SIGNATURE)


def annotations_of(cls: Any) -> dict[str, Any]:
    """The annotations of a class itself, in their order."""
    return inspect.get_annotations(cls, **_ANNOTATIONS)


class Namespace:
    """The names that the annotations of a function may use."""

    def __init__(self, globals_: dict[str, Any], locals_: dict[str, Any]) -> None:
        self._globals = globals_
        self._locals = locals_

    @classmethod
    def of(cls, function: Any) -> "Namespace":
        """The names around a function: of its module, its closure and its enclosing functions."""
        inner = unwrapped(function)
        locals_ = _enclosing(inner)
        code, cells = getattr(inner, "__code__", None), getattr(inner, "__closure__", None)
        for name, cell in zip(code.co_freevars if code else (), cells or (), strict=True):
            try:
                locals_[name] = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
        for parameter in getattr(inner, "__type_params__", ()):
            locals_[parameter.__name__] = parameter
        return cls(getattr(inner, "__globals__", {}), locals_)

    def evaluate(self, annotation: Any, where: str, module: str = "") -> Any:
        """Resolve every name in an annotation; first in `module`, if one is given."""

        def holder() -> None: ...

        holder.__annotations__ = {"it": annotation}
        names = {**self._locals, **vars(sys.modules[module])} if module else self._locals
        try:
            return typing.get_type_hints(holder, self._globals, names, True)["it"]
        except NameError as error:
            raise _unknown(error, where) from None
        except Exception as error:
            raise InvalidArgumentType(
                f"{where}: {annotation!r} is not a valid annotation: {error}"
            ) from None

    def hints(self, cls: type, where: str) -> dict[str, Any]:
        """The annotations of the fields of a class, with their metadata."""
        try:
            return typing.get_type_hints(cls, include_extras=True)
        except NameError:
            pass
        except Exception as error:
            raise InvalidArgumentType(
                f"{where}: the annotations of {cls.__name__} are not valid: {error}"
            ) from None
        for base in cls.__mro__[:-1]:
            own = annotations_of(base)
            try:
                hints = typing.get_type_hints(base, None, {**self._locals, **vars(base)}, True)
            except NameError as error:
                raise _unknown(error, f"{where}: {cls.__name__}") from None
            if own:
                base.__annotations__ = {name: hints.get(name, own[name]) for name in own}
        return typing.get_type_hints(cls, include_extras=True)


def unwrapped(function: Any) -> Any:
    """The plain function behind a partial, a method, a decorator or a callable object."""
    while True:
        if isinstance(function, partial):
            function = cast(Any, function).func
        elif isinstance(function, staticmethod | classmethod) or inspect.ismethod(function):
            function = cast(Any, function).__func__
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif inspect.isroutine(function):
            return function
        else:  # calling a class calls its __init__, an object its __call__
            call = function.__init__ if isinstance(function, type) else type(function).__call__
            if not inspect.isfunction(call):
                return function
            function = call


def _enclosing(function: Callable[..., Any]) -> dict[str, Any]:
    """The variables of the functions around this one, outermost first, while they still run."""
    parts = getattr(function, "__qualname__", "").split(".<locals>.")
    around = {".<locals>.".join(parts[:count]) for count in range(1, len(parts))}
    found: list[dict[str, Any]] = []
    frame = inspect.currentframe()
    while around and frame is not None:
        if frame.f_code.co_qualname in around and frame.f_globals is function.__globals__:
            found.append(dict(frame.f_locals))
        frame = frame.f_back
    names: dict[str, Any] = {}
    for one in reversed(found):
        names.update(one)
    return names


def _unknown(error: NameError, where: str) -> LocalProtocolError:
    return InvalidArgumentType(
        f"{where}: {error}; define it in the module, or import it outside of TYPE_CHECKING"
    )


if TYPE_CHECKING:
    from dataclasses import Field

# Equivalent types. An Iterable is decoded at once: validated lazily is not validated.
_SYNONYMS: dict[Any, Any] = {object: Any, typing.LiteralString: str, abc.Iterable: list}
# Types that JSON never becomes, and what to write instead.
_NEVER: dict[Any, str] = {
    typing.get_origin(typing.Callable): "a function cannot come from JSON; take its name",
    type: "a class cannot come from JSON; take its name, as a string or an Enum",
    abc.Generator: "a generator would be validated too late; use list",
    abc.Iterator: "an iterator would be validated too late; use list",
    typing.ClassVar: "ClassVar is for the attributes of a class; leave it out",
}
# Modules of annotations that are not classes.
_TYPING = frozenset({"typing", "typing_extensions", "types"})
_NO_KEYS = (tuple, list, set, frozenset, dict, type(None))
_WRAPPERS = frozenset({"Required", "NotRequired", "ReadOnly", "Final"})
# Keys in the metadata of a dataclass field that pydantic interprets.
_FIELD_KEYS = frozenset({*BOUNDS, "strict", "alias", "validation_alias", "json_schema_extra"})
_FIELD_KEYWORDS = ("title", "description", "examples")
_SCALARS = (str, int, float, bool, type(None))


class AnnotationVisitor(ABC):
    """Visits an annotation and the fields of the classes in it.

    Subclasses define how metadata is translated (`with_metadata`) and which classes are supported
    (`enter`).
    """

    def __init__(self, where: str, names: Namespace) -> None:
        self.where = where
        self.names = names
        self.inside: str | None = None  # the class whose fields are visited: they cannot change
        self._entered: set[Any] = set()
        self._aliases: list[Any] = []

    def visit(self, annotation: Any) -> Any:
        """The annotation as it should be decoded."""
        origin, args = typing.get_origin(annotation), typing.get_args(annotation)
        if origin is Annotated:
            return self.with_metadata(annotation.__origin__, annotation.__metadata__)
        for one in (annotation, origin):
            if _hashable(one) and one in _NEVER:
                refuse(self.where, _NEVER[one])
        if origin is Literal:
            return self.literal(annotation, args)
        if isinstance(annotation, TypeVar):
            return self.variable(annotation)
        if getattr(origin, "_name", None) in _WRAPPERS:
            return self.visit(args[0])
        if "TypeAliasType" in (type(annotation).__name__, type(origin).__name__):
            return self.alias(annotation)
        if hasattr(annotation, "__supertype__"):
            return self.visit(annotation.__supertype__)
        if typing.get_origin(annotation) is not None:
            return self.parametrised(annotation, origin, args)
        if _hashable(annotation) and annotation in _SYNONYMS:
            return self.synonym(annotation)
        if isinstance(annotation, type):
            self._enter(annotation)
            return self.standard(annotation)
        return annotation

    def standard(self, cls: type) -> Any:
        """A class as it should be decoded; some of the standard library are replaced."""
        return cls

    def parametrised(self, annotation: Any, origin: Any, args: tuple[Any, ...]) -> Any:
        """A union, a collection, or a generic class of the author."""
        inner = tuple(one if one is ... else self.visit(one) for one in args)
        if _is_union(annotation):
            return Union[inner]  # noqa: UP007
        if origin in _SYNONYMS:
            return self.synonym(origin)[inner]
        if _is_kind(origin, abc.Mapping):
            self._key(args[0])
        self._enter(origin)
        if inner == args:
            return annotation
        return origin[inner]

    def _key(self, annotation: Any) -> None:
        key = typing.get_origin(annotation) or annotation
        if _is_kind(key, *_NO_KEYS) or field_names(key):
            refuse(
                self.where, f"a key in JSON is a string, and never becomes a {_name(key)}; use str"
            )

    def synonym(self, annotation: Any) -> Any:
        self.rewriting(f"{_name(annotation)} is decoded as {_name(_SYNONYMS[annotation])}")
        return _SYNONYMS[annotation]

    def literal(self, annotation: Any, values: tuple[Any, ...]) -> Any:
        for value in values:
            if isinstance(value, enum.Enum) or not isinstance(value, _SCALARS):
                refuse(
                    self.where,
                    f"Literal[{value!r}] never matches JSON; write the plain value, or the Enum",
                )
        return annotation

    def variable(self, variable: TypeVar) -> Any:
        """An unbound type variable stands for its bound, its constraints, or anything."""
        if variable.__constraints__:
            return self.visit(Union[variable.__constraints__])  # noqa: UP007
        return Any if variable.__bound__ is None else self.visit(variable.__bound__)

    def alias(self, annotation: Any) -> Any:
        """`type X = …`, unless it is recursive."""
        if annotation in self._aliases:
            return self.circle(annotation)
        self._aliases.append(annotation)
        found = self.visit(self.aliased(annotation))
        self._aliases.pop()
        return found

    def aliased(self, annotation: Any) -> Any:
        """The value of an alias."""
        origin, args = typing.get_origin(annotation), typing.get_args(annotation)
        value = origin.__value__[args] if args else annotation.__value__
        if isinstance(value, str | typing.ForwardRef):  # only where `type X = …` is not syntax yet
            value = self.names.evaluate(value, self.where, annotation.__module__)
        return value

    def _enter(self, cls: Any) -> None:
        if cls in self._entered or not isinstance(cls, type):
            return
        self._entered.add(cls)
        if issubclass(cls, enum.Enum):
            self.enumeration(cls)
        elif self.enter(cls) and (fields := field_names(cls)):
            self._enter_fields(cls, fields)

    def _enter_fields(self, cls: Any, fields: Sequence[str]) -> None:
        outer, self.inside = self.inside, cls.__name__
        hints = self.names.hints(cls, self.where)
        for field in fields:
            self.field(cls, field, hints.get(field, Any))
        self.inside = outer

    def enumeration(self, cls: type[enum.Enum]) -> None:
        for member in cls:
            if not isinstance(member.value, _SCALARS):
                refuse(
                    self.where,
                    f"{cls.__name__}.{member.name} has a value that never matches JSON; "
                    "give the members strings or numbers",
                )

    def field(self, cls: Any, name: str, hint: Any) -> None:
        """Visit one field of a class of the author."""
        self.visit(hint)

    @abstractmethod
    def with_metadata(self, base: Any, items: tuple[Any, ...]) -> Any: ...

    @abstractmethod
    def enter(self, cls: Any) -> bool: ...

    @abstractmethod
    def rewriting(self, what: str) -> None: ...

    @abstractmethod
    def circle(self, annotation: Any) -> Any: ...


class SchemaNotes:
    """What the rewritten annotation does not carry and its schema should contain."""

    def __init__(self) -> None:
        self.literals: dict[tuple[Any, ...], list[Any]] = {}  # sorted values -> as declared
        self.fields: dict[tuple[Any, str], dict[str, Any]] = {}  # (class, field) -> keywords
        self.titles: dict[tuple[Any, ...], list[str]] = {}  # values of an Enum -> its names
        self.strings: bool = False  # whether it contains a type that a hook decodes from a string
        self.bytes: bool = False  # whether it contains bytes
        self.decimals: bool = False  # whether it contains a Decimal
        self.outgoing: bool = False  # whether it is encoded, and not decoded


class MsgspecVisitor(AnnotationVisitor):
    """Rewrites for msgspec. Raises `UnsupportedByMsgspec` if it would decode the annotation
    differently."""

    def __init__(self, where: str, names: Namespace) -> None:
        super().__init__(where, names)
        self.notes: SchemaNotes = SchemaNotes()

    def with_metadata(self, base: Any, items: tuple[Any, ...]) -> Any:
        bounds, notes, foreign = collect_metadata(items, self.where)
        if foreign:
            raise UnsupportedByMsgspec(f"{_name(cast(object, type(foreign[0])))} in Annotated")
        inner = self.visit(base)
        if self.inside and not all(isinstance(item, Meta) for item in items if item is not None):
            self.rewriting("metadata of another library than msgspec")
        try:
            if bounds:
                inner = _bounded(inner, Meta(**bounds))
            return Annotated[inner, Meta(**notes)] if notes else inner
        except (TypeError, ValueError) as error:
            raise UnsupportedByMsgspec(str(error)) from None

    def standard(self, cls: type) -> Any:
        if cls is bytes:
            self.rewriting("bytes are decoded from a string")
            self.notes.strings = self.notes.bytes = True
            return Utf8
        if text_format(cls) is not None:
            self.notes.strings = True
        if is_decimal(cls):
            self.notes.decimals = True
        return cls

    def parametrised(self, annotation: Any, origin: Any, args: tuple[Any, ...]) -> Any:
        if text_format(origin) == "regex" and args == (str,):
            self.rewriting("re.Pattern[str] is decoded as re.Pattern")
            return self.standard(origin)
        found = super().parametrised(annotation, origin, args)
        members = [one for one in typing.get_args(found) if one is not type(None)]
        if _is_union(found) and len(members) > 1 and any(map(_has_bounds, members)):
            # msgspec 0.22 takes the bounds of one member for another's: wrong results, and crashes.
            raise UnsupportedByMsgspec("a union with bounds on a member")
        return found

    def field(self, cls: Any, name: str, hint: Any) -> None:
        if typing.get_origin(hint) is Annotated:
            bounds, notes, foreign = collect_metadata(hint.__metadata__, self.where)
            if not bounds and not foreign and notes.keys() <= {"description"}:
                # Only a description: the class can stay as it is, and the schema contains it.
                self.notes.fields[cls, name] = notes
                hint = hint.__origin__
        super().field(cls, name, hint)

    def literal(self, annotation: Any, values: tuple[Any, ...]) -> Any:
        annotation = super().literal(annotation, values)
        self.notes.literals[literal_key(values)] = list(values)
        return annotation

    def enumeration(self, cls: type[enum.Enum]) -> None:
        super().enumeration(cls)
        self.notes.titles[literal_key(member.value for member in cls)] = [m.name for m in cls]

    def enter(self, cls: Any) -> bool:
        if metadata_library(cls) == "pydantic" or hasattr(cls, "__pydantic_config__"):
            raise UnsupportedByMsgspec(f"{cls.__name__} belongs to pydantic")
        if getattr(cls, "__closed__", None) or _open_to(cls) is not None:
            raise UnsupportedByMsgspec(f"{cls.__name__} declares extra members")
        for field in dataclass_fields(cls):
            self._enter_field(cls, field)
        for attribute in getattr(cls, "__attrs_attrs__", ()):
            if attribute.converter or not attribute.init or attribute.alias != attribute.name:
                raise UnsupportedByMsgspec(
                    f"{cls.__name__}.{attribute.name} has a converter, an alias or no init"
                )
        return True

    def _enter_field(self, cls: Any, field: "Field[Any]") -> None:
        if not field.init:
            raise UnsupportedByMsgspec(f"{cls.__name__}.{field.name} cannot be set (init=False)")
        if metadata_library(field.default) == "pydantic" or _FIELD_KEYS & field.metadata.keys():
            raise UnsupportedByMsgspec(f"{cls.__name__}.{field.name} has settings for pydantic")
        words = {key: field.metadata[key] for key in _FIELD_KEYWORDS if key in field.metadata}
        if words:
            self.notes.fields[cls, field.name] = words

    def rewriting(self, what: str) -> None:
        if self.inside:
            raise UnsupportedByMsgspec(f"{what}, inside {self.inside}")

    def circle(self, annotation: Any) -> Any:
        raise UnsupportedByMsgspec(f"{annotation} refers to itself")


def refuse_value(annotation: Any, where: str) -> None:
    """Refuse what is neither a class nor from `typing`, such as `x: Field(...)`."""
    if isinstance(annotation, type) or typing.get_origin(annotation) is not None:
        return
    if type(annotation).__module__ not in _TYPING:
        refuse(
            where,
            f"its annotation is a value ({type(annotation).__name__}), not a type; write a type "
            "such as str, and metadata as Annotated[str, ...]",
        )


def literal_key(values: Iterable[Any]) -> tuple[Any, ...]:
    """The values of a Literal in one order, whatever the declared one."""
    return tuple(sorted((type(value).__name__, str(value)) for value in values))


def field_names(cls: Any) -> Sequence[str]:
    """The fields of a class that JSON is decoded into; empty if it is not such a class."""
    if fields := dataclass_fields(cls):
        return [field.name for field in fields]
    if hasattr(cls, "__attrs_attrs__"):
        return [attribute.name for attribute in cls.__attrs_attrs__]
    if hasattr(cls, "__total__"):  # a TypedDict, whichever module it is from
        return list(annotations_of(cls))
    return getattr(cls, "__struct_fields__", ()) or getattr(cls, "_fields", ())


def dataclass_fields(cls: Any) -> "tuple[Field[Any], ...]":
    """The fields of a dataclass; empty if it is not one."""
    if not hasattr(cls, "__dataclass_fields__"):
        return ()
    from dataclasses import fields  # already loaded by the module of the class

    return fields(cls)


def _bounded(annotation: Any, meta: Meta) -> Any:
    """Put the bounds on the one member of a union that they can be meant for."""
    args = typing.get_args(annotation)
    if not _is_union(annotation):
        return Annotated[annotation, meta]
    bare = [one for one in args if one is not type(None)]
    if len(bare) != 1:
        raise UnsupportedByMsgspec("bounds on a union")
    return Union[tuple(one if one is type(None) else Annotated[one, meta] for one in args)]  # noqa: UP007


def _open_to(cls: Any) -> Any:
    """The type of the extra members of a TypedDict, if it declares one."""
    extra: object = getattr(cls, "__extra_items__", None)
    return None if type(extra).__name__.endswith("NoExtraItemsType") else extra


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (Union, types.UnionType)


def _has_bounds(annotation: Any) -> bool:
    items = annotation.__metadata__ if typing.get_origin(annotation) is Annotated else ()
    return any(getattr(item, bound, None) is not None for item in items for bound in BOUNDS)


def _is_kind(one: Any, *kinds: type) -> bool:
    return isinstance(one, type) and issubclass(one, kinds)


def _hashable(one: Any) -> bool:
    return cast(object, type(one).__hash__) is not None


def _name(one: object) -> str:
    return getattr(one, "__name__", str(one))
