"""Functions as bad as they get: they block, never return, raise what nobody catches, return too much.

Each call has an answer, nothing of the author's is told, and the next call is served.
"""

import asyncio
import json
import os
import resource
import signal
import subprocess
from typing import Any

import pytest

from hostile.child import Child, child
from hostile.items import ERAS, MODERN, SESSION, Era
from hostile.sender import LEAKS, HostileSender, call, hostile_sender, name_header
from hostile.target import KINDS
from http_client import Response
from live import live, until

each_era = pytest.mark.parametrize("era", ERAS, ids=lambda era: era.date)
TOOLS = ("fails", "fails_in_a_thread", "fails_inline", "fails_with_a_context")
MEGABYTE = 1 << 20
WAIT_S = 60.0


async def ask(attack: HostileSender, tool: str, **arguments: Any) -> Response:
    name = name_header(attack.era, tool)
    return (await attack.post(call(attack.era, tool, **arguments), mcp_name=name))[1]


async def send(attack: HostileSender, method: str, about: str, /, **params: Any) -> Response:
    """Any request, as this era sends it; what it is about is mirrored in a header."""
    said = {**params, "_meta": json.loads(b"{%b}" % attack.era.meta)}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": said}
    head = {"mcp_method": method, "mcp_name": about} if attack.era.modern else {}
    return (await attack.post(json.dumps(body).encode(), None, **head))[1]


def failed(attack: HostileSender, answer: Response) -> None:
    """A failure that says an id, and nothing else."""
    assert answer.status == 200
    attack.look(answer.body)
    found = answer.json
    words = found["error"]["message"] if "error" in found else answer.text
    assert "failed (id" in words
    if "error" in found:
        assert answer.code == -32603
    else:
        assert found["result"]["isError"]


# ---------------------------------------------------------------- what they raise


@each_era
@pytest.mark.parametrize("kind", KINDS)
@live
async def test_whatever_is_raised_ends_one_call_with_an_id(kind: str, era: Era) -> None:
    async with hostile_sender(era) as attack:
        for tool in TOOLS:
            failed(attack, await ask(attack, tool, kind=kind))
        failed(
            attack, await send(attack, "resources/read", f"fails://{kind}", uri=f"fails://{kind}")
        )
        arguments = {"kind": kind}
        name = "fails_as_a_prompt"
        failed(attack, await send(attack, "prompts/get", name, name=name, arguments=arguments))
        wanted = {
            "ref": {"type": "ref/prompt", "name": name},
            "argument": {"name": "kind", "value": kind},
        }
        failed(attack, await send(attack, "completion/complete", name, **wanted))
        await attack.is_served()


@each_era
def test_whatever_is_raised_on_a_pipe_does_not_end_the_process(era: Era) -> None:
    with child() as server:
        server.open(era)
        for kind in KINDS:
            for tool in TOOLS:
                answer = server.call(era, tool, kind=kind)
                assert b"failed (id" in json.dumps(answer).encode()
                assert not any(leak in json.dumps(answer).encode() for leak in LEAKS)
        assert server.text(era, "echo", value=1) == "1"
        server.end()


# ---------------------------------------------------------------- what they return


@each_era
@live
async def test_a_result_that_is_too_large_is_refused_in_words(era: Era) -> None:
    size = 40 * MEGABYTE
    async with hostile_sender(era) as attack:
        answer = await ask(attack, "huge", size=size)
        assert answer.json["result"]["isError"]
        words = [answer.text]
        for method, name, params in (
            ("resources/read", f"huge://{size}", {"uri": f"huge://{size}"}),
            (
                "prompts/get",
                "huge_prompt",
                {"name": "huge_prompt", "arguments": {"size": str(size)}},
            ),
        ):
            answer = await send(attack, method, name, **params)
            assert (answer.status, answer.code) == (200, -32603)
            words.append(answer.json["error"]["message"])
        assert all("request less" in one for one in words)
        assert len((await ask(attack, "huge", size=4 * MEGABYTE)).text) == 4 * MEGABYTE
        await attack.is_served()


