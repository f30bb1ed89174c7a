"""Hidden text is made visible or marked, plain text stays as it is, and the raw result is kept."""

from typing import Any

import msgspec
import pytest

from colonnade import Context, Host, RemoteError, Server
from colonnade.errors import Fault, FaultKind, ToolError
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Settings
from colonnade.host.policy.containment import (
    CONTAINED_KEY,
    Containment,
    confusable,
    find_hidden,
    is_plain,
    neutralise,
    skeleton,
)
from colonnade.host.policy.pins.pins import Pins
from colonnade.protocol import types as t
from colonnade.protocol.forwarded import RelayedToolResult
from colonnade.protocol.input_requests import InputRequest
from colonnade.store.memory import MemoryStore
from host.drifting import Drifting
from live import live

HIDDEN = {
    "bidi override": ("a\u202eb", "a\\u202eb", {"bidi": 1}),
    "bidi isolate": ("a\u2066b\u2069", "a\\u2066b\\u2069", {"bidi": 2}),
    "zero width": ("pay\u200bload", "pay\\u200bload", {"invisible": 1}),
    "tags": ("x\U000e0041\U000e007f", "x\\U000e0041\\U000e007f", {"tags": 2}),
    "variation selectors": (
        "x\ufe01\U000e0101",
        "x\\ufe01\\U000e0101",
        {"tags": 1, "invisible": 1},
    ),
    "escape": ("\x1b[2Jx", "\\x1b[2Jx", {"escapes": 1}),
    "link": ("\x1b]8;;http://e\x07", "\\x1b]8;;http://e\\x07", {"escapes": 1, "invisible": 1}),
    "C1": ("\x9b2J", "\\x9b2J", {"escapes": 1}),
    "backspace": ("ok\x08\x08no", "ok\\x08\\x08no", {"invisible": 2}),
    "carriage return": ("ok\rno\r\n", "ok\\rno\r\n", {"invisible": 1}),
    "separator": ("a\u2028b", "a\\u2028b", {"invisible": 1}),
    "NUL": ("a\0b", "a\\x00b", {"invisible": 1}),
}
PLAIN = [
    "",
    "plain text\n\twith tabs\r\nand lines",
    "数据 naïve Ελληνικά русский",
    "👩‍👩‍👧 ❤️ 1️⃣ 🏳️‍🌈",
    "می‌خواهم",
    "עברית عربي",
]


@pytest.mark.parametrize("name", HIDDEN)
def test_a_hidden_character_becomes_its_escape(name: str) -> None:
    text, shown, found = HIDDEN[name]
    assert not is_plain(text)
    assert neutralise(text) == shown
    assert find_hidden(text) == found
    assert neutralise(shown) == shown


@pytest.mark.parametrize("text", PLAIN)
def test_plain_text_in_any_script_stays_as_it_is(text: str) -> None:
    assert neutralise(text) == text
    assert find_hidden(text) == {}
    result = t.CallToolResult(content=[t.TextContent(text=text)], structured_content={"a": text})
    assert Containment().contain(result) is result


def test_no_control_character_but_tab_and_line_feed_passes() -> None:
    for code in range(0xA0):
        if chr(code) in "\t\n" or 0x20 <= code < 0x7F:
            assert neutralise(chr(code)) == chr(code)
        else:
            assert neutralise(f"a{chr(code)}b").isascii()
            assert neutralise(f"a{chr(code)}b").isprintable()


BAD = "x\u202ey"
SHOWN = "x\\u202ey"


def contents(text: str) -> t.ResourceContents:
    return t.ResourceContents(uri=f"a:{text}", text=text)


RESULTS: dict[str, tuple[Any, Any]] = {
    "text": (
        t.CallToolResult(content=[t.TextContent(text=BAD)]),
        lambda one: one.content[0].text,
    ),
    "resource": (
        t.CallToolResult(content=[t.EmbeddedResource(resource=contents(BAD))]),
        lambda one: one.content[0].resource.text,
    ),
    "link": (
        t.CallToolResult(content=[t.ResourceLink(uri="a:b", name=BAD, description=BAD)]),
        lambda one: one.content[0].name,
    ),
    "unknown block": (
        t.CallToolResult(
            content=[t.UnknownContent(whole=t.UnknownMembers({"type": "x", "y": [BAD]}))]
        ),
        lambda one: one.content[0].whole.members["y"][0],
    ),
    "prompt": (
        t.GetPromptResult(messages=[t.PromptMessage(role="user", content=t.TextContent(text=BAD))]),
        lambda one: one.messages[0].content.text,
    ),
    "prompt description": (
        t.GetPromptResult(messages=[], description=BAD),
        lambda one: one.description,
    ),
    "read": (t.ReadResourceResult(contents=[contents(BAD)]), lambda one: one.contents[0].text),
    "result that is passed on": (
        RelayedToolResult(content=[t.TextContent(text=BAD)]),
        lambda one: one.content[0].text,
    ),
    "completion": (
        t.CompleteResult(completion=t.Completion(values=[BAD])),
        lambda one: one.completion.values[0],
    ),
}


