"""What stands at an address: whether it answers as a server would, and where its tokens come from.

Rules: what was typed for this server (headers) goes to its own address, and nowhere else: no
redirect is followed, and documents are asked for without it, by the guarded fetcher. Every wait
ends. What a server wrote is cleaned before a person reads it.
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
from colonnade.auth.fetcher import Fetcher
from colonnade.auth.ssrf import is_loopback_host
from colonnade.auth.urls import display_url, origin
from colonnade.cli.doctor.check import Check, Checks, failed, fine, skipped, warned
from colonnade.cli.errors import AUTHORIZATION, PROTOCOL, UNREACHABLE, USAGE
from colonnade.client.connect import own_name
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
from colonnade.protocol.jsonrpc import Failure, decode
from colonnade.protocol.jsonrpc import Reply as Answered
from colonnade.protocol.link.link import DISCOVER, Link
from colonnade.protocol.methods import Side
from colonnade.protocol.negotiation import Identity
from colonnade.protocol.revision import EVERY, NEWEST
from colonnade.text import one_line
from colonnade.transport.http_client.connect import Proxy, Routes, proxy_for
from colonnade.transport.http_client.endpoint import KEEPING, PAGE_TYPE, PASSING, USUAL
from colonnade.transport.http_client.pool import HttpPool

# An answer to a first question takes as long as a cold server takes to wake up.
ANSWER_S: Final = 30.0
# Of a body: an answer of the protocol, or enough of a page to know it.
MAX_BYTES: Final = 1024 * 1024
SHOWN_CHARACTERS: Final = 80
# Where servers usually are.
USUAL_PATH: Final = "/mcp"

HTTP, DOCUMENTS, AUTHORIZED = "http", "documents", "authorization"

# A scope that may stand in a command line which a person copies; a stranger wrote it.
_PLAIN_SCOPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9:._/-]{0,99}")

T = TypeVar("T")


class Probe(NamedTuple):
    """What came back for a first question, whatever it was."""

    url: str
    status: int
    media: str = ""
    location: str = ""
    challenges: Challenges = Challenges()
    begins: str = ""
    # Whether the body is a message of the protocol.
    is_message: bool = False

    @property
    def asks_who(self) -> bool:
        """Whether it wants to know who comes."""
        return self.status == 401


async def probe(
    pool: HttpPool, url: str, headers: Sequence[tuple[str, str]], timeout_s: float
) -> Probe:
    """Ask what a client asks first, and see what comes back. Raises `ColonnadeError`."""
    link = Link(Side.CLIENT, Identity(own_name(), t.ClientCapabilities()), EVERY)
    _, body = link.request(DISCOVER, t.RequestParams(), now=0.0, revision=NEWEST)
    row = NEWEST.methods[DISCOVER]
    names = {name.lower() for name, _ in headers}
    usual = [pair for pair in USUAL if pair[0] not in names]
    lines = [*headers, *usual, *headers_for_request(row, NEWEST)]
    seconds = min(timeout_s, ANSWER_S)
    try:
        async with asyncio.timeout(seconds):
            answer = await pool.send("POST", url, lines, body)
            async with answer:
                data = b""
                if answer.media != EVENTS_TYPE:
                    with contextlib.suppress(RemoteProtocolError):  # it is too large for a message
                        data = await answer.whole(MAX_BYTES)
                asked = answer.header("www-authenticate")
                return Probe(
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
        raise TimedOut(f"no answer within {seconds:g} s") from None


def _is_message(data: bytes, status: int) -> bool:
    """Whether an answer is one of an endpoint. Not every JSON-RPC error is: what says that a path
    is wrong may be spelled as one, too."""
    try:
        frame = decode(data)
    except Fault:
        return False
    if isinstance(frame, Failure) and status == NOT_FOUND:
        return frame.code == NEWEST.codes[FaultKind.METHOD_NOT_FOUND]
    return isinstance(frame, Failure | Answered)


# ---------------------------------------------------------------- http


def http_check(found: Probe) -> Check:
    """What an answer means, before anything else is tried."""
    path = urlsplit(found.url).path or "/"
    said = f"{found.status}{f' and {one_line(found.media)}' if found.media else ''}"
    if 300 <= found.status < 400:
        return _moved(found)
    if found.status == 401:
        why = found.challenges.reason or "it wants to know who you are"
        return fine(HTTP, f"it answers with 401: {one_line(why)}")
    if found.status == 407:
        words = "the proxy wants another name or password (407)"
        return failed(HTTP, UNREACHABLE, words, "mend the proxy in HTTPS_PROXY or HTTP_PROXY")
    if found.status >= 500 or found.status in PASSING:
        words = f"it answers with {found.status}: the server is ill, or busy"
        return failed(HTTP, UNREACHABLE, words, "try again later; its operator sees why in its log")
    if found.is_message or (found.status == 200 and found.media == EVENTS_TYPE):
        return fine(HTTP, f"it answers with {said}")
    if found.media == PAGE_TYPE and found.status < 400:
        words = f"{path} is a web page ({said}), and no endpoint"
        return failed(HTTP, PROTOCOL, words, _elsewhere(path))
    if found.status == 404:
        words = f"there is nothing at {path} (404)"
        return failed(HTTP, PROTOCOL, words, _elsewhere(path))
    if found.status == 405:
        words = f"{path} takes no messages: POST is answered with 405"
        return failed(HTTP, PROTOCOL, words, _elsewhere(path))
    if found.status == 403:
        why = found.challenges.reason or "you may not do this"
        return fine(HTTP, f"it answers with 403: {one_line(why)}")
    words = f"it answers with {said}, which is no MCP"
    lines = (found.begins,) if found.begins else ()
    return failed(HTTP, PROTOCOL, words, "see whether this is the endpoint of the server", lines)


def _elsewhere(path: str) -> str:
    known = "ask its operator for the path" if path.rstrip("/") == USUAL_PATH else ""
    return known or f"mend the path of the address; it is often {USUAL_PATH}"


def _moved(found: Probe) -> Check:
    if not found.location:
        words = f"it answers with {found.status}, and says not where to"
        return failed(HTTP, PROTOCOL, words, "ask its operator for the address")
    place = urljoin(found.url, found.location)
    try:
        near = origin(place) == origin(found.url)
    except ValueError:
        near, place = False, "no address"
    there = one_line(display_url(place))
    if near and found.status in KEEPING:
        return warned(HTTP, f"it has moved to {there} ({found.status})", "write that address")
    words = f"it has moved to {there} ({found.status}), and nothing is sent after it"
    return failed(HTTP, PROTOCOL, words, "if you trust that place, write its address")


def http_failure(error: ColonnadeError, speaks_tls: bool) -> Check:
    """Why no answer came at all."""
    if speaks_tls:
        words = "it speaks TLS, and the address says http"
        return failed(HTTP, UNREACHABLE, words, "write https://")
    if isinstance(error, CannotConnect):
        return failed(HTTP, UNREACHABLE, one_line(str(error)), "see what stands in between")
    if isinstance(error, TimedOut):
        words = f"it takes a request, and gives {error}"
        return failed(HTTP, UNREACHABLE, words, "see what the server does; --timeout waits longer")
    if isinstance(error, RemoteProtocolError):
        words = "what answers there speaks no HTTP"
        return failed(HTTP, PROTOCOL, words, "mend the port of the address")
    words = "it takes a request, and closes the connection without an answer"
    return failed(HTTP, UNREACHABLE, words, "see what its log says, and what stands in between")


async def found_beside(pool: HttpPool, failure: Check, url: str, timeout_s: float) -> Check:
    """The same failure, with the address where there is a server after all, if there is one. It
    is asked without what was typed for the other one."""
    beside = origin(url) + USUAL_PATH
    if urlsplit(url).path.rstrip("/") == USUAL_PATH:
        return failure
    try:
        there = await probe(pool, beside, (), timeout_s)
    except ColonnadeError:
        return failure
    if there.is_message or there.status == 401 or there.media == EVENTS_TYPE:
        return failure._replace(mend=f"there is a server at {beside}; write that")
    return failure


# ---------------------------------------------------------------- documents


async def documents_check(pool: HttpPool, found: Probe) -> Check:
    """Whether it can be found out where to log in."""
    url = found.url
    here = is_loopback_host(urlsplit(url).hostname or "")
    fetcher = Fetcher(pool.send, loopback=here)
    flow = discover(url, found.challenges)
    try:
        where = await _driven(flow, fetcher)
        issuer = where.issuer
        check_pkce(issuer)
    except AuthError as error:
        mend = "its operator mends the document; a token of your own needs none"
        return failed(DOCUMENTS, AUTHORIZATION, one_line(str(error)), mend)
    except ChannelError as error:
        mend = "see whether that host is up, and can be reached from here"
        return failed(DOCUMENTS, UNREACHABLE, one_line(str(error)), mend)
    named = one_line(display_url(issuer.issuer))
    if issuer.legacy:
        words = f"it has none, as in 2025-03-26: its tokens are issued by {named} itself"
        return fine(DOCUMENTS, words)
    if not issuer.registration_endpoint:
        words = f"its tokens are issued by {named}, which registers nobody by itself"
        shown = display_url(url)
        mend = f"register a client there: colonnade login {shown} --client-id ID --issuer URL"
        return warned(DOCUMENTS, words, mend)
    return fine(DOCUMENTS, f"its tokens are issued by {named}")


async def _driven(flow: Flow[T], fetcher: Fetcher) -> T:
    """Do what a flow of documents wants: fetch, without a credential, and nothing else."""
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


class Shown(NamedTuple):
    """What was shown of who we are: a header that was given, a login that is kept, or nothing."""

    header: bool = False
    login: bool = False


def authorization_check(url: str, asked: bool, what: Shown, error: ColonnadeError | None) -> Check:
    """Whether it lets us in; `asked` where it wanted to know who we are."""
    where = one_line(display_url(url))
    said = f": {one_line(error.reason)}" if isinstance(error, AuthError) and error.reason else ""
    if isinstance(error, AuthError) and error.status == 403:
        return _forbidden(error, what, where, said)
    if isinstance(error, AuthError) and what.header:
        words = f"it refuses the Authorization header that you send{said}"
        mend = "it may have expired, or be for another server; renew it"
        if said:
            mend = "get another token for this server, and send that"
        return failed(AUTHORIZED, AUTHORIZATION, words, mend)
    if isinstance(error, AuthError) and what.login:
        words = f"it refuses the login that is kept for it{said}"
        return failed(AUTHORIZED, AUTHORIZATION, words, f"log in again: colonnade login {where}")
    if isinstance(error, AuthError):
        words = "it wants to know who you are, and nobody is logged in"
        mend = f"log in: colonnade login {where}"
        return failed(AUTHORIZED, AUTHORIZATION, words, mend)
    if not asked:
        return skipped(AUTHORIZED, "it asks nobody who they are")
    how = "your Authorization header" if what.header else "the login that is kept for it"
    return fine(AUTHORIZED, f"it takes {how}")


def _forbidden(error: AuthError, what: Shown, where: str, said: str) -> Check:
    """403: a scope is missing, or something else that only its operator knows."""
    named = [scope for scope in error.scopes if _PLAIN_SCOPE.fullmatch(scope)]
    if what.login:
        words = f"it knows you, and you may not do this (403){said or ': a scope is missing'}"
        wanted = " ".join(f"--scope {scope}" for scope in named) or "--scope SCOPE"
        return failed(
            AUTHORIZED, AUTHORIZATION, words, f"ask for more: colonnade login {where} {wanted}"
        )
    mend = "ask its operator who may come, and from where"
    if named:
        mend = f"get a token with the scope {' '.join(named)}"
    return failed(AUTHORIZED, AUTHORIZATION, f"it refuses you (403){said}", mend)


# To find an address, to connect, to agree on keys: each takes a second at worst.
LINE_S: Final = 10.0
# Whoever renews certificates does it in time; what ends sooner than this was forgotten.
SOON_DAYS: Final = 7
# Addresses, and names of a certificate, in one sentence.
MAX_NAMED: Final = 4

DNS, TCP, TLS = "dns", "tcp", "tls"
LINE = (DNS, TCP, TLS)


class Endpoint(NamedTuple):
    """Where a server is."""

    scheme: str
    host: str
    port: int

    @property
    def shown(self) -> str:
        """Host and port, for people."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


