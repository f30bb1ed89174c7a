"""Containment: hidden text in what servers send is made visible or marked before a model or a
terminal sees it.

Hidden are bidi controls, zero-width and tag characters, terminal escapes and other controls, and
text that is too long to be read. In the mode `neutralise` each such character is replaced by its
escape (`\\\\u202e`) and long text is cut; in the mode `mark` the text stays and a note precedes it.
Both put what was found into the `_meta` of a result.

`structuredContent` is data for programs, validated by a schema: it is never changed, only marked.
A model sees the text of such a result; if there is none, one is made from the data.

Rules: pure; no I/O. Letters, emoji and line breaks stay. A result without hidden text is returned
as it is, and costs one pass over its text. The result of a server is not changed: a contained one
is another.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, cast
from unicodedata import normalize
from urllib.parse import quote

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from colonnade.errors import ColonnadeError, Fault, RemoteError
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_unchecked, encode_any
from colonnade.protocol.input_requests import InputRequest, input_requests_in
from colonnade.protocol.json_checks import DECODE_ERRORS, has_duplicate_members
from colonnade.protocol.jsonrpc import NOTHING, encode
from colonnade.text import clean, has_hidden

if TYPE_CHECKING:  # most calls are no tasks
    from colonnade.protocol.tasks.client import TaskState

ContainMode: TypeAlias = Literal["neutralise", "mark", "off"]

# The key of what was found, in the `_meta` of a result.
CONTAINED_KEY: Final = "dev.colonnade/contained"
# Characters of text in one result, or one definition: more than the context of most models, which
# have some four characters in a token.
MAX_TEXT: Final = 1_000_000
# Levels of a JSON value in which strings are looked for. Deeper ones are refused elsewhere.
MAX_DEPTH: Final = 64
# Characters of a name that are compared with others.
MAX_NAME: Final = 256

T = TypeVar("T", bound=t.ProtocolType)

# ---------------------------------------------------------------- one string

# Controls but tab and line feed. A carriage return before a line feed is harmless, and is looked
# at where there is any.
_CONTROLS: Final = bytes(one for one in (*range(32), 127) if one not in b"\t\n")
# The same and what text outside ASCII has: C1 controls, separators, surrogates, annotations.
_UNSAFE: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufff9-\ufffb]|\r(?!\n)"
)

# What `clean` keeps where an emoji or a letter needs it: joiners, and the style of an emoji.
_KEPT: Final = "\u200c\u200d\ufe0e\ufe0f"

_CLASSES: Final[dict[str, "re.Pattern[str]"]] = {
    "escapes": re.compile("[\x1b\x80-\x9f]"),
    "bidi": re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"),
    "tags": re.compile("[\U000e0000-\U000e0fff]"),
}


def is_plain(text: str) -> bool:
    """Whether a string has nothing to hide, as far as one fast look shows."""
    if text.isascii():
        raw = text.encode("ascii")
        if len(raw.translate(None, _CONTROLS)) == len(raw):
            return True
        return _UNSAFE.search(text) is None
    return not has_hidden(text) and _UNSAFE.search(text) is None


def neutralise(text: str) -> str:
    """The string with each hidden character as its escape; line breaks and tabs stay, and what an
    emoji or a letter needs."""
    if is_plain(text):
        return text
    return "\r\n".join(clean(part, lines=True) for part in text.split("\r\n"))


def find_hidden(text: str) -> dict[str, int]:
    """How many hidden characters there are, by what they are; empty if there are none."""
    if is_plain(text):
        return {}
    shown = neutralise(text)
    if shown == text:  # emoji, and letters that are joined
        return {}
    found = {name: len(pattern.findall(text)) for name, pattern in _CLASSES.items()}
    every = sum(1 for one in text if not is_plain(one))
    kept = sum(shown.count(one) for one in _KEPT) + text.count("\r\n")
    found["invisible"] = max(0, every - kept - sum(found.values()))
    return {name: count for name, count in found.items() if count}


# Characters that JSON may have as an escape, and that `is_plain` would report.
_ESCAPES: Final = re.compile(rb"\\[ubfr]")


def hides_text(raw: Raw) -> bool:
    """Whether hidden text is anywhere in what a server wrote: also in members that no type has."""
    written = bytes(raw)
    if _ESCAPES.search(written) is None and is_plain(written.decode()):
        return False
    try:
        value: object = msgspec.json.decode(written)
    except (*DECODE_ERRORS, ValueError):  # a number that this program cannot hold
        return True
    return any(find_hidden(one) for one in _strings(value))


def _strings(value: object) -> Iterator[str]:
    """Every string in a JSON value, names of members too."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            members = cast("dict[str, object]", one)
            yield from members
            left.extend(members.values())
        elif isinstance(one, list):
            left.extend(cast("list[object]", one))


