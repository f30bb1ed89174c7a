"""What is said otherwise: blocks, structured content, titles, sampling and forms for older peers."""

import json
from typing import Any

import pytest
from msgspec import UNSET, Raw, Struct, structs

from colonnade.errors import LocalProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.codec.encode import Encoder
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.revision import (
    ALL,
    JULY_2026,
    JUNE_2025,
    MARCH_2025,
    NOVEMBER_2024,
    NOVEMBER_2025,
    OutputRoot,
    Revision,
)

TASK = t.TaskMetadata(ttl=1)


def shape(instance: t.ProtocolType, revision: Revision, origin: Revision | None = None) -> Any:
    return Encoder(revision).downgrade(instance, origin)


def tool(**more: Any) -> t.Tool:
    return t.Tool(name="n", input_schema={"type": "object"}, **more)


def question(**more: Any) -> t.ElicitRequestParams:
    return t.ElicitRequestParams(
        message="m", requested_schema=t.ElicitSchema(properties={}), **more
    )


# ---------------------------------------------------------------- content blocks

TEXT = t.TextContent(text="words", annotations=t.Annotations(audience=["user"]))
IMAGE = t.ImageContent(data="AA==", mime_type="image/png")
EMBEDDED = t.EmbeddedResource(resource=t.ResourceContents(uri="a:b", text="t"))
AUDIO = t.AudioContent(
    data="AA==",
    mime_type="audio/wav",
    annotations=t.Annotations(audience=["assistant"]),
    meta={"a/b": 1},
)
LINK = t.ResourceLink(
    uri="file:///a", name="a", title="A", annotations=t.Annotations(audience=["assistant"])
)
UNKNOWN = t.UnknownContent(whole=t.UnknownMembers({"type": "hologram", "depth": 3}))
USE = t.ToolUseContent(id="1", name="add", input={"a": 1})
USED = t.ToolResultContent(tool_use_id="1", content=[t.TextContent(text="5")])


def blocks_of(instance: t.ProtocolType, revision: Revision, origin: Revision | None = None) -> Any:
    return json.loads(Encoder(revision).result(instance, origin))


def called(*blocks: Any, **more: Any) -> t.CallToolResult:
    return t.CallToolResult(content=list(blocks), **more)


def test_blocks_that_everybody_knows_stay_as_they_are(revision: Revision) -> None:
    instance = called(TEXT, IMAGE, EMBEDDED)
    assert shape(instance, revision) is instance
    message = t.PromptMessage(role="user", content=IMAGE)
    assert shape(message, revision) is message


def test_sound_is_a_resource_where_there_is_no_sound(revision: Revision) -> None:  # D18
    for instance, pick in (
        (called(AUDIO), lambda found: found["content"][0]),
        (
            t.GetPromptResult(messages=[t.PromptMessage(role="user", content=AUDIO)]),
            lambda found: found["messages"][0]["content"],
        ),
    ):
        block = pick(blocks_of(instance, revision))
        assert block["annotations"] == {"audience": ["assistant"]}
        if "audio" in revision.blocks:
            assert (block["type"], block["data"]) == ("audio", "AA==")
            continue
        assert block["type"] == "resource"
        assert block["resource"] == {
            "uri": "audio:content",
            "mimeType": "audio/wav",
            "blob": "AA==",
        }


def test_a_link_is_text_with_its_address_where_there_are_no_links(revision: Revision) -> None:
    block = blocks_of(called(LINK), revision)["content"][0]
    assert block["annotations"] == {"audience": ["assistant"]}
    if "resource_link" in revision.blocks:
        assert (block["type"], block["uri"]) == ("resource_link", "file:///a")
    else:
        assert (block["type"], block["text"]) == ("text", "A: file:///a")


def test_a_link_without_any_name_is_its_address_alone() -> None:
    bare = t.ResourceLink(uri="file:///a", name="")
    assert shape(called(bare), MARCH_2025).content[0].text == "file:///a"
    named = t.ResourceLink(uri="file:///a", name="a")
    assert shape(called(named), MARCH_2025).content[0].text == "a: file:///a"


def test_an_unknown_block_goes_on_whole_only_to_the_revision_that_it_came_from() -> None:  # D18
    instance = called(TEXT, UNKNOWN)
    for revision in ALL:
        for origin in (None, *ALL):
            block = blocks_of(instance, revision, origin)["content"][1]
            if origin is revision:
                assert block == {"type": "hologram", "depth": 3}
            else:
                words = "[hologram content that cannot be shown here]"
                assert block == {"type": "text", "text": words}
    long = t.UnknownContent(whole=t.UnknownMembers({"type": "x" * 10_000}))
    assert len(blocks_of(called(long), JULY_2026)["content"][0]["text"]) < 200