@pytest.mark.parametrize("name", RESULTS)
def test_each_kind_of_result_is_contained_and_the_given_one_is_not_changed(name: str) -> None:
    result, read = RESULTS[name]
    before = msgspec.json.encode(result.content) if name == "text" else None
    contained: Any = Containment().contain(result)
    assert read(contained) == SHOWN
    assert read(result) == BAD
    assert contained.meta[CONTAINED_KEY]["bidi"] >= 1
    assert Containment("off").contain(result) is result
    marked: Any = Containment("mark").contain(result)
    assert marked.meta[CONTAINED_KEY]["bidi"] >= 1
    assert BAD in msgspec.json.encode(marked, enc_hook=vars_of).decode() or name == "unknown block"
    assert before is None or msgspec.json.encode(result.content) == before


def vars_of(value: Any) -> Any:
    return value.members


def test_a_mark_precedes_the_text_for_the_model() -> None:
    marked: Any = Containment("mark").contain(RESULTS["text"][0])
    assert marked.content[0].text == "[Hidden text in what the server sent: 1 bidi controls]"
    assert marked.content[1].text == BAD
    prompt: Any = Containment("mark").contain(RESULTS["prompt"][0])
    assert prompt.description == "[Hidden text in what the server sent: 1 bidi controls]"


def test_structured_content_is_marked_and_not_changed_and_a_model_sees_it_as_text() -> None:
    data = {"name": [BAD], BAD: 1}
    result: Any = Containment().contain(t.CallToolResult(content=[], structured_content=data))
    assert result.structured_content == data
    assert result.meta == {CONTAINED_KEY: {"structured": 2}}
    assert result.content[0].text == f'{{"name":["{SHOWN}"],"{SHOWN}":1}}'
    text: Any = t.CallToolResult(content=[t.TextContent(text="ok")], structured_content=data)
    contained: Any = Containment().contain(text)
    assert contained.content == text.content


def test_a_uri_is_percent_encoded_which_means_the_same() -> None:
    found: Any = Containment().contain(RESULTS["read"][0])
    assert found.contents[0].uri == "a:x%E2%80%AEy"


def test_text_that_is_too_long_is_cut_over_all_blocks() -> None:
    blocks: list[Any] = [t.TextContent(text=one * 6) for one in "ab"]
    result = t.CallToolResult(content=blocks)
    found: Any = Containment(max_text=10).contain(result)
    assert [one.text for one in found.content] == ["aaaaaa", "bbbb… [2 more characters were cut]"]
    assert found.meta == {CONTAINED_KEY: {"cut": 2}}
    marked: Any = Containment("mark", max_text=10).contain(result)
    assert [one.text for one in marked.content[1:]] == ["aaaaaa", "bbbbbb"]
    assert "2 characters beyond the limit" in marked.content[0].text


def test_the_words_of_a_definition_are_contained_and_its_data_is_counted() -> None:
    schema = {
        "type": "object",
        "title": BAD,
        "properties": {"a": {"description": BAD, "enum": [BAD]}},
        "anyOf": [{"description": BAD}],
    }
    tool = t.Tool(
        name="a",
        description=BAD,
        input_schema=schema,
        annotations=t.ToolAnnotations(title=BAD),
        meta={"own": 1},
    )
    shown = Containment().definition(tool)
    assert shown.description == shown.input_schema["title"] == SHOWN
    assert shown.input_schema["properties"]["a"] == {"description": SHOWN, "enum": [BAD]}
    assert shown.input_schema["anyOf"] == [{"description": SHOWN}]
    assert shown.annotations is not None
    assert shown.annotations.title == SHOWN
    assert shown.meta == {"own": 1, CONTAINED_KEY: {"bidi": 5, "schema": 1}}
    marked = Containment("mark").definition(tool)
    assert marked.input_schema == schema
    assert (marked.description or "").startswith("[Hidden text")
    prompt = t.Prompt(name="a", arguments=[t.PromptArgument(name="b", description=BAD)])
    assert (Containment().definition(prompt).arguments or [])[0].description == SHOWN
    plain = t.Tool(name="a", input_schema={"type": "object"})
    assert Containment().definition(plain) is plain


