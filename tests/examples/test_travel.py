"""The travel example, which `scripts/demo` walks through: over a pipe, and over HTTP."""

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from colonnade.protocol.revision import ChangeNotifications, InputRequests, OutputRoot, Revision
from examples.example_client import EXAMPLES, WAIT_S, run_example
from http_client import Caller
from live import live_for

JSON = dict[str, Any]
CLOSED = "the office is closed\n"
CAN: JSON = {"elicitation": {}}
FIND: JSON = {"name": "find", "arguments": {"start": "Berlin", "end": "Prague"}}
BOOK: JSON = {"name": "book", "arguments": {"train": "EC 171"}}
SEAT = {"action": "accept", "content": {"car": 3, "window": False}}
BOOKED = {"train": "EC 171", "seat": {"car": 3, "window": False}}
TRAIN = {"number": "EC 171", "leaves": "07:16", "euros": 38}


def test_a_train_is_found_and_booked_over_a_pipe(revision: Revision) -> None:
    with run_example("travel.py", revision, errors=CLOSED) as client:
        client.answer = lambda method, params: SEAT
        assert json.loads(client.text("find", **FIND["arguments"])) == [TRAIN]
        assert client.text("compare") == "EC 171 costs 38 euros"
        if not revision.elicitation.modes:
            assert "needs elicitation" in client.failure("book", train="EC 171")
            return
        client.subscribe(resourceSubscriptions=["trips://mine"])
        assert json.loads(client.text("book", train="EC 171")) == BOOKED
        assert (
            client.wait_for_notification("notifications/resources/updated")["uri"] == "trips://mine"
        )
        (read,) = client.ask("resources/read", {"uri": "trips://mine"})["contents"]
        assert json.loads(read["text"]) == [BOOKED]


# ---------------------------------------------------------------- HTTP


@contextmanager
def serving() -> Generator[int]:
    """The example as a process on a free port."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", str(EXAMPLES / "travel.py"), "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        said = process.stdout.readline().strip()
        assert said.startswith("travel 1.0 on http://127.0.0.1:"), process.stderr.read()
        yield int(said.removesuffix("/mcp").rpartition(":")[2])
        process.terminate()
        assert (process.wait(WAIT_S), process.stderr.read()) == (0, CLOSED)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


@live_for(5 * WAIT_S)
async def test_the_same_over_http(revision: Revision) -> None:
    with serving() as port:
        async with Caller(port) as caller:
            if revision.handshake:
                await caller.initialize(revision.date, CAN)
            assert (
                revision.change_notifications is ChangeNotifications.SESSION
                or caller.session is None
            )
            result = await call(caller, revision, FIND)
            wanted = {OutputRoot.OBJECT: {"result": [TRAIN]}, OutputRoot.ANY: [TRAIN]}
            assert result.get("structuredContent") == wanted.get(revision.output_root)
            booked = await call(caller, revision, BOOK)
            if revision.elicitation.modes:
                assert booked["structuredContent"] == BOOKED
            else:
                assert booked["isError"] is True


async def call(caller: Caller, revision: Revision, params: JSON) -> JSON:
    """The result of a call; a question is answered in the way of the revision."""
    if revision.input_requests is InputRequests.AS_REQUEST:
        wire, response = await caller.asking("tools/call", params)
        if not response.is_stream:
            await response.read()
            wire.close()
            return response.json["result"]
        while "method" in (message := await response.message()):
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": SEAT}
            assert (await caller.post(answer)).status == 202
        wire.close()
        return message["result"]
    meta = {"io.modelcontextprotocol/clientCapabilities": CAN}
    result = (await caller.modern("tools/call", params, meta=meta)).json["result"]
    if result["resultType"] == "complete":
        return result
    answers = {"inputResponses": dict.fromkeys(result["inputRequests"], SEAT)}
    again = params | answers | {"requestState": result["requestState"]}
    return (await caller.modern("tools/call", again, meta=meta)).json["result"]
