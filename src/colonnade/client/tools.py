"""Listed tools: signatures in one line, schemas for validation, and `Mcp-Param` headers.

    forecast(city: string, days: integer = 3, unit: "C" | "F" = "C") -> {city, unit, days}

Rules: a schema comes from the server, so it may be malformed, and every depth and length is
limited.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec.structs import asdict

from colonnade.client.cache import HintedList, cache_hints
from colonnade.client.results import tool_html
from colonnade.errors import Fault, ProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.codec.downgrade import WRAPPED, is_object_schema
from colonnade.protocol.http.param_headers import ParamHeader, headers_for_call, param_headers
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.schema.validate import Validator
from colonnade.providers import anthropic, openai
from colonnade.text import ELLIPSIS, clean, cut, one_line

# Nested types; deeper ones are only named.
MAX_DEPTH = 3
# Choices or properties that are listed; `--json` shows all.
MAX_LISTED = 8
# Of a default, a choice or a name; `--json` shows them in full.
MAX_PLACES = 40

Schema = dict[str, Any]


def members(schema: object) -> dict[str, Any]:
    """The properties of an object schema; empty if there are none."""
    return _dict(_dict(schema).get("properties"))


def required(schema: object) -> list[str]:
    """The required properties of a schema."""
    found = _dict(schema).get("required")
    names = cast("list[object]", found) if isinstance(found, list) else []
    return [name for name in names if isinstance(name, str)]


def tool_signature(tool: t.Tool) -> str:
    """A tool as a function signature."""
    returns = f" -> {type_name(tool.output_schema)}" if tool.output_schema is not None else ""
    return call_signature(tool) + returns


def call_signature(tool: t.Tool) -> str:
    """A tool as a function signature, without the return type."""
    return f"{one_line(tool.name)}({parameters(tool.input_schema)})"


def parameters(schema: Schema) -> str:
    """The properties of a schema as parameters of a signature, the required ones first."""
    required_names = required(schema)
    found = members(schema)
    named = sorted(found, key=lambda name: name not in required_names)
    return ", ".join(_format_parameter(name, found[name], name in required_names) for name in named)


def _format_parameter(name: str, schema: object, is_needed: bool) -> str:
    text = f"{one_line(name)}: {type_name(schema)}"
    if "default" in _dict(schema):
        return f"{text} = {value(_dict(schema)['default'])}"
    return text if is_needed else f"{text} = {ELLIPSIS}"


def prompt_signature(prompt: t.Prompt) -> str:
    """A prompt as a function signature; every argument is a string."""
    given = prompt.arguments or []
    text = [one_line(one.name) + ("" if one.required else f" = {ELLIPSIS}") for one in given]
    return f"{one_line(prompt.name)}({', '.join(text)})"


def names_of(schema: Schema) -> str:
    """The names of the properties, optional ones in brackets."""
    required_names = required(schema)
    found = members(schema)
    named = [n for n in found if n in required_names] + [
        f"[{n}]" for n in found if n not in required_names
    ]
    return one_line(" ".join(named))


# ---------------------------------------------------------------- types


def type_name(schema: object, depth: int = 0) -> str:
    """The type of a schema, in a few words."""
    if schema is False:
        return "nothing"
    document = _dict(schema)
    if "const" in document:
        return value(document["const"])
    for keyword, format_one in (("enum", value), ("anyOf", type_name), ("oneOf", type_name)):
        listed = document.get(keyword)
        if isinstance(listed, list) and listed:
            return _union(cast("list[object]", listed), format_one, depth)
    if isinstance(document.get("$ref"), str):
        return one_line(document["$ref"].rpartition("/")[2])[:MAX_PLACES] or "any"
    named = document.get("type")
    if isinstance(named, list):
        each = [{**document, "type": one} for one in cast("list[object]", named)]
        return _union(cast("list[object]", each), type_name, depth)
    format_one = _KINDS.get(named) if isinstance(named, str) else None
    if format_one is not None:
        return format_one(document, depth)
    return one_line(named)[:MAX_PLACES] if isinstance(named, str) else "any"


def _union(listed: list[object], format_one: Any, depth: int) -> str:
    if depth >= MAX_DEPTH:
        return ELLIPSIS
    if format_one is value:
        text = [value(one) for one in listed[:MAX_LISTED]]
    else:
        text = [type_name(one, depth + 1) for one in listed[:MAX_LISTED]]
    more = [ELLIPSIS] if len(listed) > MAX_LISTED else []
    return " | ".join([*dict.fromkeys(text), *more])


def _string(schema: Schema, depth: int) -> str:
    form = schema.get("format")
    return one_line(form)[:MAX_PLACES] if isinstance(form, str) and form else "string"


def _number(schema: Schema, depth: int) -> str:
    word = str(schema["type"])
    low, high = (
        bound if isinstance(bound, int | float) and not isinstance(bound, bool) else None
        for bound in (schema.get("minimum"), schema.get("maximum"))
    )
    if low is None and high is None:
        return word
    if high is None:
        return f"{word} from {value(low)}"
    return f"{word} to {value(high)}" if low is None else f"{word} {value(low)} to {value(high)}"


def _list(schema: Schema, depth: int) -> str:
    if depth >= MAX_DEPTH or "items" not in schema:
        return "list"
    inner = type_name(schema["items"], depth + 1)
    return f"list of {inner}" if " | " not in inner else f"list of ({inner})"


def _object(schema: Schema, depth: int) -> str:
    names = list(members(schema))
    if names:
        more = [ELLIPSIS] if len(names) > MAX_LISTED else []
        shown = [cut(one_line(name), MAX_PLACES) for name in names[:MAX_LISTED]]
        return "{" + ", ".join([*shown, *more]) + "}"
    rest = schema.get("additionalProperties")
    if isinstance(rest, dict) and depth < MAX_DEPTH:
        return f"object of {type_name(cast('object', rest), depth + 1)}"
    return "object"


_KINDS: dict[str, Any] = {
    "string": _string,
    "integer": _number,
    "number": _number,
    "array": _list,
    "object": _object,
}


def value(given: object) -> str:
    """A value as JSON, truncated."""
    return cut(clean(encode(given).decode("utf-8", "replace")), MAX_PLACES)


def _dict(given: object) -> dict[str, Any]:
    return cast("dict[str, Any]", given) if isinstance(given, dict) else {}


class ListedTool(t.Tool, kw_only=True):
    """A tool of a server as listed, with conversions for model providers."""

    @classmethod
    def of(cls, tool: t.Tool) -> "ListedTool":
        """A listed tool from a protocol tool."""
        return cls(**asdict(tool))

    @property
    def signature(self) -> str:
        """The tool as a function, in one line: `forecast(city: string, days: integer = 3)`."""
        return tool_signature(self)

    def to_openai(self, api: openai.Api = "chat", *, strict: bool = True) -> dict[str, Any]:
        """An entry of `tools` for OpenAI: for Chat Completions, or for `"responses"`.

        It is strict if the schema allows it, and `strict` in the entry says whether it is. A name
        that OpenAI refuses is replaced; `client.call_openai` finds the tool by the replacement.
        """
        return openai.tool_entry(self.name, self._model_description, self.input_schema, api, strict)

    def to_anthropic(self, *, strict: bool = False) -> dict[str, Any]:
        """An entry of `tools` for Anthropic's Messages.

        With `strict` it is strict if the schema allows it; Anthropic limits how many tools of a
        request may be. A name that Anthropic refuses is replaced; `client.call_anthropic` finds the
        tool by the replacement.
        """
        return anthropic.tool_entry(self.name, self._model_description, self.input_schema, strict)

    @property
    def _model_description(self) -> str | None:
        """The description for models; the title if there is none."""
        title = t.display_name(self)
        return self.description or (title if title != self.name else None)

    def _repr_html_(self) -> str:
        """The HTML representation in notebooks."""
        return tool_html(self.signature, self._model_description)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """The representation in IPython, also in a list."""
        printer.text(self.signature)


log: logging.Logger = logging.getLogger("colonnade.client")


class ToolSchemas:
    """The schemas of the tools of one server, from its tool lists."""

    def __init__(self, server: str) -> None:
        self._server = server
        # By the name of the tool: the input schema, the output schema if there is one, and the
        # arguments that are mirrored into headers.
        self.inputs: dict[str, dict[str, Any]] = {}
        self.outputs: dict[str, dict[str, Any]] = {}
        self.mirrored: dict[str, tuple[ParamHeader, ...]] = {}
        # The tools that may run as a task, and those that do nothing else (2025-11-25).
        self.tasks: set[str] = set()
        self.required_tasks: set[str] = set()
        # Whether the tools were listed, or listing was tried for the output schemas.
        self.listed: bool = False
        self._validators: dict[str, Validator | None] = {}

    def clear(self) -> None:
        """Forget everything: the tools or the server have changed."""
        self.listed = False
        self.inputs, self.outputs = {}, {}  # another client may share those
        self._validators.clear()
        self.mirrored.clear()
        self.tasks.clear()
        self.required_tasks.clear()

    def update(
        self, tools: Iterable[t.Tool], *, mirrors: bool, stale: bool = False, tasks: bool = False
    ) -> list[ListedTool]:
        """Remember the schemas of a complete list; returns the usable tools, usually all.

        `mirrors` is whether arguments are mirrored into headers, `tasks` whether the server takes
        calls as tasks (R0504). The output schemas of a `stale`
        list, one that changed while it was being read, are not remembered, since validating results
        against them would report errors that are none. Headers are remembered: if they are wrong,
        the server refuses the call and the tools are listed again.
        """
        self.clear()
        self.listed = True
        usable: HintedList[ListedTool] = HintedList()
        usable.hints = cache_hints(tools)
        for tool in tools:
            if mirrors and not self._mirror(tool):
                continue
            usable.append(ListedTool.of(tool))
            self.inputs[tool.name] = tool.input_schema
            if tool.output_schema is not None and not stale:
                self.outputs[tool.name] = tool.output_schema
            support = tool.execution.task_support if tasks and tool.execution else None
            if support in ("optional", "required"):
                self.tasks.add(tool.name)
            if support == "required":
                self.required_tasks.add(tool.name)
        return usable

    def share(self, listed: Sequence[t.Tool], equal: "ToolSchemas") -> None:
        """Replace the schemas of this list of tools by the schemas of an equal list, unless the
        tools were listed again since."""
        if not listed or self.inputs.get(listed[-1].name) is not listed[-1].input_schema:
            return
        self.inputs = equal.inputs
        if self.outputs:
            self.outputs = equal.outputs

    def _mirror(self, tool: t.Tool) -> bool:
        try:
            headers = param_headers(tool.input_schema)
        except ProtocolError as error:  # R0884, R0885, R0992, R0993
            text = "server %r: the tool %.80r is left out: %s"
            log.warning(text, self._server, tool.name, error)
            return False
        if headers:
            self.mirrored[tool.name] = headers
        return True

    def headers(self, call: t.CallToolRequestParams) -> tuple[tuple[str, str], ...]:
        """The headers that mirror the arguments of a call; empty if the tool is not known."""
        params = self.mirrored.get(call.name)
        if params is None:
            return ()
        return tuple(headers_for_call(params, msgspec.json.decode(call.arguments or b"{}")))

    def wraps(self, tool: str, meta: Mapping[str, Any], *, bare: bool) -> bool:
        """Whether `{"result": value}` is a wrapped value of this tool, as far as is known. `bare`
        is whether the revision needs no wrapper, so that only some servers use one.
        """
        fastmcp: object = meta.get("fastmcp")
        if isinstance(fastmcp, dict) and cast("dict[str, Any]", fastmcp).get("wrap_result") is True:
            return True
        schema = self.outputs.get(tool)
        if schema is not None:
            return _is_wrapper(schema, bare=bare)
        return not bare

    def output(self, tool: str) -> Validator | None:
        """The validator of the tool's structured content; None without an output schema."""
        if tool not in self.outputs:
            return None
        if tool not in self._validators:
            self._validators[tool] = self._compile(tool, self.outputs[tool])
        return self._validators[tool]

    def _compile(self, tool: str, schema: dict[str, Any]) -> Validator | None:
        try:
            validator = Validator(schema)
            validator.compile()
        except Fault as fault:
            text = "server %r: the output of %.80r is not validated: %s"
            log.warning(text, self._server, tool, fault.message)
            return None
        return validator


def _is_wrapper(schema: Mapping[str, Any], *, bare: bool) -> bool:
    """Whether an output schema describes a wrapped value.

    FastMCP marks such schemas; the official SDK gives them a generated title, while those of other
    objects are named after their class. Without either, it is a wrapper if the revision needs one.
    """
    if schema.get("x-fastmcp-wrap-result") is True:
        return True
    properties: object = schema.get("properties")
    members = list(cast("dict[str, Any]", properties)) if isinstance(properties, dict) else []
    if not is_object_schema(dict(schema)) or members != [WRAPPED]:
        return False
    if schema.get("required") != [WRAPPED]:
        return False
    title: object = schema.get("title")
    return title.endswith("Output") if isinstance(title, str) else not bare
