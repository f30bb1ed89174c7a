"""The table `[gateway]` of `colonnade.toml`: how the servers of the file are served as one.

    [gateway]
    url = "https://mcp.example.com/mcp"
    instructions = "gathered"
    store = "${env:REDIS_URL}"
    keys = ["${env:GATEWAY_KEY}"]

    [gateway.auth]
    issuer = "https://login.example.com"

    [gateway.views.dev]
    servers = ["files", "git"]

Rules: what is wrong is a problem with its place, and the key is ignored. A key is a reference,
never a value of the file, and it is looked up when the gateway starts.
"""

from collections.abc import Callable
from math import inf
from typing import Any

from colonnade.errors import LocalProtocolError
from colonnade.host.config.entry import Origin, SourceNode
from colonnade.host.config.lookups import LookupContext, resolve_template
from colonnade.host.config.references import InvalidReference, ValueTemplate, template
from colonnade.host.config.settings import GatewayAuthSettings, GatewaySecrets, GatewaySettings
from colonnade.text import closest
from colonnade.transport.process.sandbox import STRICT, Sandbox, sandbox_of

# Adds a problem: the message, the node that it is about, and what to do.
Report = Callable[[str, SourceNode, str], None]


KEYS = (
    *("name", "url", "name_limit", "page_size", "wait_s", "instructions", "store", "keys"),
    *("sandbox", "auth", "views"),
)
_NUMBERS = ("name_limit", "page_size")
_STRINGS = ("name", "url", "instructions")
# Old keys decrypt what clients still carry; a handful are enough.
MAX_KEYS = 8


def read_gateway(node: SourceNode, report: Report) -> GatewaySettings | None:
    """The settings in a table; None if it is none."""
    if node.members is None:
        report("expected a table", node, "")
        return None
    found: dict[str, Any] = {}
    for key, value in node.members.items():
        if key in _STRINGS:
            found[key] = _string(value, report)
        elif key in _NUMBERS:
            found[key] = _number(value, report)
        elif key == "wait_s":
            found[key] = _seconds(value, report)
        elif key == "store":
            found |= {key: _template(value, report), "store_place": value.place}
        elif key == "keys":
            found[key] = _keys(value, report)
        elif key == "sandbox":
            found[key] = _sandbox(value, report)
        elif key == "auth":
            found[key] = _auth(value, report)
        elif key == "views":
            found[key] = _views(value, report)
        else:
            near = closest(key, KEYS)
            hint = f"did you mean {near}?" if near else f"keys are {', '.join(KEYS)}"
            report("unknown key", value, hint)
    if found.get("auth") is not None and not found.get("url"):
        report("auth needs url", node, "add url, the URL of the endpoint as clients write it")
    return GatewaySettings(**{key: value for key, value in found.items() if value is not None})


def _string(node: SourceNode, report: Report) -> str | None:
    if isinstance(node.value, str) and node.value:
        return node.value
    report("expected a string", node, "")
    return None


def _number(node: SourceNode, report: Report) -> int | None:
    if isinstance(node.value, int) and not isinstance(node.value, bool) and node.value > 0:
        return node.value
    report("expected a number of 1 or more", node, "")
    return None


def _seconds(node: SourceNode, report: Report) -> float | None:
    value = node.value
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < inf:
        return float(value)
    report("expected seconds above 0", node, "")
    return None


def _template(node: SourceNode, report: Report) -> ValueTemplate | None:
    text = _string(node, report)
    if text is None:
        return None
    try:
        return template(text, "colonnade", [])
    except InvalidReference as error:
        report(str(error), node, "")
        return None


def _keys(node: SourceNode, report: Report) -> tuple[ValueTemplate, ...]:
    items = node.items
    if not items or len(items) > MAX_KEYS:
        report(f"expected a list of 1 to {MAX_KEYS} references", node, _KEY_HINT)
        return ()
    found: list[ValueTemplate] = []
    for item in items:
        one = _template(item, report)
        if one is None:
            continue
        if len(one.parts) != 1 or len(one.references) != 1:
            report("a key is a reference, and not in the file itself", item, _KEY_HINT)
            continue
        found.append(one)
    return tuple(found)


_KEY_HINT = 'write keys = ["${env:NAME}"], "${file:path}" or "${keyring:service/name}"'


async def resolve_gateway(
    settings: GatewaySettings, origin: Origin, context: LookupContext
) -> GatewaySecrets:
    """What the references of a table refer to. Raises `Refused`."""
    store = settings.store
    text = None if store is None else await resolve_template(store, origin, context)
    keys = [await resolve_template(one, origin, context) for one in settings.keys]
    return GatewaySecrets(text, tuple(one or "" for one in keys))


def _strings(node: SourceNode | None, report: Report) -> tuple[str, ...]:
    if node is None:
        return ()
    items = node.items
    if items is None or not all(isinstance(one.value, str) for one in items):
        report("expected a list of strings", node, "")
        return ()
    return tuple(one.value for one in items)


def _sandbox(node: SourceNode, report: Report) -> Sandbox | None:
    """What is wrong counts as the strictest one."""
    try:
        return sandbox_of(node.value)
    except LocalProtocolError as error:
        report(str(error), node, "until then it is the strict one")
        return STRICT


def _auth(node: SourceNode, report: Report) -> GatewayAuthSettings | None:
    for key in node.members or {}:
        if key not in ("issuer", "scopes"):
            report("unknown key", node, f"{key!r} is none of issuer, scopes")
    issuer = node.get("issuer")
    if issuer is None or not isinstance(issuer.value, str):
        report("expected the URL of an issuer", issuer or node, 'write issuer = "https://…"')
        return None
    return GatewayAuthSettings(issuer=issuer.value, scopes=_strings(node.get("scopes"), report))


def _views(node: SourceNode, report: Report) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for name, view in (node.members or {}).items():
        if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
            report("the name of a view has letters, digits, '-' and '_' only", view, "")
            continue
        servers = _strings(view.get("servers"), report)
        if servers:
            found[name] = servers
        else:
            report("a view has servers", view, 'write servers = ["files", "git"]')
    return found
