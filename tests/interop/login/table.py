"""Logins through the proxy with clients of each SDK, as tables: `scripts/interop login`.

    python tests/interop/login/table.py [--store STORE] [--days N] [NAME]

Prints what each client did in a month, and how each logs in behind a path prefix of nginx. One
failure and the exit code is 1.
"""

import argparse
import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))  # as pytest has it
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from deploy.nginx import program
from interop.login.month import MonthReport, play_month
from interop.login.parts import CLIENTS, LoginClient
from interop.login.prefix import play_prefix
from store.redis_server import redis_server

HEAD, WIDTH = 34, 12


def show_month(report: MonthReport) -> None:
    """Print what happened in a month."""
    assert report.traffic is not None
    traffic, counts = report.traffic, report.traffic.provider.counts
    columns = ("logins", "refreshes", "calls", "processes")
    print("\n" + " " * HEAD + "".join(f"{name:>{WIDTH}}" for name in columns))
    for one in report.clients:
        numbers = (one.logins, traffic.refreshes[one.client_id], one.calls, len(one.pids))
        print(f"{one!s:<{HEAD}}" + "".join(f"{number:>{WIDTH}}" for number in numbers))
    print(
        f"\n{report.days} days in {report.took_s:.0f} s; processes restarted: {report.restarts}, "
        f"killed: {report.kills}; calls refused while the provider did not respond: "
        f"{report.refused_in_outage}"
    )
    print(
        f"provider: {counts['authorizations']} logins, {counts['refreshes']} refreshes, "
        f"{counts['refused refreshes']} refused refreshes, {len(traffic.provider.issued)} tokens"
    )
    print(f"our tokens: {len(traffic.owners)}; tokens in a wrong place: {len(traffic.misplaced())}")
    for unusual in dict.fromkeys(traffic.unusual):
        print(f"- {unusual}")
    print("requests: " + ", ".join(f"{kind}: {n}" for kind, n in sorted(traffic.counts.items())))


def play_prefixes(clients: Sequence[LoginClient]) -> list[str]:
    """Let all clients log in behind a prefix that nginx keeps, and that it removes; the failures."""
    columns: dict[str, dict[str, str]] = {}
    for keeps_prefix in (True, False):
        with tempfile.TemporaryDirectory() as folder:
            run = play_prefix(clients, Path(folder), keeps_prefix=keeps_prefix)
            columns["kept" if keeps_prefix else "removed"] = asyncio.run(run)
    print(
        "\n" + f"{'a prefix that nginx':<{HEAD}}" + "".join(f"{name:>{WIDTH}}" for name in columns)
    )
    for row in columns["kept"]:
        words = ("FAILED" if column[row] else "ok" for column in columns.values())
        print(f"{row:<{HEAD}}" + "".join(f"{word:>{WIDTH}}" for word in words))
    return [
        f"prefix {name}, {row}: {why}"
        for name, column in columns.items()
        for row, why in column.items()
        if why
    ]


def play(clients: Sequence[LoginClient], store: str, days: int) -> list[str]:
    """Play a month, and print the table; the failures."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if store == "redis":
            store = stack.enter_context(redis_server(folder / "redis")).url
        report = asyncio.run(play_month(clients, store, folder, days))
        show_month(report)
        if report.failures:
            print((folder / "log").read_text("utf-8", "replace")[-8000:])
    return report.failures


def main(*arguments: str) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--store", default="", help="redis for a server of its own; default SQLite")
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("name", nargs="?", default="")
    options = parser.parse_args(arguments)
    clients = [one for one in CLIENTS if options.name.lower() in str(one).lower()]
    if not clients:
        print(f"no client is called {options.name!r}; there are: {', '.join(map(str, CLIENTS))}")
        return 1
    failures = play(clients, options.store, options.days)
    try:
        program()
    except RuntimeError as missing:
        print(f"\nskipped: a prefix behind nginx: {missing}")
    else:
        failures += play_prefixes(clients)
    for failure in failures:
        print(f"FAILED: {failure}")
    print(f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
