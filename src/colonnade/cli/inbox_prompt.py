"""Items of an inbox in the terminal: show one, ask the user, edit a sampling request or its result.

`colonnade chat` asks about the items of its own host, `colonnade inbox` about those of other
processes; both show and ask the same.

Rules: arguments are shown exactly as they are sent, with hidden characters visible; long ones are
shown in part, and in whole on demand. Text from a model, a client or a server never controls the
terminal, nor looks like our own. The default answer is no.
"""

import asyncio
import os
import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple, cast

import msgspec
from msgspec import UNSET, Raw

from colonnade.cli.elicitation import FormPrompt, InputEnded, UrlPrompt
from colonnade.cli.remembered_rules import said_of
from colonnade.cli.terminal import Terminal
from colonnade.errors import Declined, Refused
from colonnade.host.input_requests import HostInputRequest
from colonnade.host.policy.approvals.approvals import Approvals
from colonnade.host.policy.approvals.inbox import Inbox, InboxAnswer, InboxItem, RememberScope
from colonnade.host.policy.approvals.remembered import RememberedRule, RememberedRules
from colonnade.host.policy.pins.definitions import differing_lines
from colonnade.host.policy.pins.held_definitions import shown_definitions
from colonnade.host.policy.request import Consent, Decision, PolicyRequest, RuleSet
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.jsonrpc import encode
from colonnade.providers.tool_calls import content_parts, part_as_text
from colonnade.text import clean, cut, first_line, one_line

# The most characters of a call that are shown at once; `show` prints the rest.
MAX_SHOWN: Final = 4_000
# Of a name or a message in one line.
MAX_LABEL: Final = 200
# Invalid answers before an item is declined.
MAX_TRIES: Final = 10
# Fields of a sampling request that can be edited, and edits of one request.
MAX_FIELDS: Final = 100
MAX_EDITS: Final = 50
# Of an edited field: as much as an item may have.
MAX_EDITED_BYTES: Final = 1024 * 1024

YES: Final = frozenset({"y", "yes"})
NO: Final = frozenset({"", "n", "no"})
SHOW: Final = frozenset({"show"})
NEVER: Final = "never"
SCOPES: Final[dict[str, RememberScope]] = {
    "session": "session",
    "project": "project",
    "always": "always",
    "a": "always",
}
HELP: Final = """\
  yes      call it this time
  no       do not call it
  session  call it, and do not ask again about this tool until this program ends
  project  the same for this folder, and always for every folder; until its definition changes
  never    do not call it, now or later, without asking; `colonnade policy forget` removes that
  show     show all of the arguments, and the definition of the tool
"""


INPUT_HELP: Final = """\
  yes      let it be answered this time
  no       do not let it be answered
  session  let it be answered, and do not ask again about this tool until this program ends
  project  the same for this folder, and always for every folder; until its definition changes
  never    do not let it be answered, without asking; `colonnade policy forget` removes that
  show     show all of the request, and the definition of the tool
"""
# What servers ask, and what they get then.
SENT_TO_SERVER: Final[Mapping[str, str]] = {
    "elicitation/create": "the server asks for input; the answer is sent to server {}",
    "sampling/createMessage": "the server asks your model; what it writes is sent to server {}",
    "roots/list": "the server asks for your roots; they are sent to server {}",
}


def argument_lines(content: str) -> list[str]:
    """Arguments as JSON, one per line, exactly as they are sent."""
    if not content:
        return []
    try:
        members = msgspec.json.decode(content, type=dict[str, Raw])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return [clean(content)]
    return [
        f"{clean(name)} = {clean(bytes(value).decode('utf-8', 'replace'))}"
        for name, value in members.items()
    ]


def indent(text: str) -> str:
    """Text from a model or server, indented, so that it cannot look like our own output."""
    return "".join(f"  | {line}\n" for line in text.splitlines())


class RequestHeading(NamedTuple):
    """What a request is: the words above its arguments, and a sentence below them; the question,
    and what its answers mean."""

    title: str
    about: str
    consequence: str = ""
    prompt: str = "call it?"
    help: str = HELP


