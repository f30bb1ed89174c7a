"""The client in a notebook: awaited at the top of a cell, and without a loop while one runs.

Rules: a real kernel runs the cells, in an environment of its own that `scripts/_peers` makes.
"""

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from interop.peers import INSTALL_S, ROOT

Notebook = dict[str, Any]

IPYKERNEL = "7.4.0"
CELLS = Path(__file__).with_name("jupyter_cells.py")
# Three kernels take three seconds; this ends what hangs, on the slowest machine.
RUN_S = 300
GONE_S = 20.0
# Where a user's own settings would be found, and must not.
FOLDERS = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")

AWAITED = [
    "from colonnade import connect",
    'client = await connect("examples/weather.py")\nclient',
    'result = await client.call_tool("forecast", {"city": "Oslo", "days": 1})\nresult.data["city"]',
    'async with connect("examples/weather.py") as other:\n    print(len(await other.list_tools()))',
    "result",
    "await client.list_tools()",
    "(await client.list_tools())[0]",
    "await client.close()",
]
WAITED_FOR = [
    "import asyncio, threading\nfrom colonnade.sync import connect",
    'client = connect("examples/weather.py")\nasyncio.get_running_loop().is_running()',
    'client.call_tool("record", {"station": "harbour", "celsius": 4}).data',
    'with connect("examples/weather.py") as other:\n    print(len(other.list_tools()))',
    'client.call_tool("spread")',
    "client.close()",
    '[one.name for one in threading.enumerate() if one.name.startswith("colonnade")]',
]
FORGOTTEN = [
    "import colonnade, colonnade.sync",
    'one = await colonnade.connect("examples/weather.py")',
    'other = colonnade.sync.connect("examples/weather.py")',
    '(await one.call_tool("spread")).data == other.call_tool("spread").data',
]


def sockets() -> set[Path]:
    return {path for path in ROOT.iterdir() if path.is_socket()}


@pytest.fixture(scope="module")
def notebooks(tmp_path_factory: pytest.TempPathFactory) -> list[Notebook]:
    """What came of each of the three notebooks."""
    make = [str(ROOT / "scripts" / "_peers"), "ipykernel", IPYKERNEL, "colonnade"]
    made = subprocess.run(make, stdout=subprocess.PIPE, text=True, timeout=INSTALL_S)
    assert made.returncode == 0, "ipykernel could not be installed; see above"
    python = Path(made.stdout.strip()) / "bin" / "python"
    before = sockets()
    cells = json.dumps([AWAITED, WAITED_FOR, FORGOTTEN])
    run = subprocess.run(
        [str(python), "-I", str(CELLS), cells],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | dict.fromkeys(FOLDERS, str(tmp_path_factory.mktemp("jupyter"))),
        timeout=RUN_S,
    )
    assert run.returncode == 0, run.stderr
    assert sockets() <= before, "a kernel left its sockets where it was started"
    return [json.loads(line) for line in run.stdout.splitlines()]


def seen(notebook: Notebook, of: str) -> list[Any]:
    return [cell[of] for cell in notebook["cells"]]


def is_alive(pid: int) -> bool:
    """Whether it runs: one that nobody has buried yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def are_gone(pids: set[int]) -> bool:
    """Whether they all end: whoever was left alone is killed within moments."""
    latest = time.monotonic() + GONE_S
    while any(map(is_alive, pids)):
        if time.monotonic() > latest:
            return False
        time.sleep(0.02)
    return True


def ended_well(notebook: Notebook) -> bool:
    """The kernel ended by itself, complained of nothing of ours, and left nobody behind."""
    assert notebook["status"] == 0, notebook
    assert "Traceback" not in notebook["errors"], notebook["errors"]
    assert "never" not in notebook["errors"], notebook["errors"]
    assert seen(notebook, "raised") == [None] * len(notebook["cells"])
    return are_gone({pid for pids in seen(notebook, "children") for pid in pids})


def test_connect_is_awaited_at_the_top_of_a_cell(notebooks: list[Notebook]) -> None:
    notebook = notebooks[0]
    assert ended_well(notebook)
    shown = seen(notebook, "shown")
    assert shown[2] == "'Oslo'"
    assert shown[4].startswith("ToolResult(forecast, ")
    assert seen(notebook, "printed")[3] == "4\n"
    running = [len(pids) > 0 for pids in seen(notebook, "children")]
    assert running == [False, *[True] * 6, False]


def test_results_and_tools_show_themselves(notebooks: list[Notebook]) -> None:
    shown, pages = seen(notebooks[0], "shown"), seen(notebooks[0], "html")
    assert "<td>Oslo</td>" in pages[4]
    assert "\n record(station: string, celsius: number -90 to 60) -> number,\n" in shown[5]
    assert "<code>forecast(city: string, days: integer 1 to 10 = 3, " in pages[6]


def test_the_client_without_a_loop_works_where_one_runs(notebooks: list[Notebook]) -> None:
    notebook = notebooks[1]
    assert ended_well(notebook)
    shown = seen(notebook, "shown")
    assert shown[1:3] == ["True", "2.5"]
    assert shown[4].startswith("ToolResult(spread, ")
    assert seen(notebook, "printed")[3] == "4\n"
    assert shown[6] == "[]"  # its thread is gone with the last client
    running = [len(pids) > 0 for pids in seen(notebook, "children")]
    assert running == [False, True, True, True, True, False, False]


def test_whoever_forgets_to_close_leaves_nothing_when_the_kernel_ends(
    notebooks: list[Notebook],
) -> None:
    notebook = notebooks[2]
    assert seen(notebook, "shown")[3] == "True"
    assert len(seen(notebook, "children")[3]) >= 2
    assert ended_well(notebook)
