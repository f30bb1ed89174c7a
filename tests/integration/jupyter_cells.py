"""Runs cells in a Jupyter kernel, as a notebook does.

    python jupyter_cells.py '[["2 + 2", "print(3)"], …]'

Run by the Python of an environment that has ipykernel and Colonnade. Each list of cells is run in a
kernel of its own, which is asked to end afterwards. Prints a line of JSON for each kernel: what
every cell showed, printed and raised, the processes that were there at the end of each cell, the
status that the kernel ended with, and what it said while it ended.

Rules: judges nothing. Everything ends: what does not is killed, and that is told.
"""

# pyright: reportMissingImports=false

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from jupyter_client.manager import KernelManager

START_S = 60
CELL_S = 60
END_S = 30


def children(pid: int) -> list[int]:
    """The processes that this one has started, and those have."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child, *children(child)]
    return found


def run_cell(client: Any, cell: str) -> dict[str, Any]:
    """What a cell shows (`shown`, and as a page: `html`), prints and raises."""
    told: dict[str, Any] = {"shown": None, "html": None, "printed": "", "raised": None}

    def hear(message: Any) -> None:
        content = message["content"]
        match message["msg_type"]:
            case "execute_result":
                told["shown"] = content["data"]["text/plain"]
                told["html"] = content["data"].get("text/html")
            case "stream":
                told["printed"] += content["text"]
            case "error":
                told["raised"] = f"{content['ename']}: {content['evalue']}"
            case _:
                pass

    client.execute_interactive(cell, timeout=CELL_S, output_hook=hear, stdin_hook=None)
    return told


def run_kernel(cells: list[str], folder: str) -> dict[str, Any]:
    """Run these in a kernel of their own, and see how it ends."""
    # Its sockets are files beginning with this name; else they would lie in the current folder.
    manager = KernelManager(kernel_name="python3", transport="ipc", ip=str(Path(folder) / "kernel"))
    errors = Path(folder) / "errors"
    with errors.open("w") as log:
        manager.start_kernel(stderr=log, stdout=log)
        client = manager.client()
        try:
            client.start_channels()
            client.wait_for_ready(timeout=START_S)
            process: subprocess.Popen[bytes] = manager.provisioner.process
            told = [run_cell(client, one) | {"children": children(process.pid)} for one in cells]
            client.shutdown()
            try:
                status: int | None = process.wait(END_S)
            except subprocess.TimeoutExpired:
                status = None
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)
    return {"cells": told, "status": status, "errors": errors.read_text()}


if __name__ == "__main__":
    for cells in json.loads(sys.argv[1]):
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(run_kernel(cells, folder)), flush=True)
