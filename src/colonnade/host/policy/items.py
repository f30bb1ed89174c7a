"""What a request is about: a tool, a prompt, a resource or a template, once its name is resolved.

Rules: data and pure functions.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import Raw, Struct

from colonnade.host.policy.request import NO_ARGUMENTS, ItemKind
from colonnade.host.servers.generation import HostedServer, Nameable
from colonnade.host.servers.listings import ListKind
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import encode

LISTS: Mapping[ListKind, tuple[str, ItemKind]] = {
    "tools": ("tools/list", "tool"),
    "prompts": ("prompts/list", "prompt"),
    "resources": ("resources/list", "resource"),
    "templates": ("resources/templates/list", "template"),
}
KINDS: Mapping[ItemKind, ListKind] = {
    "tool": "tools",
    "prompt": "prompts",
    "resource": "resources",
    "template": "templates",
}
NAMEABLE: Mapping[str, Nameable] = {"tool": "tools", "prompt": "prompts"}
NAMED_METHODS: Mapping[str, Literal["tool", "prompt"]] = {
    "tools/call": "tool",
    "prompts/get": "prompt",
}


class GuardedItem(Struct, frozen=True):
    """What a request is about, once its name is resolved."""

    method: str
    kind: ItemKind
    name: str
    qualified: str
    arguments: Raw = NO_ARGUMENTS
    meta: Raw = NO_ARGUMENTS
    # Of a call that goes on after an `input_required` result: the state that the server gave.
    state: str = ""


def named_item(
    method: str, kind: ItemKind, own: str, server: HostedServer, arguments: Raw
) -> GuardedItem:
    """A tool or a prompt, by its name on the server."""
    return GuardedItem(method, kind, own, server.qualified(own), arguments)


def resource_item(method: str, uri: str, params: t.RequestParams) -> GuardedItem:
    """A resource, or the template whose variables are completed."""
    if isinstance(params, t.CompleteRequestParams):
        return GuardedItem(method, "template", uri, uri, completed_arguments(params))
    return GuardedItem(method, "resource", uri, uri)


def completed_arguments(params: t.CompleteRequestParams) -> Raw:
    """The arguments of a completion: the one that is completed, and those before it."""
    before = params.context.arguments if params.context is not None else None
    return Raw(encode({**(before or {}), params.argument.name: params.argument.value}))
