"""Prompts and completion: typed arguments, messages of every type, suggestions."""

from enum import Enum
from typing import Annotated, Any, Literal

from msgspec import Meta

from colonnade import Audio, File, Icon, Image, Link, Message, Server, ToolError
from colonnade.protocol.revision import Revision
from features.feature import JSON, WORKS, Group, Verdict, fallback, refusal, refused, tried
from server.raw_client import Client, Rejected, raw_client

PROMPTS = Group("Prompts")
COMPLETIONS = Group("Completion")
WITHOUT = fallback("omitted")


class Tone(Enum):
    KIND = "kind"
    HARSH = "harsh"


def writing(**options: Any) -> Server:
    """A server with one prompt with these options, and a resource template."""
    server = Server("s")

    @server.prompt(**options)
    def review(
        code: str,
        lines: Annotated[int, Meta(title="How many")] = 3,
        language: Literal["python", "go", "polyglot"] = "python",
        tone: Tone | None = None,
        strict: bool = False,
    ) -> str:
        """Look at some code.

        Args:
            code: The code itself.
        """
        return f"{language} {lines!r} {tone} {strict!r}: {code}"

    @server.resource("files://{folder}/{name}")
    def file(folder: str, name: str) -> str:
        return name

    return server


async def listed(server: Server, revision: Revision) -> JSON:
    async with raw_client(server, revision) as client:
        (prompt,) = (await client.ask("prompts/list"))["prompts"]
    return prompt


async def got(client: Client, name: str, **arguments: str) -> list[JSON]:
    """The messages of a prompt."""
    return (await client.ask("prompts/get", {"name": name, "arguments": arguments}))["messages"]


async def content(value: Any, revision: Revision) -> JSON:
    """The content of the one message that a value becomes."""
    server = Server("s")

    @server.prompt
    def show() -> Any:
        return value

    async with raw_client(server, revision) as client:
        (message,) = await got(client, "show")
    assert message["role"] == "user"
    return message["content"]


# ---------------------------------------------------------------- definitions


@PROMPTS.feature("prompt with arguments from signature and docstring", WORKS)
async def arguments(revision: Revision) -> Verdict:
    prompt = await listed(writing(), revision)
    assert (prompt["name"], prompt["description"]) == ("review", "Look at some code.")
    code, *others = prompt["arguments"]
    assert code == {"name": "code", "description": "The code itself.", "required": True}
    assert [one["name"] for one in others] == ["lines", "language", "tone", "strict"]
    assert [one.get("required") for one in others] == [False] * 4
    return WORKS


@PROMPTS.feature("title", *2 * [fallback("in the description")], *3 * [WORKS])
async def title(revision: Revision) -> Verdict:
    prompt = await listed(writing(title="Code review"), revision)
    if "title" in prompt:
        assert (prompt["title"], prompt["description"]) == ("Code review", "Look at some code.")
        return WORKS
    assert prompt["description"] == "Code review: Look at some code."
    return fallback("in the description")


@PROMPTS.feature("title of an argument", *2 * [fallback("as the description")], *3 * [WORKS])
async def argument_title(revision: Revision) -> Verdict:
    lines = (await listed(writing(), revision))["arguments"][1]
    if "title" in lines:
        assert lines["title"] == "How many"
        return WORKS
    assert lines["description"] == "How many"
    return fallback("as the description")


@PROMPTS.feature("icons", *3 * [WITHOUT], *2 * [WORKS])
async def icons(revision: Revision) -> Verdict:
    prompt = await listed(writing(icons=[Icon(src="https://example.com/i.png")]), revision)
    if "icons" not in prompt:
        return WITHOUT
    assert prompt["icons"] == [{"src": "https://example.com/i.png"}]
    return WORKS


# ---------------------------------------------------------------- prompts/get


@PROMPTS.feature("typed arguments: sent as strings, decoded for the function", WORKS)
async def typed(revision: Revision) -> Verdict:
    async with raw_client(writing(), revision) as client:
        (first,) = await got(client, "review", code="x = 1", lines="7", tone="harsh", strict="true")
        assert first == {
            "role": "user",
            "content": {"type": "text", "text": "python 7 Tone.HARSH True: x = 1"},
        }
        (second,) = await got(client, "review", code="12")
        assert second["content"]["text"] == "python 3 None False: 12"
    return WORKS


