"""Extensions of a server (SEP-2133): what they declare, and the handlers of their methods.

Rules: a decorated function stays a plain function. Built on public parts of the server: an
extension can do what another one could. A method of an extension exists for callers that declared
it, and no handler runs for others.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from colonnade.errors import Fault, InvalidArgument, InvalidArgumentType, LocalProtocolError
from colonnade.ports import Handler, RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.extensions import (
    DEFINED,
    ExtensionResult,
    check_extension_id,
    check_own_method,
    check_settings,
    decode_extension_result,
)
from colonnade.protocol.jsonrpc import refuse_duplicate_members
from colonnade.protocol.negotiation import Callers
from colonnade.protocol.schema.validate import admitted_types
from colonnade.server.handlers.content import encoded
from colonnade.server.handlers.function import Bound, HandlerEnvironment
from colonnade.server.registry import Entry
from colonnade.signatures.codecs import Codec

F = TypeVar("F", bound=Callable[..., Any])


class ExtensionMethod(Struct, frozen=True, kw_only=True):
    """A method of an extension: a function, or the handler of a method that a revision defines."""

    name: str
    function: Callable[..., Any] | None = None
    handler: Handler | None = None
    scopes: frozenset[str] = frozenset()
    inline: bool = False


class Extension:
    """An extension of the protocol: its identifier, its settings and its methods.

    >>> search = Extension("com.example/search", {"languages": ["en", "fr"]})
    >>> @search.method("search/query")
    ... def query(words: str, limit: int = 10) -> Hits: ...
    >>> server = Server("library", extensions=[search])

    The identifier is a domain of its author in reverse, a slash and a name. Clients that declare it
    can use the methods; the request of another one is an error, -32021. Raises `InvalidArgument`
    and `InvalidArgumentType`.
    """

    # Whether a server that this one is mounted in has the extension, too.
    is_shared: bool = True

    def __init__(self, id: str, settings: Mapping[str, Any] | None = None) -> None:
        self.id: str = check_extension_id(id)
        self._settings = check_settings(self.id, {} if settings is None else settings)
        self._methods: dict[str, ExtensionMethod] = {}
        # Called for each method that is added, and with None if the settings have changed.
        self.observers: list[Callable[[ExtensionMethod | None], None]] = []

    def __repr__(self) -> str:
        return f"Extension({self.id!r})"

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that are declared; set them to declare others from now on."""
        return dict(self._settings)

    @settings.setter
    def settings(self, settings: Mapping[str, Any]) -> None:
        self._settings = check_settings(self.id, settings)
        self._notify(None)

    @property
    def methods(self) -> list[ExtensionMethod]:
        """The methods, in order of registration."""
        return list(self._methods.values())

    def method(
        self, name: str, /, *, scopes: Iterable[str] = (), inline: bool = False
    ) -> Callable[[F], F]:
        """Register a function as the handler of a request: `@search.method("search/query")`.

        Its parameters are the members of `params`, and what it returns is the result: an object,
        such as a dict, a dataclass or a struct. Dependencies and `ctx: Context` work as in a tool;
        `scopes` are those that a caller needs; `inline` is not in a thread.
        """
        check_own_method(name)

        def decorate(function: F) -> F:
            if not callable(function):
                raise InvalidArgumentType(
                    f"{function!r} is not a function: write @extension.method({name!r}) above one"
                )
            self._add(
                ExtensionMethod(
                    name=name, function=function, scopes=frozenset(scopes), inline=inline
                )
            )
            return function

        return decorate

    def handle(self, name: str, handler: Handler) -> None:
        """Register the handler of a method that a revision of the protocol defines, such as those
        of tasks: it returns the result of that method."""
        if name not in DEFINED:
            raise InvalidArgument(
                f"no revision defines {name!r}; write @extension.method({name!r})", argument="name"
            )
        self._add(ExtensionMethod(name=name, handler=handler))

    def declare(self, capabilities: t.ServerCapabilities, callers: Callers) -> t.ServerCapabilities:
        """The capabilities of a server that has this extension, for these callers. Override it to
        declare less to callers that are anonymous."""
        declared = {**(capabilities.extensions or {}), self.id: self._settings}
        return replace(capabilities, extensions=declared)

    def _add(self, method: ExtensionMethod) -> None:
        if method.name in self._methods:
            raise InvalidArgument(f"{self.id} has {method.name!r} already", argument="name")
        self._methods[method.name] = method
        try:
            self._notify(method)
        except BaseException:  # refused by a server that it was added to
            del self._methods[method.name]
            raise

    def _notify(self, method: ExtensionMethod | None) -> None:
        for observer in self.observers:
            observer(method)


class ExtensionEntry(Entry, kw_only=True, eq=False):
    """A registered method of an extension."""

    extension: str
    run: Handler


def entry_for(
    extension: Extension, method: ExtensionMethod, environment: HandlerEnvironment
) -> ExtensionEntry:
    """The entry of a method, whose function runs in this environment. Raises `InvalidArgument`,
    `InvalidArgumentType` for a function that cannot be a handler."""
    if method.handler is not None:
        return ExtensionEntry(extension=extension.id, run=method.handler)
    assert method.function is not None
    bound = BoundExtensionMethod(method.function, method.name, environment, inline=method.inline)
    return ExtensionEntry(
        extension=extension.id, run=bound.run, scopes=method.scopes, logs=bound.uses_context
    )


class BoundExtensionMethod(Bound):
    """A function that is registered as a method of an extension."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        environment: HandlerEnvironment,
        *,
        inline: bool = False,
    ) -> None:
        # A newer client may send members that this version of the extension does not know.
        super().__init__(function, name, environment, inline=inline, closed=False)
        self._codec: Codec | None = self.signature.output()
        schema = self._codec.schema if self._codec is not None else {}
        if schema and "object" not in admitted_types(schema, schema):  # {} is any value
            raise InvalidArgumentType(
                f"{name}: a result is an object, and this returns {self.signature.returns!r}: "
                "return a dict, a dataclass or a struct"
            )

    async def run(self, request: RequestContext) -> t.ProtocolType:
        """Handle a request."""
        raw = request.exchange.request.params
        refuse_duplicate_members(raw)
        try:
            arguments = self.decode(raw)
        except Fault as fault:
            raise Fault(fault.kind, f"{self.name}: {fault.message}") from None
        if self.only_arguments:
            return self._result(await self.call(arguments, None))

        async def body(context: Any) -> t.ProtocolType:
            return self._result(await self.call(arguments, context))

        return await self.environment.run_rounds(request, t.InputResponseRequestParams(), body)

    def _result(self, value: Any) -> ExtensionResult:
        if value is None:
            return ExtensionResult(members={})
        try:
            return decode_extension_result(encoded(value, self._codec), self.name)
        except Fault as fault:
            raise LocalProtocolError(f"{self.name} returned what is not an object") from fault