async def line_checks(place: Endpoint, timeout_s: float) -> Checks:
    """Whether somebody is there, and is who they should be."""
    seconds = min(timeout_s, LINE_S)
    try:
        proxy = proxy_for(place.scheme, place.host, place.port)
    except LocalProtocolError as error:
        yield failed(DNS, USAGE, str(error), "mend the variable, or unset it")
        return
    near = place if proxy is None else Endpoint("http", proxy.host, proxy.port)
    yield await _dns(near, seconds, proxy)
    yield await _tcp(near, seconds, proxy)
    if place.scheme == "http":
        yield _open_line(place)
    elif proxy is not None:
        yield skipped(TLS, "it goes through the proxy, and is seen with http")
    else:
        yield await _tls(place, seconds)


def _whose(place: Endpoint, proxy: Proxy | None) -> str:
    return place.host if proxy is None else f"the proxy {place.host}"


# ---------------------------------------------------------------- its name


async def _dns(place: Endpoint, seconds: float, proxy: Proxy | None) -> Check:
    whose = _whose(place, proxy)
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
        return fine(DNS, f"{whose} is an address")
    return fine(DNS, f"{whose} is {_listed(addresses)}")


def dns_failure(host: str, error: Exception) -> Check:
    """Why a name leads nowhere."""
    host = one_line(host)
    number = error.errno if isinstance(error, socket.gaierror) else None
    if number == socket.EAI_AGAIN:
        words = f"no name server says where {host} is"
        return failed(DNS, UNREACHABLE, words, "look at the network of this machine, or its VPN")
    words = f"there is no host {host}" if number is not None else f"{host} is no name of a host"
    return failed(DNS, UNREACHABLE, words, "look for a mistake in the name; some need a VPN")


