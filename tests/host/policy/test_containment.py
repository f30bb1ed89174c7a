"""Hidden text is made visible or marked, plain text stays as it is, and the raw result is kept."""

import json
from collections.abc import Callable
from threading import current_thread
from typing import Any, Literal

import msgspec
import pytest
from msgspec import UNSET, Raw

from colonnade import Context, Host, RemoteError, Server
from colonnade.errors import Fault, FaultKind, Refused, ToolError
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Settings
from colonnade.host.policy.containment import (
    CONTAINED_KEY,
    MAX_MESSAGE,
    Containment,
    aside,
)
from colonnade.host.policy.containment_pass import HiddenExact, TooLarge
from colonnade.host.policy.hidden_text import (
    WINDOW,
    find_hidden,
    hides_text,
    is_plain,
    neutralise,
)
from colonnade.host.policy.lookalikes import confusable, skeleton
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


def test_structured_content_is_contained_with_the_names_of_its_members() -> None:
    data = {"name": [BAD, 1], BAD: 1}
    given = t.CallToolResult(content=[], structured_content=data)
    result: Any = Containment().contain(given)
    assert result.structured_content == {"name": [SHOWN, 1], SHOWN: 1}
    assert result.meta == {CONTAINED_KEY: {"structured": 2}}
    assert result.is_error is None
    assert data == {"name": [BAD, 1], BAD: 1}
    marked: Any = Containment("mark").contain(given)
    assert marked.structured_content == data
    assert "2 invisible characters in the structured content" in marked.content[0].text


def tool_with(**members: Any) -> t.Tool:
    schema = {"type": "object", "properties": members, "additionalProperties": False}
    return t.Tool(name="a", input_schema={"type": "object"}, output_schema=schema)


UNFIT: dict[str, tuple[Any, t.Tool | None, str]] = {
    "choice": ({"a": BAD}, tool_with(a={"enum": [BAD]}), "output schema"),
    "length": ({"a": BAD}, tool_with(a={"type": "string", "maxLength": 3}), "output schema"),
    "name": ({BAD: 1}, tool_with(a={}), "output schema"),
    "names that become one": ({BAD: 1, SHOWN: 2}, None, "the same name"),
    "size": ({"a": [BAD, "x" * 100]}, None, "too large"),
}


@pytest.mark.parametrize("name", UNFIT)
@pytest.mark.parametrize("is_relayed", [False, True])
def test_structured_content_that_must_be_exact_is_left_out_with_an_error(
    name: str, is_relayed: bool
) -> None:
    data, tool, reason = UNFIT[name]
    given: Any = t.CallToolResult(content=[], structured_content=data)
    if is_relayed:
        given = RelayedToolResult(content=[], structured_content=Raw(msgspec.json.encode(data)))
    result: Any = Containment(max_text=60).contain(given, tool)
    assert result.is_error is True
    assert result.structured_content is UNSET
    assert "the structured content was left out" in result.content[0].text
    assert reason in result.content[0].text
    assert result.meta[CONTAINED_KEY]["structured"] > 0
    fits = t.CallToolResult(content=[], structured_content={"a": BAD})
    shown: Any = Containment().contain(fits, tool_with(a={"type": "string"}))
    assert shown.structured_content == {"a": SHOWN}
    plain = t.CallToolResult(content=[], structured_content={"a": "x" * 100})
    assert Containment(max_text=60).contain(plain) is plain


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


