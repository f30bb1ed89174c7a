"""Tasks with other implementations, as tables: `scripts/interop tasks`.

    python tests/interop/tasks/table.py [NAME]

Rules: one table for each client and each server; one that cannot be built on this machine is
skipped, with the reason. A cell is `ok`, `-` if the implementation or the revision has no such
thing (the reason is below the table), or `FAILED`; one failure and the exit code is 1.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))  # as pytest has it
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from colonnade.protocol.revision import Revision
from interop.table import Cell, counted, ending
from interop.tasks.counterparts import CHECKS, CLIENTS, TaskClient, run_client
from interop.tasks.servers import SERVER_CHECKS, SERVERS, TaskServer, run_server

HEAD, WIDTH = 12, 20
Columns = Mapping[tuple[str, str], Mapping[str, Cell]]


def client_cells(peer: TaskClient, era: Revision, transport: str) -> dict[str, Cell]:
    """Every scenario of one client at our server, and the end of the run."""
    run = run_client(peer, era, transport)
    cells: dict[str, Cell] = {}
    for scenario, check in CHECKS.items():
        line = run.lines.get(scenario, {"failed": f"it was never played\n{run.errors}"})
        if why := peer.absent(scenario, era, transport):
            cells[scenario] = Cell("-", why)
        elif "failed" in line:
            cells[scenario] = Cell("FAILED", line["failed"])
        else:
            try:
                check(line["seen"], era)
                cells[scenario] = Cell("ok")
            except Exception as error:  # what cannot be read has failed
                why = f"{type(error).__name__}: {error}\nseen: {line['seen']}"
                cells[scenario] = Cell("FAILED", why)
    return {**cells, "end": ending(run)}


def server_cells(peer: TaskServer, era: Revision, transport: str) -> dict[str, Cell]:
    """Every check of our client at one server."""
    failures = run_server(peer, era, transport)
    cells: dict[str, Cell] = {}
    for name in SERVER_CHECKS:
        if why := peer.absent(name, transport):
            cells[name] = Cell("-", why)
        elif failed := failures.get(name, failures.get("")):
            cells[name] = Cell("FAILED", failed)
        else:
            cells[name] = Cell("ok")
    return cells


def show(title: str, columns: Columns, note: str = "") -> list[Cell]:
    """Print a table and what it does not say; the cells."""
    print(f"\n{title}")
    print(" " * HEAD + "".join(f"{' '.join(way):<{WIDTH}}" for way in columns).rstrip())
    for row in next(iter(columns.values())):
        words = "".join(f"{cells[row].word:<{WIDTH}}" for cells in columns.values())
        print(f"{row:<{HEAD}}{words}".rstrip())
    every = [cell for cells in columns.values() for cell in cells.values()]
    for reason in dict.fromkeys(cell.why for cell in every if cell.word == "-"):
        print(f"- {reason}")
    if note:
        print(f"note: {note}")
    for way, cells in columns.items():
        for row, cell in cells.items():
            if not cell.ok:
                print(f"\nFAILED: {row}, {title}, {' '.join(way)}\n{cell.why}")
    print(f"{title}: {counted(every)}", flush=True)
    return every


def cells_of(peer: TaskClient | TaskServer) -> list[Cell]:
    """The table of one implementation; the cells."""
    if why := peer.missing:
        print(f"\n{peer}: skipped, {why}")
        return []
    columns: dict[tuple[str, str], dict[str, Cell]] = {}
    for era in peer.eras:
        for transport in peer.transports:
            if isinstance(peer, TaskClient):
                columns[era.date, transport] = client_cells(peer, era, transport)
            else:
                columns[era.date, transport] = server_cells(peer, era, transport)
    kind = "client" if isinstance(peer, TaskClient) else "server"
    return show(f"{peer} as {kind}", columns, peer.note)


def main(name: str = "") -> int:
    every: Sequence[TaskClient | TaskServer] = (*CLIENTS, *SERVERS)
    chosen = [one for one in every if name.lower() in ("", *str(one).lower().split())]
    if not chosen:
        print(f"no implementation of tasks is named {name}")
        return 1
    cells = [cell for peer in chosen for cell in cells_of(peer)]
    print(f"\ntasks: {counted(cells)}")
    return 0 if all(cell.ok for cell in cells) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
