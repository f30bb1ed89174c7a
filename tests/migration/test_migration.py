"""The same server in three libraries, moved by the tables of the pages, and one client test for all.

Rules: the peers live in environments of their own (`scripts/_peers`); nothing of them is imported.
"""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

import colonnade
from colonnade import ColonnadeError, Context, Server
from colonnade.protocol.revision import JULY_2026, NOVEMBER_2025
from interop.peers import installed
from migration.reader import visit
from migration.table import Row, moved, rows

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "migrate"
# The newest of those with a handshake, and the one without.
REVISIONS = [NOVEMBER_2025.date, JULY_2026.date]
PEERS = {"fastmcp": "4.1.2", "mcp": "2.3.0"}
FILES = {"library.py": "Server: replacements", "test_library.py": "Tests: replacements"}
RUN_S = 120

# Runs the tests of a file where there is no pytest; a test that fails ends it.
RUN_TESTS = """
import asyncio, test_library
tests = [test for name, test in vars(test_library).items() if name.startswith("test_")]
for test in tests:
    asyncio.run(test())
print(len(tests))
"""


def page(peer: str) -> Path:
    return ROOT / "docs" / f"migrate-{peer}.md"


def source(peer: str, name: str) -> str:
    return (EXAMPLES / f"from_{peer}" / name).read_text("utf-8")


def write_moved(peer: str, folder: Path) -> Path:
    """Both files of a peer in a folder, changed as its page says and in no other way."""
    for name, heading in FILES.items():
        text, _ = moved(source(peer, name), rows(page(peer), heading))
        (folder / name).write_text(text, "utf-8")
    return folder / "library.py"


def outcome_of_tests(python: str | Path, folder: Path) -> str:
    """What comes of the tests in a folder, run by an interpreter."""
    ran = subprocess.run(
        [str(python), "-c", RUN_TESTS],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        timeout=RUN_S,
        env={"PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


# ---------------------------------------------------------------- on Colonnade


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("peer", PEERS)
def test_a_server_that_was_moved_by_its_page_passes_the_client_test(
    peer: str, revision: str, tmp_path: Path
) -> None:
    server = write_moved(peer, tmp_path)
    asyncio.run(visit([sys.executable, "-Werror", server], revision, mounts=peer == "fastmcp"))


@pytest.mark.parametrize("peer", PEERS)
def test_tests_that_were_moved_by_their_page_pass(peer: str, tmp_path: Path) -> None:
    write_moved(peer, tmp_path)
    assert outcome_of_tests(sys.executable, tmp_path) == "4"


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_server_that_was_written_for_colonnade_passes_it(revision: str) -> None:
    server = EXAMPLES / "ours" / "library.py"
    asyncio.run(visit([sys.executable, "-Werror", server], revision))


def test_its_own_tests_pass_in_every_revision() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_library.py"],
        cwd=EXAMPLES / "ours",
        capture_output=True,
        encoding="utf-8",
        timeout=RUN_S,
    )
    assert ran.returncode == 0, ran.stdout
    assert "11 passed" in ran.stdout


# ---------------------------------------------------------------- where they come from


@pytest.mark.slow
@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("peer", PEERS)
def test_the_server_as_it_was_passes_the_same_client_test(peer: str, revision: str) -> None:
    python = installed(peer, PEERS[peer]) / "bin" / "python"
    # FastMCP has no question in the middle of a call where questions go by result.
    asks = peer == "mcp" or revision == NOVEMBER_2025.date
    command = [python, EXAMPLES / f"from_{peer}" / "library.py"]
    asyncio.run(visit(command, revision, asks=asks, mounts=peer == "fastmcp"))


@pytest.mark.slow
@pytest.mark.parametrize("peer", PEERS)
def test_its_tests_as_they_were_pass_there(peer: str) -> None:
    python = installed(peer, PEERS[peer]) / "bin" / "python"
    assert outcome_of_tests(python, EXAMPLES / f"from_{peer}") == "4"


# ---------------------------------------------------------------- the pages themselves


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("peer", PEERS)
def test_every_row_of_a_page_is_used_by_its_example(peer: str, name: str) -> None:
    table = rows(page(peer), FILES[name])
    assert len(table) >= 4
    _, idle = moved(source(peer, name), table)
    assert idle == []


@pytest.mark.slow
@pytest.mark.parametrize("peer", PEERS)
def test_without_any_one_of_its_rows_the_server_does_not_pass(peer: str, tmp_path: Path) -> None:
    table, server = rows(page(peer), "Server: replacements"), tmp_path / "library.py"
    needless: list[str] = []
    for row in table:
        rest = [one for one in table if one is not row]
        server.write_text(moved(source(peer, "library.py"), rest)[0], "utf-8")
        try:
            asyncio.run(
                visit([sys.executable, server], NOVEMBER_2025.date, mounts=peer == "fastmcp")
            )
        except (AssertionError, ColonnadeError):
            continue
        needless.append(row.old)
    assert needless == []


@pytest.mark.parametrize("peer", PEERS)
def test_the_versions_on_the_page_are_those_that_are_tested(peer: str) -> None:
    assert f"{PEERS[peer].split('.')[0]}" in page(peer).read_text("utf-8").split("\n", 4)[2]
    assert PEERS[peer] in source(peer, "library.py").split("\n", 1)[0]


WHOSE = {"server": Server, "ctx": Context, "colonnade": colonnade}


@pytest.mark.parametrize("peer", PEERS)
def test_what_is_to_be_written_by_hand_is_there_to_be_written(peer: str) -> None:
    _, _, section = page(peer).read_text("utf-8").partition("\n## Manual changes")
    cells = [line.split(" | ")[1] for line in section.splitlines() if line.startswith("| `")]
    assert len(cells) > 10
    used = [found for cell in cells for found in re.findall(r"\b(server|ctx)\.(\w+)", cell)]
    used += [("colonnade", name) for cell in cells for name in re.findall(r"\b([A-Z]\w+)\(", cell)]
    assert len(used) > 8
    assert [one for one in used if not hasattr(WHOSE[one[0]], one[1])] == []


# ---------------------------------------------------------------- how a row is applied


@pytest.mark.parametrize(
    ("old", "new", "before", "after"),
    [
        ("Old(…)", "New(…)", "Old(1, (2)) + Older(3)", "New(1, (2)) + Older(3)"),
        ("f(…, key=…)", "g(…, …)", "f(a(1, 2),\n  key=b,\n)", "g(a(1, 2), b)"),
        (".data(…)", ".value", "x.data(')') + y.data( )", "x.value + y.value"),
        ("{…*}", "{+…}", 'r("a/{p*}"), {1: {2}}', 'r("a/{+p}"), {1: {2}}'),
        (", banner=False", "", "run(1, banner = False)", "run(1)"),
    ],
)
def test_a_row_replaces_what_it_says_and_nothing_else(
    old: str, new: str, before: str, after: str
) -> None:
    assert moved(before, [Row(old, new)]) == (after, [])


def test_names_that_are_imported_become_the_new_ones() -> None:
    table = [Row("from old import …", "from new import …"), Row("A(…)", "B(…)"), Row("C(…)", "…")]
    before = "from old import (\n    A,\n    C,\n    D,\n    E,\n)\nA(C(1), D)\n"
    assert moved(before, table) == ("from new import B, D\nB(1, D)\n", [])
