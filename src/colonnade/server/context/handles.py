"""Handles: state that outlives a call, addressed by a string that the caller sends.

A handle is an ordinary string: returned by a tool that creates something, taken as an argument by
the tools that use it. It is not a credential: the state belongs to the principal that created it,
and other principals cannot read it.

Rules: handles cannot be guessed. State expires if it is not used; the error message tells the model
to create it again.
"""

import secrets
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar, overload

from colonnade.errors import InvalidArgument, InvalidArgumentType, ToolError
from colonnade.ports import Store
from colonnade.server.context.blocking import BlockingContext
from colonnade.server.context.context import Context
from colonnade.signatures.codecs import Codec
from colonnade.signatures.signature import Signature

T = TypeVar("T")

# 128 bits: without authentication, knowing the handle is enough to use it.
HANDLE_BYTES = 16
# Longer ones are untrusted input; a handle has about thirty characters.
MAX_HANDLE_CHARACTERS = 128


class Handles(Generic[T]):
    """The handles of one kind: `baskets = server.handles("basket", Basket)`.

    With a `Context` each method is awaited; with a `BlockingContext` it blocks.
    """

    def __init__(self, kind: str, type: type[T], store: Callable[[], Store], ttl_s: float) -> None:
        if not ttl_s > 0:
            raise InvalidArgument(
                f"{kind}: ttl_s is {ttl_s!r}; give seconds above 0", argument="ttl_s"
            )
        self.kind = kind
        self.ttl_s = ttl_s
        self._store = store
        self._codec = _codec(kind, type)

    @overload
    def create(self, ctx: Context, value: T) -> Coroutine[Any, Any, str]: ...
    @overload
    def create(self, ctx: BlockingContext, value: T) -> str: ...
    def create(self, ctx: Context | BlockingContext, value: T) -> Any:
        """Store a value for this caller; returns its handle."""
        handle = f"{self.kind}_{secrets.token_urlsafe(HANDLE_BYTES)}"
        data = self._codec.encode(value)

        async def work(principal: str) -> str:
            await self._store().put(principal, self._key(handle), data, self.ttl_s)
            return handle

        return _run(ctx, work)

    @overload
    def get(self, ctx: Context, handle: str) -> Coroutine[Any, Any, T]: ...
    @overload
    def get(self, ctx: BlockingContext, handle: str) -> T: ...
    def get(self, ctx: Context | BlockingContext, handle: str) -> Any:
        """The value of a handle; renews its expiry. Raises `ToolError` if there is none."""

        async def work(principal: str) -> T:
            data = await self._load(principal, handle)
            await self._store().put(principal, self._key(handle), data, self.ttl_s)
            return self._codec.decode(data)

        return _run(ctx, work)

    @overload
    def put(self, ctx: Context, handle: str, value: T) -> Coroutine[Any, Any, None]: ...
    @overload
    def put(self, ctx: BlockingContext, handle: str, value: T) -> None: ...
    def put(self, ctx: Context | BlockingContext, handle: str, value: T) -> Any:
        """Replace the value of a handle. Raises `ToolError` if there is none."""
        data = self._codec.encode(value)

        async def work(principal: str) -> None:
            await self._load(principal, handle)
            await self._store().put(principal, self._key(handle), data, self.ttl_s)

        return _run(ctx, work)

    @overload
    def drop(self, ctx: Context, handle: str) -> Coroutine[Any, Any, None]: ...
    @overload
    def drop(self, ctx: BlockingContext, handle: str) -> None: ...
    def drop(self, ctx: Context | BlockingContext, handle: str) -> Any:
        """Delete the value of a handle. Raises `ToolError` if there is none."""

        async def work(principal: str) -> None:
            await self._load(principal, handle)
            await self._store().delete(principal, self._key(handle))

        return _run(ctx, work)

    async def _load(self, principal: str, handle: str) -> bytes:
        data = None
        if len(handle) <= MAX_HANDLE_CHARACTERS and handle.startswith(f"{self.kind}_"):
            data = await self._store().get(principal, self._key(handle))
        if data is None:
            shown = handle[:MAX_HANDLE_CHARACTERS]
            raise ToolError(
                f"there is no {self.kind} {shown!r}, or it has expired; create a new one"
            )
        return data

    def _key(self, handle: str) -> str:
        return f"handle {handle}"


def _run(ctx: Context | BlockingContext, work: Callable[[str], Coroutine[Any, Any, Any]]) -> Any:
    if isinstance(ctx, BlockingContext):
        return ctx.wait(lambda: work(ctx.principal))
    return work(ctx.principal)


def _codec(kind: str, type: Any) -> Codec:
    def value() -> Any: ...

    value.__annotations__["return"] = type
    codec = Signature(value, name=f"handles of {kind}").output()
    if codec is None:
        raise InvalidArgumentType(f"handles of {kind} need the type of their values")
    return codec
