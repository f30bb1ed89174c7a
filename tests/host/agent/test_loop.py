"""The model's turn: tools are offered, calls are made, results are told, and it has an end."""

import asyncio
import base64
import sys
from pathlib import Path
from typing import Any

import pytest

from colonnade import (
    CannotConnect,
    ChannelError,
    ConnectionLost,
    Context,
    Fault,
    FaultKind,
    Handler,
    Image,
    LocalProtocolError,
    LoginRequired,
    Refused,
    RemoteProtocolError,
    RequestContext,
    Server,
    TimedOut,
)
from colonnade.errors import Output
from colonnade.host.agent.loop import ModelCall, failure
from colonnade.host.agent.openai_model import with_tool_results
from colonnade.host.input_requests import HostInputRequest
from colonnade.protocol.types import ProtocolType
from host.scripted_model import JSON, Scripted, calls, hosted, many, shop
from live import live

WAIT_S = 60.0


@live
async def test_a_model_is_shown_the_tools_calls_them_and_says_what_it_read() -> None:
    model = Scripted([calls(("shop__price", {"fruit": "plum", "count": 3})), "75 cents."])
    given: list[JSON] = [{"role": "user", "content": "What are three plums?"}]
    async with hosted() as host:
        run = await host.run(model, given)
    assert model.shown[0] == ["shop__price", "shop__essay"]
    assert (run.text, run.rounds, run.stopped) == ("75 cents.", 2, "done")
    assert run.messages == [
        {"role": "user", "content": "What are three plums?"},
        calls(("shop__price", {"fruit": "plum", "count": 3})),
        {"role": "tool", "tool_call_id": "id0", "content": "75"},
        {"role": "assistant", "content": "75 cents."},
    ]
    (made,) = run.calls
    assert (made.name, made.server, made.error) == ("shop__price", "shop", None)
    assert made.arguments == {"fruit": "plum", "count": 3}
    assert made.result.data == 75
    assert made.seconds > 0
    assert len(given) == 1  # what was given is as it was


@pytest.mark.spec("R0664")
@live
async def test_an_error_of_a_tool_is_told_to_the_model_which_corrects_it() -> None:
    def fix(messages: list[JSON]) -> Any:
        assert messages[-1]["content"] == "Error: No 'kiwi'; there is pear, plum."
        return calls(("shop__price", {"fruit": "pear"}))

    async with hosted() as host:
        model = Scripted([calls(("shop__price", {"fruit": "kiwi"})), fix, "40."])
        run = await host.run(model, "What is a kiwi?")
    assert [call.result.is_error for call in run.calls] == [True, False]
    assert run.text == "40."


@pytest.mark.spec("R0664")
@live
async def test_what_a_model_does_wrong_is_told_to_it() -> None:
    wrong = calls(
        ("shop__prise", {}), ("shop__price", "{"), ("shop__price", {"count": 3}), ("", "[]")
    )
    model = Scripted([wrong, "I give up."])
    async with hosted() as host:
        run = await host.run(model, "Hello.")
    assert (
        model.told[0] == "Error: there is no tool 'shop__prise'; there is shop__price, shop__essay"
    )
    assert model.told[1].startswith("Error: shop__price: the arguments are not valid JSON")
    assert "fruit" in model.told[2]
    assert model.told[3].startswith("Error: there is no tool 'nameless'; there is shop__")
    assert [call.server for call in run.calls] == ["", "shop", "shop", ""]


@live
async def test_calls_of_one_reply_are_made_at_once_and_told_in_their_order() -> None:
    server = Server("both")
    meeting, last = asyncio.Barrier(2), asyncio.Event()

    @server.tool
    async def first() -> str:
        await meeting.wait()
        await last.wait()
        return "first"

    @server.tool
    async def second() -> str:
        await meeting.wait()
        last.set()
        return "second"

    model = Scripted([calls(("both__first", {}), ("both__second", {})), "Done."])
    ended: list[str] = []
    async with hosted({"both": server}) as host, asyncio.timeout(WAIT_S):
        run = await host.run(model, "Go.", on_result=lambda call: ended.append(call.name))
    assert model.told == ["first", "second"]
    assert [call.name for call in run.calls] == ["both__first", "both__second"]
    assert ended == ["both__second", "both__first"]


# ---------------------------------------------------------------- bounds


