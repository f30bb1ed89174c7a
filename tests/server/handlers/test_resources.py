"""Resources: fixed, by template, of files; read, missing, followed; in every revision."""

import asyncio
import base64
import os
from pathlib import Path
from typing import Annotated

import pytest

from colonnade import Context, Depends, File, Image, LocalProtocolError, Server, ToolError
from colonnade.protocol import types as t
from colonnade.protocol.revision import ChangeNotifications, Revision
from live import live
from server.raw_client import EVERYTHING, JSON, Client, Rejected, raw_client


def library() -> Server:
    server = Server("library")

    @server.resource("notes://today", mime_type="text/markdown", title="Today", size=5)
    def today() -> str:
        """What is up today."""
        return "# Hi\n"

    @server.resource("notes://{name}")
    async def note(name: str) -> str | None:
        return f"note {name}" if name != "lost" else None

    @server.resource("notes://{year}/{+path}{?lines}")
    async def page(year: int, path: str, lines: int = 10) -> dict[str, object]:
        return {"year": year, "path": path, "lines": lines}

    @server.resource("pictures://logo", mime_type="image/png")
    def logo() -> bytes:
        return b"\x89PNG"

    return server


async def missing(client: Client, uri: str) -> Rejected:
    with pytest.raises(Rejected) as caught:
        await client.read(uri)
    return caught.value


@pytest.mark.spec("R0127", "R0963")
@live
async def test_resources_and_templates_are_listed_apart(revision: Revision) -> None:
    async with raw_client(library(), revision) as client:
        resources = (await client.ask("resources/list"))["resources"]
        assert [one["uri"] for one in resources] == ["notes://today", "pictures://logo"]
        assert resources[0]["description"] == "What is up today."
        assert (resources[0]["mimeType"], resources[0]["size"]) == ("text/markdown", 5)
        assert ("title" in resources[0]) is (revision.knows("2025-06-18", None))
        templates = (await client.ask("resources/templates/list"))["resourceTemplates"]
        assert [one["uriTemplate"] for one in templates] == [
            "notes://{name}",
            "notes://{year}/{+path}{?lines}",
        ]


@pytest.mark.spec("R0136")
@live
async def test_text_and_bytes_and_data_are_read(revision: Revision) -> None:
    async with raw_client(library(), revision) as client:
        assert await client.read("notes://today") == [
            {"uri": "notes://today", "mimeType": "text/markdown", "text": "# Hi\n"}
        ]
        assert await client.read("notes://a%20b") == [
            {"uri": "notes://a%20b", "mimeType": "text/plain", "text": "note a b"}
        ]
        (picture,) = await client.read("pictures://logo")
        assert base64.b64decode(picture["blob"]) == b"\x89PNG"
        (found,) = await client.read("notes://2026/a/b.md?lines=3")
        assert found["mimeType"] == "application/json"
        assert found["text"] == '{"year":2026,"path":"a/b.md","lines":3}'


@pytest.mark.spec("R0132", "R0968", "R0971", "R0134")
@live
async def test_what_is_not_there_is_told_as_the_revision_says(revision: Revision) -> None:
    async with raw_client(library(), revision) as client:
        for uri in ("nowhere://x", "notes://lost", "notes://year/x", "", "notes://2026/a?lines=z"):
            error = await missing(client, uri)
            assert error.code == (-32002 if revision.handshake else -32602)
            assert error.data == {"uri": uri}


@pytest.mark.spec("R0133", "R0969")
@live
async def test_a_failure_is_an_internal_error_in_words_or_with_an_id(revision: Revision) -> None:
    server = Server("s")

    @server.resource("a://fails")
    def fails() -> str:
        raise ToolError("the disk is full")

    @server.resource("a://crashes")
    def crashes() -> str:
        raise KeyError("secret")

    @server.resource("a://gone")
    def gone() -> str:
        return Path("/nowhere/at/all").read_text()

    async with raw_client(server, revision) as client:
        error = await missing(client, "a://fails")
        assert (error.code, error.message) == (-32603, "fails: the disk is full")
        error = await missing(client, "a://crashes")
        assert error.code == -32603
        assert "secret" not in error.message
        assert (await missing(client, "a://gone")).data == {"uri": "a://gone"}


