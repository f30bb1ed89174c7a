"""Checks of a URL: DNS, TCP, TLS, the HTTP response, OAuth metadata, and authorization.

Rules: headers given for the server are sent to its own URL only: redirects are not followed, and
metadata is fetched without them, by the SSRF-guarded fetcher. Every wait has a timeout. Text from a
server is cleaned before it is shown.
"""

import asyncio
import contextlib
import datetime
import errno
import os
import re
import socket
import ssl
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urljoin, urlsplit

from colonnade.auth.client.authorization_code import check_pkce
from colonnade.auth.client.discovery import discover
from colonnade.auth.client.steps import Flow, FlowResponse, SendRequest
from colonnade.auth.ssrf import Fetcher, is_loopback_host
from colonnade.auth.urls import display_url, origin
from colonnade.cli.doctor.check import Check, Checks, failed, ok, skipped, warned
from colonnade.cli.errors import AUTHORIZATION, PROTOCOL, TOKEN_OPTION, UNREACHABLE, USAGE
from colonnade.client.connect import library_info
from colonnade.errors import (
    AuthError,
    CannotConnect,
    CannotFetch,
    ChannelError,
    ColonnadeError,
    Fault,
    FaultKind,
    LocalProtocolError,
    RemoteProtocolError,
    TimedOut,
)
from colonnade.protocol import types as t
from colonnade.protocol.http.challenges import Challenges, read_challenges
from colonnade.protocol.http.rules import NOT_FOUND, headers_for_request
from colonnade.protocol.http.security import EVENTS_TYPE, JSON_TYPE
from colonnade.protocol.jsonrpc import ErrorResponse, decode
from colonnade.protocol.jsonrpc import ResultResponse as Answered
from colonnade.protocol.link.link import DISCOVER, DuplexLink
from colonnade.protocol.methods import Side
from colonnade.protocol.negotiation import Identity
from colonnade.protocol.revision import EVERY, NEWEST
from colonnade.text import one_line
from colonnade.transport.http_client.connect import HappyEyeballs, Proxy, proxy_for
from colonnade.transport.http_client.endpoint import (
    DEFAULT_HEADERS,
    PAGE_TYPE,
    PRESERVING_REDIRECTS,
    TRANSIENT_STATUSES,
)
from colonnade.transport.http_client.pool import HttpPool

# The timeout of the first response; a server without instances takes a while to start.
ANSWER_S: Final = 30.0
# The most that is read of a body.
MAX_BYTES: Final = 1024 * 1024
SHOWN_CHARACTERS: Final = 80
# The default path of MCP endpoints.
DEFAULT_PATH: Final = "/mcp"

HTTP, METADATA, AUTHORIZATION_CHECK = "http", "metadata", "authorization"

# A scope that is safe in a command line for copying; the server chose it.
_PLAIN_SCOPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9:._/-]{0,99}")

T = TypeVar("T")


class HttpProbe(NamedTuple):
    """The response to the first request, whatever it is."""

    url: str
    status: int
    media: str = ""
    location: str = ""
    challenges: Challenges = Challenges()
    begins: str = ""
    # Whether the body is a JSON-RPC message.
    is_message: bool = False

    @property
    def unauthorized(self) -> bool:
        """Whether the server requires authentication."""
        return self.status == 401