@each_era
@live
async def test_a_result_that_json_cannot_carry_is_sent_as_words_or_is_a_failure(era: Era) -> None:
    async with hostile_sender(era) as attack:
        failed(attack, await ask(attack, "deep"))
        assert (await ask(attack, "circle")).text == "[[...]]"
        assert "nan" in (await ask(attack, "no_json")).text
        await attack.is_served()


def test_more_than_there_is_memory_for_is_a_failure() -> None:
    limit = 2048 * MEGABYTE
    with child(wrapped=("sh", "-c", f'ulimit -v {limit // 1024}; exec "$@"', "sh")) as server:
        server.open(MODERN)
        for _ in range(3):
            answer = server.call(MODERN, "huge", size=2 * limit)
            assert "failed (id" in answer["result"]["content"][0]["text"]
        assert server.text(MODERN, "echo", value=1) == "1"
        server.end()


# ---------------------------------------------------------------- what they hold


@each_era
@live
async def test_what_never_returns_is_cut_at_its_time(era: Era) -> None:
    async with hostile_sender(era) as attack:
        answer = await ask(attack, "never")
        assert answer.json["result"]["isError"]
        assert "did not finish within 0.2 s" in answer.text
        assert (await ask(attack, "stubborn")).status == 200
        await attack.is_served()


def test_threads_that_nobody_can_end_keep_neither_the_others_nor_the_process() -> None:
    """More of them than there are places for threads that compute."""
    with child() as server:
        server.open(MODERN)
        ids = {server.ask(MODERN, "stuck") for _ in range(12)}
        while ids:
            answer = server.message()
            assert "did not finish within" in answer["result"]["content"][0]["text"]
            ids.remove(answer["id"])
        assert server.text(MODERN, "in_a_thread") == "done"
        assert server.text(MODERN, "echo", value=1) == "1"
        server.end()


# ---------------------------------------------------------------- the same, over a port


def served(server: Child) -> int:
    return int(server.line())


@each_era
@live
async def test_a_loop_that_is_held_serves_everybody_afterwards(era: Era) -> None:
    with child("http") as server:
        attack = HostileSender(served(server), era)
        await attack.open()
        holding = asyncio.create_task(ask(attack, "block"))
        others = [
            attack.post(era.frame().replace(b'"id":1', b'"id":%d' % id)) for id in range(10, 30)
        ]
        answers = [answer for _, answer in await asyncio.gather(*others)]
        assert [answer.text for answer in answers] == ["1"] * 20
        assert (await holding).text == "unblocked"
        await attack.is_served()
        await attack.close()
        os.kill(server.process.pid, signal.SIGTERM)
        assert server.process.wait(WAIT_S) == 0


@live
async def test_a_server_out_of_descriptors_serves_again_when_there_are_some() -> None:
    few = 48
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > few
    with child("http", wrapped=("sh", "-c", f'ulimit -n {few}; exec "$@"', "sh")) as server:
        attack = HostileSender(served(server), MODERN)
        await attack.is_served()
        wires = [await attack.caller.wire() for _ in range(2 * few)]
        await until(lambda: len(os.listdir(f"/proc/{server.process.pid}/fd")) >= few - 2)
        for wire in wires:
            wire.abort()
        async with asyncio.timeout(WAIT_S):
            while True:
                try:
                    await attack.is_served()
                    break
                except (OSError, asyncio.IncompleteReadError, TimeoutError):
                    continue
        await attack.close()
        os.kill(server.process.pid, signal.SIGTERM)
        assert server.process.wait(WAIT_S) == 0


@live
async def test_threads_that_nobody_can_end_do_not_keep_a_server_from_ending() -> None:
    with child("http", stderr=subprocess.DEVNULL) as server:
        attack = HostileSender(served(server), SESSION)
        await attack.open()
        for id in range(3):
            body = call(SESSION, "stuck").replace(b'"id":1', b'"id":%d' % id)
            assert "did not finish" in (await attack.post(body))[1].text
        await attack.close()
        os.kill(server.process.pid, signal.SIGTERM)
        assert server.process.wait(WAIT_S) == 0
