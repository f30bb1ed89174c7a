"""What stands at an address: whether it answers as a server would, and where its tokens come from.

Rules: what was typed for this server (headers) goes to its own address, and nowhere else: no
redirect is followed, and documents are asked for without it, by the guarded fetcher. Every wait
ends. What a server wrote is cleaned before a person reads it.
"""

import asyncio
import contextlib
import re
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar
from urllib.parse import urljoin, urlsplit

from colonnade.auth.addresses import is_this_machine
from colonnade.auth.fetching import Fetcher
from colonnade.auth.flow import Fetch, Flow, Reply
from colonnade.auth.flow_code import check_pkce
from colonnade.auth.flow_discovery import discover
from colonnade.auth.places import origin, shown
from colonnade.cli.doctor import Check, failed, fine, skipped, warned
from colonnade.cli.text import one_line
from colonnade.cli.trouble import AUTHORIZATION, PROTOCOL, UNREACHABLE
from colonnade.client.connect import own_name
from colonnade.errors import (
    AuthError,
    CannotConnect,
    CannotFetch,
    ChannelError,
    ColonnadeError,
    Fault,
    FaultKind,
    RemoteProtocolError,
    TimedOut,
)
from colonnade.protocol import types as t
from colonnade.protocol.httprules import NOT_FOUND, headers_for_request
from colonnade.protocol.httprules_challenges import Challenges, read_challenges
from colonnade.protocol.httprules_gate import EVENTS_TYPE, JSON_TYPE
from colonnade.protocol.identity import Identity
from colonnade.protocol.jsonrpc import Failure, decode
from colonnade.protocol.jsonrpc import Reply as Answered
from colonnade.protocol.link import DISCOVER, Link
from colonnade.protocol.methods import Side
from colonnade.protocol.revision import EVERY, NEWEST
from colonnade.transport.http_client import HttpPool
from colonnade.transport.http_endpoint import KEEPING, PAGE_TYPE, PASSING, USUAL

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
    there = one_line(shown(place))
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
    here = is_this_machine(urlsplit(url).hostname or "")
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
    named = one_line(shown(issuer.issuer))
    if issuer.legacy:
        words = f"it has none, as in 2025-03-26: its tokens are issued by {named} itself"
        return fine(DOCUMENTS, words)
    if not issuer.registration_endpoint:
        words = f"its tokens are issued by {named}, which registers nobody by itself"
        mend = f"register a client there: colonnade login {shown(url)} --client-id ID --issuer URL"
        return warned(DOCUMENTS, words, mend)
    return fine(DOCUMENTS, f"its tokens are issued by {named}")


async def _driven(flow: Flow[T], fetcher: Fetcher) -> T:
    """Do what a flow of documents wants: fetch, without a credential, and nothing else."""
    try:
        step = next(flow)
        while True:
            assert isinstance(step, Fetch)
            try:
                fetched = await fetcher.fetch(step.method, step.url, step.headers, step.body)
            except CannotFetch as error:
                step = flow.throw(CannotConnect(f"{error}: {error.why}"))
            else:
                reply = Reply(fetched.status, tuple(fetched.headers.items()), fetched.body)
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
    where = one_line(shown(url))
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
