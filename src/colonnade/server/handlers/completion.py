"""Completion of arguments of prompts and resource templates, best matches first.

Rules: types that list their values (`Literal`, `Enum`, `bool`) are completed without code. Values
of an author's function are never filtered, only sorted and cut at the limit of the protocol.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol, TypeAlias

from colonnade.errors import InvalidArgumentType
from colonnade.ports import RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.schema.validate import Schema
from colonnade.server.handlers.function import Bound
from colonnade.signatures.signature import Parameter


class CompletionFunction(Protocol):
    """Completes what was typed; `others` are the arguments that are filled in already."""

    def __call__(
        self, request: RequestContext, typed: str, others: Mapping[str, str], /
    ) -> Awaitable[list[str]]: ...


Offer: TypeAlias = Callable[..., Iterable[str] | Awaitable[Iterable[str]]]


def completer_for(parameter: Parameter) -> CompletionFunction | None:
    """A completer for an argument whose type lists its values; None for other types."""
    options = _options(parameter.schema)
    if not options:
        return None

    async def complete(request: RequestContext, typed: str, others: Mapping[str, str]) -> list[str]:
        return [option for option in ranked(options, typed) if closeness(option, typed) < NO_MATCH]

    return complete


def _options(schema: Schema) -> list[str]:
    if "enum" in schema or "const" in schema:
        found = schema.get("enum", [schema.get("const")])
        import json

        # Arguments are strings: numbers and booleans are written as in JSON.
        return [
            one if isinstance(one, str) else json.dumps(one) for one in found if one is not None
        ]
    if schema.get("type") == "boolean":
        return ["true", "false"]
    inner: list[Schema] = schema.get("anyOf", [])
    return [option for one in inner for option in _options(one)]


def from_function(bound: Bound) -> CompletionFunction:
    """A completer from an author's function.

    Its first parameter gets what was typed; other parameters get the argument of the same name, if
    it is filled in already.
    """
    parameters = bound.signature.parameters
    if not parameters:
        raise InvalidArgumentType(
            f"{bound.name}: a completion needs a str parameter for what was typed"
        )
    first = parameters[0].name
    other_parameters = parameters[1:]
    for parameter in other_parameters:
        if parameter.required:
            raise InvalidArgumentType(
                f"{bound.name}: {parameter.name!r} may not be filled in yet; give it a default"
            )

    async def complete(request: RequestContext, typed: str, others: Mapping[str, str]) -> list[str]:
        arguments: dict[str, Any] = {first: typed}
        for parameter in other_parameters:
            if parameter.wire_name in others:
                arguments[parameter.name] = others[parameter.wire_name]
        values: list[str] = []

        async def body(context: Any) -> t.ProtocolType:
            values.extend(str(value) for value in await bound.call(arguments, context))
            return t.EmptyResult()

        if bound.only_arguments:
            await body(None)
        else:
            params = t.InputResponseRequestParams()
            await bound.environment.run_rounds(request, params, body)
        return ranked(list(dict.fromkeys(values)), typed)

    return complete


# ---------------------------------------------------------------- ranking

NO_MATCH = 5


def closeness(value: str, typed: str) -> int:
    """How well a value matches what was typed: 0 is best, `NO_MATCH` not at all."""
    if value.startswith(typed):
        return 0
    low, wanted = value.casefold(), typed.casefold()
    if low.startswith(wanted):
        return 1
    if any(word.startswith(wanted) for word in _words(low)):
        return 2
    if wanted in low:
        return 3
    letters = iter(low)
    return 4 if all(letter in letters for letter in wanted) else NO_MATCH


def _words(text: str) -> list[str]:
    return "".join(sign if sign.isalnum() else " " for sign in text).split()


def ranked(values: list[str], typed: str) -> list[str]:
    """The values, best matches first; a stable sort."""
    return sorted(values, key=lambda value: closeness(value, typed))


def completion(values: list[str]) -> t.CompleteResult:
    """The result: at most as many values as the protocol allows, and the total."""
    return t.CompleteResult(
        completion=t.Completion(
            values=values[: t.MAX_COMPLETIONS],
            total=len(values),
            has_more=len(values) > t.MAX_COMPLETIONS,
        )
    )