async def probe(
    pool: HttpPool, url: str, headers: Sequence[tuple[str, str]], timeout_s: float
) -> HttpProbe:
    """Send the first request of a client, and read the response. Raises `ColonnadeError`."""
    link = DuplexLink(Side.CLIENT, Identity(library_info(), t.ClientCapabilities()), EVERY)
    _, body = link.request(DISCOVER, t.RequestParams(), now=0.0, revision=NEWEST)
    row = NEWEST.methods[DISCOVER]
    names = {name.lower() for name, _ in headers}
    usual = [pair for pair in DEFAULT_HEADERS if pair[0] not in names]
    lines = [*headers, *usual, *headers_for_request(row, NEWEST)]
    seconds = min(timeout_s, ANSWER_S)
    try:
        async with asyncio.timeout(seconds):
            answer = await pool.send("POST", url, lines, body)
            async with answer:
                data = b""
                if answer.media != EVENTS_TYPE:
                    with contextlib.suppress(RemoteProtocolError):  # too large for a message
                        data = await answer.read_all(MAX_BYTES)
                asked = answer.header("www-authenticate")
                return HttpProbe(
                    url,
                    answer.status,
                    answer.media,
                    answer.header("location") or "",
                    read_challenges([asked] if asked else []),
                    one_line(data[: 4 * SHOWN_CHARACTERS].decode("utf-8", "replace"))[
                        :SHOWN_CHARACTERS
                    ],
                    answer.media == JSON_TYPE and _is_message(data, answer.status),
                )
    except TimeoutError:
        raise TimedOut(f"no response within {seconds:g} s") from None


def _is_message(data: bytes, status: int) -> bool:
    """Whether a response is from an MCP endpoint. Not every JSON-RPC error is: a 404 for a wrong
    path may have one as its body."""
    try:
        frame = decode(data)
    except Fault:
        return False
    if isinstance(frame, ErrorResponse) and status == NOT_FOUND:
        return frame.code == NEWEST.codes[FaultKind.METHOD_NOT_FOUND]
    return isinstance(frame, ErrorResponse | Answered)


# ---------------------------------------------------------------- http


def http_check(probe: HttpProbe) -> Check:
    """Check the HTTP response."""
    path = urlsplit(probe.url).path or "/"
    reason = f"{probe.status}{f' and {one_line(probe.media)}' if probe.media else ''}"
    if 300 <= probe.status < 400:
        return _redirected(probe)
    if probe.status == 401:
        why = probe.challenges.reason or "authentication required"
        return ok(HTTP, f"it responds with 401: {one_line(why)}")
    if probe.status == 407:
        message = "the proxy requires other credentials (407)"
        return failed(HTTP, UNREACHABLE, message, "fix HTTPS_PROXY or HTTP_PROXY")
    if probe.status >= 500 or probe.status in TRANSIENT_STATUSES:
        message = f"it responds with {probe.status}: server error, or overloaded"
        return failed(HTTP, UNREACHABLE, message, "try again later; see the log of the server")
    if probe.is_message or (probe.status == 200 and probe.media == EVENTS_TYPE):
        return ok(HTTP, f"it responds with {reason}")
    if probe.media == PAGE_TYPE and probe.status < 400:
        message = f"{path} is a web page ({reason}), not an MCP endpoint"
        return failed(HTTP, PROTOCOL, message, _path_fix(path))
    if probe.status == 404:
        message = f"there is nothing at {path} (404)"
        return failed(HTTP, PROTOCOL, message, _path_fix(path))
    if probe.status == 405:
        message = f"{path} does not accept POST (405)"
        return failed(HTTP, PROTOCOL, message, _path_fix(path))
    if probe.status == 403:
        why = probe.challenges.reason or "forbidden"
        return ok(HTTP, f"it responds with 403: {one_line(why)}")
    message = f"it responds with {reason}, which is not MCP"
    lines = (probe.begins,) if probe.begins else ()
    return failed(HTTP, PROTOCOL, message, "check that this is the URL of the MCP endpoint", lines)


def _path_fix(path: str) -> str:
    if path.rstrip("/") == DEFAULT_PATH:
        return "ask the operator for the path"
    return f"fix the path of the URL; it is often {DEFAULT_PATH}"


def _redirected(probe: HttpProbe) -> Check:
    if not probe.location:
        message = f"it responds with {probe.status}, without a Location header"
        return failed(HTTP, PROTOCOL, message, "ask the operator for the URL")
    place = urljoin(probe.url, probe.location)
    try:
        near = origin(place) == origin(probe.url)
    except ValueError:
        near, place = False, "an invalid URL"
    there = one_line(display_url(place))
    if near and probe.status in PRESERVING_REDIRECTS:
        return warned(HTTP, f"it redirects to {there} ({probe.status})", "use that URL")
    message = f"it redirects to {there} ({probe.status}), which is not followed"
    return failed(HTTP, PROTOCOL, message, "use that URL, if you trust it")