def test_the_words_of_a_definition_are_contained() -> None:
    schema = {
        "type": "object",
        "title": BAD,
        "properties": {"a": {"description": BAD}, "title": {"type": "string"}},
        "anyOf": [{"description": BAD}],
    }
    icon = t.Icon(src=f"https://x/{BAD}", mime_type=BAD, sizes=[BAD])
    tool = t.Tool(
        name="a",
        description=BAD,
        input_schema=schema,
        annotations=t.ToolAnnotations(title=BAD),
        icons=[icon],
        meta={"own": [BAD]},
    )
    shown = Containment().definition(tool)
    assert shown.description == shown.input_schema["title"] == SHOWN
    assert shown.input_schema["properties"]["a"] == {"description": SHOWN}
    assert shown.input_schema["anyOf"] == [{"description": SHOWN}]
    assert shown.annotations is not None
    assert shown.annotations.title == SHOWN
    assert shown.icons == [t.Icon(src="https://x/x%E2%80%AEy", mime_type=SHOWN, sizes=[SHOWN])]
    assert shown.meta == {"own": [SHOWN], CONTAINED_KEY: {"bidi": 9}}
    marked = Containment("mark").definition(tool)
    assert marked.input_schema == schema
    assert (marked.description or "").startswith("[Hidden text")
    prompt = t.Prompt(name="a", arguments=[t.PromptArgument(name="b", description=BAD)])
    assert (Containment().definition(prompt).arguments or [])[0].description == SHOWN
    plain = t.Tool(name="a", input_schema={"type": "object"})
    assert Containment().definition(plain) is plain


def tool_of(schema: Any) -> t.Tool:
    return t.Tool(name="a", input_schema={"type": "object", "properties": schema})


# What a call sends back as it is: it cannot be changed, and a model must not read it.
EXACT: dict[str, tuple[Any, str]] = {
    "name of a tool": (t.Tool(name=BAD, input_schema={}), "name"),
    "property": (tool_of({BAD: {"type": "string"}}), "input_schema"),
    "choice": (tool_of({"a": {"enum": ["b", BAD]}}), "input_schema"),
    "constant": (tool_of({"a": {"const": BAD}}), "input_schema"),
    "default": (tool_of({"a": {"default": {"description": BAD}}}), "input_schema"),
    "pattern": (tool_of({"a": {"pattern": BAD}}), "input_schema"),
    "output": (
        t.Tool(name="a", input_schema={}, output_schema={"required": [BAD]}),
        "output_schema",
    ),
    "name of a prompt": (t.Prompt(name=BAD), "name"),
    "argument": (t.Prompt(name="a", arguments=[t.PromptArgument(name=BAD)]), "arguments.name"),
    "URI": (t.Resource(uri=f"a:{BAD}", name="a"), "uri"),
    "template": (t.ResourceTemplate(uri_template=f"a:{BAD}", name="a"), "uri_template"),
}


@pytest.mark.parametrize("name", EXACT)
def test_an_item_with_hidden_text_in_what_calls_send_back_is_left_out(name: str) -> None:
    item, member = EXACT[name]
    other = t.Tool(name="other", input_schema={})
    kept, (problem,) = Containment().definitions([other, item])
    assert kept == [other]
    assert f"is left out: text is hidden in its {member}," in problem
    assert "\u202e" not in problem
    with pytest.raises(HiddenExact):
        Containment().definition(item)
    marked: Any = Containment("mark").definition(item)
    assert "invisible characters in what is sent back" in marked.description
    assert Containment("off").definition(item) is item


def test_choices_that_json_has_as_escapes_anyway_hide_nothing() -> None:
    """The line ends and the keys of a terminal, and emoji."""
    tool = tool_of({"a": {"enum": ["\r", "\x1b[A", "\n", "❤️"], "pattern": "[^\0-\x1f]"}})
    assert Containment().definition(tool) is tool


@live
async def test_a_host_leaves_out_such_items_and_says_so_in_its_problems() -> None:
    tools = [t.Tool(name=name, input_schema={"type": "object"}) for name in ("plain", BAD)]

    async def listed(request: Any, call_next: Any) -> Any:
        result = await call_next(request)
        return t.ListToolsResult(tools=tools) if isinstance(result, t.ListToolsResult) else result

    server = Server("a", middleware=[listed])

    @server.tool
    def plain() -> str:
        return "plain"

    async with Host({"a": server}, containment=Containment()) as host:
        assert [tool.original for tool in await host.list_tools()] == ["plain"]
        (problem,) = host.problems
    assert "Tool 'x\\\\u202ey' is left out: text is hidden in its name" in problem.message