@live
async def test_several_contents_and_whole_results(revision: Revision) -> None:
    server = Server("s")

    @server.resource("a://several")
    def several() -> list[File]:
        return [File("one", uri="a://1"), File(b"two", uri="a://2", mime_type="x/y")]

    @server.resource("a://list")
    def numbers() -> list[int]:
        return [1, 2]

    @server.resource("a://picture")
    def picture() -> Image:
        return Image(b"i", format="gif")

    @server.resource("a://whole")
    def whole() -> t.ReadResourceResult:
        contents = t.ResourceContents(uri="a://whole", text="w")
        return t.ReadResourceResult(contents=[contents])

    async with raw_client(server, revision) as client:
        one, two = await client.read("a://several")
        assert (one["uri"], one["text"], two["mimeType"]) == ("a://1", "one", "x/y")
        assert (await client.read("a://list"))[0]["text"] == "[1,2]"
        assert (await client.read("a://picture"))[0]["mimeType"] == "image/gif"
        assert (await client.read("a://whole"))[0]["text"] == "w"


@live
async def test_a_resource_of_a_json_type_is_one_document(revision: Revision) -> None:
    server = Server("s")

    @server.resource("a://beds", mime_type="application/json")
    def beds() -> list[str]:
        return ["north", "south"]

    @server.resource("a://problem", mime_type="application/problem+json; charset=utf-8")
    def problem() -> list[str]:
        return ["no"]

    @server.resource("a://written", mime_type="application/json")
    def written() -> str:
        return '{"written": "by the author"}'

    @server.resource("a://bytes", mime_type="application/json")
    def data() -> bytes:
        return b"[1]"

    @server.resource("a://lines")
    def lines() -> list[str]:
        return ["one", "two"]

    async with raw_client(server, revision) as client:
        contents = {
            name: await client.read(f"a://{name}")
            for name in ("beds", "problem", "written", "bytes", "lines")
        }
    texts = {name: [one.get("text") for one in found] for name, found in contents.items()}
    assert texts == {
        "beds": ['["north","south"]'],
        "problem": ['["no"]'],
        "written": ['{"written": "by the author"}'],
        "bytes": [None],
        "lines": ["one", "two"],
    }
    assert contents["beds"][0]["mimeType"] == "application/json"
    assert contents["bytes"][0]["blob"] == "WzFd"


@live
async def test_a_resource_may_depend_and_a_tool_may_read_it(revision: Revision) -> None:
    server = Server("s")

    def prefix() -> str:
        return "->"

    @server.resource("a://{name}")
    async def one(name: str, mark: Annotated[str, Depends(prefix)], ctx: Context) -> str:
        return f"{mark} {name} {len(await ctx.roots())}"

    @server.tool
    async def show(name: str, ctx: Context) -> str:
        read = await ctx.read(f"a://{name}")
        return str(read.contents[0].text)

    def answer(method: str, params: JSON) -> JSON:
        return {"roots": [{"uri": "file:///x"}]}

    async with raw_client(server, revision, can=EVERYTHING, answer=answer) as client:
        assert (await client.read("a://x"))[0]["text"] == "-> x 1"
        assert await client.text("show", {"name": "y"}) == "-> y 1"


