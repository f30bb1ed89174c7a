"""The context of a function that is not `async`: the same names, and every call waits.

The function runs in a thread, the exchange lives in the loop; each call here goes over and comes
back. Rules: nothing is decided here. A thread whose call is over is unwound at its next word.
"""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

import msgspec

from colonnade.errors import LocalProtocolError
from colonnade.ports import Session
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import RequestId
from colonnade.server.context.ask import (
    Ask,
    Asked,
    AskForm,
    AskVisit,
    Prompting,
    Roots,
    Sample,
    Sampled,
)
from colonnade.server.context.context import Context, put_all
from colonnade.server.handlers.threads import Workers
from colonnade.server.options import Situation, hinted, no_attribute

if TYPE_CHECKING:
    from colonnade.server.auth import RequestHeaders

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")


class Unwound(BaseException):
    """Raised in a thread whose call has ended: let it pass. `finally` runs."""


class BlockingContext(Situation):
    """The caller's side of a running function that is not `async`."""

    def __init__(self, context: Context, workers: Workers) -> None:
        self._context = context
        self._workers = workers
        self._loop = asyncio.get_running_loop()
        self._home = threading.get_ident()
        self._calls: set[concurrent.futures.Future[Any]] = set()
        self._over = False

    def wait(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Let the loop do something, and wait for it."""
        if threading.get_ident() == self._home:
            raise LocalProtocolError(
                "an inline function cannot wait; leave out inline=True, or make it async"
            )
        if self._over:
            raise Unwound
        call = asyncio.run_coroutine_threadsafe(work(), self._loop)
        self._calls.add(call)
        try:
            with self._workers.aside():
                return call.result()
        except (concurrent.futures.CancelledError, asyncio.CancelledError):
            raise Unwound from None
        finally:
            self._calls.discard(call)

    def close(self) -> None:
        """The call is over: a thread that still waits for something is let go."""
        self._over = True
        for call in tuple(self._calls):
            call.cancel()

    if not TYPE_CHECKING:  # or nothing would be unknown to a type checker

        def __getattr__(self, name: str) -> Any:
            raise no_attribute(self, name)

    # ------------------------------------------------------------ who

    @property
    def principal(self) -> str:
        """Who is calling, as the verifier said; empty without one."""
        return self._context.principal

    @property
    def claims(self) -> dict[str, Any]:
        """What the caller's token says, after it was verified; empty without a token."""
        return self._context.claims

    @property
    def headers(self) -> "RequestHeaders":
        """The headers of the HTTP request, without credentials; empty where there is no HTTP."""
        return self._context.headers

    @property
    def request_id(self) -> RequestId:
        """The id of the request, as the client chose it."""
        return self._context.request_id

    @property
    def client(self) -> t.Implementation | None:
        """What the client says it is: for people and logs, never for decisions."""
        return self._context.client

    @property
    def capabilities(self) -> t.ClientCapabilities:
        """What the client declared."""
        return self._context.capabilities

    @property
    def revision(self) -> str:
        """The revision that this client speaks."""
        return self._context.revision

    @property
    def session(self) -> Session | None:
        """Where the revision has sessions; None where each request stands for itself."""
        return self._context.session

    @property
    def state(self) -> Any:
        """What the server's lifespan gave."""
        return self._context.state

    # ------------------------------------------------------------ while it runs

    def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report progress to a caller that wants it; what does not go up is left out (D32)."""
        self.wait(lambda: self._context.progress(progress, total, message))

    report_progress = progress  # as other libraries call it

    @hinted
    def log(self, level: t.LoggingLevel, data: Any, logger: str | None = None) -> None:
        """Send a log message to a caller that wants this level. Never put a secret into it."""
        self.wait(lambda: self._context.log(level, data, logger))

    @hinted
    def debug(self, data: Any, logger: str | None = None) -> None:
        """Log at this level."""
        self.log("debug", data, logger)

    @hinted
    def info(self, data: Any, logger: str | None = None) -> None:
        """Log at this level."""
        self.log("info", data, logger)

    @hinted
    def notice(self, data: Any, logger: str | None = None) -> None:
        """Log at this level."""
        self.log("notice", data, logger)

    @hinted
    def warning(self, data: Any, logger: str | None = None) -> None:
        """Log at this level."""
        self.log("warning", data, logger)

    @hinted
    def error(self, data: Any, logger: str | None = None) -> None:
        """Log at this level."""
        self.log("error", data, logger)

    @hinted
    def critical(self, data: Any, logger: str | None = None) -> None:
        """Log at this level."""
        self.log("critical", data, logger)

    @hinted
    def alert(self, data: Any, logger: str | None = None) -> None:
        """Log at this level."""
        self.log("alert", data, logger)

    @hinted
    def emergency(self, data: Any, logger: str | None = None) -> None:
        """Log at this level."""
        self.log("emergency", data, logger)

    def read(self, uri: str) -> t.ReadResourceResult:
        """Read one of this server's own resources, as this caller."""
        return self.wait(lambda: self._context.read(uri))

    def hang_up(self) -> None:
        """Let a long call's connection go; a client that can comes back for the rest."""
        self.wait(self._context.hang_up)

    # ------------------------------------------------------------ questions

    @overload
    def elicit(self, message: str, type: type[T], *, key: str | None = None) -> T: ...
    @overload
    def elicit(self, message: str, type: Any, *, key: str | None = None) -> Any: ...
    @hinted
    def elicit(self, message: str, type: Any, *, key: str | None = None) -> Any:
        """Ask the user for a value of a type. Raises `Declined`."""
        return self._put(Ask(message, type, key=key))

    def elicit_form(
        self, message: str, form: t.ElicitSchema, *, key: str | None = None
    ) -> dict[str, t.ElicitValue]:
        """Show the user a form that you wrote yourself. Raises `Declined`."""
        return self._put(AskForm(message, form, key=key))

    def elicit_url(
        self,
        message: str,
        url: str,
        *,
        id: str | None = None,
        key: str | None = None,
        by_error: bool = False,
    ) -> None:
        """Send the user to an address; see `Context.elicit_url`. Raises `Declined`."""
        visit = AskVisit(message, url, id=id, key=key)
        if by_error:
            self._context.visit_by_error(visit)
        self._put(visit)

    def visited(self, id: str) -> None:
        """Tell the client that the visit of this id is over, where a revision can say so."""
        self.wait(lambda: self._context.visited(id))

    @hinted
    def sample(
        self,
        prompt: Prompting,
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
        """Let the client's model write something. Raises `Declined`."""
        question = Sample(
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
        return cast("Sampled", self._put(question))

    def roots(self, *, key: str | None = None) -> list[t.Root]:
        """The folders that the client lets this server know of."""
        return self._put(Roots(key=key))

    @overload
    def ask(self, one: Asked[A], /) -> tuple[A]: ...
    @overload
    def ask(self, one: Asked[A], two: Asked[B], /) -> tuple[A, B]: ...
    @overload
    def ask(self, one: Asked[A], two: Asked[B], three: Asked[C], /) -> tuple[A, B, C]: ...
    @overload
    def ask(self, *questions: Asked[Any]) -> tuple[Any, ...]: ...
    def ask(self, *questions: Asked[Any]) -> tuple[Any, ...]:
        """Ask several questions in one round; the answers in their order. Raises `Declined`."""
        return self.wait(lambda: put_all(self._context, questions, threaded=True))

    def _put(self, asked: Asked[T]) -> T:
        return self.wait(lambda: self._context.put(asked, threaded=True))

    def once(self, key: str, make: Callable[[], T]) -> T:
        """Run something once in all the runs of this call; see `Context.once`."""
        kept = self._context.kept(key)
        if kept is not None:
            return cast("T", msgspec.json.decode(kept))
        return self._context.keep(key, make())