# ---------------------------------------------------------------- a connection


async def _tcp(place: Endpoint, seconds: float, proxy: Proxy | None) -> Check:
    try:
        async with asyncio.timeout(seconds):
            line, _ = await Routes().connect(asyncio.Protocol, place.host, place.port)
    except TimeoutError:
        return tcp_failure(place, None, seconds)
    except OSError as error:
        return tcp_failure(place, error, seconds)
    line.close()
    through = f"{place.shown} takes connections"
    return fine(TCP, f"the proxy {through}" if proxy is not None else through)


def tcp_failure(place: Endpoint, error: OSError | None, seconds: float) -> Check:
    """Why nobody answers; None for the error where nothing was heard at all."""

    def told(words: str, mend: str) -> Check:
        return failed(TCP, UNREACHABLE, words, mend)

    if error is None or error.errno == errno.ETIMEDOUT:
        words = f"{place.shown} did not answer within {seconds:g} s"
        return told(words, "a firewall may drop it, or the machine is off; look at the port, too")
    if error.errno == errno.ECONNREFUSED:
        words = f"nobody listens on {place.shown}: the connection was refused"
        return told(words, "start the server, or mend the port in the address")
    if error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL):
        words = f"no way leads to {place.shown}: {os.strerror(error.errno).lower()}"
        return told(words, "look at the network of this machine, or its VPN")
    why = os.strerror(error.errno) if error.errno else str(error)
    return told(f"{place.shown} cannot be reached: {one_line(why).lower()}", "see what is there")


