"""The pages for the generator of the hosted site, and its llms.txt: `scripts/docs site`.

    python -m docs.site.hosted stage    write the Markdown of every page into docs_dir
    python -m docs.site.hosted finish   add llms.txt and the Markdown to site_dir

The generator (zensical.toml) takes Markdown from one folder. That folder is made here, from the
same pages as the site of `scripts/docs`: links to code lead to pages with that code. `llms.txt`
lists the pages of the navigation with what each is about; the Markdown of each is in the site, too.

Rules: no page is edited, only where its links lead; a link that leads nowhere is a failure.
"""

import posixpath
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from docs.site import reference
from docs.site.build import PICTURES, ROOT, Page, Site

CONFIG = ROOT / "zensical.toml"
CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
LINK = re.compile(r"(\]\()([^)\s]+)(\))")


def staged(source: str, root: Path = ROOT) -> str:
    """The path of a page of the clone in the folder of the generator."""
    folder, name = posixpath.split(source)
    if (root / source).is_dir():
        return posixpath.join(source, "index.md")
    if name == "README.md":
        return posixpath.join(folder, "index.md")
    return source if Path(name).suffix in {".md", *PICTURES} else f"{source}.md"


def redirected(text: str, source: str, root: Path = ROOT) -> str:
    """A page whose links lead to the staged pages; what stands in code stays as it is."""
    folder, here = posixpath.dirname(source), posixpath.dirname(staged(source, root))

    def led(found: re.Match[str]) -> str:
        target = found[2]
        if re.match(r"[a-z][a-z0-9+.-]*:", target) or target.startswith("#"):
            return found[0]
        path, mark, anchor = unquote(target).partition("#")
        there = staged(posixpath.normpath(posixpath.join(folder, path)), root)
        return f"{found[1]}{posixpath.relpath(there, here or '.')}{mark}{anchor}{found[3]}"

    made: list[str] = []
    fence = ""
    for line in text.splitlines():
        begun = re.match(r" {0,3}(`{3,})", line)
        if begun and not fence:
            fence = begun[1]
        elif fence and line.strip() == fence:
            fence = ""
        elif not fence:
            codes = [found[0] for found in CODE.finditer(line)]
            line = LINK.sub(led, CODE.sub("\0", line))
            for code in codes:
                line = line.replace("\0", code, 1)
        made.append(line)
    return "\n".join(made) + "\n"


def markdown(page: Page, site: Site) -> str:
    """The Markdown of a page: of prose as it is, of code in a block, of a folder as a list."""
    source = page.source
    if source in site.generated:
        return redirected(site.generated[source], source, site.root)
    path = site.root / source
    if path.is_dir():
        here = posixpath.dirname(staged(source, site.root))
        lines = [
            f"- [{posixpath.basename(target)}]"
            f"({posixpath.relpath(staged(target, site.root), here)})"
            for target, _ in page.links
        ]
        return f"# {source}\n\n" + "\n".join(lines) + "\n"
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        return redirected(text, source, site.root)
    longest = max((len(one) for one in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"# {source}\n\n{fence}{path.suffix.removeprefix('.')}\n{text.rstrip()}\n{fence}\n"


def stage(folder: Path) -> list[str]:
    """Write every page into a new folder; what is wrong with them."""
    site = Site(generated=reference.pages())
    site.make()
    if site.problems:
        return site.problems
    if folder.exists():
        shutil.rmtree(folder)
    for page in site.pages.values():
        file = folder / staged(page.source)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(markdown(page, site), "utf-8")
    for picture in site.pictures:
        (folder / picture).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / picture, folder / picture)
    missing = [path for _, path in navigation() if not (folder / path).is_file()]
    return [f"{CONFIG.name} names {path}, which is not there" for path in missing]


# ---------------------------------------------------------------- llms.txt


def settings() -> dict[str, Any]:
    """The settings of the generator."""
    return tomllib.loads(CONFIG.read_text("utf-8"))["project"]


def navigation(nav: list[Any] | None = None, section: str = "") -> Iterator[tuple[str, str]]:
    """The pages of the navigation in order, each with the topmost section that it is in."""
    for one in settings()["nav"] if nav is None else nav:
        if isinstance(one, str):
            yield section, one
            continue
        for title, inside in one.items():
            if isinstance(inside, str):
                yield section, inside
            else:
                yield from navigation(inside, section or title)


def about(text: str) -> tuple[str, str]:
    """The title of a page, and its first sentence."""
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    paragraphs = [one for one in prose.split("\n\n") if re.match(r"[A-Za-z`*\[]", one)]
    first = " ".join(paragraphs[0].split()) if paragraphs else ""
    first = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", first)
    return (title[1] if title else ""), re.split(r"(?<=[.!?])\s", first, maxsplit=1)[0].rstrip(":")


def index(pages: Path) -> str:
    """The text of llms.txt, of the pages that were staged."""
    known = settings()
    lines = [f"# {known['site_name']}", "", f"> {known['site_description']}"]
    section = None
    for name, path in navigation():
        if name != section:
            section = name
            lines += ["", f"## {name or 'Start'}", ""]
        title, words = about((pages / path).read_text("utf-8"))
        lines.append(f"- [{title}]({path})" + (f": {words}" if words else ""))
    return "\n".join(lines) + "\n"


def finish(pages: Path, site: Path) -> None:
    """Add llms.txt and the Markdown of every page to the finished site."""
    (site / "llms.txt").write_text(index(pages), "utf-8")
    for file in pages.rglob("*.md"):
        there = site / file.relative_to(pages)
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, there)


def main() -> int:
    pages = ROOT / settings()["docs_dir"]
    match sys.argv[1:]:
        case ["stage"]:
            problems = stage(pages)
            for problem in problems:
                print(problem, file=sys.stderr)
            return 1 if problems else 0
        case ["finish"]:
            finish(pages, ROOT / settings()["site_dir"])
            return 0
        case _:
            print("usage: python -m docs.site.hosted stage|finish", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main())