@pytest.mark.spec("R0657")
@live
async def test_rounds_have_a_bound_and_the_conversation_can_go_on_after_it() -> None:
    def again(_: list[JSON]) -> Any:
        return calls(("shop__price", {"fruit": "plum"}))

    async with hosted() as host:
        run = await host.run(Scripted([again] * 3), "Go.", max_rounds=3)
        assert (run.stopped, run.rounds, len(run.calls)) == ("rounds", 3, 2)
        told = "Error: shop__price was not called: this was the last of 3 rounds"
        assert run.messages[-1]["content"] == told
        more = await host.run(Scripted(["Now."]), [*run.messages, {"role": "user", "content": "?"}])
    assert more.text == "Now."


@live
async def test_calls_have_a_bound_and_none_of_those_beyond_it_is_made() -> None:
    plum = ("shop__price", {"fruit": "plum"})
    model = Scripted([calls(plum, plum), calls(plum, plum)])
    async with hosted() as host:
        run = await host.run(model, "Go.", max_calls=3)
    assert (run.stopped, len(run.calls)) == ("calls", 2)
    assert "was not called: the limit of 3 calls is reached" in run.messages[-1]["content"]
    assert run.messages == with_tool_results(run.messages, "nobody")


@live
async def test_a_long_result_is_cut_and_says_so() -> None:
    model = Scripted([calls(("shop__essay", {"characters": 5000})), "Long."])
    async with hosted() as host:
        run = await host.run(model, "Go.", max_characters=100)
    cut = "a" * 100 + "\n[truncated: 4900 more characters; request less of it]"
    assert model.told == [cut]
    assert len(run.calls[0].result.text) == 5000  # the program has all of it


@live
async def test_bounds_that_make_no_sense_are_refused() -> None:
    async with hosted() as host:
        with pytest.raises(LocalProtocolError, match="at least 1"):
            await host.run(Scripted([]), "Go.", max_rounds=0)
        with pytest.raises(LocalProtocolError, match="max_tools must be at least 2"):
            await host.run(Scripted([]), "Go.", max_tools=1)


@live
async def test_a_model_that_was_cut_short_is_said_to_be() -> None:
    reply = {"choices": [{"message": {"content": "It is"}, "finish_reason": "length"}]}
    async with hosted() as host:
        run = await host.run(Scripted([reply]), "Go.")
    assert (run.text, run.stopped) == ("It is", "length")


# ---------------------------------------------------------------- what goes wrong


@live
async def test_whoever_is_asked_before_a_call_may_refuse_it_and_the_model_is_told() -> None:
    async def ask(call: ModelCall) -> None:
        await asyncio.sleep(0)
        if call.arguments["fruit"] == "pear":
            raise Refused("the user said no")

    both = calls(("shop__price", {"fruit": "pear"}), ("shop__price", {"fruit": "plum"}))
    model = Scripted([both, "Only plums."])
    async with hosted() as host:
        run = await host.run(model, "Go.", on_call=ask)
    assert model.told == ["Error: shop__price was refused: the user said no", "25"]
    assert isinstance(run.calls[0].error, Refused)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            CannotConnect("git ended with 3", output=Output(("token=hunter2",))),
            "x got no response: git ended with 3; it had no effect",
        ),
        (
            ConnectionLost("git is gone"),
            "x got no response: git is gone; whether it had an effect is unknown",
        ),
        (
            TimedOut("no answer within 60 s"),
            "x got no response: no answer within 60 s; whether it had an effect is unknown",
        ),
        (
            LoginRequired("visit https://login.example/?state=secret"),
            "x was not called: git requires a login by the user",
        ),
        (RemoteProtocolError("it is no JSON"), "x failed: it is no JSON"),
        (Refused(""), "x was refused: Refused"),
        (Refused("a" * 2000), f"x was refused: {'a' * 1000}…"),
    ],
)
def test_what_went_wrong_is_told_in_words_without_what_is_for_people(error: Any, told: str) -> None:
    assert failure("x", "git", error) == told


@live
async def test_what_a_model_or_a_callback_raises_is_raised_as_it_is() -> None:
    def fail(_: Any) -> None:
        raise ZeroDivisionError("a mistake of the program")

    async with hosted() as host:
        with pytest.raises(ZeroDivisionError):
            await host.run(Scripted([fail]), "Go.")
        wanted = calls(("shop__price", {"fruit": "plum"}), ("shop__price", {"fruit": "pear"}))
        with pytest.raises(ZeroDivisionError):
            await host.run(Scripted([wanted]), "Go.", on_call=fail)
        with pytest.raises(LocalProtocolError, match="not a reply of a model"):
            await host.run(Scripted([None]), "Go.")