# ---------------------------------------------------------------- its certificate


def _open_line(place: Endpoint) -> Check:
    if is_loopback_host(place.host):
        return skipped(TLS, "this machine needs none")
    words = f"what is said to {place.host} can be read and changed on the way"
    return warned(TLS, words, "serve it over https, and write https://")


async def _tls(place: Endpoint, seconds: float) -> Check:
    try:
        cert = await _greeted(place, ssl.create_default_context(), seconds)
    except (TimeoutError, OSError) as error:
        names: list[str] = []
        if _is_other_name(error):
            names = await _names(place, seconds)
        return tls_failure(place, error, names)
    return _in_time(cert)


async def _greeted(place: Endpoint, context: ssl.SSLContext, seconds: float) -> dict[str, Any]:
    """The certificate of whoever is there, as far as the context lets it pass."""
    context.set_alpn_protocols(["http/1.1"])
    async with asyncio.timeout(seconds):
        line, _ = await Routes().connect(
            asyncio.Protocol, place.host, place.port, context, place.host
        )
    try:
        return line.get_extra_info("peercert") or {}
    finally:
        line.close()


async def _names(place: Endpoint, seconds: float) -> list[str]:
    """The names that a trusted certificate is for; nothing is said on that connection."""
    context = ssl.create_default_context()
    context.check_hostname = False
    try:
        cert = await _greeted(place, context, seconds)
    except (TimeoutError, OSError):
        return []
    return [str(value) for _, value in cert.get("subjectAltName", ())]


