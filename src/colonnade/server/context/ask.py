"""Questions as authors write them: `Ask`, `Sample` and `Roots`, declared or asked in the middle.

A parameter that is marked with one is answered before the body runs, and is hidden from callers:

    seat: Annotated[Seat, Ask("Which seat on {flight}?")]

Given to `ctx.ask`, several make one round. Rules: pure; how a question travels is `context`'s
business. What a person did not say is never made up.
"""

import inspect
import re
import secrets
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import lru_cache
from string import Formatter
from typing import (
    Annotated,
    Any,
    Generic,
    NamedTuple,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
    get_origin,
    overload,
)

from colonnade.errors import InvalidArgument, InvalidArgumentType, LocalProtocolError, ToolError
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import convert_to
from colonnade.protocol.elicitation import with_defaults
from colonnade.protocol.input_requests import AnyInputResponse, InputRequest, accepted_content
from colonnade.protocol.jsonrpc import encode
from colonnade.server.handlers.content import Audio, Image, Message, blocks_of
from colonnade.server.options import Mark
from colonnade.signatures.form import ElicitationForm
from colonnade.signatures.type_hints import Namespace, signature_of

# What a model may write if nobody says otherwise.
MAX_TOKENS = 1000
# Forms of types are made once; a server has a handful.
MAX_FORMS = 256

T = TypeVar("T")
Words = str | Callable[..., str | None]


class Sampled(NamedTuple):
    """What a model wrote: its text, and everything else that it said."""

    text: str
    blocks: Sequence[t.SamplingMessageContentBlock]
    model: str
    stop_reason: str | None


class Asked(Mark, Generic[T]):
    """A question, and how its answer becomes a value."""

    key: str | None = None

    def question(self) -> InputRequest:
        """The question as the protocol knows it."""
        raise NotImplementedError

    def value(self, answer: AnyInputResponse) -> T:
        """The value of an answer. Raises `Declined` and `ToolError`."""
        raise NotImplementedError

    def declared(self, annotation: Any, where: str, names: Namespace) -> "Asked[T]":
        """This question, for a parameter of this type. Raises `LocalProtocolError`."""
        return self

    def about(self, arguments: Mapping[str, Any]) -> "Asked[T] | None":
        """This question about these arguments; None where it need not be asked."""
        raise NotImplementedError

    def mentions(self) -> set[str]:
        """The arguments that its words cannot do without."""
        return set()


class Ask(Asked[T]):
    """Asks the user: `Ask("Which seat on {flight}?")` marks a parameter, `Ask("…", Seat)` is for
    `ctx.ask`.

    The words may name arguments, or be a function that takes some of them and returns the words,
    or None where there is no need to ask.
    """

    @overload
    def __init__(self, words: Words, type: type[T], *, key: str | None = None) -> None: ...
    @overload
    def __init__(
        self: "Ask[Any]", words: Words, type: Any = None, *, key: str | None = None
    ) -> None: ...
    def __init__(self, words: Words, type: Any = None, *, key: str | None = None) -> None:
        self.words = words
        self.key = key
        self._form = form_for(type) if type is not None else None

    def declared(self, annotation: Any, where: str, names: Namespace) -> "Ask[T]":
        made = copy(self)
        try:
            made._form = _make_form(annotation, names)
        except LocalProtocolError as error:
            raise InvalidArgumentType(f"{where}: {error}") from None
        return made

    def about(self, arguments: Mapping[str, Any]) -> "Ask[T] | None":
        words = spoken(self.words, arguments)
        if words is None:
            return None
        made = copy(self)
        made.words = words
        return made

    def mentions(self) -> set[str]:
        return named_in(self.words)

    def question(self) -> InputRequest:
        if self._form is None or not isinstance(self.words, str):
            raise InvalidArgumentType("Ask needs words and the type to ask for: Ask('Who?', str)")
        form, _ = self._form
        return InputRequest(t.ElicitRequestParams(message=self.words, requested_schema=form))

    def value(self, answer: AnyInputResponse) -> T:
        assert self._form is not None
        form, reading = self._form
        content = accepted_content(cast("t.ElicitResult", answer))
        return reading.decode(encode(with_defaults(form, content)))


