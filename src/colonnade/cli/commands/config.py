"""`colonnade config explain`, `check` and `trust`: configuration files with servers.

Rules: nothing is started, and no secret is looked up.
"""

import os
from collections.abc import Sequence
from functools import partial
from shlex import quote
from typing import Any, Final

import click
import msgspec

from colonnade.cli.config_target import ask_trust, describe_request
from colonnade.cli.errors import FAILED, CliError, Reporter
from colonnade.cli.options import Action, complete_file
from colonnade.cli.terminal import Terminal
from colonnade.errors import ColonnadeError
from colonnade.host.config.explain import explain as explain_servers
from colonnade.host.config.explain import line, render, short
from colonnade.host.config.formats import existing_files
from colonnade.host.config.lookups import Input
from colonnade.host.config.reader import ConfigReader
from colonnade.host.config.settings import Config, HostProblem
from colonnade.host.config.trust import Trust, TrustRequest, forget
from colonnade.text import clean

JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(epilog="Example: colonnade config explain .mcp.json")
def config() -> None:
    """Configuration files of Claude, VS Code, Cursor and Codex, and colonnade.toml."""


@config.command(
    short_help="Show every value, and where it comes from.",
    epilog="""\b
Examples:
  colonnade config explain                 all files found for this folder, by program
  colonnade config explain .mcp.json ~/.claude.json
  colonnade config explain colonnade.toml --all
""",
)
@click.argument("files", metavar="[FILE]...", nargs=-1, shell_complete=complete_file)
@click.option("--all", "everything", is_flag=True, help="Include defaults.")
@JSON
def explain(files: tuple[str, ...], everything: bool, as_json: bool) -> Action:
    """Show every value of each server, with the file, line and scope that it comes from.

    References are shown as they are written, with whether they can be resolved, and never with
    their value. Nothing is started.
    """
    return partial(explain_files, files, everything=everything, as_json=as_json)


@config.command(
    short_help="Report errors in files, for scripts.",
    epilog="""\b
Examples:
  colonnade config check .mcp.json         file:line:column: key: message
  colonnade config check colonnade.toml --json
""",
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, shell_complete=complete_file)
@JSON
def check(files: tuple[str, ...], as_json: bool) -> Action:
    """Report errors and warnings, one per line: file:line:column: key: message.

    The exit status is 1 if there are errors, and 0 if there are only warnings. Trust is not
    checked. Nothing is started.
    """
    return partial(check_files, files, as_json=as_json)


@config.command(
    short_help="Trust the file of a project.",
    epilog="""\b
Examples:
  colonnade config trust .mcp.json         show what it starts, and ask
  colonnade config trust .mcp.json --yes   for scripts that know the content
  colonnade config trust .mcp.json --forget
""",
)
@click.argument("file", metavar="FILE", shell_complete=complete_file)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--forget", is_flag=True, help="Revoke the trust.")
def trust(file: str, yes: bool, forget: bool) -> Action:
    """Show all that a file makes happen, and ask whether to trust it.

    Trust is for the exact content of the file, and of the files that it includes: after a change,
    the question is asked again.
    """
    return partial(forget_file, file) if forget else partial(trust_file, file, yes=yes)


def _reader(trust: Trust = None) -> ConfigReader:
    return ConfigReader(trust=trust, on_input=_no_input, strict=True)


def _no_input(_: Input) -> str | None:
    """Inputs are asked for when a server is used, not here."""
    return None


# ---------------------------------------------------------------- explain


def explain_files(files: Sequence[str], *, everything: bool, as_json: bool) -> int:
    """Show every value and where it comes from; return the exit code."""
    home, folder = os.path.expanduser("~"), os.getcwd()
    groups = (
        [("", list(files))]
        if files
        else list(existing_files(home=home, folder=folder, env=os.environ))
    )
    terminal, programs, code = Terminal(), list[dict[str, Any]](), 0
    for program, paths in groups:
        reader, trust_prompt = _reader(), _reader(trust=True)
        config = reader.read(paths)
        trust_prompt.read(paths)
        servers = explain_servers(reader, trust_prompt, everything=everything)
        code = max(code, FAILED if any(not one.server for one in config.problems) else 0)
        if as_json:
            found = {"program": program, "servers": servers, **_problems_to_json(config)}
            if config.policy is not None:
                found["policy"] = {"version": config.policy.version, "files": _with_rules(reader)}
            programs.append(found)
            continue
        if program:
            terminal.write(terminal.heading(f"{program}\n\n"))
        terminal.write(render(servers, home=home, folder=folder))
        for file in _with_rules(reader):
            name = short(file, home, folder)
            hint = f"colonnade policy ls {quote(name)} shows its rules"
            terminal.write(f"{clean(f'{name} has a policy; {hint}')}\n\n")
        _print_problems(terminal, config, reader)
    if not groups and not as_json:
        terminal.write("no servers are configured for this folder\n")
    if as_json:
        value = programs if not files else {k: v for k, v in programs[0].items() if k != "program"}
        _show_json(terminal, value)
    return code