# ---------------------------------------------------------------- findings of one result


class _Pass:
    """One pass over the text of a result or a definition: contains each string, and counts."""

    def __init__(self, mode: ContainMode, most: int) -> None:
        self._neutralises = mode == "neutralise"
        self._left = most
        self.found: dict[str, int] = {}

    def text(self, text: str) -> str:
        """A string for people and models."""
        self._left -= len(text)
        if self._left >= 0 and is_plain(text):
            return text
        shown = text
        if self._left < 0:
            over = min(len(text), -self._left)
            self._add("cut" if self._neutralises else "oversized", over)
            shown = f"{text[: len(text) - over]}… [{over} more characters were cut]"
        for name, count in find_hidden(text).items():
            self._add(name, count)
        return neutralise(shown) if self._neutralises else text

    def optional(self, text: str | None) -> str | None:
        """The same for a member that may be absent."""
        return None if text is None else self.text(text)

    def uri(self, uri: str) -> str:
        """A URI: what is hidden in it is percent-encoded, which means the same."""
        if is_plain(uri):
            return uri
        for name, count in find_hidden(uri).items():
            self._add(name, count)
        if not self._neutralises:
            return uri
        return "".join(one if is_plain(one) else quote(one, errors="replace") for one in uri)

    def value(self, value: Any, depth: int = MAX_DEPTH) -> Any:
        """A JSON value with all its strings."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict) and depth:
            members = cast("dict[str, Any]", value)
            return {self.text(key): self.value(one, depth - 1) for key, one in members.items()}
        if isinstance(value, list) and depth:
            return [self.value(one, depth - 1) for one in cast("list[Any]", value)]
        return cast("Any", value)

    def schema(self, schema: Any, depth: int = MAX_DEPTH) -> Any:
        """A JSON Schema: its words for people. Names, choices and patterns are data."""
        if isinstance(schema, dict) and depth:
            members = cast("dict[str, Any]", schema)
            return {
                key: self.text(one)
                if key in _WORDS and isinstance(one, str)
                else self.schema(one, depth - 1)
                for key, one in members.items()
            }
        if isinstance(schema, list) and depth:
            return [self.schema(one, depth - 1) for one in cast("list[Any]", schema)]
        if isinstance(schema, str):
            self._count_only("schema", schema)
        return cast("Any", schema)

    def data(self, value: Any, depth: int = MAX_DEPTH) -> None:
        """Structured content, which is counted and not changed."""
        if isinstance(value, str):
            self._count_only("structured", value)
        elif isinstance(value, dict) and depth:
            for key, one in cast("dict[str, Any]", value).items():
                self._count_only("structured", key)
                self.data(one, depth - 1)
        elif isinstance(value, list) and depth:
            for one in cast("list[Any]", value):
                self.data(one, depth - 1)

    def _count_only(self, name: str, text: str) -> None:
        if not is_plain(text) and (hidden := find_hidden(text)):
            self._add(name, sum(hidden.values()))

    def _add(self, name: str, count: int) -> None:
        self.found[name] = self.found.get(name, 0) + count


# Members of a schema that people and models read.
_WORDS: Final = frozenset({"description", "title", "$comment"})


# ---------------------------------------------------------------- what servers send


class Containment:
    """Contains what the servers of a host send, in the mode of each; `max_text` is how many
    characters one result may have."""

    def __init__(self, mode: ContainMode = "neutralise", max_text: int = MAX_TEXT) -> None:
        self.mode: ContainMode = mode
        self.max_text: int = max_text

    def _pass(self) -> _Pass:
        return _Pass(self.mode, self.max_text)

    def contain(self, result: t.ProtocolType) -> t.ProtocolType:
        """A result for a model or a terminal: the given one, if nothing is hidden in it."""
        if self.mode == "off":
            return result
        if isinstance(result, t.InputRequiredResult):
            return self._input_required(result)
        contain = _RESULTS.get(type(result)) or _inherited(type(result))
        if contain is None:
            return result
        one = _Pass(self.mode, self.max_text)
        contained = contain(one, result)
        if not one.found:
            return result
        if isinstance(contained, t.CallToolResult) and "structured" in one.found:
            contained = _with_data_as_text(contained)
        if self.mode == "mark":
            contained = _with_note(contained, one.found)
        meta: dict[str, Any] = {**(getattr(result, "meta", None) or {}), CONTAINED_KEY: one.found}
        return replace(contained, meta=meta)

    def _input_required(self, result: t.InputRequiredResult) -> t.InputRequiredResult:
        """A result whose input requests a client answers itself."""
        asked = dict(result.input_requests or {})
        is_changed = False
        for key, request in input_requests_in(result).items():
            contained = self.input_request(request)
            if contained is not request:
                asked[key], is_changed = contained.as_input(), True
        return replace(result, input_requests=asked) if is_changed else result

    def definition(self, item: T) -> T:
        """The definition of an item, with what it is found by, its name or URI, as it is."""
        if self.mode == "off":
            return item
        one = self._pass()
        changed: dict[str, Any] = {}
        for member in ("title", "description"):
            text = getattr(item, member, None)
            if text is not None:
                changed[member] = one.text(text)
        if isinstance(item, t.Tool):
            changed["input_schema"] = one.schema(item.input_schema)
            changed["output_schema"] = one.schema(item.output_schema)
            if item.annotations is not None and item.annotations.title is not None:
                title = one.text(item.annotations.title)
                changed["annotations"] = replace(item.annotations, title=title)
        elif isinstance(item, t.Resource | t.ResourceTemplate):
            changed["name"] = one.text(item.name)  # it is found by its URI
        elif isinstance(item, t.Prompt) and item.arguments is not None:
            changed["arguments"] = [
                replace(
                    given,
                    description=one.optional(given.description),
                    title=one.optional(given.title),
                )
                for given in item.arguments
            ]
        if not one.found:
            return item
        if self.mode == "mark":
            marked = f"{describe_found(one.found)}\n\n{getattr(item, 'description', None) or ''}"
            changed = {"description": marked.rstrip()}
        meta: dict[str, Any] = {**(getattr(item, "meta", None) or {}), CONTAINED_KEY: one.found}
        return replace(item, **changed, meta=meta)

    def text(self, text: str) -> str:
        """A message, an instruction, an error, the text of an elicitation."""
        if self.mode == "off":
            return text
        one = self._pass()
        shown = one.text(text)
        if self.mode == "mark" and one.found:
            return f"{describe_found(one.found)}\n\n{text}"
        return shown

    def value(self, value: Any) -> Any:
        """The data of a log message."""
        return value if self.mode == "off" else self._pass().value(value)

    def elicitation(self, params: t.ElicitRequestParams) -> t.ElicitRequestParams:
        """The words of a form or of a URL elicitation; names, choices and the URL stay."""
        if self.mode == "off":
            return params
        message = self.text(params.message)
        schema = params.requested_schema
        one = self._pass()
        if schema is not None:
            fields = {
                name: replace(
                    field,
                    title=one.optional(field.title),
                    description=one.optional(field.description),
                )
                for name, field in schema.properties.items()
            }
            if one.found:
                schema = replace(schema, properties=fields)
        if message == params.message and not one.found:
            return params
        return replace(params, message=message, requested_schema=schema)

    def input_request(self, request: InputRequest) -> InputRequest:
        """An input request for the user or the model."""
        params = request.params
        if isinstance(params, t.ElicitRequestParams):
            contained: Any = self.elicitation(params)
        elif isinstance(params, t.CreateMessageRequestParams):
            contained = self._sampling(params)
        else:
            return request
        return request if contained is params else InputRequest(contained)

    def _sampling(self, params: t.CreateMessageRequestParams) -> t.CreateMessageRequestParams:
        if self.mode == "off":
            return params
        one = self._pass()
        messages = [replace(each, content=_blocks(one, each.content)) for each in params.messages]
        prompt = one.optional(params.system_prompt)
        if not one.found:
            return params
        if self.mode == "mark":
            marked = f"{describe_found(one.found)}\n\n{params.system_prompt or ''}".rstrip()
            return replace(params, system_prompt=marked)
        return replace(params, messages=messages, system_prompt=prompt)

    def task_state(self, state: "TaskState") -> "TaskState":
        """The state of a task: the given one, if nothing is hidden in it."""
        if self.mode == "off":
            return state
        changed: dict[str, Any] = {}
        if state.message is not None and (message := self.text(state.message)) != state.message:
            changed["message"] = message
        if state.error is not None:
            sent = RemoteError(state.error.code, state.error.message, state.error.data)
            if (error := self.error(sent)) is not sent:
                changed["error"] = replace(state.error, message=error.message, data=error.data)
        if state.input_requests:
            required = t.InputRequiredResult(input_requests=state.input_requests)
            if (contained := self._input_required(required)) is not required:
                changed["input_requests"] = contained.input_requests
        if state.result and (result := self._encoded(state.result)) is not state.result:
            changed["result"] = result
        return replace(state, **changed) if changed else state

    def _encoded(self, raw: Raw) -> Raw:
        """A result of a tool that is not decoded yet; nothing, if it is no such result."""
        try:
            result = decode_unchecked(t.CallToolResult, raw)
        except Fault:
            return NOTHING
        contained = self.contain(result)
        # Another decoder may read the first of two members, or one that no type here has.
        if contained is result and not has_duplicate_members(raw) and not hides_text(raw):
            return raw
        return Raw(encode(contained))

    def failure(self, error: ColonnadeError) -> ColonnadeError:
        """An error whose message has words of a server in it, such as that of a task: the given
        one, if nothing is hidden in them, or if it was contained before."""
        if isinstance(error, RemoteError):
            return self.error(error)
        sent: object = error.args[0] if error.args else None
        if not isinstance(sent, str) or sent.startswith(_NOTE):
            return error
        shown = self.text(sent)
        if shown == sent:
            return error
        contained = error.copy()
        contained.args = (shown, *error.args[1:])
        return contained

    def error(self, error: RemoteError) -> RemoteError:
        """An error of a server: the given one, if nothing is hidden in its message and its data, or
        if it was contained before."""
        if self.mode == "off" or error.untouched is not None:
            return error
        one = self._pass()
        message, data = one.text(error.message), one.value(error.data)
        if not one.found:
            return error
        if self.mode == "mark":
            message = f"{describe_found(one.found)}\n\n{error.message}"
        contained = error.copy()
        contained.message, contained.data = message, data
        contained.args = (f"{message} ({error.code})",)
        contained.untouched = error
        return contained


class ServerContainment:
    """The containment of each server of a host, by key: its setting, or the default."""

    def __init__(self, default: Containment) -> None:
        self._default = default
        self._by_key: dict[str, Containment] = {}

    def add(self, key: str, mode: ContainMode | None) -> None:
        """Use the setting of a server."""
        default = self._default
        self._by_key[key] = default if mode is None else Containment(mode, default.max_text)

    def of(self, key: str) -> Containment:
        """The containment of a server."""
        return self._by_key.get(key, self._default)


def describe_found(found: Mapping[str, int]) -> str:
    """What was found, for models and people."""
    named = ", ".join(f"{count} {_NAMES.get(name, name)}" for name, count in found.items())
    return f"{_NOTE}{named}]"


_NOTE: Final = "[Hidden text in what the server sent: "
_NAMES: Final = {
    "bidi": "bidi controls",
    "tags": "tag characters",
    "escapes": "terminal escapes",
    "invisible": "invisible or control characters",
    "schema": "invisible characters in the schema",
    "structured": "invisible characters in the structured content",
    "oversized": "characters beyond the limit",
    "cut": "characters cut",
}


def _with_note(result: t.ProtocolType, found: Mapping[str, int]) -> t.ProtocolType:
    note = t.TextContent(text=describe_found(found))
    if isinstance(result, t.CallToolResult):
        return replace(result, content=[note, *result.content])
    if isinstance(result, t.GetPromptResult):
        about = f"{note.text}\n\n{result.description or ''}".rstrip()
        return replace(result, description=about)
    return result


def _with_data_as_text(result: t.CallToolResult) -> t.CallToolResult:
    """With the structured content as a text: a result without text would be shown to a model as
    its structured content, in which something is hidden."""
    if any(isinstance(block, t.TextContent) for block in result.content):
        return result
    shown = t.TextContent(text=neutralise(encode_any(result.structured_content).decode()))
    return replace(result, content=[shown, *result.content])


# ---------------------------------------------------------------- content


def _block(one: _Pass, block: t.ContentBlock) -> t.ContentBlock:
    match block:
        case t.TextContent():
            text = one.text(block.text)
            return block if text is block.text else replace(block, text=text)
        case t.EmbeddedResource():
            return replace(block, resource=_contents(one, block.resource))
        case t.ResourceLink():
            return replace(
                block,
                uri=one.uri(block.uri),
                name=one.text(block.name),
                title=one.optional(block.title),
                description=one.optional(block.description),
            )
        case t.UnknownContent():
            members = one.value(block.whole.members)
            return replace(block, whole=t.UnknownMembers(members))
        case _:
            return block


def _blocks(one: _Pass, content: Any) -> Any:
    """The blocks of a sampling message: one, or a list of them."""
    if isinstance(content, list):
        return [_block(one, each) for each in cast("list[Any]", content)]
    return _block(one, content)


def _contents(one: _Pass, contents: t.ResourceContents) -> t.ResourceContents:
    return replace(contents, uri=one.uri(contents.uri), text=one.optional(contents.text))


def _call_result(one: _Pass, result: t.CallToolResult) -> t.CallToolResult:
    content = [_block(one, block) for block in result.content]
    structured = result.structured_content  # decoded when it is read, in one that is passed on
    if structured is not UNSET:
        one.data(structured)
    return replace(result, content=content) if one.found else result


def _prompt_result(one: _Pass, result: t.GetPromptResult) -> t.GetPromptResult:
    messages = [replace(each, content=_block(one, each.content)) for each in result.messages]
    return replace(result, messages=messages, description=one.optional(result.description))


def _read_result(one: _Pass, result: t.ReadResourceResult) -> t.ReadResourceResult:
    return replace(result, contents=[_contents(one, each) for each in result.contents])


def _complete_result(one: _Pass, result: t.CompleteResult) -> t.CompleteResult:
    values = [one.text(value) for value in result.completion.values]
    return replace(result, completion=replace(result.completion, values=values))


_RESULTS: Final[dict[type, Callable[[_Pass, Any], t.ProtocolType]]] = {
    t.CallToolResult: _call_result,
    t.GetPromptResult: _prompt_result,
    t.ReadResourceResult: _read_result,
    t.CompleteResult: _complete_result,
}


def _inherited(kind: type) -> Callable[[_Pass, Any], t.ProtocolType] | None:
    """What contains a result that a gateway passes on: its type is derived from the protocol's."""
    return next((_RESULTS[base] for base in kind.__mro__ if base in _RESULTS), None)


