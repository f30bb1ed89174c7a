"""Custom HTTP routes beside MCP: `@server.route("/version")`.

    @server.route("/version")
    async def version(request: HttpRequest) -> dict[str, str]:
        return {"version": "1.0"}

A handler takes the request and returns a string, bytes, an `HttpResponse`, any JSON value, None for
204, or the response of a web framework (an ASGI application such as Starlette's `Response`).

Rules: a route passes the same checks of Host and Origin as the endpoint, and the same limits on
bodies and requests; credentials are not required, even if the endpoint requires them. An exception
of a handler is in the log, and not in the response.
"""

import inspect
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Final, cast
from urllib.parse import parse_qsl

import msgspec

from colonnade.errors import Fault, InvalidArgument, InvalidArgumentType
from colonnade.protocol.http.security import BAD_REQUEST, OK, HttpError
from colonnade.protocol.jsonrpc import encode
from colonnade.transport.http_server.request import (
    DELEGATED,
    ENDED,
    RESPONDING,
    IncomingRequest,
    Receive,
    Scope,
    Send,
)

log: logging.Logger = logging.getLogger("colonnade.transport")
access: logging.Logger = logging.getLogger("colonnade.requests")

# Of one query string; a form has some dozens.
MAX_QUERY_FIELDS: Final = 1000
NO_CONTENT: Final = 204
FAILED: Final = 500
TEXT: Final = "text/plain; charset=utf-8"
BYTES: Final = "application/octet-stream"
JSON: Final = "application/json"

_METHOD = re.compile(r"[A-Z]{1,20}")
_PARAMETER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
# A header is one line of visible characters; a line break in it would start another header.
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e\t]*")

Handle = Callable[["HttpRequest"], Any]
# Runs a function that blocks, in a thread.
RunSync = Callable[[Callable[[], Any]], Awaitable[Any]]


class RouteHeaders(Mapping[str, str]):
    """The headers of a request; names are case-insensitive."""

    def __init__(self, headers: Mapping[bytes, bytes]) -> None:
        self._headers = headers

    def __getitem__(self, name: str) -> str:
        return self._headers[name.lower().encode("latin-1", "replace")].decode("latin-1")

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self._headers)

    def __len__(self) -> int:
        return len(self._headers)


class HttpRequest:
    """One request for a route: `method`, `path`, `headers`, `query_params`, `path_params`, `client`
    (its address, behind `trusted_proxies`), and the body by `await request.body()`, `.text()`,
    `.json()`.
    """

    def __init__(
        self, incoming: IncomingRequest, scope: Scope, path: str, path_params: dict[str, str]
    ) -> None:
        self._incoming = incoming
        self._body: bytes | None = None
        self.scope = scope
        self.method: str = scope["method"]
        self.path = path
        self.path_params = path_params
        self.headers: Mapping[str, str] = RouteHeaders(incoming.headers)
        client = scope.get("client")
        self.client: str | None = str(client[0]) if client else None

    def __repr__(self) -> str:
        return f"HttpRequest({self.method} {self.path})"

    @property
    def query_params(self) -> dict[str, str]:
        """The parameters of the query; the last of several with one name. Answers 400 for too
        many."""
        text = self.scope.get("query_string", b"").decode("latin-1")
        try:
            return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS))
        except ValueError:
            raise HttpError(BAD_REQUEST, f"more than {MAX_QUERY_FIELDS} query fields") from None

    async def body(self) -> bytes:
        """The whole body, within `Limits.max_body_bytes`."""
        if self._body is None:
            self._body = await self._incoming.body()
        return self._body

    async def text(self) -> str:
        """The body as a string. Answers 400 if it is not UTF-8."""
        try:
            return (await self.body()).decode()
        except UnicodeDecodeError:
            raise HttpError(BAD_REQUEST, "the body is not UTF-8") from None

    async def json(self) -> Any:
        """The body, decoded from JSON. Answers 400 if it is not JSON."""
        try:
            return msgspec.json.decode(await self.body())
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise HttpError(BAD_REQUEST, "the body is not JSON") from None


class HttpResponse:
    """A response with a status, headers and a media type of its own.

    `HttpResponse("gone", status_code=410)`, `HttpResponse(page, media_type="text/html")`.
    """

    def __init__(
        self,
        content: object = None,
        status_code: int = OK,
        headers: Mapping[str, str] | None = None,
        media_type: str | None = None,
    ) -> None:
        if not 200 <= status_code <= 599:
            raise InvalidArgument(
                f"status_code={status_code}: a response has 200 to 599", argument="status_code"
            )
        self.status_code = status_code
        body, content_type = _encode_content(content)
        self.body: bytes = body
        self.headers: dict[str, str] = dict(headers or {})
        if media_type is not None:
            content_type = media_type
            if media_type.startswith("text/") and "charset" not in media_type:
                content_type = f"{media_type}; charset=utf-8"
        if content_type and not any(name.lower() == "content-type" for name in self.headers):
            self.headers["content-type"] = content_type
        for name, value in self.headers.items():
            if not (_HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value)):
                raise InvalidArgument(
                    f"{name[:80]!r}: {value[:80]!r} is not a valid header", argument="headers"
                )

    def __repr__(self) -> str:
        return f"HttpResponse({self.status_code}, {len(self.body)} bytes)"