def http_failure(error: ColonnadeError, speaks_tls: bool) -> Check:
    """Check why there was no response."""
    if speaks_tls:
        message = "the server uses TLS, and the URL is http"
        return failed(HTTP, UNREACHABLE, message, "use https://")
    if isinstance(error, CannotConnect):
        return failed(HTTP, UNREACHABLE, one_line(str(error)), "check proxies and firewalls")
    if isinstance(error, TimedOut):
        message = f"it accepts a request, but there is {error}"
        return failed(
            HTTP, UNREACHABLE, message, "see the log of the server; --timeout waits longer"
        )
    if isinstance(error, RemoteProtocolError):
        message = "the port is not HTTP"
        return failed(HTTP, PROTOCOL, message, "fix the port of the URL")
    message = "it accepts a request, and closes the connection without a response"
    return failed(HTTP, UNREACHABLE, message, "see the log of the server, and of proxies")


async def at_usual_path(pool: HttpPool, failure: Check, url: str, timeout_s: float) -> Check:
    """The same failure, with the default URL as the fix if there is a server. No headers are sent
    there."""
    beside = origin(url) + DEFAULT_PATH
    if urlsplit(url).path.rstrip("/") == DEFAULT_PATH:
        return failure
    try:
        there = await probe(pool, beside, (), timeout_s)
    except ColonnadeError:
        return failure
    if there.is_message or there.status == 401 or there.media == EVENTS_TYPE:
        return failure._replace(fix=f"there is a server at {beside}; use that URL")
    return failure


# ---------------------------------------------------------------- OAuth metadata


async def metadata_check(pool: HttpPool, probe: HttpProbe) -> Check:
    """Check that the authorization server can be discovered."""
    url = probe.url
    here = is_loopback_host(urlsplit(url).hostname or "")
    fetcher = Fetcher(pool.send, loopback=here)
    flow = discover(url, probe.challenges)
    try:
        where = await _run_discovery(flow, fetcher)
        issuer = where.issuer
        check_pkce(issuer)
    except AuthError as error:
        fix = "the operator must fix the metadata; a token of your own needs none"
        return failed(METADATA, AUTHORIZATION, one_line(str(error)), fix)
    except ChannelError as error:
        fix = "check that the host is up, and reachable from here"
        return failed(METADATA, UNREACHABLE, one_line(str(error)), fix)
    named = one_line(display_url(issuer.issuer))
    if issuer.legacy:
        message = f"none, as in 2025-03-26: the authorization server is {named} itself"
        return ok(METADATA, message)
    if not issuer.registration_endpoint:
        message = f"the authorization server is {named}, which has no dynamic client registration"
        fix = f"register a client: colonnade login {display_url(url)} --client-id ID --issuer URL"
        return warned(METADATA, message, fix)
    return ok(METADATA, f"the authorization server is {named}")


async def _run_discovery(flow: Flow[T], fetcher: Fetcher) -> T:
    """Run the discovery; only fetches are allowed, without credentials."""
    try:
        step = next(flow)
        while True:
            assert isinstance(step, SendRequest)
            try:
                fetched = await fetcher.fetch(step.method, step.url, step.headers, step.body)
            except CannotFetch as error:
                step = flow.throw(CannotConnect(f"{error}: {error.why}"))
            else:
                reply = FlowResponse(fetched.status, tuple(fetched.headers.items()), fetched.body)
                step = flow.send(reply)
    except StopIteration as ended:
        return ended.value


# ---------------------------------------------------------------- authorization


class SentCredentials(NamedTuple):
    """The credentials that were sent: a header, a stored login, or none."""

    header: bool = False
    login: bool = False


