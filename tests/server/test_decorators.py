"""What authors of servers meet: what cannot work is refused when it is registered, with what to
write instead; what can, works."""

import logging
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

import pytest

from colonnade import (
    Audio,
    BlockingContext,
    Context,
    File,
    Image,
    LocalProtocolError,
    Message,
    Server,
    ToolError,
    ToolReturn,
)
from colonnade.protocol.revision import BadToolInput, Revision
from colonnade.server.handlers.content import Link
from live import live
from server.raw_client import EVERYTHING, JSON, Rejected, raw_client


def refusal(register: Callable[[], object]) -> str:
    with pytest.raises(LocalProtocolError) as caught:
        register()
    return str(caught.value)


# ---------------------------------------------------------------- templates


def test_a_variable_with_a_star_needs_a_parameter_that_is_a_list() -> None:
    server = Server("s")

    def text(path: str) -> str: ...

    unsaid: Any = lambda path: path  # noqa: E731

    words = refusal(lambda: server.resource("x://{path*}")(text))
    assert "text: {path*} in x://{path*} is a list, and 'path' is not a list" in words
    assert "write {+path} for a path with slashes, or declare path: list[str]" in words
    assert "write {+path}" in refusal(lambda: server.resource("x://{path*}")(unsaid))
    assert len(server.templates) == 0


@live
async def test_a_variable_with_a_star_matches_into_a_list(revision: Revision) -> None:
    server = Server("s")

    @server.resource("x://top{/path*}{?tag*}")
    def listed(path: list[str], tag: list[str] | None = None) -> str:
        return " ".join([*path, *(tag or [])])

    async with raw_client(server, revision) as client:
        result = await client.ask("resources/read", {"uri": "x://top/a/b?tag=c&tag=d"})
        assert result["contents"][0]["text"] == "a b c d"


# ---------------------------------------------------------------- functions that cannot be tools


def test_a_generator_is_refused_with_what_to_write() -> None:
    server = Server("s")

    async def later(n: int) -> AsyncGenerator[int]:
        yield n

    def now(n: int) -> Generator[int]:
        yield n

    for function in (later, now):
        words = refusal(lambda function=function: server.tool(function))
        assert words.startswith(
            f"{function.__name__}: it is a generator, and a call has one result"
        )
        assert "return a list" in words
    assert "it is a generator" in refusal(lambda: server.prompt(now))
    assert "it is a generator" in refusal(lambda: server.resource("x://{n}")(now))