@live
async def test_giving_up_gives_up_the_calls_and_the_conversation_can_be_repaired() -> None:
    server = Server("slow")
    begun, ended = asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    heard: list[JSON] = []
    async with hosted({"slow": server}) as host, asyncio.timeout(WAIT_S):
        model = Scripted([calls(("slow__wait", {}))])
        running = asyncio.create_task(host.run(model, "Go.", on_message=heard.append))
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await ended.wait()
    assert [message["role"] for message in heard] == ["assistant"]
    mended = with_tool_results([*heard, {"role": "user", "content": "Go on."}], "interrupted")
    assert mended[1] == {"role": "tool", "tool_call_id": "id0", "content": "interrupted"}
    assert [message["role"] for message in mended] == ["assistant", "tool", "user"]


# ---------------------------------------------------------------- many tools


@live
async def test_where_there_are_many_tools_a_search_is_offered_and_what_it_found() -> None:
    model = Scripted(
        [
            calls(("find_tools", {"words": "c42", "limit": 1})),
            calls(("many__count_c42", {})),
            "It is 42.",
        ]
    )
    async with hosted({"shop": shop(), "many": many(60)}) as host:
        run = await host.run(model, "How many c42 things are there?")
    assert model.shown == [
        ["find_tools"],
        ["find_tools", "many__count_c42"],
        ["find_tools", "many__count_c42"],
    ]
    assert run.text == "It is 42."
    found, called = run.calls
    assert found.server == ""
    assert found.result.text == (
        "Found; these can be called now:\n"
        "- many__count_c42(number: integer = 42): Count the c42 things."
    )
    assert called.result.text == "it is 42"


@live
async def test_a_search_says_what_it_did_not_find_and_what_it_wants() -> None:
    model = Scripted(
        [
            calls(
                ("find_tools", {"words": "elephant"}),
                ("find_tools", {}),
                ("find_tools", {"words": " ", "limit": "x"}),
                ("many__nothing", {}),
            ),
            "None.",
        ]
    )
    async with hosted({"many": many(60)}) as host:
        await host.run(model, "Go.")
    assert model.told[0] == (
        "No tool was found for 'elephant'; try other words. Servers: many (60)."
    )
    assert model.told[1] == model.told[2] == "Describe in `words` what the tool should do."
    assert "there is no tool 'many__nothing'" in model.told[3]


@live
async def test_no_more_tools_are_shown_than_may_be_and_those_in_use_stay() -> None:
    def search(word: str) -> JSON:
        return calls(("find_tools", {"words": word, "limit": 2}))

    model = Scripted(
        [search("a0 b1"), calls(("many__count_a0", {})), search("c2 d3"), search("e4"), "Done."]
    )
    async with hosted({"many": many(12)}) as host:
        await host.run(model, "Go.", max_tools=5)
    assert sorted(model.shown[1]) == ["find_tools", "many__count_a0", "many__count_b1"]
    assert "many__count_b1" in model.shown[3]
    assert len(model.shown[4]) == 5
    assert "many__count_b1" not in model.shown[4]  # found first, and never called
    assert "many__count_a0" in model.shown[4]


@live
async def test_a_model_may_call_what_was_allowed_and_nothing_else() -> None:
    model = Scripted([calls(("shop__essay", {"characters": 3}), ("shop__price", {})), "No."])
    async with hosted() as host:
        run = await host.run(model, "Go.", tools=["shop__price"])
        with pytest.raises(LocalProtocolError, match="no tool 'shop__prise'; there is shop__price"):
            await host.run(model, "Go.", tools=["shop__prise"])
    assert model.shown[0] == ["shop__price"]
    assert model.told[0] == "Error: there is no tool 'shop__essay'; there is shop__price"
    assert run.calls[0].tool is None


# ---------------------------------------------------------------- replies


class Object:
    """As OpenAI's own library gives it."""

    def __init__(self, plain: JSON) -> None:
        self._plain = plain

    def model_dump(self) -> JSON:
        return self._plain


@live
async def test_a_reply_may_be_words_a_completion_or_an_object_and_async() -> None:
    wanted = calls(("shop__price", {"fruit": "plum"})) | {"audio": None, "refusal": None}
    script: list[Any] = [Object({"choices": [Object({"message": wanted, "index": 0})]}), "25."]

    async def model(messages: list[JSON], tools: list[JSON]) -> Any:
        await asyncio.sleep(0)
        return script.pop(0)

    async with hosted() as host:
        run = await host.run(model, [Object({"role": "user", "content": "A plum?"})])
    assert run.messages[0] == {"role": "user", "content": "A plum?"}
    assert run.messages[1] == calls(("shop__price", {"fruit": "plum"}))
    assert run.text == "25."


