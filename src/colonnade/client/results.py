"""What a tool answered: its words, its value, or its error.

Rules: a value is never guessed from what it looks like. What does not fit the type that was asked
for is the server's mistake, and is said so.
"""

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from html import escape
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar, cast

import msgspec
from msgspec import UNSET

from colonnade.errors import (
    InvalidArgument,
    RemoteError,
    RemoteProtocolError,
    ToolError,
)
from colonnade.protocol import types as t
from colonnade.protocol.codec.downgrade import WRAPPED
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.schema.error_messages import join_problems
from colonnade.protocol.schema.validate import Validator
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
from colonnade.text import clean, cut

# Of one block, in characters: a notebook keeps what it shows.
MAX_TEXT: Final = 20_000
MAX_DATA: Final = 16 * 1024 * 1024
# Of a table; more is for programs.
MAX_ROWS: Final = 100
MAX_COLUMNS: Final = 20
MAX_CELL: Final = 200

_MEDIA = re.compile(r"(?:image|audio)/[A-Za-z0-9.+-]{1,100}")
_FRAME = "<div style='border-left: 3px solid {}; padding-left: 8px'>{}</div>"
_CALM, _ALARMED = "#2f6f4f", "#b3362c"


def shown(text: str, most: int = MAX_TEXT) -> str:
    """Words of a server in a page: what would act there, or hide there, is seen instead."""
    return escape(cut(clean(text, lines=True), most))


def tool_html(signature: str, description: str | None) -> str:
    """A tool: how it is called, and what it says of itself."""
    about = f"<div style='white-space: pre-wrap'>{shown(description)}</div>" if description else ""
    return _FRAME.format(_CALM, f"<code>{shown(signature)}</code>{about}")


def result_html(
    tool: str, content: Sequence[t.ContentBlock], structured: Any, value: Any, is_error: bool
) -> str:
    """A result: its data as a table if that is what it is, then what else is in it."""
    blocks: list[str] = []
    said = _as_table(value) if structured is not UNSET and not is_error else ""
    if said:
        blocks.append(said)
        # The same data stands in the words as well, for older clients.
        same = {encode(one).decode() for one in (structured, value)}
        content = [one for one in content if not (_is_text(one) and _squeezed(one) in same)]
    blocks += [_block(one) for one in content]
    head = f"<b>{shown(tool)} failed</b>" if is_error else ""
    inner = head + "".join(blocks) or "<i>nothing</i>"
    return _FRAME.format(_ALARMED if is_error else _CALM, inner)


def _is_text(block: t.ContentBlock) -> bool:
    return isinstance(block, t.TextContent)


def _squeezed(block: t.ContentBlock) -> str:
    """The words of a block that are JSON, as we would write them."""
    text = cast("t.TextContent", block).text
    try:
        return encode(msgspec.json.decode(text)).decode()
    except (msgspec.MsgspecError, RecursionError):
        return text


def _block(block: t.ContentBlock) -> str:
    match block:
        case t.TextContent():
            return f"<pre style='white-space: pre-wrap'>{shown(block.text)}</pre>"
        case t.ImageContent():
            return _media("image", block.mime_type, block.data)
        case t.AudioContent():
            return _media("audio", block.mime_type, block.data)
        case t.EmbeddedResource():
            found = block.resource
            head = f"<div><code>{shown(found.uri)}</code></div>"
            if found.text is not None:
                return f"{head}<pre style='white-space: pre-wrap'>{shown(found.text)}</pre>"
            return head + _media("file", found.mime_type, found.blob or "")
        case t.ResourceLink():
            # No link that could be clicked: where it leads is the server's word.
            return f"<div>{shown(t.display_name(block))}: <code>{shown(block.uri)}</code></div>"
        case _:
            return f"<div>[{shown(block.type)}]</div>"


def _media(what: str, mime_type: str | None, data: str) -> str:
    """A picture or a sound; a name for what is neither, or no base64."""
    kind = (mime_type or "").lower()
    fits = _MEDIA.fullmatch(kind) and len(data) <= MAX_DATA and is_base64(data)
    if not fits:
        return f"<div>[{what} {shown(mime_type or '')}, {decoded_size(data)} bytes]</div>"
    source = f"data:{kind};base64,{data}"
    if kind.startswith("image/"):
        return f"<div><img style='max-width: 100%' src='{source}'></div>"
    return f"<div><audio controls src='{source}'></audio></div>"


# ---------------------------------------------------------------- tables


