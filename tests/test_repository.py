"""What the host of the repository reads: workflows, templates, and the policy for security reports."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / ".github").rglob("*.yml"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").iterdir())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def read(path: Path) -> dict[Any, Any]:
    found: Any = yaml.safe_load(path.read_text("utf-8"))
    assert isinstance(found, dict), path
    return found  # pyright: ignore[reportUnknownVariableType]


def jobs(path: Path) -> dict[str, dict[str, Any]]:
    return read(path)["jobs"]


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in jobs(path).values() for step in job["steps"]]


def names(paths: list[Path]) -> list[str]:
    return [path.relative_to(ROOT).as_posix() for path in paths]


@pytest.mark.parametrize("path", FILES, ids=names(FILES))
def test_every_file_is_yaml(path: Path) -> None:
    assert read(path)


@pytest.mark.parametrize("path", WORKFLOWS, ids=names(WORKFLOWS))
def test_a_workflow_has_no_right_that_it_does_not_need(path: Path) -> None:
    allowed = read(path)["permissions"]
    assert allowed in ({}, {"contents": "read"})
    for job in jobs(path).values():
        rights = {right for right, kind in job.get("permissions", {}).items() if kind == "write"}
        assert rights <= {"id-token", "attestations", "pages"}
    for step in steps(path):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("path", WORKFLOWS, ids=names(WORKFLOWS))
def test_an_action_is_pinned_and_a_job_ends(path: Path) -> None:
    for step in steps(path):
        if "uses" in step:
            assert re.fullmatch(r"[\w.-]+/[\w.-]+@(v\d+|release/v\d+|[0-9a-f]{40})", step["uses"])
    assert all(job["timeout-minutes"] <= 60 for job in jobs(path).values())


@pytest.mark.parametrize("path", WORKFLOWS, ids=names(WORKFLOWS))
def test_nothing_of_a_pull_request_is_put_into_a_script(path: Path) -> None:
    assert "pull_request_target" not in path.read_text("utf-8")
    for step in steps(path):
        assert "${{" not in step.get("run", ""), "give it as a variable of the environment"


def test_a_release_needs_no_secret_and_is_tested_built_and_attested_before_it_is_published() -> (
    None
):
    path = ROOT / ".github" / "workflows" / "release.yml"
    text = path.read_text("utf-8")
    assert "secrets." not in text
    assert "password" not in text
    made = jobs(path)
    assert made["publish"]["needs"] == "build"
    assert made["build"]["needs"] == "test"
    assert made["publish"]["permissions"] == {"id-token": "write"}
    assert made["publish"]["environment"] == "release"
    used = [step.get("uses", "") for step in made["build"]["steps"]]
    assert any(one.startswith("actions/attest-build-provenance@") for one in used)
    # What is published is what was built; nothing is built again where there is a right to publish.
    assert [step.get("uses", "").partition("@")[0] for step in made["publish"]["steps"]] == [
        "actions/download-artifact",
        "pypa/gh-action-pypi-publish",
    ]
    build = next(step for step in made["build"]["steps"] if step.get("name") == "Build")
    assert build["env"]["COLONNADE_REPOSITORY"]


def test_the_tests_run_on_three_systems_and_every_python_that_is_promised() -> None:
    made = jobs(ROOT / ".github" / "workflows" / "tests.yml")
    matrix = made["every-python"]["strategy"]["matrix"]
    assert {name.partition("-")[0] for name in matrix["system"]} == {"ubuntu", "macos", "windows"}
    promised = [one.rpartition(" ")[2] for one in PROJECT["classifiers"] if ":: 3." in one]
    assert matrix["python"] == promised
    assert any(step.get("run") == ".ci/run" for step in made["everything"]["steps"])


@pytest.mark.parametrize("name", ["bug", "feature"])
def test_a_template_asks_for_something_and_has_each_field_once(name: str) -> None:
    form = read(ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml")
    assert {"name", "description", "body"} <= form.keys()
    ids = [field["id"] for field in form["body"] if field["type"] != "markdown"]
    assert len(ids) == len(set(ids))
    assert any(field.get("validations", {}).get("required") for field in form["body"])


def test_the_security_policy_says_how_to_report_which_versions_and_what_is_in_scope() -> None:
    text = (ROOT / "SECURITY.md").read_text("utf-8")
    heads = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert heads == ["Reporting a vulnerability", "Supported versions", "Scope"]
    assert "@" not in text, "an address of a person would have to be kept true"