@live
async def test_calls_without_ids_or_with_plain_arguments_are_understood() -> None:
    bare = {"function": {"name": "shop__price", "arguments": {"fruit": "plum"}}}
    reply = {"content": "", "tool_calls": [bare, bare | {"id": "call_0"}, bare | {"id": "call_0"}]}
    model = Scripted([reply, {"content": [{"type": "text", "text": "Three"}, {"type": "x"}]}])
    async with hosted() as host:
        run = await host.run(model, "Go.")
    ids = [call["id"] for call in run.messages[1]["tool_calls"]]
    assert len(set(ids)) == 3
    assert [m["tool_call_id"] for m in run.messages if m["role"] == "tool"] == ids
    assert run.text == "Three"


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ({"choices": []}, "no choice"),
        ({"role": "assistant"}, "neither content nor tool calls"),
        ({"content": "", "tool_calls": "no"}, "not a list"),
        (calls(*[("shop__price", {})] * 257), "257 calls at once"),
    ],
)
@live
async def test_what_is_no_reply_is_an_error(reply: Any, words: str) -> None:
    async with hosted() as host:
        with pytest.raises(RemoteProtocolError, match=words):
            await host.run(Scripted([reply]), "Go.")


@live
async def test_pictures_of_a_tool_are_named_for_a_model_that_takes_only_words() -> None:
    server = Server("art")
    dot = base64.b64decode("iVBORw0KGgo=")

    @server.tool
    def draw() -> Image:
        return Image(dot)

    model = Scripted([calls(("art__draw", {})), "A dot."])
    async with hosted({"art": server}) as host:
        await host.run(model, "Go.")
    assert model.told == ["[image image/png, 8 bytes: not shown here]"]


# ---------------------------------------------------------------- many servers

DYING = """
import os, sys
from colonnade import Server

server = Server("dying")


@server.tool
def die() -> str:
    sys.stderr.write("token=hunter2hunter2\\n")
    sys.stderr.flush()
    os._exit(3)


server.run()
"""


@live
async def test_a_server_that_dies_is_told_to_the_model_and_hurts_no_other(tmp_path: Path) -> None:
    path = tmp_path / "dying.py"
    path.write_text(DYING)
    both = calls(("dying__die", {}), ("shop__price", {"fruit": "plum"}))
    model = Scripted([both, "It is gone."])
    servers = {"shop": shop(), "dying": [sys.executable, str(path)]}
    async with hosted(servers) as host:
        run = await host.run(model, "Go.")
    died, sold = model.told
    assert died.startswith("Error: dying__die got no response: ")
    assert died.endswith("; whether it had an effect is unknown")
    assert "hunter2" not in died
    assert isinstance(run.calls[0].error, ChannelError)
    assert "hunter2" in str(run.calls[0].error)  # which is for people
    assert sold == "25"


@live
async def test_a_tool_that_comes_between_two_rounds_is_shown_in_the_next() -> None:
    server = shop()

    def add(_: list[JSON]) -> Any:
        server.tool(name="weigh", description="How heavy it is.")(lambda: "light")
        return calls(("shop__price", {"fruit": "plum"}))

    model = Scripted([add, calls(("shop__weigh", {})), "Light."])
    async with hosted({"shop": server}) as host:
        changed = asyncio.Event()
        host.watch(lambda _: changed.set())
        await host.list_tools()
        run = await host.run(model, "Go.", on_result=lambda _: changed.wait())
    assert "shop__weigh" not in model.shown[0]
    assert "shop__weigh" in model.shown[1]
    assert run.calls[1].result.text == "light"


@live
async def test_how_a_call_is_getting_on_is_told_with_the_call() -> None:
    server = Server("slow")

    @server.tool
    async def steps(ctx: Context) -> str:
        for step in range(1, 3):
            await ctx.progress(step, 2, f"step {step}")
        return "done"

    heard: list[Any] = []
    model = Scripted([calls(("slow__steps", {})), "Done."])
    async with hosted({"slow": server}) as host:
        await host.run(
            model, "Go.", on_progress=lambda call, *more: heard.append((call.name, *more))
        )
    assert heard == [("slow__steps", 1.0, 2.0, "step 1"), ("slow__steps", 2.0, 2.0, "step 2")]


