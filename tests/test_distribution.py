"""What an index shows of a distribution: its metadata, and a description that needs no repository."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from trove_classifiers import classifiers

from hatch_build import ADDRESS, portable, urls

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
HERE = "https://git.example.com/colonnade/colonnade"
# Where packages are fetched from, in pieces: a whole name would be found here.
REGISTRIES = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("crates", "io"),
        ("proxy", "golang", "org"),
        ("sum", "golang", "org"),
        ("maven", "org"),
        ("anaconda", "org"),
        ("docker", "io"),
        ("ghcr", "io"),
        ("quay", "io"),
    )
]


def metadata(address: str) -> dict[str, Any]:
    """The metadata of a distribution that is built here, as the build makes it."""
    env = {name: value for name, value in os.environ.items() if name != ADDRESS}
    env |= {ADDRESS: address} if address else {}
    command = [sys.executable, "-m", "hatchling", "metadata"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=env, timeout=60)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def relative(text: str) -> list[str]:
    """The links of a page, outside of code, that lead nowhere on another host."""
    prose = re.sub(r"^(`{3,}).*?^\1$|`[^`]+`", "", text, flags=re.MULTILINE | re.DOTALL)
    return [one for one in re.findall(r"\]\(([^)]+)\)", prose) if not re.match(r"https?://|#", one)]


def test_the_description_of_an_index_leads_to_the_repository() -> None:
    made = metadata(f"{HERE}/")
    text = made["readme"]["text"]
    assert made["readme"]["content-type"] == "text/markdown"
    assert relative((ROOT / "README.md").read_text("utf-8"))
    assert relative(text) == []
    assert f"]({HERE}/blob/HEAD/docs/README.md)" in text
    assert f"]({HERE}/raw/HEAD/docs/demo.svg)" in text
    assert made["urls"] == urls(HERE, "HEAD")
    for name in ("docs/README.md", "CHANGELOG.md", "SECURITY.md"):
        assert any(url.endswith(f"/HEAD/{name}") for url in made["urls"].values())
        assert (ROOT / name).is_file()


def test_where_no_repository_is_known_words_stay_and_pictures_go() -> None:
    made = metadata("")
    text = made["readme"]["text"]
    assert relative(text) == []
    assert "![" not in text
    assert "docs has a page for each task" in " ".join(text.split())
    assert "urls" not in made


@pytest.mark.parametrize(
    ("text", "there", "nowhere"),
    [
        ("[a](b.md#c)", f"[a]({HERE}/blob/v1/b.md#c)", "a"),
        ("![a](b.svg)", f"![a]({HERE}/raw/v1/b.svg)", ""),
        ("[a](#b) [c](https://d)", "[a](#b) [c](https://d)", "[a](#b) [c](https://d)"),
        ("`[a](b)` [`c`](d)", f"`[a](b)` [`c`]({HERE}/blob/v1/d)", "`[a](b)` `c`"),
        (
            "```md\n[a](b)\n```\n[a](b)",
            f"```md\n[a](b)\n```\n[a]({HERE}/blob/v1/b)",
            "```md\n[a](b)\n```\na",
        ),
    ],
)
def test_links_are_moved_and_code_is_left_alone(text: str, there: str, nowhere: str) -> None:
    assert portable(text, HERE, "v1") == there
    assert portable(text, "", "v1") == nowhere


def test_every_classifier_is_one_that_indexes_know() -> None:
    assert set(PROJECT["classifiers"]) <= classifiers
    assert PROJECT["classifiers"] == sorted(PROJECT["classifiers"])


def test_a_classifier_names_every_python_from_the_oldest_that_is_required() -> None:
    versions = [
        one.rpartition(" ")[2]
        for one in PROJECT["classifiers"]
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", one)
    ]
    assert versions == ["3.11", "3.12", "3.13", "3.14"]
    assert PROJECT["requires-python"] == f">={versions[0]}"


def test_no_file_names_the_host_of_a_package_registry() -> None:
    found = re.compile("|".join(re.escape(host) for host in REGISTRIES))
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    names = [name for name in run.stdout.decode().split("\0") if (ROOT / name).is_file()]
    assert len(names) > 500
    naming = [
        name for name in names if found.search((ROOT / name).read_text("utf-8", errors="replace"))
    ]
    assert naming == []
