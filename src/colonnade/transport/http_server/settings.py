"""Settings of the HTTP server: arguments, else environment variables, else defaults.

`server.run("http")` and the command `serve` use the same table, so that one variable means one
thing: `COLONNADE_PORT=9000`. A value given in Python, or as an option, takes precedence.

Rules: only a process that serves reads its environment: `serve` inside another program's loop and
`asgi` do not. An invalid value is an error that names the variable.
"""

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import UnsetType
from msgspec.inspect import IntType, type_info
from msgspec.structs import FieldInfo, fields

from colonnade.errors import InvalidArgument, LocalProtocolError

if TYPE_CHECKING:  # they import the web server, which not every command needs
    import ssl

    from colonnade.transport.http_server.connection import RunLimits
    from colonnade.transport.http_server.request import Limits

# The prefix of all variables, those of the command too.
ENV_PREFIX: Final = "COLONNADE_"
MAX_PORT: Final = 65535
# Of processes, or of tasks in one: more is a typing error.
MAX_COUNT: Final = 100_000
# How much of a file that TLS refused is read to say why; a certificate chain with its key has some
# 10 KiB.
MAX_PEM_BYTES: Final = 1024 * 1024
LEVELS: Final = ("debug", "info", "warning", "error", "critical")
# The format of log lines that are not JSON.
LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")


def read_port(value: str) -> int:
    """A port number. Raises `InvalidArgument`."""
    if value.isdecimal() and int(value) <= MAX_PORT:
        return int(value)
    raise InvalidArgument(
        f"{value[:40]} is not a port; use 1 to {MAX_PORT}, or 0 for any free one",
        argument="port",
    )


def read_flag(value: str) -> bool:
    """A boolean. Raises `InvalidArgument`."""
    if value.lower() in (*_YES, *_NO):
        return value.lower() in _YES
    raise InvalidArgument(f"{value[:40]!r} is neither 1 nor 0")


def read_count(value: str) -> int:
    """A whole number above 0. Raises `InvalidArgument`."""
    if value.isdecimal() and 0 < int(value) <= MAX_COUNT:
        return int(value)
    raise InvalidArgument(f"{value[:40]!r} is not a number from 1 to {MAX_COUNT}")


def read_level(value: str) -> str:
    """A log level. Raises `InvalidArgument`."""
    name = str(value).lower()  # `logging.INFO` is a number
    if name in LEVELS:
        return name
    raise InvalidArgument(
        f"{str(value)[:40]!r} is not a log level; use one of {', '.join(LEVELS)}",
        argument="log_level",
    )


def _words(value: str) -> tuple[str, ...]:
    return tuple(value.replace(",", " ").split())


# Each setting by its name in Python, with its variable and its parser.
SETTINGS: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "host": ("HOST", str),
    "port": ("PORT", read_port),
    "path": ("PATH", str),
    "hosts": ("ALLOW_HOST", _words),
    "origins": ("ALLOW_ORIGIN", _words),
    "trusted_proxies": ("TRUSTED_PROXY", _words),
    "stateless": ("STATELESS", read_flag),
    "access_log": ("ACCESS_LOG", read_flag),
    "log_level": ("LOG_LEVEL", read_level),
    "log_json": ("LOG_JSON", read_flag),
    "ssl_certfile": ("SSL_CERTFILE", str),
    "ssl_keyfile": ("SSL_KEYFILE", str),
    "limit": ("LIMIT", _words),
}


# Those of the command as well, which decides how many processes there are and what they do.
COMMAND_SETTINGS: Final[dict[str, tuple[str, Callable[[str], Any]]]] = SETTINGS | {
    "workers": ("WORKERS", read_count),
    "no_task_runner": ("NO_TASK_RUNNER", read_flag),
}


def with_environment(
    given: Mapping[str, Any],
    environ: Mapping[str, str] = os.environ,
    settings: Mapping[str, tuple[str, Callable[[str], Any]]] = SETTINGS,
) -> dict[str, Any]:
    """The given settings, completed from the environment. Raises `InvalidArgument`."""
    found = dict(given)
    for name, (variable, read) in settings.items():
        value = environ.get(ENV_PREFIX + variable)
        if name in found or value is None:
            continue
        try:
            found[name] = read(value)
        except LocalProtocolError as error:
            raise InvalidArgument(f"{ENV_PREFIX}{variable}: {error}", argument=name) from None
    return found


