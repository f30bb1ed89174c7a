"""The table of docs/gateway-cells.md names a test for each feature in each cell, and no other."""

import ast
from pathlib import Path

from gateway.conversations import CELLS, FEATURES, FOLDER, CrossingTest

TESTS = Path(__file__).parent
PAGE = TESTS.parents[1] / "docs" / "gateway-cells.md"


def declared() -> dict[str, CrossingTest]:
    """The tests that are run in all cells, by their feature."""
    found: dict[str, CrossingTest] = {}
    for path in sorted(TESTS.glob("test_*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            if not isinstance(node, ast.AsyncFunctionDef):
                continue
            for decorator in node.decorator_list:
                match decorator:
                    case ast.Call(func=ast.Name("crosses"), args=[ast.Constant(str(feature))]):
                        assert feature not in found, f"two tests of {feature}"
                        found[feature] = CrossingTest(feature, path.stem, node.name)
                    case _:
                        pass
    return found


def table() -> str:
    """The table of all features, as it is in the page."""
    tests = declared()
    heads = [f"client {down}, server {up}" for down, up in CELLS.values()]
    lines = [f"| | {' | '.join(heads)} | test |", "|---" * (len(CELLS) + 2) + "|"]
    for feature in FEATURES:
        test = tests[feature]
        links = [f"[{cell}](../{relative(test.golden(cell))})" for cell in CELLS]
        path = f"tests/gateway/{test.module}.py"
        lines.append(f"| {feature} | {' | '.join(links)} | [`{test.name}`](../{path}) |")
    return "\n".join(lines)


def relative(path: Path) -> str:
    return path.relative_to(PAGE.parents[1]).as_posix()


def test_every_feature_has_a_test_in_each_cell() -> None:
    assert set(declared()) == set(FEATURES)


def test_every_cell_has_its_frames_and_there_are_no_others() -> None:
    expected = {test.golden(cell) for test in declared().values() for cell in CELLS}
    assert set(FOLDER.iterdir()) == expected


def test_the_table_names_the_test_of_each_cell(rewrite_transcripts: bool) -> None:
    page = PAGE.read_text("utf-8")
    before, _, rest = page.partition("\n| |")
    _, _, after = rest.partition("|\n\n")
    made = f"{before}\n{table()}\n\n{after}"
    if rewrite_transcripts:
        PAGE.write_text(made, "utf-8")
    assert PAGE.read_text("utf-8") == made
