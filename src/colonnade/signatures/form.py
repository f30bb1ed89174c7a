"""Elicitation forms from a type: the form's schema, and a value of the type from its content.

A form is flat: strings, numbers, booleans, and choices of one or several. Rules: what a form cannot
express (a pattern, a nesting) is never left unchecked: it is either refused when the form is
created, or enforced when the content is decoded. Invalid content raises `Fault`.
"""

from typing import Any, NoReturn, cast

import msgspec

from colonnade.errors import Fault, FaultKind
from colonnade.protocol.schema.error_messages import ValidationProblem, join_problems
from colonnade.protocol.schema.validate import Schema
from colonnade.signatures.codecs import Codec
from colonnade.signatures.signature import DecodingError, codec_for, decode_value
from colonnade.signatures.type_hints import Namespace, literal_key, refuse

# The one field of a form for a plain value.
VALUE = "value"

_WORDS = ("title", "description", "default")
_FORMATS = frozenset({"email", "uri", "date", "date-time"})
_READ: dict[str, tuple[str, ...]] = {
    "string": ("minLength", "maxLength"),
    "integer": ("minimum", "maximum"),
    "number": ("minimum", "maximum"),
    "boolean": (),
    "array": ("minItems", "maxItems"),
}


class ElicitationForm:
    """The schema of a form, and the decoder of its content.

    Raises `LocalProtocolError` for a type that no form can express.
    """

    def __init__(self, annotation: Any, *, names: Namespace | None = None) -> None:
        self._where = f"a form for {getattr(annotation, '__name__', annotation)}"
        self._codec: Codec = codec_for(annotation, self._where, names or Namespace({}, {}))
        schema = self._codec.schema
        self._plain = schema.get("type") != "object" or "properties" not in schema
        self._absent: dict[str, None] = {}
        if self._plain:
            schema = {"type": "object", "properties": {VALUE: schema}, "required": [VALUE]}
        self.schema: Schema = self._write(schema)

    def _write(self, schema: Schema) -> Schema:
        required: list[str] = []
        fields: Schema = {}
        for name, one in schema["properties"].items():
            field, nullable = _bare(one)
            fields[name] = self._field(name, field)
            if nullable:
                self._absent[name] = None
            elif name in schema.get("required", ()):
                required.append(name)
        form: Schema = {"type": "object", "properties": fields}
        return {**form, "required": required} if required else form

    def decode(self, content: bytes) -> Any:
        """Decode a value of the type from the content of an accepted elicitation. R0641"""
        try:
            members = _members.decode(content)
        except Exception:
            raise _fault([ValidationProblem((), "expected an object of fields, in JSON")]) from None
        answer: Any = {**self._absent, **members}
        if self._plain:
            if VALUE not in answer:
                raise _fault([ValidationProblem((), f"missing required {VALUE!r}")])
            answer = answer[VALUE]
        try:
            return decode_value(self._codec, msgspec.json.encode(answer))
        except DecodingError as error:
            raise _fault(error.problems) from None

    def _field(self, name: str, schema: Schema) -> Schema:
        kind = str(schema.get("type"))
        if "enum" in schema:
            return {"type": "string", **_words(schema), **self._choice(name, schema, "oneOf")}
        if kind not in _READ:
            self._refuse(name)
        field: Schema = {"type": kind, **_words(schema), **_picked(schema, _READ[kind])}
        if kind == "array":
            items = cast(Schema, schema.get("items", {}))
            if "enum" not in items:
                self._refuse(name)
            choice = self._choice(name, items, "anyOf")
            field["items"] = {"type": "string", **choice} if "enum" in choice else choice
        if kind == "string" and schema.get("format") in _FORMATS:
            field["format"] = schema["format"]
        if kind == "integer":  # forms have no exclusive bounds; integers need none
            if "exclusiveMinimum" in schema:
                field["minimum"] = schema["exclusiveMinimum"] + 1
            if "exclusiveMaximum" in schema:
                field["maximum"] = schema["exclusiveMaximum"] - 1
        return field

    def _choice(self, name: str, schema: Schema, titled: str) -> Schema:
        options: list[Any] = schema["enum"]
        if not all(isinstance(option, str) for option in options):
            refuse(self._where, f"the choices of {name!r} are not strings; use strings")
        titles = self._codec.titles.get(literal_key(options), [])
        if all(_same(*pair) for pair in zip(titles, options, strict=False)):
            return {"enum": options}
        pairs = zip(options, titles, strict=True)
        return {titled: [{"const": one, "title": _title(title)} for one, title in pairs]}

    def _refuse(self, name: str) -> NoReturn:
        refuse(
            self._where,
            f"the field {name!r} is more than a form can hold: a string, a number, a boolean, one "
            "or several of some strings; make it flat, or use several elicitations",
        )


_members: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])


def _bare(schema: Schema) -> tuple[Schema, bool]:
    """`T | None` without the None, and whether there was one: the field may be left empty."""
    options: list[Schema] = schema.get("anyOf", [])
    rest = [one for one in options if one != {"type": "null"}]
    if len(rest) == 1 and len(options) == 2:
        return {**rest[0], **{k: v for k, v in schema.items() if k != "anyOf"}}, True
    return schema, False


def _words(schema: Schema) -> Schema:
    return {k: v for k, v in _picked(schema, _WORDS).items() if v is not None}


def _picked(schema: Schema, keys: tuple[str, ...]) -> Schema:
    return {key: schema[key] for key in keys if key in schema}


def _same(title: str, option: str) -> bool:
    return _title(title).lower() == _title(option).lower()


def _title(name: str) -> str:
    """The name of an Enum member as a title."""
    words = name.replace("_", " ").replace("-", " ").strip()
    return words[:1].upper() + words[1:].lower()


def _fault(problems: list[ValidationProblem]) -> Fault:
    return Fault(FaultKind.INVALID_PARAMS, join_problems(problems))
