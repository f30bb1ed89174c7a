"""What a handler is given beside its arguments: the context, dependencies, answered questions.

Rules: a dependency is made once for each call and shared within it, and cleaned up in reverse when
the call is over, whatever became of it. One of scope "server" is made once and lives as long as
the server runs, so it may not know a call. What cannot work is refused when it is registered.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args, get_origin

from msgspec import Struct

from colonnade.errors import LocalProtocolError
from colonnade.protocol.annotations_names import Names, signature_of
from colonnade.protocol.signature import Hidden
from colonnade.server.marks import SITUATIONS, Mark, Situation

if TYPE_CHECKING:
    from colonnade.server.asking import Marked

Scope = Literal["call", "server"]
Provide: TypeAlias = Callable[..., Any]
Overrides: TypeAlias = Mapping[Provide, Provide]


def Depends(provide: Provide, *, scope: Scope = "call") -> Any:  # noqa: N802
    """Marks a parameter that a function provides: `db: Annotated[Db, Depends(get_db)]`.

    A generator may clean up after its `yield`. With `scope="server"` there is one for all calls.
    It may also stand as the default: `db: Db = Depends(get_db)`.
    """
    return Dependency(provide, scope)


class Dependency(Mark):
    """What `Depends` marks a parameter with."""

    def __init__(self, provide: Provide, scope: Scope) -> None:
        if not callable(provide):
            raise LocalProtocolError("Depends takes a function that provides the value")
        if scope not in get_args(Scope):
            raise LocalProtocolError(f"Depends has the scopes 'call' and 'server', not {scope!r}")
        self.provide = provide
        self.scope: Scope = scope


class Wiring(Struct, frozen=True):
    """What one function is given beside its arguments."""

    contexts: tuple[str, ...]
    needs: tuple[tuple[str, Dependency], ...]
    questions: "tuple[Marked, ...]"

    @property
    def alone(self) -> bool:
        """Whether it is given nothing."""
        return not (self.contexts or self.needs or self.questions)


def is_marked(annotation: Any, default: Any) -> bool:
    """Whether a parameter is filled here, and so is none of the caller's."""
    return (
        context_kind(annotation) is not None
        or isinstance(default, Mark)
        or any(isinstance(item, Mark) for item in _metadata(annotation))
    )


def misplaced(annotation: Any) -> str | None:
    """What kind of mark stands inside of a type, where it would fill nothing."""
    for inner in get_args(annotation):
        for item in _metadata(inner):
            if isinstance(item, Mark):
                return "Depends" if isinstance(item, Dependency) else type(item).__name__
        found = misplaced(inner)
        if found is not None:
            return found
    return None


def _metadata(annotation: Any) -> tuple[Any, ...]:
    return getattr(annotation, "__metadata__", ())


def context_kind(annotation: Any) -> str | None:
    """Which context a parameter wants, by the name of its type; None where it wants none."""
    if isinstance(annotation, str):
        name = annotation.rpartition(".")[2]
        return name if name in SITUATIONS else None
    if get_origin(annotation) is None:
        is_one = isinstance(annotation, type) and Situation in annotation.__bases__
        return annotation.__name__ if is_one else None
    found = (context_kind(inner) for inner in get_args(annotation))
    return next((kind for kind in found if kind is not None), None)


def wire(hidden: Iterable[Hidden], where: str, names: Names, *, waits: bool) -> Wiring:
    """Sort the hidden parameters of a function. Raises `LocalProtocolError`.

    `waits` is whether it is `async`, and gets the context that must be awaited.
    """
    hidden = tuple(hidden)
    if not hidden:
        return Wiring((), (), ())
    from colonnade.server.asking import marked

    contexts: list[str] = []
    needs: list[tuple[str, Dependency]] = []
    questions: list[Marked] = []
    for one in hidden:
        name, annotation, default = one.name, one.annotation, one.default
        spot = f"{where}: parameter {name!r}"
        kind = context_kind(annotation)
        if kind == "BlockingContext" and waits:
            raise LocalProtocolError(f"{spot}: an async function gets Context, and awaits it")
        question = marked(name, annotation, default, spot, names)
        if kind is not None:
            contexts.append(name)
        elif question is not None:
            questions.append(question)
        else:
            needs.append((name, _depends(annotation, default)))
    return Wiring(tuple(contexts), tuple(needs), tuple(questions))