def test_an_unknown_block_that_was_read_is_written_back_as_it_came() -> None:
    raw = b'{"content":[{"type":"hologram","depth":3,"inside":{"type":"text"}}]}'
    found = decode_as(t.CallToolResult, raw)
    again = Encoder(JULY_2026).result(found, JULY_2026)
    assert json.loads(again)["content"] == json.loads(raw)["content"]


def test_a_block_in_the_wrong_place_becomes_words(revision: Revision) -> None:
    texts = [block["text"] for block in blocks_of(called(USE, USED), revision)["content"]]
    assert texts == ['[call of add] {"a":1}', "5"]
    empty = t.ToolResultContent(tool_use_id="1", content=[IMAGE])
    assert blocks_of(called(empty), revision)["content"][0]["text"] == "[a result without text]"


@pytest.mark.parametrize("wrong", ["text", {"type": "text", "text": "t"}, None, 5, t.EmptyResult()])
def test_what_is_no_block_is_refused_with_a_hint(revision: Revision, wrong: Any) -> None:
    with pytest.raises(LocalProtocolError, match="TextContent"):
        shape(called(wrong), revision)


def test_blocks_may_come_in_any_sequence(revision: Revision) -> None:
    instance = t.CallToolResult(content=(TEXT, AUDIO))  # type: ignore[arg-type]
    assert len(blocks_of(instance, revision)["content"]) == 2
    listed = t.ListToolsResult(tools=(tool(title="t"),))  # type: ignore[arg-type]
    shown = blocks_of(listed, revision)["tools"][0]
    assert ("title" in shown) == revision.knows("2025-06-18", None)


# ---------------------------------------------------------------- structured content


class Point(Struct):
    x: int


@pytest.mark.parametrize(
    ("value", "is_object"),
    [
        ({"a": 1}, True),
        (Point(1), True),
        (Raw(b' {"a":1}'), True),
        ([1], False),
        (Raw(b"[1]"), False),
        ((1, 2), False),
        ("text", False),
        (5, False),
        (1.5, False),
        (True, False),
        (None, False),
    ],
)
def test_a_value_that_is_no_object_is_wrapped_where_it_must_be_one(
    value: Any, is_object: bool, revision: Revision
) -> None:  # D17
    sent = blocks_of(called(TEXT, structured_content=value), revision).get("structuredContent")
    bare = json.loads(encode(value))
    if revision.output_root is OutputRoot.NONE:
        assert sent is None
    elif revision.output_root is OutputRoot.OBJECT and not is_object:
        assert sent == {"result": bare}
    else:
        assert sent == bare


def test_an_object_is_wrapped_if_its_schema_was(revision: Revision) -> None:
    instance = called(TEXT, structured_content={"a": 1})
    sent = json.loads(Encoder(revision).result(instance, None, True)).get("structuredContent")
    wrapped = {"result": {"a": 1}} if revision.output_root is OutputRoot.OBJECT else {"a": 1}
    assert sent == (None if revision.output_root is OutputRoot.NONE else wrapped)


def test_a_value_that_would_be_lost_is_said_in_words(revision: Revision) -> None:
    content = blocks_of(called(structured_content={"a": [1, None]}), revision)["content"]
    expected = [{"type": "text", "text": '{"a":[1,null]}'}]
    assert content == (expected if revision.output_root is OutputRoot.NONE else [])
    # Where the handler found words itself, those are enough.
    (block,) = blocks_of(called(TEXT, structured_content=5), revision)["content"]
    assert block["text"] == "words"


def test_a_tool_result_inside_a_message_follows_the_same_rules() -> None:
    used = structs.replace(USED, structured_content=5, content=[UNKNOWN])
    message = t.SamplingMessage(role="user", content=[used])
    instance = sampling_of(message)
    found = json.loads(Encoder(NOVEMBER_2025).params(instance))["messages"][0]["content"][0]
    assert found["structuredContent"] == {"result": 5}
    assert found["content"][0]["type"] == "text"
    assert shape(instance, JULY_2026).messages[0].content[0].structured_content == 5


# ---------------------------------------------------------------- titles


