"""What a tool answered: its words, its value, or its error.

Rules: a value is never guessed from what it looks like. What does not fit the type that was asked
for is the server's mistake, and is said so.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar, cast

from msgspec import UNSET

from colonnade.client.notebook import result_html
from colonnade.errors import LocalProtocolError, RemoteProtocolError, ToolError
from colonnade.protocol import types as t
from colonnade.protocol.annotations_names import Names
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.problems import told
from colonnade.protocol.schema import Validator
from colonnade.protocol.shape_schema import WRAPPED
from colonnade.protocol.signature_codec import Codec
from colonnade.protocol.signature_reading import choose
from colonnade.providers import anthropic, openai
from colonnade.providers.calls import Call
from colonnade.providers.content import parts

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
        self.call: Call | None = None
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
        said = parts(self.content, self._structured)
        return openai.result_entry(said, self.is_error, self._call_id(call_id), form)

    def to_anthropic(self, call_id: str | None = None) -> dict[str, Any]:
        """A `tool_result` block for the content of the next user message. What
        `client.call_anthropic` gave knows its call, and needs no argument."""
        said = parts(self.content, self._structured)
        return anthropic.result_entry(said, self.is_error, self._call_id(call_id))

    def _call_id(self, given: str | None) -> str:
        if given is not None:
            return given
        if self.call is None:
            raise LocalProtocolError(
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
            said = told(problems)
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
                problems.append(told(codec.complain(error, None)))
        # The first is for what was meant most likely, but for words, which are JSON then.
        said = problems[0] if self._structured is not UNSET else problems[-1]
        raise RemoteProtocolError(f"{self.tool} gave no {codec.where}: {said}")


def may_be_wrapped(structured: Any) -> bool:
    """Whether it looks like a value that is wrapped; there are objects that look so, too."""
    return isinstance(structured, dict) and list(cast("dict[str, Any]", structured)) == [WRAPPED]


def codec_of(returns: Any) -> Codec:
    """What reads values of a type. Raises `LocalProtocolError` for one that has no JSON."""
    return choose(returns, str(getattr(returns, "__name__", returns)), Names({}, {}))
