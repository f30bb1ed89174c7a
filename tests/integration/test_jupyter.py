"""The client in a notebook: awaited at the top of a cell, and without a loop while one runs.

Rules: a real kernel runs the cells, in an environment of its own that `scripts/_peers` makes.
"""

import contextlib
import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from interop.peers import INSTALL_S, ROOT

IPYKERNEL = "7.4.0"
CELLS = Path(__file__).with_name("jupyter_cells.py")
# Two kernels take three seconds; this ends what hangs, on the slowest machine.
RUN_S = 300

AWAITED = [
    "from portico import connect",
    'client = await connect("examples/weather.py")\nclient',
    'result = await client.call_tool("forecast", {"city": "Oslo", "days": 1})\nresult.data["city"]',
    'async with connect("examples/weather.py") as other:\n'
    "    print([tool.name for tool in await other.list_tools()])",
    "result",
    "await client.close()",
]
WAITED_FOR = [
    "import asyncio, threading\nfrom portico.sync import connect",
    'client = connect("examples/weather.py")\nasyncio.get_running_loop().is_running()',
    'client.call_tool("record", {"station": "harbour", "celsius": 4}).data',
    'with connect("examples/weather.py") as other:\n'
    "    print([tool.name for tool in other.list_tools()])",
    'client.call_tool("spread")',
    "client.close()",
    '[one.name for one in threading.enumerate() if one.name.startswith("portico")]',
]
FORGOTTEN = [
    "import portico, portico.sync",
    'one = await portico.connect("examples/weather.py")',
    'other = portico.sync.connect("examples/weather.py")',
    '(await one.call_tool("spread")).data == other.call_tool("spread").data',
]


@cache
def ran() -> list[dict[str, Any]]:
    """What came of each of the three notebooks."""
    make = [str(ROOT / "scripts" / "_peers"), "ipykernel", IPYKERNEL, "portico"]
    made = subprocess.run(make, stdout=subprocess.PIPE, text=True, timeout=INSTALL_S)
    assert made.returncode == 0, "ipykernel could not be installed; see above"
    python = Path(made.stdout.strip()) / "bin" / "python"
    notebooks = json.dumps([AWAITED, WAITED_FOR, FORGOTTEN])
    run = subprocess.run(
        [str(python), "-I", str(CELLS), notebooks],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        timeout=RUN_S,
    )
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


def seen(notebook: dict[str, Any], of: str) -> list[Any]:
    return [cell[of] for cell in notebook["cells"]]


def is_alive(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def ended_well(notebook: dict[str, Any]) -> bool:
    """The kernel ended by itself, complained of nothing of ours, and left nobody behind."""
    assert notebook["status"] == 0, notebook
    assert "Traceback" not in notebook["errors"], notebook["errors"]
    assert "never" not in notebook["errors"], notebook["errors"]
    assert seen(notebook, "raised") == [None] * len(notebook["cells"])
    return not any(is_alive(pid) for pids in seen(notebook, "children") for pid in pids)


TOOLS = "['forecast', 'record', 'close', 'spread']\n"


def test_connect_is_awaited_at_the_top_of_a_cell() -> None:
    notebook = ran()[0]
    assert ended_well(notebook)
    shown = seen(notebook, "shown")
    assert shown[2] == "'Oslo'"
    assert shown[4].startswith("ToolResult(forecast, ")
    assert seen(notebook, "printed")[3] == TOOLS
    running = [len(pids) > 0 for pids in seen(notebook, "children")]
    assert running == [False, True, True, True, True, False]


def test_the_client_without_a_loop_works_where_one_runs() -> None:
    notebook = ran()[1]
    assert ended_well(notebook)
    shown = seen(notebook, "shown")
    assert shown[1:3] == ["True", "2.5"]
    assert shown[4].startswith("ToolResult(spread, ")
    assert seen(notebook, "printed")[3] == TOOLS
    assert shown[6] == "[]"  # its thread is gone with the last client
    running = [len(pids) > 0 for pids in seen(notebook, "children")]
    assert running == [False, True, True, True, True, False, False]


def test_whoever_forgets_to_close_leaves_nothing_when_the_kernel_ends() -> None:
    notebook = ran()[2]
    assert seen(notebook, "shown")[3] == "True"
    assert len(seen(notebook, "children")[3]) >= 2
    assert ended_well(notebook)
