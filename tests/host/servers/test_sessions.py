"""Seats: whose they are, how many there are, and that nothing of one caller reaches another."""

import asyncio
import json
import traceback
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from colonnade import Context, Server
from colonnade.client.input_callbacks import MAX_SAMPLES
from colonnade.errors import CannotConnect, ChannelError, ConnectionLost, TimedOut
from colonnade.host.servers.session_input import send_to_latest_call
from colonnade.ports import RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.input_requests import InputRequest, InputRequestKind
from colonnade.protocol.revision import NEWEST
from host.supervised import ASKS, HANDSHAKE, Call, children, supervised, turns_of_loop
from live import live, until


def echo(question: InputRequest) -> Any:
    """What the form says of itself is what is filled in."""
    assert isinstance(question.params, t.ElicitRequestParams)
    return {"answer": question.params.message}


def filled(text: str) -> str:
    return json.loads(text)["content"]["answer"]


# ---------------------------------------------------------------- whose they are


@live
async def test_each_caller_has_a_process_of_their_own_that_nobody_else_gets() -> None:
    async with supervised() as server:
        alice = await server.call("who", "alice")
        assert await server.call("who", "bob") not in (alice, "")
        assert await server.call("who", "alice") == alice
        assert server.supervisor.status.sessions == 2


@live
async def test_one_that_is_pooled_is_handed_on_when_it_is_idle_and_not_before() -> None:
    async with supervised(sharing="pooled") as server:
        first = await server.call("who", "alice")
        assert await server.call("who", "bob") == first
        waiting = asyncio.create_task(server.call("wait", "alice"))
        await until(lambda: "waiting" in server.supervisor.status.stderr)
        assert await server.call("who", "alice") == first  # the same caller, beside the other call
        second = await server.call("who", "bob")
        assert second != first
        await server.call("go", "alice")
        assert await waiting == first
        assert {await server.call("who", "carol")} <= {first, second}


@live
async def test_one_that_is_pooled_is_not_handed_on_after_a_call_without_an_answer() -> None:
    async with supervised(sharing="pooled") as server:
        first = await server.call("who", "alice")
        with pytest.raises(TimedOut):
            await server.call("hang", "alice", timeout_s=0.05)
        assert await server.call("who", "bob") != first
        call = asyncio.create_task(server.call("hang", "bob"))
        await until(lambda: server.in_flight == 1)
        second = server.pids
        call.cancel()
        await asyncio.wait([call])
        assert int(await server.call("who", "alice")) not in (int(first), *second)


@pytest.mark.spec("R0754")
@pytest.mark.parametrize("sharing", ["caller", "pooled", "shared"])
@live
async def test_a_server_whose_requests_stand_for_themselves_has_one_session_for_all(
    sharing: str,
) -> None:
    async with supervised("modern", sharing=sharing) as server:
        calls = [server.call("who", caller) for caller in ("alice", "bob", "", "carol")]
        assert len(set(await asyncio.gather(*calls))) == 1
        assert server.supervisor.status.revision == NEWEST.date
        assert server.supervisor.status.sessions == 1


@live
async def test_who_comes_while_nobody_knows_what_it_speaks_gets_a_session_of_their_own() -> None:
    async with supervised(revision=None) as server:
        pids = await asyncio.gather(*(server.call("who", caller) for caller in ("a", "b", "c")))
        assert len(set(pids)) == 3
        assert server.supervisor.status.revision == HANDSHAKE


# ---------------------------------------------------------------- how many there are


@live
async def test_the_session_that_was_idle_longest_makes_room_for_another_caller() -> None:
    async with supervised(max_sessions=2) as server:
        alice, bob = await server.call("who", "alice"), await server.call("who", "bob")
        assert await server.call("who", "alice") == alice
        carol = await server.call("who", "carol")
        assert {int(alice), int(carol)} == set(server.pids)
        assert int(bob) not in children()
        assert server.supervisor.status.crashes == 0