def _with_rules(reader: ConfigReader) -> list[str]:
    """The files that have a policy and are used."""
    return [one.file for one in reader.used if one.policy is not None]


def _print_problems(terminal: Terminal, config: Config, reader: ConfigReader | None = None) -> None:
    """Print a line for each problem; for a file that is not trusted, one for all its servers."""
    untrusted = reader.untrusted if reader is not None else {}
    known = {problem for servers in untrusted.values() for problem in servers}
    for problem in config.problems:
        if problem not in known:
            terminal.write(f"{line(problem)}\n")
    for file in untrusted:
        hint = f"review it, then run colonnade config trust {quote(file)}"
        terminal.write(f"{clean(f'{file} is not trusted; {hint}')}\n")
    for warning in config.warnings:
        terminal.write(f"{line(warning)} (warning)\n")


# ---------------------------------------------------------------- check


def check_files(files: Sequence[str], *, as_json: bool) -> int:
    """Report problems, one per line; return the exit code."""
    terminal, config = Terminal(), _reader(trust=True).read(list(files))
    if as_json:
        _show_json(terminal, _problems_to_json(config))
    else:
        _print_problems(terminal, config)
    return FAILED if config.problems else 0


def _show_json(terminal: Terminal, value: Any) -> None:
    terminal.show(msgspec.json.format(msgspec.json.encode(value)).decode())


def _problems_to_json(config: Config) -> dict[str, Any]:
    return {
        "problems": [problem_to_json(problem) for problem in config.problems],
        "warnings": [problem_to_json(warning) for warning in config.warnings],
    }


def problem_to_json(problem: HostProblem) -> dict[str, Any]:
    """A problem as JSON: server, message, and place."""
    made: dict[str, Any] = {"server": problem.server, "message": problem.message}
    return {**made, **problem.place._asdict()} if problem.place is not None else made


# ---------------------------------------------------------------- trust


def trust_file(file: str, *, yes: bool) -> int:
    """Show what a file does, and ask whether to trust it; return the exit code."""
    reporter, terminal = Reporter(), Terminal()
    asked: list[TrustRequest] = []

    def answer(question: TrustRequest) -> bool:
        asked.append(question)
        if yes:
            terminal.note(f"{clean(question.file)} does this:\n{describe_request(question)}")
            return True
        if not terminal.can_ask:
            terminal.note(f"{clean(question.file)} does this:\n{describe_request(question)}")
            raise CliError(
                "there is no terminal to ask in", FAILED, hint="review the file, then use --yes"
            )
        return ask_trust(question)

    reader = _reader(trust=answer)
    try:
        config = reader.read(file)
    except ColonnadeError as error:
        raise CliError(f"{clean(file)} is not trusted: {error}", FAILED) from None
    wrong = [one for one in config.problems if not one.server and not one.untrusted]
    if wrong:
        raise CliError(f"{line(wrong[0])}; the file was not trusted", FAILED)
    if reader.untrusted:
        raise CliError(f"{clean(file)} is not trusted; it is not used", FAILED)
    if not asked:
        guarded = any(source.needs_trust for source in reader.sources)
        how = "is already trusted" if guarded else "is your own file and needs no trust"
        reporter.info(f"{clean(file)} {how}")
        return 0
    reporter.info(f"{clean(file)} is trusted until it changes")
    return 0


def forget_file(file: str) -> int:
    """Revoke the trust in a file; return the exit code."""
    known = forget(os.path.realpath(file))
    Reporter().info(
        f"{clean(file)} is no longer trusted" if known else f"{clean(file)} was not trusted"
    )
    return 0
