"""Extensions of the protocol (SEP-2133): their identifiers and settings, methods and messages.

Both sides declare the extensions that they support in `capabilities.extensions`, by identifier,
each with an object of settings. The methods of an extension exist between peers that both
declared it.

Rules: data and checks only. The members of a message of an extension stay raw: only the extension
knows their types.
"""

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final, cast

import msgspec
from msgspec import Raw

from colonnade.errors import (
    Fault,
    FaultKind,
    InvalidArgument,
    InvalidArgumentType,
    LocalProtocolError,
)
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_unchecked
from colonnade.protocol.codec.encode import encode_finite
from colonnade.protocol.json_checks import DECODE_ERRORS
from colonnade.protocol.methods import CLIENT, SERVER, Method, Side
from colonnade.protocol.revision import ALL

# A client without a handshake sends its settings with every request, in `_meta`; those of the
# extensions in use have some 100 bytes.
MAX_SETTINGS_BYTES = 4096
# Of one side. Each is in every declaration.
MAX_EXTENSIONS = 32
MAX_ID_CHARACTERS = 200
# The longest method of the protocol has 44 characters.
MAX_METHOD_CHARACTERS = 128

# Extensions of the MCP organization; their prefix is reserved for it.
OFFICIAL: Final = frozenset(
    {
        t.TASKS_EXTENSION_ID,
        "io.modelcontextprotocol/enterprise-managed-authorization",
        "io.modelcontextprotocol/oauth-client-credentials",
        "io.modelcontextprotocol/skills",
        "io.modelcontextprotocol/ui",
    }
)

# The methods that a revision defines; an extension of an author has others.
DEFINED: Final = frozenset(
    name
    for revision in ALL
    for table in (revision.methods, *revision.extensions.values())
    for name in table
)
_METHOD = r"[A-Za-z0-9_.$-]+(?:/[A-Za-z0-9_.$-]+)+"


# ---------------------------------------------------------------- declarations


def check_extension_id(identifier: object) -> str:
    """Return the identifier of an extension: `com.example/search`. Raises `InvalidArgument` for
    one that is malformed or reserved, `InvalidArgumentType` for what is not a string."""
    if not isinstance(identifier, str):
        raise InvalidArgumentType(
            f"the identifier of an extension is a string, not {type(identifier).__name__}: "
            "'com.example/search'",
            argument="extensions",
        )
    if len(identifier) > MAX_ID_CHARACTERS or not t.valid_extension_id(identifier):  # R0926
        raise InvalidArgument(
            f"{identifier[:MAX_ID_CHARACTERS]!r} is not the identifier of an extension; write a "
            "domain of yours in reverse, a slash and a name: 'com.example/search'",
            argument="extensions",
        )
    if t.reserved_meta_key(identifier) and identifier not in OFFICIAL:
        raise InvalidArgument(
            f"{identifier!r}: this prefix is reserved for extensions of the MCP organization, and "
            f"there is none of this name; use a domain of yours, or one of {sorted(OFFICIAL)}",
            argument="extensions",
        )
    return identifier


def check_settings(identifier: str, settings: object) -> dict[str, Any]:
    """Return a copy of the settings of an extension, as JSON values. Raises `InvalidArgument`,
    `InvalidArgumentType`."""
    if not isinstance(settings, Mapping):
        raise InvalidArgumentType(
            f"{identifier}: the settings are an object with string keys, not "
            f"{type(settings).__name__}; {{}} is none",
            argument="settings",
        )
    try:
        written = encode_finite(dict(cast("Mapping[str, Any]", settings)))
    except LocalProtocolError as error:
        raise InvalidArgument(f"{identifier}: settings: {error}", argument="settings") from None
    if len(written) > MAX_SETTINGS_BYTES:
        raise InvalidArgument(
            f"{identifier}: the settings have {len(written)} bytes as JSON; they are sent again "
            f"and again, and may have {MAX_SETTINGS_BYTES}",
            argument="settings",
        )
    return cast("dict[str, Any]", msgspec.json.decode(written))