@PROMPTS.feature("missing or invalid argument", refused(-32602))
async def bad_argument(revision: Revision) -> Verdict:
    async with raw_client(writing(), revision) as client:
        first = await refusal(client.ask("prompts/get", {"name": "review"}), "review: missing")
        bad = {"name": "review", "arguments": {"code": "x", "lines": "many"}}
        second = await refusal(client.ask("prompts/get", bad), "lines: expected")
    assert first == second
    return first


@PROMPTS.feature("unknown prompt", refused(-32602))
async def unknown(revision: Revision) -> Verdict:
    async with raw_client(writing(), revision) as client:
        return await refusal(client.ask("prompts/get", {"name": "revue"}), "'revue'")


@PROMPTS.feature("prompt that raises an exception", refused(-32603))
async def failing(revision: Revision) -> Verdict:
    server = Server("s")

    @server.prompt
    def fails() -> str:
        raise ToolError("the book is lost")

    @server.prompt
    def crashes() -> str:
        raise KeyError("swordfish")

    async with raw_client(server, revision) as client:
        first = await refusal(client.ask("prompts/get", {"name": "fails"}), "the book is lost")
        second = await refusal(client.ask("prompts/get", {"name": "crashes"}), "(id ")
        assert "swordfish" not in str(client.received)
    assert first == second
    return first


@PROMPTS.feature("several messages, both roles", WORKS)
async def several(revision: Revision) -> Verdict:
    server = Server("s")

    @server.prompt
    def chat() -> list[Message | str]:
        return ["first", Message("second", role="assistant"), "third"]

    async with raw_client(server, revision) as client:
        messages = await got(client, "chat")
    said = [(one["role"], one["content"]["text"]) for one in messages]
    assert said == [("user", "first"), ("assistant", "second"), ("user", "third")]
    return WORKS


@PROMPTS.feature("image or embedded resource as a message", WORKS)
async def image(revision: Revision) -> Verdict:
    found = await content(Image(b"i", format="gif"), revision)
    assert found == {"type": "image", "mimeType": "image/gif", "data": "aQ=="}
    found = await content(File("text", uri="a://b"), revision)
    assert found["type"] == "resource"
    assert (found["resource"]["uri"], found["resource"]["text"]) == ("a://b", "text")
    return WORKS


@PROMPTS.feature("audio as a message", fallback("as an embedded resource"), *4 * [WORKS])
async def audio(revision: Revision) -> Verdict:
    found = await content(Audio(b"i", format="wav"), revision)
    if found["type"] == "audio":
        assert (found["mimeType"], found["data"]) == ("audio/wav", "aQ==")
        return WORKS
    assert found["type"] == "resource"
    assert (found["resource"]["mimeType"], found["resource"]["blob"]) == ("audio/wav", "aQ==")
    return fallback("as an embedded resource")


@PROMPTS.feature(
    "resource link as a message", *2 * [fallback("as text with the URI")], *3 * [WORKS]
)
async def link(revision: Revision) -> Verdict:
    found = await content(Link("notes://b", "b"), revision)
    if found["type"] == "resource_link":
        assert (found["uri"], found["name"]) == ("notes://b", "b")
        return WORKS
    assert found == {"type": "text", "text": "b: notes://b"}
    return fallback("as text with the URI")


# ---------------------------------------------------------------- completions

REVIEW: JSON = {"type": "ref/prompt", "name": "review"}
FILE: JSON = {"type": "ref/resource", "uri": "files://{folder}/{name}"}


async def complete(client: Client, ref: JSON, name: str, typed: str, **context: str) -> JSON:
    """The completion of an argument."""
    params: JSON = {"ref": ref, "argument": {"name": name, "value": typed}}
    if context:
        params["context"] = {"arguments": context}
    return (await client.ask("completion/complete", params))["completion"]


@COMPLETIONS.feature("declared capability", fallback("not declared, available"), *4 * [WORKS])
async def declared(revision: Revision) -> Verdict:
    async with raw_client(writing(), revision) as client:
        if revision.handshake:
            offered = client.received[0]["result"]["capabilities"]
        else:
            offered = (await client.ask("server/discover"))["capabilities"]
        assert (await complete(client, REVIEW, "language", "g"))["values"][0] == "go"
    if "completions" not in offered:
        return fallback("not declared, available")
    assert offered["completions"] == {}
    return WORKS


