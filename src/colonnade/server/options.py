"""The keywords of the decorators and of those who serve: for type checkers, and to say which exist;
and what to write instead of the names that other libraries have.

Rules: facts only. Nothing here is loaded by a server that uses no keywords.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, cast

from colonnade.errors import ConnectionLost, InvalidArgumentType
from colonnade.ports import Verify
from colonnade.protocol import types as t

if TYPE_CHECKING:
    from colonnade.transport.http_server.request import App, Limits
    from colonnade.transport.http_server.runner import RunLimits


class ToolOptions(TypedDict, total=False):
    """The keywords of `@server.tool`."""

    name: str
    title: str
    description: str
    icons: list[t.Icon]
    tags: Iterable[str]
    read_only: bool
    destructive: bool
    idempotent: bool
    open_world: bool
    scopes: Iterable[str]
    timeout_s: float
    inline: bool
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]
    structured_only: bool
    single_use: bool
    meta: dict[str, Any]


class ResourceOptions(TypedDict, total=False):
    """The keywords of `@server.resource`."""

    name: str
    title: str
    description: str
    mime_type: str
    size: int
    icons: list[t.Icon]
    annotations: t.Annotations
    tags: Iterable[str]
    scopes: Iterable[str]
    inline: bool
    ttl_s: float
    cache_scope: t.CacheScope
    meta: dict[str, Any]


class PromptOptions(TypedDict, total=False):
    """The keywords of `@server.prompt`."""

    name: str
    title: str
    description: str
    icons: list[t.Icon]
    tags: Iterable[str]
    scopes: Iterable[str]
    inline: bool
    meta: dict[str, Any]


class AppOptions(TypedDict, total=False):
    """What an application is told, whoever runs it."""

    path: str
    around: "App"
    verify: Verify
    limits: "Limits"
    stateless: bool
    access_log: bool


class AsgiOptions(AppOptions, total=False):
    """The keywords of `server.asgi`."""

    hosts: Iterable[str]
    origins: Iterable[str]


class HttpOptions(AppOptions, total=False):
    """The keywords of `server.run("http")`."""

    run_limits: "RunLimits"
    host: str
    port: int
    hosts: Iterable[str]
    origins: Iterable[str]
    started: Callable[[Any], None]
    ssl_certfile: str
    ssl_keyfile: str


class HttpRunOptions(HttpOptions, total=False):
    """The keywords of `server.run("http")`, which owns the process, and its log with it."""

    log_level: str
    log_json: bool


# ---------------------------------------------------------------- spellings of other libraries

_ASGI = "write server.asgi(path='/mcp')"
_SERVE = "write await server.serve('http', port=8000), or server.run('http', port=8000)"
_STATE = "keep state behind a handle that the caller carries: server.handles('basket', Basket)"
_SETTING = "it is an option of serving: server.run('http', port=8000, host=...)"

# By class, the attributes that FastMCP and `mcp` have under another name.
ATTRIBUTES: dict[str, dict[str, str]] = {
    "Server": {
        "add_prompt": "write server.prompt(function)",
        "add_resource": "write server.resource('notes://today')(function)",
        "add_resource_template": "write server.resource('notes://{name}')(function)",
        "add_template": "write server.resource('notes://{name}')(function)",
        "add_tool": "write server.tool(function)",
        "call_tool": "connect to it: async with connect(server) as client: client.call_tool(...)",
        "custom_route": "write @server.route('/version') above an async function of the request",
        "get_context": "take a parameter: def forecast(city: str, ctx: Context)",
        "get_prompt": "write server.prompts[name]",
        "get_prompts": "write server.prompts",
        "get_resources": "write server.resources",
        "get_tool": "write server.tools[name]",
        "get_tools": "write server.tools",
        "http_app": _ASGI,
        "import_server": "write server.mount(other, namespace='maps')",
        "list_prompts": "write server.prompts",
        "list_resources": "write server.resources",
        "list_tools": "write server.tools",
        "remove_prompt": "write server.prompts.remove(name)",
        "remove_tool": "write server.tools.remove(name)",
        "run_async": _SERVE,
        "run_http_async": _SERVE,
        "run_sse_async": _SERVE,
        "run_stdio_async": "write await server.serve()",
        "run_streamable_http_async": _SERVE,
        "settings": _SETTING,
        "sse_app": _ASGI,
        "streamable_http_app": _ASGI,
        "use": "write server.add_middleware(function)",
    },
    "Context": {
        "client_id": "write ctx.principal for who calls, ctx.client for what the client says it is",
        "client_params": "write ctx.client and ctx.capabilities",
        "close_sse_stream": "write ctx.hang_up()",
        "delete_state": _STATE,
        "fastmcp": "write ctx.state for what the lifespan gave, and the server by its own name",
        "get_http_headers": "write ctx.headers",
        "get_http_request": "write ctx.headers",
        "get_state": _STATE,
        "lifespan_context": "write ctx.state",
        "list_roots": "write ctx.roots()",
        "read_resource": "write ctx.read(uri)",
        "request": "write ctx.headers, ctx.principal and ctx.claims",
        "request_context": "write ctx.request_id, ctx.headers, ctx.client or ctx.state",
        "send_notification": "write ctx.progress(...), ctx.info(...) or server.updated(uri)",
        "session_id": _STATE,
        "set_state": _STATE,
        "transport": "write ctx.headers, which are empty where there is no HTTP",
        "warn": "write ctx.warning(...)",
    },
}
_LOG = {
    "extra": "put it into the message: ctx.info({'message': 'done', 'user': 7})",
    "logger_name": "write logger=",
    "message": "write it first, without a name: ctx.info('done')",
}
# By function, or by class for all of its functions, the keywords of other libraries.
KEYWORDS: dict[str, dict[str, str]] = {
    "Server": {
        "allowed_hosts": "write hosts=[...] where it is served: server.run('http', hosts=[...])",
        "dependencies": "write them into your project; nothing is installed here",
        "exclude_tags": "write server.disable(tags=[...])",
        "host": _SETTING,
        "include_tags": "register all, and hide the rest: server.disable(tags=[...])",
        "json_response": "leave it out: one JSON body is the answer where nothing else is sent",
        "log_level": "write logging.basicConfig(level=logging.INFO)",
        "mask_error_details": "leave it out: they are masked, and debug=True shows them",
        "on_duplicate_tools": "leave it out: the later one counts, and the log says so",
        "port": _SETTING,
        "prefix": "write namespace=",
        "stateless_http": "write stateless=True where it is served: run('http', stateless=True)",
        "streamable_http_path": "write path= where it is served: server.run('http', path='/mcp')",
        "token_verifier": "write auth=Protection(URL, Jwt('https://login.example.com'))",
        "tools": "register each: server.tool(function)",
        "transforms": "rename and hide what is registered: server.disable(name)",
    },
    "Context": _LOG,
    "Context.elicit": {
        "requested_schema": "write type=Seat, or ctx.elicit_form(message, form)",
        "response_type": "write type=",
        "schema": "write type=",
    },
    "Context.sample": {
        "include_context": "leave it out: say in the prompt what the model must know",
        "messages": "write them first, without a name: ctx.sample([...])",
        "model_preferences": "write preferences=",
        "result_type": "leave it out, and read .text of what comes back",
        "stop_sequences": "write stop=",
        "system_prompt": "write system=",
    },
    "@server.tool": {
        "annotations": "write read_only=, destructive=, idempotent= or open_world=",
        "auth": "write scopes={'notes:write'}",
        "enabled": "write server.disable(name) after it",
        "exclude_args": "let Depends(...) provide what callers must not send",
        "structured_output": "leave it out: the return type says it; or return ToolReturn(...)",
        "timeout": "write timeout_s=",
    },
    "@server.resource": {
        "enabled": "write server.disable(uri) after it",
        "mimeType": "write mime_type=",
    },
    "@server.prompt": {"enabled": "write server.disable(name) after it"},
}
_PATH = "write path='/mcp'"
# The keywords of other libraries where a server is served: `run`, `serve` and `asgi`.
SERVED: dict[str, str] = {
    "allowed_hosts": "write hosts=['mcp.example.com']",
    "allowed_origins": "write origins=['https://app.example.com']",
    "auth": "write Server('name', auth=Protection(...))",
    "debug": "write Server('name', debug=True)",
    "json_response": "leave it out: one JSON body is the response where nothing else is sent",
    "lifespan": "write Server('name', lifespan=...)",
    "middleware": (
        "write Server('name', middleware=[...]) for MCP requests; "
        "an ASGI middleware goes around server.asgi()"
    ),
    "mount_path": _PATH,
    "show_banner": "leave it out: there is no banner",
    "stateless_http": "write stateless=True",
    "streamable_http_path": _PATH,
    "transport_security": "write hosts=[...] and origins=[...]",
    "uvicorn_config": (
        "write host=, port=, ssl_certfile=, log_level= or run_limits=RunLimits(...), "
        "or give server.asgi() to uvicorn"
    ),
}
_HINTS = {
    "readOnlyHint": "read_only",
    "destructiveHint": "destructive",
    "idempotentHint": "idempotent",
    "openWorldHint": "open_world",
    "title": "title",
}


def known_options(called: str, transport: str) -> list[str]:
    """The keywords of `Server.run`, `Server.serve` or `Server.asgi` on a transport, sorted."""
    if transport == "stdio":
        return ["started", "streams"]
    options = {
        "Server.run": HttpRunOptions,
        "Server.serve": HttpOptions,
        "Server.asgi": AsgiOptions,
    }
    return sorted(options[called].__optional_keys__)


def spelled_annotations(given: Any) -> str:
    """What to write for a tool's annotations as the protocol has them, a dict or an object."""
    said = {name: _member(given, name) for name in _HINTS}
    parts = [f"{_HINTS[name]}={value!r}" for name, value in said.items() if value is not None]
    return f"write @server.tool({', '.join(parts)})" if parts else ""


def _member(given: Any, name: str) -> Any:
    if isinstance(given, dict):
        value = cast("dict[str, Any]", given).get(name)
    else:
        value = getattr(given, name, None)
    return value if isinstance(value, bool | str) else None


# ---------------------------------------------------------------- hints


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


# ---------------------------------------------------------------- markers


class Mark:
    """Marks a parameter: with a question, or with what provides its value."""


class Situation:
    """A type that marks a parameter by itself: `Context` and `BlockingContext`, and no others."""


SITUATIONS = frozenset({"Context", "BlockingContext"})


class CallerLost(ConnectionLost):
    """It is our caller who has gone, and not somebody whom the handler talks to."""