def check_extensions(extensions: object) -> dict[str, dict[str, Any]]:
    """Return the extensions that one side declares, each with its settings. Raises
    `InvalidArgument`, `InvalidArgumentType`."""
    if not isinstance(extensions, Mapping):
        raise InvalidArgumentType(
            "extensions= takes the settings of each extension by its identifier, not "
            f"{type(extensions).__name__}: {{'com.example/search': {{}}}}",
            argument="extensions",
        )
    given = cast("Mapping[object, object]", extensions)
    if len(given) > MAX_EXTENSIONS:
        raise InvalidArgument(
            f"{len(given)} extensions; at most {MAX_EXTENSIONS} can be declared",
            argument="extensions",
        )
    found: dict[str, dict[str, Any]] = {}
    for key, settings in given.items():
        identifier = check_extension_id(key)
        found[identifier] = check_settings(identifier, settings)
    return found


# ---------------------------------------------------------------- messages


class ExtensionParams(t.RequestParams, kw_only=True):
    """The params of a request of an extension: its members, and which extension it is."""

    is_open: ClassVar[bool] = True

    extension: str
    members: dict[str, Any]


class ExtensionNotificationParams(t.NotificationParams, kw_only=True):
    """The params of a notification of an extension."""

    is_open: ClassVar[bool] = True

    members: dict[str, Any]


class ExtensionResult(t.Result, kw_only=True):
    """The result of a request of an extension."""

    is_open: ClassVar[bool] = True

    members: dict[str, Any]


class _ResultMembers(t.Result, kw_only=True):
    """The members that every result may have."""


_members: Final = msgspec.json.Decoder(dict[str, Raw])
_COMMON: Final = frozenset(_ResultMembers.__struct_encode_fields__)


def decode_members(raw: Raw | bytes, what: str) -> dict[str, Raw]:
    """The members of an object. Raises `Fault`."""
    try:
        return _members.decode(raw or b"{}")
    except DECODE_ERRORS as error:
        words = f"{what}: expected an object, {error}"
        raise Fault(FaultKind.INVALID_PARAMS, words) from None


def decode_extension_result(raw: Raw | bytes, method: str) -> ExtensionResult:
    """A result of an extension, with its `_meta` and `resultType` apart. Raises `Fault`."""
    members = decode_members(raw, f"the result of {method}")
    common = decode_unchecked(_ResultMembers, raw)
    own = {name: value for name, value in members.items() if name not in _COMMON}
    return ExtensionResult(meta=common.meta, result_type=common.result_type, members=own)


# ---------------------------------------------------------------- methods


def check_own_method(name: object) -> str:
    """Return the name of a method of an extension that no revision defines: `search/query`. Raises
    `InvalidArgument`, `InvalidArgumentType`."""
    if not isinstance(name, str):
        raise InvalidArgumentType(
            f"the name of a method is a string, not {type(name).__name__}: 'search/query'",
            argument="name",
        )
    if len(name) > MAX_METHOD_CHARACTERS or not re.fullmatch(_METHOD, name):
        raise InvalidArgument(
            f"{name[:MAX_METHOD_CHARACTERS]!r} is not the name of a method; write names with "
            "slashes between them: 'search/query'",
            argument="name",
        )
    if name in DEFINED:
        raise InvalidArgument(
            f"{name!r} is a method of the protocol; an extension has others", argument="name"
        )
    return name


def notification_params(method: object, params: object) -> "ExtensionNotificationParams":
    """The params of a notification of an extension. Raises `InvalidArgument`,
    `InvalidArgumentType`."""
    name = check_own_method(method)
    if not isinstance(params, Mapping):
        raise InvalidArgumentType(
            f"the params of {name} are an object, not {type(params).__name__}", argument="params"
        )
    return ExtensionNotificationParams(members=dict(cast("Mapping[str, Any]", params)))


def extension_request(name: str, extension: str) -> Method:
    """The definition of a request that clients send, if they declared the extension."""
    return Method(
        name=name,
        senders=CLIENT,
        load_params=lambda: ExtensionParams,
        load_result=lambda: ExtensionResult,
        needs=f"extensions.{extension}",
        needs_of=Side.CLIENT,
    )


def extension_notification(name: str, extension: str) -> Method:
    """The definition of a notification that servers send to clients that declared the
    extension."""
    return Method(
        name=name,
        senders=SERVER,
        load_params=lambda: ExtensionNotificationParams,
        needs=f"extensions.{extension}",
        needs_of=Side.CLIENT,
    )