def _as_table(value: Any) -> str:
    """Objects in a list, a row each; one object, a member a row; nothing for anything else."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        if len(members) == 1:
            inner = _as_table(next(iter(members.values())))
            if inner and isinstance(next(iter(members.values())), list):
                return f"<div>{shown(next(iter(members)))}</div>{inner}"
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
    head = "".join(f"<th>{shown(name, MAX_CELL)}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{_cell(one)}</td>" for one in row) + "</tr>"
        for row in rows[:MAX_ROWS]
    )
    more = f"<div>and {len(rows) - MAX_ROWS} more</div>" if len(rows) > MAX_ROWS else ""
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if head else ''}{body}</table>{more}"


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else encode(value).decode()
    return shown(text, MAX_CELL)


T = TypeVar("T")


class ToolResult(Generic[T]):
    """What a tool answered. `data` is its value, `text` its words, `content` every block."""

    def __init__(
        self,
        tool: str,
        result: t.CallToolResult,
        returns: Any = None,
        output: Validator | None = None,
        *,
        wrapped: bool = True,
    ) -> None:
        self.tool = tool
        self.content: Sequence[t.ContentBlock] = result.content
        self.is_error: bool = result.is_error is True
        self.meta: dict[str, Any] = result.meta or {}
        # The call of a model that this answers; None where a program called.
        self.call: ModelToolCall | None = None
        self._structured: Any = result.structured_content
        self._returns = returns
        self._output = output
        # Whether an object whose only member is called `result` is there for the sake of that.
        self._wrapped = wrapped

    def __repr__(self) -> str:
        kind = "error " if self.is_error else ""
        return f"ToolResult({self.tool}, {kind}{self.text!r})"

    @property
    def text(self) -> str:
        """The words of the result, one block a line."""
        content = self.content
        if len(content) == 1 and type(content[0]) is t.TextContent:  # as most are
            return content[0].text
        blocks = (block for block in content if isinstance(block, t.TextContent))
        return "\n".join(block.text for block in blocks)

    @property
    def data(self) -> T:
        """The value: of the type that was asked for, else as plain JSON.

        A value that travels as `{"result": value}` is unwrapped, where it does for the sake of the
        revision or of its server, as far as anybody can tell. Where there is no structured
        content, as in the first two revisions, it is read from the words if a type was asked for,
        and is the words themselves if not; None where there are none. Raises `ToolError` for a
        result that is an error, `RemoteProtocolError` for a value that is not of that type, or
        does not fit what the server said the tool would give.
        """
        if self.is_error:
            raise ToolError(self.text or f"{self.tool} failed, and did not say why")
        if self._output is not None:
            self._check(self._output)
        value = self._plain() if self._returns is None else self._read(codec_of(self._returns))
        return cast("T", value)

    @property
    def structured(self) -> Any:
        """The structured content as it travelled; `msgspec.UNSET` where there is none."""
        return self._structured

    # ------------------------------------------------------------ for models, and for people

    def to_openai(
        self, call_id: str | None = None, api: openai.Api | None = None
    ) -> dict[str, Any]:
        """What tells OpenAI's model of this result: a message for Chat Completions, or an item for
        Responses. What `client.call_openai` gave knows its call, and needs neither argument.

        Chat Completions takes only words from a tool; pictures are named there, and sent whole in
        Responses. An error begins with "Error: ".
        """
        form = api or (self.call.form if self.call is not None else "chat")
        said = content_parts(self.content, self._structured)
        return openai.result_entry(said, self.is_error, self._call_id(call_id), form)

    def to_anthropic(self, call_id: str | None = None) -> dict[str, Any]:
        """A `tool_result` block for the content of the next user message. What
        `client.call_anthropic` gave knows its call, and needs no argument."""
        said = content_parts(self.content, self._structured)
        return anthropic.result_entry(said, self.is_error, self._call_id(call_id))

    def _call_id(self, given: str | None) -> str:
        if given is not None:
            return given
        if self.call is None:
            raise InvalidArgument(
                f"a model must be told which call this result of {self.tool} answers; make the "
                "call with client.call_openai or client.call_anthropic, or pass its id"
            )
        return self.call.id

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        value = next(self._values()) if self._structured is not UNSET else None
        return result_html(self.tool, self.content, self._structured, value, self.is_error)

    # ------------------------------------------------------------ its value

    def _check(self, output: Validator) -> None:
        """R0378: what a server promised to give is what may be relied on, and nothing else."""
        if self._structured is UNSET:
            raise RemoteProtocolError(
                f"{self.tool} has an output schema, and gave nothing that could fit it; "
                "its words are in text"
            )
        problems = output.check(self._structured)
        if problems:
            said = join_problems(problems)
            raise RemoteProtocolError(f"{self.tool} gave what its output schema forbids: {said}")

    def _plain(self) -> Any:
        if self._structured is not UNSET:
            return next(self._values())
        return self.text if any(isinstance(one, t.TextContent) for one in self.content) else None

    def _values(self) -> Iterator[Any]:
        """What the structured content may mean, the likeliest first."""
        value = self._structured
        if not may_be_wrapped(value):
            yield value
        elif self._wrapped:
            yield value[WRAPPED]
            yield value
        else:
            yield value
            yield value[WRAPPED]

    def _read(self, codec: Codec) -> Any:
        if self._structured is not UNSET:
            spellings = [encode(value) for value in self._values()]
        else:
            spellings = [encode(self.text), self.text.encode()]
        problems: list[str] = []
        for spelling in spellings:
            try:
                return codec.decode(spelling)
            except Exception as error:  # also what checks of the caller's own type raise
                problems.append(join_problems(codec.problems_of(error, None)))
        # The first is for what was meant most likely, but for words, which are JSON then.
        said = problems[0] if self._structured is not UNSET else problems[-1]
        raise RemoteProtocolError(f"{self.tool} gave no {codec.where}: {said}")


def may_be_wrapped(structured: Any) -> bool:
    """Whether it looks like a value that is wrapped; there are objects that look so, too."""
    return isinstance(structured, dict) and list(cast("dict[str, Any]", structured)) == [WRAPPED]


def codec_of(returns: Any) -> Codec:
    """What reads values of a type. Raises `LocalProtocolError` for one that has no JSON."""
    return codec_for(returns, str(getattr(returns, "__name__", returns)), Namespace({}, {}))


# Names that are offered to a model that took a wrong one.
MAX_OFFERED = 5

Schemas: TypeAlias = Mapping[str, dict[str, Any]]
CallTool: TypeAlias = Callable[[str, dict[str, Any]], Awaitable[ToolResult[Any]]]


async def call_for_model(
    call: ModelToolCall,
    known: Schemas,
    relist: Callable[[], Awaitable[Schemas]],
    call_tool: CallTool,
) -> ToolResult[Any]:
    """Make a call of a model. `known` are the schemas of the tools that a list has told of."""
    name = original_name(call.name, known)
    if name is None:
        known = await relist()
        name = original_name(call.name, known)
    if name is None:
        return _refusal(call, _no_such(call.name, known))
    if call.problem:
        return _refusal(call, f"{call.name}: {call.problem}")
    try:
        result = await call_tool(name, remove_null_fillers(call.arguments, known[name]))
    except RemoteError as error:
        return _refusal(call, f"{call.name} was refused: {error}")
    result.call = call
    return result


def _no_such(wanted: str, known: Schemas) -> str:
    names = [safe_name(name) for name in known]
    near = get_close_matches(wanted, names, n=MAX_OFFERED) or names[:MAX_OFFERED]
    more = f"; there is {', '.join(near)}" if near else "; there is none at all"
    return f"there is no tool {wanted!r}{more}"


def _refusal(call: ModelToolCall, words: str) -> ToolResult[Any]:
    said = t.CallToolResult(content=[t.TextContent(text=words)], is_error=True)
    result: ToolResult[Any] = ToolResult(call.name, said)
    result.call = call
    return result


if TYPE_CHECKING:  # a client of a URL never pays for children
    from colonnade.transport.process.child import Child

log: logging.Logger = logging.getLogger("colonnade.client")

# How the result of a crash ends: `forecast failed (id 4f2a91)`.
CRASH = re.compile(r"failed \(id ([0-9a-f]{6})\)$")


def crash_id(result: t.CallToolResult) -> str | None:
    """The id of a crash; None where the result is of anything else."""
    if len(result.content) != 1 or not isinstance(result.content[0], t.TextContent):
        return None
    found = CRASH.search(result.content[0].text)
    return found[1] if found else None


def show_crash(child: "Child | None", result: t.CallToolResult) -> None:
    """Log what a child wrote of the crash that a result is about, if it is about one."""
    id = crash_id(result) if child is not None else None
    if child is None or id is None:
        return
    lines = child.lines_since(id)
    if lines:
        log.warning("%s logged:\n    %s", child.whom, "\n    ".join(lines))