@live
async def test_sessions_make_room_for_several_callers_at_the_same_time() -> None:
    """One after the other, callers of a busy host would wait for every session that is closed."""
    async with supervised(max_sessions=2) as server:
        for caller in ("alice", "bob"):
            await server.call("who", caller)
        supervisor, closing = server.supervisor, list[int]()
        close = supervisor._close_session

        def count(*arguments: Any) -> None:
            close(*arguments)
            closing.append(len(supervisor._closing))

        supervisor._close_session = count  # type: ignore[method-assign]
        # Several calls of one caller need one session.
        callers = ("carol", "carol", "dave", "dave", "dave")
        pids = await asyncio.gather(*(server.call("who", caller) for caller in callers))
        assert len(set(pids)) == 2
        assert closing == [1, 2]
        supervisor._close_session = close  # type: ignore[method-assign]


@live
async def test_where_all_sessions_are_taken_the_wait_ends_with_what_to_do() -> None:
    async with supervised(max_sessions=1, timeout_s=0.3) as server:
        waiting = asyncio.create_task(server.call("wait", "alice", timeout_s=60.0))
        await until(lambda: server.in_flight == 1)
        words = (
            "all 1 sessions are in use by other calls; try again later, or raise its max_sessions"
        )
        with pytest.raises(CannotConnect, match=words):
            await server.call("who", "bob")
        await server.call("go", "alice", timeout_s=60.0)
        await waiting


@live
async def test_who_waits_for_a_session_gets_it_when_it_is_free() -> None:
    async with supervised(max_sessions=1) as server:
        waiting = asyncio.create_task(server.call("wait", "alice"))
        await until(lambda: "waiting" in server.supervisor.status.stderr)
        others = [asyncio.create_task(server.call("who", caller)) for caller in ("bob", "carol")]
        await turns_of_loop()
        assert not any(other.done() for other in others)
        await server.call("go", "alice")
        await waiting
        assert len({*await asyncio.gather(*others)}) == 2
        assert len(server.pids) == 1


# ---------------------------------------------------------------- what they are offered


@pytest.mark.parametrize(
    ("options", "settings", "offered"),
    [
        ({}, {}, {"elicitation"}),
        ({}, {"sampling": True}, {"elicitation", "sampling"}),
        ({}, {"sampling": True, "elicitation": False}, {"sampling"}),
        ({}, {"roots": ("/",)}, {"elicitation", "roots"}),
        ({"input_kinds": frozenset[InputRequestKind]()}, {"sampling": True}, set[str]()),
        ({"input_kinds": frozenset({InputRequestKind.SAMPLE})}, {"sampling": True}, {"sampling"}),
        ({}, {"sharing": "shared", "sampling": True, "roots": ("/",)}, set[str]()),
    ],
)
@live
async def test_a_server_is_offered_what_the_host_can_answer_and_the_settings_allow(
    options: dict[str, Any], settings: dict[str, Any], offered: set[str]
) -> None:
    async with supervised(options=options, **settings) as server:
        assert set(json.loads(await server.call("can"))) == offered


@live
async def test_one_that_all_share_is_asked_nothing_and_its_log_is_heard_by_nobody() -> None:
    async with supervised(sharing="shared") as server:
        assert await server.call("say", "a", text="canary") == "said"
        pids = await asyncio.gather(*(server.call("who", caller) for caller in ("a", "b")))
        assert len(set(pids)) == 1
        assert "is not supported by this client" in await server.call("ask", "a", canary="a")
        assert not any(call.asked or call.told for call in server.calls)


# ---------------------------------------------------------------- questions


