"""Input requests of handlers: `Ask` (elicitation), `Sample` (sampling) and `Roots`.

A parameter marked with one gets its value before the function runs, and is not in the input schema:

    seat: Annotated[Seat, Ask("Which seat on {flight}?")]

`ctx.ask` sends several in one round. Rules: no I/O; `context` sends them. A value that the user did
not give is never made up.
"""

import inspect
import re
import secrets
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from colonnade.signatures.form import ElicitationForm
from colonnade.signatures.signature import ParameterMarker
from colonnade.signatures.type_hints import Namespace, signature_of

# The default of `max_tokens`.
MAX_TOKENS = 1000
# Cached forms; a server has a handful.
MAX_FORMS = 256

T = TypeVar("T")
MessageSource = str | Callable[..., str | None]


class Sampled(NamedTuple):
    """A sampling result: its text, all content blocks, the model and the stop reason."""

    text: str
    blocks: Sequence[t.SamplingMessageContentBlock]
    model: str
    stop_reason: str | None


class InputSpec(ParameterMarker, Generic[T]):
    """An input request, and the decoding of its response."""

    key: str | None = None

    def input_request(self) -> InputRequest:
        """The input request of the protocol."""
        raise NotImplementedError

    def decode(self, response: AnyInputResponse) -> T:
        """The value of a response. Raises `Declined` and `ToolError`."""
        raise NotImplementedError

    def for_parameter(self, annotation: Any, where: str, names: Namespace) -> "InputSpec[T]":
        """A copy for a parameter of this type. Raises `LocalProtocolError`."""
        return self

    def with_arguments(self, arguments: Mapping[str, Any]) -> "InputSpec[T] | None":
        """A copy with the message formatted from arguments; None if no request is needed."""
        raise NotImplementedError

    def required_arguments(self) -> set[str]:
        """The arguments that the message needs."""
        return set()


class Ask(InputSpec[T]):
    """Elicitation: `Ask("Which seat on {flight}?")` marks a parameter, `Ask("…", Seat)` is for
    `ctx.ask`.

    `message` is a string with the names of arguments in braces, or a function that takes
    arguments and returns the message, or None if no elicitation is needed.
    """

    @overload
    def __init__(
        self, message: MessageSource, type: type[T], *, key: str | None = None
    ) -> None: ...
    @overload
    def __init__(
        self: "Ask[Any]", message: MessageSource, type: Any = None, *, key: str | None = None
    ) -> None: ...
    def __init__(self, message: MessageSource, type: Any = None, *, key: str | None = None) -> None:
        self.message = message
        self.key = key
        self._form = form_for(type) if type is not None else None

    def for_parameter(self, annotation: Any, where: str, names: Namespace) -> "Ask[T]":
        result = copy(self)
        try:
            result._form = _make_form(annotation, names)
        except LocalProtocolError as error:
            raise InvalidArgumentType(f"{where}: {error}") from None
        return result

    def with_arguments(self, arguments: Mapping[str, Any]) -> "Ask[T] | None":
        message = format_message(self.message, arguments)
        if message is None:
            return None
        result = copy(self)
        result.message = message
        return result

    def required_arguments(self) -> set[str]:
        return placeholders(self.message)

    def input_request(self) -> InputRequest:
        if self._form is None or not isinstance(self.message, str):
            raise InvalidArgumentType(
                "an elicitation needs a message and the type of the value: "
                "ctx.elicit('Your name?', str), or Ask('Your name?', str); for consent, bool"
            )
        form, _ = self._form
        return InputRequest(t.ElicitRequestParams(message=self.message, requested_schema=form))

    def decode(self, response: AnyInputResponse) -> T:
        assert self._form is not None
        form, form_type = self._form
        content = accepted_content(cast("t.ElicitResult", response))
        return form_type.decode(encode(with_defaults(form, content)))


class AskForm(InputSpec[dict[str, t.ElicitValue]]):
    """Elicitation with an explicit form schema."""

    def __init__(self, message: str, form: t.ElicitSchema, *, key: str | None = None) -> None:
        self.message = message
        self.form = form
        self.key = key

    def input_request(self) -> InputRequest:
        return InputRequest(t.ElicitRequestParams(message=self.message, requested_schema=self.form))

    def decode(self, response: AnyInputResponse) -> dict[str, t.ElicitValue]:
        return accepted_content(cast("t.ElicitResult", response))

    def with_arguments(self, arguments: Mapping[str, Any]) -> "AskForm":
        return AskForm(
            format_message(self.message, arguments) or self.message, self.form, key=self.key
        )


