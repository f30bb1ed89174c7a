"""The pydantic codec: models, and annotations that msgspec would decode differently.

Rules: pydantic is imported here alone, and only when a signature needs it. Metadata of msgspec is
translated to pydantic's; inside of a class that is impossible, and it is refused, because pydantic
would ignore it.
"""

import re
import warnings
from typing import Annotated, Any, cast

import msgspec

from colonnade.protocol.schema.bounds import map_subschemas, tuple_items
from colonnade.protocol.schema.error_messages import (
    MAX_TEXT_CHARS,
    ValidationProblem,
    has_non_finite,
    truncate,
)
from colonnade.protocol.schema.validate import Schema, inline_references
from colonnade.signatures.codecs import ENDLESS, Codec
from colonnade.signatures.type_hints import (
    AnnotationVisitor,
    Namespace,
    collect_metadata,
    metadata_library,
    refuse,
)

_BOUNDS = {
    "ge": ("minimum",),
    "gt": ("exclusiveMinimum",),
    "le": ("maximum",),
    "lt": ("exclusiveMaximum",),
    "multiple_of": ("multipleOf",),
    "min_length": ("minLength", "minItems"),
    "max_length": ("maxLength", "maxItems"),
}


def installed() -> bool:
    """Whether pydantic can be imported; it is not imported to find out."""
    from importlib.util import find_spec

    return find_spec("pydantic") is not None


class PydanticVisitor(AnnotationVisitor):
    """Rewrites for pydantic."""

    def with_metadata(self, base: Any, items: tuple[Any, ...]) -> Any:
        theirs = [item for item in items if metadata_library(item)]
        bounds, notes, _ = collect_metadata(
            [item for item in items if not metadata_library(item)], self.where
        )
        collect_metadata(theirs, self.where)
        if bounds.pop("tz", None) is not None or any(_zoned(item) for item in theirs):
            refuse(self.where, "write pydantic.AwareDatetime or pydantic.NaiveDatetime")
        notes.pop("extra", None)
        if bounds or notes:
            self.rewriting("a string or msgspec.Meta in Annotated")
            theirs.append(_field(bounds, notes))
        inner = self.visit(base)
        return Annotated[(inner, *theirs)] if theirs else inner

    def enter(self, cls: Any) -> bool:
        return not metadata_library(cls)

    def synonym(self, annotation: Any) -> Any:
        return Any if annotation is object else super().synonym(annotation)

    def rewriting(self, what: str) -> None:
        if self.inside:
            refuse(self.where, f"{what}, in {self.inside}, is ignored by pydantic; use its Field")

    def alias(self, annotation: Any) -> Any:
        # pydantic supports aliases, recursive ones too, and resolves the names in them.
        value = self.aliased(annotation)
        found = super().alias(annotation)
        return annotation if found == value else found

    def circle(self, annotation: Any) -> Any:
        return annotation


class PydanticCodec(Codec):
    """An annotation that pydantic decodes. Raises `LocalProtocolError` if it cannot either."""

    coerces = False

    def __init__(
        self, annotation: Any, where: str, names: Namespace, why: str, outgoing: bool
    ) -> None:
        import pydantic

        rewritten = PydanticVisitor(where, names).visit(annotation)
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                self._adapter: Any = pydantic.TypeAdapter(rewritten)
                schema = self._adapter.json_schema(
                    mode="serialization" if outgoing else "validation",
                    schema_generator=_untitled_generator(),
                )
        except Exception as error:  # NameError, TypeError or errors of pydantic
            words = truncate(
                str(error).partition("\n")[0].partition(". Set `arb")[0], MAX_TEXT_CHARS
            )
            refuse(where, _no_json(annotation, f"{why}; pydantic: {words}", outgoing))
        for warning in caught:
            if warning.category.__name__ == "UnsupportedFieldAttributeWarning":
                refuse(where, truncate(str(warning.message), MAX_TEXT_CHARS))
        schema = inline_references(_untitled(schema, rewritten))
        super().__init__(where, schema, self._adapter.validate_json, {})

    def encode(self, value: Any) -> bytes:
        try:
            try:
                encoded = self._dump(value)
            except ValueError:  # such as a dict for a declared model
                value = self._adapter.validate_python(value)
                encoded = self._dump(value)
            if b"null" in encoded and has_non_finite(self._adapter.dump_python(value, mode="json")):
                raise ValueError(ENDLESS)
        except Exception as error:  # serializers of the author may raise anything
            raise self.misfit(self.problems_of(error, None)) from None
        if found := self.validator.check(msgspec.json.decode(encoded)):  # R0377
            raise self.misfit(found)
        return encoded

    def _dump(self, value: Any) -> bytes:
        # Not validated again: the author's validators may not accept their own output.
        return self._adapter.dump_json(value, by_alias=True, warnings="error")

    def problems_of(self, error: Exception, value: Any) -> list[ValidationProblem]:
        """The messages of pydantic, without its input values and URLs."""
        if not hasattr(error, "errors"):
            return [ValidationProblem((), truncate(str(error).partition("\n")[0], MAX_TEXT_CHARS))]
        found: list[dict[str, Any]] = cast(Any, error).errors(
            include_url=False, include_context=False, include_input=False
        )
        return [
            ValidationProblem(_path(one["loc"], value), truncate(one["msg"], MAX_TEXT_CHARS))
            for one in found
        ]

    def further(
        self, error: Exception, value: Any, found: list[ValidationProblem]
    ) -> list[ValidationProblem]:
        """Problems that validators of the author and pydantic's own types report, and the schema
        does not.

        Errors of union members that were not meant are left out: a part of their path is not in the
        value.
        """
        known = {problem.path for problem in found}
        errors: list[dict[str, Any]] = cast(Any, error).errors() if hasattr(error, "errors") else []
        paths = {one["loc"] for one in errors if one["type"] != "missing"}
        problems = self.problems_of(error, value) if errors else []
        return [one for one in problems if one.path in paths and one.path not in known]


