"""What is kept of a login, and under which names: a server, its issuer, a client.

Rules: a name never tells what it is of, since names are not sealed. What cannot be read, or is not
what its name says, is as good as nothing: then somebody logs in again.
"""

import hashlib
from typing import TypeVar

import msgspec
from msgspec import Struct

from colonnade.auth.flow import Erase, Flow, Load, Save
from colonnade.auth.flow_clients import Registered
from colonnade.auth.flow_discovery import Found
from colonnade.auth.flow_tokens import Tokens

T = TypeVar("T")


class Held(Struct, frozen=True):
    """What we hold for one server: where its tokens come from, who we are there, the tokens."""

    found: Found
    client: Registered
    tokens: Tokens

    @property
    def is_whole(self) -> bool:
        """Whether all of it is of one issuer; what is not is never used (CL-15)."""
        issuer = self.found.issuer.issuer
        return bool(issuer) and issuer == self.client.issuer == self.tokens.issuer


class Pointer(Struct, frozen=True):
    """Which login is the one in use: of which issuer, as which client."""

    issuer: str
    client_id: str


def pointer_name(server: str, account: str) -> str:
    """Where it says which login of a server is in use."""
    return _name("login", server, account)


def held_name(server: str, issuer: str, client_id: str) -> str:
    """Where the login of one client at one issuer for one server is."""
    return _name("tokens", server, issuer, client_id)


def client_name(server: str, issuer: str) -> str:
    """Where the client is that we registered with an issuer."""
    return _name("client", server, issuer)


def lease_name(server: str, account: str) -> str:
    """Where it says who is logging in, or renewing, now."""
    return _name("lease", server, account)


def _name(kind: str, *parts: str) -> str:
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return f"oauth {kind} {digest}"


def packed(value: Struct) -> bytes:
    """A record as it is kept."""
    return msgspec.json.encode(value)


def unpacked(kind: type[T], data: object) -> T | None:
    """A record that was kept; None for nothing, and for what is none."""
    if not isinstance(data, bytes):
        return None
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError):
        return None


def recall(server: str, account: str) -> Flow[Held | None]:
    """The login of a server that is in use."""
    pointer = unpacked(Pointer, (yield Load(pointer_name(server, account))))
    if pointer is None:
        return None
    name = held_name(server, pointer.issuer, pointer.client_id)
    held = unpacked(Held, (yield Load(name)))
    if held is None or not held.is_whole or held.found.issuer.issuer != pointer.issuer:
        return None
    return held if held.found.server == server else None


def remember(held: Held, account: str) -> Flow[None]:
    """This is the login in use from now on."""
    server, issuer, client_id = held.found.server, held.client.issuer, held.client.client_id
    yield Save(held_name(server, issuer, client_id), packed(held))
    yield Save(pointer_name(server, account), packed(Pointer(issuer, client_id)))


def forget(held: Held) -> Flow[None]:
    """Keep this login no more, if it is still the one that is kept (CL-31)."""
    name = held_name(held.found.server, held.client.issuer, held.client.client_id)
    kept = unpacked(Held, (yield Load(name)))
    if kept is not None and kept.tokens.generation == held.tokens.generation:
        yield Erase(name)