def authorization_check(
    url: str, asked: bool, what: SentCredentials, error: ColonnadeError | None
) -> Check:
    """Check that the credentials are accepted; `asked` if the server requires any."""
    where = one_line(display_url(url))
    reason = f": {one_line(error.reason)}" if isinstance(error, AuthError) and error.reason else ""
    if isinstance(error, AuthError) and error.status == 403:
        return _forbidden(error, what, where, reason)
    if isinstance(error, AuthError) and what.header:
        message = f"it rejects the Authorization header that you send{reason}"
        fix = "it may have expired, or be for another server; get a new one"
        if reason:
            fix = "get a new token for this server"
        return failed(AUTHORIZATION_CHECK, AUTHORIZATION, message, fix)
    if isinstance(error, AuthError) and what.login:
        message = f"it rejects the stored login{reason}"
        fix = f"log in again: colonnade login {where}"
        return failed(AUTHORIZATION_CHECK, AUTHORIZATION, message, fix)
    if isinstance(error, AuthError):
        message = "it requires authentication, and there is no stored login"
        fix = f"log in: colonnade login {where}, or send a token: {TOKEN_OPTION}"
        return failed(AUTHORIZATION_CHECK, AUTHORIZATION, message, fix)
    if not asked and not what.header:  # with a header, it is not known what would be without
        return skipped(AUTHORIZATION_CHECK, "no authentication required")
    how = "your Authorization header" if what.header else "the stored login"
    return ok(AUTHORIZATION_CHECK, f"it accepts {how}")


def _forbidden(error: AuthError, what: SentCredentials, where: str, reason: str) -> Check:
    """403: a scope is missing, or there is another reason that the operator knows."""
    named = [scope for scope in error.scopes if _PLAIN_SCOPE.fullmatch(scope)]
    if what.login:
        message = f"the stored login is not sufficient (403){reason or ': a scope is missing'}"
        wanted = " ".join(f"--scope {scope}" for scope in named) or "--scope SCOPE"
        return failed(
            AUTHORIZATION_CHECK,
            AUTHORIZATION,
            message,
            f"request more: colonnade login {where} {wanted}",
        )
    fix = "ask the operator who has access, and from where"
    if named:
        fix = f"get a token with the scope {' '.join(named)}"
    return failed(AUTHORIZATION_CHECK, AUTHORIZATION, f"access is forbidden (403){reason}", fix)


# ---------------------------------------------------------------- network


# The timeout of each step: name resolution, connection, TLS handshake.
NETWORK_S: Final = 10.0
# Certificates are renewed earlier than this; a shorter validity is worth a warning.
EXPIRY_WARNING_DAYS: Final = 7
# Addresses, or names of a certificate, in one message.
MAX_NAMES: Final = 4

DNS, TCP, TLS = "dns", "tcp", "tls"
NETWORK_CHECKS = (DNS, TCP, TLS)


