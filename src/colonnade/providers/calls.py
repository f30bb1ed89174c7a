"""A call that a model wants made, whoever's model it is.

Rules: pure. What a model wrote may be anything; what is wrong with it is said in words that it can
act on, and nothing is raised for it.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import msgspec

from colonnade.errors import LocalProtocolError


class Call(NamedTuple):
    """What a model wants: the tool by its safe name, its arguments, and the id of the answer."""

    id: str
    name: str
    arguments: dict[str, Any]
    # What is wrong with the arguments; nothing where they can be sent.
    problem: str
    # How the answer is to be written.
    form: str


def plain(given: object, what: str) -> dict[str, Any]:
    """A call as a plain object: as it came in JSON, or as a provider's own library gives it."""
    if isinstance(given, Mapping):
        return dict(cast("Mapping[str, Any]", given))
    dump = getattr(given, "model_dump", None)
    if callable(dump):
        return cast("Callable[[], dict[str, Any]]", dump)()
    raise LocalProtocolError(f"this is no {what}, as JSON or from its library: {type(given)!r}")


def text_of(found: dict[str, Any], key: str, what: str) -> str:
    """A member that every call has. Raises `LocalProtocolError` where it is missing."""
    value = found.get(key)
    if not isinstance(value, str) or not value:
        raise LocalProtocolError(f"this is no {what}: it has no {key}")
    return value


def arguments_of(written: object) -> tuple[dict[str, Any], str]:
    """The arguments, and what is wrong with them; models write none where there are none."""
    if written is None or written == "":
        return {}, ""
    if isinstance(written, str):
        try:
            written = msgspec.json.decode(written)
        except (msgspec.MsgspecError, RecursionError) as error:
            return {}, f"the arguments are no JSON ({error}); write one JSON object"
    if not isinstance(written, dict):
        return {}, "the arguments are no JSON object; write one, with a member for each"
    return cast("dict[str, Any]", written), ""