def heading_of(method: str, name: str, server: str) -> RequestHeading:
    """The heading of a request: a call, another request of a caller, or what a server asks."""
    shown, key = one_line(name), one_line(server)
    if method in ("tools/call", ""):
        return RequestHeading(shown, f"server {key}")
    if method not in SENT_TO_SERVER:
        return RequestHeading(f"{one_line(method)} {shown}".rstrip(), f"server {key}")
    return RequestHeading(
        f"{method} of server {key}",
        f"for {shown}" if name else "outside of calls",
        SENT_TO_SERVER[method].format(key),
        "let it be answered?",
        INPUT_HELP,
    )


def show_call(
    terminal: Terminal,
    heading: RequestHeading,
    content: str,
    note: Callable[[str], None] | None = None,
) -> None:
    """Show a call, or another request, with its arguments (R0140)."""
    note = note or terminal.note
    arrow = "" if heading.consequence else "-> "
    note(f"{terminal.emphasis(f'{arrow}{heading.title}')} ({heading.about})\n")
    text = "\n".join(argument_lines(content))
    if len(text) > MAX_SHOWN:
        note(indent(text[:MAX_SHOWN]))
        left = len(text) - MAX_SHOWN
        note(f"  (and {left} more characters; type show to see them)\n")
    elif text:
        note(indent(text))
    if heading.consequence:
        note(f"  ({heading.consequence})\n")


def is_read_only(definition: str) -> bool:
    """Whether a tool declares itself read-only, which is not proof (R0294)."""
    try:
        decoded: Any = msgspec.json.decode(definition) if definition else {}
    except (msgspec.DecodeError, RecursionError):
        return False
    annotations = cast("dict[str, Any]", decoded).get("annotations")
    if not isinstance(annotations, dict):
        return False
    return cast("dict[str, Any]", annotations).get("readOnlyHint") is True


def asker_of(item: InboxItem) -> str:
    """The server that asks, and the call that it asks for."""
    server = one_line(item.server)
    return f"{server} (for {one_line(item.name)})" if item.name else server


def title_of(item: InboxItem) -> str:
    """What an item is about, in one line."""
    if item.kind == "approval":
        line = "  ".join(argument_lines(item.content))
        heading = heading_of(item.method, item.name, item.server)
        about = f" ({heading.about})" if heading.consequence else ""
        return cut(f"{heading.title}{about}  {line}".rstrip(), MAX_LABEL)
    if item.kind == "definitions":
        first, *rest = map(one_line, item.changes or ("",))
        more = f"; and {len(rest)} more" if rest else ""
        return cut(f"{one_line(item.server)}: {cut(first, MAX_LABEL - 20)}{more}", MAX_LABEL)
    message = _member(item.content, "message")
    words = f": {one_line(message)}" if message else ""
    return cut(f"{item.kind.replace('_', ' ')} for {asker_of(item)}{words}", MAX_LABEL)


def _member(content: str, name: str) -> str:
    try:
        decoded: Any = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return ""
    value = cast("dict[str, Any]", decoded).get(name) if isinstance(decoded, dict) else None
    return value if isinstance(value, str) else ""


