"""The context of a function that is not `async`: the same methods as `Context`, without `await`.

The function runs in a thread; each method runs its coroutine in the event loop and waits for it.
Rules: no logic of its own. In a thread whose call is over the next method raises `CallEnded`.
"""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

import msgspec

from colonnade.errors import LocalProtocolError
from colonnade.ports import Session
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import RequestId
from colonnade.server.context.ask import (
    Ask,
    AskForm,
    AskUrl,
    InputSpec,
    Roots,
    Sample,
    Sampled,
    SamplePrompt,
)
from colonnade.server.context.context import Context, request_inputs
from colonnade.server.handlers.threads import Workers
from colonnade.server.hints import attribute_error, with_hints
from colonnade.signatures.signature import ContextMarker

if TYPE_CHECKING:
    from colonnade.server.auth import RequestHeaders

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")


class CallEnded(BaseException):
    """Raised in a thread whose call has ended. Do not catch it; `finally` blocks run."""


class BlockingContext(ContextMarker):
    """`Context` for a function that is not `async`."""

    def __init__(self, context: Context, workers: Workers) -> None:
        self._context = context
        self._workers = workers
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._calls: set[concurrent.futures.Future[Any]] = set()
        self._finished = False

    def wait(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in the event loop and wait for it."""
        if threading.get_ident() == self._loop_thread:
            raise LocalProtocolError(
                "an inline function cannot block; remove inline=True, or make it async"
            )
        if self._finished:
            raise CallEnded
        call = asyncio.run_coroutine_threadsafe(work(), self._loop)
        self._calls.add(call)
        try:
            with self._workers.release_slot():
                return call.result()
        except (concurrent.futures.CancelledError, asyncio.CancelledError):
            raise CallEnded from None
        finally:
            self._calls.discard(call)

    def close(self) -> None:
        """End the call: cancel what its thread waits for."""
        self._finished = True
        for call in tuple(self._calls):
            call.cancel()

    if not TYPE_CHECKING:  # a type checker would accept every attribute

        def __getattr__(self, name: str) -> Any:
            raise attribute_error(self, name)

    # ------------------------------------------------------------ the caller

    @property
    def principal(self) -> str:
        """The authenticated caller; empty without authentication."""
        return self._context.principal

    @property
    def claims(self) -> dict[str, Any]:
        """The claims of the caller's verified token; empty without a token."""
        return self._context.claims

    @property
    def headers(self) -> "RequestHeaders":
        """The headers of the HTTP request, without credentials; empty without HTTP."""
        return self._context.headers

    @property
    def request_id(self) -> RequestId:
        """The JSON-RPC id of the request, chosen by the client."""
        return self._context.request_id

    @property
    def client(self) -> t.Implementation | None:
        """The name and version that the client sent: for display and logs, not for decisions."""
        return self._context.client

    @property
    def capabilities(self) -> t.ClientCapabilities:
        """The declared capabilities of the client."""
        return self._context.capabilities

    @property
    def revision(self) -> str:
        """The protocol revision of this client."""
        return self._context.revision

    @property
    def session(self) -> Session | None:
        """The session; None in revisions where each request is independent."""
        return self._context.session

    @property
    def state(self) -> Any:
        """The value that the server's lifespan yielded."""
        return self._context.state

    # ------------------------------------------------------------ while it runs

    def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report progress, if the caller requested it; values must increase (D32)."""
        self.wait(lambda: self._context.progress(progress, total, message))

    report_progress = progress  # the name in other libraries

    @with_hints
    def log(self, level: t.LoggingLevel, data: Any, logger: str | None = None) -> None:
        """Send a log message, if the caller requested this level. Never log secrets."""
        self.wait(lambda: self._context.log(level, data, logger))

    @with_hints
    def debug(self, data: Any, logger: str | None = None) -> None:
        """Log at this level."""
        self.log("debug", data, logger)

    @with_hints
    def info(self, data: Any, logger: str | None = None) -> None:
        """Log at this level."""
        self.log("info", data, logger)

    @with_hints
    def notice(self, data: Any, logger: str | None = None) -> None:
        """Log at this level."""
        self.log("notice", data, logger)

    @with_hints
    def warning(self, data: Any, logger: str | None = None) -> None:
        """Log at this level."""
        self.log("warning", data, logger)

    @with_hints
    def error(self, data: Any, logger: str | None = None) -> None:
        """Log at this level."""
        self.log("error", data, logger)

    @with_hints
    def critical(self, data: Any, logger: str | None = None) -> None:
        """Log at this level."""
        self.log("critical", data, logger)

    @with_hints
    def alert(self, data: Any, logger: str | None = None) -> None:
        """Log at this level."""
        self.log("alert", data, logger)

    @with_hints
    def emergency(self, data: Any, logger: str | None = None) -> None:
        """Log at this level."""
        self.log("emergency", data, logger)

    def notify(self, method: str, params: Mapping[str, Any], *, extension: str) -> None:
        """Send a notification of an extension, if the caller declared the extension."""
        self.wait(lambda: self._context.notify(method, params, extension=extension))

    def read(self, uri: str) -> t.ReadResourceResult:
        """Read one of this server's resources, as this caller. Raises `ToolError` if not found."""
        return self.wait(lambda: self._context.read(uri))

    def hang_up(self) -> None:
        """Close the HTTP stream of a long call; a client that supports resumption reconnects."""
        self.wait(self._context.hang_up)

    # ------------------------------------------------------------ input requests

    @overload
    def elicit(self, message: str, type: type[T], *, key: str | None = None) -> T: ...
    @overload
    def elicit(self, message: str, type: Any, *, key: str | None = None) -> Any: ...
    @with_hints
    def elicit(self, message: str, type: Any, *, key: str | None = None) -> Any:
        """Elicit a value of a type from the user. Raises `Declined`."""
        return self._request_input(Ask(message, type, key=key))

    def elicit_form(
        self, message: str, form: t.ElicitSchema, *, key: str | None = None
    ) -> dict[str, t.ElicitValue]:
        """Elicit with an explicit form schema. Raises `Declined`."""
        return self._request_input(AskForm(message, form, key=key))

    def elicit_url(
        self,
        message: str,
        url: str,
        *,
        id: str | None = None,
        key: str | None = None,
        by_error: bool = False,
    ) -> None:
        """URL elicitation; see `Context.elicit_url`. Raises `Declined`."""
        url_request = AskUrl(message, url, id=id, key=key)
        if by_error:
            self._context.raise_url_elicitation(url_request)
        self._request_input(url_request)

    def elicitation_complete(self, id: str) -> None:
        """Notify the client that the URL elicitation of this id is complete."""
        self.wait(lambda: self._context.elicitation_complete(id))

    @with_hints
    def sample(
        self,
        prompt: SamplePrompt,
        *,
        max_tokens: int = 1000,
        system: str | None = None,
        temperature: float | None = None,
        stop: list[str] | None = None,
        preferences: t.ModelPreferences | None = None,
        tools: list[t.Tool] | None = None,
        tool_choice: t.ToolChoice | None = None,
        key: str | None = None,
    ) -> Sampled:
        """Sample from the client's model. Raises `Declined`."""
        sample = Sample(
            prompt,
            max_tokens=max_tokens,
            system=system,
            temperature=temperature,
            stop=stop,
            preferences=preferences,
            tools=tools,
            tool_choice=tool_choice,
            key=key,
        )
        return cast("Sampled", self._request_input(sample))

    def roots(self, *, key: str | None = None) -> list[t.Root]:
        """The roots of the client."""
        return self._request_input(Roots(key=key))

    @overload
    def ask(self, one: InputSpec[A], /) -> tuple[A]: ...
    @overload
    def ask(self, one: InputSpec[A], two: InputSpec[B], /) -> tuple[A, B]: ...
    @overload
    def ask(
        self, one: InputSpec[A], two: InputSpec[B], three: InputSpec[C], /
    ) -> tuple[A, B, C]: ...
    @overload
    def ask(self, *inputs: InputSpec[Any]) -> tuple[Any, ...]: ...
    def ask(self, *inputs: InputSpec[Any]) -> tuple[Any, ...]:
        """Send several input requests in one round; their values in order. Raises `Declined`."""
        return self.wait(lambda: request_inputs(self._context, inputs, threaded=True))

    def _request_input(self, spec: InputSpec[T]) -> T:
        return self.wait(lambda: self._context.request_input(spec, threaded=True))

    def once(self, key: str, make: Callable[[], T]) -> T:
        """Run a function once across all rounds of this call; see `Context.once`."""
        saved_result = self._context.saved_result(key)
        if saved_result is not None:
            return cast("T", msgspec.json.decode(saved_result))
        task = self._context.current_request.task_journal
        if task is None:
            return self._context.save_result(key, make())
        self.wait(task.check_lease)
        value = make()
        return self.wait(lambda: self._context.keep_result(key, value))
