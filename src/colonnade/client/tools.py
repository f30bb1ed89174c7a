"""What a tool or a prompt takes and gives, as one line that people can read.

    forecast(city: string, days: integer = 3, unit: "C" | "F" = "C") -> {city, unit, days}

Rules: a schema is whatever a server wrote, so nothing in it is taken for granted, and every depth
and length has a bound.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec
from msgspec.structs import asdict

from colonnade.client.results import tool_html
from colonnade.errors import Fault, ProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.codec.downgrade import WRAPPED, is_object_schema
from colonnade.protocol.http.param_headers import ParamHeader, headers_for_call, param_headers
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.schema.validate import Validator
from colonnade.providers import anthropic, openai
from colonnade.text import ELLIPSIS, clean, cut, one_line

# A type inside a type inside a type; what is deeper is named by its kind alone.
MAX_DEPTH = 3
# Choices or members that are listed; more are for `--json`.
MAX_LISTED = 8
# A default, a choice, a name: longer ones are for `--json`.
MAX_PLACES = 40

Schema = dict[str, Any]


def members(schema: object) -> dict[str, Any]:
    """The members of an object schema, by name; none where it does not say so."""
    return _dict(_dict(schema).get("properties"))


def required(schema: object) -> list[str]:
    """The names that must be given."""
    found = _dict(schema).get("required")
    names = cast("list[object]", found) if isinstance(found, list) else []
    return [name for name in names if isinstance(name, str)]


def tool_signature(tool: t.Tool) -> str:
    """A tool as a function."""
    gives = f" -> {kind(tool.output_schema)}" if tool.output_schema is not None else ""
    return taken(tool) + gives


def taken(tool: t.Tool) -> str:
    """A tool as a function, without what it gives."""
    return f"{one_line(tool.name)}({parameters(tool.input_schema)})"


def parameters(schema: Schema) -> str:
    """What a schema takes, the required first, as they would be written in a signature."""
    needed = required(schema)
    found = members(schema)
    named = [name for name in found if name in needed] + [n for n in found if n not in needed]
    return ", ".join(_parameter(name, found[name], name in needed) for name in named)


def _parameter(name: str, schema: object, is_needed: bool) -> str:
    words = f"{one_line(name)}: {kind(schema)}"
    if "default" in _dict(schema):
        return f"{words} = {value(_dict(schema)['default'])}"
    return words if is_needed else f"{words} = {ELLIPSIS}"


def prompt_signature(prompt: t.Prompt) -> str:
    """A prompt as a function; every argument is text."""
    given = prompt.arguments or []
    words = [one_line(one.name) + ("" if one.required else f" = {ELLIPSIS}") for one in given]
    return f"{one_line(prompt.name)}({', '.join(words)})"


def names_of(schema: Schema) -> str:
    """The names that a schema takes, those that may be left out in brackets."""
    needed = required(schema)
    found = members(schema)
    named = [n for n in found if n in needed] + [f"[{n}]" for n in found if n not in needed]
    return one_line(" ".join(named))


# ---------------------------------------------------------------- types


def kind(schema: object, depth: int = 0) -> str:
    """What a schema lets through, in a few words."""
    if schema is False:
        return "nothing"
    document = _dict(schema)
    if "const" in document:
        return value(document["const"])
    for keyword, write in (("enum", value), ("anyOf", kind), ("oneOf", kind)):
        listed = document.get(keyword)
        if isinstance(listed, list) and listed:
            return _either(cast("list[object]", listed), write, depth)
    if isinstance(document.get("$ref"), str):
        return one_line(document["$ref"].rpartition("/")[2])[:MAX_PLACES] or "any"
    named = document.get("type")
    if isinstance(named, list):
        each = [{**document, "type": one} for one in cast("list[object]", named)]
        return _either(cast("list[object]", each), kind, depth)
    write = _KINDS.get(named) if isinstance(named, str) else None
    if write is not None:
        return write(document, depth)
    return one_line(named)[:MAX_PLACES] if isinstance(named, str) else "any"


def _either(listed: list[object], write: Any, depth: int) -> str:
    if depth >= MAX_DEPTH:
        return ELLIPSIS
    if write is value:
        words = [value(one) for one in listed[:MAX_LISTED]]
    else:
        words = [kind(one, depth + 1) for one in listed[:MAX_LISTED]]
    more = [ELLIPSIS] if len(listed) > MAX_LISTED else []
    return " | ".join([*dict.fromkeys(words), *more])


def _text(schema: Schema, depth: int) -> str:
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
    inner = kind(schema["items"], depth + 1)
    return f"list of {inner}" if " | " not in inner else f"list of ({inner})"


def _object(schema: Schema, depth: int) -> str:
    names = list(members(schema))
    if names:
        more = [ELLIPSIS] if len(names) > MAX_LISTED else []
        shown = [cut(one_line(name), MAX_PLACES) for name in names[:MAX_LISTED]]
        return "{" + ", ".join([*shown, *more]) + "}"
    rest = schema.get("additionalProperties")
    if isinstance(rest, dict) and depth < MAX_DEPTH:
        return f"object of {kind(cast('object', rest), depth + 1)}"
    return "object"


_KINDS: dict[str, Any] = {
    "string": _text,
    "integer": _number,
    "number": _number,
    "array": _list,
    "object": _object,
}


def value(found: object) -> str:
    """A value as JSON, as much of it as is read."""
    return cut(clean(encode(found).decode("utf-8", "replace")), MAX_PLACES)


def _dict(found: object) -> dict[str, Any]:
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


class ListedTool(t.Tool, kw_only=True):
    """A tool of a server: what its list says of it, and how models are told of it."""

    @classmethod
    def of(cls, tool: t.Tool) -> "ListedTool":
        """The same, as it is listed."""
        return cls(**asdict(tool))

    @property
    def signature(self) -> str:
        """The tool as a function, in one line: `forecast(city: string, days: integer = 3)`."""
        return tool_signature(self)

    def to_openai(self, api: openai.Api = "chat", *, strict: bool = True) -> dict[str, Any]:
        """An entry of `tools` for OpenAI: for Chat Completions, or for `"responses"`.

        It is strict where the schema can be, and says in `strict` whether it is. A name that
        OpenAI refuses is another one there; `client.call_openai` finds the tool by it.
        """
        return openai.tool_entry(self.name, self._told, self.input_schema, api, strict)

    def to_anthropic(self, *, strict: bool = False) -> dict[str, Any]:
        """An entry of `tools` for Anthropic's Messages.

        With `strict` it is strict where the schema can be; how many of a request may be is
        limited there. A name that Anthropic refuses is another one there; `client.call_anthropic`
        finds the tool by it.
        """
        return anthropic.tool_entry(self.name, self._told, self.input_schema, strict)

    @property
    def _told(self) -> str | None:
        """What a model is told of it: a title is better than nothing."""
        title = t.display_name(self)
        return self.description or (title if title != self.name else None)

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        return tool_html(self.signature, self._told)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """How IPython prints it, also in a list."""
        printer.text(self.signature)


log: logging.Logger = logging.getLogger("colonnade.client")


class Tools:
    """What the lists of one server told of its tools."""

    def __init__(self, server: str) -> None:
        self._server = server
        # What each tool takes, by its name; what it gives, and which of its arguments go into
        # headers, too, for those of which this is known.
        self.inputs: dict[str, dict[str, Any]] = {}
        self.outputs: dict[str, dict[str, Any]] = {}
        self.mirrored: dict[str, tuple[ParamHeader, ...]] = {}
        # Whether they were listed, or that was tried for what they give.
        self.asked: bool = False
        self._validators: dict[str, Validator | None] = {}

    def clear(self) -> None:
        """Nothing is known any more: they have changed, or the server is another one."""
        self.inputs.clear()
        self.asked = False
        self.outputs.clear()
        self._validators.clear()
        self.mirrored.clear()

    def learn(
        self, tools: Iterable[t.Tool], *, mirrors: bool, stale: bool = False
    ) -> list[ListedTool]:
        """Remember what the whole list tells; those in it that can be used, nearly always all.

        `mirrors` is whether arguments go into headers here. Of a list that is `stale`, because
        news came while it was on its way, no promise is remembered: it may have been changed, and
        nobody is to be accused of that. Headers are: those that are wrong are asked for again.
        """
        self.clear()
        self.asked = True
        usable: list[ListedTool] = []
        for tool in tools:
            if mirrors and not self._mirror(tool):
                continue
            usable.append(ListedTool.of(tool))
            self.inputs[tool.name] = tool.input_schema
            if tool.output_schema is not None and not stale:
                self.outputs[tool.name] = tool.output_schema
        return usable

    def _mirror(self, tool: t.Tool) -> bool:
        try:
            headers = param_headers(tool.input_schema)
        except ProtocolError as error:  # R0884, R0885, R0992, R0993
            words = "server %r: the tool %.80r is left out: %s"
            log.warning(words, self._server, tool.name, error)
            return False
        if headers:
            self.mirrored[tool.name] = headers
        return True

    def headers(self, call: t.CallToolRequestParams) -> tuple[tuple[str, str], ...]:
        """The headers that mirror the arguments of a call, as far as a list has told of any."""
        params = self.mirrored.get(call.name)
        if params is None:
            return ()
        return tuple(headers_for_call(params, msgspec.json.decode(call.arguments or b"{}")))

    def wraps(self, tool: str, meta: Mapping[str, Any], *, bare: bool) -> bool:
        """Whether `{"result": value}` is the value of this tool in a wrapper, as far as is known.
        `bare` is where values need no wrapper, so that only some servers use one.
        """
        fastmcp: object = meta.get("fastmcp")
        if isinstance(fastmcp, dict) and cast("dict[str, Any]", fastmcp).get("wrap_result") is True:
            return True
        schema = self.outputs.get(tool)
        if schema is not None:
            return _is_wrapper(schema, bare=bare)
        return not bare

    def output(self, tool: str) -> Validator | None:
        """What the structured content of a tool must fit, where a list has told of it."""
        if tool not in self.outputs:
            return None
        if tool not in self._validators:
            self._validators[tool] = self._compiled(tool, self.outputs[tool])
        return self._validators[tool]

    def _compiled(self, tool: str, schema: dict[str, Any]) -> Validator | None:
        try:
            validator = Validator(schema)
            validator.compile()
        except Fault as fault:
            words = "server %r: what %.80r gives is not checked: %s"
            log.warning(words, self._server, tool, fault.message)
            return None
        return validator


def _is_wrapper(schema: Mapping[str, Any], *, bare: bool) -> bool:
    """Whether an output schema is that of a value in a wrapper.

    FastMCP marks its own; the official SDK gives them a title of its own making, where those of
    other objects are named after their class. Without either it is a wrapper where one is needed.
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
