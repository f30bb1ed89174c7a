"""What a server asks while it is called, asked of the person at the terminal.

A form is asked field by field, shown once more, and sent, changed, declined or left (R0590, R0591).
A page is shown with its whole address and its host (R0592, R0632, R0634), and what is odd about it
(R0635). It is never fetched here (R0630), and opened only for who says so (R0631); when they are
done there, or have had enough, they say that, too, whatever the server tells (R0607, R0936).

Rules: who asks is always said (R0589, R0624). An address is a link nowhere but where it is what is
asked for (R0636). Where there is no terminal nobody is asked: it is
declined at once, with a sentence. What a server wrote cannot act on the terminal, nor pose as ours.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from ipaddress import ip_address
from typing import Any, Final, TypeAlias, cast
from urllib.parse import urlsplit

import msgspec

from colonnade.cli.terminal import Screen, can_open, open_page
from colonnade.errors import Declined, Fault
from colonnade.protocol import types as t
from colonnade.protocol.elicitation import check_content
from colonnade.text import clean, cut, first_line, one_line

# Of what a server writes to a person, in lines; a page of it is no question.
MAX_MESSAGE = 2000
MAX_LABEL = 200
# A field that is answered wrongly so often is not meant to be answered.
MAX_TRIES = 10
# Changes of a form before it is left.
MAX_ROUNDS = 20

EMPTY: Final = ", may be empty"
YES: Final = frozenset({"y", "yes", "true", "1"})
NO: Final = frozenset({"n", "no", "false", "0"})

Asked: TypeAlias = Callable[[t.ElicitRequestParams], Awaitable[Any]]


class Left(Exception):
    """Whoever was asked went away: they ended their input."""


def asker(screen: Screen, who: Callable[[], str]) -> Asked:
    """What answers a server's questions; `who` says which server it is."""
    one_at_a_time = asyncio.Lock()

    async def ask(params: t.ElicitRequestParams) -> Any:
        if not screen.can_ask:
            return _refuse(screen, who(), params)
        try:
            async with one_at_a_time:
                question = Visit if params.mode == "url" else Form
                return await question(screen, who()).ask(params)
        except Left:
            return None  # which is the answer of a person who went away

    return ask


def _refuse(screen: Screen, who: str, params: t.ElicitRequestParams) -> Any:
    words = cut(one_line(params.message), MAX_LABEL)
    screen.note(
        f"colonnade: {who} asks {words!r}, and there is no terminal to answer in; it was told no\n"
    )
    raise Declined("there is nobody to ask")


def _message(text: str) -> str:
    """What a server says, set in, so that it cannot pose as a line of ours."""
    lines = unlinked(clean(text[:MAX_MESSAGE], lines=True)).strip().splitlines()
    return "".join(f"  | {line}\n" for line in lines)


def _label(text: str) -> str:
    """What a server calls something, in one line."""
    return cut(unlinked(one_line(text)), MAX_LABEL)


def unlinked(text: str) -> str:
    """Text in which a terminal finds no address to click on (R0636)."""
    return re.sub(r"://(?=\S)", ":// ", text)


# ---------------------------------------------------------------- forms


class Form:
    """One form, put to one person."""

    def __init__(self, screen: Screen, who: str) -> None:
        self._screen = screen
        self._who = who

    async def ask(self, params: t.ElicitRequestParams) -> dict[str, Any]:
        """The content of the form. Raises `Declined`, or `Left`."""
        form = params.requested_schema
        assert form is not None, "what has no address has a form"
        self._screen.note(f"{self._screen.emphasis(f'{self._who} asks:')}\n")
        self._screen.note(_message(params.message))
        self._screen.note("  (Enter takes what is in brackets; Ctrl-D leaves without an answer)\n")
        content: dict[str, Any] = {}
        for _ in range(MAX_ROUNDS):
            content = await self._fill(form, content)
            answer = await self._review(form, content)
            if answer in ("s", "send", "y", "yes", ""):
                return content
            if answer in ("d", "decline", "n", "no"):
                raise Declined("the user said no")
            if answer in ("c", "cancel"):
                raise Left
        raise Left

    async def _fill(self, form: t.ElicitSchema, before: Mapping[str, Any]) -> dict[str, Any]:
        content: dict[str, Any] = {}
        for name, field in form.properties.items():
            is_needed = name in (form.required or ())
            default = before.get(name, field.default)
            value = await self._field(name, field, default, is_needed)
            if value is not None:
                content[name] = value
        return content

    async def _field(
        self, name: str, field: t.PrimitiveSchema, default: Any, is_needed: bool
    ) -> Any:
        label = _label(field.title or name)
        about = first_line(field.description)
        if about:
            self._screen.note(f"  {_label(about)}\n")
        options = choices(field)
        for number, (_, title) in enumerate(options, start=1):
            self._screen.note(f"    {number}  {_label(title)}\n")
        words = f"  {label} ({hint(field)}{'' if is_needed or default is not None else EMPTY})"
        if default is not None:
            words += f" [{_label(shown(default, options))}]"
        for _ in range(MAX_TRIES):
            said = await self._screen.ask(f"{words}: ")
            if said is None:
                raise Left
            if not said and (default is not None or not is_needed):
                return default
            value = understood(said, field, options) if said else None
            problem = _problem(name, field, value, is_needed=is_needed)
            if not problem:
                return value
            self._screen.note(f"    {problem}\n")
        raise Left

    async def _review(self, form: t.ElicitSchema, content: Mapping[str, Any]) -> str:
        for name, value in content.items():
            field = form.properties[name]
            label = _label(field.title or name)
            self._screen.note(f"  {label} = {_label(shown(value, choices(field)))}\n")
        if not content:
            self._screen.note("  (nothing was filled in)\n")
        said = ""
        for _ in range(MAX_TRIES):
            said = await self._screen.ask("send, edit, decline or cancel? [send] ")
            if said is None:
                raise Left
            if said.lower() in _REVIEWS:
                break
        return said.lower()


