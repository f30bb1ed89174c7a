"""The keywords of the decorators and of those who serve: for type checkers, and to say which exist.

Rules: facts only. Nothing here is loaded by a server that uses no keywords.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypedDict

from portico.ports import Verify
from portico.protocol import types as t

if TYPE_CHECKING:
    from portico.transport.http_run import RunLimits
    from portico.transport.http_visit import App, Limits


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


class RunOptions(HttpOptions, total=False):
    """The keywords of `server.run("http")`, which owns the process, and its log with it."""

    log_level: str
    log_json: bool