class ItemPrompt:
    """Shows items, and asks the user about them."""

    def __init__(self, terminal: Terminal, note: Callable[[str], None] | None = None) -> None:
        self._terminal = terminal
        self._note = note or terminal.note

    async def ask(self, item: InboxItem) -> InboxAnswer | None:
        """Show an item, and return the user's answer; None if the input has ended."""
        self._terminal.drop_typed()
        try:
            if item.kind == "approval":
                return await self._approval(item)
            if item.kind in ("form", "url"):
                return await self._elicitation(item)
            if item.kind == "roots":
                return await self._roots(item)
            if item.kind == "definitions":
                return await self._definitions(item)
            return await self._sampling(item)
        except InputEnded:
            return None

    def show(self, item: InboxItem) -> None:
        """Show an item, without asking."""
        if item.kind == "approval":
            heading = heading_of(item.method, item.name, item.server)
            show_call(self._terminal, heading, item.content, self._note)
            self._facts(item)
        elif item.kind == "sampling":
            self._show_sampling(item, item.content)
        elif item.kind == "sampling_result":
            self._show_sampling_result(item, item.content)
        elif item.kind == "roots":
            self._show_roots(item)
        elif item.kind == "definitions":
            self._show_definitions(item, MAX_SHOWN)
        else:
            self._note(f"{self._terminal.emphasis(title_of(item))}\n")
            url = _member(item.content, "url")
            if url:
                self._note(f"  URL   {clean(url)}\n")

    def show_whole(self, item: InboxItem) -> None:
        """Show everything that an item has: all of its arguments, and the definition."""
        if item.kind == "definitions":
            self._show_definitions(item, None)
            return
        lines = argument_lines(item.content)
        self._note(indent("\n".join(lines)) if lines else "  (no arguments)\n")
        if item.meta:
            self._note("  _meta of the call:\n")
            self._note(indent("\n".join(argument_lines(item.meta))))
        if item.definition:
            self._note("  definition of the tool, as its server wrote it:\n")
            self._note(indent("\n".join(argument_lines(item.definition))))

    # ------------------------------------------------------------ approvals

    def _facts(self, item: InboxItem) -> None:
        if item.meta:
            shown = cut("  ".join(argument_lines(item.meta)), MAX_SHOWN)
            self._note(f"  with _meta {shown}\n")
        whom = [f"caller {one_line(item.principal)}"] if item.principal else []
        whom += [f"client {one_line(item.client)}"] if item.client else []
        if whom:
            self._note(f"  for {', '.join(whom)}\n")
        if item.rule:
            self._note(f"  asked by {one_line(item.rule)}\n")
        if item.changes:
            self._note("  changed since the last approval:\n")
            self._note(indent("\n".join(map(clean, item.changes))))
        if is_read_only(item.definition):
            self._note("  (the tool declares itself read-only)\n")

    async def _approval(self, item: InboxItem) -> InboxAnswer:
        self.show(item)
        heading = heading_of(item.method, item.name, item.server)
        prompt = f"  {heading.prompt} yes, no, session, project, always or ? [no] "
        for _ in range(MAX_TRIES):
            choice = await self._choice(prompt)
            if choice in SHOW:
                self.show_whole(item)
            elif choice == "?":
                self._note(heading.help)
            elif choice in YES:
                return InboxAnswer(action="accept")
            elif choice in SCOPES:
                return InboxAnswer(action="accept", remember=SCOPES[choice])
            elif choice == NEVER:
                return InboxAnswer(action="decline", remember="always")
            elif choice in NO:
                break
        return InboxAnswer(action="decline")

    async def _choice(self, prompt: str) -> str:
        answer = await self._terminal.ask(prompt)
        if answer is None:
            raise InputEnded
        return answer.lower()

    # ------------------------------------------------------------ elicitation

    async def _elicitation(self, item: InboxItem) -> InboxAnswer:
        params = decode_as(t.ElicitRequestParams, Raw(item.content.encode()))
        try:
            if item.kind == "url":
                agreed = await UrlPrompt(self._terminal, asker_of(item)).ask(params)
                return InboxAnswer(action="accept" if agreed else "decline")
            content = await FormPrompt(self._terminal, asker_of(item)).ask(params)
            return InboxAnswer(action="accept", content=encode(content).decode())
        except Declined:
            return InboxAnswer(action="decline")
        except InputEnded:
            return InboxAnswer(action="cancel")

    # ------------------------------------------------------------ roots

    def _show_roots(self, item: InboxItem) -> list[t.Root]:
        terminal = self._terminal
        self._note(f"{terminal.emphasis(f'{asker_of(item)} asks for your roots:')}\n")
        roots = decode_as(t.ListRootsResult, Raw(item.content.encode())).roots
        for number, root in enumerate(roots, start=1):
            self._note(f"  {number}  {clean(root.uri)}\n")
        return roots

    async def _roots(self, item: InboxItem) -> InboxAnswer:
        """Ask before a server sees roots (R0094)."""
        roots = self._show_roots(item)
        prompt = "  show them? yes, no, session, project, always, or numbers (1, 3) [no] "
        for _ in range(MAX_TRIES):
            choice = await self._choice(prompt)
            numbers = [one.strip() for one in choice.split(",")]
            if choice in YES:
                return InboxAnswer(action="accept")
            if choice in SCOPES:
                return InboxAnswer(action="accept", remember=SCOPES[choice])
            if choice in NO:
                break
            if all(one.isdecimal() and 1 <= int(one[:6]) <= len(roots) for one in numbers):
                chosen = [roots[int(one) - 1] for one in numbers]
                content = encode(t.ListRootsResult(roots=chosen)).decode()
                return InboxAnswer(action="accept", content=content)
        return InboxAnswer(action="decline")

    # ------------------------------------------------------------ definitions

    def _show_definitions(self, item: InboxItem, most: int | None) -> None:
        """Show definitions that are held, each compared with the accepted one; the first `most`
        characters."""
        server = one_line(item.server)
        self._note(f"{self._terminal.emphasis(f'{server} has definitions that are not used:')}\n")
        shown = shown_definitions(item)
        text = "\n".join(
            line
            for one in shown.definitions
            for line in (
                f"{one.item.subject}: {one.item.reason}",
                *(f"  {line}" for line in differing_lines(one.before, one.text)),
            )
        )
        self._note(indent(text if most is None else text[:most]))
        if most is not None and len(text) > most:
            left = len(text) - most
            self._note(f"  (and {left} more characters; type show to see them)\n")
        if shown.left_off:
            self._note(f"  ({shown.left_off} more are shown when these are accepted)\n")

    async def _definitions(self, item: InboxItem) -> InboxAnswer:
        self.show(item)
        for _ in range(MAX_TRIES):
            choice = await self._choice("  accept them, for all calls? yes, no or show [no] ")
            if choice in SHOW:
                self.show_whole(item)
            elif choice in YES:
                return InboxAnswer(action="accept")
            elif choice in NO:
                break
        return InboxAnswer(action="decline")

    # ------------------------------------------------------------ sampling

    async def _sampling(self, item: InboxItem) -> InboxAnswer:
        """Let the user see, change and refuse what a model is sent, and what it wrote (R0098)."""
        content = item.content
        to_model = item.kind == "sampling"
        target = "it to the model" if to_model else f"this to {asker_of(item)}"
        for _ in range(MAX_TRIES):
            if to_model:
                self._show_sampling(item, content)
            else:
                self._show_sampling_result(item, content)
            choice = await self._choice(f"  send {target}? yes, no or edit [no] ")
            if choice in ("e", "edit"):
                content = await FieldEditor(self._terminal, content).edit()
            elif choice in YES:
                edited = content if content != item.content else ""
                return InboxAnswer(action="accept", content=edited)
            elif choice in NO:
                break
        return InboxAnswer(action="decline")

    def _show_sampling(self, item: InboxItem, content: str) -> None:
        terminal = self._terminal
        params = decode_as(t.CreateMessageRequestParams, Raw(content.encode()))
        title = f"{asker_of(item)} requests sampling from your model:"
        self._note(f"{terminal.emphasis(title)}\n")
        if params.system_prompt:
            self._note(_format_message("system", params.system_prompt))
        for message in params.messages:
            self._note(_format_message(message.role, _content_text(message.content)))
        self._note(f"  (at most {params.max_tokens} tokens)\n")

    def _show_sampling_result(self, item: InboxItem, content: str) -> None:
        title = f"what the model wrote, which is sent to {asker_of(item)}:"
        self._note(f"{self._terminal.emphasis(title)}\n")
        result = decode_as(t.CreateMessageResult, Raw(content.encode()))
        self._note(_format_message(result.role, _content_text(result.content)))


