"""Resources: static, templates, directories; reading, errors, subscriptions."""

import base64
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from colonnade import Annotations, File, Icon, Server, ToolError
from colonnade.protocol.revision import ChangeNotifications, Revision
from features.feature import JSON, WORKS, Group, Verdict, fallback, refusal, refused, tried
from server.raw_client import Client, Rejected, raw_client

RESOURCES = Group("Resources and resource templates")
WITHOUT = fallback("omitted")
MISSING = (*4 * [refused(-32002)], refused(-32602))
UPDATED = "notifications/resources/updated"


def library(**options: Any) -> Server:
    """A server with one resource and one template with these options."""
    server = Server("library")

    @server.resource("notes://today", **options)
    def today() -> str:
        """What is up today."""
        return "# Hi"

    @server.resource("notes://by/{name}{?lines}", **options)
    async def note(name: str, lines: int = 10) -> str | None:
        """A note by its name."""
        return f"{name} {lines}" if name != "lost" else None

    return server


async def listed(client: Client) -> tuple[JSON, JSON]:
    """The resource and the template of a library."""
    (resource,) = (await client.ask("resources/list"))["resources"]
    (template,) = (await client.ask("resources/templates/list"))["resourceTemplates"]
    return resource, template


# ---------------------------------------------------------------- definitions


@RESOURCES.feature("static resource, listed and read", WORKS)
async def static(revision: Revision) -> Verdict:
    async with raw_client(library(), revision) as client:
        resource, _ = await listed(client)
        assert resource == {
            "uri": "notes://today",
            "name": "today",
            "description": "What is up today.",
        }
        (found,) = await client.read("notes://today")
        assert (found["uri"], found["text"]) == ("notes://today", "# Hi")
    return WORKS


@RESOURCES.feature("resource template, listed and read, with typed variables", WORKS)
async def template(revision: Revision) -> Verdict:
    async with raw_client(library(), revision) as client:
        _, template = await listed(client)
        assert template["uriTemplate"] == "notes://by/{name}{?lines}"
        assert template["name"] == "note"
        (found,) = await client.read("notes://by/a%20b?lines=3")
        assert (found["uri"], found["text"]) == ("notes://by/a%20b?lines=3", "a b 3")
        assert (await client.read("notes://by/ann"))[0]["text"] == "ann 10"
    return WORKS


@RESOURCES.feature("size and MIME type", WORKS)
async def size(revision: Revision) -> Verdict:
    server = library(mime_type="text/markdown", size=4)
    async with raw_client(server, revision) as client:
        resource, template = await listed(client)
        assert (resource["size"], resource["mimeType"]) == (4, "text/markdown")
        assert template["mimeType"] == "text/markdown"
        assert (await client.read("notes://today"))[0]["mimeType"] == "text/markdown"
    return WORKS


@RESOURCES.feature("title", *2 * [fallback("as the name")], *3 * [WORKS])
async def title(revision: Revision) -> Verdict:
    async with raw_client(library(title="Notes of today"), revision) as client:
        both = await listed(client)
    if all("title" in one for one in both):
        assert [one["title"] for one in both] == ["Notes of today"] * 2
        assert [one["name"] for one in both] == ["today", "note"]
        return WORKS
    assert not any("title" in one for one in both)
    assert [one["name"] for one in both] == ["Notes of today"] * 2
    return fallback("as the name")


@RESOURCES.feature("icons", *3 * [WITHOUT], *2 * [WORKS])
async def icons(revision: Revision) -> Verdict:
    async with raw_client(
        library(icons=[Icon(src="https://example.com/i.png")]), revision
    ) as client:
        both = await listed(client)
    if not any("icons" in one for one in both):
        return WITHOUT
    assert [one["icons"] for one in both] == [[{"src": "https://example.com/i.png"}]] * 2
    return WORKS


@RESOURCES.feature("annotations (`audience`, `priority`)", WORKS)
async def audience(revision: Revision) -> Verdict:
    notes = Annotations(audience=["assistant"], priority=1)
    async with raw_client(library(annotations=notes), revision) as client:
        for one in await listed(client):
            assert one["annotations"] == {"audience": ["assistant"], "priority": 1}
    return WORKS