@pytest.mark.parametrize("sharing", ["caller", "pooled"])
@live
async def test_forms_of_two_callers_of_one_legacy_server_never_cross(sharing: str) -> None:
    async with supervised(sharing=sharing) as server:

        async def calls(caller: str) -> None:
            for number in range(25):
                canary = f"{caller}-{number}"
                text = await server.call("ask", caller, echo, canary=canary)
                assert filled(text) == f"for {canary}"

        await asyncio.gather(calls("alice"), calls("bob"))
        for call in server.calls:
            assert len(call.asked) == 1
            assert call.asked[0].startswith(f"for {call.exchange.principal}-")


@live
async def test_forms_of_two_callers_are_open_at_the_same_time_and_do_not_cross() -> None:
    answers = {caller: asyncio.Event() for caller in ("alice", "bob")}
    async with supervised() as server:

        def asked(caller: str) -> Any:
            async def answer(question: InputRequest) -> Any:
                await answers[caller].wait()
                return {"answer": f"{caller}'s secret"}

            return answer

        alice = asyncio.create_task(server.call("ask", "alice", asked("alice"), canary="alice"))
        bob = asyncio.create_task(server.call("ask", "bob", asked("bob"), canary="bob"))
        await until(lambda: all(call.asked for call in server.calls) and len(server.calls) == 2)
        answers["bob"].set()
        assert filled(await bob) == "bob's secret"
        assert not alice.done()
        answers["alice"].set()
        assert filled(await alice) == "alice's secret"


def asking_server() -> Server:
    server = Server("asks")

    @server.tool
    async def ask(canary: str, ctx: Context) -> str:
        return await ctx.elicit(f"for {canary}", str)

    return server


@live
async def test_questions_by_result_go_to_the_very_call_on_a_session_that_all_share() -> None:
    async with supervised("modern", target=asking_server()) as server:

        def answer(question: InputRequest) -> Any:
            assert isinstance(question.params, t.ElicitRequestParams)
            (field,) = question.params.requested_schema.properties  # type: ignore[union-attr]
            return {field: question.params.message}

        async def call(caller: str, number: int) -> None:
            canary = f"{caller}-{number}"
            assert await server.call("ask", caller, answer, canary=canary) == f"for {canary}"

        await asyncio.gather(*(call(caller, n) for caller in ("alice", "bob") for n in range(20)))
        assert server.supervisor.status.sessions == 1
        for one in server.calls:
            assert [asked.partition("-")[0] for asked in one.asked] == [
                f"for {one.exchange.principal}"
            ]


@live
async def test_a_question_by_request_names_every_call_that_it_may_be_about() -> None:
    named: list[int] = []

    async def send(turns: tuple[RequestContext, ...], question: InputRequest) -> Any:
        named.append(len(turns))
        return await send_to_latest_call(turns, question)

    async with supervised(options={"input_kinds": ASKS, "send_input_request": send}) as server:
        await server.call("ask", "alice", echo, canary="1")
        waiting = asyncio.create_task(server.call("wait", "alice"))
        await until(lambda: "waiting" in server.supervisor.status.stderr)
        await server.call("ask", "alice", echo, canary="2")
        await server.call("go", "alice")
        await waiting
        assert named == [1, 2]


@live
async def test_roots_are_those_of_the_configuration_and_nobody_is_asked(tmp_path: Path) -> None:
    async with supervised(roots=(str(tmp_path),)) as server:
        answer = json.loads(await server.call("put", method="roots/list", params={}))
        assert [root["uri"] for root in answer["roots"]] == [tmp_path.as_uri()]


@live
async def test_a_model_is_asked_for_the_call_where_the_settings_allow_it_and_not_too_often() -> (
    None
):
    message = {"role": "user", "content": {"type": "text", "text": "a haiku"}}
    sample = {"messages": [message], "maxTokens": 10}
    asked: list[InputRequestKind] = []

    def answer(question: InputRequest) -> Any:
        asked.append(question.kind)
        content = t.TextContent(text="five, seven, five")
        return t.CreateMessageResult(role="assistant", content=content, model="m")

    async with supervised(sampling=True) as server:

        async def put() -> Any:
            method = "sampling/createMessage"
            return json.loads(await server.call("put", "", answer, method=method, params=sample))

        assert (await put())["content"]["text"] == "five, seven, five"
        for _ in range(MAX_SAMPLES - 1):
            await put()
        assert "more than 60 sampling requests" in (await put())["message"]
        assert asked == [InputRequestKind.SAMPLE] * MAX_SAMPLES