@live
async def test_a_generator_that_is_returned_is_a_failure_and_not_its_repr(
    revision: Revision, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("s")

    @server.tool
    def squares() -> Any:
        return (n * n for n in range(3))

    async with raw_client(server, revision) as client:
        result = await client.call("squares", {})
    assert result["isError"] is True
    assert "generator object" not in result["content"][0]["text"]
    assert "returned a generator; return a list" in caplog.text


def test_a_method_in_a_class_body_is_refused_and_that_of_an_instance_is_taken() -> None:
    server = Server("s")

    class Shop:
        def price(self, item: str) -> str:
            return item

        @classmethod
        def open(cls, day: str) -> str:
            return day

        @staticmethod
        def hours(day: str) -> str:
            return day

    words = refusal(lambda: server.tool(Shop.price))
    assert "price: it is a method of Shop, and callers cannot send 'self'" in words
    assert "server.tool(shop.price)" in words

    def inside() -> None:
        class Market:
            @server.tool
            def sell(self, item: str) -> str: ...

        Market()

    assert "sell: it is a method of Market" in refusal(inside)
    server.tool(Shop().price)
    server.tool(Shop.open)
    server.tool(Shop.hours)
    for name in ("price", "open", "hours"):
        assert "self" not in server.tools[name].definition.input_schema["properties"]

    @server.tool
    def plain(self: str) -> str:
        return self

    assert server.tools["plain"].definition.input_schema["required"] == ["self"]


@live
async def test_a_list_as_default_is_a_new_one_for_each_call(revision: Revision) -> None:
    server = Server("s")

    @server.tool
    def add(item: str, basket: list[str] = []) -> int:  # noqa: B006
        basket.append(item)
        return len(basket)

    async with raw_client(server, revision) as client:
        for _ in range(2):
            result = await client.call("add", {"item": "apple"})
            assert result["content"][0]["text"] == "1"


# ---------------------------------------------------------------- names


@live
async def test_a_mounted_tool_is_called_by_the_name_that_the_caller_used(
    revision: Revision, caplog: pytest.LogCaptureFixture
) -> None:
    server, inner = Server("s"), Server("inner")

    @inner.tool(timeout_s=0.01)
    async def slow(n: int) -> None:
        if n == 1:
            raise ValueError
        import asyncio

        await asyncio.Event().wait()

    @inner.prompt
    def review(n: int) -> str:
        if n == 1:
            raise ToolError("no")
        raise ValueError

    server.mount(inner, namespace="in")
    async with raw_client(server, revision) as client:
        for arguments in ({"n": "x"}, {"n": 1}, {"n": 2}):
            if arguments["n"] == "x" and revision.bad_tool_input is BadToolInput.ERROR:
                with pytest.raises(Rejected) as refused:
                    await client.call("in_slow", arguments)
                assert refused.value.message.startswith("in_slow")
                continue
            text = (await client.call("in_slow", arguments))["content"][0]["text"]
            assert text.startswith("in_slow"), text
        with pytest.raises(Rejected) as refused:
            await client.ask("tools/call", {"name": "in_slow", "arguments": [1]})
        assert refused.value.message.startswith("in_slow: arguments: expected an object")
        for n in ("x", "1", "2"):
            with pytest.raises(Rejected) as refused:
                await client.ask("prompts/get", {"name": "in_review", "arguments": {"n": n}})
            assert refused.value.message.startswith("in_review")
    assert "in_slow failed (id" in caplog.text


# ---------------------------------------------------------------- progress


@live
async def test_progress_that_does_not_go_up_is_left_out_and_logged_once(
    revision: Revision, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("s")

    @server.tool
    async def count(ctx: Context) -> str:
        for step in (1, 1, 3, 2, 4):
            await ctx.progress(step, 4)
        return "done"

    @server.tool
    def blocking(ctx: BlockingContext) -> str:
        for step in (1, 1, 2):
            ctx.progress(step, 4)
        return "done"

    with caplog.at_level(logging.WARNING):
        async with raw_client(server, revision, meta={"progressToken": "p"}) as client:
            result = await client.call("count", {})
            assert result["content"][0]["text"] == "done"
            seen = [one["progress"] for one in client.notifications("notifications/progress")]
            assert seen == [1, 3, 4]
            assert caplog.text.count("progress went from 1 to 1") == 1
            assert "went from 3 to 2" not in caplog.text
            result = await client.call("blocking", {})
            assert result["content"][0]["text"] == "done"


# ---------------------------------------------------------------- what a model is given


@live
async def test_a_model_is_given_images_and_messages(revision: Revision) -> None:
    server = Server("s")
    asked: list[Any] = []
    unfit: Any = File("x")

    def model(method: str, params: JSON) -> JSON:
        asked.append([(one["role"], one["content"]["type"]) for one in params["messages"]])
        content = {"type": "text", "text": "fine"}
        return {"role": "assistant", "content": content, "model": "parrot"}

    @server.tool
    async def look(ctx: Context) -> str:
        await ctx.sample(Image(b"x", format="png"))
        await ctx.sample(Message("What?", "assistant"))
        await ctx.sample([Message(["See:", Image(b"x")]), "Well?"])
        return "done"

    @server.tool
    def blocking(ctx: BlockingContext) -> str:
        return ctx.sample(["See:", Image(b"x")]).text

    @server.tool
    async def file(ctx: Context) -> str:
        return (await ctx.sample(unfit)).text

    async with raw_client(server, revision, can=EVERYTHING, answer=model) as client:
        result = await client.call("look", {})
        assert result["content"][0]["text"] == "done"
        assert [("user", "image")] in asked
        assert [("assistant", "text")] in asked
        assert asked[-1] == [("user", "text"), ("user", "image"), ("user", "text")]
        await client.call("blocking", {})
        assert asked[-1] == [("user", "text"), ("user", "image")]
        assert (await client.call("file", {}))["isError"] is True


def test_what_a_model_cannot_be_sent_is_refused_in_words() -> None:
    from colonnade import Sample

    unfit: Any = File("x")
    words = refusal(lambda: Sample(unfit).input_request())
    assert "a model cannot be sent File; send text, Image or Audio" in words


# ---------------------------------------------------------------- reprs


def test_what_is_returned_is_shown_in_a_few_words_without_its_data() -> None:
    assert repr(Image(b"x" * 9000)) == "Image(image/png, 9000 bytes)"
    assert repr(Audio(b"x")) == "Audio(audio/wav, 1 bytes)"
    assert repr(File(b"x" * 9000, uri="notes://a")) == (
        "File('notes://a', application/octet-stream, 9000 bytes)"
    )
    assert repr(File("text", uri="notes://a")) == "File('notes://a', text/plain, 4 characters)"
    assert repr(Link("notes://a")) == "Link('notes://a')"
    assert repr(Message("Hello")) == "Message('Hello', 'user')"
    assert repr(Message([Image(b"x"), "y"], "assistant")) == (
        "Message([Image(image/png, 1 bytes), 'y'], 'assistant')"
    )
    assert repr(ToolReturn("no", is_error=True)) == "Result('no', is_error=True)"
    assert (
        repr(ToolReturn(data={"a": 1}, meta={"b": 2}))
        == "Result(None, data={'a': 1}, meta={'b': 2})"
    )
    assert repr(ToolReturn(b"x" * 9000, data=list(range(99)))) == (
        "Result(<9000 bytes>, data=<list of 99>)"
    )
    assert len(repr(Message("x" * 9000))) < 90
