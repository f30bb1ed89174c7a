"""A host: three servers of three revisions, over three transports, and a model with their tools;
then a gateway in front of one of them.

    python examples/hosting.py

`scripts/demo` runs it. Only the model is fake: `Script` has its responses, and reads the results of
its calls as a model does. Needs no network and no keys. On a terminal you answer the elicitation
requests of the servers; otherwise they are answered by the script.
"""

import asyncio
import contextlib
import io
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import booking
import travel

from colonnade import Declined, Gateway, Host, connect
from colonnade.host.agent.loop import ModelCall
from colonnade.host.input_requests import HostInputRequest
from colonnade.host.servers.session import Status

HERE = Path(__file__).parent
WIDTH = 98
STYLED = sys.stdout.isatty() and "NO_COLOR" not in os.environ
ANSWERS = {"travel": {"car": 12, "window": True}, "booking": {"row": 7, "place": "window"}}
ONE_AT_A_TIME = asyncio.Lock()
# Output during a prompt is shown after it.
WAITING: list[str] = []
# A line of each file that the demo has shown in action.
CODE = {
    "weather.py": "Did you mean",
    "travel.py": 'Ask("',
    "booking.py": 'Ask("',
    "gateway.py": "gateway = Gateway(",
    "hosting.py": "async with Host(",
}


def title(words: str) -> None:
    print(f"\n\033[1m{words}\033[0m" if STYLED else f"\n{words}")


def line(words: str) -> None:
    words = " ".join(words.split())
    print(f"  {words if len(words) <= WIDTH else words[: WIDTH - 1] + '…'}", flush=True)


def tell(words: str) -> None:
    """Print a line, after the current prompt if there is one."""
    if ONE_AT_A_TIME.locked():
        WAITING.append(words)
    else:
        line(words)


class Stderr(io.TextIOBase):
    """The stderr of the travel server, as a part of the output."""

    def write(self, text: str) -> int:
        for words in filter(None, text.splitlines()):
            tell(f"travel stderr: {words}")
        return len(text)


# ---------------------------------------------------------------- the model


class Script:
    """A fake model: one response after another, which depend on the results of its calls."""

    def __init__(self) -> None:
        self._steps = [self.search, self.call, self.correct, self.book, self.summarise]
        self._shown: list[str] = []

    def __call__(self, messages: list[Any], tools: list[Any]) -> Any:
        names = [tool["function"]["name"] for tool in tools]
        if names != self._shown:
            self._shown = names
            tell(f"tools for the model ({len(tools)}): {', '.join(names)}")
        results = [message["content"] for message in messages if message["role"] == "tool"]
        return self._steps.pop(0)(results)

    def search(self, _: list[str]) -> Any:
        return calls(
            ("find_tools", {"words": "weather forecast for a city", "limit": 1}),
            ("find_tools", {"words": "find and book trains", "limit": 2}),
            ("find_tools", {"words": "book a flight", "limit": 1}),
        )

    def call(self, _: list[str]) -> Any:
        return calls(
            ("weather__forecast", {"city": "Olso", "days": 1}),
            ("travel__find", {"start": "Paris", "end": "Lyon"}),
        )

    def correct(self, results: list[str]) -> Any:
        city = results[-2].split("Did you mean '")[1].split("'")[0]
        return calls(("weather__forecast", {"city": city, "days": 1}))

    def book(self, results: list[str]) -> Any:
        train = json.loads(results[-2])[0]
        return calls(
            ("travel__book", {"train": train["number"]}), ("booking__book", {"flight": "SK1"})
        )

    def summarise(self, results: list[str]) -> str:
        high = json.loads(results[-3])["days"][0]["high"]
        trip, ticket = booked(results[-2]), booked(results[-1])
        train, flight = "No train to Lyon", "no flight to Oslo"
        if trip:
            train = f"{trip['train']} to Lyon, car {trip['seat']['car']}"
        if ticket:
            flight = f"then {ticket['flight']} to Oslo, row {ticket['seat']['row']}"
        return f"{train}; {flight}. It is {high:g} degrees there: take a coat."


def booked(result: str) -> Any:
    """The booking in a result; None if the user declined."""
    with contextlib.suppress(ValueError):
        return json.loads(result)
    return None


