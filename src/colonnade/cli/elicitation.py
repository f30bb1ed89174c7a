"""Elicitation in the terminal: forms field by field, and URLs that the user is asked to visit.

A form is filled in field by field, shown for review, and sent, edited, declined or cancelled
(R0590, R0591). A URL is shown in full with its host (R0592, R0632, R0634), and with warnings
(R0635). It is never fetched here (R0630), and opened only on request (R0631); the user says when
the interaction is complete, or cancels it, whatever the server reports (R0607, R0936).

Rules: the server that asks is always named (R0589, R0624). URLs are clickable nowhere else (R0636).
Without a terminal the request is declined at once, with a message. Text from a server cannot
control the terminal, nor look like our own output.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from ipaddress import ip_address
from typing import Any, Final, TypeAlias, cast
from urllib.parse import urlsplit

import msgspec

from colonnade.cli.terminal import Terminal, can_open, open_url
from colonnade.errors import Declined
from colonnade.protocol import types as t
from colonnade.protocol.elicitation import field_problem
from colonnade.text import clean, cut, first_line, one_line

# The most that is shown of a server's message, in characters.
MAX_MESSAGE = 2000
MAX_LABEL = 200
# Invalid answers to one field, or invalid choices, before the request is cancelled.
MAX_TRIES = 10
# Edits of one form before the request is cancelled.
MAX_ROUNDS = 20

OPTIONAL: Final = ", optional"
YES: Final = frozenset({"y", "yes", "true", "1"})
NO: Final = frozenset({"n", "no", "false", "0"})

ElicitationHandler: TypeAlias = Callable[[t.ElicitRequestParams], Awaitable[Any]]


class InputEnded(Exception):
    """The user ended the input, or cancelled the request."""


def elicitation_handler(terminal: Terminal, server_name: Callable[[], str]) -> ElicitationHandler:
    """The handler of elicitation requests; `server_name` says which server asks."""
    one_at_a_time = asyncio.Lock()

    async def ask(params: t.ElicitRequestParams) -> Any:
        if not terminal.can_ask:
            return _decline(terminal, server_name(), params)
        try:
            async with one_at_a_time:
                question = UrlPrompt if params.mode == "url" else FormPrompt
                return await question(terminal, server_name()).ask(params)
        except InputEnded:
            return None  # the request is cancelled

    return ask


def _decline(terminal: Terminal, server_name: str, params: t.ElicitRequestParams) -> Any:
    message = cut(one_line(params.message), MAX_LABEL)
    terminal.note(
        f"colonnade: {server_name} asks {message!r}; declined, because there is no terminal\n"
    )
    raise Declined("there is no user to ask")


def _message(text: str) -> str:
    """The message of a server, indented, so that it cannot look like our own output."""
    lines = unlink(clean(text[:MAX_MESSAGE], lines=True)).strip().splitlines()
    return "".join(f"  | {line}\n" for line in lines)


def _label(text: str) -> str:
    """A name or title from a server, on one line."""
    return cut(unlink(one_line(text)), MAX_LABEL)


def unlink(text: str) -> str:
    """Break URLs, so that a terminal does not make them clickable (R0636)."""
    return re.sub(r"://(?=\S)", ":// ", text)


# ---------------------------------------------------------------- forms


class FormPrompt:
    """Prompts for the fields of one form."""

    def __init__(self, terminal: Terminal, server_name: str) -> None:
        self._terminal = terminal
        self._server_name = server_name

    async def ask(self, params: t.ElicitRequestParams) -> dict[str, Any]:
        """Return the content of the form. Raises `Declined`, or `InputEnded`."""
        form = params.requested_schema
        assert form is not None, "a request without a URL has a form"
        self._terminal.note(f"{self._terminal.emphasis(f'{self._server_name} asks:')}\n")
        self._terminal.note(_message(params.message))
        self._terminal.note("  (Enter accepts the value in brackets; Ctrl-D cancels)\n")
        content: dict[str, Any] = {}
        for _ in range(MAX_ROUNDS):
            content = await self._fill(form, content)
            answer = await self._review(form, content)
            if answer in ("s", "send", "y", "yes", ""):
                return content
            if answer in ("d", "decline", "n", "no"):
                raise Declined("the user declined")
            if answer in ("c", "cancel"):
                raise InputEnded
        raise InputEnded

    async def _fill(self, form: t.ElicitSchema, before: Mapping[str, Any]) -> dict[str, Any]:
        content: dict[str, Any] = {}
        for name, field in form.properties.items():
            required = name in (form.required or ())
            default = before.get(name, field.default)
            value = await self._field(name, field, default, required)
            if value is not None:
                content[name] = value
        return content

    async def _field(
        self, name: str, field: t.PrimitiveSchema, default: Any, required: bool
    ) -> Any:
        label = _label(field.title or name)
        about = first_line(field.description)
        if about:
            self._terminal.note(f"  {_label(about)}\n")
        options = choices(field)
        for number, (_, title) in enumerate(options, start=1):
            self._terminal.note(f"    {number}  {_label(title)}\n")
        prompt = f"  {label} ({hint(field)}{'' if required or default is not None else OPTIONAL})"
        if default is not None:
            prompt += f" [{_label(format_value(default, options))}]"
        for _ in range(MAX_TRIES):
            answer = await self._terminal.ask(f"{prompt}: ")
            if answer is None:
                raise InputEnded
            if not answer and (default is not None or not required):
                return default
            value = parse_value(answer, field, options) if answer else None
            problem = _problem(field, value, required=required)
            if not problem:
                return value
            self._terminal.note(f"    {problem}\n")
        raise InputEnded

    async def _review(self, form: t.ElicitSchema, content: Mapping[str, Any]) -> str:
        for name, value in content.items():
            field = form.properties[name]
            label = _label(field.title or name)
            self._terminal.note(f"  {label} = {_label(format_value(value, choices(field)))}\n")
        if not content:
            self._terminal.note("  (all fields are empty)\n")
        answer = ""
        for _ in range(MAX_TRIES):
            answer = await self._terminal.ask("send, edit, decline or cancel? [send] ")
            if answer is None:
                raise InputEnded
            if answer.lower() in _REVIEWS:
                break
        return answer.lower()


_REVIEWS: Final = frozenset(
    {"", "s", "send", "y", "yes", "e", "edit", "d", "decline", "n", "no", "c", "cancel"}
)


def choices(field: t.PrimitiveSchema) -> list[tuple[str, str]]:
    """The choices of a field, each with its title; empty if any value is allowed."""
    items = field.items or t.EnumItems()
    titled = field.one_of or items.any_of
    if titled:
        return [(option.const, option.title) for option in titled]
    bare = field.enum or items.enum or []
    names = field.enum_names or []
    return [(one, names[n] if n < len(names) else one) for n, one in enumerate(bare)]


def hint(field: t.PrimitiveSchema) -> str:
    """What can be typed, in a few words."""
    if field.type == "boolean":
        text = "yes or no"
    elif field.type == "array":
        text = "numbers or names, separated by commas"
    elif choices(field):
        text = "a number or a name"
    elif field.type == "string":
        text = field.format or "text"
    else:
        text = field.type
        if field.minimum is not None or field.maximum is not None:
            low = f" from {field.minimum}" if field.minimum is not None else ""
            high = f" to {field.maximum}" if field.maximum is not None else ""
            text += low + high
    return text


def parse_value(answer: str, field: t.PrimitiveSchema, options: list[tuple[str, str]]) -> Any:
    """Convert what was typed to the type of the field; unchanged if that is not possible."""
    if field.type == "boolean":
        low = answer.lower()
        return True if low in YES else False if low in NO else answer
    if field.type == "array":
        return [choose(one.strip(), options) for one in answer.split(",") if one.strip()]
    if options:
        return choose(answer, options)
    if field.type == "string":
        return answer
    try:
        value: Any = msgspec.json.decode(answer)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return answer
    if field.type == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def choose(answer: str, options: list[tuple[str, str]]) -> str:
    """The choice that was typed: its value, its title, or its number."""
    for const, title in options:
        if answer in (const, title):
            return const
    for const, title in options:
        if answer.lower() in (const.lower(), title.lower()):
            return const
    if answer.isdecimal() and 1 <= int(answer[:9]) <= len(options):
        return options[int(answer) - 1][0]
    return answer


def format_value(value: Any, options: list[tuple[str, str]]) -> str:
    """Format a value as a user would type it: a choice by its title."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(format_value(one, options) for one in cast("list[object]", value))
    return one_line(next((title for const, title in options if const == value), str(value)))


