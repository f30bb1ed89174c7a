"""The settings of a server over HTTP: what was given, else the environment, else the default.

`server.run("http")` and the command `serve` go by the same table, so that one variable means one
thing: `COLONNADE_PORT=9000`. A value that is given in Python, or as an option, is stronger.

Rules: only a process that serves reads its environment: `serve` inside another program's loop and
`asgi` do not. A value that cannot be meant is an error that names the variable.
"""

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import UnsetType
from msgspec.inspect import IntType, type_info
from msgspec.structs import FieldInfo, fields

from colonnade.errors import LocalProtocolError

if TYPE_CHECKING:  # with them comes the web server, which not every command needs
    import ssl

    from colonnade.transport.http_server.connection import RunLimits
    from colonnade.transport.http_server.request import Limits

# All variables begin with it; the command's own ones, too.
ENV_PREFIX: Final = "COLONNADE_"
MAX_PORT: Final = 65535
# Of a file that TLS refused, to say why; a chain of certificates with its key has some 10 KiB.
MAX_PEM_BYTES: Final = 1024 * 1024
LEVELS: Final = ("debug", "info", "warning", "error", "critical")
# How a log line looks that is for people.
LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")


def read_port(value: str) -> int:
    """A port. Raises `LocalProtocolError`."""
    if value.isdecimal() and int(value) <= MAX_PORT:
        return int(value)
    raise LocalProtocolError(
        f"{value[:40]} is no port; there are 1 to {MAX_PORT}, and 0 for any free one"
    )


def read_flag(value: str) -> bool:
    """Whether something is switched on. Raises `LocalProtocolError`."""
    if value.lower() in (*_YES, *_NO):
        return value.lower() in _YES
    raise LocalProtocolError(f"{value[:40]!r} is neither 1 nor 0")


def read_level(value: str) -> str:
    """The least level that is logged. Raises `LocalProtocolError`."""
    name = str(value).lower()  # `logging.INFO` is a number
    if name in LEVELS:
        return name
    raise LocalProtocolError(f"{str(value)[:40]!r} is no log level; there are {', '.join(LEVELS)}")


def _words(value: str) -> tuple[str, ...]:
    return tuple(value.replace(",", " ").split())


# Each setting by its name in Python, with its variable and how that is read.
SETTINGS: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "host": ("HOST", str),
    "port": ("PORT", read_port),
    "path": ("PATH", str),
    "hosts": ("ALLOW_HOST", _words),
    "origins": ("ALLOW_ORIGIN", _words),
    "stateless": ("STATELESS", read_flag),
    "access_log": ("ACCESS_LOG", read_flag),
    "log_level": ("LOG_LEVEL", read_level),
    "log_json": ("LOG_JSON", read_flag),
    "ssl_certfile": ("SSL_CERTFILE", str),
    "ssl_keyfile": ("SSL_KEYFILE", str),
    "limit": ("LIMIT", _words),
}


def settled(given: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """What was given, and beside it what the environment says. Raises `LocalProtocolError`."""
    found = dict(given)
    for name, (variable, read) in SETTINGS.items():
        value = environ.get(ENV_PREFIX + variable)
        if name in found or value is None:
            continue
        try:
            found[name] = read(value)
        except LocalProtocolError as error:
            raise LocalProtocolError(f"{ENV_PREFIX}{variable}: {error}") from None
    return found


# ---------------------------------------------------------------- limits


def read_limits(words: Iterable[str]) -> "tuple[Limits, RunLimits]":
    """Limits from `body_bytes=1048576`, each by its own name. Raises `LocalProtocolError`."""
    from colonnade.transport.http_server.connection import RunLimits
    from colonnade.transport.http_server.request import Limits

    app: dict[str, Any] = {}
    run: dict[str, Any] = {}
    kinds = {field.name: (app, field) for field in fields(Limits)}
    kinds |= {field.name: (run, field) for field in fields(RunLimits)}
    for word in words:
        name, equals, value = word.partition("=")
        if name not in kinds:
            from difflib import get_close_matches

            near = get_close_matches(name, kinds, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(kinds))}"
            raise LocalProtocolError(f"there is no limit {name[:40]!r}; {hint}")
        into, field = kinds[name]
        into[name] = _number(name, value if equals else "", field)
    return Limits(**app), RunLimits(**run)