def _content_text(given: Any) -> str:
    blocks = cast("list[t.ContentBlock]", given if isinstance(given, list) else [given])
    return "\n".join(map(part_as_text, content_parts(blocks, UNSET)))


def _format_message(role: str, text: str) -> str:
    """A message, indented below its role."""
    return f"  {one_line(role)}:\n{indent(clean(text, lines=True).strip())}"


# ---------------------------------------------------------------- editor


class EditableField(NamedTuple):
    """A field of a JSON document: its label, and the members that lead to it."""

    label: str
    path: tuple[str | int, ...]


def editable_fields(document: dict[str, Any]) -> Iterator[EditableField]:
    """The texts and the token limit of a sampling request or result."""
    if "messages" in document:
        yield EditableField("system prompt", ("systemPrompt",))
    for number, message in enumerate(cast("list[Any]", document.get("messages") or [])):
        role = one_line(str(message.get("role", "")))
        yield from _text_fields(role, message.get("content"), ("messages", number, "content"))
    yield from _text_fields("text", document.get("content"), ("content",))
    if "maxTokens" in document:
        yield EditableField("most tokens", ("maxTokens",))


def _text_fields(label: str, content: Any, path: tuple[str | int, ...]) -> Iterator[EditableField]:
    if isinstance(content, list):
        for number, block in enumerate(cast("list[Any]", content)):
            yield from _text_fields(label, block, (*path, number))
    elif isinstance(content, dict) and "text" in content:
        yield EditableField(label, (*path, "text"))