def _encode_content(content: object) -> tuple[bytes, str]:
    if content is None:
        return b"", ""
    if isinstance(content, str):
        return content.encode(), TEXT
    if isinstance(content, bytes | bytearray):
        return bytes(content), BYTES
    return encode(content), JSON


class Route:
    """One path, its methods and its handler.

    `/items/{id}` takes one segment for each name in braces. Raises `InvalidArgument` for a path or
    a method that cannot be served, and `InvalidArgumentType` for such a handler.
    """

    def __init__(self, path: str, methods: Iterable[str], handle: Handle, run: RunSync) -> None:
        called = getattr(handle, "__name__", repr(handle))
        if not path.startswith("/"):
            raise InvalidArgument(
                f"{called}: the route {path!r} is not a path; begin it with /", argument="path"
            )
        rest = _PARAMETER.sub("", path)
        if set("{}?# ") & set(rest):
            problem = (
                f"{called}: the route {path!r} is not a path; write /items/{{id}} for parameters"
            )
            raise InvalidArgument(problem, argument="path")
        verbs = [methods] if isinstance(methods, str) else list(methods)
        for method in verbs:
            if not _METHOD.fullmatch(method):
                raise InvalidArgument(
                    f"{called}: methods={verbs!r}; write ['GET', 'POST']", argument="methods"
                )
        if not verbs:
            raise InvalidArgument(
                f"{called}: methods= is empty; write methods=['GET']", argument="methods"
            )
        _check_handler(called, handle)
        self.path: str = path.rstrip("/") or "/"
        self.methods: tuple[str, ...] = tuple(
            dict.fromkeys([*verbs, *(["HEAD"] if "GET" in verbs else [])])
        )
        self._handle = handle
        self._run = run
        parts = _PARAMETER.split(self.path)
        names = set(parts[1::2])
        if len(names) != len(parts[1::2]):
            raise InvalidArgument(
                f"{called}: the route {path!r} has a parameter twice", argument="path"
            )
        patterns = [f"(?P<{p}>[^/]+)" if n % 2 else re.escape(p) for n, p in enumerate(parts)]
        self._pattern = re.compile("".join(patterns))

    def __repr__(self) -> str:
        return f"Route({self.path!r})"

    def match(self, path: str) -> dict[str, str] | None:
        """The parameters of a path; None if it does not match."""
        found = self._pattern.fullmatch(path)
        return found.groupdict() if found is not None else None

    async def serve(
        self,
        incoming: IncomingRequest,
        scope: Scope,
        path: str,
        raw: tuple[Receive, Send],
        access_log: bool = False,
    ) -> None:
        """Call the handler, and send its response."""
        began = time.monotonic()
        request = HttpRequest(incoming, scope, path, self.match(path) or {})
        incoming.handled_here = True
        try:
            value: Any
            if inspect.iscoroutinefunction(self._handle):
                value = await self._handle(request)
            else:
                value = await self._run(lambda: self._handle(request))
                if isinstance(value, Awaitable):
                    value = await cast("Awaitable[Any]", value)
            if callable(value) and not isinstance(value, type):  # of a web framework
                incoming.state = DELEGATED
                await cast("Any", value)(scope, *raw)
                incoming.state = ENDED
                return
            status = NO_CONTENT if value is None else OK
            response = value if isinstance(value, HttpResponse) else HttpResponse(value, status)
        except Fault as fault:
            status = fault.status if isinstance(fault, HttpError) else BAD_REQUEST
            response = HttpResponse(fault.message, status)
        except Exception as error:
            log.error("the route %s raised %s", self.path, type(error).__name__, exc_info=error)
            if incoming.has_started:
                raise
            response = HttpResponse("the route failed; the server's log says why", FAILED)
        await _reply(incoming, raw[1], response)
        if access_log:
            facts = {"method": request.method, "path": path, "status": response.status_code}
            ms = round((time.monotonic() - began) * 1000, 3)
            shown = (request.method, ascii(path)[1:-1], response.status_code, ms)
            access.info("%s %.200s: %d, %g ms", *shown, extra={"request": {**facts, "ms": ms}})


async def _reply(incoming: IncomingRequest, send: Send, response: HttpResponse) -> None:
    headers = [(n.lower().encode(), v.encode("latin-1")) for n, v in response.headers.items()]
    if response.status_code != NO_CONTENT:
        headers.append((b"content-length", b"%d" % len(response.body)))
    headers += incoming.extra_headers or ()
    incoming.state = RESPONDING
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})
    incoming.state = ENDED


def _check_handler(called: str, handle: Handle) -> None:
    try:
        inspect.signature(handle).bind(object())
    except ValueError:  # a function written in C has no signature
        return
    except TypeError:
        words = f"{called}: a route takes the request and nothing else: async def {called}(request)"
        raise InvalidArgumentType(words) from None
