"""The result of a tool call: its data, text and content blocks, and their display in notebooks.

Rules: the type of a value is never guessed from its content. A value that does not have the
requested type is reported as an error of the server.
"""

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from html import escape
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar, cast

import msgspec
from msgspec import UNSET

from colonnade.errors import (
    InvalidArgument,
    RemoteError,
    RemoteProtocolError,
    ToolError,
    says_effect_unknown,
    says_not_sent,
)
from colonnade.protocol import types as t
from colonnade.protocol.codec.downgrade import WRAPPED
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.schema.error_messages import join_problems
from colonnade.protocol.schema.validate import Validator, admitted_types
from colonnade.providers import anthropic, openai
from colonnade.providers.schemas import remove_null_fillers
from colonnade.providers.tool_calls import (
    ModelToolCall,
    content_parts,
    decoded_size,
    is_base64,
    original_name,
    safe_name,
)
from colonnade.signatures.codecs import Codec
from colonnade.signatures.signature import codec_for
from colonnade.signatures.type_hints import Namespace
from colonnade.text import clean, close_matches, cut

# Of one block, in characters: a notebook file contains what it shows.
MAX_TEXT: Final = 20_000
MAX_DATA: Final = 16 * 1024 * 1024
# Of a table.
MAX_ROWS: Final = 100
MAX_COLUMNS: Final = 20
MAX_CELL: Final = 200

_MEDIA = re.compile(r"(?:image|audio)/[A-Za-z0-9.+-]{1,100}")
_FRAME = "<div style='border-left: 3px solid {}; padding-left: 8px'>{}</div>"
_RESULT_COLOR, _ERROR_COLOR = "#2f6f4f", "#b3362c"


def escape_text(text: str, most: int = MAX_TEXT) -> str:
    """Text of a server for HTML: markup and control characters are escaped, and it is truncated."""
    return escape(cut(clean(text, lines=True), most))


def tool_html(signature: str, description: str | None) -> str:
    """A tool as HTML: its signature and description."""
    about = (
        f"<div style='white-space: pre-wrap'>{escape_text(description)}</div>"
        if description
        else ""
    )
    return _FRAME.format(_RESULT_COLOR, f"<code>{escape_text(signature)}</code>{about}")


def result_html(
    tool: str, content: Sequence[t.ContentBlock], structured: Any, value: Any, is_error: bool
) -> str:
    """A result as HTML: its data as a table if possible, then the other blocks."""
    blocks: list[str] = []
    table = _as_table(value) if structured is not UNSET and not is_error else ""
    if table:
        blocks.append(table)
        # The text block repeats the data for older clients.
        same = {encode(one).decode() for one in (structured, value)}
        content = [one for one in content if not (_is_text(one) and _canonical_json(one) in same)]
    blocks += [_block(one) for one in content]
    head = f"<b>{escape_text(tool)} failed</b>" if is_error else ""
    inner = head + "".join(blocks) or "<i>nothing</i>"
    return _FRAME.format(_ERROR_COLOR if is_error else _RESULT_COLOR, inner)


def _is_text(block: t.ContentBlock) -> bool:
    return isinstance(block, t.TextContent)


def _canonical_json(block: t.ContentBlock) -> str:
    """The text of a block, normalized if it is JSON."""
    text = cast("t.TextContent", block).text
    try:
        return encode(msgspec.json.decode(text)).decode()
    except (msgspec.MsgspecError, RecursionError):
        return text


def _block(block: t.ContentBlock) -> str:
    match block:
        case t.TextContent():
            return f"<pre style='white-space: pre-wrap'>{escape_text(block.text)}</pre>"
        case t.ImageContent():
            return _media("image", block.mime_type, block.data)
        case t.AudioContent():
            return _media("audio", block.mime_type, block.data)
        case t.EmbeddedResource():
            found = block.resource
            head = f"<div><code>{escape_text(found.uri)}</code></div>"
            if found.text is not None:
                return f"{head}<pre style='white-space: pre-wrap'>{escape_text(found.text)}</pre>"
            return head + _media("file", found.mime_type, found.blob or "")
        case t.ResourceLink():
            # Not a link: the URI comes from the server and is not trusted.
            name, uri = escape_text(t.display_name(block)), escape_text(block.uri)
            return f"<div>{name}: <code>{uri}</code></div>"
        case _:
            return f"<div>[{escape_text(block.type)}]</div>"


