"""The input requests that a client can answer, as a value, and as each request declares them."""

import json
from typing import Any

import pytest

from colonnade.protocol import types as t
from colonnade.protocol.input_requests import (
    ALL_INPUT,
    NO_INPUT,
    InputCapabilities,
    RequestDeclaration,
)
from colonnade.protocol.link.link import DuplexLink
from colonnade.protocol.methods import Side
from colonnade.protocol.negotiation import Identity, Peer
from colonnade.protocol.revision import ALL, NEWEST

INFO = t.Implementation(name="test", version="1")


def test_capabilities_are_what_a_client_declared_in_a_revision_that_has_them() -> None:
    declared = t.ClientCapabilities(
        elicitation=t.ElicitationCapability(form={}, url={}),
        sampling=t.SamplingCapability(tools={}, context={}),
        roots=t.RootsCapability(list_changed=True),
    )
    found = {one.date: InputCapabilities.of(Peer(one, declared)) for one in ALL}
    only_old = InputCapabilities(sampling=True, roots=True, roots_changed=True)
    assert found["2024-11-05"] == found["2025-03-26"] == only_old
    assert found["2025-06-18"] == only_old._replace(form=True)
    assert found["2025-11-25"] == found["2026-07-28"] == ALL_INPUT


@pytest.mark.parametrize("mask", range(128))
def test_capabilities_are_declared_as_they_are(mask: int) -> None:
    given = InputCapabilities(*(bool(mask >> bit & 1) for bit in range(7)))
    if (given.sampling_tools or given.sampling_context) and not given.sampling:
        return  # which no client can declare
    if given.roots_changed and not given.roots:
        return  # which no client can declare
    assert InputCapabilities.of(Peer(NEWEST, given.declared_in(t.ClientCapabilities()))) == given


def test_a_server_can_answer_none() -> None:
    assert InputCapabilities.of(Peer(NEWEST, t.ServerCapabilities())) == NO_INPUT


def test_capabilities_are_limited_to_those_that_are_allowed() -> None:
    given = InputCapabilities(form=True, sampling=True)
    assert given.limited_to(InputCapabilities(form=True, url=True)) == InputCapabilities(form=True)
    assert given.limited_to(ALL_INPUT) == given
    assert given.limited_to(NO_INPUT) == NO_INPUT


def test_roots_that_are_declared_stay_as_they_are() -> None:
    own = t.ClientCapabilities(roots=t.RootsCapability(list_changed=True))
    assert InputCapabilities(roots=True).declared_in(own).roots == own.roots
    assert NO_INPUT.declared_in(own).roots is None


# ---------------------------------------------------------------- in the envelope of a request


def client() -> DuplexLink:
    capabilities = t.ClientCapabilities(
        elicitation=t.ElicitationCapability(form={}), extensions={"a.b/c": {}}
    )
    link = DuplexLink(Side.CLIENT, Identity(INFO, capabilities))
    link.adopt(NEWEST)
    return link


def declared(frame: bytes) -> Any:
    return json.loads(frame)["params"]["_meta"][t.CLIENT_CAPABILITIES_KEY]


def test_a_request_declares_other_capabilities_than_the_client() -> None:
    link = client()
    own = {"elicitation": {"form": {}}, "extensions": {"a.b/c": {}}}
    params = t.PaginatedRequestParams()
    for _ in range(2):  # once made, and once kept
        _, frame = link.request("tools/list", params, now=0.0)
        assert declared(frame) == own
        given = InputCapabilities(url=True, sampling=True, sampling_tools=True)
        _, frame = link.request("tools/list", params, now=0.0, declared=RequestDeclaration(given))
        assert declared(frame) == {
            "elicitation": {"url": {}},
            "sampling": {"tools": {}},
            "extensions": {"a.b/c": {}},
        }
        _, frame = link.request(
            "tools/list", params, now=0.0, declared=RequestDeclaration(NO_INPUT)
        )
        assert declared(frame) == {"extensions": {"a.b/c": {}}}


def test_two_methods_declare_the_same_capabilities() -> None:
    link = client()
    for method in ("tools/list", "prompts/list"):
        params = t.PaginatedRequestParams()
        _, frame = link.request(
            method, params, now=0.0, declared=RequestDeclaration(InputCapabilities(url=True))
        )
        assert declared(frame)["elicitation"] == {"url": {}}


def test_a_request_that_declares_a_log_level_keeps_the_capabilities_of_the_client() -> None:
    params = t.PaginatedRequestParams()
    wanted = RequestDeclaration(log_level="debug")
    _, frame = client().request("tools/list", params, now=0.0, declared=wanted)
    assert json.loads(frame)["params"]["_meta"][t.LOG_LEVEL_KEY] == "debug"
    assert declared(frame) == {"elicitation": {"form": {}}, "extensions": {"a.b/c": {}}}