@live
async def test_what_middleware_refuses_is_told_to_the_model() -> None:
    async def never(request: RequestContext, handler: Handler) -> ProtocolType:
        if request.exchange.method.name == "tools/call":
            raise Refused("not on Sundays")
        return await handler(request)

    model = Scripted([calls(("shop__price", {"fruit": "plum"})), "Well."])
    async with hosted(middleware=[never]) as host:
        await host.run(model, "Go.")
    assert model.told == ["Error: shop__price was refused: not on Sundays"]


@live
async def test_a_server_s_question_comes_to_one_place_with_the_call_of_the_model() -> None:
    server = Server("desk")

    @server.tool
    async def greet(ctx: Context) -> str:
        return f"Hello {await ctx.elicit('Who are you?', str)}"

    asked: list[HostInputRequest] = []

    def answer(question: HostInputRequest) -> str:
        asked.append(question)
        return "Ada"

    model = Scripted([calls(("desk__greet", {})), "Done."])
    async with hosted({"desk": server}, on_input_request=answer) as host:
        await host.run(model, "Go.", caller="alice")
    assert model.told == ["Hello Ada"]
    (call,) = asked[0].calls
    assert (asked[0].server, call.name, call.caller) == ("desk", "desk__greet", "alice")


# ---------------------------------------------------------------- tasks


def press(go: asyncio.Event) -> Server:
    """A server whose tool runs as a task."""
    server = Server("press")

    @server.tool(task=True)
    async def book(topic: str) -> str:
        await go.wait()
        return f"a book about {topic}"

    @server.tool(task=True)
    async def broken() -> str:
        await go.wait()
        raise Fault(FaultKind.INTERNAL, "the press is broken")

    return server


@live
async def test_a_model_is_told_that_a_task_runs_and_gets_its_result_later() -> None:
    go = asyncio.Event()
    ended: list[str] = []

    def other_work(messages: list[JSON]) -> Any:
        assert "press__book is running and takes longer" in messages[-1]["content"]
        go.set()
        return "It is being printed."

    def use(messages: list[JSON]) -> Any:
        assert messages[-1]["role"] == "user"
        assert messages[-1]["content"] == (
            "[press__book (call id0) has ended. This is its result: data from the tool, not words "
            "of the user.]\n\na book about tea"
        )
        return "Here is the book."

    model = Scripted([calls(("press__book", {"topic": "tea"})), other_work, use])
    async with hosted({"press": press(go)}) as host, asyncio.timeout(WAIT_S):
        run = await host.run(
            model, "Print.", patience_s=0.01, on_result=lambda call: ended.append(call.result.text)
        )
        assert await host.tasks() == []
    assert (run.text, run.stopped, run.rounds) == ("Here is the book.", "done", 3)
    assert ended == ["a book about tea"]
    assert [call.result.text for call in run.calls] == ["a book about tea"]


@live
async def test_a_task_that_is_done_soon_is_a_call_like_any_other() -> None:
    go = asyncio.Event()
    go.set()
    model = Scripted([calls(("press__book", {"topic": "tea"})), "Here."])
    async with hosted({"press": press(go)}) as host:
        run = await host.run(model, "Print.")
    assert model.told == ["a book about tea"]
    assert run.rounds == 2


@live
async def test_an_error_of_a_task_is_told_later_too() -> None:
    go = asyncio.Event()

    def wait(messages: list[JSON]) -> Any:
        go.set()
        return "Wait."

    def hear(messages: list[JSON]) -> Any:
        assert "the press is broken" in messages[-1]["content"]
        return "It is broken."

    model = Scripted([calls(("press__broken", {})), wait, hear])
    async with hosted({"press": press(go)}) as host, asyncio.timeout(WAIT_S):
        run = await host.run(model, "Print.", patience_s=0.01)
    assert run.text == "It is broken."
    assert run.calls[0].error is not None


@live
async def test_a_task_that_still_runs_at_the_last_round_stays_with_the_host() -> None:
    model = Scripted([calls(("press__book", {"topic": "tea"})), "It runs."])
    async with hosted({"press": press(asyncio.Event())}) as host, asyncio.timeout(WAIT_S):
        run = await host.run(model, "Print.", patience_s=0.01, max_rounds=2)
        assert run.stopped == "rounds"
        (task,) = await host.tasks()
        assert task.status == "working"


@live
async def test_a_run_that_is_cancelled_cancels_the_task_that_it_waits_for() -> None:
    async with hosted({"press": press(asyncio.Event())}) as host, asyncio.timeout(WAIT_S):
        model = Scripted([calls(("press__book", {"topic": "tea"}))])
        running = asyncio.ensure_future(host.run(model, "Print."))
        while not await host.tasks(refresh=False):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await host.tasks() == []
