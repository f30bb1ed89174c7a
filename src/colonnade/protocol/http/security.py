"""HTTP checks before the body: Origin, Host (DNS rebinding), method, Accept, Content-Type, CORS.

A web page can make a browser send requests to a server on the same machine, and by rebinding its
own name to 127.0.0.1 it can even read the responses. Two facts give it away: the `Origin` that the
browser adds and no script can change, and the `Host` that still is the page's own name. Both are
checked on every request, whatever address is served, and there is no setting that disables it.

Rules: no I/O, and no look at the body. Only what the request itself says counts: headers that
proxies add (`Forwarded`, `X-Forwarded-Host`) are never read for a check. Nothing here takes more
than linear time, and what a client sends is remembered only within the limits below.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import AddressValueError, IPv6Address, ip_address
from typing import Any, Final, TypeAlias

from msgspec import Struct

from colonnade.errors import (
    Fault,
    FaultKind,
    InvalidArgument,
    InvalidArgumentType,
)
from colonnade.protocol.revision import Revisions

# Images and files travel in base64 inside one message; what is larger belongs behind a link.
MAX_BODY_BYTES = 4 * 1024 * 1024
# Browsers send some 150 bytes of Accept; a longer list is not a real one.
MAX_ACCEPT_BYTES = 1024
# The longest type in use, with a charset, has some 40 bytes.
MAX_CONTENT_TYPE_BYTES = 256
# Clients send the same static headers all the time, and a server sees few kinds of clients. A
# client that varies them costs the others a new check, never memory.
MAX_REMEMBERED = 256
MAX_REMEMBERED_BYTES = 1024

OK: Final = 200
ACCEPTED: Final = 202
BAD_REQUEST: Final = 400
UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
METHOD_NOT_ALLOWED: Final = 405
NOT_ACCEPTABLE: Final = 406
CONTENT_TOO_LARGE: Final = 413
UNSUPPORTED_MEDIA_TYPE: Final = 415
TOO_MANY_REQUESTS: Final = 429
UNAVAILABLE: Final = 503

JSON_TYPE: Final = "application/json"
EVENTS_TYPE: Final = "text/event-stream"

# By name in lower case, values as they came. Duplicates are in here once: see `combine_headers`.
Headers: TypeAlias = Mapping[bytes, bytes]


class HttpError(Fault):
    """A fault with an HTTP status of its own, and the headers that go with that status."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: FaultKind = FaultKind.INVALID_REQUEST,
        headers: tuple[tuple[str, str], ...] = (),
        data: Any = None,
        detail: str = "",
    ) -> None:
        super().__init__(kind, message, data)
        # For the log of the server; never sent.
        self.detail = detail
        self.status: int = status  # pyright: ignore[reportIncompatibleVariableOverride]
        self.headers = headers


# ---------------------------------------------------------------- headers

# No value may contain it, so every check refuses a header that was sent twice with two values, in
# its own place in the order. A proxy may have looked at either of them.
_CONFLICT = b"\x00"
# Duplicates of these are invalid, even with the same value (RFC 9112, 3.2; RFC 6454, 7.3).
_ONCE = frozenset({b"host", b"origin"})
_SINGLE = _ONCE | {b"authorization", b"content-length", b"content-type", b"last-event-id"}


def combine_headers(pairs: Sequence[tuple[bytes, bytes]]) -> Headers:
    """Headers by name, from pairs whose names are in lower case, as ASGI has them.

    A single-valued header that came twice with two values gets a value that no check accepts. Other
    repeated headers are lists, and joined.
    """
    found = dict(pairs)
    return found if len(found) == len(pairs) else _join(pairs)