def test_a_title_goes_where_the_revision_has_one() -> None:
    hints = t.ToolAnnotations(read_only_hint=True)
    assert shape(tool(title="T"), NOVEMBER_2024) == tool(description="T")
    assert shape(tool(title="T", description="d"), NOVEMBER_2024) == tool(description="T: d")
    assert shape(tool(title="T", description="Ts"), NOVEMBER_2024) == tool(description="Ts")
    assert shape(tool(title="T"), MARCH_2025) == tool(annotations=t.ToolAnnotations(title="T"))
    both = shape(tool(title="T", annotations=hints), MARCH_2025)
    assert both.annotations == structs.replace(hints, title="T")
    own = shape(tool(title="T", annotations=t.ToolAnnotations(title="own")), MARCH_2025)
    assert own.annotations.title == "own"
    assert shape(tool(title="T", annotations=hints), JUNE_2025).annotations is hints
    assert shape(tool(annotations=hints), MARCH_2025).annotations is hints


def test_a_title_stands_in_the_words_for_people_where_there_is_none(revision: Revision) -> None:
    has = revision.knows("2025-06-18", None)
    resource = t.Resource(uri="a:b", name="n", title="T")
    template = t.ResourceTemplate(uri_template="a:{b}", name="n", title="T")
    for instance in (resource, template):
        assert shape(instance, revision).name == ("n" if has else "T")
        untitled = structs.replace(instance, title=None)
        assert shape(untitled, revision) is untitled
    argument = t.PromptArgument(name="a", title="A", description="d")
    prompt = shape(t.Prompt(name="n", title="T", arguments=[argument]), revision)
    assert (prompt.name, prompt.description) == ("n", None if has else "T")
    assert prompt.arguments[0].description == ("d" if has else "A: d")


# ---------------------------------------------------------------- sampling


def sampling_of(*messages: t.SamplingMessage) -> t.CreateMessageRequestParams:
    return t.CreateMessageRequestParams(messages=list(messages), max_tokens=9)


def test_a_message_of_several_blocks_is_several_messages_where_one_holds_one(
    revision: Revision,
) -> None:
    several = t.SamplingMessage(role="user", content=[TEXT, IMAGE], meta={"a/b": 1})
    one = t.SamplingMessage(role="assistant", content=TEXT)
    instance = sampling_of(several, one)
    shaped = shape(instance, revision).messages
    if revision.sampling.arrays:
        assert shape(instance, revision) is instance
    else:
        assert [message.content for message in shaped] == [TEXT, IMAGE, TEXT]
        assert [message.role for message in shaped] == ["user", "user", "assistant"]
        assert [message.meta for message in shaped] == [None] * 3
        assert shaped[2] is one


def test_a_conversation_that_fits_stays_the_same_object(revision: Revision) -> None:
    instance = sampling_of(t.SamplingMessage(role="user", content=TEXT))
    assert shape(instance, revision) is instance


def test_blocks_that_a_model_cannot_be_shown_are_words(revision: Revision) -> None:
    instance = sampling_of(
        t.SamplingMessage(role="user", content=AUDIO),
        t.SamplingMessage(role="assistant", content=[USE]),
        t.SamplingMessage(role="user", content=[USED]),
    )
    shaped = [
        block
        for message in shape(instance, revision).messages
        for block in (message.content if isinstance(message.content, list) else [message.content])
    ]
    assert [block.type for block in shaped] == [
        "audio" if "audio" in revision.sampling.blocks else "text",
        "tool_use" if "tool_use" in revision.sampling.blocks else "text",
        "tool_result" if "tool_result" in revision.sampling.blocks else "text",
    ]
    if "audio" not in revision.sampling.blocks:
        assert shaped[0].text == "[audio content that cannot be shown here]"
        assert shaped[0].annotations == t.Annotations(audience=["assistant"])


def test_what_a_model_said_is_one_block_where_an_answer_holds_one(revision: Revision) -> None:
    def answer(content: Any) -> t.CreateMessageResult:
        return t.CreateMessageResult(role="assistant", model="m", content=content)

    same = answer(IMAGE)
    assert shape(same, revision) is same
    single, several, none = answer([TEXT]), answer([TEXT, USE, IMAGE]), answer([])
    if revision.sampling.arrays:
        for instance in (single, several, none):
            assert shape(instance, revision) is instance
        return
    assert shape(single, revision).content == TEXT
    joined = shape(several, revision).content.text
    assert joined == 'words\n[call of add] {"a":1}\n[image content that cannot be shown here]'
    assert shape(none, revision).content.text == ""


@pytest.mark.spec("R0689", "R0692")
def test_what_a_block_says_beside_its_content_survives(revision: Revision) -> None:
    meta = {"com.example/cache": {"key": [1, None]}}
    use, used = structs.replace(USE, meta=meta), structs.replace(USED, meta=meta)
    instance = sampling_of(
        t.SamplingMessage(role="assistant", content=[use]),
        t.SamplingMessage(role="user", content=[used]),
    )
    read_again = decode_as(t.CreateMessageRequestParams, Encoder(revision).params(instance))
    for message in read_again.messages:
        assert isinstance(message.content, list)
        assert [getattr(block, "meta", None) for block in message.content] == [meta]


