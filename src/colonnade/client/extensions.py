"""Extensions of a client (SEP-2133): those it declares, their requests and notifications.

Rules: an extension is used if both sides declared it; a request of one that the server did not
declare is refused before it is sent.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from msgspec import Raw
from msgspec.structs import replace

from colonnade.errors import (
    Fault,
    FaultKind,
    InvalidArgument,
    InvalidArgumentType,
    LocalProtocolError,
)
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.extensions import (
    ExtensionParams,
    ExtensionResult,
    check_extensions,
    check_own_method,
    decode_extension_result,
    extension_notification,
)
from colonnade.protocol.methods import Method
from colonnade.protocol.negotiation import Peer

# Called with the params of each notification, without `_meta`.
OnExtensionNotification: TypeAlias = Callable[[dict[str, Any]], Any]

COMPLETE = ("complete", None)


class ClientExtensions:
    """The extensions that a client declares, and the handlers of their notifications."""

    def __init__(self, declared: Mapping[str, Mapping[str, Any]]) -> None:
        self.declared: dict[str, dict[str, Any]] = check_extensions(declared)
        # The definitions of notifications, for the link; handlers may be added at any time.
        self.methods: dict[str, Method] = {}
        self.handlers: dict[str, OnExtensionNotification] = {}

    def declare(self, capabilities: t.ClientCapabilities) -> t.ClientCapabilities:
        """These capabilities and the extensions."""
        return replace(capabilities, extensions=self.declared or None)

    def add_handler(self, method: str, handler: OnExtensionNotification, extension: str) -> None:
        """Call a function with each notification of this name."""
        self._check_declared(extension)
        check_own_method(method)
        if not callable(handler):
            raise InvalidArgumentType(f"{handler!r} is not a function", argument="handler")
        self.methods[method] = extension_notification(method, extension)
        self.handlers[method] = handler

    def params(
        self, method: str, params: Mapping[str, Any] | None, extension: str, peer: Peer, server: str
    ) -> ExtensionParams:
        """The params of a request. Raises `LocalProtocolError` if it cannot be sent."""
        self._check_declared(extension)
        check_own_method(method)
        if not isinstance(params, Mapping | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgumentType(
                f"the params of {method} are an object, not {type(params).__name__}",
                argument="params",
            )
        if extension not in peer.extensions:  # R0927
            theirs = ", ".join(sorted(peer.extensions)) or "none"
            raise LocalProtocolError(
                f"{server} has not declared the extension {extension}, so {method} was not sent; "
                f"it declares {theirs}"
            )
        members = dict(params or {})
        meta: Any = members.pop("_meta", None)
        return ExtensionParams(extension=extension, members=members, meta=meta)

    def _check_declared(self, extension: str) -> None:
        if extension not in self.declared:
            raise InvalidArgument(
                f"this client has not declared the extension {extension!r}; connect with "
                f"extensions={{{extension!r}: {{}}}}",
                argument="extension",
            )


def decode_extension(raw: Raw, method: str) -> ExtensionResult:
    """The result of a request of an extension. Raises `Fault` (R0742)."""
    result = decode_extension_result(raw, method)
    if result.result_type not in COMPLETE:
        words = f"the resultType of {method} is not recognised"
        raise Fault(FaultKind.INVALID_PARAMS, words)
    return result


def decode_extension_notification(raw: Raw) -> dict[str, Any]:
    """The params of a notification of an extension, without `_meta`. Raises `Fault`."""
    members = decode_as(dict[str, Any], raw)
    members.pop("_meta", None)
    return members