@live
async def test_an_answer_that_does_not_fit_is_none() -> None:
    def wrong(question: InputRequest) -> Any:
        return {"answer": 3}

    async with supervised() as server:
        text = await server.call("ask", "alice", wrong, canary="alice")
        assert "does not fit the input request" in text


@live
async def test_a_question_that_comes_when_nobody_has_a_call_is_refused() -> None:
    async with supervised() as server:
        assert await server.call("ask_later", "alice", canary="alice") == "asked"
        assert await server.call("who", "alice")
        assert all(not call.asked for call in server.calls[:1])


@live
async def test_a_question_is_withdrawn_with_the_call_that_it_is_about() -> None:
    withdrawn = asyncio.Event()

    async def never(question: InputRequest) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            withdrawn.set()

    async with supervised() as server:
        call = asyncio.create_task(server.call("ask", "alice", never, canary="alice"))
        await until(lambda: bool(server.calls) and bool(server.calls[0].asked))
        call.cancel()
        await asyncio.wait([call])
        await asyncio.wait_for(withdrawn.wait(), 60)
        assert await server.call("who", "alice")


@live
async def test_who_was_asked_and_has_gone_is_no_answer_and_no_accident() -> None:
    async def gone(question: InputRequest) -> Any:
        raise ChannelError("the caller has gone")

    async with supervised() as server:
        text = await server.call("ask", "alice", gone, canary="alice")
        assert "the caller has disconnected" in text


# ---------------------------------------------------------------- canaries


@live
async def test_a_log_is_for_the_caller_whose_session_it_is() -> None:
    async with supervised() as server:
        await asyncio.gather(
            server.call("say", "alice", text="alice's canary"),
            server.call("say", "bob", text="bob's canary"),
        )
        for call in server.calls:
            (told,) = call.told
            assert told["data"] == f"{call.exchange.principal}'s canary"


def chatty() -> Server:
    server = Server("chatty")

    @server.tool
    async def chat(words: str, ctx: Context) -> str:
        for step in range(1, 4):
            await ctx.progress(step, 3)
        await ctx.info(words)
        return words

    return server


@live
async def test_a_log_of_a_session_for_everybody_is_for_its_only_caller_or_for_nobody() -> None:
    async with supervised("modern", target=chatty()) as server:
        await server.call("chat", "alice", words="hers")
        await server.call("chat", "bob", words="his")
        alice, bob = server.calls
        assert [told["data"] for told in alice.told] == ["hers"]
        assert bob.told == []


@live
async def test_progress_is_all_delivered_before_the_result_and_waits_for_no_other_caller() -> None:
    never, heard = asyncio.Event(), list[float]()
    async with supervised("modern", target=chatty()) as server:

        async def slow(progress: float, total: float | None, message: str | None) -> None:
            await never.wait()

        async def quick(progress: float, total: float | None, message: str | None) -> None:
            await asyncio.sleep(0)
            heard.append(progress)

        params = t.CallToolRequestParams(name="chat", arguments=Raw(b'{"words":"x"}'))

        async def call(caller: str, on_progress: Any) -> None:
            turn = Call("tools/call", params, caller, echo)
            await server.supervisor.request(turn, "tools/call", params, on_progress=on_progress)

        stuck = asyncio.create_task(call("alice", slow))
        await until(lambda: server.in_flight == 1)
        await call("bob", quick)
        assert heard == [1.0, 2.0, 3.0]
        await stuck  # whose handler had its time


