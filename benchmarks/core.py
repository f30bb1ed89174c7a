"""What the protocol costs: a `tools/call` of 2026-07-28 over HTTP, from bytes to bytes.

Three ways to the same answer, in turns in one run:

    colonnade   gate, decode and split, recognise, header rules, dispatch, read the arguments,
              call, shape, encode: everything but the socket
    bare      msgspec.json.decode, a dict look-up, the call, msgspec.json.encode: no checks
    typed     the same with a struct for every object, built once: the least that msgspec can do

    scripts/bench core [ROUNDS]

Ends with 1 where colonnade takes more than three times what bare does.
"""

import json
import statistics
import sys
import timeit
from collections.abc import Callable
from time import process_time
from typing import Any

import msgspec

from colonnade.protocol import jsonrpc
from colonnade.protocol import types as t
from colonnade.protocol.codec.encode import Encoder
from colonnade.protocol.exchange import Exchange
from colonnade.protocol.http.param_headers import check_params
from colonnade.protocol.http.rules import admit, status_of, version_headers
from colonnade.protocol.http.security import EndpointChecks, HostPolicy
from colonnade.protocol.negotiation import PeerDetector
from colonnade.protocol.revision import EVERY, JULY_2026
from colonnade.signatures.signature import Signature

# What `scripts/bench core` promises, against `bare`.
MOST_TIMES_BARE = 3.0
# A busy machine disturbs a round, not all of them; the least of nine is steady to some 3 %.
ROUNDS = 9
# A round of one way takes about a tenth of a second.
CALLS_A_ROUND = 20_000

BODY = msgspec.json.encode(
    {
        "jsonrpc": "2.0",
        "id": 7,
        "method": "tools/call",
        "params": {
            "_meta": {
                t.PROTOCOL_VERSION_KEY: JULY_2026.date,
                t.CLIENT_INFO_KEY: {"name": "bench", "version": "1.0"},
                t.CLIENT_CAPABILITIES_KEY: {},
            },
            "name": "add",
            "arguments": {"a": 2, "b": 3},
        },
    }
)
HEADERS = {
    b"host": b"127.0.0.1:8000",
    b"accept": b"application/json, text/event-stream",
    b"content-type": b"application/json",
    b"mcp-protocol-version": JULY_2026.date.encode(),
    b"mcp-method": b"tools/call",
    b"mcp-name": b"add",
}


def add(a: int, b: int) -> int:
    return a + b


# ---------------------------------------------------------------- colonnade

GATE = EndpointChecks(HostPolicy.for_bind("127.0.0.1", 8000), ("POST",))
RECOGNISER = PeerDetector(EVERY)
SHAPER = Encoder(JULY_2026, t.Implementation(name="bench", version="1.0"))
TOOLS = {"add": (add, Signature(add))}


def colonnade(body: bytes) -> bytes | None:
    GATE.check("POST", HEADERS)
    request = jsonrpc.decode(body)
    assert isinstance(request, jsonrpc.Request)
    admission = admit(request, HEADERS, RECOGNISER)
    assert admission is not None
    head = admission.params
    exchange = Exchange(request, head, admission.method, admission.peer, SHAPER)
    function, signature = TOOLS[head.name]
    check_params((), HEADERS, head.arguments)
    arguments = signature.decode_plain(head.arguments)
    assert arguments is not None
    value = function(**arguments)
    result = t.CallToolResult(content=[t.TextContent(text=str(value))], structured_content=value)
    status_of(None, admission.peer.revision)
    return exchange.settle(result)


# ---------------------------------------------------------------- bare

FUNCTIONS = {"add": add}
SERVER_INFO = {t.SERVER_INFO_KEY: {"name": "bench", "version": "1.0"}}


def bare(body: bytes) -> bytes:
    message = msgspec.json.decode(body)
    params = message["params"]
    value = FUNCTIONS[params["name"]](**params["arguments"])
    return msgspec.json.encode(
        {
            "jsonrpc": "2.0",
            "id": message["id"],
            "result": {
                "resultType": "complete",
                "_meta": SERVER_INFO,
                "content": [{"type": "text", "text": str(value)}],
                "structuredContent": value,
            },
        }
    )


# ---------------------------------------------------------------- typed


class Arguments(msgspec.Struct):
    a: int
    b: int


class Params(msgspec.Struct):
    name: str
    arguments: Arguments


class Call(msgspec.Struct):
    id: int | str
    params: Params


class Text(msgspec.Struct, tag_field="type", tag="text"):
    text: str


class Result(msgspec.Struct, rename="camel"):
    result_type: str
    meta: msgspec.Raw = msgspec.field(name="_meta")
    content: list[Text]
    structured_content: int


class Answer(msgspec.Struct):
    jsonrpc: str
    id: int | str
    result: Result