class FieldEditor:
    """Edits the fields of a sampling request or result: a line in the terminal, or $VISUAL or
    $EDITOR if it is set."""

    def __init__(self, terminal: Terminal, content: str) -> None:
        self._terminal = terminal
        self._document: dict[str, Any] = msgspec.json.decode(content)

    async def edit(self) -> str:
        """Edit fields until the user is done; the new content."""
        fields = list(editable_fields(self._document))[:MAX_FIELDS]
        for _ in range(MAX_EDITS):
            for number, one in enumerate(fields, start=1):
                value = self._value(one)
                shown = "(none)" if value is None else cut(first_line(str(value)), 60)
                self._terminal.note(f"  {number}  {one.label}: {shown}\n")
            answer = await self._terminal.ask("  edit which? a number, or Enter when done: ")
            if not answer:
                break
            if answer.isdecimal() and 1 <= int(answer[:6]) <= len(fields):
                await self._edit(fields[int(answer) - 1])
        return encode(self._document).decode()

    def _holder(self, field: EditableField) -> Any:
        holder: Any = self._document
        for step in field.path[:-1]:
            holder = holder[step]
        return holder

    def _value(self, field: EditableField) -> Any:
        holder, last = self._holder(field), field.path[-1]
        return holder.get(last) if isinstance(last, str) else holder[last]

    async def _edit(self, field: EditableField) -> None:
        value = self._value(field)
        before = "" if value is None else str(value)
        command = editor_command()
        if command and not isinstance(value, int):
            after = await edit_text(command, before)
        else:
            self._terminal.note(indent(clean(before, lines=True)))
            after = await self._terminal.ask(f"  {field.label} (Enter keeps it): ") or None
        if after is None or after == before:
            return
        if isinstance(value, int):
            if after.isdecimal():
                self._holder(field)[field.path[-1]] = int(after[:9])
            else:
                self._terminal.note("    a number is required\n")
            return
        self._holder(field)[field.path[-1]] = after


def editor_command() -> list[str]:
    """The user's editor; empty if none is set."""
    return shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "")


async def edit_text(command: list[str], text: str) -> str | None:
    """The text after the user's editor has ended; None if it failed, which changes nothing."""
    with tempfile.TemporaryDirectory(prefix="colonnade-") as folder:  # which only the user may read
        path = Path(folder) / "text.txt"
        path.write_text(text, "utf-8")
        try:
            process = await asyncio.create_subprocess_exec(*command, str(path))
        except OSError:
            return None
        if await process.wait() != 0 or path.stat().st_size > MAX_EDITED_BYTES:
            return None
        edited = path.read_text("utf-8", "replace")
    # Most editors end the last line.
    return edited if text.endswith("\n") else edited.removesuffix("\n")


# ---------------------------------------------------------------- this program's own host


