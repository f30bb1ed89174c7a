"""The keywords of decorators, `run`, `serve` and `asgi`; the names of other libraries.

Rules: loaded on use. Tables, error messages, and what the environment adds to the keywords of
`run`.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast

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
    output_schema: dict[str, Any] | None
    structured_only: bool
    single_use: bool
    task: Literal[False, True, "required"]
    keep_s: float
    max_run_s: float
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
    """The keywords of the HTTP application, common to `asgi`, `serve` and `run`."""

    path: str
    around: "App"
    verify: Verify
    limits: "Limits"
    stateless: bool
    access_log: bool
    trusted_proxies: Iterable[str]


class AsgiOptions(AppOptions, total=False):
    """The keywords of `server.asgi`."""

    hosts: Iterable[str]
    origins: Iterable[str]


class HttpOptions(AppOptions, total=False):
    """The keywords of `server.serve("http")`."""

    run_limits: "RunLimits"
    host: str
    port: int
    hosts: Iterable[str]
    origins: Iterable[str]
    started: Callable[[Any], None]
    ssl_certfile: str
    ssl_keyfile: str


class HttpRunOptions(HttpOptions, total=False):
    """The keywords of `server.run("http")`, which also configures logging."""

    log_level: str
    log_json: bool


# ---------------------------------------------------------------- names of other libraries

_ASGI = "write server.asgi(path='/mcp')"
_SERVE = "write await server.serve('http', port=8000), or server.run('http', port=8000)"
_STATE = "store state under a handle that the caller sends: server.handles('basket', Basket)"
_SETTING = "it is an option of run and serve: server.run('http', port=8000, host=...)"

# By class, attributes of FastMCP and `mcp` that have another name here.
ATTRIBUTES: dict[str, dict[str, str]] = {
    "Server": {
        "add_prompt": "write server.prompt(function)",
        "add_resource": "write server.resource('notes://today')(function)",
        "add_resource_template": "write server.resource('notes://{name}')(function)",
        "add_template": "write server.resource('notes://{name}')(function)",
        "add_tool": "write server.tool(function)",
        "call_tool": "connect to it: async with connect(server) as client: client.call_tool(...)",
        "custom_route": "write @server.route('/version') above an async function of the request",
        "get_context": "declare a parameter: def forecast(city: str, ctx: Context)",
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
        "client_id": "write ctx.principal for the caller, ctx.client for the client's name",
        "client_params": "write ctx.client and ctx.capabilities",
        "close_sse_stream": "write ctx.hang_up()",
        "delete_state": _STATE,
        "fastmcp": "write ctx.state for the value of the lifespan; use the server object itself",
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
        "transport": "write ctx.headers, which is empty without HTTP",
        "warn": "write ctx.warning(...)",
    },
}
_ELICITED = "write type=, and use the value that is returned; there is no action, but Declined"
_LOG = {
    "extra": "put it into the data: ctx.info({'message': 'done', 'user': 7})",
    "logger_name": "write logger=",
    "message": "pass it as the first argument: ctx.info('done')",
}
# By function, or by class for all of its methods, the keywords of other libraries.
KEYWORDS: dict[str, dict[str, str]] = {
    "Server": {
        "allowed_hosts": "pass hosts= to run: server.run('http', hosts=[...])",
        "dependencies": "add them to your project; Colonnade installs nothing",
        "exclude_tags": "write server.disable(tags=[...])",
        "host": _SETTING,
        "include_tags": "register all, and hide the others: server.disable(tags=[...])",
        "json_response": "remove it: a response without notifications is one JSON body",
        "log_level": "write logging.basicConfig(level=logging.INFO)",
        "mask_error_details": "remove it: they are masked, and debug=True shows them",
        "on_duplicate_tools": "remove it: the later one replaces the first",
        "port": _SETTING,
        "prefix": "write namespace=",
        "stateless_http": "pass stateless=True to run: server.run('http', stateless=True)",
        "streamable_http_path": "pass path= to run: server.run('http', path='/mcp')",
        "token_verifier": "write auth=Protection(URL, Jwt('https://login.example.com'))",
        "tools": "register each: server.tool(function)",
        "transforms": "rename and hide what is registered: server.disable(name)",
    },
    "Context": _LOG,
    "Context.elicit": {
        "requested_schema": "write type=Seat, or ctx.elicit_form(message, form)",
        "response_type": _ELICITED,
        "schema": _ELICITED,
    },
    "Context.sample": {
        "include_context": "remove it: put what the model must know into the prompt",
        "messages": "pass them as the first argument: ctx.sample([...])",
        "model_preferences": "write preferences=",
        "result_type": "remove it, and use .text of the result",
        "stop_sequences": "write stop=",
        "system_prompt": "write system=",
    },
    "@server.tool": {
        "annotations": "write read_only=, destructive=, idempotent= or open_world=",
        "auth": "write scopes={'notes:write'}",
        "enabled": "write server.disable(name) after it",
        "exclude_args": "use Depends(...) for values that callers must not send",
        "structured_output": "remove it: the return type decides; or return ToolReturn(...)",
        "timeout": "write timeout_s=",
    },
    "@server.resource": {
        "enabled": "write server.disable(uri) after it",
        "mimeType": "write mime_type=",
    },
    "@server.prompt": {"enabled": "write server.disable(name) after it"},
    "connect": {  # of colonnade.testing
        "auth": "write principal='ann', scopes=['notes:read']",
        "client_info": "remove it: the client is colonnade.testing",
        "elicitation_handler": "write answers=[{'seat': '12A'}], or on_elicit=function",
        "log_handler": "write on_log=",
        "message_handler": "write on_log= or on_progress=, or read client.record",
        "progress_handler": "write on_progress=",
        "raise_on_error": "remove it: an error of a tool is a result; its data raises ToolError",
        "sampling_handler": "write answers=['Oslo'], or on_sample=function",
        "timeout": "write timeout_s=",
    },
}
# By function, a call with all arguments that it needs.
EXAMPLES: dict[str, str] = {"Server.__init__": "Server('weather', version='1.0')"}
_PATH = "write path='/mcp'"
# Keywords of other libraries for `run`, `serve` and `asgi`.
SERVE_KEYWORDS: dict[str, str] = {
    "allowed_hosts": "write hosts=['mcp.example.com']",
    "allowed_origins": "write origins=['https://app.example.com']",
    "auth": "write Server('name', auth=Protection(...))",
    "debug": "write Server('name', debug=True)",
    "json_response": "remove it: a response without notifications is one JSON body",
    "lifespan": "write Server('name', lifespan=...)",
    "middleware": (
        "write Server('name', middleware=[...]) for MCP requests; "
        "wrap server.asgi() in an ASGI middleware"
    ),
    "mount_path": _PATH,
    "show_banner": "remove it: there is no banner",
    "stateless_http": "write stateless=True",
    "streamable_http_path": _PATH,
    "transport_security": "write hosts=[...] and origins=[...]",
    "uvicorn_config": (
        "write host=, port=, ssl_certfile=, log_level= or run_limits=RunLimits(...), "
        "or pass server.asgi() to uvicorn"
    ),
}
_ANNOTATIONS = {
    "readOnlyHint": "read_only",
    "destructiveHint": "destructive",
    "idempotentHint": "idempotent",
    "openWorldHint": "open_world",
    "title": "title",
}


def known_options(function_name: str, transport: str) -> list[str]:
    """The keywords of `Server.run`, `Server.serve` or `Server.asgi` on a transport, sorted. Those
    of `Gateway` are the same."""
    if transport == "stdio":
        return ["started", "streams"]
    options = {"run": HttpRunOptions, "serve": HttpOptions, "asgi": AsgiOptions}
    return sorted(options[function_name.partition(".")[2]].__optional_keys__)


def annotation_hint(given: Any) -> str:
    """The keywords for tool annotations given as a dict or an object of the protocol."""
    values = {name: _member(given, name) for name in _ANNOTATIONS}
    parts = [
        f"{_ANNOTATIONS[name]}={value!r}" for name, value in values.items() if value is not None
    ]
    return f"write @server.tool({', '.join(parts)})" if parts else ""


def _member(given: Any, name: str) -> Any:
    if isinstance(given, dict):
        value = cast("dict[str, Any]", given).get(name)
    else:
        value = getattr(given, name, None)
    return value if isinstance(value, bool | str) else None


def run_settings(options: dict[str, Any]) -> dict[str, Any]:
    """The options of `run`: those given, then those of the environment."""
    from colonnade.transport.http_server.settings import prepare_log, read_limits, with_environment

    settings = with_environment(options)
    as_json, level = settings.pop("log_json", False), settings.pop("log_level", None)
    from colonnade.logs import log_json

    access = bool(settings.get("access_log"))
    prepare_log(level, access_log=access, json=partial(log_json, None) if as_json else None)
    message = settings.pop("limit", ())
    if message:
        limits, run_limits = read_limits(message)
        settings.setdefault("limits", limits)
        settings.setdefault("run_limits", run_limits)
    return settings


def take_app_options(options: dict[str, Any]) -> dict[str, Any]:
    """Remove and return the options of the application."""
    return {name: options.pop(name) for name in AppOptions.__optional_keys__ if name in options}