# ---------------------------------------------------------------- forms

SIZES = [t.EnumOption(const="s", title="Small"), t.EnumOption(const="l", title="Large")]


def form_field(instance: t.PrimitiveSchema, revision: Revision) -> Any:
    params = t.ElicitRequestParams(
        message="m", requested_schema=t.ElicitSchema(properties={"f": instance})
    )
    return shape(params, revision).requested_schema.properties["f"]


def test_titled_choices_are_names_beside_values_in_the_first_forms() -> None:
    instance = t.PrimitiveSchema(type="string", one_of=SIZES, default="s")
    old = form_field(instance, JUNE_2025)
    assert (old.enum, old.enum_names) == (["s", "l"], ["Small", "Large"])
    assert (old.one_of, old.default) == (None, None)
    for revision in (NOVEMBER_2025, JULY_2026):
        assert form_field(instance, revision) is instance


@pytest.mark.parametrize(
    "items",
    [
        t.EnumItems(enum=["a", "b"]),
        t.EnumItems(
            any_of=[t.EnumOption(const="a", title="A"), t.EnumOption(const="b", title="B")]
        ),
    ],
)
def test_several_choices_are_asked_for_in_words_in_the_first_forms(items: t.EnumItems) -> None:
    instance = t.PrimitiveSchema(
        type="array", items=items, min_items=1, max_items=2, default=["a"], description="Which?"
    )
    old = form_field(instance, JUNE_2025)
    assert old == t.PrimitiveSchema(
        type="string", description="Which? (one or more of, separated by commas: a, b)"
    )
    assert form_field(instance, JULY_2026) is instance
    bare = form_field(t.PrimitiveSchema(type="array"), JUNE_2025)
    assert bare.description == "(one or more of, separated by commas: )"


@pytest.mark.parametrize(
    ("instance", "kept"),
    [
        (t.PrimitiveSchema(type="boolean", default=True), True),
        (t.PrimitiveSchema(type="string", default="a"), False),
        (t.PrimitiveSchema(type="integer", default=1), False),
        (t.PrimitiveSchema(type="number", default=1.5), False),
        (t.PrimitiveSchema(type="string", enum=["a"], default="a"), False),
    ],
)
def test_only_booleans_had_defaults_at_first(instance: t.PrimitiveSchema, kept: bool) -> None:
    assert (form_field(instance, JUNE_2025).default is not None) is kept
    assert form_field(instance, NOVEMBER_2025) is instance


def test_several_answers_are_words_for_who_asked_in_words() -> None:
    instance = t.ElicitResult(
        action="accept", content={"f": ["a", "b"], "g": 1, "h": True, "i": "x"}
    )
    old = shape(instance, JUNE_2025)
    assert old.content == {"f": "a, b", "g": 1, "h": True, "i": "x"}
    assert shape(instance, JULY_2026) is instance
    for same in (
        t.ElicitResult(action="accept", content={"a": 1}),
        t.ElicitResult(action="cancel"),
    ):
        assert shape(same, JUNE_2025) is same


def test_an_address_to_visit_cannot_be_put_to_who_knows_forms_alone() -> None:
    url = t.ElicitRequestParams(message="m", mode="url", url="https://a.example/")
    with pytest.raises(LocalProtocolError, match="2025-06-18"):
        shape(url, JUNE_2025)
    form = question(mode="form")
    assert shape(form, JUNE_2025).mode is None
    with pytest.raises(LocalProtocolError, match="2025-03-26"):
        shape(form, MARCH_2025)


# ---------------------------------------------------------------- inside and outside


def test_questions_inside_a_result_are_shaped_too() -> None:
    asked = t.ElicitRequest(params=question(meta={"a/b": 1}, task=TASK))
    instance = t.InputRequiredResult(input_requests={"a": asked, "b": t.ListRootsRequest()})
    inner = shape(instance, JULY_2026).input_requests["a"].params
    assert (inner.meta, inner.task) == (None, None)
    assert instance.input_requests is not None
    assert asked.params.task is TASK
    clean = t.InputRequiredResult(input_requests={"a": t.ElicitRequest(params=question())})
    assert shape(clean, JULY_2026) is clean


def test_absent_members_stay_absent(revision: Revision) -> None:
    assert called().structured_content is UNSET
    assert blocks_of(called(), revision).keys() <= {"content", "resultType"}
    bare = t.CallToolRequestParams(name="n", task=TASK)
    assert set(json.loads(Encoder(revision).params(bare))) <= {"name", "task"}
