"""Where the names in annotations come from, when annotations are text.

Under `from __future__ import annotations`, or in quotes, an annotation is a string, and may name a
class that is local to the function in which the tool stands. Rules: only scopes that enclose the
definition are looked into, never just any frame of the stack. One thing is changed in a class of
the author: annotations that name local classes are put there evaluated, as they would be without
the future import, because msgspec and pydantic each look them up in the module alone.
"""

import inspect
import sys
import typing
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, cast

from colonnade.errors import LocalProtocolError

# From Python 3.14 on annotations are evaluated when they are asked for (PEP 649), so that a name
# which only a type checker imports would be a bare NameError there. As a ForwardRef it comes to
# `Names.evaluate`, which says where it stands and what to do.
_LAZY = "annotationlib" in sys.stdlib_module_names
_FORWARD: Any = import_module("annotationlib").Format.FORWARDREF if _LAZY else None
_SIGNATURE: dict[str, Any] = {"annotation_format": _FORWARD} if _LAZY else {}
_ANNOTATIONS: dict[str, Any] = {"format": _FORWARD} if _LAZY else {}


def signature_of(function: Any) -> inspect.Signature:
    """The signature of a function, with names that cannot be looked up left as they are. Raises
    `TypeError` and `ValueError` as `inspect.signature` does."""
    return inspect.signature(function, **_SIGNATURE)


def annotations_of(cls: Any) -> dict[str, Any]:
    """The annotations that a class itself has, in their order."""
    return inspect.get_annotations(cls, **_ANNOTATIONS)


class Names:
    """The names that a function's annotations may use."""

    def __init__(self, globals_: dict[str, Any], locals_: dict[str, Any]) -> None:
        self._globals = globals_
        self._locals = locals_

    @classmethod
    def of(cls, function: Any) -> "Names":
        """The names around a function: its module's, its closure's, its enclosing functions'."""
        inner = unwrapped(function)
        locals_ = _enclosing(inner)
        code, cells = getattr(inner, "__code__", None), getattr(inner, "__closure__", None)
        for name, cell in zip(code.co_freevars if code else (), cells or (), strict=True):
            try:
                locals_[name] = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
        for parameter in getattr(inner, "__type_params__", ()):
            locals_[parameter.__name__] = parameter
        return cls(getattr(inner, "__globals__", {}), locals_)

    def evaluate(self, annotation: Any, where: str, module: str = "") -> Any:
        """An annotation with every name in it looked up; first in `module`, if one is given."""

        def holder() -> None: ...

        holder.__annotations__ = {"it": annotation}
        names = {**self._locals, **vars(sys.modules[module])} if module else self._locals
        try:
            return typing.get_type_hints(holder, self._globals, names, True)["it"]
        except NameError as error:
            raise _unknown(error, where) from None
        except Exception as error:
            raise LocalProtocolError(
                f"{where}: {annotation!r} cannot be read as an annotation: {error}"
            ) from None

    def hints(self, cls: type, where: str) -> dict[str, Any]:
        """The annotations of a class's fields, with the metadata."""
        try:
            return typing.get_type_hints(cls, include_extras=True)
        except NameError:
            pass
        except Exception as error:
            raise LocalProtocolError(
                f"{where}: the annotations of {cls.__name__} cannot be read: {error}"
            ) from None
        for base in cls.__mro__[:-1]:
            own = annotations_of(base)
            try:
                hints = typing.get_type_hints(base, None, {**self._locals, **vars(base)}, True)
            except NameError as error:
                raise _unknown(error, f"{where}: {cls.__name__}") from None
            if own:
                base.__annotations__ = {name: hints.get(name, own[name]) for name in own}
        return typing.get_type_hints(cls, include_extras=True)


def unwrapped(function: Any) -> Any:
    """The plain function behind a partial, a method, a decorator or a callable object."""
    while True:
        if isinstance(function, partial):
            function = cast(Any, function).func
        elif isinstance(function, staticmethod | classmethod) or inspect.ismethod(function):
            function = cast(Any, function).__func__
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif inspect.isroutine(function):
            return function
        else:  # a class is called by its __init__, an object by its __call__
            call = function.__init__ if isinstance(function, type) else type(function).__call__
            if not inspect.isfunction(call):
                return function
            function = call


def _enclosing(function: Callable[..., Any]) -> dict[str, Any]:
    """The variables of the functions around this one, outermost first, while they still run."""
    parts = getattr(function, "__qualname__", "").split(".<locals>.")
    around = {".<locals>.".join(parts[:count]) for count in range(1, len(parts))}
    found: list[dict[str, Any]] = []
    frame = inspect.currentframe()
    while around and frame is not None:
        if frame.f_code.co_qualname in around and frame.f_globals is function.__globals__:
            found.append(dict(frame.f_locals))
        frame = frame.f_back
    names: dict[str, Any] = {}
    for one in reversed(found):
        names.update(one)
    return names


def _unknown(error: NameError, where: str) -> LocalProtocolError:
    return LocalProtocolError(
        f"{where}: {error}; define it in the module, or import it outside of TYPE_CHECKING"
    )