class AskUrl(InputSpec[None]):
    """URL elicitation. The response only tells that the user consented (D25)."""

    def __init__(
        self, message: str, url: str, *, id: str | None = None, key: str | None = None
    ) -> None:
        self.message = message
        self.url = url
        self.id: str = id or secrets.token_urlsafe(16)
        self.key = key

    def input_request(self) -> InputRequest:
        params = t.ElicitRequestParams(
            message=self.message, mode="url", url=self.url, elicitation_id=self.id
        )
        return InputRequest(params)

    def decode(self, response: AnyInputResponse) -> None:
        accepted_content(cast("t.ElicitResult", response))

    def with_arguments(self, arguments: Mapping[str, Any]) -> "AskUrl":
        return self


# Input of sampling: text, an image, audio, or a message with a role.
SamplePart: TypeAlias = str | t.SamplingMessage | t.PromptMessage | Message | Image | Audio
SamplePrompt: TypeAlias = SamplePart | Sequence[SamplePart]


class Sample(InputSpec[Any]):
    """Sampling: `Annotated[str, Sample("Summarise {text}")]`.

    A parameter of type `str` gets the text, one of type `Sampled` the whole result.
    """

    def __init__(
        self,
        prompt: MessageSource | SamplePrompt,
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
        self._options: dict[str, Any] = {
            "max_tokens": max_tokens,
            "system_prompt": system,
            "temperature": temperature,
            "stop_sequences": stop,
            "model_preferences": preferences,
            "tools": tools,
            "tool_choice": tool_choice,
        }

    def for_parameter(self, annotation: Any, where: str, names: Namespace) -> "Sample":
        if annotation not in (str, Sampled, Any):
            raise InvalidArgumentType(
                f"{where}: Sample needs the type str, or Sampled for the whole result"
            )
        result = copy(self)
        result._plain = annotation is str
        return result

    def with_arguments(self, arguments: Mapping[str, Any]) -> "Sample | None":
        prompt = self.prompt
        if isinstance(prompt, str) or callable(prompt):
            prompt = format_message(prompt, arguments)
        if prompt is None:
            return None
        result = copy(self)
        result.prompt = prompt
        return result

    def required_arguments(self) -> set[str]:
        prompt = self.prompt
        return placeholders(prompt) if isinstance(prompt, str) or callable(prompt) else set()

    def input_request(self) -> InputRequest:
        prompt = self.prompt
        if callable(prompt):
            raise InvalidArgumentType(
                "Sample needs the prompt as a string or messages, not a function"
            )
        parts = prompt if isinstance(prompt, list | tuple) else [cast("SamplePart", prompt)]
        messages = [message for part in parts for message in _messages(part)]
        return InputRequest(t.CreateMessageRequestParams(messages=messages, **self._options))

    def decode(self, response: AnyInputResponse) -> Any:
        sampled = sampled_from(cast("t.CreateMessageResult", response))
        return sampled.text if self._plain else sampled


def _messages(part: Any) -> list[t.SamplingMessage]:
    """The sampling messages of a part: one for each content block."""
    if isinstance(part, t.SamplingMessage):
        return [part]
    role: t.Role = "user"
    if isinstance(part, Message | t.PromptMessage):
        role, part = part.role, part.content
    messages: list[t.SamplingMessage] = []
    for block in blocks_of(part):
        if not isinstance(block, t.TextContent | t.ImageContent | t.AudioContent):
            raise InvalidArgumentType(
                f"a model cannot be sent {type(part).__name__}; send text, Image or Audio, alone "
                "or in Message(content, role)"
            )
        messages.append(t.SamplingMessage(role=role, content=block))
    return messages


class Roots(InputSpec[list[t.Root]]):
    """The roots of the client: `Annotated[list[Root], Roots()]`."""

    def __init__(self, *, key: str | None = None) -> None:
        self.key = key

    def input_request(self) -> InputRequest:
        return InputRequest(t.ListRootsRequestParams())

    def decode(self, response: AnyInputResponse) -> list[t.Root]:
        return cast("t.ListRootsResult", response).roots

    def with_arguments(self, arguments: Mapping[str, Any]) -> "Roots":
        return self


def sampled_from(result: t.CreateMessageResult) -> Sampled:
    """A `Sampled` from the protocol's result."""
    blocks = result.content if isinstance(result.content, list) else [result.content]
    text = "".join(block.text for block in blocks if isinstance(block, t.TextContent))
    return Sampled(text, blocks, result.model, result.stop_reason)


# ---------------------------------------------------------------- messages and forms


def format_message(message: MessageSource, arguments: Mapping[str, Any]) -> str | None:
    """Format a message with arguments. Raises `ToolError` if one is missing."""
    if isinstance(message, str):
        try:
            return message.format_map(arguments)
        except (KeyError, IndexError, ValueError) as error:
            raise ToolError(f"the message {message!r} cannot be formatted: {error!r}") from error
    wanted = signature_of(message).parameters
    return message(**{name: arguments[name] for name in wanted if name in arguments})


def placeholders(message: MessageSource) -> set[str]:
    """The arguments that a message names, or its function needs. Raises `LocalProtocolError`."""
    if isinstance(message, str):
        try:
            fields = [field for _, field, _, _ in Formatter().parse(message) if field is not None]
        except ValueError as error:
            raise InvalidArgument(f"{message!r}: {error}; write {{{{ for a brace") from None
        return {re.split(r"[.\[]", field, maxsplit=1)[0] for field in fields}
    parameters = signature_of(message).parameters.values()
    return {one.name for one in parameters if one.default is inspect.Parameter.empty}


FormOf = tuple[t.ElicitSchema, ElicitationForm]


def form_for(annotation: Any) -> FormOf:
    """The form schema of a type, and its decoder. Raises `LocalProtocolError`."""
    if isinstance(annotation, list | tuple | dict):  # how other libraries write a choice
        raise InvalidArgumentType(_choice_hint(cast("Iterable[object]", annotation)))
    try:
        return _cached_form(annotation)
    except TypeError:  # not hashable
        return _make_form(annotation)


def _choice_hint(choices: Iterable[object]) -> str:
    """The error message for a list of strings in place of a type."""
    options = list(choices)
    several = isinstance(options[0], list | tuple) if options else False
    if several:
        options = list(cast("Iterable[object]", options[0]))
    literal = f"Literal[{', '.join(map(repr, options)) or repr('yes')}]"
    return (
        "the second argument of an elicitation is a type; for a choice of some strings write "
        + (f"list[{literal}]" if several else literal)
    )


def _make_form(annotation: Any, names: Namespace | None = None) -> FormOf:
    form = ElicitationForm(annotation, names=names)
    return convert_to(t.ElicitSchema, form.schema), form


_cached_form = lru_cache(MAX_FORMS)(_make_form)


# ---------------------------------------------------------------- parameters


class InputParameter(NamedTuple):
    """A parameter marked with an input request. `optional`: None if there is no value."""

    name: str
    spec: InputSpec[Any]
    optional: bool
    default: Any


def input_parameter(
    name: str, annotation: Any, default: Any, where: str, names: Namespace
) -> InputParameter | None:
    """A parameter with its input request; None if it is not marked with one."""
    spec = cast("InputSpec[Any]", default) if isinstance(default, InputSpec) else None
    if spec is not None:
        default = inspect.Parameter.empty
    if get_origin(annotation) is Annotated:
        for item in annotation.__metadata__:
            if isinstance(item, InputSpec):
                spec = cast("InputSpec[Any]", item)
        rest = [item for item in annotation.__metadata__ if not isinstance(item, InputSpec)]
        annotation = annotation.__origin__
        if rest:
            annotation = Annotated[(annotation, *rest)]
    if spec is None:
        return None
    bare, optional = _without_none(annotation)
    return InputParameter(name, spec.for_parameter(bare, where, names), optional, default)


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) not in (typing.Union, types.UnionType):
        return annotation, False
    members = [member for member in get_args(annotation) if member is not type(None)]
    if len(members) == len(get_args(annotation)):
        return annotation, False
    return typing.Union[tuple(members)], True  # noqa: UP007
