"""How a server is run: on stdio, or over HTTP with its ASGI application.

Rules: transports are imported when they are used.
"""

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast, overload

from colonnade.errors import LocalProtocolError
from colonnade.ports import Service
from colonnade.server.hints import Http, check_transport

if TYPE_CHECKING:  # imported on first use, to keep `import colonnade` fast
    from typing import Unpack

    from colonnade.server.options import AsgiOptions, HttpOptions, HttpRunOptions
    from colonnade.transport.http_server.app import HttpApp


class RunnableService:
    """The methods `run` and `serve` of a service: of `Server`, and of what is used like one."""

    # The name of the class in error messages.
    class_label: ClassVar[str] = "Server"

    def asgi(self, **options: "Unpack[AsgiOptions]") -> "HttpApp":
        """The service as an ASGI application."""
        raise NotImplementedError

    @overload
    def run(self, transport: Literal["stdio"] = "stdio") -> None: ...
    @overload
    def run(self, transport: Http, **options: "Unpack[HttpRunOptions]") -> None: ...
    def run(self, transport: str = "stdio", **options: Any) -> None:
        """Serve until interrupted: on stdio, or `run("http", port=8000)`.

        On HTTP the URL is printed to standard output, unless `started` is given: it is called with
        the URL instead. Options that are not given are read from the environment
        (`COLONNADE_PORT=9000`). On stdio a message is printed if stdin is a terminal. Raises
        exceptions of the lifespan, and `LocalProtocolError` if the address cannot be bound.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise LocalProtocolError(
                f"an event loop is already running: use `await server.serve({transport!r})`"
            )
        check_transport(f"{self.class_label}.run", transport, options)
        if transport == "stdio":
            from colonnade.transport.stdio import run_stdio

            run_stdio(cast("Service", self), **options)
        else:
            from colonnade.server.options import run_settings, take_app_options
            from colonnade.transport.http_server.runner import AddressError, run

            settings = run_settings(options)
            try:
                run(self.asgi(**take_app_options(settings)), **settings)
            except AddressError as error:  # without the frames of the event loop
                raise error.with_traceback(None) from None

    @overload
    async def serve(self, transport: Literal["stdio"] = "stdio") -> None: ...
    @overload
    async def serve(self, transport: Http, **options: "Unpack[HttpOptions]") -> None: ...
    async def serve(self, transport: str = "stdio", **options: Any) -> None:
        """Serve in the running event loop until cancelled, without output: `started` is called.

        After cancellation no task or connection of the server is left in the loop.
        """
        check_transport(f"{self.class_label}.serve", transport, options)
        if transport == "stdio":
            from colonnade.transport.stdio import serve_stdio

            await serve_stdio(cast("Service", self), **options)
        else:
            from colonnade.server.options import take_app_options
            from colonnade.transport.http_server.runner import serve

            await serve(self.asgi(**take_app_options(options)), **options)