class AskForm(Asked[dict[str, t.ElicitValue]]):
    """Asks the user with a form that is written out."""

    def __init__(self, words: str, form: t.ElicitSchema, *, key: str | None = None) -> None:
        self.words = words
        self.form = form
        self.key = key

    def question(self) -> InputRequest:
        return InputRequest(t.ElicitRequestParams(message=self.words, requested_schema=self.form))

    def value(self, answer: AnyInputResponse) -> dict[str, t.ElicitValue]:
        return accepted_content(cast("t.ElicitResult", answer))

    def about(self, arguments: Mapping[str, Any]) -> "AskForm":
        return AskForm(spoken(self.words, arguments) or self.words, self.form, key=self.key)


class AskVisit(Asked[None]):
    """Sends the user to an address. Consent is all that comes back (D25)."""

    def __init__(
        self, words: str, url: str, *, id: str | None = None, key: str | None = None
    ) -> None:
        self.words = words
        self.url = url
        self.id: str = id or secrets.token_urlsafe(16)
        self.key = key

    def question(self) -> InputRequest:
        params = t.ElicitRequestParams(
            message=self.words, mode="url", url=self.url, elicitation_id=self.id
        )
        return InputRequest(params)

    def value(self, answer: AnyInputResponse) -> None:
        accepted_content(cast("t.ElicitResult", answer))

    def about(self, arguments: Mapping[str, Any]) -> "AskVisit":
        return self


# What a model is given: text, a picture, a sound, or a message that says whose words they are.
Spoken: TypeAlias = str | t.SamplingMessage | t.PromptMessage | Message | Image | Audio
Prompting: TypeAlias = Spoken | Sequence[Spoken]


class Sample(Asked[Any]):
    """Lets the client's model write: `Annotated[str, Sample("Summarise {text}")]`.

    A parameter of type `str` gets the text, one of type `Sampled` everything.
    """

    def __init__(
        self,
        prompt: Words | Prompting,
        *,
        max_tokens: int = MAX_TOKENS,
        system: str | None = None,
        temperature: float | None = None,
        stop: list[str] | None = None,
        preferences: t.ModelPreferences | None = None,
        tools: list[t.Tool] | None = None,
        tool_choice: t.ToolChoice | None = None,
        key: str | None = None,
    ) -> None:
        self.prompt = prompt
        self.key = key
        self._plain = False
        self._said: dict[str, Any] = {
            "max_tokens": max_tokens,
            "system_prompt": system,
            "temperature": temperature,
            "stop_sequences": stop,
            "model_preferences": preferences,
            "tools": tools,
            "tool_choice": tool_choice,
        }

    def declared(self, annotation: Any, where: str, names: Namespace) -> "Sample":
        if annotation not in (str, Sampled, Any):
            raise InvalidArgumentType(f"{where}: what a model writes is a str, or Sampled for all")
        made = copy(self)
        made._plain = annotation is str
        return made

    def about(self, arguments: Mapping[str, Any]) -> "Sample | None":
        prompt = self.prompt
        if isinstance(prompt, str) or callable(prompt):
            prompt = spoken(prompt, arguments)
        if prompt is None:
            return None
        made = copy(self)
        made.prompt = prompt
        return made

    def mentions(self) -> set[str]:
        prompt = self.prompt
        return named_in(prompt) if isinstance(prompt, str) or callable(prompt) else set()

    def question(self) -> InputRequest:
        prompt = self.prompt
        if callable(prompt):
            raise InvalidArgumentType("Sample needs the words for the model")
        turns = prompt if isinstance(prompt, list | tuple) else [cast("Spoken", prompt)]
        messages = [message for turn in turns for message in _messages(turn)]
        return InputRequest(t.CreateMessageRequestParams(messages=messages, **self._said))

    def value(self, answer: AnyInputResponse) -> Any:
        sampled = sampled_from(cast("t.CreateMessageResult", answer))
        return sampled.text if self._plain else sampled