class HostPort(NamedTuple):
    """The host and port of a server."""

    scheme: str
    host: str
    port: int

    @property
    def shown(self) -> str:
        """Host and port, for messages."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


async def network_checks(place: HostPort, timeout_s: float) -> Checks:
    """Check DNS, TCP and TLS."""
    seconds = min(timeout_s, NETWORK_S)
    try:
        proxy = proxy_for(place.scheme, place.host, place.port)
    except LocalProtocolError as error:
        yield failed(DNS, USAGE, str(error), "fix the environment variable, or unset it")
        return
    near = place if proxy is None else HostPort("http", proxy.host, proxy.port)
    yield await _dns(near, seconds, proxy)
    yield await _tcp(near, seconds, proxy)
    if place.scheme == "http":
        yield _no_tls(place)
    elif proxy is not None:
        yield skipped(TLS, "goes through the proxy; see http")
    else:
        yield await _tls(place, seconds)


def _host_label(place: HostPort, proxy: Proxy | None) -> str:
    return place.host if proxy is None else f"the proxy {place.host}"


# ---------------------------------------------------------------- DNS


async def _dns(place: HostPort, seconds: float, proxy: Proxy | None) -> Check:
    whose = _host_label(place, proxy)
    try:
        async with asyncio.timeout(seconds):
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    except TimeoutError:
        return dns_failure(whose, socket.gaierror(socket.EAI_AGAIN, ""))
    except (OSError, UnicodeError) as error:
        return dns_failure(whose, error)
    addresses = list(dict.fromkeys(str(info[4][0]) for info in found))
    if addresses == [place.host]:
        return ok(DNS, f"{whose} is an IP address")
    return ok(DNS, f"{whose} resolves to {_listed(addresses)}")


def dns_failure(host: str, error: Exception) -> Check:
    """Check why a name cannot be resolved."""
    host = one_line(host)
    number = error.errno if isinstance(error, socket.gaierror) else None
    if number == socket.EAI_AGAIN:
        message = f"no DNS server responds for {host}"
        return failed(DNS, UNREACHABLE, message, "check the network of this machine, or its VPN")
    message = f"there is no host {host}" if number is not None else f"{host} is not a host name"
    return failed(DNS, UNREACHABLE, message, "check the name; some hosts need a VPN")


# ---------------------------------------------------------------- TCP


async def _tcp(place: HostPort, seconds: float, proxy: Proxy | None) -> Check:
    try:
        async with asyncio.timeout(seconds):
            line, _ = await HappyEyeballs().connect(asyncio.Protocol, place.host, place.port)
    except TimeoutError:
        return tcp_failure(place, None, seconds)
    except OSError as error:
        return tcp_failure(place, error, seconds)
    line.close()
    through = f"{place.shown} accepts connections"
    return ok(TCP, f"the proxy {through}" if proxy is not None else through)


def tcp_failure(place: HostPort, error: OSError | None, seconds: float) -> Check:
    """Check why a connection failed; `error` is None after a timeout."""

    def fail(message: str, fix: str) -> Check:
        return failed(TCP, UNREACHABLE, message, fix)

    if error is None or error.errno == errno.ETIMEDOUT:
        message = f"{place.shown} did not respond within {seconds:g} s"
        return fail(message, "check the port; a firewall may drop it, or the machine is off")
    if error.errno == errno.ECONNREFUSED:
        message = f"connection refused: nothing listens on {place.shown}"
        return fail(message, "start the server, or fix the port of the URL")
    if error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL):
        message = f"there is no route to {place.shown}: {os.strerror(error.errno).lower()}"
        return fail(message, "check the network of this machine, or its VPN")
    why = os.strerror(error.errno) if error.errno else str(error)
    message = f"{place.shown} cannot be reached: {one_line(why).lower()}"
    return fail(message, "check what runs there")


# ---------------------------------------------------------------- TLS


def _no_tls(place: HostPort) -> Check:
    if is_loopback_host(place.host):
        return skipped(TLS, "not needed on this machine")
    message = f"http is not encrypted: others can read and change what is sent to {place.host}"
    return warned(TLS, message, "serve it over https, and use https://")


async def _tls(place: HostPort, seconds: float) -> Check:
    try:
        cert = await _handshake(place, ssl.create_default_context(), seconds)
    except (TimeoutError, OSError) as error:
        names: list[str] = []
        if _is_name_mismatch(error):
            names = await _names(place, seconds)
        return tls_failure(place, error, names)
    return _expiry_check(cert)


async def _handshake(place: HostPort, context: ssl.SSLContext, seconds: float) -> dict[str, Any]:
    """The certificate of the server, as far as the context accepts it."""
    context.set_alpn_protocols(["http/1.1"])
    async with asyncio.timeout(seconds):
        line, _ = await HappyEyeballs().connect(
            asyncio.Protocol, place.host, place.port, context, place.host
        )
    try:
        return line.get_extra_info("peercert") or {}
    finally:
        line.close()


async def _names(place: HostPort, seconds: float) -> list[str]:
    """The names of a trusted certificate; nothing is sent on that connection."""
    context = ssl.create_default_context()
    context.check_hostname = False
    try:
        cert = await _handshake(place, context, seconds)
    except (TimeoutError, OSError):
        return []
    return [str(value) for _, value in cert.get("subjectAltName", ())]


def _is_name_mismatch(error: Exception) -> bool:
    return isinstance(error, ssl.SSLCertVerificationError) and error.verify_code in _NAME_MISMATCH


async def speaks_tls(place: HostPort, seconds: float) -> bool:
    """Whether the server expects TLS, with any certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        await _handshake(place, context, min(seconds, NETWORK_S))
    except (TimeoutError, OSError):
        return False
    return True