def _number(name: str, value: str, field: FieldInfo) -> int | float:
    whole = isinstance(type_info(field.type), IntType)
    try:
        number = int(value) if whole else float(value)
    except ValueError:
        number = -1
    # No limit at all is no number: NaN and infinity compare as neither.
    if not 0 <= number < float("inf"):
        kind = "a whole number" if whole else "a number"
        usual = f"{name}={_usual(field)}"
        raise LocalProtocolError(f"{name}={value[:40]}: give {kind} from 0, such as {usual}")
    return number


def _usual(field: FieldInfo) -> str:
    assert not isinstance(field.default, UnsetType)
    return f"{field.default:g}" if isinstance(field.default, float) else str(field.default)


# ---------------------------------------------------------------- TLS


def tls_context(certfile: str | None, keyfile: str | None) -> "ssl.SSLContext | None":
    """What serves TLS; None where no certificate was given. Raises `LocalProtocolError`."""
    if certfile is None and keyfile is None:
        return None
    import ssl

    if certfile is None:
        raise LocalProtocolError("a TLS key was given without a certificate; give both")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # A password is never asked for at a prompt: there is no user.
        context.load_cert_chain(certfile, keyfile, password=lambda: "")
    except OSError as error:  # of the file, or of what is in it
        files = certfile if keyfile is None else f"{certfile} and {keyfile}"
        why = _tls_problem(certfile, keyfile, error)
        raise LocalProtocolError(f"TLS cannot be served with {files}: {why}") from None
    return context


def _tls_problem(certfile: str, keyfile: str | None, error: OSError) -> str:
    """What is wrong with these files, and what to do; OpenSSL says neither."""
    has_certificate, has_key = _pem_parts(certfile)
    certificate_in_keyfile, key_in_keyfile = _pem_parts(keyfile) if keyfile else (False, has_key)
    if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
        return "the key does not belong to the certificate; name the key of this certificate"
    if None not in (has_certificate, key_in_keyfile):  # both files can be read
        if not has_certificate and has_key and certificate_in_keyfile:
            return "the files are swapped; give the certificate as certfile, and its key as keyfile"
        if not has_certificate:
            return f"{certfile} has no certificate in PEM format"
        if not key_in_keyfile and keyfile is None:
            return f"{certfile} has no key; give the file of its key as well"
        if not key_in_keyfile:
            return f"{keyfile} has no key in PEM format"
    why = error.strerror or str(error)
    return f"{why}; name a certificate chain and its key in PEM, without a password"


def _pem_parts(file: str) -> tuple[bool | None, bool | None]:
    """Whether a certificate and a key are in a file; None where it cannot be read."""
    try:
        with open(file, "rb") as opened:
            data = opened.read(MAX_PEM_BYTES)
    except OSError:
        return None, None
    return b"-----BEGIN CERTIFICATE-----" in data, b"PRIVATE KEY-----" in data


# ---------------------------------------------------------------- the log


def prepare_log(level: str | None, *, access_log: bool, json: Callable[[int], None] | None) -> None:
    """Log as it was asked for; where nothing was, as the program has it. Only for whoever owns
    the process. `json` sets up lines of JSON. Raises `LocalProtocolError` for no level."""
    number = logging.getLevelNamesMapping()[read_level(level or "warning").upper()]
    if json is not None:
        json(number)
    elif level is not None or access_log:
        if not logging.getLogger().handlers:
            logging.basicConfig(format=LOG_FORMAT)
        logging.getLogger().setLevel(number)
    if access_log:
        requests = logging.getLogger("colonnade.requests")
        requests.setLevel(min(number, logging.INFO))
