"""Prompts and completions: typed arguments from strings, messages of every kind, suggestions."""

from enum import Enum
from typing import Any, Literal

import pytest

from colonnade import Context, File, Image, LocalProtocolError, Message, Server, ToolError
from colonnade.protocol import types as t
from colonnade.protocol.revision import Revision
from colonnade.server.handlers.completion import closeness, ranked
from live import live
from server.raw_client import JSON, Client, Rejected, raw_client


class Tone(Enum):
    KIND = "kind"
    HARSH = "harsh"


def writing() -> Server:
    server = Server("s")

    @server.prompt(title="Review", tags={"code"})
    def review(
        code: str,
        lines: int = 3,
        language: Literal["python", "go", "polyglot"] = "python",
        tone: Tone | None = None,
        strict: bool = False,
    ) -> str:
        """Review some code.

        Args:
            code: The code itself.
        """
        return f"{language} {lines} {tone} {strict}: {code}"

    @server.prompt
    async def chat() -> list[Message | str | Image | File]:
        return [
            "first",
            Message("second", role="assistant"),
            Image(b"i", format="png"),
            Message(File("text", uri="a://b"), role="assistant"),
        ]

    return server


async def refused(client: Client, method: str, params: JSON) -> Rejected:
    with pytest.raises(Rejected) as caught:
        await client.ask(method, params)
    return caught.value


@pytest.mark.spec("R0114", "R0955", "R0956")
@live
async def test_prompts_are_listed_with_their_arguments(revision: Revision) -> None:
    async with raw_client(writing(), revision) as client:
        review, chat = (await client.ask("prompts/list"))["prompts"]
        assert review["name"] == "review"
        assert review["description"] == "Review some code."
        first, second, *_ = review["arguments"]
        assert first == {"name": "code", "description": "The code itself.", "required": True}
        assert second == {"name": "lines", "required": False}
        assert "arguments" not in chat


@pytest.mark.spec("R0116", "R0117", "R0118")
@live
async def test_arguments_are_strings_and_become_what_the_function_takes(
    revision: Revision,
) -> None:
    async with raw_client(writing(), revision) as client:
        arguments = {"code": "3", "lines": "7", "language": "go", "tone": "kind", "strict": "true"}
        result = await client.ask("prompts/get", {"name": "review", "arguments": arguments})
        (message,) = result["messages"]
        assert message == {
            "role": "user",
            "content": {"type": "text", "text": "go 7 Tone.KIND True: 3"},
        }
        result = await client.ask("prompts/get", {"name": "chat"})
        assert [one["role"] for one in result["messages"]] == [
            *("user", "assistant", "user", "assistant")
        ]
        assert result["messages"][2]["content"]["mimeType"] == "image/png"
        resource = result["messages"][3]["content"]["resource"]
        assert resource == {"uri": "a://b", "mimeType": "text/plain", "text": "text"}


@pytest.mark.spec("R0120", "R0121", "R0122", "R0123")
@live
async def test_a_prompt_that_cannot_be_given_is_an_error_with_words(revision: Revision) -> None:
    server = writing()

    @server.prompt
    def fails() -> str:
        raise ToolError("no words today")

    @server.prompt
    def crashes() -> str:
        raise KeyError("secret")

    @server.prompt
    def whole() -> t.GetPromptResult:
        return t.GetPromptResult(messages=[], description="whole")

    async with raw_client(server, revision) as client:
        error = await refused(client, "prompts/get", {"name": "nope"})
        assert error.code == -32602
        error = await refused(client, "prompts/get", {"name": "review"})
        assert (error.code, error.message) == (-32602, "review: missing required argument 'code'")
        bad = {"name": "review", "arguments": {"code": "x", "language": "cobol"}}
        error = await refused(client, "prompts/get", bad)
        assert error.code == -32602
        assert "'python', 'go'" in error.message
        error = await refused(client, "prompts/get", {"name": "fails"})
        assert (error.code, error.message) == (-32603, "fails: no words today")
        error = await refused(client, "prompts/get", {"name": "crashes"})
        assert error.code == -32603
        assert "secret" not in error.message
        assert (await client.ask("prompts/get", {"name": "whole"}))["messages"] == []


@live
async def test_a_prompt_may_ask_before_it_is_given(revision: Revision) -> None:
    server = Server("s")

    @server.prompt
    async def about(ctx: Context, topic: str = "roots") -> str:
        return f"{topic}: {len(await ctx.roots())}"

    def answer(method: str, params: JSON) -> JSON:
        return {"roots": [{"uri": "file:///a"}]}

    async with raw_client(server, revision, answer=answer) as client:
        result = await client.ask("prompts/get", {"name": "about", "arguments": {"topic": "t"}})
        assert result["messages"][0]["content"]["text"] == "t: 1"


# ---------------------------------------------------------------- completions


async def complete(
    client: Client, ref: JSON, name: str, value: str, others: JSON | None = None
) -> JSON:
    params: JSON = {"ref": ref, "argument": {"name": name, "value": value}}
    if others is not None:
        params["context"] = {"arguments": others}
    return (await client.ask("completion/complete", params))["completion"]


REVIEW = {"type": "ref/prompt", "name": "review"}