DECODE_CALL = msgspec.json.Decoder(Call).decode
ENCODE = msgspec.json.Encoder().encode
RAW_SERVER_INFO = msgspec.Raw(ENCODE(SERVER_INFO))


def typed(body: bytes) -> bytes:
    call = DECODE_CALL(body)
    arguments = call.params.arguments
    value = FUNCTIONS[call.params.name](arguments.a, arguments.b)
    result = Result("complete", RAW_SERVER_INFO, [Text(str(value))], value)
    return ENCODE(Answer("2.0", call.id, result))


# ---------------------------------------------------------------- the steps of colonnade


def steps() -> dict[str, Callable[[], object]]:
    """Each step by itself, with what the steps before it left."""
    request = jsonrpc.decode(BODY)
    assert isinstance(request, jsonrpc.Request)
    admission = admit(request, HEADERS, RECOGNISER)
    assert admission is not None
    head, row, peer = admission.params, admission.method, admission.peer
    function, signature = TOOLS["add"]
    result = t.CallToolResult(content=[t.TextContent(text="5")], structured_content=5)
    shaped = SHAPER.result(result)
    return {
        "gate: origin, host, types": lambda: GATE.check("POST", HEADERS),
        "decode the frame, split params": lambda: jsonrpc.decode(BODY),
        "admit: recognise, headers": lambda: admit(request, HEADERS, RECOGNISER),
        "  of it: signs": lambda: version_headers(HEADERS),
        "  of it: recognise": lambda: RECOGNISER.detect(
            request, head.meta, version_headers(HEADERS)
        ),
        "open the exchange": lambda: Exchange(request, head, row, peer, SHAPER),
        "read the arguments and call": lambda: function(
            **signature.decode_plain(head.arguments) or {}
        ),
        "make the result": lambda: t.CallToolResult(
            content=[t.TextContent(text="5")], structured_content=5
        ),
        "shape and encode": lambda: SHAPER.result(result),
        "write the reply": lambda: jsonrpc.encode_result(request.raw_id, shaped),
    }


# ---------------------------------------------------------------- the measuring


def in_turns(
    ways: dict[str, Callable[[], object]], rounds: int, calls: int
) -> dict[str, list[float]]:
    """Microseconds a call, for each way in each round."""
    # The time of this process: what others do on the machine in between does not count.
    timers = {name: timeit.Timer(way, timer=process_time) for name, way in ways.items()}
    for timer in timers.values():
        timer.timeit(calls // 10)
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, timer in timers.items():
            found[name].append(timer.timeit(calls) / calls * 1e6)
    return found


def spread(ours: list[float], theirs: list[float]) -> tuple[float, float, float]:
    """The median of the ratios of each round, the least and the most."""
    ratios = [our / their for our, their in zip(ours, theirs, strict=True)]
    return statistics.median(ratios), min(ratios), max(ratios)


def main(rounds: int = ROUNDS) -> int:
    ways: dict[str, Callable[[bytes], bytes | None]] = {
        "colonnade": colonnade,
        "bare": bare,
        "typed": typed,
    }
    answers: list[Any] = [json.loads(way(BODY) or b"") for way in ways.values()]
    assert answers[0] == answers[1] == answers[2], answers

    found = in_turns(
        {name: lambda way=way: way(BODY) for name, way in ways.items()}, rounds, CALLS_A_ROUND
    )
    print(
        f"tools/call at {JULY_2026.date}, {len(BODY)} bytes in; {rounds} rounds in turns; Python {sys.version.split()[0]}, msgspec {msgspec.__version__}"
    )
    print(f"{'':32}{'best µs':>9}{'median µs':>11}   times bare (least to most)   times typed")
    for name, times in found.items():
        row = f"{name:32}{min(times):9.2f}{statistics.median(times):11.2f}"
        for other in ("bare", "typed"):
            middle, least, most = spread(times, found[other])
            row += f"   {middle:5.2f} ({least:.2f} to {most:.2f})      "
        print(row.rstrip())

    print("\nsteps of colonnade, each by itself")
    for name, times in in_turns(steps(), rounds, CALLS_A_ROUND).items():
        print(f"{name:32}{min(times):9.2f}{statistics.median(times):11.2f}")

    ratio = spread(found["colonnade"], found["bare"])[0]
    kept = ratio <= MOST_TIMES_BARE
    print(
        f"\n{ratio:.2f} times bare; the promise is at most {MOST_TIMES_BARE}: {'kept' if kept else 'BROKEN'}"
    )
    return 0 if kept else 1


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].isdigit():
        sys.exit("usage: scripts/bench core [ROUNDS]   (nine rounds, if not said)")
    sys.exit(main(*map(int, sys.argv[1:2])))