def _is_other_name(error: Exception) -> bool:
    return isinstance(error, ssl.SSLCertVerificationError) and error.verify_code in _OTHER_NAME


async def speaks_tls(place: Endpoint, seconds: float) -> bool:
    """Whether whoever is there expects TLS, with whichever certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        await _greeted(place, context, min(seconds, LINE_S))
    except (TimeoutError, OSError):
        return False
    return True


# What OpenSSL calls them (X509_V_ERR_…).
_EXPIRED, _NOT_YET = 10, 9
_SELF_SIGNED, _SELF_SIGNED_IN_CHAIN = 18, 19
_NO_ISSUER = (20, 21)
_OTHER_NAME = (62, 64)


def tls_failure(place: Endpoint, error: Exception, names: Iterable[str] = ()) -> Check:
    """Why there is no safe line; `names` are those of the certificate, where they are known."""
    host = one_line(place.host)

    def told(words: str, mend: str) -> Check:
        return failed(TLS, UNREACHABLE, words, mend)

    if isinstance(error, ssl.SSLCertVerificationError):
        code = error.verify_code
        if code == _EXPIRED:
            words = f"the certificate of {host} has expired"
            return told(words, "its operator renews it; if all have, look at this machine's clock")
        if code == _NOT_YET:
            words = f"the certificate of {host} is not valid yet"
            return told(words, "look at the clock of this machine, and of that one")
        if code in _OTHER_NAME:
            listed = _listed([one_line(name) for name in names])
            words = f"the certificate is not for {host}" + (f" but for {listed}" if listed else "")
            return told(words, "write the name that the certificate has, or get one for this name")
        if code in (_SELF_SIGNED, _SELF_SIGNED_IN_CHAIN):
            words = f"{host} certifies itself, and nobody here knows it"
            return told(words, "if it is yours, SSL_CERT_FILE names the file with its certificate")
        if code in _NO_ISSUER:
            words = f"nobody here knows who certifies {host}"
            return told(
                words,
                "its operator sends the certificates in between; for an authority of your own, "
                "SSL_CERT_FILE names the file with it",
            )
        words = f"the certificate of {host} is not trusted: {error.verify_message}"
        return told(words, "its operator has to mend it")
    if isinstance(error, ssl.SSLError):
        reason = error.reason or ""
        if reason in (
            "WRONG_VERSION_NUMBER",
            "HTTP_REQUEST",
            "UNKNOWN_PROTOCOL",
            "RECORD_LAYER_FAILURE",
        ):
            words = f"{place.shown} does not speak TLS"
            return told(words, "write http:// if it is on this machine, else mend the port")
        said = reason.lower().replace("_", " ") or "no reason given"
        words = f"{place.shown} agrees on no TLS: {one_line(said)}"
        return told(words, "it may be too old, or want a certificate from its clients")
    if isinstance(error, TimeoutError):
        words = f"{place.shown} takes connections, and says nothing to TLS"
        return told(words, "mend the port; this one may speak something else")
    words = f"{place.shown} ends the connection when it hears TLS"
    return told(words, "mend the port, or write http:// if it is on this machine")


def _in_time(cert: dict[str, Any]) -> Check:
    """A certificate that was accepted, and for how long it is."""
    until = cert.get("notAfter")
    if not until:
        return fine(TLS, "its certificate is trusted")
    ends = datetime.datetime.fromtimestamp(ssl.cert_time_to_seconds(until), datetime.UTC)
    left = ends - datetime.datetime.now(datetime.UTC)
    words = f"its certificate is trusted, until {ends.date().isoformat()}"
    if left < datetime.timedelta(days=SOON_DAYS):
        return warned(TLS, words, "its operator renews it before that")
    return fine(TLS, words)


def _listed(words: list[str]) -> str:
    more = f" and {len(words) - MAX_NAMED} more" if len(words) > MAX_NAMED else ""
    return ", ".join(words[:MAX_NAMED]) + more