def _problem(field: t.PrimitiveSchema, value: Any, *, required: bool) -> str:
    """What is wrong with a value; empty if it is valid."""
    if value is None:
        return "a value is required" if required else ""
    return one_line(field_problem(field, value))


# ---------------------------------------------------------------- URLs


class UrlPrompt:
    """Asks the user to visit a URL."""

    def __init__(self, terminal: Terminal, server_name: str) -> None:
        self._terminal = terminal
        self._server_name = server_name

    async def ask(self, params: t.ElicitRequestParams) -> bool:
        """Return whether the user agrees. Raises `InputEnded`."""
        url = clean(params.url or "")
        terminal = self._terminal
        terminal.note(f"{terminal.emphasis(f'{self._server_name} asks you to open a URL:')}\n")
        terminal.note(_message(params.message))
        terminal.note(f"  URL   {url}\n  host  {terminal.emphasis(host_of(url))}\n")
        for warning in warnings(url):
            terminal.note(f"  warning: {warning}\n")
        # A URL that had to be cleaned is not the one that was sent: it is not opened.
        opens = url == params.url and can_open(url)
        how = "open it here, or yourself" if opens else "open it yourself"
        terminal.note(f"  (if you trust it, {how}; agree when you are done)\n")
        choice = "open, agree, decline or cancel?" if opens else "agree, decline or cancel?"
        for _ in range(MAX_TRIES):
            answer = await terminal.ask(f"{choice} [decline] ")
            if answer is None or answer.lower() in ("c", "cancel"):
                raise InputEnded
            if opens and answer.lower() in ("o", "open"):
                open_url(url)
                continue
            if answer.lower() in ("a", "agree", "y", "yes"):
                return True
            if answer.lower() in ("", "d", "decline", "n", "no"):
                return False
        raise InputEnded


def host_of(url: str) -> str:
    """The host of a URL."""
    try:
        return urlsplit(url).hostname or "none"
    except ValueError:
        return "none"


def warnings(url: str) -> list[str]:
    """What is suspicious about a URL (R0635)."""
    host = host_of(url)
    result: list[str] = []
    if any(label.startswith("xn--") for label in host.split(".")) or not host.isascii():
        result.append("the host has characters that may look like others (Punycode)")
    try:
        parts = urlsplit(url)
        user, scheme = parts.username, parts.scheme
    except ValueError:
        return ["this is not a valid URL"]
    if user is not None:
        result.append("the part before the @ is not the host, and may be meant to look like it")
    is_address, is_loopback = _is_loopback_address(host), host == "localhost"
    if is_address is not None:
        is_loopback = is_address
        result += [] if is_loopback else ["the host is an IP address, not a name"]
    if scheme != "https" and not is_loopback:
        result.append("the URL is not https: others on the network can read and change the page")
    return result


def _is_loopback_address(host: str) -> bool | None:
    """Whether an IP address is of this machine; None if the host is a name."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return None
