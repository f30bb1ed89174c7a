"""The package as a stranger meets it: what importing costs, which names there are, what is said.

Rules: what an import loads is judged in a fresh interpreter, never in this one.
"""

import ast
import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import colonnade
from layers import imports, read

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "colonnade"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

# Each costs more to load than the whole protocol core, or belongs to a layer above it.
HEAVY = {
    "asyncio",
    "ssl",
    "logging",
    "jsonschema_rs",
    "pydantic",
    "annotated_types",
    "attr",
    "attrs",
}


def loaded_by(statement: str) -> set[str]:
    """The modules that one statement adds to a fresh interpreter."""
    code = (
        f"import sys; before = set(sys.modules); {statement}; print(*(set(sys.modules) - before))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


def homes() -> dict[str, str]:
    """The table of lazy names, read from the source as an editor cannot."""
    return dict(vars(colonnade)["_HOMES"])


def stub_names() -> dict[str, str]:
    """Each name of the stub with the module that it comes from."""
    tree = ast.parse((SOURCE / "__init__.pyi").read_text("utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return {
        alias.name: str(node.module).removeprefix("colonnade.")
        for node in imports
        for alias in node.names
        if alias.asname == alias.name
    }


def test_what_is_imported_is_what_is_installed() -> None:
    """No library is missing where nothing else is installed, and none is installed for nothing."""
    extras = PROJECT["optional-dependencies"].values()
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in extra)]
    # The API of OpenTelemetry is a part of its one package.
    names = {Requirement(line).name.replace("-", "_").removesuffix("_api") for line in lines}
    installed = {"docket" if name == "pydocket" else name for name in names}
    targets = {
        found.target.split(".")[0] for module in read(SOURCE).values() for found in imports(module)
    }
    # pytest runs `colonnade.testing`, so it is there.
    assert targets - sys.stdlib_module_names - {"colonnade", "pytest"} == installed


def test_importing_colonnade_loads_nothing_but_itself() -> None:
    assert loaded_by("import colonnade") == {"colonnade"}


def test_importing_every_name_leaves_the_garbage_collector_to_the_application() -> None:
    code = (
        "import gc; called = []\n"
        "for name in ('collect', 'disable', 'enable', 'freeze', 'set_threshold', 'unfreeze'):\n"
        "    setattr(gc, name, lambda *given, name=name: called.append(name))\n"
        "from colonnade import *\n"
        "print(called)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout) == (0, "[]\n"), run.stderr


def test_importing_the_whole_protocol_loads_nothing_heavy() -> None:
    modules = [f"colonnade.protocol.{path.stem}" for path in (SOURCE / "protocol").glob("[!_]*.py")]
    assert modules
    assert not HEAVY & loaded_by("import " + ", ".join(["colonnade.errors", *modules]))


def test_a_lazy_name_is_the_object_of_its_home_and_stays() -> None:
    for name, home in homes().items():
        value = getattr(colonnade, name)
        assert value is getattr(import_module(f"colonnade.{home}"), name)
        assert vars(colonnade)[name] is value


def test_the_stub_and_the_lazy_table_agree() -> None:
    assert stub_names() == homes()


def test_the_lazy_table_is_sorted_and_is_what_star_and_dir_give() -> None:
    assert list(homes()) == sorted(homes())
    assert set(homes()) <= set(dir(colonnade))
    starred: dict[str, object] = {}
    exec("from colonnade import *", starred)
    assert starred.keys() - {"__builtins__"} == homes().keys()


def test_every_public_exception_is_a_name_of_the_package() -> None:
    errors = vars(import_module("colonnade.errors")).values()
    exceptions = {e.__name__ for e in errors if isinstance(e, type) and issubclass(e, Exception)}
    # A Fault never reaches a user: it is the protocol's own word for what the peer is told.
    assert exceptions - {"Fault"} <= homes().keys()


def test_a_name_that_does_not_exist_is_an_attribute_error_that_says_it() -> None:
    with pytest.raises(AttributeError, match="no name 'Sever'"):
        _ = getattr(colonnade, "Sever")  # noqa: B009


def test_the_version_is_the_one_of_the_project() -> None:
    assert colonnade.__version__ == version("colonnade") == PROJECT["version"]


def test_the_package_says_that_it_is_typed() -> None:
    assert (SOURCE / "py.typed").exists()


def test_the_changelog_has_an_entry_for_this_version() -> None:
    heads = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert heads[0] == PROJECT["version"]


def test_every_decision_is_listed_in_the_architecture_and_every_listed_one_exists() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    listed = re.findall(r"\((decisions/[^)]+\.md)\)", text)
    assert sorted(listed) == sorted(
        f"decisions/{path.name}" for path in (ROOT / "decisions").iterdir()
    )


@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_every_command_of_a_page_exists_and_can_be_run(page: str) -> None:
    commands = set(re.findall(r"(?:scripts|\.ci)/[a-z]+\b", (ROOT / page).read_text("utf-8")))
    assert commands
    for command in commands:
        assert os.access(ROOT / command, os.X_OK), f"{page} names {command}"


@pytest.mark.parametrize("script", ["test", "check", "demo", "bench", "flaky", "versions", "docs"])
def test_a_script_says_how_it_is_used_from_anywhere(script: str, tmp_path: Path) -> None:
    command = [str(ROOT / "scripts" / script), "--help"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith(f"usage: scripts/{script}")


def test_ci_calls_the_tests_and_nothing_else() -> None:
    lines = (ROOT / ".ci" / "run").read_text("utf-8").splitlines()
    commands = [line for line in lines if line and not line.startswith("#")]
    assert commands == ['COLONNADE_REQUIRE_REDIS=1 exec "$(dirname -- "$0")/../scripts/test"']


def test_every_link_of_a_page_leads_to_a_file() -> None:
    for page in [*ROOT.glob("*.md"), *ROOT.glob("decisions/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