@pytest.mark.spec("R0999", "R1000", "R1001", "R0997", "R0998", "R0996", "R1003", "R1011")
@live
async def test_cache_hints_are_given_where_they_are_wanted(revision: Revision) -> None:
    server = Server("s", ttl_s=60, cache_scope="public")

    @server.resource("a://kept", ttl_s=1.5, cache_scope="public")
    def kept() -> str:
        return "x"

    @server.resource("a://plain")
    def plain() -> str:
        return "x"

    @server.resource("a://asks", ttl_s=5)
    async def asks(ctx: Context) -> str:
        return str(len(await ctx.roots()))

    @server.resource("a://{x}")
    def any_of_them(x: str) -> str:
        return x

    @server.tool
    def nothing() -> None: ...

    @server.prompt
    def prompt() -> str:
        return "x"

    def answer(method: str, params: JSON) -> JSON:
        return {"roots": []}

    async with raw_client(server, revision, can=EVERYTHING, answer=answer) as client:
        for method in ("tools", "resources", "resources/templates", "prompts"):
            result = await client.ask(f"{method}/list")
            assert (result["ttlMs"], result["cacheScope"]) == (60_000, "public")
        result = await client.ask("resources/read", {"uri": "a://kept"})
        assert (result["ttlMs"], result["cacheScope"]) == (1500, "public")
        result = await client.ask("resources/read", {"uri": "a://plain"})
        assert (result["ttlMs"], result["cacheScope"]) == (0, "private")
        result = await client.ask("resources/read", {"uri": "a://asks"})
        assert (result["ttlMs"], result["cacheScope"]) == (0, "private")
        result = await client.ask("server/discover")
        assert result["ttlMs"] >= 0


@pytest.mark.spec("R1000")
@live
async def test_each_kind_of_list_may_be_kept_for_a_time_of_its_own(revision: Revision) -> None:
    server = Server("s", ttl_s={"tools": 300, "resource_templates": 1.5})

    @server.resource("a://{x}")
    def any_of_them(x: str) -> str:
        return x

    @server.tool
    def nothing() -> None: ...

    @server.prompt
    def prompt() -> str:
        return "x"

    async with raw_client(server, revision) as client:
        found = [
            (await client.ask(f"{method}/list"))["ttlMs"]
            for method in ("tools", "resources/templates", "prompts")
        ]
    assert found == [300_000, 1500, 0]


# ---------------------------------------------------------------- subscriptions


@live
async def test_updates_reach_who_follows_a_resource_or_what_is_above_it(
    revision: Revision,
) -> None:
    server = library()
    async with raw_client(server, revision) as client:
        wanted = ["notes://today", "notes://2026"]
        if revision.change_notifications is ChangeNotifications.SESSION:
            for uri in wanted:
                await client.ask("resources/subscribe", {"uri": uri})
        else:
            client.send(
                "subscriptions/listen", {"notifications": {"resourceSubscriptions": wanted}}
            )
            await client.until(
                lambda: client.notifications("notifications/subscriptions/acknowledged")
            )
        server.updated("notes://tomorrow")
        server.updated("notes://today")
        server.updated("notes://2026/a/b.md")
        server.updated("notes://20267")
        method = "notifications/resources/updated"
        await client.until(lambda: len(client.notifications(method)) == 2)
        assert [one["uri"] for one in client.notifications(method)] == [
            "notes://today",
            "notes://2026/a/b.md",
        ]
        if revision.change_notifications is ChangeNotifications.SESSION:
            await client.ask("resources/unsubscribe", {"uri": "notes://today"})
            server.updated("notes://today")
            server.updated("notes://2026/c")
            await client.until(lambda: len(client.notifications(method)) == 3)
            assert client.notifications(method)[-1]["uri"] == "notes://2026/c"


@live
async def test_nobody_follows_what_is_nowhere_or_too_much(revision: Revision) -> None:
    if revision.change_notifications is not ChangeNotifications.SESSION:
        return  # a filter is not judged
    async with raw_client(library(), revision) as client:
        with pytest.raises(Rejected) as caught:
            await client.ask("resources/subscribe", {"uri": "nowhere://x"})
        assert caught.value.code == -32002
        with pytest.raises(Rejected, match="cannot subscribe to a URI"):
            await client.ask("resources/subscribe", {"uri": "notes://" + "x" * 9000})
        for n in range(1000):
            await client.ask("resources/subscribe", {"uri": f"notes://{n}"})
        with pytest.raises(Rejected, match="unsubscribe from some"):
            await client.ask("resources/subscribe", {"uri": "notes://1000"})
        await client.ask("resources/unsubscribe", {"uri": "nowhere://x"})


