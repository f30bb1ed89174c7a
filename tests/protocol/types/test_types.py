"""The protocol types: what holds for all of them, the names in `_meta`, and what single ones insist on."""

import ast
import inspect as signatures
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_args

import msgspec
import pytest
from msgspec import structs

from colonnade.protocol import types as t

TYPES = sorted(
    (
        struct
        for struct in (getattr(t, name) for name in t.__all__)
        if isinstance(struct, type)
        and issubclass(struct, t.ProtocolType)
        and struct is not t.ProtocolType
    ),
    key=lambda struct: struct.__name__,
)

# --- what holds for all protocol types ---


@pytest.mark.parametrize("struct", TYPES)
def test_a_type_takes_its_fields_by_name_and_never_changes(struct: type[t.ProtocolType]) -> None:
    taken = signatures.signature(struct).parameters.values()
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in taken)
    assert struct.__struct_config__.frozen
    assert struct.__struct_config__.omit_defaults


@pytest.mark.parametrize("struct", TYPES)
def test_what_a_type_may_lack_is_absent_by_default_and_is_not_sent(
    struct: type[t.ProtocolType],
) -> None:
    for field in structs.fields(struct):
        if field.default_factory is not msgspec.NODEFAULT:
            # Read without one, and always sent (D70).
            assert field.name in ("ttl", "ttl_ms")
            assert field.default_factory() is None
            continue
        assert field.required or any(
            field.default is nothing for nothing in (None, msgspec.UNSET, t.ABSENT)
        )


def test_the_package_exports_every_type() -> None:
    everything: list[type[t.ProtocolType]] = [t.ProtocolType]
    for struct in everything:
        everything += struct.__subclasses__()
    ours = {
        struct for struct in everything if struct.__module__.startswith("colonnade.protocol.types")
    }
    assert ours == {*TYPES, t.ProtocolType}


def test_the_stub_and_the_package_have_the_same_names() -> None:
    source = Path(str(t.__file__)).with_suffix(".pyi").read_text("utf-8")
    imports = [node for node in ast.parse(source).body if isinstance(node, ast.ImportFrom)]
    stub = {alias.name: str(node.module) for node in imports for alias in node.names}
    homes: dict[str, str] = vars(t)["_HOMES"]
    assert stub == {name: f"colonnade.protocol.types.{home}" for name, home in homes.items()}
    spelled = next(node for node in ast.parse(source).body if isinstance(node, ast.Assign))
    assert sorted(ast.literal_eval(spelled.value)) == sorted(homes) == sorted(t.__all__)


def test_a_type_is_that_of_its_chapter_and_each_is_there_once() -> None:
    homes: dict[str, str] = vars(t)["_HOMES"]
    for name, home in homes.items():
        assert getattr(t, name) is vars(import_module(f"colonnade.protocol.types.{home}"))[name]
    with pytest.raises(AttributeError, match="no attribute 'Toll'"):
        _ = getattr(t, "Toll")  # noqa: B009
    assert set(homes) <= set(dir(t))


def test_marks_are_given_back_by_attribute_name() -> None:
    assert t.field_ranges(t.Root) == {"meta": t.RevisionRange(since="2025-06-18")}
    assert t.field_ranges(t.RootsCapability) == {
        "list_changed": t.RevisionRange(until="2025-11-25")
    }
    both = t.RevisionRange(since="2025-11-25", until="2025-11-25")
    assert t.field_ranges(t.ElicitRequestParams)["elicitation_id"] == both
    assert t.field_ranges(t.ModelPreferences) == {}


def test_a_constraint_on_a_field_is_no_mark() -> None:
    class Bounded(t.ProtocolType, kw_only=True):
        size: Annotated[int, msgspec.Meta(ge=0)]

    assert t.field_ranges(Bounded) == {}


# --- the names in _meta ---


