"""Hints for attributes and keywords that do not exist, as users of other libraries write them.

They raise an `AttributeError` or a `TypeError`, as in Python, with what to write instead.

Rules: the tables are loaded when a mistake was made. Nothing here makes a mistake work.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

from colonnade.errors import InvalidArgumentType

F = TypeVar("F", bound=Callable[..., Any])


def with_hints(function: F) -> F:
    """Decorator: unknown keywords raise `InvalidArgumentType` with a hint what to write instead."""

    @wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        try:
            return function(*args, **keywords)
        except TypeError:
            unknown = _unknown(function, keywords)
            if unknown is None:
                raise  # the error has another cause
        raise InvalidArgumentType(
            _unknown_keyword_message(function, unknown), argument=unknown
        ) from None

    return call  # type: ignore[return-value]  # pyright: ignore[reportReturnType]


def _unknown(function: Callable[..., Any], keywords: dict[str, Any]) -> str | None:
    known = inspect.signature(function).parameters
    return next((name for name in keywords if name not in known), None)


def _unknown_keyword_message(function: Callable[..., Any], name: str) -> str:
    from colonnade.server.options import KEYWORDS

    function_name = function.__qualname__.removesuffix(".__init__").replace(
        "BlockingContext", "Context"
    )
    known = list(inspect.signature(function).parameters)[1:]
    hint = KEYWORDS.get(function_name, {}).get(name) or KEYWORDS.get(
        function_name.split(".")[0], {}
    ).get(name)
    return f"{function_name}() has no keyword {name!r}{_hint_text(hint, name, known)}"


def check_options(function_name: str, transport: str, options: Mapping[str, Any]) -> None:
    """Refuse keywords that `server.run`, `serve` or `asgi` does not have on this transport, with a
    hint what to write instead. Raises `TypeError`."""
    from colonnade.server.options import SERVE_KEYWORDS, HttpRunOptions, known_options

    known = known_options(function_name, transport)
    for name in options:
        if name not in known:
            hint = SERVE_KEYWORDS.get(name)
            if hint is None and name in HttpRunOptions.__optional_keys__:
                hint = f"write server.run('http', {name}=...)"
            raise InvalidArgumentType(
                f"{function_name}() has no keyword {name!r}{_hint_text(hint, name, known)}",
                argument=name,
            )


def attribute_error(owner: object, name: str) -> AttributeError:
    """An `AttributeError` with a hint what to write instead."""
    from colonnade.server.options import ATTRIBUTES

    kind = type(owner).__name__.replace("BlockingContext", "Context")
    table = ATTRIBUTES.get(kind, {})
    known = [one for one in dir(type(owner)) if not one.startswith("_")]
    message = f"{type(owner).__name__!r} object has no attribute {name!r}"
    hint = _hint_text(table.get(name), name, known, lists_known=False)
    return AttributeError(message + hint, name=name, obj=owner)


def _hint_text(hint: str | None, name: str, known: list[str], *, lists_known: bool = True) -> str:
    if hint:
        return f"; {hint}"
    from colonnade.protocol.schema.error_messages import suggestion

    options = f"; there are {', '.join(known)}" if lists_known else ""
    return suggestion(name, known) or options