def _depends(annotation: Any, default: Any) -> Dependency:
    found = [item for item in (default, *_metadata(annotation)) if isinstance(item, Dependency)]
    return found[0]


class Provider:
    """A function that provides a value: how it runs, and what it needs itself."""

    def __init__(self, function: Provide) -> None:
        self.function = function
        self.name: str = getattr(function, "__name__", repr(function))
        plain = inspect.isfunction(function) or inspect.ismethod(function)
        self.is_async: bool = inspect.iscoroutinefunction(function)
        self.is_async_generator: bool = inspect.isasyncgenfunction(function)
        self.is_generator: bool = inspect.isgeneratorfunction(function)
        # What is called may block; a class is only made.
        self.threaded: bool = plain and not (self.is_async or self.is_async_generator)
        self.wiring: Wiring = self._wire()

    def _wire(self) -> Wiring:
        names = Names.of(self.function)
        hidden: list[Hidden] = []
        try:
            parameters = signature_of(self.function).parameters.values()
        except (TypeError, ValueError) as error:
            words = f"{self.name}: cannot be read as a function: {error}"
            raise LocalProtocolError(words) from None
        for parameter in parameters:
            where = f"{self.name}: parameter {parameter.name!r}"
            annotation = parameter.annotation
            if annotation is not inspect.Parameter.empty:
                annotation = names.evaluate(annotation, where)
            if is_marked(annotation, parameter.default):
                hidden.append(Hidden(parameter.name, annotation, parameter.default))
            elif parameter.default is inspect.Parameter.empty and parameter.kind not in (
                inspect.Parameter.VAR_POSITIONAL,
                inspect.Parameter.VAR_KEYWORD,
            ):
                raise LocalProtocolError(
                    f"{where} of a dependency needs a default, Depends(...), Ask(...) or Context"
                )
        return wire(hidden, self.name, names, waits=self.is_async or self.is_async_generator)


class Providers:
    """All providers of a server, each read once."""

    def __init__(self) -> None:
        self._read: dict[Provide, Provider] = {}
        self.overrides: dict[Provide, Provide] = {}

    def of(self, provide: Provide) -> Provider:
        """The provider of a dependency, or what stands for it now."""
        function = self.overrides.get(provide, provide)
        found = self._read.get(function)
        if found is None:
            found = self._read[function] = Provider(function)
        return found

    def check(
        self,
        wiring: Wiring,
        where: str,
        path: tuple[Provide, ...] = (),
        scope: Scope = "call",
    ) -> None:
        """Raise `LocalProtocolError` for what cannot be resolved; `where` is who needs it."""
        for _, depends in wiring.needs:
            provider = self.of(depends.provide)
            if depends.provide in path:
                circle = [self.of(one).name for one in path[path.index(depends.provide) :]]
                raise LocalProtocolError(
                    f"{where}: {provider.name} depends on itself: "
                    + " needs ".join([*circle, provider.name])
                )
            if scope == "server" and depends.scope == "call":
                raise LocalProtocolError(
                    f"{where}: {provider.name} is made for each call and cannot be part of one "
                    "that is made once; give it scope='server', too"
                )
            inner = provider.wiring
            if depends.scope == "server" and (inner.contexts or inner.questions):
                raise LocalProtocolError(
                    f"{where}: {provider.name} is made once for all calls and cannot know one of "
                    "them; leave out scope='server', or its Context and questions"
                )
            self.check(inner, where, (*path, depends.provide), depends.scope)

    def questions(self, wiring: Wiring) -> "list[Marked]":
        """The questions of a function and of all that it depends on."""
        return [question for _, one in self.wirings(wiring) for question in one.questions]

    def wirings(self, wiring: Wiring) -> Iterator[tuple[Provide | None, Wiring]]:
        """A function's wiring and those of all that it depends on, each once."""
        seen: set[Provide] = set()
        waiting: list[tuple[Provide | None, Wiring]] = [(None, wiring)]
        for owner, one in waiting:
            yield owner, one
            for _, depends in one.needs:
                provider = self.of(depends.provide)
                if provider.function not in seen:
                    seen.add(provider.function)
                    waiting.append((provider.function, provider.wiring))