def _messages(turn: Any) -> list[t.SamplingMessage]:
    """What a model is given, as the protocol has it: one message for each block."""
    if isinstance(turn, t.SamplingMessage):
        return [turn]
    role: t.Role = "user"
    if isinstance(turn, Message | t.PromptMessage):
        role, turn = turn.role, turn.content
    messages: list[t.SamplingMessage] = []
    for block in blocks_of(turn):
        if not isinstance(block, t.TextContent | t.ImageContent | t.AudioContent):
            raise InvalidArgumentType(
                f"a model cannot be sent {type(turn).__name__}; send text, Image or Audio, alone "
                "or in Message(content, role)"
            )
        messages.append(t.SamplingMessage(role=role, content=block))
    return messages


class Roots(Asked[list[t.Root]]):
    """The folders that the client lets the server know of: `Annotated[list[Root], Roots()]`."""

    def __init__(self, *, key: str | None = None) -> None:
        self.key = key

    def question(self) -> InputRequest:
        return InputRequest(t.ListRootsRequestParams())

    def value(self, answer: AnyInputResponse) -> list[t.Root]:
        return cast("t.ListRootsResult", answer).roots

    def about(self, arguments: Mapping[str, Any]) -> "Roots":
        return self


def sampled_from(result: t.CreateMessageResult) -> Sampled:
    """What a model wrote, as authors get it."""
    blocks = result.content if isinstance(result.content, list) else [result.content]
    text = "".join(block.text for block in blocks if isinstance(block, t.TextContent))
    return Sampled(text, blocks, result.model, result.stop_reason)


# ---------------------------------------------------------------- words and forms


def spoken(words: Words, arguments: Mapping[str, Any]) -> str | None:
    """The words of a question about these arguments. Raises `ToolError` for what they lack."""
    if isinstance(words, str):
        try:
            return words.format_map(arguments)
        except (KeyError, IndexError, ValueError) as error:
            raise ToolError(f"the question {words!r} cannot be put: {error!r}") from error
    wanted = signature_of(words).parameters
    return words(**{name: arguments[name] for name in wanted if name in arguments})


def named_in(words: Words) -> set[str]:
    """The arguments that words name, or that a function needs. Raises `LocalProtocolError`."""
    if isinstance(words, str):
        try:
            fields = [field for _, field, _, _ in Formatter().parse(words) if field is not None]
        except ValueError as error:
            raise InvalidArgument(f"{words!r}: {error}; write {{{{ for a brace") from None
        return {re.split(r"[.\[]", field, maxsplit=1)[0] for field in fields}
    parameters = signature_of(words).parameters.values()
    return {one.name for one in parameters if one.default is inspect.Parameter.empty}


FormOf = tuple[t.ElicitSchema, ElicitationForm]


def form_for(annotation: Any) -> FormOf:
    """The form of a type, as it is shown and as it is read. Raises `LocalProtocolError`."""
    try:
        return _remembered(annotation)
    except TypeError:  # it has no hash
        return _make_form(annotation)


def _make_form(annotation: Any, names: Namespace | None = None) -> FormOf:
    form = ElicitationForm(annotation, names=names)
    return convert_to(t.ElicitSchema, form.schema), form


_remembered = lru_cache(MAX_FORMS)(_make_form)


# ---------------------------------------------------------------- parameters


class Marked(NamedTuple):
    """A parameter that a question answers. `optional`: None will do where nobody answers."""

    name: str
    asked: Asked[Any]
    optional: bool
    default: Any


def marked(name: str, annotation: Any, default: Any, where: str, names: Namespace) -> Marked | None:
    """The question that a parameter is marked with, if it is."""
    asked = cast("Asked[Any]", default) if isinstance(default, Asked) else None
    if asked is not None:
        default = inspect.Parameter.empty
    if get_origin(annotation) is Annotated:
        for item in annotation.__metadata__:
            if isinstance(item, Asked):
                asked = cast("Asked[Any]", item)
        rest = [item for item in annotation.__metadata__ if not isinstance(item, Asked)]
        annotation = annotation.__origin__
        if rest:
            annotation = Annotated[(annotation, *rest)]
    if asked is None:
        return None
    bare, optional = _without_none(annotation)
    return Marked(name, asked.declared(bare, where, names), optional, default)


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) not in (typing.Union, types.UnionType):
        return annotation, False
    members = [member for member in get_args(annotation) if member is not type(None)]
    if len(members) == len(get_args(annotation)):
        return annotation, False
    return typing.Union[tuple(members)], True  # noqa: UP007