@RESOURCES.feature("`_meta`", *2 * [WITHOUT], *3 * [WORKS])
async def meta(revision: Revision) -> Verdict:
    async with raw_client(library(meta={"example.com/shelf": 3}), revision) as client:
        both = await listed(client)
    if not any("_meta" in one for one in both):
        return WITHOUT
    assert [one["_meta"] for one in both] == [{"example.com/shelf": 3}] * 2
    return WORKS


# ---------------------------------------------------------------- contents


@RESOURCES.feature("binary contents", WORKS)
async def binary(revision: Revision) -> Verdict:
    server = Server("s")

    @server.resource("pictures://logo", mime_type="image/png")
    def logo() -> bytes:
        return b"\x89PNG"

    async with raw_client(server, revision) as client:
        (found,) = await client.read("pictures://logo")
    assert (found["mimeType"], base64.b64decode(found["blob"])) == ("image/png", b"\x89PNG")
    assert "text" not in found
    return WORKS


@RESOURCES.feature("several contents of one resource", WORKS)
async def several(revision: Revision) -> Verdict:
    server = Server("s")

    @server.resource("notes://all")
    def notes() -> list[File]:
        return [File("one", uri="notes://1"), File(b"\xff", uri="notes://2", mime_type="x/y")]

    async with raw_client(server, revision) as client:
        one, two = await client.read("notes://all")
    assert (one["uri"], one["text"]) == ("notes://1", "one")
    assert (two["uri"], two["mimeType"], two["blob"]) == ("notes://2", "x/y", "/w==")
    return WORKS


@contextmanager
def folder() -> Generator[Server]:
    """A server of a directory, with a file outside of it that symbolic links lead to."""
    with tempfile.TemporaryDirectory() as place:
        docs = Path(place, "docs")
        (docs / "sub").mkdir(parents=True)
        (docs / "a.md").write_text("# A")
        (docs / "sub" / "b.bin").write_bytes(b"\x00\xff")
        (docs / ".hidden").write_text("x")
        outside = Path(place, "outside.txt")
        outside.write_text("secret")
        (docs / "link.txt").symlink_to(outside)
        (docs / "up").symlink_to(place)
        server = Server("s")
        server.files("docs://", docs)
        yield server


@RESOURCES.feature("directory: its files, and a listing", WORKS)
async def directory(revision: Revision) -> Verdict:
    with folder() as server:
        async with raw_client(server, revision) as client:
            (a,) = await client.read("docs://a.md")
            assert (a["mimeType"], a["text"]) == ("text/markdown", "# A")
            (names,) = await client.read("docs://sub")
            assert (names["mimeType"], names["text"]) == ("inode/directory", "b.bin")
            (b,) = await client.read("docs://sub/b.bin")
            assert base64.b64decode(b["blob"]) == b"\x00\xff"
    return WORKS


@RESOURCES.feature("path traversal: `..`, absolute, encoded, symbolic link", *MISSING)
async def escapes(revision: Revision) -> Verdict:
    seen: set[Verdict] = set()
    with folder() as server:
        async with raw_client(server, revision) as client:
            for path in (
                *(
                    "../outside.txt",
                    "%2e%2e/outside.txt",
                    "..%2foutside.txt",
                    "sub/../../outside.txt",
                ),
                *("/etc/passwd", "%2Fetc%2Fpasswd", "%252e%252e/outside.txt", "..\\outside.txt"),
                *("link.txt", "up/outside.txt", ".hidden", "a.md%00", "C:/x"),
            ):
                asking = client.ask("resources/read", {"uri": f"docs://{path}"})
                seen.add(await refusal(asking, "not found"))
            assert "secret" not in str(client.received)
    (verdict,) = seen
    return verdict


@RESOURCES.feature("unknown resource, with its URI", *MISSING)
async def missing(revision: Revision) -> Verdict:
    seen: set[Verdict] = set()
    async with raw_client(library(), revision) as client:
        for uri in ("notes://nowhere", "notes://by/lost", "notes://by/a?lines=many"):
            found = await tried(client.ask("resources/read", {"uri": uri}))
            assert isinstance(found, Rejected), found
            assert found.data == {"uri": uri}
            seen.add(refused(found.code))
    (verdict,) = seen
    return verdict