def _no_json(annotation: Any, why: str, outgoing: bool) -> str:
    name = (
        annotation.__name__
        if isinstance(annotation, type)
        else truncate(str(annotation), MAX_TEXT_CHARS)
    )
    why = why.removeprefix(f"{name}; ")
    plain = "plain types, a dataclass, a TypedDict or a pydantic model"
    if outgoing:
        return f"{name} cannot be encoded as JSON ({why}); return {plain}"
    return (
        f"{name} cannot be decoded from JSON ({why}); take {plain}, or let Depends(...) provide it"
    )


def _path(location: tuple[str | int, ...], value: Any) -> tuple[str | int, ...]:
    """The path in the value; pydantic adds the member of a union that it tried."""
    path: list[str | int] = []
    for number, part in enumerate(location, 1):
        known = isinstance(value, dict) and part in value
        if isinstance(value, list) and isinstance(part, int):
            known = part < len(cast(list[Any], value))
        missing = isinstance(value, dict) and number == len(location)
        if known:
            value = cast(Any, value)[part]
        if known or missing:
            path.append(part)
    return tuple(path)


def _field(bounds: dict[str, Any], notes: dict[str, Any]) -> Any:
    import pydantic

    if (extra := notes.pop("extra_json_schema", None)) is not None:
        notes["json_schema_extra"] = extra
    return pydantic.Field(**bounds, **notes)


def _zoned(item: Any) -> bool:
    """`annotated_types.Timezone`, which pydantic ignores."""
    return type(item).__name__ == "Timezone"


def _untitled_generator() -> Any:
    """pydantic's schema generator without a title for every field."""
    from pydantic.json_schema import GenerateJsonSchema

    class UntitledJsonSchema(GenerateJsonSchema):
        def field_title_should_be_set(self, schema: Any) -> bool:
            return False

    return UntitledJsonSchema


def _untitled(schema: Schema, annotation: Any) -> Schema:
    """Remove titles that only repeat the name of a class, and OpenAPI's discriminator."""
    names = {getattr(annotation, "__name__", "")}

    def change(keyword: str, child: Any) -> Any:
        return clean(cast(Schema, child)) if isinstance(child, dict) else child

    def clean(document: Schema) -> Schema:
        copy = map_subschemas(document, change)
        copy.pop("discriminator", None)
        if copy.get("type") == "array" and "items" not in copy:
            copy["items"] = tuple_items(copy.get("prefixItems", ()))
        for theirs, words in _BOUNDS.items():  # on a union they have pydantic's names
            bound = copy.pop(theirs, None)
            if isinstance(bound, int | float):
                copy.update(dict.fromkeys(words, bound))
        return copy

    cleaned = clean(schema)
    for name, one in [*cleaned.get("$defs", {}).items(), ("", cleaned)]:
        title = one.get("title")
        if isinstance(title, str) and (title in names or re.sub(r"\W", "_", title) == name):
            del one["title"]
    return cleaned
