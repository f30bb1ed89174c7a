"""The hosted site: what `scripts/docs site` makes, with the generator that a site is made with."""

import json
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from docs.site import hosted, reference
from docs.site.build import ROOT
from docs.test_site import Seen

CONFIG = hosted.settings()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Markdown that the generator is given."""
    folder = tmp_path_factory.mktemp("hosted") / CONFIG["docs_dir"]
    assert hosted.stage(folder) == []
    return folder


@pytest.fixture(scope="module")
def site(pages: Path) -> Path:
    root = pages.parents[1]
    (root / hosted.CONFIG.name).write_text(hosted.CONFIG.read_text("utf-8"), "utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    made = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120)
    assert made.returncode == 0, made.stdout + made.stderr
    folder = root / CONFIG["site_dir"]
    hosted.finish(pages, folder)
    return folder


@pytest.fixture(scope="module")
def seen(site: Path) -> dict[Path, Seen]:
    found = {path.resolve(): path for path in site.rglob("*.html")}
    return {there: Hosted(path.read_text("utf-8")) for there, path in found.items()}


class Hosted(Seen):
    """A page of the generator, whose theme has scripts."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        super().handle_starttag(tag, [(name, value) for name, value in attrs if name[:2] != "on"])


def test_every_page_of_docs_is_in_the_navigation_once(pages: Path) -> None:
    listed = [path for _, path in hosted.navigation()]
    docs = {hosted.staged(f"docs/{path.name}") for path in (ROOT / "docs").glob("*.md")}
    made = {hosted.staged(path) for path in reference.pages()}
    assert len(listed) == len(set(listed))
    assert docs | made | {"index.md"} <= set(listed)
    assert all((pages / path).is_file() for path in listed)


def test_every_link_leads_to_a_page_and_every_anchor_to_a_heading(
    site: Path, seen: dict[Path, Seen]
) -> None:
    found = 0
    for path, page in seen.items():
        if path.name == "404.html":
            continue  # served for any address, so its links begin at the root of the host
        for way in (*page.links, *page.loads):
            parts = urlsplit(way)
            if parts.scheme or parts.netloc:
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            there = there / "index.html" if there.is_dir() else there
            assert there.is_relative_to(site.resolve()), way
            assert there.is_file(), f"{path}: {way}"
            if parts.fragment and there in seen:
                assert unquote(parts.fragment) in {*seen[there].ids, "__skip"}, f"{path}: {way}"
            found += 1
    assert found > 1000


def test_nothing_is_loaded_from_another_host(seen: dict[Path, Seen]) -> None:
    loads = {way for page in seen.values() for way in page.loads}
    assert [way for way in loads if urlsplit(way).netloc] == []


def test_the_search_finds_a_heading_of_the_reference(site: Path) -> None:
    search = json.loads((site / "search.json").read_text("utf-8"))
    assert "docs/reference/server/" in json.dumps(search)


def test_llms_txt_lists_every_page_of_the_navigation_with_what_it_is_about(site: Path) -> None:
    text = (site / "llms.txt").read_text("utf-8")
    lines = text.splitlines()
    assert lines[0] == f"# {CONFIG['site_name']}"
    assert lines[2] == f"> {CONFIG['site_description']}"
    listed = re.findall(r"^- \[([^\]]+)\]\(([^)]+)\)", text, re.MULTILINE)
    assert [path for _, path in listed] == [path for _, path in hosted.navigation()]
    for title, path in listed:
        assert f"# {title}" in (site / path).read_text("utf-8")
    sections = [line for line in lines if line.startswith("## ")]
    assert len(sections) == len(set(sections))


# ---------------------------------------------------------------- the parts


def small(folder: Path) -> Path:
    (folder / "docs").mkdir()
    (folder / "code").mkdir()
    for name in ("README.md", "docs/README.md", "docs/a.md", "code/x.py"):
        (folder / name).touch()
    return folder


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("[a](README.md#b)", "[a](index.md#b)"),
        ("[a](../README.md)", "[a](../index.md)"),
        ("[a](../code/x.py), [b](../code)", "[a](../code/x.py.md), [b](../code/index.md)"),
        ("[a](https://example.com/README.md)", "[a](https://example.com/README.md)"),
        ("[a](#b)", "[a](#b)"),
        ("`[a](README.md)` [a](README.md)", "`[a](README.md)` [a](index.md)"),
        (
            "```md\n[a](README.md)\n```\n[`a`](README.md)",
            "```md\n[a](README.md)\n```\n[`a`](index.md)",
        ),
    ],
)
def test_links_are_led_to_staged_pages_and_code_is_left_alone(
    text: str, made: str, tmp_path: Path
) -> None:
    assert hosted.redirected(text, "docs/a.md", small(tmp_path)) == made + "\n"


def test_what_a_page_is_about_is_its_first_sentence() -> None:
    text = "# The `x`\n\n```py\nx\n```\n\nIt [says](a.md) this,\nand more: so. Then that.\n"
    assert hosted.about(text) == ("The `x`", "It says this, and more: so.")