def test_input_requests_and_errors_are_contained() -> None:
    form = t.ElicitSchema(properties={"a": t.PrimitiveSchema(type="string", title=BAD)})
    asked = InputRequest(t.ElicitRequestParams(message=BAD, requested_schema=form))
    shown: Any = Containment().input_request(asked).params
    assert shown.message == shown.requested_schema.properties["a"].title == SHOWN
    message = t.SamplingMessage(role="user", content=t.TextContent(text=BAD))
    wanted = t.CreateMessageRequestParams(messages=[message], max_tokens=1, system_prompt=BAD)
    sampled: Any = Containment().input_request(InputRequest(wanted)).params
    assert sampled.messages[0].content.text == sampled.system_prompt == SHOWN
    roots = InputRequest(t.ListRootsRequestParams())
    assert Containment().input_request(roots) is roots
    error = RemoteError(-32000, BAD)
    contained = Containment().error(error)
    assert str(contained) == f"{SHOWN} (-32000)"
    assert contained.untouched is error
    plain = RemoteError(-32000, "plain")
    assert Containment().error(plain) is plain


def test_the_input_requests_in_a_result_are_contained() -> None:
    message = t.SamplingMessage(role="user", content=t.TextContent(text=BAD))
    wanted = t.CreateMessageRequestParams(messages=[message], max_tokens=1)
    asked = t.ElicitRequestParams(message=BAD, mode="url", url="https://x", elicitation_id="1")
    result = t.InputRequiredResult(
        input_requests={
            "a": t.ElicitRequest(params=asked),
            "b": t.CreateMessageRequest(params=wanted),
            "c": t.ListRootsRequest(),
        },
        request_state="s",
    )
    found: Any = Containment().contain(result)
    assert found.input_requests["a"].params.message == SHOWN
    assert found.input_requests["b"].params.messages[0].content.text == SHOWN
    assert result.input_requests is not None
    assert found.input_requests["c"] is result.input_requests["c"]
    assert found.request_state == "s"
    plain = t.InputRequiredResult(input_requests={"c": t.ListRootsRequest()})
    assert Containment().contain(plain) is plain
    assert Containment("off").contain(result) is result
    state = t.InputRequiredResult(request_state="s")
    assert Containment().contain(state) is state


def test_the_data_of_an_error_is_contained() -> None:
    error = RemoteError(-32000, "plain", {"why": [BAD], BAD: 1})
    contained = Containment().error(error)
    assert contained.data == {"why": [SHOWN], SHOWN: 1}
    assert contained.message == "plain"
    assert contained.untouched is error
    assert Containment().error(contained) is contained
    marked = Containment("mark").error(error)
    assert marked.message == "[Hidden text in what the server sent: 2 bidi controls]\n\nplain"
    assert marked.data == error.data
    assert Containment("mark").error(marked) is marked
    assert Containment("off").error(error) is error


def test_the_structured_content_of_a_result_that_is_passed_on_is_marked() -> None:
    raw = msgspec.Raw(b'{"a":"x\\u202ey","n":1.0}')
    result = RelayedToolResult(content=[], structured_content=raw)
    found: Any = Containment().contain(result)
    assert found.meta == {CONTAINED_KEY: {"structured": 1}}
    assert found.plain.structured_content == raw
    assert SHOWN in found.content[0].text
    plain = RelayedToolResult(content=[], structured_content=msgspec.Raw(b'{"a":1}'))
    assert Containment().contain(plain) is plain


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    "pair",
    [("github", "gіthub"), ("paypal", "paypaI"), ("modem", "modern"), ("files", "fi\u200bles"),
     ("a-b", "a‑b"), ("cafe", "café"), ("ｆｕｌｌ", "full"), ("O2", "02")],
)  # fmt: skip
def test_names_that_look_alike_have_one_skeleton(pair: tuple[str, str]) -> None:
    one, other = pair
    assert skeleton(one) == skeleton(other)
    assert confusable(pair) == [(other, one)]


def test_different_names_are_no_lookalikes() -> None:
    assert (
        confusable(["files", "file", "github", "gitlab", "notes", "notes2", "数据", "資料"]) == []
    )
    assert confusable(["a", "a"]) == []


# ---------------------------------------------------------------- in a host