# ---------------------------------------------------------------- registration


def test_an_address_and_a_function_that_do_not_fit_are_refused() -> None:
    server = Server("s")

    def takes(name: str) -> str:
        return name

    def takes_nothing() -> str:
        return ""

    def takes_two(name: str, other: str) -> str:
        return name + other

    with pytest.raises(LocalProtocolError, match=r"write \{name\}"):
        server.resource("a://b")(takes)
    with pytest.raises(LocalProtocolError, match=r"has \['x'\], which the function does not take"):
        server.resource("a://{x}")(takes)
    with pytest.raises(LocalProtocolError, match=r"needs \['other'\], which a://\{name\} does not"):
        server.resource("a://{name}")(takes_two)
    with pytest.raises(LocalProtocolError, match="URI template"):
        server.resource("a://{")(takes)
    with pytest.raises(LocalProtocolError, match="needs its URI"):
        server.resource(takes_nothing)  # type: ignore[arg-type]
    assert len(server.resources) == len(server.templates) == 0


# ---------------------------------------------------------------- files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "docs"
    (inside / "sub").mkdir(parents=True)
    (inside / "a.md").write_text("# A\n")
    (inside / "sub" / "b.json").write_text("{}")
    (inside / "blob.bin").write_bytes(b"\x00\xff")
    (inside / "latin.txt").write_bytes(b"\xe9")
    (inside / ".secret").write_text("s")
    (tmp_path / "outside.txt").write_text("out")
    (inside / "link.txt").symlink_to(tmp_path / "outside.txt")
    (inside / "linked").symlink_to(tmp_path)
    os.mkfifo(inside / "pipe")
    return inside


@pytest.mark.spec("R0972", "R0134")
@live
async def test_a_folder_gives_its_files_and_nothing_else(revision: Revision, folder: Path) -> None:
    server = Server("s")
    server.files("docs://", folder)
    async with raw_client(server, revision) as client:
        (a,) = await client.read("docs://a.md")
        assert (a["mimeType"], a["text"], a["uri"]) == ("text/markdown", "# A\n", "docs://a.md")
        assert (await client.read("docs://sub/b.json"))[0]["text"] == "{}"
        assert "blob" in (await client.read("docs://blob.bin"))[0]
        assert "blob" in (await client.read("docs://latin.txt"))[0]
        (names,) = await client.read("docs://sub")
        assert (names["mimeType"], names["text"]) == ("inode/directory", "b.json")
        (root,) = (await client.ask("resources/list"))["resources"]  # where to begin
        assert (root["uri"], root["mimeType"]) == ("docs://", "inode/directory")
        (names,) = await client.read(root["uri"])
        assert {"a.md", "sub"} < set(names["text"].split("\n"))
        for path in (
            *("../outside.txt", "%2e%2e/outside.txt", "sub/../../outside.txt", "..%2foutside.txt"),
            *("/etc/passwd", "%2Fetc%2Fpasswd", "//etc/passwd", "%252e%252e/outside.txt"),
            *("link.txt", "linked/outside.txt", ".secret", "sub/.", "a.md/x", "nope", "a.md%00"),
            *("..\\outside.txt", "pipe", "C:/x", "x" * 300),
        ):
            error = await missing(client, f"docs://{path}")
            assert error.code == (-32002 if revision.handshake else -32602), path


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LocalProtocolError, match="not a directory"):
        Server("s").files("docs://", tmp_path / "nope")


@live
async def test_reading_files_does_not_hold_up_the_loop(revision: Revision, folder: Path) -> None:
    server = Server("s")
    server.files("docs://", folder)
    async with raw_client(server, revision) as client:
        found = await asyncio.gather(*(client.read("docs://a.md") for _ in range(20)))
        assert len(found) == 20
