"""The line to a server at an address: its name, a connection, its certificate.

Rules: nothing is sent on these connections but what TLS itself says. Every wait ends. Certificates
are judged as every other command judges them, and a refused one is never used.
"""

import asyncio
import datetime
import errno
import os
import socket
import ssl
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from colonnade.auth.addresses import is_this_machine
from colonnade.cli.doctor import Check, Checks, failed, fine, skipped, warned
from colonnade.cli.text import one_line
from colonnade.cli.trouble import UNREACHABLE, USAGE
from colonnade.errors import LocalProtocolError
from colonnade.transport.http_proxies import Proxy, proxy_for
from colonnade.transport.http_routes import Routes

# To find an address, to connect, to agree on keys: each takes a second at worst.
LINE_S: Final = 10.0
# Whoever renews certificates does it in time; what ends sooner than this was forgotten.
SOON_DAYS: Final = 7
# Addresses, and names of a certificate, in one sentence.
MAX_NAMED: Final = 4

DNS, TCP, TLS = "dns", "tcp", "tls"
LINE = (DNS, TCP, TLS)


class Place(NamedTuple):
    """Where a server is."""

    scheme: str
    host: str
    port: int

    @property
    def shown(self) -> str:
        """Host and port, for people."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


async def line_checks(place: Place, timeout_s: float) -> Checks:
    """Whether somebody is there, and is who they should be."""
    seconds = min(timeout_s, LINE_S)
    try:
        proxy = proxy_for(place.scheme, place.host, place.port)
    except LocalProtocolError as error:
        yield failed(DNS, USAGE, str(error), "mend the variable, or unset it")
        return
    near = place if proxy is None else Place("http", proxy.host, proxy.port)
    yield await _dns(near, seconds, proxy)
    yield await _tcp(near, seconds, proxy)
    if place.scheme == "http":
        yield _open_line(place)
    elif proxy is not None:
        yield skipped(TLS, "it goes through the proxy, and is seen with http")
    else:
        yield await _tls(place, seconds)


def _whose(place: Place, proxy: Proxy | None) -> str:
    return place.host if proxy is None else f"the proxy {place.host}"


# ---------------------------------------------------------------- its name


async def _dns(place: Place, seconds: float, proxy: Proxy | None) -> Check:
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


async def _tcp(place: Place, seconds: float, proxy: Proxy | None) -> Check:
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


def tcp_failure(place: Place, error: OSError | None, seconds: float) -> Check:
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


def _open_line(place: Place) -> Check:
    if is_this_machine(place.host):
        return skipped(TLS, "this machine needs none")
    words = f"what is said to {place.host} can be read and changed on the way"
    return warned(TLS, words, "serve it over https, and write https://")


async def _tls(place: Place, seconds: float) -> Check:
    try:
        cert = await _greeted(place, ssl.create_default_context(), seconds)
    except (TimeoutError, OSError) as error:
        names: list[str] = []
        if _is_other_name(error):
            names = await _names(place, seconds)
        return tls_failure(place, error, names)
    return _in_time(cert)


async def _greeted(place: Place, context: ssl.SSLContext, seconds: float) -> dict[str, Any]:
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


async def _names(place: Place, seconds: float) -> list[str]:
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


async def speaks_tls(place: Place, seconds: float) -> bool:
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


def tls_failure(place: Place, error: Exception, names: Iterable[str] = ()) -> Check:
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
