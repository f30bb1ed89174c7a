"""The table `[audit]` of `colonnade.toml`."""

from pathlib import Path

import pytest

from colonnade.host.config.reader import read_config
from colonnade.host.config.settings import Config


def read(folder: Path, text: str, *others: Path, strict: bool = False) -> Config:
    file = folder / "colonnade.toml"
    file.write_text(text)
    return read_config([file, *others], folder=folder, home=str(folder / "home"), strict=strict)


def test_a_table_has_defaults(tmp_path: Path) -> None:
    config = read(tmp_path, "[audit]\n")
    assert config.problems == config.warnings == ()
    assert config.audit is not None
    assert (config.audit.path, config.audit.heads) == ("", "")
    assert (config.audit.required, config.audit.contents) == (False, "none")
    assert config.audit.redact == ()


def test_without_a_table_there_is_no_log(tmp_path: Path) -> None:
    assert read(tmp_path, "[servers.a]\ncommand = 'x'\n").audit is None


def test_paths_begin_at_the_file_or_at_home(tmp_path: Path) -> None:
    config = read(tmp_path, "[audit]\npath = 'log'\nheads = '~/heads.db'\nredact = ['iban']\n")
    assert config.audit is not None
    assert config.audit.path == str(tmp_path / "log")
    assert config.audit.heads == str(tmp_path / "home" / "heads.db")
    assert config.audit.redact == ("iban",)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("require = true", "did you mean required?"),
        ("xyz = 1", "keys are path, required"),
        ("required = 'yes'", "expected true or false; taken as true"),
        ("contents = 'some'", "expected one of 'none', 'arguments', 'all'; taken as 'none'"),
        ("path = 3", "expected a path"),
        ("path = ''", "expected a path"),
        ("redact = [1]", "expected a list of names"),
        ("redact = ['']", "expected a list of names"),
    ],
)
def test_a_wrong_value_is_a_problem_with_its_place(tmp_path: Path, line: str, words: str) -> None:
    config = read(tmp_path, f"[audit]\n{line}\n")
    (problem,) = config.problems
    assert words in problem.summary
    assert problem.place is not None
    assert (problem.place.line, problem.place.column) == (2, 1)
    assert config.audit is not None  # there is a log all the same


def test_a_wrong_required_is_taken_as_true(tmp_path: Path) -> None:
    config = read(tmp_path, "[audit]\nrequired = 'false'\n")
    assert config.audit is not None
    assert config.audit.required


def test_what_is_not_a_table_is_a_problem(tmp_path: Path) -> None:
    config = read(tmp_path, "audit = 'log'\n")
    assert "expected a table" in config.problems[0].summary
    assert config.audit is None


def test_the_first_file_with_a_table_wins(tmp_path: Path) -> None:
    other = tmp_path / "other" / "colonnade.toml"
    other.parent.mkdir()
    other.write_text("[audit]\npath = 'theirs'\n")
    config = read(tmp_path, "[audit]\npath = 'ours'\n", other)
    assert config.audit is not None
    assert config.audit.path == str(tmp_path / "ours")
    assert "not used" in config.warnings[0].summary


SERVER = "[servers.a]\ncommand = 'x'\n"


def test_a_file_that_is_not_trusted_has_no_influence(tmp_path: Path) -> None:
    text = f"[audit]\npath = 'theirs'\ncontents = 'all'\n{SERVER}"
    config = read(tmp_path, text, strict=True)
    assert config.audit is None
    assert "not trusted" in config.warnings[0].summary
    config = read_config(tmp_path / "colonnade.toml", folder=tmp_path, strict=True, trust=True)
    assert config.audit is not None


def test_a_file_without_servers_is_not_trusted_by_itself(tmp_path: Path) -> None:
    assert read(tmp_path, "[audit]\npath = 'theirs'\n", strict=True).audit is None


def test_a_file_that_needs_no_trust_comes_before_one_that_is_trusted(tmp_path: Path) -> None:
    own = tmp_path / "config" / "colonnade" / "colonnade.toml"
    own.parent.mkdir(parents=True)
    own.write_text("[audit]\npath = 'ours'\n")
    (tmp_path / "colonnade.toml").write_text(f"[audit]\npath = 'theirs'\n{SERVER}")
    config = read_config(
        [tmp_path / "colonnade.toml", own],
        trust=True,
        strict=True,
        env={"XDG_CONFIG_HOME": str(tmp_path / "config")},
        home=str(tmp_path),
        folder=tmp_path,
    )
    assert config.audit is not None
    assert config.audit.path == str(own.parent / "ours")
    assert "not used" in config.warnings[0].summary


def test_an_included_file_has_no_influence(tmp_path: Path) -> None:
    (tmp_path / "part.toml").write_text("[audit]\npath = 'theirs'\n")
    config = read(tmp_path, "include = ['part.toml']\n")
    assert config.audit is None
    assert "included" in config.warnings[0].summary