@pytest.mark.parametrize("member", ["name", "choice", "default"])
def test_a_form_with_hidden_text_in_what_is_sent_back_is_refused(member: str) -> None:
    field = t.PrimitiveSchema(
        type="string",
        enum=[BAD] if member == "choice" else None,
        default=BAD if member == "default" else None,
    )
    form = t.ElicitSchema(properties={BAD if member == "name" else "a": field})
    asked = InputRequest(t.ElicitRequestParams(message="a", requested_schema=form))
    with pytest.raises(Refused, match="text is hidden in its requested_schema"):
        Containment().input_request(asked)
    marked: Any = Containment("mark").input_request(asked).params
    assert marked.message.startswith("[Hidden text")


def test_suggestions_that_are_sent_back_are_left_out_if_they_hide_text() -> None:
    given = t.CompleteResult(completion=t.Completion(values=["a", BAD]))
    found: Any = Containment().contain(given)
    assert found.completion.values == ["a"]
    assert found.meta == {CONTAINED_KEY: {"exact": 1}}
    marked: Any = Containment("mark").contain(given)
    assert marked.completion.values == ["a", BAD]


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


def test_the_structured_content_of_a_result_that_is_passed_on_is_contained() -> None:
    raw = msgspec.Raw(b'{"a":"x\\u202ey","n":1.0}')
    result = RelayedToolResult(content=[], structured_content=raw)
    found: Any = Containment().contain(result)
    assert found.meta == {CONTAINED_KEY: {"structured": 1}}
    assert found.plain.structured_content == {"a": SHOWN, "n": 1.0}
    plain = RelayedToolResult(content=[], structured_content=msgspec.Raw(b'{"a":1}'))
    assert Containment().contain(plain) is plain


# ---------------------------------------------------------------- size


LARGE: dict[str, Callable[[], Any]] = {
    "text": lambda: t.CallToolResult(content=[t.TextContent(text="é" * 100_000)]),
    "blocks": lambda: t.CallToolResult(content=[t.TextContent(text="a")] * 100_000),
    "structured content": lambda: t.CallToolResult(content=[], structured_content=["a"] * 100_000),
    "names of members": lambda: t.CallToolResult(
        content=[], structured_content={"a" * n: 1 for n in range(1000)}
    ),
    "what is passed on": lambda: RelayedToolResult(
        content=[], structured_content=Raw(b'"' + b"a" * 100_000 + b'"')
    ),
}


@pytest.mark.parametrize("kind", LARGE)
@live
async def test_what_is_large_is_contained_in_a_thread(kind: str) -> None:
    result, threads = LARGE[kind](), list[str]()
    contain = Containment().contain

    def contained(given: Any, *, in_loop: bool = False) -> Any:
        found = contain(given, in_loop=in_loop)
        threads.append(current_thread().name)
        return found

    assert await aside(contained, result) is result
    assert threads == ["colonnade-containment_0"]
    small = t.CallToolResult(content=[t.TextContent(text=BAD)])
    await aside(contained, small)
    assert threads[1:] == [current_thread().name]


def test_the_bytes_of_a_result_are_searched_once_and_its_text_is_not_looked_at() -> None:
    result = t.CallToolResult(content=[t.TextContent(text="a")])
    raw = Raw(b'{"content":[]}')
    assert Containment().contain(result, None, raw) is result
    with pytest.raises(TooLarge):
        Containment().contain(result, None, Raw(b" " * (WINDOW + 1)), in_loop=True)
    with pytest.raises(TooLarge):
        Containment().hides_text(Raw(b" " * (WINDOW + 1)), in_loop=True)