# OpenSSL error numbers (X509_V_ERR_…).
_EXPIRED, _NOT_YET = 10, 9
_SELF_SIGNED, _SELF_SIGNED_IN_CHAIN = 18, 19
_NO_ISSUER = (20, 21)
_NAME_MISMATCH = (62, 64)


def tls_failure(place: HostPort, error: Exception, names: Iterable[str] = ()) -> Check:
    """Check why TLS failed; `names` are those of the certificate, if known."""
    host = one_line(place.host)

    def fail(message: str, fix: str) -> Check:
        return failed(TLS, UNREACHABLE, message, fix)

    if isinstance(error, ssl.SSLCertVerificationError):
        code = error.verify_code
        if code == _EXPIRED:
            message = f"the certificate of {host} has expired"
            return fail(message, "the operator must renew it; or fix the clock of this machine")
        if code == _NOT_YET:
            message = f"the certificate of {host} is not valid yet"
            return fail(message, "check the clocks of this machine and of the server")
        if code in _NAME_MISMATCH:
            listed = _listed([one_line(name) for name in names])
            message = f"the certificate is not for {host}" + (
                f" but for {listed}" if listed else ""
            )
            return fail(message, "use a name of the certificate, or get one for this name")
        if code in (_SELF_SIGNED, _SELF_SIGNED_IN_CHAIN):
            message = f"{host} has a self-signed certificate, which is not trusted here"
            return fail(message, "if it is yours, set SSL_CERT_FILE to the file of its certificate")
        if code in _NO_ISSUER:
            message = f"the issuer of the certificate of {host} is not trusted here"
            return fail(
                message,
                "the operator must send the intermediate certificates; for an authority of your "
                "own, set SSL_CERT_FILE to its file",
            )
        message = f"the certificate of {host} is not trusted: {error.verify_message}"
        return fail(message, "the operator must fix it")
    if isinstance(error, ssl.SSLError):
        reason = error.reason or ""
        if reason in (
            "WRONG_VERSION_NUMBER",
            "HTTP_REQUEST",
            "UNKNOWN_PROTOCOL",
            "RECORD_LAYER_FAILURE",
        ):
            message = f"{place.shown} does not speak TLS"
            return fail(message, "use http:// if it is on this machine, else fix the port")
        reason = reason.lower().replace("_", " ") or "no reason given"
        message = f"the TLS handshake with {place.shown} failed: {one_line(reason)}"
        return fail(message, "it may be too old, or require a client certificate")
    if isinstance(error, TimeoutError):
        message = f"{place.shown} accepts connections, but does not respond to TLS"
        return fail(message, "fix the port; this one may be for something else")
    message = f"{place.shown} closes the connection on TLS"
    return fail(message, "fix the port, or use http:// if it is on this machine")


def _expiry_check(cert: dict[str, Any]) -> Check:
    """Check when a certificate expires."""
    until = cert.get("notAfter")
    if not until:
        return ok(TLS, "its certificate is trusted")
    ends = datetime.datetime.fromtimestamp(ssl.cert_time_to_seconds(until), datetime.UTC)
    left = ends - datetime.datetime.now(datetime.UTC)
    message = f"its certificate is trusted, and valid until {ends.date().isoformat()}"
    if left < datetime.timedelta(days=EXPIRY_WARNING_DAYS):
        return warned(TLS, message, "the operator must renew it before that")
    return ok(TLS, message)


def _listed(message: list[str]) -> str:
    more = f" and {len(message) - MAX_NAMES} more" if len(message) > MAX_NAMES else ""
    return ", ".join(message[:MAX_NAMES]) + more
