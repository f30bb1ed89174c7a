"""A tool that a server offers, as a program holds it: for models, and for people who look at it.

Rules: what is sent and what is the same is decided by the noun itself; nothing here changes it.
"""

from typing import Any

from msgspec.structs import asdict

from colonnade.client.notebook import tool_html
from colonnade.client.signatures import tool_signature
from colonnade.protocol import types as t
from colonnade.providers import anthropic, openai


class Tool(t.Tool, kw_only=True):
    """A tool of a server: what its list says of it, and how models are told of it."""

    @classmethod
    def of(cls, tool: t.Tool) -> "Tool":
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