@pytest.mark.spec("R0348", "R0349", "R0350", "R1111", "R1112", "R1114")
@pytest.mark.parametrize(
    ("key", "valid"),
    [
        ("progressToken", True),
        ("io.modelcontextprotocol/related-task", True),
        ("a/b", True),
        ("com.example-2.x9/name_with.all-kinds", True),
        ("com.example/", True),
        ("", True),
        ("9", True),
        ("/name", False),
        ("com..example/name", False),
        (".example/name", False),
        ("com.example./name", False),
        ("9com/name", False),
        ("com.9example/name", False),
        ("com.example-/name", False),
        ("-com/name", False),
        ("com.exa_mple/name", False),
        ("com/example/name", False),
        ("com.example/-name", False),
        ("com.example/name-", False),
        ("_name", False),
        ("name.", False),
        ("na me", False),
        ("näme", False),
        ("ünter/name", False),
        ("name\n", False),
        ("com.example\n/name", False),
    ],
)
def test_a_meta_key_is_a_dotted_prefix_and_a_name(key: str, valid: bool) -> None:
    assert t.valid_meta_key(key) is valid


@pytest.mark.parametrize("key", ["a" * 300_000 + "!", "a-" * 200_000, "a." * 200_000 + "/" * 9])
def test_a_long_meta_key_is_judged_in_linear_time(key: str) -> None:
    assert not t.valid_meta_key(key)
    assert not t.valid_extension_id(key)
    assert not t.reserved_meta_key(key)


@pytest.mark.parametrize(
    ("key", "reserved", "reserved_anywhere"),
    [
        ("io.modelcontextprotocol/x", True, False),
        ("dev.mcp/", True, False),
        ("org.modelcontextprotocol.api/x", True, True),
        ("com.mcp.tools/x", True, True),
        ("com.example.mcp/x", False, False),
        ("com.example.mcp.tools/x", False, True),
        ("modelcontextprotocol.io/x", False, True),
        ("mcp.dev/x", False, True),
        ("mcp/x", False, False),
        ("com.example/mcp", False, False),
        ("mcp", False, False),
        ("progressToken", True, True),
        ("traceparent", True, True),
        ("tracestate", True, True),
        ("baggage", True, True),
    ],
)
def test_some_meta_keys_are_the_protocols_own(
    key: str, reserved: bool, reserved_anywhere: bool
) -> None:
    assert t.reserved_meta_key(key) is reserved
    assert t.reserved_meta_key(key, anywhere=True) is reserved_anywhere


@pytest.mark.spec("R0348", "R0349")
def test_all_keys_that_the_protocol_names_are_valid_and_its_own() -> None:
    keys = [getattr(t, name) for name in t.__all__ if name.endswith("_KEY")]
    assert len(keys) == 12
    assert all(t.valid_meta_key(key) and t.reserved_meta_key(key) for key in keys)


@pytest.mark.spec("R0926", "R1052", "R1139")
@pytest.mark.parametrize(
    ("identifier", "valid"),
    [
        (t.TASKS_EXTENSION_ID, True),
        ("com.example/my-extension", True),
        ("my-extension", False),
        ("/my-extension", False),
        ("com.example/", False),
        ("com.example/a/b", False),
        ("com.example/-", False),
    ],
)
def test_an_extension_is_named_by_a_meta_key_with_a_prefix(identifier: str, valid: bool) -> None:
    assert t.valid_extension_id(identifier) is valid


# --- single protocol types ---


@pytest.mark.spec("R0119")
@pytest.mark.parametrize("both", [{}, {"text": "a", "blob": "YQ=="}])
def test_contents_of_a_resource_are_text_or_blob_and_not_both(both: dict[str, Any]) -> None:
    assert t.ResourceContents(uri="a:b", text="").text == ""
    assert t.ResourceContents(uri="a:b", blob="").blob == ""
    with pytest.raises(ValueError, match="either `text` or `blob`"):
        t.ResourceContents(uri="a:b", **both)