def _media(what: str, mime_type: str | None, data: str) -> str:
    """An image or audio element; a placeholder for other types and for invalid base64."""
    kind = (mime_type or "").lower()
    fits = _MEDIA.fullmatch(kind) and len(data) <= MAX_DATA and is_base64(data)
    if not fits:
        return f"<div>[{what} {escape_text(mime_type or '')}, {decoded_size(data)} bytes]</div>"
    source = f"data:{kind};base64,{data}"
    if kind.startswith("image/"):
        return f"<div><img style='max-width: 100%' src='{source}'></div>"
    return f"<div><audio controls src='{source}'></audio></div>"


# ---------------------------------------------------------------- tables


def _as_table(value: Any) -> str:
    """A list of objects with a row each; an object with a row for each member; otherwise empty."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        if len(members) == 1:
            inner = _as_table(next(iter(members.values())))
            if inner and isinstance(next(iter(members.values())), list):
                return f"<div>{escape_text(next(iter(members)))}</div>{inner}"
        return _table([], [(key, one) for key, one in members.items()])
    if not isinstance(value, list):
        return ""
    found = cast("list[Any]", value)
    if not found or not all(isinstance(one, dict) for one in found):
        return ""
    rows = cast("list[dict[str, Any]]", found)
    names = list(dict.fromkeys(name for row in rows[:MAX_ROWS] for name in row))[:MAX_COLUMNS]
    return _table(names, [[row.get(name, "") for name in names] for row in rows])


def _table(names: Sequence[str], rows: Sequence[Iterable[Any]]) -> str:
    head = "".join(f"<th>{escape_text(name, MAX_CELL)}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{_cell(one)}</td>" for one in row) + "</tr>"
        for row in rows[:MAX_ROWS]
    )
    more = f"<div>and {len(rows) - MAX_ROWS} more</div>" if len(rows) > MAX_ROWS else ""
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if head else ''}{body}</table>{more}"


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else encode(value).decode()
    return escape_text(text, MAX_CELL)


T = TypeVar("T")


class ToolResult(Generic[T]):
    """The result of a tool call. `data` is its value, `text` its text, `content` all blocks.

    If a gateway could not finish the call, `not_sent` (the call was not started) or
    `effect_unknown` (it may have had an effect) is set, as in a `ChannelError`.
    """

    def __init__(
        self,
        tool: str,
        result: t.CallToolResult,
        returns: Any = None,
        output: Validator | None = None,
        *,
        wrapped: bool = True,
        untouched: t.CallToolResult | None = None,
    ) -> None:
        self.tool = tool
        # The result as the server sent it: of a host, which may have made hidden text visible.
        self.untouched: t.CallToolResult = untouched or result
        self.content: Sequence[t.ContentBlock] = result.content
        self.is_error: bool = result.is_error is True
        self.meta: dict[str, Any] = result.meta or {}
        self.not_sent: bool = self.is_error and says_not_sent(self.meta)
        self.effect_unknown: bool = self.is_error and says_effect_unknown(self.meta)
        # The tool call of the model; None if the program called the tool.
        self.call: ModelToolCall | None = None
        self._structured: Any = result.structured_content
        self._returns = returns
        self._output = output
        # Whether an object whose only member is `result` is a wrapper.
        self._wrapped = wrapped

    def __repr__(self) -> str:
        kind = "error " if self.is_error else ""
        return f"ToolResult({self.tool}, {kind}{self.text!r})"

    @property
    def text(self) -> str:
        """The text blocks, one per line."""
        content = self.content
        if len(content) == 1 and type(content[0]) is t.TextContent:  # as most are
            return content[0].text
        blocks = (block for block in content if isinstance(block, t.TextContent))
        return "\n".join(block.text for block in blocks)

    @property
    def data(self) -> T:
        """The value: of the type in `returns`, otherwise plain JSON.

        A value in a wrapper, `{"result": value}`, is unwrapped if the revision or the server uses
        one, as far as is known. Without structured content, as in the first two revisions, the
        value is decoded from the text if `returns` was given, and is the text itself if not; None
        without text. Raises `ToolError` if the result is an error, `RemoteProtocolError` if the
        value does not have the type, or does not match the tool's output schema.
        """
        if self.is_error:
            raise ToolError(self.text or f"{self.tool} failed without an error message")
        if self._output is not None:
            self._check(self._output)
        value = self._plain() if self._returns is None else self._decode(codec_of(self._returns))
        return cast("T", value)

    def returning(self, returns: Any) -> "ToolResult[Any]":
        """The same result, whose `data` has this type."""
        same = copy(self)
        same._returns = returns
        return same

    @property
    def structured(self) -> Any:
        """The structured content as received; `msgspec.UNSET` if there is none."""
        return self._structured

    # ------------------------------------------------------------ for models and notebooks

    def to_openai(
        self, call_id: str | None = None, api: openai.Api | None = None
    ) -> dict[str, Any]:
        """The message for Chat Completions, or the item for Responses, with this result. A result
        of `client.call_openai` knows its call, and needs no arguments.

        Chat Completions accepts only text from a tool; images become placeholders there, and are
        sent in Responses. An error begins with "Error: ".
        """
        form = api or (self.call.form if self.call is not None else "chat")
        parts = content_parts(self.content, self._structured)
        return openai.result_entry(parts, self.is_error, self._call_id(call_id), form)

    def to_anthropic(self, call_id: str | None = None) -> dict[str, Any]:
        """The `tool_result` block for the content of the next user message. A result of
        `client.call_anthropic` knows its call, and needs no argument."""
        parts = content_parts(self.content, self._structured)
        return anthropic.result_entry(parts, self.is_error, self._call_id(call_id))

    def _call_id(self, given: str | None) -> str:
        if given is not None:
            return given
        if self.call is None:
            raise InvalidArgument(
                f"the id of the model's call is missing for this result of {self.tool}; call the "
                "tool with client.call_openai or client.call_anthropic, or pass call_id="
            )
        return self.call.id

    def _repr_html_(self) -> str:
        """The HTML representation in notebooks."""
        value = next(self._values()) if self._structured is not UNSET else None
        return result_html(self.tool, self.content, self._structured, value, self.is_error)

    # ------------------------------------------------------------ the value

    def _check(self, output: Validator) -> None:
        """R0378: validate the structured content against the output schema.

        A server may have dropped the schema of a string since its tools were listed; its text is
        the same value.
        """
        if self._structured is UNSET:
            if _is_string_schema(output.document) and any(
                isinstance(one, t.TextContent) for one in self.content
            ):
                return
            raise RemoteProtocolError(
                f"{self.tool} has an output schema, but returned no structured content; "
                "its text is in result.text"
            )
        problems = output.check(self._structured)
        if problems:
            message = join_problems(problems)
            raise RemoteProtocolError(
                f"{self.tool} returned data outside its output schema: {message}"
            )

    def _plain(self) -> Any:
        if self._structured is not UNSET:
            return next(self._values())
        return self.text if any(isinstance(one, t.TextContent) for one in self.content) else None

    def _values(self) -> Iterator[Any]:
        """The possible values of the structured content, the likeliest first."""
        value = self._structured
        if not may_be_wrapped(value):
            yield value
        elif self._wrapped:
            yield value[WRAPPED]
            yield value
        else:
            yield value
            yield value[WRAPPED]

    def _decode(self, codec: Codec) -> Any:
        if self._structured is not UNSET:
            spellings = [encode(value) for value in self._values()]
        else:
            spellings = [encode(self.text), self.text.encode()]
        problems: list[str] = []
        for spelling in spellings:
            try:
                return codec.decode(spelling)
            except Exception as error:  # also from validators of the caller's own type
                problems.append(join_problems(codec.problems_of(error, None)))
        # Report the likeliest interpretation; for text, that as JSON.
        message = problems[0] if self._structured is not UNSET else problems[-1]
        raise RemoteProtocolError(f"{self.tool} did not return {codec.where}: {message}")


def _is_string_schema(schema: dict[str, Any]) -> bool:
    """Whether an output schema describes a string or null, perhaps in a wrapper."""
    properties: dict[str, Any] = schema.get("properties") or {}
    wraps = list(properties) == [WRAPPED]
    types = admitted_types(properties[WRAPPED] if wraps else schema, schema)
    return "string" in types and types <= {"string", "null"}


def may_be_wrapped(structured: Any) -> bool:
    """Whether it looks like a wrapped value; an ordinary object may look the same."""
    return isinstance(structured, dict) and list(cast("dict[str, Any]", structured)) == [WRAPPED]


def codec_of(returns: Any) -> Codec:
    """The codec of a type. Raises `LocalProtocolError` for a type without a JSON form."""
    return codec_for(returns, str(getattr(returns, "__name__", returns)), Namespace({}, {}))


def decode_returns(returns: Any, raw: bytes, what: str) -> Any:
    """A JSON value as an object of a type. Raises `RemoteProtocolError` if it does not fit,
    `LocalProtocolError` for a type without a JSON form."""
    codec = codec_of(returns)
    try:
        return codec.decode(raw)
    except Exception as error:  # also from validators of the caller's own type
        problems = join_problems(codec.problems_of(error, None))
        raise RemoteProtocolError(f"{what} is not {codec.where}: {problems}") from None


# Names that are suggested to a model that used an unknown one.
MAX_SUGGESTIONS = 5

Schemas: TypeAlias = Mapping[str, dict[str, Any]]
CallTool: TypeAlias = Callable[[str, dict[str, Any]], Awaitable[ToolResult[Any]]]


async def call_for_model(
    call: ModelToolCall,
    known: Schemas,
    relist: Callable[[], Awaitable[Schemas]],
    call_tool: CallTool,
) -> ToolResult[Any]:
    """Run a tool call of a model. `known` are the input schemas of the listed tools."""
    name = original_name(call.name, known)
    if name is None:
        known = await relist()
        name = original_name(call.name, known)
    if name is None:
        return _error_result(call, _unknown_tool(call.name, known))
    if call.problem:
        return _error_result(call, f"{call.name}: {call.problem}")
    try:
        result = await call_tool(name, remove_null_fillers(call.arguments, known[name]))
    except RemoteError as error:
        return _error_result(call, f"{call.name} was refused: {error}")
    result.call = call
    return result


def _unknown_tool(wanted: str, known: Schemas) -> str:
    names = [safe_name(name) for name in known]
    near = close_matches(wanted, names, MAX_SUGGESTIONS) or names[:MAX_SUGGESTIONS]
    more = f"; there is {', '.join(near)}" if near else "; there is none at all"
    return f"there is no tool {wanted!r}{more}"


def _error_result(call: ModelToolCall, message: str) -> ToolResult[Any]:
    content = t.CallToolResult(content=[t.TextContent(text=message)], is_error=True)
    result: ToolResult[Any] = ToolResult(call.name, content)
    result.call = call
    return result


if TYPE_CHECKING:  # a client of a URL does not import process support
    from colonnade.transport.process.child import Child

log: logging.Logger = logging.getLogger("colonnade.client")

# The end of a result or error after an exception of a handler: `forecast failed (id 4f2a91)`.
CRASH = re.compile(r"failed \(id ([0-9a-f]{6})\)$")


def crash_id(outcome: t.CallToolResult | RemoteError) -> str | None:
    """The id of the exception; None if the result or error is about something else."""
    if isinstance(outcome, RemoteError):
        text = outcome.message
    elif len(outcome.content) == 1 and isinstance(outcome.content[0], t.TextContent):
        text = outcome.content[0].text
    else:
        return None
    found = CRASH.search(text)
    return found[1] if found else None


def show_crash(child: "Child | None", outcome: t.CallToolResult | RemoteError) -> None:
    """Log what the child process wrote about the exception of a result or error, if it is about
    one."""
    id = crash_id(outcome) if child is not None else None
    if child is None or id is None:
        return
    lines = child.lines_since(id)
    if lines:
        log.warning("%s logged:\n    %s", child.label, "\n    ".join(lines))
