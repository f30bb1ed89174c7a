"""What README and docs show works as it stands: code runs, commands and files are there.

`snippets` says what is run, and how; this page is for every document that there is.
"""

import re
from pathlib import Path

import pytest

from docs.site import reference
from docs.snippets import ROOT, blocks, fits, problems

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
IDS = [str(path.relative_to(ROOT)) for path in DOCUMENTS]

GENERATED = {
    f"{reference.FOLDER}/{name}.md" for name in ("README", *reference.TITLES, *reference.MODULES)
}
LINK = re.compile(r"\]\(([^)#]+?)(?:#[^)]*)?\)")
MENTIONED = re.compile(r"`((?:scripts|examples|tests|docs|decisions|src)/[\w./-]+)`")


@pytest.mark.parametrize("path", DOCUMENTS, ids=IDS)
def test_code_and_commands_work_as_they_stand(path: Path, tmp_path: Path) -> None:
    assert problems(path.read_text("utf-8"), tmp_path) == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=IDS)
def test_what_is_linked_or_named_is_there(path: Path) -> None:
    text = path.read_text("utf-8")
    for target in LINK.findall(text):
        if "://" not in target:
            there = (path.parent / target).resolve()
            made = there.is_relative_to(ROOT) and there.relative_to(ROOT).as_posix() in GENERATED
            assert made or there.exists(), target
    for name in MENTIONED.findall(text):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("path", DOCUMENTS, ids=IDS)
def test_no_figure_is_left_to_be_filled_in(path: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`]*`", "", path.read_text("utf-8"), flags=re.DOTALL)
    assert re.findall(r"\{\w+\}", prose) == []


def test_something_is_checked() -> None:
    readme = DOCUMENTS[0].read_text("utf-8")
    assert len(blocks(readme, "python")) >= 3
    assert blocks(readme, "sh")


# ---------------------------------------------------------------- the checks themselves

ADD = """```python
# shop.py
from colonnade import Server

server = Server("shop")


@server.tool
def price(item: str) -> int:
    return len(item)


if __name__ == "__main__":
    server.run()
```
"""

BAD = {
    "code that fails": "```python\n1 / 0\n```\n",
    "a name that is nowhere": "```python\nfrom colonnade import Sevrer\n```\n",
    "a warning": "```python\nimport warnings\nwarnings.warn('old')\n```\n",
    "a promise that is not kept": "```python\n1 + 1  # raises ZeroDivisionError\n```\n",
    "a failure before the promised one": "```python\n1 / 0\nint('')  # raises ValueError\n```\n",
    "a test that fails": "```python\n# test_a.py\ndef test() -> None:\n    assert 0\n```\n",
    "a comment that says something else": "```python\nprint(1 + 1)  # 3\n```\n",
    "a comment at a line that is never reached": "```python\nif []:\n    print(1)  # 1\n```\n",
    "a comment in a test": "```python\n# test_a.py\ndef test() -> None:\n    print(1)  # 1\n```\n",
    "a script that is not there": "```sh\nscripts/nothing\n```\n",
    "a verb that is none": "```sh\ncolonnade fly server.py\n```\n",
    "an option that is none": "```sh\ncolonnade serve server.py --wings 2\n```\n",
    "a stranger": "```sh\nnpm install\n```\n",
    "a stranger at a prompt": "```console\n$ npm install\n```\n",
    "something else is printed": ADD
    + "```console\n$ colonnade call shop.py price item=pear\n5\n```\n",
    "nothing is shown": ADD + "```console\n$ colonnade call shop.py price item=pear\n```\n",
    "a server that does not start": "```console\n$ colonnade serve nothing.py\n… on http://…\n```\n",
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_what_does_not_work_is_found(text: str, tmp_path: Path) -> None:
    assert len(problems(text, tmp_path)) == 1


GOOD = (
    ADD
    + """
```python
# test_shop.py
from shop import price


def test_a_price() -> None:
    assert price("pear") == 4
```

```python
import shop

shop.price()  # raises TypeError
```

```python
print("é", shop_is := "open")  # é open
for number in (1, 2):
    print([number])  # [1]
print(
    {"a": object()}
)  # {'a': <object object at …>}
print("quiet")
```

```sh
colonnade serve shop.py --port 8000   # a comment
PORT=1 scripts/demo
```

```console
$ colonnade serve shop.py --port 8123
shop on http://127.0.0.1:8123/mcp
$ colonnade call http://127.0.0.1:8123/mcp \\
    price item=pear
4
$ colonnade call shop.py nothing
colonnade: …
$ colonnade inspect shop.py
shop 0
…
```
"""
)


def test_what_works_is_not_complained_of(tmp_path: Path) -> None:
    assert problems(GOOD, tmp_path) == []


@pytest.mark.parametrize(
    ("printed", "shown", "same"),
    [
        (["a", "b"], ["a", "b"], True),
        (["a", "b"], ["a"], False),
        (["a"], ["a", "b"], False),
        (["a 12 b"], ["a … b"], True),
        (["a", "x", "y", "b"], ["a", "…", "b"], True),
        (["a", "b"], ["a", "…", "b"], True),
        (["a", "x"], ["a", "…", "b"], False),
        ([], ["…"], True),
    ],
)
def test_an_ellipsis_is_anything(printed: list[str], shown: list[str], same: bool) -> None:
    assert fits(printed, shown) is same
