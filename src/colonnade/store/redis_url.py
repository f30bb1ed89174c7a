"""The URL of a Redis store: its servers, its database, its credentials and its TLS files.

    redis://[user:password@]host[:port][/database]                      one server
    rediss://host?ca=/etc/ca.pem&cert=client.pem&key=client.key         the same over TLS
    redis+sentinel://host[:port],host[:port]/service[/database]         the primary of a service
    rediss+sentinel://…                                                 the same over TLS

Rules: a message or a representation never contains the user, the password or the query.
"""

from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from colonnade.errors import InvalidArgument

PORT = 6379
SENTINEL_PORT = 26379

_SCHEMES = ("redis", "rediss", "redis+sentinel", "rediss+sentinel")
_TLS_FILES = ("ca", "cert", "key")


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """Where a store is. `service` is the name that sentinels know it by, empty without them."""

    servers: tuple[tuple[str, int], ...]
    tls: bool = False
    service: str = ""
    database: int = 0
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    tls_files: dict[str, str] = field(default_factory=dict[str, str], repr=False)

    def __str__(self) -> str:
        """The URL without credentials and query."""
        scheme = "rediss" if self.tls else "redis"
        places = ",".join(f"[{h}]:{p}" if ":" in h else f"{h}:{p}" for h, p in self.servers)
        path = f"/{self.database}" if self.database else ""
        if self.service:
            return f"{scheme}+sentinel://{places}/{self.service}{path}"
        return f"{scheme}://{places}{path}"


def parse_redis_url(url: str) -> RedisUrl:
    """Raises `InvalidArgument`, without the URL in its message, since it may have a password."""
    try:
        parts = urlsplit(url)
        if parts.scheme not in _SCHEMES:
            raise InvalidArgument(f"the URL of a store begins with {'://, '.join(_SCHEMES)}://")
        has_sentinels = parts.scheme.endswith("sentinel")
        credentials, _, places = parts.netloc.rpartition("@")
        user, _, password = credentials.partition(":")
        servers = tuple(
            _server(place, SENTINEL_PORT if has_sentinels else PORT) for place in places.split(",")
        )
        steps = [unquote(step) for step in parts.path.split("/") if step]
        service = steps.pop(0) if has_sentinels and steps else ""
        database = int(steps.pop(0)) if steps else 0
        tls_files = dict(parse_qsl(parts.query, keep_blank_values=True))
    except InvalidArgument:
        raise
    except ValueError:  # which may quote the URL
        raise InvalidArgument(
            "the URL of the store has an invalid host, port or database"
        ) from None
    if steps or database < 0 or parts.fragment:
        raise InvalidArgument("the path of the URL of the store is its database; 0 by default")
    if has_sentinels and not service:
        raise InvalidArgument(
            "the URL of the store names no service: redis+sentinel://host/service"
        )
    if unknown := set(tls_files) - set(_TLS_FILES):
        raise InvalidArgument(
            f"the URL of the store has {len(unknown)} unknown options; there are "
            f"{', '.join(_TLS_FILES)}, which are files"
        )
    tls = parts.scheme.startswith("rediss")
    if tls_files and not tls:
        raise InvalidArgument("the URL of the store has TLS files, but no rediss:// scheme")
    return RedisUrl(servers, tls, service, database, unquote(user), unquote(password), tls_files)


def _server(place: str, default: int) -> tuple[str, int]:
    parts = urlsplit(f"//{place}")
    if not parts.hostname:
        raise InvalidArgument("the URL of the store names no host")
    return parts.hostname, parts.port or default
