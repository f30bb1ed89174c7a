"""What a context knows of the request: its id, its headers, the claims of its token, the client."""

from collections.abc import Mapping
from typing import Any

import pytest

from colonnade import BlockingContext, Caller, Context, LoginRequired, Server, connect
from colonnade.protocol.revision import Revision
from colonnade.server.auth import SECRET, RequestHeaders
from colonnade.transport.http_server.runner import HttpRunner
from live import live
from server.raw_client import raw_client


def facts_of(ctx: Any) -> dict[str, Any]:
    return {
        "id": ctx.request_id,
        "tenant": ctx.headers.get("X-Tenant"),
        "secret": [name for name in ctx.headers if name in SECRET],
        "claims": ctx.claims,
        "client": ctx.client.name if ctx.client else None,
        "revision": ctx.revision,
        "principal": ctx.principal,
    }


def server_of_facts() -> Server:
    server = Server("facts")

    @server.tool
    async def waits(ctx: Context) -> dict[str, Any]:
        ctx.claims["email"] = "changed for nobody"
        return facts_of(ctx)

    @server.tool
    def blocks(ctx: BlockingContext) -> dict[str, Any]:
        return facts_of(ctx)

    return server


async def verify(headers: Mapping[bytes, bytes]) -> Caller:
    if headers.get(b"authorization") != b"Bearer word":
        raise LoginRequired("who are you?")
    claims = {"email": "ann@example.com", "groups": ["a"]}
    return Caller("ann", frozenset(), None, claims)


@live
async def test_over_http_a_context_has_headers_and_claims_but_no_credentials(
    revision: Revision,
) -> None:
    site = HttpRunner(server_of_facts().asgi(verify=verify), port=0)
    await site.start()
    headers = {
        "Authorization": "Bearer word",
        "Cookie": "session=1",
        "X-Api-Key": "key",
        "X-Tenant": "acme",
    }
    try:
        async with connect(site.url, revision=revision.date, headers=headers) as client:
            for tool in ("waits", "blocks", "waits"):
                found = (await client.call_tool(tool, returns=dict[str, Any])).data
                assert isinstance(found.pop("id"), int | str)
                assert found == {
                    "tenant": "acme",
                    "secret": [],
                    "claims": {"email": "ann@example.com", "groups": ["a"]},
                    "client": "colonnade",
                    "revision": revision.date,
                    "principal": "ann",
                }
    finally:
        await site.stop(0.0)


@live
async def test_without_http_there_are_no_headers_and_no_claims(revision: Revision) -> None:
    server = server_of_facts()
    seen: list[Any] = []

    @server.tool
    async def look(ctx: Context) -> None:
        seen.append((ctx.request_id, dict(ctx.headers), ctx.claims))

    async with raw_client(server, revision) as client:
        id = client.send("tools/call", {"name": "look", "arguments": {}})
        await client.outcome(id)
    assert seen == [(id, {}, {})]


def test_headers_are_found_in_any_case_and_shown_without_their_values() -> None:
    headers = RequestHeaders({b"x-tenant": b"acme", b"authorization": b"Bearer word"})
    assert headers["X-Tenant"] == headers["x-tenant"] == "acme"
    assert "X-TENANT" in headers
    assert "Authorization" not in headers
    assert 5 not in headers
    assert len(headers) == 1
    assert repr(headers) == "RequestHeaders(x-tenant)"
    with pytest.raises(KeyError, match="x-other"):
        headers["x-other"]


def test_a_header_with_credentials_is_refused_with_what_to_use_instead() -> None:
    headers = RequestHeaders({b"authorization": b"Bearer word"})
    with pytest.raises(
        KeyError, match=r"Authorization is withheld.*ctx\.principal and ctx\.claims"
    ):
        headers["Authorization"]
    assert headers.get("Authorization") is None