# ---------------------------------------------------------------- limits


def read_limits(assignments: Iterable[str]) -> "tuple[Limits, RunLimits]":
    """Limits from strings such as `max_body_bytes=1048576`. Raises `InvalidArgument`."""
    from colonnade.transport.http_server.connection import RunLimits
    from colonnade.transport.http_server.request import Limits

    app: dict[str, Any] = {}
    run: dict[str, Any] = {}
    kinds = {field.name: (app, field) for field in fields(Limits)}
    kinds |= {field.name: (run, field) for field in fields(RunLimits)}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if name not in kinds:
            near = _similar(name[:40], kinds)
            hint = (
                f"did you mean {' or '.join(near)}?"
                if near
                else f"there are {', '.join(sorted(kinds))}"
            )
            raise InvalidArgument(f"there is no limit {name[:40]!r}; {hint}", argument="limit")
        into, field = kinds[name]
        into[name] = _number(name, value if equals else "", field)
    return Limits(**app), RunLimits(**run)


def _similar(name: str, known: Iterable[str]) -> list[str]:
    """Limits that may be meant: the one that is spelled alike, else up to three that share a word,
    such as `session_bytes` and `max_resumable_bytes_per_session`."""
    from difflib import get_close_matches

    def words(limit: str) -> set[str]:
        return {word.removesuffix("s") for word in limit.split("_")} - {"", "max"}

    known = list(known)
    if near := get_close_matches(name, known, n=1, cutoff=0.75):
        return near
    shared = {limit: len(words(name) & words(limit)) for limit in known}
    most = max(shared.values())
    best = [limit for limit, count in shared.items() if count == most > 0]
    return get_close_matches(name, best, n=3, cutoff=0.0)


def _number(name: str, value: str, field: FieldInfo) -> int | float:
    whole = isinstance(type_info(field.type), IntType)
    try:
        number = int(value) if whole else float(value)
    except ValueError:
        number = -1
    # NaN and infinity are no limits.
    if not 0 <= number < float("inf"):
        kind = "a whole number" if whole else "a number"
        example = f"{name}={_default(field)}"
        raise InvalidArgument(
            f"{name}={value[:40]}: give {kind} from 0, such as {example}", argument="limit"
        )
    return number


def _default(field: FieldInfo) -> str:
    assert not isinstance(field.default, UnsetType)
    return f"{field.default:g}" if isinstance(field.default, float) else str(field.default)


# ---------------------------------------------------------------- TLS


def tls_context(certfile: str | None, keyfile: str | None) -> "ssl.SSLContext | None":
    """The TLS context; None if no certificate was given. Raises `InvalidArgument`."""
    if certfile is None and keyfile is None:
        return None
    import ssl

    if certfile is None:
        raise InvalidArgument(
            "ssl_keyfile is given without ssl_certfile; TLS needs a certificate",
            argument="ssl_certfile",
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # No prompt for a password: a server has no user.
        context.load_cert_chain(certfile, keyfile, password=lambda: "")
    except OSError as error:  # about the file, or its contents
        files = certfile if keyfile is None else f"{certfile} and {keyfile}"
        why = _tls_problem(certfile, keyfile, error)
        raise InvalidArgument(
            f"TLS cannot be served with {files}: {why}", argument="ssl_certfile"
        ) from None
    return context


def _tls_problem(certfile: str, keyfile: str | None, error: OSError) -> str:
    """What is wrong with these files, and what to do; OpenSSL reports neither."""
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
    """Whether a file has a certificate and a key; None if it cannot be read."""
    try:
        with open(file, "rb") as opened:
            data = opened.read(MAX_PEM_BYTES)
    except OSError:
        return None, None
    return b"-----BEGIN CERTIFICATE-----" in data, b"PRIVATE KEY-----" in data


# ---------------------------------------------------------------- the log


def prepare_log(level: str | None, *, access_log: bool, json: Callable[[int], None] | None) -> None:
    """Configure logging, for a process that serves and nothing else; without arguments, as the
    program did. `json` sets up JSON lines. Raises `InvalidArgument` for an unknown level."""
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