def calls(*wanted: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """A response of Chat Completions with these tool calls."""
    made = [
        {"type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for name, arguments in wanted
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


# ---------------------------------------------------------------- output


def show_call(call: ModelCall) -> None:
    given = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
    tell(f"-> {call.name}({given})")


def show_result(call: ModelCall) -> None:
    if not call.server:
        found = [text[2:].split("(")[0] for text in call.result.text.splitlines()[1:]]
        tell(f"-> {call.name}(words={call.arguments['words']!r}): {', '.join(found)}")
        return
    mark = "<- error:" if call.result.is_error else "<-"
    tell(f"{mark} {call.name}: {call.result.text}")


async def on_input_request(request: HostInputRequest) -> Any:
    """The callback for elicitation requests of all servers, with the server and the call."""
    names = ", ".join(call.name for call in request.calls)
    params: Any = request.params
    async with ONE_AT_A_TIME:
        line(f"?? elicitation from {request.server}, for {names}: {params.message}")
        content: dict[str, Any] = dict(ANSWERS[request.server])
        try:
            if sys.stdin.isatty() and sys.stdout.isatty():
                fields = params.requested_schema.properties
                for name, default in content.items():
                    content[name] = await prompt(name, fields[name], default)
            line(f"!! {json.dumps(content)}")
        finally:
            show_waiting()
    return content


def show_waiting() -> None:
    """Print what happened during the prompt."""
    for words in WAITING:
        line(words)
    WAITING.clear()


async def prompt(name: str, field: Any, default: Any) -> Any:
    """Prompt for one field until the value is valid. Raises `Declined` for Ctrl-D."""
    words = {"yes": True, "no": False}
    choices = words if field.type == "boolean" else {word: word for word in field.enum or ()}
    takes = " or ".join(choices) or "a number"
    brackets = next((word for word, value in choices.items() if value == default), str(default))
    while True:
        said = await typed(f"     {name} ({takes}; Ctrl-D declines) [{brackets}] ")
        if said is None:
            print()
            line("!! declined")
            raise Declined("the user declined")
        said = said.strip().lower() or brackets
        fits = [value for word, value in choices.items() if word.startswith(said)]
        if len(fits) == 1 or (not choices and said.isdecimal()):
            return fits[0] if fits else int(said)
        line(f"   {said!r} is not {takes}")


async def typed(words: str) -> str | None:
    """Read a line without blocking the event loop; None at the end of the input."""
    print(words, end="", flush=True)
    loop = asyncio.get_running_loop()
    done: asyncio.Future[bytes] = loop.create_future()

    def read() -> None:
        data = os.read(sys.stdin.fileno(), 4096)  # a terminal returns one line
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(lambda: done.done() or done.set_result(data))

    # A daemon thread: the end of the program does not wait for input.
    threading.Thread(target=read, daemon=True).start()
    return (await done).decode("utf-8", "replace") or None


class Log(logging.Handler):
    """The log of the host, as a part of the output."""

    def emit(self, record: logging.LogRecord) -> None:
        tell(f"log: {record.getMessage()}")


# ---------------------------------------------------------------- the demo


@contextlib.asynccontextmanager
async def serving() -> AsyncGenerator[str]:
    """The travel server over HTTP, on a free port of this machine."""
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    ctrl_c = signal.getsignal(signal.SIGINT)
    task = asyncio.create_task(
        travel.server.serve("http", port=0, started=lambda site: started.set_result(site.url))
    )
    try:
        url = await started
        signal.signal(signal.SIGINT, ctrl_c)  # Ctrl-C ends the program, not only this server
        yield url
    finally:
        task.cancel()
        await asyncio.wait([task])


async def show_servers(host: Host, reached: dict[str, str]) -> None:
    title("One host, three servers")
    tools = await host.list_tools()
    for status in host.status():
        names = ", ".join(tool.original for tool in tools if tool.server == status.key)
        print(f"  {status.key:8} {status.revision}  {reached[status.key]:27} {names}")


async def show_end(host: Host, crashed: asyncio.Event) -> None:
    title("kill -9 of one server")
    before = next(status for status in host.status() if status.key == "weather")
    assert before.pid is not None
    os.kill(before.pid, signal.SIGKILL)
    await crashed.wait()
    there = await host.call_tool("travel__find", {"start": "Berlin", "end": "Prague"})
    line(f"travel still works: {there.text}")
    again = await host.call_tool("weather__forecast", {"city": "Cairo", "days": 1})
    after = next(status for status in host.status() if status.key == "weather")
    assert after.pid != before.pid
    line(f"weather was restarted: {again.text}")


async def show_gateway(url: str) -> None:
    """A form of the travel server, which sends it as a request, reaches a client that is asked in
    results."""
    title("A gateway, for a client of 2026-07-28 in front of the server of 2025-11-25")

    def on_elicit(params: Any) -> Any:
        line(f"?? input_required at the client: {params.message}")
        line(f"!! {json.dumps(ANSWERS['travel'])}")
        return ANSWERS["travel"]

    gateway = Gateway(Host({"travel": {"url": url, "revision": "2025-11-25"}}))
    async with connect(gateway, revision="2026-07-28", on_elicit=on_elicit) as client:
        found = await client.call_tool("travel__find", {"start": "Berlin", "end": "Prague"})
        train = json.loads(found.text)[0]["number"]
        line(f"-> travel__book(train={train!r})")
        booked = await client.call_tool("travel__book", {"train": train})
        line(f"the client has the result: {booked.text}")


def show_code() -> None:
    title("The code")
    for name, words in CODE.items():
        text = (HERE / name).read_text("utf-8")
        lines = [one.strip() for one in text.splitlines() if words in one]
        found = next(one for one in lines if not one.startswith('"'))  # not CODE itself
        print(f"  examples/{name:11} {found}")


async def main() -> None:
    async with serving() as url:
        weather = {"command": sys.executable, "args": [str(HERE / "weather.py")]}
        servers = {
            "weather": {**weather, "revision": "2025-06-18"},
            "travel": {"url": url, "revision": "2025-11-25"},
            "booking": booking.server,
        }
        reached = {"weather": "a process (stdio)", "travel": url, "booking": "in memory"}
        crashed = asyncio.Event()

        def on_event(status: Status) -> None:
            if status.crashes:
                crashed.set()

        async with Host(servers, on_input_request=on_input_request, on_event=on_event) as host:
            await show_servers(host, reached)
            request = "Take me to Lyon by train, and on to Oslo by plane. Is it warm there?"
            title(request)
            run = await host.run(
                Script(), request, max_tools=8, on_call=show_call, on_result=show_result
            )
            title(run.text)
            line(f"{run.rounds} rounds, {len(run.calls)} calls, {len(run.messages)} messages")
            await show_end(host, crashed)
        await show_gateway(url)


if __name__ == "__main__":
    logging.getLogger("colonnade").addHandler(Log())
    try:
        with contextlib.redirect_stderr(Stderr()):
            asyncio.run(main())
        show_code()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # output was closed, as by `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