def hiding() -> Server:
    server = Server("hiding", instructions=BAD)

    @server.tool(description=BAD)
    def text() -> str:
        return BAD

    @server.tool
    def data() -> dict[str, str]:
        return {"a": BAD}

    @server.tool
    async def tell(ctx: Context) -> str:
        await ctx.log("error", BAD)
        await ctx.report_progress(1, 2, BAD)
        return "told"

    @server.tool
    def fail() -> str:
        raise ToolError(BAD)

    @server.prompt
    def ask() -> str:
        return BAD

    @server.resource("notes://a")
    def note() -> str:
        return BAD

    _ = text, data, tell, fail, ask, note
    return server


@live
async def test_a_host_with_any_part_of_a_policy_contains_what_its_servers_send() -> None:
    logged: list[Any] = []
    progress: list[Any] = []
    async with Host({"a": hiding()}, pins=Pins(MemoryStore())) as host:
        tool = next(one for one in await host.list_tools() if one.original == "text")
        assert tool.description == SHOWN
        result = await host.call_tool("a__text")
        assert result.text == SHOWN
        assert result.meta[CONTAINED_KEY] == {"bidi": 1, "structured": 1}
        raw = result.untouched.content[0]
        assert isinstance(raw, t.TextContent)
        assert raw.text == BAD
        assert (await host.call_tool("a__data")).data == {"a": BAD}
        assert (await host.call_tool("a__fail")).text == SHOWN
        assert host.instructions == {"a": SHOWN}
        prompt = await host.get_prompt("a__ask")
        assert prompt.messages[0].content == t.TextContent(text=SHOWN)
        raw_prompt = await host.get_prompt("a__ask", untouched=True)
        assert raw_prompt.messages[0].content == t.TextContent(text=BAD)
        assert (await host.read_resource("notes://a")).contents[0].text == SHOWN
        raw_note = await host.read_resource("notes://a", untouched=True)
        assert raw_note.contents[0].text == BAD
        await host.call_tool(
            "a__tell", on_log=logged.append, on_progress=lambda *given: progress.append(given)
        )
        assert [one.data for one in logged] == [SHOWN]
        assert progress == [(1, 2, SHOWN)]


@live
async def test_the_error_of_a_server_is_contained() -> None:
    server = Server("failing")

    @server.prompt
    def ask() -> str:
        raise Fault(FaultKind.INVALID_PARAMS, BAD)

    async with Host({"a": server}, containment=Containment()) as host:
        with pytest.raises(RemoteError) as raised:
            await host.get_prompt("a__ask")
    assert raised.value.message == SHOWN
    assert raised.value.untouched is not None
    assert raised.value.untouched.message == BAD
    _ = ask


@live
async def test_what_a_server_asks_is_contained() -> None:
    server, asked = Server("asking"), list[Any]()

    @server.tool
    async def ask(ctx: Context) -> str:
        return str(await ctx.elicit(BAD, bool))

    def answer(question: Any) -> Any:
        asked.append(question.params.message)
        return None

    async with Host({"a": server}, containment=Containment(), on_input_request=answer) as host:
        await host.call_tool("a__ask")
    assert asked == [SHOWN]
    _ = ask


@live
async def test_without_a_policy_nothing_is_changed_and_a_setting_decides_for_one_server() -> None:
    made = {
        "a": hiding(),
        "b": entry_of("b", hiding(), Settings(contain="neutralise")),
        "c": entry_of("c", hiding(), Settings(contain="mark")),
    }
    async with Host({"a": hiding()}) as host:
        assert (await host.call_tool("a__text")).text == BAD
        assert host.instructions == {"a": BAD}
    async with Host(made) as host:
        assert (await host.call_tool("a__text")).text == BAD
        assert (await host.call_tool("b__text")).text == SHOWN
        assert (await host.call_tool("c__text")).text.endswith(f"\n{BAD}")
    off = {"a": entry_of("a", hiding(), Settings(contain="off"))}
    async with Host(off, pins=Pins(MemoryStore())) as host:
        assert (await host.call_tool("a__text")).text == BAD


@live
async def test_the_names_of_servers_that_look_alike_are_a_problem() -> None:
    async with Host({"files": Drifting(), "fіles": Drifting()}, containment=Containment()) as host:
        (problem,) = host.problems
        assert problem.server == "fіles"
        assert problem.message == "its name 'fіles' looks like 'files'"


@pytest.mark.parametrize(
    "item",
    [
        t.Resource(uri="a:b", name="x\u202ey"),
        t.ResourceTemplate(uri_template="a:{b}", name="x\u202ey"),
    ],
)
def test_the_name_of_a_resource_is_words_for_people(item: t.Resource | t.ResourceTemplate) -> None:
    """Its URI is what it is found by."""
    assert Containment().definition(item).name == "x\\u202ey"
