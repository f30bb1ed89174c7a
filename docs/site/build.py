"""The pages as a site: plain HTML in a folder, to be read from a disk or served by anything.

    python -m docs.site.build FOLDER

It begins with README, docs and the API reference, and takes along whatever they lead to: other
pages, files of code as pages, pictures, folders as lists. A link that leads nowhere is a failure.

Rules: no JavaScript, nothing from a network, every address relative; the same input gives the same
bytes. Nothing is written outside the given folder, and no file outside the clone is read.
"""

import posixpath
import re
import shutil
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name, get_lexer_for_filename
from pygments.util import ClassNotFound

from docs.site import reference

ROOT = Path(__file__).resolve().parents[2]
HOME = "README.md"
INDEX = "docs/README.md"
STYLE = Path(__file__).with_name("style.css")
# Copied as they are; everything else that is linked becomes a page.
PICTURES = frozenset({".svg", ".png", ".jpg"})
# What a site of pages may have at most: a link to a folder of data must not copy half a disk.
MAX_FILES = 500
MAX_BYTES = 2 * 1024 * 1024
# Never part of a site, also where a link leads to the folder that they are in.
HIDDEN = frozenset({"__pycache__", "node_modules"})
LIGHT, DARK = "friendly", "github-dark"

PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="stylesheet" href="{up}style.css">
</head>
<body>
<a class="skip" href="#main">To the text</a>
<header><a href="{up}index.html">Colonnade</a></header>
<nav aria-label="Pages">
<ul>
{nav}
</ul>
</nav>
<main id="main">
{body}
</main>
<footer>{source}</footer>
</body>
</html>
"""


@dataclass
class Page:
    """One page: what it is made of, and what it leads to."""

    source: str
    title: str
    body: str
    anchors: set[str] = field(default_factory=set[str])
    links: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


def address(source: str, root: Path) -> str:
    """Where something of the clone is in the site."""
    folder, name = posixpath.split(source)
    if (root / source).is_dir():
        return posixpath.join(source, "index.html")
    if name == "README.md":
        return posixpath.join(folder, "index.html")
    if name.endswith(".md"):
        return source.removesuffix(".md") + ".html"
    return source if Path(name).suffix in PICTURES else source + ".html"


def relative(there: str, here: str) -> str:
    """The way from one address of the site to another."""
    return posixpath.relpath(there, posixpath.dirname(here) or ".")


def slug(text: str, taken: set[str]) -> str:
    """The anchor of a heading, as hosts of repositories make it."""
    plain = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
    name, number = plain, 0
    while name in taken:
        number += 1
        name = f"{plain}-{number}"
    taken.add(name)
    return name


def coloured(text: str, language: str, name: str = "") -> str:
    """Code as HTML, in the colours of the style sheet."""
    try:
        lexer = get_lexer_for_filename(name) if name else get_lexer_by_name(language or "text")
    except ClassNotFound:
        lexer = get_lexer_by_name("text")
    made: str = highlight(text, lexer, HtmlFormatter(cssclass="code", wrapcode=True))
    return made


class Site:
    """A site that is being made of the files of a clone, and of pages that are made from them.

    `generated` has the Markdown of the latter, by the path that they would have in the clone.
    """

    def __init__(self, root: Path = ROOT, generated: Mapping[str, str] | None = None) -> None:
        self.root = root
        self.generated: Mapping[str, str] = generated or {}
        self.problems: list[str] = []
        self.pages: dict[str, Page] = {}
        self.pictures: set[str] = set()
        self._markdown = MarkdownIt("commonmark").enable("table")

    def make(self) -> None:
        """Make every page that README and docs lead to, and check where all links lead."""
        begin = [HOME, INDEX, *sorted(self._named(self.root / "docs", ".md")), *self.generated]
        waiting = deque(name for name in dict.fromkeys(begin) if self.has(name))
        while waiting:
            source = waiting.popleft()
            if source in self.pages or source in self.pictures:
                continue
            if len(self.pages) + len(self.pictures) >= MAX_FILES:
                self.problems.append(f"more than {MAX_FILES} files are linked")
                return
            if Path(source).suffix in PICTURES:
                self.pictures.add(source)
                continue
            page = self.pages[source] = self._page(source)
            waiting.extend(target for target, _ in page.links)
        self._check_anchors()

    def has(self, source: str) -> bool:
        """Whether there is such a file, folder, or generated page."""
        return source in self.generated or (self.root / source).exists()

    def _named(self, folder: Path, suffix: str) -> Iterator[str]:
        for path in folder.glob(f"*{suffix}"):
            yield path.relative_to(self.root).as_posix()

    # ------------------------------------------------------------ pages

    def _page(self, source: str) -> Page:
        if source in self.generated:
            return self._prose(source, self.generated[source])
        path = self.root / source
        if path.is_dir():
            return self._folder(source)
        if path.stat().st_size > MAX_BYTES:
            self.problems.append(f"{source} is larger than a page")
            return Page(source, source, "")
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            self.problems.append(f"{source} is no text")
            return Page(source, source, "")
        if path.suffix == ".md":
            return self._prose(source, text)
        body = f"<h1>{escape(source)}</h1>\n{coloured(text, '', path.name)}"
        return Page(source, source, body)

    def _folder(self, source: str) -> Page:
        page = Page(source, source, "")
        items: list[str] = []
        for path in sorted((self.root / source).iterdir()):
            name = path.name
            if name.startswith(".") or name in HIDDEN:
                continue
            target = f"{source}/{name}"
            page.links.append((target, ""))
            way = relative(address(target, self.root), address(source, self.root))
            items.append(f'<li><a href="{escape(way)}">{escape(name)}</a></li>')
        page.body = f"<h1>{escape(source)}</h1>\n<ul>\n" + "\n".join(items) + "\n</ul>"
        return page

    def _prose(self, source: str, text: str) -> Page:
        page = Page(source, source, "")
        tokens = self._markdown.parse(text)
        self._walk(page, tokens)
        page.body = self._rendered(tokens)
        return page

    def _rendered(self, tokens: Sequence[Token]) -> str:
        made: list[str] = []
        part: list[Token] = []
        for token in tokens:
            if token.type not in ("fence", "code_block"):
                part.append(token)
                continue
            made += [self._html(part), coloured(token.content, token.info.strip())]
            part = []
        whole = "".join([*made, self._html(part)])
        # A wide table moves under a finger, and not the page.
        whole = whole.replace("<table>", '<div class="wide"><table>')
        return whole.replace("</table>", "</table></div>")

    def _html(self, tokens: list[Token]) -> str:
        return str(self._markdown.renderer.render(tokens, self._markdown.options, {}))

    def _walk(self, page: Page, tokens: Sequence[Token]) -> None:
        """Give headings their anchors, and lead links to where things are in the site."""
        for number, token in enumerate(tokens):
            if token.type == "heading_open":
                words = "".join(_words(tokens[number + 1].children or ()))
                token.attrSet("id", slug(words, page.anchors))
                if token.tag == "h1" and page.title == page.source:
                    page.title = words
            for name in ("href", "src"):
                target = token.attrGet(name)
                if isinstance(target, str):
                    token.attrSet(name, self._led(page, target))
            self._walk(page, token.children or ())

    def _led(self, page: Page, target: str) -> str:
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            return target
        path, mark, anchor = unquote(target).partition("#")
        folder = posixpath.dirname(page.source)
        source = posixpath.normpath(posixpath.join(folder, path)) if path else page.source
        if source.startswith(("..", "/")) or not self.has(source):
            self.problems.append(f"{page.source} leads to {target}, which is not there")
            return target
        page.links.append((source, anchor))
        way = relative(address(source, self.root), address(page.source, self.root))
        return way + mark + anchor

    def _check_anchors(self) -> None:
        for page in self.pages.values():
            for target, anchor in page.links:
                if anchor and anchor not in self.pages[target].anchors:
                    self.problems.append(
                        f"{page.source} leads to {target}#{anchor}: no such heading"
                    )

    # ------------------------------------------------------------ files

    def order(self) -> list[Page]:
        """The pages in the navigation: in the order of the index, then the rest of docs."""
        index = self.pages.get(INDEX)
        first = [HOME, INDEX, *(target for target, _ in index.links)] if index else [HOME]
        rest = sorted(self._named(self.root / "docs", ".md"))
        names = dict.fromkeys([*first, *rest, *self.generated])
        return [self.pages[name] for name in names if name in self.pages]

    def write(self, folder: Path) -> None:
        """Write it all into a folder, in place of what this has written there before."""
        folder.mkdir(parents=True, exist_ok=True)
        shown = self.order()
        for page in self.pages.values():
            here = address(page.source, self.root)
            file = folder / here
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self._whole(page, here, shown), "utf-8")
        for name in self.pictures:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.root / name, folder / name)
        (folder / "style.css").write_text(style(), "utf-8")

    def _whole(self, page: Page, here: str, shown: list[Page]) -> str:
        items: list[str] = []
        for one in shown:
            way = relative(address(one.source, self.root), here)
            mark = ' aria-current="page"' if one is page else ""
            items.append(f'<li><a href="{escape(way)}"{mark}>{escape(one.title)}</a></li>')
        return PAGE.format(
            title=escape(page.title if page.source == HOME else f"{page.title} · Colonnade"),
            up="../" * here.count("/"),
            nav="\n".join(items),
            body=page.body,
            source=escape(page.source),
        )


def _words(tokens: Sequence[Token]) -> Iterator[str]:
    for token in tokens:
        if token.type in ("text", "code_inline"):
            yield token.content
        yield from _words(token.children or ())


def style() -> str:
    """The style sheet, with the colours of code for light and for dark."""
    light: str = HtmlFormatter(style=LIGHT).get_style_defs(".code")
    dark: str = HtmlFormatter(style=DARK).get_style_defs(".code")
    ours = STYLE.read_text("utf-8")
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n{ours}"


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: python -m docs.site.build FOLDER", file=sys.stderr)
        return 2
    site, folder = Site(generated=reference.pages()), Path(sys.argv[1])
    site.make()
    for problem in site.problems:
        print(problem, file=sys.stderr)
    if site.problems:
        return 1
    site.write(folder)
    print(f"{len(site.pages)} pages in {folder}: {(folder / 'index.html').resolve().as_uri()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
