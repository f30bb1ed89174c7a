"""Hints for mistakes in the use of a server: attributes and keywords that do not exist, as users of
other libraries write them, and arguments that are something else.

They raise an `AttributeError`, `TypeError` or `ValueError`, as Python does, with what to write
instead.

Rules: the tables are loaded when a mistake was made. Nothing here makes a mistake work.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, Literal, TypeVar, cast, get_args

from colonnade.errors import InvalidArgument, InvalidArgumentType

# "streamable-http" is the specification's name, which other libraries take.
Http = Literal["http", "streamable-http"]

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
                _check_missing(function, args, keywords)
                raise  # the error has another cause
        raise InvalidArgumentType(
            _unknown_keyword_message(function, unknown), argument=unknown
        ) from None

    return cast("F", call)


def _unknown(function: Callable[..., Any], keywords: dict[str, Any]) -> str | None:
    known = inspect.signature(function).parameters
    return next((name for name in keywords if name not in known), None)


def _check_missing(
    function: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any]
) -> None:
    """Raise `InvalidArgumentType` with an example if arguments of `function` are missing."""
    from colonnade.server.options import EXAMPLES

    example = EXAMPLES.get(function.__qualname__)
    if example is not None:
        try:
            inspect.signature(function).bind(*args, **keywords)
        except TypeError as error:
            raise InvalidArgumentType(f"{error}; write {example}") from None


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


def check_transport(function_name: str, transport: str, options: Mapping[str, Any]) -> None:
    """Refuse a transport that there is not, and keywords that it does not have."""
    if transport not in ("stdio", *get_args(Http)):
        sse = ": 'http' serves clients of HTTP+SSE, too, at /sse" if transport == "sse" else ""
        raise InvalidArgument(
            f"unknown transport {transport!r}; there are 'stdio' and 'http'{sse}",
            argument="transport",
        )
    if options:
        check_options(function_name, transport, options)


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


# ---------------------------------------------------------------- arguments


def check_threads(threads: object) -> None:
    """Refuse what is not a number of threads."""
    if not (isinstance(threads, int) and threads > 0):
        message = f"threads is {threads!r}; give the number of worker threads, 1 or more"
        raise InvalidArgument(message, argument="threads")


def check_auth(auth: object) -> None:
    """Refuse what is not a `Protection`, nor None."""
    if auth is not None and not hasattr(auth, "authenticate"):
        raise InvalidArgumentType(
            f"auth= takes Protection(URL, ...), not {type(auth).__name__}: "
            f"auth=Protection('https://notes.example.com/mcp', {_verifier_hint(auth)})",
            argument="auth",
        )


def _verifier_hint(auth: object) -> str:
    """The verifier to write inside of `Protection`: the one that was given without it."""
    given = type(auth).__name__
    known = given in ("Introspection", "StaticTokens")
    return f"{given}(...)" if known else "Jwt('https://login.example.com')"


def check_extension_list(extensions: object) -> None:
    """Refuse an extension instead of a list of extensions."""
    if not isinstance(extensions, Iterable):
        raise InvalidArgumentType(
            f"extensions= takes a list, not {type(extensions).__name__}: write "
            "extensions=[Extension('com.example/search')]",
            argument="extensions",
        )


def check_middleware_list(middleware: object) -> None:
    """Refuse a function instead of a list of functions."""
    if not isinstance(middleware, Iterable):
        one = getattr(middleware, "__name__", type(middleware).__name__)
        raise InvalidArgumentType(
            f"middleware= takes a list of functions, not {one}: write middleware=[timing]",
            argument="middleware",
        )


# The methods of a class middleware of FastMCP.
_HOOKS = (
    *("on_message", "on_request", "on_notification", "on_initialize", "on_call_tool"),
    *("on_read_resource", "on_get_prompt", "on_list_tools", "on_list_resources"),
    *("on_list_resource_templates", "on_list_prompts"),
)


def check_middleware(middleware: Any) -> None:
    """Refuse what cannot be called with a request and `call_next`."""
    message = "write async def timing(request, call_next): return await call_next(request)"
    if isinstance(middleware, type) and not any(hasattr(middleware, name) for name in _HOOKS):
        name = middleware.__name__
        raise InvalidArgumentType(
            f"{name} is a class; pass an object with __call__(request, call_next), as in "
            f"{name}(), or a function: {message}",
            argument="middleware",
        )
    if not callable(middleware):
        raise InvalidArgumentType(
            f"{middleware!r} is not a middleware: {message}", argument="middleware"
        )
    if any(hasattr(middleware, name) for name in _HOOKS):
        raise InvalidArgumentType(
            f"{_class_name(middleware)} has a method for each kind of request; here a middleware "
            f"is one function that checks request.method: {message}",
            argument="middleware",
        )
    try:
        inspect.signature(middleware).bind(None, None)
    except TypeError:
        name = getattr(middleware, "__name__", repr(middleware))
        raise InvalidArgumentType(
            f"{name} does not take two arguments: {message}", argument="middleware"
        ) from None
    except ValueError:  # a callable without a signature
        pass


def _class_name(value: Any) -> str:
    return value.__name__ if isinstance(value, type) else type(value).__name__


def check_lifespan(name: str, lifespan: Callable[..., Any]) -> None:
    """Refuse lifespans that would only fail when the server starts."""
    written = inspect.unwrap(lifespan)
    if inspect.isgeneratorfunction(written):
        wrong = "is not async: write it as async def, with @contextlib.asynccontextmanager"
    elif inspect.iscoroutinefunction(written):
        wrong = "does not yield: put @contextlib.asynccontextmanager above it, and one yield in it"
    elif inspect.isasyncgenfunction(lifespan):
        wrong = "is not a context manager; put @contextlib.asynccontextmanager above it"
    else:
        return
    called = getattr(written, "__name__", repr(written))
    raise InvalidArgumentType(f"{name}: the lifespan {called} {wrong}", argument="lifespan")
