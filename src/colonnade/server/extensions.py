"""Extensions of a server (SEP-2133): what they declare, the handlers of their methods, and the
registry of them.

Rules: a decorated function stays a plain function. Built on public parts of the server: an
extension can do what another one could. A method of an extension exists for callers that declared
it, and no handler runs for others.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from colonnade.errors import Fault, InvalidArgument, InvalidArgumentType, LocalProtocolError
from colonnade.ports import Handler, Middleware, RequestContext, stack
from colonnade.protocol import types as t
from colonnade.protocol.extensions import (
    DEFINED,
    MAX_EXTENSIONS,
    ExtensionResult,
    check_extension_id,
    check_own_method,
    check_settings,
    decode_extension_result,
    extension_request,
)
from colonnade.protocol.jsonrpc import refuse_duplicate_members
from colonnade.protocol.methods import Method
from colonnade.protocol.negotiation import Callers, extension_of
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


# ---------------------------------------------------------------- the extensions of a server


class ExtensionRegistry:
    """The extensions of one server, also those of servers that are mounted in it.

    `add_handler` adds the handler of a method to the server, `notify` is called after each change,
    and `outer` returns the registries of the servers that this one is mounted in.
    """

    def __init__(
        self,
        server: object,
        environment: HandlerEnvironment,
        middleware: Sequence[Middleware],
        add_handler: Callable[[str, ExtensionEntry], None],
        notify: Callable[[], None],
        outer: "Callable[[], list[ExtensionRegistry]]",
    ) -> None:
        self.server = server  # for error messages
        self.environment = environment
        self.middleware = middleware
        # Without those that a revision defines.
        self.methods: dict[str, Method] = {}
        self._extensions: dict[str, Extension] = {}
        self._add_handler = add_handler
        self._notify = notify
        self._outer = outer

    def __iter__(self) -> Iterator[Extension]:
        return iter(self._extensions.values())

    def add(self, extension: Extension, owner: "ExtensionRegistry | None" = None) -> None:
        """Add an extension whose functions run in the environment of a server: this one, or one
        that is mounted in it. Raises `InvalidArgument`, `InvalidArgumentType`."""
        if not isinstance(extension, Extension):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgumentType(
                f"an extension is Extension('com.example/search'), not {extension!r}",
                argument="extensions",
            )
        for registry in (self, *(self._all_outer() if extension.is_shared else ())):
            registry._check(extension)  # before anything has changed
        owner = owner or self

        def on_change(method: ExtensionMethod | None) -> None:
            if method is not None:
                self._add_method(extension, method, owner)
            self._notify()

        self._extensions[extension.id] = extension
        for method in extension.methods:
            self._add_method(extension, method, owner)
        extension.observers.append(on_change)
        self._notify()
        for outer in self._outer() if extension.is_shared else ():
            outer.add(extension, owner)

    def check_mount(self, inner: "ExtensionRegistry") -> None:
        """Raise `InvalidArgument` if a server cannot be mounted because of its extensions."""
        for extension in inner._shared():
            for registry in (self, *self._all_outer()):
                if extension.id in registry._extensions:
                    raise InvalidArgument(
                        f"{registry.server!r} and {inner.server!r} both have the extension "
                        f"{extension.id}; give it to one of them"
                    )

    def mount(self, inner: "ExtensionRegistry") -> None:
        """Add the extensions of a server that is mounted."""
        for extension in inner._shared():
            self.add(extension, inner)

    def declare(self, capabilities: t.ServerCapabilities) -> dict[Callers, t.ServerCapabilities]:
        """The capabilities with the extensions, for each kind of callers; empty without one."""
        by_callers: dict[Callers, t.ServerCapabilities] = {}
        for callers in Callers.members() if self._extensions else ():
            declared = capabilities
            for extension in self:
                declared = extension.declare(declared, callers)
            by_callers[callers] = declared
        return by_callers

    def _shared(self) -> list[Extension]:
        return [extension for extension in self if extension.is_shared]

    def _all_outer(self) -> "list[ExtensionRegistry]":
        """Those of the servers that this one is mounted in, directly or not."""
        return [one for outer in self._outer() for one in (outer, *outer._all_outer())]

    def _check(self, extension: Extension) -> None:
        """Refuse an extension that this server cannot have."""
        if extension.id in self._extensions:
            raise InvalidArgument(
                f"{self.server!r} has the extension {extension.id} already", argument="extensions"
            )
        if len(self._extensions) >= MAX_EXTENSIONS:
            raise InvalidArgument(
                f"{self.server!r} has {MAX_EXTENSIONS} extensions, the most that can be declared",
                argument="extensions",
            )
        for method in extension.methods:
            self._check_method(extension, method)

    def _check_method(self, extension: Extension, method: ExtensionMethod) -> None:
        known = self.methods.get(method.name)
        if known is not None:
            raise InvalidArgument(
                f"{method.name!r} of {extension.id} is a method of {extension_of(known)} already",
                argument="extensions",
            )

    def _add_method(
        self, extension: Extension, method: ExtensionMethod, owner: "ExtensionRegistry"
    ) -> None:
        self._check_method(extension, method)
        entry = entry_for(extension, method, owner.environment)
        if owner is not self:
            entry.run = _with_middleware(entry.run, owner.middleware)
        if method.handler is None:  # else a revision defines it
            self.methods[method.name] = extension_request(method.name, extension.id)
        self._add_handler(method.name, entry)


def _with_middleware(handler: Handler, middleware: Sequence[Middleware]) -> Handler:
    """The handler of a mounted server, in the middleware that it has at the time of the request."""
    return lambda request: stack(handler, middleware)(request)