class ShownRules:
    """Rules of a policy, which show each call that they allow (R0140); those that they ask about
    are shown with the question."""

    def __init__(self, rules: RuleSet, terminal: Terminal) -> None:
        self._rules = rules
        self._terminal = terminal

    @property
    def version(self) -> str:
        """Changes with the rules."""
        return self._rules.version

    @property
    def uses_definitions(self) -> bool:
        """Whether a decision may depend on the definition of an item."""
        return self._rules.uses_definitions

    def decide(self, request: PolicyRequest) -> Decision:
        """What the rules say of a request."""
        decision = self._rules.decide(request)
        if decision.action == "allow" and request.method == "tools/call":
            show_request(self._terminal, request, f"allowed by {one_line(decision.rule)}")
        return decision

    def hides(self, request: PolicyRequest) -> bool:
        """Whether an item is denied whatever its arguments are."""
        return self._rules.hides(request)

    def hides_server(self, request: PolicyRequest) -> bool:
        """Whether everything of a server is denied."""
        return self._rules.hides_server(request)


def show_request(terminal: Terminal, request: PolicyRequest, note: str) -> None:
    """Show a call that is not asked about, and why."""
    content = bytes(request.arguments).decode("utf-8", "replace")
    show_call(terminal, heading_of(request.method, request.qualified, request.server), content)
    if note:
        terminal.note(f"  ({note})\n")


class TerminalApprovals(Approvals):
    """Asks the user of this program, in its terminal. `yes` approves every call.

    Without a terminal a call is refused at once, with a message.
    """

    def __init__(
        self,
        terminal: Terminal,
        *,
        inbox: Inbox | None = None,
        remembered: RememberedRules | None = None,
        yes: bool = False,
    ) -> None:
        # A person at this terminal is asked for as long as it takes.
        super().__init__(inbox or Inbox(wait_s=600), remembered)
        self._terminal = terminal
        self._yes = yes
        self._prompt = ItemPrompt(terminal)
        self._one_at_a_time = asyncio.Lock()
        # How long the user took to decide about calls that run, by name and arguments.
        self._decided_s: dict[tuple[str, bytes], float] = {}
        if terminal.can_ask:
            self.inbox.attach(self._on_item)

    async def _on_item(self, item: InboxItem) -> InboxAnswer | None:
        if item.kind == "definitions":  # of no call: the user may be typing something else
            return None
        async with self._one_at_a_time:
            return await self._prompt.ask(item) or InboxAnswer(action="decline")

    def remembered_as(self, rule: RememberedRule) -> None:
        """Show the rule that an answer has made, and how it is removed."""
        self._terminal.note(said_of(rule))

    def decision_s(self, name: str, arguments: dict[str, Any]) -> float:
        """How long the user took to decide about a call that has ended."""
        return self._decided_s.pop((name, encode(arguments)), 0.0)

    async def approve(self, request: PolicyRequest, decision: Decision) -> Consent:
        """Ask in the terminal. Raises `Refused`."""
        began = monotonic()
        if self._yes:
            self._show(request, "")
            return Consent(by="--yes")
        if not self.inbox.has_approver:
            consent = self.recall(request, decision)
            if consent is not None:
                return consent
            self._show(
                request, "rejected: there is no terminal to ask in; --yes approves every call"
            )
            raise Refused("there is no user to approve the call", reason="no_approver")
        try:
            return await super().approve(request, decision)
        finally:
            key = request.qualified, bytes(request.arguments)
            self._decided_s[key] = monotonic() - began

    def recall(self, request: PolicyRequest, decision: Decision) -> Consent | None:
        """The consent of a remembered decision, which is shown. Raises `Refused` for a denial."""
        try:
            consent = super().recall(request, decision)
        except Refused:
            self._show(request, "denied: this decision is remembered")
            raise
        if consent is not None:
            self._show(request, consent.rule)
        return consent

    def _show(self, request: PolicyRequest, note: str) -> None:
        show_request(self._terminal, request, note)

    async def answer_input(self, request: HostInputRequest) -> Any:
        """Answer an elicitation in the terminal. Raises `Declined`."""
        if not self.inbox.has_approver and isinstance(request.params, t.ElicitRequestParams):
            message = cut(one_line(request.params.message), MAX_LABEL)
            self._terminal.note(
                f"colonnade: {one_line(request.server)} asks {message!r}; declined, because there "
                "is no terminal\n"
            )
        return await super().answer_input(request)
