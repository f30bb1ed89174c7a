"""Containment: hidden text in what servers send is made visible or marked before a model or a
terminal sees it.

Hidden text means bidi controls, zero-width and tag characters, terminal escapes and other controls,
and text that is too long to be read. In the mode `neutralise` each such character is replaced by
its
escape (`\\u202e`) and long text is cut; in the mode `mark` the text stays and a note precedes it.
Both modes count the findings in the `_meta` of a result.

Models read `structuredContent`, so it is contained as text is, with the names of its members.
Programs validate it: if the contained content no longer fits the output schema of its tool, or is
too large to be changed, it is left out and the result is an error.

Rules: pure; no I/O. Letters, emoji and line breaks stay. A result without hidden text is returned
as it is, and costs one pass over its text. A result with hidden text is copied, never changed in
place. Code in the event loop calls these methods through `aside`, which contains large results in a
thread, in short steps.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from math import inf
from operator import is_
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import UNSET, Raw
from msgspec.structs import replace

from colonnade.errors import ColonnadeError, Fault, Refused, RemoteError
from colonnade.host.policy.containment_pass import (
    ContainmentPass,
    ContainMode,
    HiddenExact,
    LeftOut,
    TooLarge,
)
from colonnade.host.policy.hidden_text import WINDOW, hides_text
from colonnade.host.policy.members import rows_of
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_unchecked
from colonnade.protocol.forwarded import RelayedToolResult
from colonnade.protocol.input_requests import InputRequest, input_requests_in
from colonnade.protocol.json_checks import has_duplicate_members
from colonnade.protocol.jsonrpc import NOTHING, encode
from colonnade.text import clean, cut

if TYPE_CHECKING:  # most calls are no tasks
    from colonnade.protocol.tasks.client import TaskState

# The key of what was found, in the `_meta` of a result.
CONTAINED_KEY: Final = "dev.colonnade/contained"
# Characters of text in one result, or one definition: more than the context of most models, which
# have some four characters in a token.
MAX_TEXT: Final = 1_000_000
# Maximum characters of a message: a log message, progress, an error, an elicitation, or the
# instructions of a server. Messages are contained in the event loop, where this many characters
# take ten milliseconds if every second one is hidden.
MAX_MESSAGE: Final = 32_768
# Maximum values in the data of a log message or an error.
MAX_MESSAGE_VALUES: Final = 10_000
# Maximum characters and values that the event loop contains itself, in a few milliseconds.
MAX_IN_LOOP: Final = 32_768

# Maximum definitions of a list that the event loop contains itself.
MAX_ITEMS_IN_LOOP: Final = 32
# Maximum characters shown of the name of an item that is left out.
MAX_SHOWN: Final = 64

T = TypeVar("T", bound=t.ProtocolType)
R = TypeVar("R")


async def aside(contain: Callable[..., R], *given: Any, **options: Any) -> R:
    """Call a method of a `Containment` and return its result: here if that is quick, and otherwise
    in a thread."""
    try:
        return contain(*given, **options, in_loop=True)
    except TooLarge:
        work = partial(contain, *given, **options)
        return await asyncio.get_running_loop().run_in_executor(_thread(), work)


@cache
def _thread() -> ThreadPoolExecutor:
    # One thread: for each running thread the event loop may wait up to five milliseconds.
    return ThreadPoolExecutor(1, "colonnade-containment")


# ---------------------------------------------------------------- what servers send


class Containment:
    """Contains what the servers of a host send, in the mode of each; `max_text` is how many
    characters one result may have."""

    def __init__(self, mode: ContainMode = "neutralise", max_text: int = MAX_TEXT) -> None:
        self.mode: ContainMode = mode
        self.max_text: int = max_text

    def _pass(self, in_loop: bool = False) -> ContainmentPass:
        return ContainmentPass(self.mode, self.max_text, MAX_IN_LOOP if in_loop else inf)

    def _message(self) -> ContainmentPass:
        return ContainmentPass(
            self.mode, min(self.max_text, MAX_MESSAGE), MAX_MESSAGE + MAX_MESSAGE_VALUES
        )

    def contain(
        self,
        result: t.ProtocolType,
        tool: t.ProtocolType | None = None,
        raw: Raw = NOTHING,
        *,
        in_loop: bool = False,
    ) -> t.ProtocolType:
        """The contained result; the given result if nothing is hidden in it. `tool` is the tool
        that returned the result, and `raw` the JSON of the server, if known. With `in_loop`, raises
        `TooLarge` for a large result.
        """
        if self.mode == "off":
            return result
        if raw and len(raw) <= self.max_text:  # so no text in the result is too long
            if in_loop and len(raw) > WINDOW:
                raise TooLarge
            if not hides_text(raw):
                return result
        if isinstance(result, t.InputRequiredResult):
            return self._input_required(result, in_loop)
        if rows_of(type(result)) is None:
            return result
        one = self._pass(in_loop)
        contained = one.part(result)
        if isinstance(contained, t.CallToolResult):
            contained = _with_data(one, contained, tool if isinstance(tool, t.Tool) else None)
        if not one.found:
            return result
        if self.mode == "mark":
            contained = _with_note(contained, one.found)
        return replace(contained, meta=_meta(contained, one))

    def _input_required(
        self, result: t.InputRequiredResult, in_loop: bool
    ) -> t.InputRequiredResult:
        """A result whose input requests a client answers itself."""
        asked = dict(result.input_requests or {})
        is_changed = False
        for key, request in input_requests_in(result).items():
            contained = self.input_request(request, in_loop=in_loop)
            if contained is not request:
                asked[key], is_changed = contained.as_input(), True
        return replace(result, input_requests=asked) if is_changed else result

    def hides_text(self, raw: Raw, *, in_loop: bool = False) -> bool:
        """Whether JSON of a server has hidden text; False if the mode is `off`."""
        if self.mode == "off":
            return False
        if in_loop and len(raw) > WINDOW:
            raise TooLarge
        return hides_text(raw)

    def may_hide(self, raw: Raw) -> bool:
        """The same for an item of a list. Long items are not searched."""
        return self.mode != "off" and (len(raw) > WINDOW or hides_text(raw))

    def definitions(
        self, items: Sequence[T], *, in_loop: bool = False
    ) -> tuple[Sequence[T], list[str]]:
        """The contained definitions of a list (the given list if nothing is hidden), and why
        definitions were left out."""
        if in_loop and len(items) > MAX_ITEMS_IN_LOOP:
            raise TooLarge
        shown, problems = list[T](), list[str]()
        for item in items:
            try:
                shown.append(self.definition(item, in_loop=in_loop))
            except HiddenExact as hidden:
                name = getattr(item, "name", "")
                member = ".".join(hidden.args)
                problems.append(
                    f"{type(item).__name__} {cut(clean(name), MAX_SHOWN)!r} is left out: text is "
                    f"hidden in its {member}, which is sent to the server as it is"
                )
        is_same = len(shown) == len(items) and all(map(is_, shown, items))
        return (items if is_same else shown), problems

    def definition(self, item: T, *, in_loop: bool = False) -> T:
        """The contained definition of an item. Raises `HiddenExact` if text is hidden in a member
        that calls send back: its name or URI, or the names, choices and patterns of its schemas."""
        if self.mode == "off":
            return item
        one = self._pass(in_loop)
        shown = one.part(item)
        if not one.found:
            return item
        if self.mode == "mark":
            marked = f"{describe_found(one.found)}\n\n{getattr(item, 'description', None) or ''}"
            return replace(item, description=marked.rstrip(), meta=_meta(item, one))
        return replace(shown, meta=_meta(shown, one))

    def text(self, text: str) -> str:
        """A message, an instruction, an error, the text of an elicitation."""
        if self.mode == "off":
            return text
        one = self._message()
        shown = one.text(text)
        if self.mode == "mark" and one.found:
            return f"{describe_found(one.found)}\n\n{text}"
        return shown

    def value(self, value: Any) -> Any:
        """The data of a log message."""
        return value if self.mode == "off" else self._message_value(self._message(), value)

    def _message_value(self, one: ContainmentPass, value: Any) -> Any:
        """The contained data of a message; a note in place of data that is too large."""
        try:
            return one.value(value)
        except TooLarge:
            one.found["cut" if self.mode == "neutralise" else "oversized"] = MAX_MESSAGE_VALUES
            return "[data of a message that is too large]" if self.mode == "neutralise" else value

    def input_request(self, request: InputRequest, *, in_loop: bool = False) -> InputRequest:
        """A contained input request for the user or the model. Raises `Refused` if text is hidden
        in members that are sent back: the names or choices of a form, or the tools of a sampling
        request."""
        params = request.params
        if self.mode == "off":
            return request
        one = self._pass(in_loop)
        try:
            shown = one.part(params)
        except HiddenExact as hidden:
            member = ".".join(hidden.args)
            message = f"text is hidden in its {member}, which is sent to the server as it is"
            raise Refused(message, reason="hidden_text") from None
        if not one.found:
            return request
        note = describe_found(one.found)
        if self.mode == "mark" and isinstance(params, t.ElicitRequestParams):
            shown = replace(params, message=f"{note}\n\n{params.message}")
        elif self.mode == "mark" and isinstance(params, t.CreateMessageRequestParams):
            shown = replace(
                params, system_prompt=f"{note}\n\n{params.system_prompt or ''}".rstrip()
            )
        return InputRequest(shown)

    def task_state(self, state: "TaskState", *, in_loop: bool = False) -> "TaskState":
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
            if (contained := self._input_required(required, in_loop)) is not required:
                changed["input_requests"] = contained.input_requests
        if state.result and (result := self._encoded(state.result, in_loop)) is not state.result:
            changed["result"] = result
        return replace(state, **changed) if changed else state

    def _encoded(self, raw: Raw, in_loop: bool) -> Raw:
        """A result of a tool that is not decoded yet; nothing, if it is no such result."""
        if in_loop and len(raw) > MAX_IN_LOOP:
            raise TooLarge
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
        one = self._message()
        message, data = one.text(error.message), self._message_value(one, error.data)
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


def _meta(contained: t.ProtocolType, one: ContainmentPass) -> dict[str, Any]:
    return {**(getattr(contained, "meta", None) or {}), CONTAINED_KEY: one.found}


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
    "exact": "invisible characters in what is sent back",
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


def _with_data(
    one: ContainmentPass, result: t.CallToolResult, tool: t.Tool | None
) -> t.CallToolResult:
    """The result with its structured content contained. If that is not possible, an error without
    structured content."""
    # The structured content of a forwarded result is not decoded unless text is hidden in it.
    relayed = isinstance(result, RelayedToolResult)
    given = result.written_content if relayed else result.structured_content
    if given is UNSET:
        return result
    try:
        shown = one.structured(given, tool)
    except LeftOut as reason:
        note = t.TextContent(text=f"{_NOTE}the structured content was left out: {reason}]")
        return replace(
            result, content=[note, *result.content], structured_content=UNSET, is_error=True
        )
    return result if shown is given else replace(result, structured_content=shown)
