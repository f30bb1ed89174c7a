"""Which codec an annotation gets, and how bytes are read with it when they are not quite right.

An annotation is classified once, when it is registered: msgspec reads it exactly, or pydantic has
to (and must be installed), or it is refused with a way out. Rules: whatever the bytes are, reading
raises `Unreadable` and nothing else; the bytes are never repeated in its words.
"""

from contextlib import suppress
from typing import Any

import msgspec

from colonnade.protocol.annotations_metadata import Unfit, refuse
from colonnade.protocol.annotations_names import Names
from colonnade.protocol.problems import MAX_PROBLEMS, Problem, told
from colonnade.protocol.signature_codec import Codec
from colonnade.protocol.signature_loose import loosen, parse
from colonnade.protocol.signature_plain import PlainCodec


class Unreadable(Exception):
    """These bytes are no value of the annotation; the problems say why."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__(told(problems))
        self.problems = problems


def choose(annotation: Any, where: str, names: Names, *, outgoing: bool = False) -> Codec:
    """The codec for an annotation. Raises `LocalProtocolError` with a way out if there is none."""
    try:
        return PlainCodec(annotation, where, names, outgoing)
    except Unfit as unfit:
        from colonnade.protocol import signature_models  # on use: most annotations are plain

        if signature_models.installed():
            return signature_models.ModelCodec(annotation, where, names, str(unfit), outgoing)
        refuse(
            where,
            f"this needs pydantic ({unfit}); pip install pydantic, or use plain types: "
            "str, int, float, bool, datetime, list, dict, Literal, a dataclass or a TypedDict",
        )


def read(codec: Codec, raw: bytes) -> Any:
    """A value of the annotation from bytes: as they stand, else put right. Raises `Unreadable`."""
    value = parse(raw)
    if value is msgspec.UNSET:
        raise Unreadable([Problem((), "not JSON that can be read")])
    with suppress(Exception):
        return codec.decode(raw)
    try:
        loose = loosen(value, codec.schema, scalars=codec.loosens)
        return codec.decode(msgspec.json.encode(loose))
    except Exception as error:  # also what checks of the author raise, whatever it is
        found = codec.reporter.check(loosen(value, codec.schema))
        found += codec.further(error, value, found) if found else codec.complain(error, value)
        raise Unreadable(found[:MAX_PROBLEMS]) from None