@COMPLETIONS.feature("`Literal`, `Enum` and `bool` without code", WORKS)
async def with_no_code(revision: Revision) -> Verdict:
    async with raw_client(writing(), revision) as client:
        assert (await complete(client, REVIEW, "language", "pyth"))["values"] == ["python"]
        assert (await complete(client, REVIEW, "tone", "ha"))["values"] == ["harsh"]
        assert (await complete(client, REVIEW, "strict", ""))["values"] == ["true", "false"]
        assert (await complete(client, REVIEW, "code", "x"))["values"] == []
    return WORKS


@COMPLETIONS.feature("function for an argument of a prompt or a resource template", WORKS)
async def by_function(revision: Revision) -> Verdict:
    server = writing()

    @server.completion("review", "code")
    def snippets(typed: str) -> list[str]:
        return [typed + "1", typed + "2"]

    @server.completion("files://{folder}/{name}", "name")
    async def names(typed: str) -> list[str]:
        return ["readme.md"]

    async with raw_client(server, revision) as client:
        assert (await complete(client, REVIEW, "code", "x"))["values"] == ["x1", "x2"]
        assert (await complete(client, FILE, "name", "r"))["values"] == ["readme.md"]
    return WORKS


@COMPLETIONS.feature(
    "arguments that are already filled in (`context`)", *2 * [fallback("ignored")], *3 * [WORKS]
)
async def with_context(revision: Revision) -> Verdict:
    server = writing()

    @server.completion("files://{folder}/{name}", "name")
    def names(typed: str, folder: str | None = None) -> list[str]:
        return [f"{folder}.md"]

    async with raw_client(server, revision) as client:
        can_say = revision.knows("2025-06-18", None)  # in its own schema
        said = {"folder": "docs"} if can_say else {}
        found = (await complete(client, FILE, "name", "", **said))["values"]
    if found == ["docs.md"]:
        return WORKS
    assert found == ["None.md"]
    return fallback("ignored")


@COMPLETIONS.feature("fuzzy matching, best match first", WORKS)
async def ranked(revision: Revision) -> Verdict:
    server = writing()

    @server.completion("review", "code")
    def snippets(typed: str) -> list[str]:
        return ["p-y-t-h", "my python", "PYTHON", "python"]

    async with raw_client(server, revision) as client:
        found = (await complete(client, REVIEW, "code", "pyth"))["values"]
    assert found == ["python", "PYTHON", "my python", "p-y-t-h"]
    return WORKS


@COMPLETIONS.feature("at most 100 values, with `total`", WORKS)
async def at_most(revision: Revision) -> Verdict:
    server = writing()

    @server.completion("review", "code")
    def snippets(typed: str) -> list[str]:
        return [f"{n}" for n in range(250)]

    async with raw_client(server, revision) as client:
        found = await complete(client, REVIEW, "code", "")
    assert (len(found["values"]), found["total"], found["hasMore"]) == (100, 250, True)
    return WORKS


@COMPLETIONS.feature("unknown prompt, template or argument", refused(-32602))
async def unknown_argument(revision: Revision) -> Verdict:
    async with raw_client(writing(), revision) as client:
        seen = {
            await refusal(complete(client, {"type": "ref/prompt", "name": "x"}, "code", "")),
            await refusal(complete(client, {"type": "ref/resource", "uri": "b://{x}"}, "x", "")),
            await refusal(complete(client, REVIEW, "kode", "")),
        }
    (verdict,) = seen
    return verdict


@COMPLETIONS.feature("server without completions", fallback("empty list"), *4 * [refused(-32601)])
async def none_at_all(revision: Revision) -> Verdict:
    server = Server("s")

    @server.prompt
    def review(code: str) -> str:
        return code

    async with raw_client(server, revision) as client:
        found = await tried(complete(client, REVIEW, "code", ""))
    if isinstance(found, Rejected):
        return refused(found.code)
    assert found["values"] == []
    return fallback("empty list")