# ---------------------------------------------------------------- names that look alike

# Letters of other scripts that look like one of ASCII, as far as names of servers and tools have
# them: Cyrillic, Greek, Armenian; and ASCII itself, where 1, I and | look like l, and 0 like O.
_ALIKE: Final = str.maketrans(
    "аеорсухіјѕԁԛԝһɡɩıιοανρτυκχγηωЅІЈАВЕКМНОРСТУХΑΒΕΖΗΙΚΜΝΟΡΤΥΧօսոց1I|0",
    "aeopcyxijsdqwhgiiioavptukxynwSlJABEKMHOPCTYXABEZHlKMNOPTYXounglllO",
)
_DASHES: Final = re.compile("[\u2010-\u2015\u2212\ufe58\ufe63\uff0d]")


def skeleton(name: str) -> str:
    """What a name looks like: equal for two names that a person may take for each other."""
    shown = name[:MAX_NAME]
    if not shown.isascii():
        decomposed = normalize("NFKD", shown)
        shown = "".join(one for one in decomposed if not _is_mark(one) and not has_hidden(one))
        shown = _DASHES.sub("-", shown)
    return shown.translate(_ALIKE).replace("rn", "m").replace("vv", "w")


def _is_mark(character: str) -> bool:
    return "\u0300" <= character <= "\u036f"


def confusable(names: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of different names that look alike, each with the one before it."""
    first: dict[str, str] = {}
    pairs: list[tuple[str, str]] = []
    for name in dict.fromkeys(names):
        other = first.setdefault(skeleton(name), name)
        if other != name:
            pairs.append((name, other))
    return pairs


def contain_all(contain: Containment, items: Sequence[T]) -> Sequence[T]:
    """All definitions of a list; the given list, if nothing is hidden in them."""
    shown = [contain.definition(item) for item in items]
    return items if all(a is b for a, b in zip(shown, items, strict=True)) else shown