@RESOURCES.feature("resource that raises an exception", refused(-32603))
async def failing(revision: Revision) -> Verdict:
    server = Server("s")

    @server.resource("a://fails")
    def fails() -> str:
        raise ToolError("the disk is full")

    @server.resource("a://crashes")
    def crashes() -> str:
        raise KeyError("swordfish")

    async with raw_client(server, revision) as client:
        first = await refusal(client.ask("resources/read", {"uri": "a://fails"}), "disk is full")
        second = await refusal(client.ask("resources/read", {"uri": "a://crashes"}), "(id ")
        assert "swordfish" not in str(client.received)
    assert first == second
    return first


@RESOURCES.feature("caching (`ttl_s`, `cache_scope`)", *4 * [fallback("omitted")], WORKS)
async def cached(revision: Revision) -> Verdict:
    async with raw_client(library(ttl_s=1.5, cache_scope="public"), revision) as client:
        result = await client.ask("resources/read", {"uri": "notes://today"})
    assert result["contents"][0]["text"] == "# Hi"
    if "ttlMs" not in result:
        assert "cacheScope" not in result
        return fallback("omitted")
    assert (result["ttlMs"], result["cacheScope"]) == (1500, "public")
    return WORKS


# ---------------------------------------------------------------- subscriptions


async def follow(client: Client, *uris: str) -> None:
    """Subscribe to updates, as the revision does it."""
    if client.revision.change_notifications is ChangeNotifications.SESSION:
        for uri in uris:
            await client.ask("resources/subscribe", {"uri": uri})
    else:
        wanted = {"notifications": {"resourceSubscriptions": list(uris)}}
        client.send("subscriptions/listen", wanted)
        await client.until(lambda: client.notifications("notifications/subscriptions/acknowledged"))


async def heard(client: Client, server: Server, *changed: str, last: str) -> list[str]:
    """The notifications after these changes; the last one is subscribed."""
    for uri in (*changed, last):
        server.updated(uri)
    await client.until(lambda: last in [one["uri"] for one in client.notifications(UPDATED)])
    return [one["uri"] for one in client.notifications(UPDATED)]


@RESOURCES.feature("`notifications/resources/updated` for subscribers", WORKS)
async def updates(revision: Revision) -> Verdict:
    server = library()
    async with raw_client(server, revision) as client:
        await follow(client, "notes://today")
        found = await heard(client, server, "notes://by/ann", last="notes://today")
        assert found == ["notes://today"]
    return WORKS


@RESOURCES.feature("updates of URIs below a subscribed URI", WORKS)
async def below(revision: Revision) -> Verdict:
    server = library()
    async with raw_client(server, revision) as client:
        await follow(client, "notes://by")
        found = await heard(client, server, "notes://byte", "notes://today", last="notes://by/ann")
        assert found == ["notes://by/ann"]
    return WORKS


@RESOURCES.feature(
    "`resources/subscribe` and `resources/unsubscribe`", *4 * [WORKS], refused(-32601)
)
async def subscribe(revision: Revision) -> Verdict:
    server = library()
    async with raw_client(server, revision) as client:
        for uri in ("notes://today", "notes://by/ann"):
            result = await tried(client.ask("resources/subscribe", {"uri": uri}))
            if isinstance(result, Rejected):
                assert "resources/subscribe" in result.message
                return refused(result.code)
            assert result == {}
        assert await client.ask("resources/unsubscribe", {"uri": "notes://today"}) == {}
        found = await heard(client, server, "notes://today", last="notes://by/ann")
        assert found == ["notes://by/ann"]
    return WORKS


@RESOURCES.feature(
    "subscription to an unknown resource",
    *4 * [refused(-32002)],
    fallback("acknowledged, no updates"),
)
async def nowhere(revision: Revision) -> Verdict:
    server = library()
    async with raw_client(server, revision) as client:
        if revision.change_notifications is ChangeNotifications.SESSION:
            found = await tried(client.ask("resources/subscribe", {"uri": "nowhere://x"}))
            assert isinstance(found, Rejected)
            assert found.data == {"uri": "nowhere://x"}
            return refused(found.code)
        await follow(client, "nowhere://x")
        (agreed,) = client.notifications("notifications/subscriptions/acknowledged")
        assert agreed["notifications"] == {"resourceSubscriptions": ["nowhere://x"]}
        server.updated("notes://today")
        await client.read("notes://today")
        assert client.notifications(UPDATED) == []
    return fallback("acknowledged, no updates")
