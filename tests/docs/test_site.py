"""The site that `scripts/docs` makes: whole, readable from a disk, and with no link to nowhere."""

import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from docs.site import reference
from docs.site.build import INDEX, Site, slug

ROOT = Path(__file__).resolve().parents[2]
# What has no end tag.
VOID = frozenset({"meta", "link", "img", "br", "hr", "input"})


class Seen(HTMLParser):
    """What a browser sees of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.tags: set[str] = set()
        self.open: list[str] = []
        self.torn: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            assert not name.startswith("on"), f"{tag} has {name}"
            if name == "id":
                self.ids.append(value or "")
            elif name == "href" and tag == "a":
                self.links.append(value or "")
            elif name in ("src", "href", "srcset"):
                self.loads.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.torn.append(tag)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    made = Site(generated=reference.pages())
    made.make()
    assert made.problems == []
    made.write(folder)
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Seen]:
    return {path: Seen(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}


def local(pages: dict[Path, Seen], *, loads: bool) -> Iterator[tuple[Path, str, Path, str]]:
    """Every way from a page to something in the site: where it stands, and where it leads."""
    for path, page in pages.items():
        for way in page.loads if loads else page.links:
            parts = urlsplit(way)
            if parts.scheme:
                assert not loads, f"{path} loads {way}"
                continue
            there = path.parent / unquote(parts.path) if parts.path else path
            yield path, way, there.resolve(), parts.fragment


def test_every_page_of_docs_is_there_and_everybody_is_led_to_it(
    site: Path, pages: dict[Path, Seen]
) -> None:
    names = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"README"}
    assert names
    wanted = {site / "docs" / f"{name}.html" for name in names} | {site / "docs" / "index.html"}
    wanted.add(site / "docs" / "reference" / "index.html")
    assert wanted <= set(pages)
    home = site / "index.html"
    led = {there for path, _, there, _ in local(pages, loads=False) if path == home}
    assert {path.resolve() for path in wanted} <= led


def test_every_link_leads_to_a_file_and_every_anchor_to_a_heading(
    pages: dict[Path, Seen],
) -> None:
    by_path = {path.resolve(): page for path, page in pages.items()}
    found = 0
    for path, way, there, anchor in local(pages, loads=False):
        assert there in by_path, f"{path.name}: {way}"
        assert not anchor or anchor in by_path[there].ids, f"{path.name}: {way}"
        found += 1
    assert found > 100


def test_nothing_is_loaded_but_pictures_and_the_style_beside_it(pages: dict[Path, Seen]) -> None:
    kinds = set[str]()
    for path, way, there, _ in local(pages, loads=True):
        assert there.is_file(), f"{path.name}: {way}"
        kinds.add(there.suffix)
    assert kinds == {".css", ".png", ".svg"}


def test_pages_are_whole_and_have_no_scripts(pages: dict[Path, Seen]) -> None:
    for path, page in pages.items():
        assert "script" not in page.tags, path
        assert "iframe" not in page.tags, path
        assert (page.torn, page.open) == ([], []), path
        assert len(page.ids) == len(set(page.ids)), path
        assert {"title", "h1", "main", "nav"} <= page.tags, path


def test_the_style_is_for_light_and_for_dark_and_loads_nothing(site: Path) -> None:
    style = (site / "style.css").read_text("utf-8")
    assert style.count("prefers-color-scheme: dark") == 2
    assert "url(" not in style
    assert "@import" not in style


def test_the_same_pages_make_the_same_site(site: Path, tmp_path: Path) -> None:
    again = Site(generated=reference.pages())
    again.make()
    again.write(tmp_path)
    for path in site.rglob("*.*"):
        assert path.read_bytes() == (tmp_path / path.relative_to(site)).read_bytes()


def test_the_command_says_where_it_is(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "docs.site.build", str(tmp_path / "a" / "site")]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "a" / "site" / "index.html").is_file()
    assert f"file://{tmp_path}/a/site/index.html" in made.stdout


# ---------------------------------------------------------------- what is wrong is found


def small(folder: Path, **pages: str) -> Site:
    """A clone with these pages in docs."""
    (folder / "docs").mkdir()
    (folder / "README.md").write_text("# Home\n", "utf-8")
    (folder / INDEX).write_text("# Docs\n\n- [b](b.md)\n- [a](a.md)\n", "utf-8")
    for name in ("a", "b"):
        text = pages.get(name, f"# {name}\n")
        (folder / "docs" / f"{name}.md").write_text(text, "utf-8")
    site = Site(folder)
    site.make()
    return site


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("# a\n[x](nothing.md)", "docs/a.md leads to nothing.md, which is not there"),
        ("# a\n![x](nothing.svg)", "docs/a.md leads to nothing.svg, which is not there"),
        ("# a\n[x](b.md#c)", "docs/a.md leads to docs/b.md#c: no such heading"),
        ("# a\n[x](#c)", "docs/a.md leads to docs/a.md#c: no such heading"),
        (
            "# a\n[x](../../../etc/passwd)",
            "docs/a.md leads to ../../../etc/passwd, which is not there",
        ),
        ("# a\n[x](/etc/passwd)", "docs/a.md leads to /etc/passwd, which is not there"),
    ],
)
def test_a_way_to_nowhere_is_found(text: str, problem: str, tmp_path: Path) -> None:
    assert small(tmp_path, a=text).problems == [problem]


def test_pages_stand_in_the_order_of_the_index(tmp_path: Path) -> None:
    site = small(tmp_path, a="# The **first** `one`\n")
    assert site.problems == []
    titles = [page.title for page in site.order()]
    assert titles == ["Home", "Docs", "b", "The first one"]


def test_a_heading_has_the_anchor_that_repositories_give_it() -> None:
    taken: set[str] = set()
    texts = ["`colonnade call`, and more", "Über uns", "A b", "A b"]
    assert [slug(text, taken) for text in texts] == [
        "colonnade-call-and-more",
        "über-uns",
        "a-b",
        "a-b-1",
    ]