@pytest.mark.spec("R0597", "R0598", "R0600")
def test_an_elicitation_is_a_form_unless_it_says_url_and_holds_what_it_needs() -> None:
    form = t.ElicitSchema(properties={})
    assert t.ElicitRequestParams(message="a", requested_schema=form).mode is None
    assert t.ElicitRequestParams(message="a", mode="form", requested_schema=form).mode == "form"
    assert t.ElicitRequestParams(message="a", mode="url", url="https://a.example").mode == "url"
    with pytest.raises(ValueError, match="needs `requestedSchema`"):
        t.ElicitRequestParams(message="a", url="https://a.example")
    with pytest.raises(ValueError, match="needs `url`"):
        t.ElicitRequestParams(message="a", mode="url", requested_schema=form)


@pytest.mark.spec("R0797", "R1072")
def test_a_result_that_asks_holds_questions_or_state() -> None:
    assert t.InputRequiredResult(request_state="").request_state == ""
    assert t.InputRequiredResult(input_requests={}).input_requests == {}
    with pytest.raises(ValueError, match="or both"):
        t.InputRequiredResult()


@pytest.mark.spec("R1168", "R1170", "R1172", "R1209")
@pytest.mark.parametrize(
    "struct", [t.ExtDetailedTask, t.ExtGetTaskResult, t.ExtTaskStatusNotificationParams]
)
def test_a_task_of_the_extension_carries_what_its_status_promises(
    struct: type[t.ExtDetailedTask | t.ExtGetTaskResult],
) -> None:
    task: dict[str, Any] = {"task_id": "1", "created_at": "", "last_updated_at": "", "ttl_ms": None}
    promises: dict[t.TaskStatus, dict[str, Any]] = {
        "working": {},
        "input_required": {"input_requests": {}},
        "completed": {"result": msgspec.Raw(b"{}")},
        "failed": {"error": t.ErrorObject(code=-32603, message="no")},
        "cancelled": {},
    }
    for status, promise in promises.items():
        assert struct(status=status, **task, **promise).status == status
        if promise:
            with pytest.raises(ValueError, match=f"`{status}` needs"):
                struct(status=status, **task)


def test_an_elicitation_capability_without_a_mode_means_forms() -> None:
    bare, form, url = (
        t.ElicitationCapability(),
        t.ElicitationCapability(form={}),
        t.ElicitationCapability(url={}),
    )
    both = t.ElicitationCapability(form={}, url={})
    assert [one.may_show_form for one in (bare, form, url, both)] == [True, True, False, True]
    assert [one.may_open_url for one in (bare, form, url, both)] == [False, False, True, True]


def test_levels_of_log_messages_are_ordered_by_severity() -> None:
    assert get_args(t.LoggingLevel) == t.LOGGING_LEVELS
    assert t.severe_enough("error", "warning")
    assert t.severe_enough("warning", "warning")
    assert not t.severe_enough("debug", "info")


def test_the_name_to_show_is_the_title_then_a_tools_annotated_title_then_the_name() -> None:
    annotated = t.ToolAnnotations(title="annotated")
    plain = t.Tool(name="name", input_schema={})
    assert t.display_name(plain) == "name"
    assert t.display_name(structs.replace(plain, annotations=t.ToolAnnotations())) == "name"
    assert t.display_name(structs.replace(plain, annotations=annotated)) == "annotated"
    assert t.display_name(structs.replace(plain, annotations=annotated, title="title")) == "title"
    assert t.display_name(t.Prompt(name="name", title="title")) == "title"
    assert t.display_name(t.Implementation(name="name", version="1")) == "name"


def test_an_unknown_block_says_what_it_called_itself_and_equals_its_like() -> None:
    block = t.UnknownContent(whole=t.UnknownMembers({"type": "hologram", "x": 1}))
    assert block.type == "hologram"
    assert block == t.UnknownContent(whole=t.UnknownMembers({"type": "hologram", "x": 1}))
    assert block != t.UnknownContent(whole=t.UnknownMembers({"type": "hologram", "x": 2}))
    assert t.UnknownMembers({}) != {}
    assert "hologram" in repr(block)
    with pytest.raises(TypeError):
        hash(block.whole)