def lowercase_headers(pairs: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The same from pairs with names in any case (R0908)."""
    return combine_headers([(name.lower(), value) for name, value in pairs])


def _join(pairs: Sequence[tuple[bytes, bytes]]) -> Headers:
    values: dict[bytes, list[bytes]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    return {name: _joined(name, every) for name, every in values.items()}


def _joined(name: bytes, values: list[bytes]) -> bytes:
    if name not in _SINGLE and not name.startswith(b"mcp-"):
        return b", ".join(values)
    if len(values) == 1 or (name not in _ONCE and len(set(values)) == 1):
        return values[0]
    return _CONFLICT


# ---------------------------------------------------------------- Origin and Host

# A name has at most 253 characters (RFC 1035), an address 45.
_NAME_OR_ADDRESS = r"(\[[0-9A-Fa-f:.]{2,45}\]|[0-9A-Za-z_.-]{1,253})"
_AUTHORITY = re.compile(rf"{_NAME_OR_ADDRESS}(?::([1-9][0-9]{{0,4}}|\*))?")
_ORIGIN = re.compile(
    rf"([A-Za-z][0-9A-Za-z+.-]{{0,31}})://{_NAME_OR_ADDRESS}(?::([1-9][0-9]{{0,4}}|\*))?"
)
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
_MAX_PORT = 65535


def name_list(keyword: str, names: Iterable[str]) -> tuple[str, ...]:
    """The names that `hosts=` or `origins=` was given. Raises `LocalProtocolError` for a single
    string, which is iterable, too, letter by letter."""
    if isinstance(names, str):
        raise InvalidArgumentType(
            f"{keyword}= takes a list: write {keyword}=[{names[:200]!r}]", argument=keyword
        )
    return tuple(names)


class HostNamesRequired(InvalidArgument):
    """A server that other machines can reach was given no names for the Host check."""


class HostPolicy(Struct, frozen=True):
    """The host names by which a server may be reached, and the origins of pages that may use it.

    >>> HostPolicy.of("mcp.example.com", origins=["https://app.example.com"])

    Create one with `of`, `for_bind` or `for_mount`; the sets hold canonical forms.
    """

    hosts: frozenset[str]
    origins: frozenset[str]

    @classmethod
    def of(cls, *hosts: str, origins: Iterable[str] = ()) -> "HostPolicy":
        """These hosts and no other, pages served by them, and pages of `origins`.

        `example.com` is that name on port 80 or 443, `example.com:8080` on that port,
        `example.com:*` on any. `*` alone is any host: only for a server that is protected by
        something in front of it; it allows no origin. Raises `LocalProtocolError` for an invalid
        name.
        """
        if not hosts:
            raise InvalidArgument(
                "no host is allowed, so no client could connect; name one", argument="hosts"
            )
        allowed: set[str] = set()
        pages = {_allowed_origin(one) for one in name_list("origins", origins)}
        for host in hosts:
            if host == "*":
                allowed.add("*")
                continue
            name, port = _allowed_host(host)
            for each in (port,) if port else _DEFAULT_PORTS.values():
                allowed.add(f"{name}:{each}")
                pages |= {f"{scheme}://{name}:{each}" for scheme in _DEFAULT_PORTS}
        return cls(frozenset(allowed), frozenset(pages))

    @classmethod
    def for_bind(
        cls, host: str, port: int, *, hosts: Iterable[str] = (), origins: Iterable[str] = ()
    ) -> "HostPolicy":
        """The safe policy for a server on this address; `port` is the one that was really bound.

        It may be reached as localhost, 127.0.0.1 and [::1] on any port (D47: a forwarded port has
        another number, and no web page can make these names its own), and as `hosts`. Beyond
        loopback only the operator knows its names, and to allow all of them would let every web
        page in: without `hosts` this raises `LocalProtocolError`.
        """
        if not 0 < port <= _MAX_PORT:
            raise InvalidArgument(
                f"port {port} is not valid; call this after the server has bound one",
                argument="port",
            )
        own: set[str] = {*_LOOPBACK_NAMES}
        named = name_list("hosts", hosts)
        if is_loopback_host(host):
            own.add(f"[{host}]" if ":" in host else host.lower())
        elif not named:
            raise HostNamesRequired(
                f"a server on {host!r} needs the names by which it is reached: pass "
                f"hosts=['mcp.example.com'], or serve 127.0.0.1",
                argument="hosts",
            )
        served = cls.of(*(f"{name}:{port}" for name in own), *named, origins=origins)
        return cls(served.hosts | {f"{name}:*" for name in own}, served.origins)

    @classmethod
    def for_mount(cls, *hosts: str, origins: Iterable[str] = ()) -> "HostPolicy":
        """The safe policy for an application that does not know its address.

        As with `for_bind` it may be reached by the loopback names on any port, and as `hosts`. A
        page of a loopback name may use it if it came from the very port that it calls (D47).
        """
        own = {f"{name}:*" for name in _LOOPBACK_NAMES}
        if not hosts:
            return cls(frozenset(own), frozenset(_allowed_origin(one) for one in origins))
        named = cls.of(*hosts, origins=origins)
        return cls(named.hosts | own, named.origins)

    def allows_host(self, name: str, port: str) -> bool:
        """Whether this name and port may be requested; an empty port stands for a default one."""
        hosts = self.hosts
        if "*" in hosts or f"{name}:*" in hosts:
            return True
        return any(f"{name}:{each}" in hosts for each in ([port] if port else ("80", "443")))

    def serves_pages(self, name: str) -> bool:
        """Whether every port of this name is ours, so that its pages are allowed on their own
        port (D47)."""
        return f"{name}:*" in self.hosts

    def allows_origin(self, scheme: str, name: str, port: str) -> bool:
        """Whether pages of this origin may use the server; an empty port stands for the default
        one."""
        origin = f"{scheme}://{name}"
        port = port or _DEFAULT_PORTS.get(scheme, "")
        return (f"{origin}:{port}" if port else origin) in self.origins or (
            f"{origin}:*" in self.origins
        )


def is_loopback_host(host: str) -> bool:
    """Whether a server on this address is reachable from this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _allowed_host(host: str) -> tuple[str, str]:
    found = _AUTHORITY.fullmatch(host)
    parts = found and _canonical(found[1], found[2])
    if not parts:
        raise InvalidArgument(
            f"{host!r} is not a host; write 'example.com', 'example.com:8080' or '[::1]:8080', "
            "and other scripts in Punycode",
            argument="hosts",
        )
    return parts


def _allowed_origin(origin: str) -> str:
    found = _ORIGIN.fullmatch(origin)
    parts = found and _canonical(found[2], found[3])
    if not found or not parts:
        raise InvalidArgument(
            f"{origin!r} is not an origin; write 'https://app.example.com' or "
            "'http://localhost:5173'",
            argument="origins",
        )
    scheme, (name, port) = found[1].lower(), parts
    port = port or _DEFAULT_PORTS.get(scheme, "")
    return f"{scheme}://{name}:{port}" if port else f"{scheme}://{name}"


def _canonical(name: str, port: str | None) -> tuple[str, str] | None:
    """One spelling for each host: lower case, IPv6 compressed; None if it is invalid."""
    if port is not None and port != "*" and int(port) > _MAX_PORT:
        return None
    if name[0] == "[":
        try:
            name = f"[{IPv6Address(name[1:-1]).compressed}]"
        except AddressValueError:
            return None
    return name.lower(), port or ""


def check_origin(headers: Headers, policy: HostPolicy) -> None:
    """Raise if a foreign web page, or a foreign host name, is behind this request (R0045).

    A bad Origin and a foreign Host get 403 (R0484); a missing, duplicate or invalid Host gets 400,
    as HTTP itself says. No Origin at all is fine: only browsers send it.
    """
    origin = headers.get(b"origin")
    if origin is not None and not is_origin_allowed(headers, policy):
        raise HttpError(FORBIDDEN, f"Origin {_shown(origin)} is not allowed; add it to origins")
    check_host(headers, policy)


def check_host(headers: Headers, policy: HostPolicy) -> None:
    """Raise if a request was sent to a foreign host name: the part of `check_origin` for requests
    that pages of every origin may send."""
    host = headers.get(b"host")
    parts = _host_parts(host)
    if not parts or parts[1] == "*":
        raise HttpError(BAD_REQUEST, f"Host {_shown(host)} is not one host; send exactly one")
    if not policy.allows_host(*parts):
        raise HttpError(FORBIDDEN, f"Host {_shown(host)} is not this server; add it to hosts")


def is_health_check_allowed(headers: Headers, policy: HostPolicy) -> bool:
    """Whether a health check may be answered: that of a load balancer names an IP address, or no
    host at all, where the endpoint is reached by a name.

    A web page that rebinds its own name is given away by that name: an IP address in `Host` is
    never rebound, and a browser always sends one.
    """
    if b"origin" in headers and not is_origin_allowed(headers, policy):
        return False
    if b"host" not in headers:
        return True
    parts = _host_parts(headers[b"host"])
    if parts is None or "*" in parts:
        return False
    return policy.allows_host(*parts) or parts[0] == "localhost" or _is_address(parts[0])


def _is_address(name: str) -> bool:
    try:
        return bool(ip_address(name.strip("[]")))
    except ValueError:
        return False


def _host_parts(host: bytes | None) -> tuple[str, str] | None:
    found = None if host is None else _AUTHORITY.fullmatch(host.decode("latin-1"))
    return _canonical(found[1], found[2]) if found else None


def is_origin_allowed(headers: Headers, policy: HostPolicy) -> bool:
    """Whether pages of the origin that a request names may use the server.

    Those of the very host and port that the request was sent to may, if a name is ours on every
    port: through a forwarded port, our own page comes from another number than the one that is
    bound. A page of the same name on another port is another origin (D47).
    """
    # `null` (sandboxed frames, files) and lists of origins do not match the pattern.
    found = _ORIGIN.fullmatch(headers.get(b"origin", b"").decode("latin-1"))
    parts = found and _canonical(found[2], found[3])
    if not found or not parts or parts[1] == "*":
        return False
    scheme, (name, port) = found[1].lower(), parts
    if policy.allows_origin(scheme, name, port):
        return True
    default = _DEFAULT_PORTS.get(scheme)
    if default is None or not policy.serves_pages(name):
        return False
    asked = _host_parts(headers.get(b"host"))
    return asked is not None and (asked[0], asked[1] or default) == (name, port or default)


def _shown(value: bytes | None) -> str:
    """A value for an error message: short, and without control characters."""
    if value is None:
        return "(absent)"
    return "(two values)" if value == _CONFLICT else repr(value[:80].decode("latin-1"))


# ---------------------------------------------------------------- Accept and Content-Type (D30)

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
_QUOTED = r'"(?:[^"\\]|\\.)*+"'
_PARAMETER = rf"[ \t]*+;[ \t]*+(?:({_TOKEN})=({_TOKEN}|{_QUOTED}))?"
_MEDIA = re.compile(rf"[ \t]*+({_TOKEN})/({_TOKEN})((?:{_PARAMETER})*+)[ \t]*+")
_PARAMETERS = re.compile(_PARAMETER)
_WEIGHT = re.compile(r"0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?")
_ZERO = re.compile(r"0(?:\.0{0,3})?")
# The closing quote is optional, so that an unterminated string is swallowed once, in linear time.
_ELEMENTS = re.compile(rf'(?:[^,"]|{_QUOTED}?)++')


class AcceptedTypes(Struct, frozen=True):
    """The media types that a client accepts as a response."""

    json: bool
    events: bool


_EITHER = AcceptedTypes(json=True, events=True)


def parse_accept(accept: bytes | None) -> AcceptedTypes:
    """Parse an Accept header: everything without one; the most specific range decides for each.

    An element that is not a media range is ignored. Parameters but the weight are not checked.
    """
    if accept is None or not accept.strip():
        return _EITHER
    if len(accept) > MAX_ACCEPT_BYTES:
        return AcceptedTypes(json=False, events=False)
    wanted: dict[str, bool] = {}
    for element in _ELEMENTS.finditer(accept.decode("latin-1")):
        found = _MEDIA.fullmatch(element[0])
        if found is None:
            continue
        weight = _parameters(found[3]).get("q", "1")
        if _WEIGHT.fullmatch(weight):
            media = f"{found[1]}/{found[2]}".lower()
            wanted[media] = wanted.get(media, False) or not _ZERO.fullmatch(weight)
    return AcceptedTypes(json=_takes(wanted, JSON_TYPE), events=_takes(wanted, EVENTS_TYPE))


def _takes(wanted: dict[str, bool], media: str) -> bool:
    family = media.partition("/")[0]
    return wanted.get(media, wanted.get(f"{family}/*", wanted.get("*/*", False)))


def _parameters(text: str) -> dict[str, str]:
    """Names in lower case to values without their quotes; of two with one name, the first."""
    found: dict[str, str] = {}
    for name, value in _PARAMETERS.findall(text):
        if name:
            plain = re.sub(r"\\(.)", r"\1", value[1:-1]) if value[0] == '"' else value
            found.setdefault(name.lower(), plain)
    return found


def check_content_type(value: bytes | None) -> None:
    """Raise 415 unless the body is declared as JSON in UTF-8.

    Forms and plain text can be sent across origins without a preflight, so the type is part of the
    security checks: it is parsed, and nothing but this one type passes.
    """
    if value is not None and len(value) <= MAX_CONTENT_TYPE_BYTES:
        found = _MEDIA.fullmatch(value.decode("latin-1"))
        if found and f"{found[1]}/{found[2]}".lower() == JSON_TYPE:
            names = [name.lower() for name, _ in _PARAMETERS.findall(found[3])]
            charset = _parameters(found[3]).get("charset", "utf-8").lower()
            if charset == "utf-8" and names.count("charset") < 2:
                return
    words = f"Content-Type {_shown(value)} is not {JSON_TYPE} in UTF-8; send that"
    raise HttpError(UNSUPPORTED_MEDIA_TYPE, words)


# ---------------------------------------------------------------- checks of a request


def endpoint_methods(accepts: Revisions) -> tuple[str, ...]:
    """The HTTP methods of the endpoint: POST alone if no revision has sessions (R0918)."""
    return ("GET", "POST", "DELETE") if accepts.handshakes else ("POST",)


class EndpointChecks:
    """The checks before the body, for one endpoint, in the order of D4.

    Static headers are checked once: the same headers pass again. Only a pass is remembered.
    """

    # Whether it is public: no authentication is required.
    public: bool = False
    # Whether what is served checks the origin of requests, and allows it (CORS), itself.
    any_origin: bool = False

    def __init__(self, policy: HostPolicy, methods: tuple[str, ...]) -> None:
        self.policy = policy
        self.methods = methods
        self._passed: dict[tuple[str | bytes | None, ...], AcceptedTypes] = {}

    def check(self, method: str, headers: Headers) -> AcceptedTypes:
        """The types that the client accepts. Raises `HttpError`: 403 or 400, 405, 406, 415."""
        get = headers.get
        key = (method, get(b"host"), get(b"origin"), get(b"accept"), get(b"content-type"))
        answers = self._passed.get(key) or self._check(method, headers, key)
        if b"content-encoding" in headers:
            check_encoding(headers[b"content-encoding"])
        return answers

    def _check(
        self, method: str, headers: Headers, key: tuple[str | bytes | None, ...]
    ) -> AcceptedTypes:
        check_origin(headers, self.policy)
        if method not in self.methods:
            allow = ", ".join(self.methods)
            words = f"method {method[:20]!r} is not allowed here; use {allow}"
            raise HttpError(METHOD_NOT_ALLOWED, words, headers=(("Allow", allow),))
        answers = parse_accept(headers.get(b"accept"))
        if method == "POST":
            if not (answers.json or answers.events):
                raise _unacceptable(f"{JSON_TYPE}, {EVENTS_TYPE}")
            check_content_type(headers.get(b"content-type"))
        elif method == "GET" and not answers.events:
            raise _unacceptable(EVENTS_TYPE)
        if sum(len(part) for part in key if part) <= MAX_REMEMBERED_BYTES:
            if len(self._passed) >= MAX_REMEMBERED:
                self._passed.clear()
            self._passed[key] = answers
        return answers


class RouteChecks(EndpointChecks):
    """The checks before a custom route: Origin, Host and method."""

    public = True

    def check(self, method: str, headers: Headers) -> AcceptedTypes:
        """Raises `HttpError`: 403 or 400, 405."""
        check_origin(headers, self.policy)
        if method not in self.methods:
            allow = ", ".join(self.methods)
            words = f"method {method[:20]!r} is not allowed here; use {allow}"
            raise HttpError(METHOD_NOT_ALLOWED, words, headers=(("Allow", allow),))
        return _EITHER


class AuthorizationChecks(EndpointChecks):
    """The checks before an endpoint of an authorization server: Host and method."""

    public = True
    any_origin = True

    def check(self, method: str, headers: Headers) -> AcceptedTypes:
        """Raises `HttpError`: 403 or 400, 405."""
        check_host(headers, self.policy)
        if method not in self.methods:
            allow = ", ".join(self.methods)
            words = f"method {method[:20]!r} is not allowed here; use {allow}"
            raise HttpError(METHOD_NOT_ALLOWED, words, headers=(("Allow", allow),))
        return _EITHER


def check_encoding(value: bytes) -> None:
    """Raise 415 for a compressed body: its decompressed size is unknown."""
    if value.strip().lower() not in (b"", b"identity"):
        words = f"Content-Encoding {_shown(value)} is not supported; send the body without one"
        raise HttpError(UNSUPPORTED_MEDIA_TYPE, words, headers=(("Accept-Encoding", "identity"),))


def require_events(answers: AcceptedTypes) -> None:
    """Raise 406 if a response can only be a stream, and the client accepts none."""
    if not answers.events:
        raise _unacceptable(EVENTS_TYPE)


def _unacceptable(types: str) -> HttpError:
    return HttpError(
        NOT_ACCEPTABLE, f"Accept does not include a type that is sent here; list {types}"
    )


def check_size(size: int, limit: int = MAX_BODY_BYTES) -> None:
    """Raise 413 for a body that has, or will have, more bytes than the limit."""
    if size > limit:
        words = f"a body of more than {limit} bytes; send less, or raise the limit"
        raise HttpError(CONTENT_TOO_LARGE, words)


def declared_size(headers: Headers) -> int:
    """The declared length of the body, 0 without one; 400 if it is not a number."""
    value = headers.get(b"content-length", b"0")
    # Twenty digits are more than any disk holds; int() of many more takes quadratic time.
    if not value.isdigit() or len(value) > 20:
        raise HttpError(BAD_REQUEST, f"Content-Length {_shown(value)} is not a number")
    return int(value)


# Preflights are repeated after this long; browsers cache them for two hours at most.
MAX_AGE_S = 600
# A tool mirrors few of its arguments in headers, and none of them has a long name.
MAX_REQUESTED_HEADERS = 64
MAX_REQUESTED_HEADER_BYTES = 4096

Pairs: TypeAlias = list[tuple[bytes, bytes]]

# In lower case, as browsers send them.
_ALLOWED_HEADERS: Final = (
    b"accept",
    b"authorization",
    b"content-type",
    b"dpop",
    b"last-event-id",
    b"mcp-method",
    b"mcp-name",
    b"mcp-protocol-version",
    b"mcp-session-id",
)
# Without this a page sees none of them, and so could not continue its session.
_EXPOSED_HEADERS: Final = (
    b"access-control-expose-headers",
    b"DPoP-Nonce, Mcp-Session-Id, MCP-Protocol-Version, Retry-After, WWW-Authenticate",
)
_VARY: Final = (b"vary", b"origin")
_PARAM = re.compile(rb"mcp-param-[!#$%&'*+.^_`|~0-9a-z-]{1,128}")


def cors_headers(headers: Headers, policy: HostPolicy) -> Pairs | None:
    """The CORS headers of every response to an allowed page; None for any other client."""
    origin = headers.get(b"origin")
    if origin is None or not is_origin_allowed(headers, policy):
        return None
    return [(b"access-control-allow-origin", origin), _EXPOSED_HEADERS, _VARY]


def preflight_headers(
    method: str, headers: Headers, policy: HostPolicy, methods: Sequence[str]
) -> Pairs | None:
    """The headers of the response to a CORS preflight; None for any other request.

    Raises `HttpError` for an origin or a host that is not allowed, like any request.
    """
    origin = headers.get(b"origin")
    if method != "OPTIONS" or origin is None or b"access-control-request-method" not in headers:
        return None
    check_origin(headers, policy)
    taken = [*_ALLOWED_HEADERS, *_mirrored(headers.get(b"access-control-request-headers", b""))]
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-allow-methods", ", ".join(methods).encode()),
        (b"access-control-allow-headers", b", ".join(taken)),
        (b"access-control-max-age", b"%d" % MAX_AGE_S),
        _VARY,
    ]


def _mirrored(asked: bytes) -> list[bytes]:
    """The requested headers that mirror an argument of a tool."""
    names = asked[:MAX_REQUESTED_HEADER_BYTES].lower().split(b",")[:MAX_REQUESTED_HEADERS]
    return [name for name in map(bytes.strip, names) if _PARAM.fullmatch(name)]