@live
async def test_what_a_process_wrote_for_one_caller_is_in_no_error_of_another() -> None:
    async with supervised(max_crashes=2, options={"random_fraction": lambda: 0.99}) as server:
        await server.call("who", "bob")
        for _ in range(2):
            with pytest.raises(ConnectionLost, match="alice's canary"):
                await server.call("die", "alice", text="alice's canary")
        with pytest.raises(CannotConnect, match="alice's canary"):
            await server.call("who", "alice")
        # A list is shown to others, even one that was read for alice.
        params = t.PaginatedRequestParams()
        listing = Call("tools/list", params, "alice", lambda _: None)
        with pytest.raises(CannotConnect) as caught:
            await server.supervisor.run_read_only(listing, lambda call: call.client.list_tools())
        assert "canary" not in str(caught.value)
        assert "exited with 3" in str(caught.value)
        assert await server.call("who", "bob")  # whose process is alive
        assert await server.call("who", "carol")


@live
async def test_an_error_of_a_process_that_serves_several_quotes_nothing_to_any_of_them() -> None:
    async with supervised("modern") as server:
        await server.call("say", "alice", text="alice's canary")
        hanging = asyncio.create_task(server.call("hang", "bob"))
        await until(lambda: server.in_flight == 1)
        with pytest.raises(ConnectionLost) as hers:
            await server.call("die", "alice")
        with pytest.raises(ConnectionLost) as his:
            await hanging
        assert "canary" not in str(hers.value) + str(his.value)
        assert "exited with 3" in str(his.value)
        assert "alice's canary" in server.supervisor.status.stderr  # for whoever runs the host


@live
async def test_what_is_kept_from_a_caller_is_what_a_process_wrote_and_never_a_part_of_the_message() -> (
    None
):
    key = "odd; its last lines: none"  # a phrase of our own sentences, as anybody may write it
    async with supervised("modern", key=key) as server:
        await server.call("say", "alice", text="alice's canary")
        with pytest.raises(ConnectionLost) as caught:
            await server.call("die", "bob")
        error = caught.value
        assert str(error).startswith(f"server {key!r} (pid ")
        assert str(error).endswith("; whether it had an effect is unknown")
        assert "exited with 3" in str(error)
        assert (error.server, error.stderr) == (key, ())
        chained = traceback.TracebackException.from_exception(error)
        assert "canary" not in "".join(chained.format())


@live
async def test_the_one_caller_of_a_process_is_given_what_it_wrote_as_lines() -> None:
    async with supervised() as server:
        with pytest.raises(ConnectionLost) as caught:
            await server.call("die", "alice", text="alice's canary")
        error = caught.value
        assert (error.server, error.stderr) == ("odd", ("alice's canary",))
        assert error.effect_unknown
        assert str(error).endswith(
            "; whether it had an effect is unknown; its last lines: alice's canary"
        )


@live
async def test_nor_does_an_error_of_its_client_itself() -> None:
    async with supervised("modern") as server:
        await server.call("say", "alice", text="alice's canary")
        turn = Call("tools/call", t.RequestParams(), "bob", echo)
        with pytest.raises(ConnectionLost, match="exited with 3") as caught:
            async with server.supervisor.acquire(turn) as call:
                await call.client.call_tool("die")
        assert "canary" not in str(caught.value)


@live
async def test_what_was_kept_for_one_caller_is_not_given_to_another() -> None:
    served: list[int] = []
    server = Server("kept")

    @server.resource("notes://a", ttl_s=60, cache_scope="private")
    def notes() -> str:
        served.append(1)
        return "secret"

    async with supervised("modern", target=server) as host:
        params = t.ReadResourceRequestParams(uri="notes://a")
        for caller in ("alice", "alice", "bob"):
            turn = Call("resources/read", params, caller, echo)
            await host.supervisor.request(turn, "resources/read", params)
        assert len(served) == 2