@live
async def test_types_that_list_their_values_complete_with_no_code(revision: Revision) -> None:
    async with raw_client(writing(), revision) as client:
        found = await complete(client, REVIEW, "language", "p")
        assert found == {"values": ["python", "polyglot"], "total": 2, "hasMore": False}
        assert (await complete(client, REVIEW, "tone", ""))["values"] == ["kind", "harsh"]
        assert (await complete(client, REVIEW, "strict", "f"))["values"] == ["false"]
        assert (await complete(client, REVIEW, "language", "pthn"))["values"] == ["python"]
        assert (await complete(client, REVIEW, "code", "x"))["values"] == []
        assert (await complete(client, REVIEW, "language", "zz"))["values"] == []


@live
async def test_numbers_that_a_type_lists_complete_as_they_are_written(revision: Revision) -> None:
    server = Server("s")

    @server.prompt
    def grade(mark: Literal[1, 2, "none", None] = None) -> str:
        return f"{mark!r}"

    async with raw_client(server, revision) as client:
        ref = {"type": "ref/prompt", "name": "grade"}
        assert (await complete(client, ref, "mark", ""))["values"] == ["1", "2", "none"]
        got = await client.ask("prompts/get", {"name": "grade", "arguments": {"mark": "2"}})
        assert got["messages"][0]["content"]["text"] == "2"


@pytest.mark.spec("R0147")
@live
async def test_authors_complete_with_functions_that_see_what_else_is_filled_in(
    revision: Revision,
) -> None:
    server = writing()

    @server.resource("repo://{owner}/{name}")
    def repo(owner: str, name: str) -> str:
        return f"{owner}/{name}"

    @server.completion(repo, "name")
    async def names(prefix: str, owner: str = "", *, ctx: Context) -> list[str]:
        return [f"{owner}-{n}-{ctx.revision}" for n in range(3)]

    @server.completion(repo, "owner")
    def owners(prefix: str) -> list[str]:
        return [f"{n:03}" for n in range(250)] + [prefix]

    @server.completion("review", "code")
    def codes(prefix: str) -> list[str]:
        raise KeyError("secret")

    async with raw_client(server, revision) as client:
        ref = {"type": "ref/resource", "uri": "repo://{owner}/{name}"}
        context = {"owner": "ann"} if revision.knows("2025-06-18", None) else None
        found = await complete(client, ref, "name", "", context)
        who = "ann" if context else ""
        assert found["values"] == [f"{who}-{n}-{revision.date}" for n in range(3)]
        found = await complete(client, ref, "owner", "24")
        assert len(found["values"]) == 100
        assert found["values"][:4] == [*("240", "241", "242", "243")]
        assert (found["total"], found["hasMore"]) == (251, True)
        error = await refused(
            client,
            "completion/complete",
            {"ref": REVIEW, "argument": {"name": "code", "value": ""}},
        )
        assert error.code == -32603
        assert "secret" not in error.message


@pytest.mark.spec("R0149")
@live
async def test_what_cannot_be_completed_is_refused_with_what_could(revision: Revision) -> None:
    server = writing()

    @server.resource("a://fixed")
    def fixed() -> str:
        return "x"

    async with raw_client(server, revision) as client:
        for ref, name in (
            ({"type": "ref/prompt", "name": "nope"}, "x"),
            (REVIEW, "nope"),
            ({"type": "ref/resource", "uri": "b://{x}"}, "x"),
        ):
            params = {"ref": ref, "argument": {"name": name, "value": ""}}
            assert (await refused(client, "completion/complete", params)).code == -32602
        ref = {"type": "ref/resource", "uri": "a://fixed"}
        assert (await complete(client, ref, "x", ""))["values"] == []


def test_completions_that_could_never_run_are_refused_at_registration() -> None:
    server = writing()

    def names(prefix: str) -> list[str]:
        return []

    def none() -> list[str]:
        return []

    def more(prefix: str, other: str) -> list[str]:
        return []

    with pytest.raises(LocalProtocolError, match="not a registered prompt or template"):
        server.completion(names, "x")
    with pytest.raises(LocalProtocolError, match="has no argument 'x' to complete; it has"):
        server.completion("review", "x")
    with pytest.raises(LocalProtocolError, match="needs a str parameter for what was typed"):
        server.completion("review", "code")(none)
    with pytest.raises(LocalProtocolError, match="may not be filled in yet"):
        server.completion("review", "code")(more)


@pytest.mark.spec("R0295", "R0296")
@live
async def test_completions_are_declared_where_there_are_any(revision: Revision) -> None:
    server = Server("s")

    @server.prompt
    def plain(text: str) -> str:
        return text

    async with raw_client(server, revision) as client:
        params = {
            "ref": {"type": "ref/prompt", "name": "plain"},
            "argument": {"name": "text", "value": ""},
        }
        assert (await refused(client, "completion/complete", params)).code == -32601
    assert server.identity.capabilities.completions is None  # type: ignore[union-attr]
    assert writing().identity.capabilities.completions == {}  # type: ignore[union-attr]


def test_the_likeliest_comes_first() -> None:
    values = ["Opython", "cpython-dev", "PYTHON", "python3", "pxyxtxhxoxn", "ruby", "my python"]
    assert ranked(values, "python") == [
        *("python3", "PYTHON", "my python", "Opython", "cpython-dev", "pxyxtxhxoxn", "ruby")
    ]
    assert closeness("anything", "") == 0


@pytest.mark.parametrize("role", ["system", "hi", None])
def test_a_message_of_a_role_that_the_protocol_does_not_have_is_refused(role: Any) -> None:
    with pytest.raises(LocalProtocolError, match=r"write Message\('hello', 'user'\)"):
        Message("user", role)
