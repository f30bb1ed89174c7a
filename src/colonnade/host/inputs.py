"""What a person is asked for a configuration: VS Code's `inputs`, each one asked once.

Rules: an answer is kept in memory and nowhere else, and shown to nobody. Many servers that want the
same answer wait for one question.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct

from colonnade.errors import Refused
from colonnade.host.documents import Node
from colonnade.host.settings import Problem

InputKind: TypeAlias = Literal["promptString", "pickString", "command"]


class Input(Struct, frozen=True, kw_only=True):
    """A question of a file. Of a `password` the answer is never shown, not while it is typed."""

    id: str
    file: str
    kind: InputKind = "promptString"
    description: str = ""
    password: bool = False
    default: str | None = None
    options: tuple[str, ...] = ()


# Gives the answer, or None where nobody gives one.
OnInput: TypeAlias = Callable[[Input], "str | Awaitable[str | None] | None"]


class Inputs:
    """The answers so far; given to `read_config` again, it asks nothing twice."""

    def __init__(self, on_input: OnInput | None = None) -> None:
        self._on_input = on_input
        self._answers: dict[Input, str] = {}
        self._asking: dict[Input, asyncio.Lock] = {}

    def __repr__(self) -> str:
        return f"Inputs({len(self._answers)} answered)"

    @property
    def can_ask(self) -> bool:
        """Whether there is somebody to ask."""
        return self._on_input is not None

    async def answer(self, question: Input) -> str:
        """The answer to a question. Raises `Refused` where there is none."""
        async with self._asking.setdefault(question, asyncio.Lock()):
            if question not in self._answers:
                self._answers[question] = await self._ask(question)
        return self._answers[question]

    async def _ask(self, question: Input) -> str:
        if self._on_input is None:
            raise Refused(f"nobody is there to answer the input {question.id!r}; pass on_input=")
        found: Any = self._on_input(question)
        if inspect.isawaitable(found):
            found = await cast("Awaitable[str | None]", found)
        if not isinstance(found, str):
            raise Refused(f"the input {question.id!r} was not answered")
        return found


def inputs_of(root: Node, problems: list[Problem]) -> dict[str, Input]:
    """The questions of a file of VS Code, by their ids."""
    found: dict[str, Input] = {}
    node = root.get("inputs")
    if node is None:
        return found
    if node.items is None:
        problems.append(Problem("", "inputs should be a list of objects", node.place))
        return found
    for item in node.items:
        words = _wrong(item)
        if words:
            problems.append(Problem("", words, item.place))
            continue
        value = item.value
        if value["id"] in found:
            problems.append(Problem("", "there is another input of this id", item.place))
            continue
        found[value["id"]] = Input(
            id=value["id"],
            file=root.document.file,
            kind=value["type"],
            description=str(value.get("description", "")),
            password=value.get("password") is True,
            default=value["default"] if isinstance(value.get("default"), str) else None,
            options=tuple(_option(one) for one in value.get("options", ())),
        )
    return found


def _option(value: Any) -> str:
    return str(cast("dict[str, Any]", value).get("value", "") if isinstance(value, dict) else value)


def _wrong(item: Node) -> str:
    if item.members is None or not isinstance(item.value.get("id"), str):
        return "an input is an object with an id and a type"
    kind = item.value.get("type")
    if kind == "command":
        return "an input of the type command asks an editor; there is none here"
    if kind not in ("promptString", "pickString"):
        return 'an input has the type "promptString" or "pickString"'
    if kind == "pickString" and not isinstance(item.value.get("options"), list):
        return "an input of the type pickString has a list of options"
    return ""
