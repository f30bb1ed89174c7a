"""What servers ask comes to one place, with who asks for which call, and never to another caller."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from colonnade import (
    ColonnadeError,
    Context,
    Declined,
    Host,
    HostInputRequest,
    Middleware,
    RemoteError,
    RequestContext,
    Server,
)
from colonnade.errors import Fault, FaultKind
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Settings, Sharing
from colonnade.host.input_requests import InputRequestHandler
from colonnade.protocol import types as t
from colonnade.protocol.input_requests import InputRequest
from host.wrapped_request import wrapping
from live import Records, live, live_for

OLD, NEW = "2025-06-18", "2026-07-28"

ASKING = """
from colonnade import Context, Server

server = Server("asking")


@server.tool
async def book(who: str, number: int, ctx: Context) -> str:
    said = await ctx.elicit(f"Which seat for {who}, {number}?", str)
    return f"{who} {number}: {said}"


server.run()
"""


def asking() -> Server:
    server = Server("asking")

    @server.tool
    async def book(who: str, ctx: Context) -> str:
        return f"{who}: {await ctx.elicit(f'Which seat for {who}?', str)}"

    @server.tool
    async def think(ctx: Context) -> str:
        return (await ctx.sample("Think.")).text

    @server.tool
    async def where(ctx: Context) -> list[str]:
        return [str(root.uri) for root in await ctx.roots()]

    _ = book, think, where
    return server


def told(question: HostInputRequest) -> str:
    assert isinstance(question.params, t.ElicitRequestParams)
    return question.params.message


@pytest.mark.parametrize("sharing", ["caller", "pooled"])
def test_no_form_of_one_caller_reaches_another_through_a_server_that_asks_by_request(
    sharing: Sharing, tmp_path: Path
) -> None:
    crossed(tmp_path, Settings(revision=OLD, sharing=sharing))


def test_no_form_of_one_caller_reaches_another_through_a_server_that_asks_by_result(
    tmp_path: Path,
) -> None:
    crossed(tmp_path, Settings(revision=NEW))


@live_for(600)
async def crossed(tmp_path: Path, settings: Settings) -> None:
    """Two callers, a hundred forms, five of each caller at once."""
    file = tmp_path / "asking.py"
    file.write_text(ASKING)
    forms: list[str] = []

    async def on_input_request(question: HostInputRequest) -> str:
        await asyncio.sleep(0)
        callers = {call.caller for call in question.calls}
        (caller,) = callers  # nobody else's call can be meant
        assert question.server == "desk"
        assert told(question).startswith(f"Which seat for {caller}, ")
        meant = [call for call in question.calls if str(call.arguments["number"]) in told(question)]
        assert meant
        forms.append(told(question))
        return f"seat of {caller} by {told(question)}"

    entry = entry_of("desk", [sys.executable, str(file)], settings)
    async with Host({"desk": entry}, on_input_request=on_input_request) as host:

        async def book(who: str, number: int) -> None:
            arguments = {"who": who, "number": number}
            said = await host.caller(who).call_tool("desk__book", arguments)
            form = f"Which seat for {who}, {number}?"
            assert said.text == f"{who} {number}: seat of {who} by {form}"

        for start in range(0, 50, 5):
            some = range(start, start + 5)
            await asyncio.gather(*(book(who, n) for n in some for who in ("alice", "bob")))
    assert len(forms) == 100
    assert len(set(forms)) == 100


@pytest.mark.spec("R0361", "R0589")
@pytest.mark.parametrize("revision", [OLD, NEW])
def test_a_question_says_who_asks_for_which_call(revision: str) -> None:
    asked: list[HostInputRequest] = []

    def on_input_request(question: HostInputRequest) -> Any:
        asked.append(question)
        return "12A" if question.kind == "elicit" else "I have thought."

    @live
    async def exercise() -> None:
        settings = Settings(revision=revision, sampling=True)
        entry = entry_of("desk", asking(), settings)
        async with Host({"desk": entry}, on_input_request=on_input_request) as host:
            await host.call_tool("desk__book", {"who": "Ada"}, caller="ada")
            assert (await host.call_tool("desk__think")).text == "I have thought."

    exercise()
    book, think = asked
    assert (book.server, book.kind, told(book)) == ("desk", "elicit", "Which seat for Ada?")
    assert book.calls[0][:3] == ("desk__book", {"who": "Ada"}, "ada")
    assert (think.kind, think.calls[0].name) == ("sample", "desk__think")


@pytest.mark.parametrize("revision", [OLD, NEW])
def test_with_nobody_to_ask_everything_is_refused_at_once(revision: str) -> None:
    @live
    async def exercise() -> None:
        settings = Settings(revision=revision, sampling=True)
        async with Host({"desk": entry_of("desk", asking(), settings)}) as host:
            assert await refused(host, "desk__book", {"who": "Ada"})
            assert await refused(host, "desk__think")

    exercise()


@live
async def test_who_gave_nobody_to_ask_is_told_of_which_tool_and_how_to() -> None:
    entry = entry_of("desk", asking(), Settings(revision=NEW, sampling=True))
    async with Host({"desk": entry}) as host:
        for tool, arguments in (("desk__book", {"who": "Ada"}), ("desk__think", {})):
            words = rf"'{tool}' of server 'desk' needs input .* pass Host\(on_input_request=…\)"
            with pytest.raises(RemoteError, match=words) as raised:
                await host.call_tool(tool, arguments)
            assert raised.value.code == -32021
    closed = entry_of("desk", asking(), Settings(revision=NEW))
    async with Host({"desk": closed}, on_input_request=lambda question: "I thought.") as host:
        with pytest.raises(RemoteError, match="set sampling = true in its settings"):
            await host.call_tool("desk__think")


@live
async def test_who_gave_nobody_to_ask_is_told_so_by_a_prompt_of_an_older_server_too() -> None:
    server = Server("older")

    @server.prompt
    async def plan(ctx: Context) -> str:
        return await ctx.elicit("Which city?", str)

    _ = plan
    entry = entry_of("desk", server, Settings(revision=OLD))
    async with Host({"desk": entry}) as host:
        with pytest.raises(
            RemoteError, match=r"'desk__plan' of server 'desk' needs input .*on_input_request"
        ):
            await host.get_prompt("desk__plan")


@pytest.mark.parametrize("middleware", [(), (wrapping,)])
def test_the_remedy_is_told_whatever_middleware_passes_on(middleware: Sequence[Middleware]) -> None:
    @live
    async def exercise() -> None:
        entry = entry_of("desk", asking(), Settings(revision=NEW))
        async with Host({"desk": entry}, middleware=middleware) as host:
            with pytest.raises(RemoteError, match=r"pass Host\(on_input_request=…\)") as raised:
                await host.call_tool("desk__book", {"who": "Ada"})
            assert raised.value.server == "desk"

    exercise()


@pytest.mark.parametrize("data", [None, "elicitation", {"requiredCapabilities": ["elicitation"]}])
def test_capabilities_are_not_guessed_from_the_message_of_an_error(data: Any) -> None:
    """Only `requiredCapabilities` in its data says what a server needs; an error without it is
    passed on as the server wrote it."""

    @live
    async def exercise() -> None:
        server = Server("prose")
        words = "this needs elicitation, which the client does not support"

        @server.prompt
        def plan() -> str:
            raise Fault(FaultKind.INTERNAL, words, data)

        _ = plan
        async with Host({"desk": server}) as host:
            with pytest.raises(RemoteError) as raised:
                await host.get_prompt("desk__plan")
            assert (raised.value.message, raised.value.server) == (words, "desk")

    exercise()


async def refused(host: Host, tool: str, arguments: dict[str, Any] | None = None) -> bool:
    """Whether nothing came of a call, said either way."""
    try:
        return (await host.call_tool(tool, arguments)).is_error
    except ColonnadeError:
        return True


@pytest.mark.parametrize("revision", [OLD, NEW])
def test_a_model_is_asked_only_for_a_server_that_may(revision: str) -> None:
    @live
    async def exercise() -> None:
        entry = entry_of("desk", asking(), Settings(revision=revision))
        async with Host({"desk": entry}, on_input_request=lambda _: "words") as host:
            assert await refused(host, "desk__think")

    exercise()


@live
async def test_one_session_for_all_callers_is_offered_nothing() -> None:
    asked: list[HostInputRequest] = []
    settings = Settings(revision=OLD, sharing="shared", sampling=True, roots=("/",))
    entry = entry_of("desk", asking(), settings)
    async with Host({"desk": entry}, on_input_request=asked.append) as host:
        assert await refused(host, "desk__book", {"who": "Ada"})
        assert await refused(host, "desk__think")
        assert await refused(host, "desk__where")
    assert asked == []


@live
async def test_roots_are_what_the_configuration_says(tmp_path: Path) -> None:
    settings = Settings(revision=OLD, roots=(str(tmp_path),))
    async with Host({"desk": entry_of("desk", asking(), settings)}) as host:
        assert (await host.call_tool("desk__where")).data == [tmp_path.as_uri()]


@pytest.mark.parametrize("revision", [OLD, NEW])
def test_a_handler_that_fails_has_refused_and_nothing_else_happens(revision: str) -> None:
    def on_input_request(question: HostInputRequest) -> Any:
        raise KeyError("a secret of this program")

    @live
    async def exercise() -> None:
        entry = entry_of("desk", asking(), Settings(revision=revision, sampling=True))
        with Records("colonnade.host", "colonnade.client"):
            async with Host({"desk": entry}, on_input_request=on_input_request) as host:
                result = await host.call_tool("desk__book", {"who": "Ada"})
                assert result.is_error
                assert "secret" not in result.text
                assert await refused(host, "desk__think")
                assert await refused(host, "desk__book", {"who": "Bob"})

    exercise()


@pytest.mark.spec("R0363")
@pytest.mark.parametrize("revision", [OLD, NEW])
def test_a_person_may_say_no_or_go_away(revision: str) -> None:
    def on_input_request(question: HostInputRequest) -> Any:
        if question.kind == "elicit" and "Bob" in told(question):
            return None
        raise Declined("no")

    @live
    async def exercise() -> None:
        entry = entry_of("desk", asking(), Settings(revision=revision, sampling=True))
        async with Host({"desk": entry}, on_input_request=on_input_request) as host:
            result = await host.call_tool("desk__book", {"who": "Ada"})
            assert result.is_error
            assert "declined" in result.text
            result = await host.call_tool("desk__book", {"who": "Bob"})
            assert result.is_error
            assert "cancelled the request" in result.text
            assert await refused(host, "desk__think")

    exercise()


@live
async def test_a_handler_that_never_answers_has_refused() -> None:
    async def on_input_request(question: HostInputRequest) -> Any:
        await asyncio.Event().wait()

    desk = InputRequestHandler(on_input_request, timeout_s=0.01)
    form = t.ElicitSchema(properties={})
    question = InputRequest(t.ElicitRequestParams(message="?", requested_schema=form))
    with Records("colonnade.host") as records:
        assert b'"cancel"' in bytes(await desk.answer(question))
    words = "on_input_request raised TimeoutError: no result within 0.01 s"
    assert records.lines == [f"ERROR the input request of server '' is not answered: {words}"]


@live
async def test_an_answer_that_does_not_fit_its_form_is_none() -> None:
    entry = entry_of("desk", asking(), Settings(revision=OLD))
    with Records("colonnade.host", "colonnade.client") as records:
        async with Host({"desk": entry}, on_input_request=lambda _: {"value": 7}) as host:
            result = await host.call_tool("desk__book", {"who": "Ada"})
    assert "cancelled the request" in result.text
    start = "ERROR the input request of server 'desk' is not answered: "
    start += "on_input_request returned no valid result: "
    assert records.lines[0].startswith(f"{start}the content does not fit the form: value: ")


@live
async def test_the_log_says_what_a_handler_raised() -> None:
    def on_input_request(question: HostInputRequest) -> Any:
        raise ValueError("the disk is full")

    with Records("colonnade.host", "colonnade.client") as records:
        async with Host({"desk": asking()}, on_input_request=on_input_request) as host:
            result = await host.call_tool("desk__book", {"who": "Ada"})
    assert "cancelled the request" in result.text
    raised = "on_input_request raised ValueError: the disk is full"
    assert records.lines == [f"ERROR the input request of server 'desk' is not answered: {raised}"]


def _nothing() -> None: ...


class Curious(Server):
    """Asks for something while it lists its tools."""

    said: str = ""

    async def respond(self, request: RequestContext) -> bytes | None:
        if request.exchange.method.name == "tools/list":
            form = t.ElicitSchema(properties={})
            asked = InputRequest(
                t.ElicitRequestParams(message="Who are you?", requested_schema=form)
            )
            try:
                self.said = bytes(await request.ask(asked)).decode()
            except ColonnadeError as error:
                self.said = str(error)
        return await super().respond(request)


@live
async def test_who_only_looks_is_asked_nothing() -> None:
    server = Curious("curious")
    server.tool(_nothing)
    asked: list[HostInputRequest] = []
    entry = entry_of("c", server, Settings(revision=OLD))
    async with Host({"c": entry}, on_input_request=asked.append) as host:
        assert len(await host.list_tools()) == 1
    assert asked == []
    assert server.said
