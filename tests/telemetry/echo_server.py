"""A server for tests of traces: it records into a file, and its tools say which trace they run in."""

import asyncio
import json
import os
import sys
from collections.abc import Sequence

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from colonnade import Context, Server, Telemetry, ToolError


class FileExporter(SpanExporter):
    """Appends each span to a file, as a line of JSON."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with open(os.environ["SPANS"], "a", encoding="utf-8") as file:
            for span in spans:
                file.write(json.dumps(json.loads(span.to_json())) + "\n")
        return SpanExportResult.SUCCESS


provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(FileExporter()))
server = Server("echo", telemetry=Telemetry(tracer_provider=provider))


@server.tool
async def current_trace() -> str:
    """The trace id that this tool runs in."""
    return f"{trace.get_current_span().get_span_context().trace_id:032x}"


@server.tool
def current_trace_in_a_thread() -> str:
    """The same, in a worker thread."""
    return f"{trace.get_current_span().get_span_context().trace_id:032x}"


@server.tool
async def ask(ctx: Context) -> str:
    """Ask the user twice."""
    first = await ctx.elicit("First?", str)
    return first + await ctx.elicit("Second?", str)


@server.tool
async def fail() -> str:
    """Fail."""
    raise ToolError("no")


@server.tool
async def wait() -> str:
    """Never finish."""
    await asyncio.Event().wait()
    return ""


@server.prompt
async def greet(name: str) -> str:
    """Greet."""
    return name


@server.resource("notes://one")
async def one() -> str:
    """One note."""
    return "one"


if __name__ == "__main__":
    if "http" in sys.argv:
        server.run("http", port=0)
    else:
        server.run()