def test_text_is_cut_before_it_is_searched() -> None:
    """What is beyond the limit is not shown, so nobody looks at it."""
    contain = Containment(max_text=1_000).contain
    result = t.CallToolResult(content=[t.TextContent(text="x" * 10_000_000 + BAD)])
    found: Any = contain(result, in_loop=True)
    assert found.meta == {CONTAINED_KEY: {"cut": 9_999_003}}


def test_a_message_is_short() -> None:
    contain = Containment()
    shown = contain.text("x" * (MAX_MESSAGE + 5) + BAD)
    assert shown.endswith("x… [8 more characters were cut]")
    assert contain.value({str(n): n for n in range(100_000)}) == (
        "[data of a message that is too large]"
    )
    error = RemoteError(-32000, "no", ["x"] * 100_000)
    assert contain.error(error).data == "[data of a message that is too large]"
    assert Containment("mark").value(["x"] * 100_000) == ["x"] * 100_000


def test_the_definitions_of_a_long_list_are_contained_in_a_thread() -> None:
    tools = [t.Tool(name=str(n), input_schema={}) for n in range(1000)]
    with pytest.raises(TooLarge):
        Containment().definitions(tools, in_loop=True)
    assert Containment().definitions(tools)[0] is tools
    schema = {"properties": {str(n): {"type": "string"} for n in range(50_000)}}
    with pytest.raises(TooLarge):
        Containment().definitions([t.Tool(name="a", input_schema=schema)], in_loop=True)


EMOJI = "👩‍👩‍👧 ❤️ 1️⃣ می‌خواهم "


@pytest.mark.parametrize("ascii", [False, True])
def test_json_is_searched_in_windows_that_divide_nothing(ascii: bool) -> None:
    """Wherever a window ends: what belongs to an emoji is never taken for hidden, and what is
    hidden is always found."""
    for before in range(WINDOW - 80, WINDOW + 20):
        text = json.dumps("x" * before + EMOJI, ensure_ascii=ascii).encode()
        assert ascii or not hides_text(text), before
        hidden = json.dumps("x" * before + BAD + "x" * WINDOW, ensure_ascii=ascii).encode()
        assert hides_text(hidden), before


@pytest.mark.parametrize("shift", range(4))
def test_each_character_of_four_bytes_at_the_edge_of_a_window_is_judged(shift: int) -> None:
    # The edge of the window may be within a character.
    before = "x" * (WINDOW - 80 - shift)
    for place in range(40):
        emoji = ["\U0001f600"] * 40
        emoji[place] = "\U000e0041"
        written = json.dumps(f"{before}{''.join(emoji)}{'x' * WINDOW}", ensure_ascii=False)
        assert hides_text(written.encode()), place


@pytest.mark.parametrize("backslashes", [100, 101, WINDOW, 2 * WINDOW + 1])
@pytest.mark.parametrize("before", [WINDOW - 66, WINDOW - 65, WINDOW - 1, WINDOW])
def test_backslashes_before_a_window_do_not_hide_an_escape(before: int, backslashes: int) -> None:
    text = "x" * before + "\\" * backslashes + "\u202e"
    assert hides_text(json.dumps(text).encode())
    assert not hides_text(json.dumps(f"{'x' * before}{chr(92) * backslashes}u202e|").encode())


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
        assert result.meta[CONTAINED_KEY] == {"bidi": 1}
        raw = result.untouched.content[0]
        assert isinstance(raw, t.TextContent)
        assert raw.text == BAD
        data = await host.call_tool("a__data")
        assert data.data == {"a": SHOWN}
        assert data.untouched.structured_content == {"a": BAD}
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
async def test_a_form_with_hidden_choices_is_cancelled_and_nobody_sees_it() -> None:
    server, asked = Server("asking"), list[Any]()

    @server.tool
    async def ask(ctx: Context) -> str:
        return await ctx.elicit("which?", Literal["a", "x\u202ey"])

    async with Host(
        {"a": server}, containment=Containment(), on_input_request=asked.append
    ) as host:
        result = await host.call_tool("a__ask")
    assert result.is_error
    assert "cancelled" in result.text
    assert asked == []
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