_REVIEWS: Final = frozenset(
    {"", "s", "send", "y", "yes", "e", "edit", "d", "decline", "n", "no", "c", "cancel"}
)


def choices(field: t.PrimitiveSchema) -> list[tuple[str, str]]:
    """What may be picked, each with its words; nothing where the field leaves it open."""
    items = field.items or t.EnumItems()
    titled = field.one_of or items.any_of
    if titled:
        return [(option.const, option.title) for option in titled]
    bare = field.enum or items.enum or []
    names = field.enum_names or []
    return [(one, names[n] if n < len(names) else one) for n, one in enumerate(bare)]


def hint(field: t.PrimitiveSchema) -> str:
    """What may be typed, in a few words."""
    if field.type == "boolean":
        words = "yes or no"
    elif field.type == "array":
        words = "numbers or words, with commas between them"
    elif choices(field):
        words = "a number or a word"
    elif field.type == "string":
        words = field.format or "text"
    else:
        words = field.type
        if field.minimum is not None or field.maximum is not None:
            low = f" from {field.minimum}" if field.minimum is not None else ""
            high = f" to {field.maximum}" if field.maximum is not None else ""
            words += low + high
    return words


def understood(said: str, field: t.PrimitiveSchema, options: list[tuple[str, str]]) -> Any:
    """What was typed, as the field wants it; as it is, where it cannot be that."""
    if field.type == "boolean":
        low = said.lower()
        return True if low in YES else False if low in NO else said
    if field.type == "array":
        return [picked(one.strip(), options) for one in said.split(",") if one.strip()]
    if options:
        return picked(said, options)
    if field.type == "string":
        return said
    try:
        value: Any = msgspec.json.decode(said)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return said
    if field.type == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def picked(said: str, options: list[tuple[str, str]]) -> str:
    """The choice that is meant: by itself, by its words, or by its number."""
    for const, title in options:
        if said in (const, title):
            return const
    for const, title in options:
        if said.lower() in (const.lower(), title.lower()):
            return const
    if said.isdecimal() and 1 <= int(said[:9]) <= len(options):
        return options[int(said) - 1][0]
    return said


def shown(value: Any, options: list[tuple[str, str]]) -> str:
    """A value of a form, as a person would type it: a choice by its words."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(shown(one, options) for one in cast("list[object]", value))
    return one_line(next((title for const, title in options if const == value), str(value)))


def _problem(name: str, field: t.PrimitiveSchema, value: Any, *, is_needed: bool) -> str:
    """What is wrong with an answer; nothing if it fits."""
    if value is None:
        return "this one is needed" if is_needed else ""
    try:
        check_content(t.ElicitSchema(properties={name: field}), {name: value})
    except Fault as fault:
        return one_line(fault.message.partition(f"{name}: ")[2] or fault.message)
    return ""


# ---------------------------------------------------------------- pages


class Visit:
    """One page that a server wants to be visited."""

    def __init__(self, screen: Screen, who: str) -> None:
        self._screen = screen
        self._who = who

    async def ask(self, params: t.ElicitRequestParams) -> bool:
        """Whether the user agrees. Raises `Left`."""
        url = clean(params.url or "")
        screen = self._screen
        screen.note(f"{screen.emphasis(f'{self._who} wants you to visit a page:')}\n")
        screen.note(_message(params.message))
        screen.note(f"  address  {url}\n  host     {screen.emphasis(host_of(url))}\n")
        for warning in warnings(url):
            screen.note(f"  careful: {warning}\n")
        # What was cleaned is not the address that was sent, and no page that anybody should see.
        opens = url == params.url and can_open(url)
        yourself = "open it, or visit it yourself" if opens else "visit it yourself"
        screen.note(f"  (if you trust it, {yourself}; agree when you are done there)\n")
        asked = "open, agree, decline or cancel?" if opens else "agree, decline or cancel?"
        for _ in range(MAX_TRIES):
            said = await screen.ask(f"{asked} [decline] ")
            if said is None or said.lower() in ("c", "cancel"):
                raise Left
            if opens and said.lower() in ("o", "open"):
                open_page(url)
                continue
            if said.lower() in ("a", "agree", "y", "yes"):
                return True
            if said.lower() in ("", "d", "decline", "n", "no"):
                return False
        raise Left


def host_of(url: str) -> str:
    """Where an address leads."""
    try:
        return urlsplit(url).hostname or "none"
    except ValueError:
        return "none"


def warnings(url: str) -> list[str]:
    """What is odd about an address, for a person who is about to visit it."""
    host = host_of(url)
    found: list[str] = []
    if any(label.startswith("xn--") for label in host.split(".")) or not host.isascii():
        found.append("the host has letters that may look like others (Punycode)")
    try:
        parts = urlsplit(url)
        user, scheme = parts.username, parts.scheme
    except ValueError:
        return ["this is no address that a browser would understand"]
    if user is not None:
        found.append("what stands before the @ is not the host, and may be meant to look like it")
    is_number, is_here = _is_number(host), host == "localhost"
    if is_number is not None:
        is_here = is_number
        found += [] if is_here else ["the host is a number and has no name"]
    if scheme != "https" and not is_here:
        found.append("the address is not https, so that others can read along")
    return found


def _is_number(host: str) -> bool | None:
    """Whether a host that is a number is this machine; None where it is a name."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return None
