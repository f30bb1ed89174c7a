"""What is said to those who write a name or a keyword that is not here.

People come from FastMCP, the official SDK or Starlette, and type what they know. What they meet is
an `AttributeError` or a `TypeError`, as Python has it, with what to write instead.

Rules: the tables are loaded when a mistake was made. Nothing here makes a mistake work.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

from colonnade.errors import InvalidArgumentType

F = TypeVar("F", bound=Callable[..., Any])


def hinted(function: F) -> F:
    """A function whose unknown keywords are refused with what to write instead."""

    @wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        try:
            return function(*args, **keywords)
        except TypeError:
            wrong = _unknown(function, keywords)
            if wrong is None:
                raise  # it is about something else
        raise InvalidArgumentType(_keyword_words(function, wrong), argument=wrong) from None

    return call  # type: ignore[return-value]  # pyright: ignore[reportReturnType]


def _unknown(function: Callable[..., Any], keywords: dict[str, Any]) -> str | None:
    known = inspect.signature(function).parameters
    return next((name for name in keywords if name not in known), None)


def _keyword_words(function: Callable[..., Any], name: str) -> str:
    from colonnade.server.options import KEYWORDS

    called = function.__qualname__.removesuffix(".__init__").replace("BlockingContext", "Context")
    known = list(inspect.signature(function).parameters)[1:]
    hint = KEYWORDS.get(called, {}).get(name) or KEYWORDS.get(called.split(".")[0], {}).get(name)
    return f"{called}() has no keyword {name!r}{_said(hint, name, known)}"


def check_options(called: str, transport: str, options: Mapping[str, Any]) -> None:
    """Refuse the options that `server.run`, `serve` or `asgi` does not have on this transport, with
    what to write instead. Raises `TypeError`."""
    from colonnade.server.options import SERVED, HttpRunOptions, known_options

    known = known_options(called, transport)
    for name in options:
        if name not in known:
            hint = SERVED.get(name)
            if hint is None and name in HttpRunOptions.__optional_keys__:
                hint = f"write server.run('http', {name}=...)"
            raise InvalidArgumentType(
                f"{called}() has no keyword {name!r}{_said(hint, name, known)}", argument=name
            )


def no_attribute(owner: object, name: str) -> AttributeError:
    """What to raise for an attribute that is not there."""
    from colonnade.server.options import ATTRIBUTES

    kind = type(owner).__name__.replace("BlockingContext", "Context")
    table = ATTRIBUTES.get(kind, {})
    known = [one for one in dir(type(owner)) if not one.startswith("_")]
    words = f"{type(owner).__name__!r} object has no attribute {name!r}"
    hint = _said(table.get(name), name, known, listed=False)
    return AttributeError(words + hint, name=name, obj=owner)


def _said(hint: str | None, name: str, known: list[str], *, listed: bool = True) -> str:
    if hint:
        return f"; {hint}"
    from colonnade.protocol.schema.error_messages import suggestion

    options = f"; there are {', '.join(known)}" if listed else ""
    return suggestion(name, known) or options
