"""What `colonnade config` does: explain, check, trust.

Rules: nothing is started, and no secret is looked up. Standard output has what was asked for.
"""

import os
from collections.abc import Sequence
from shlex import quote
from typing import Any

import msgspec

from colonnade.cli.config_target import ask_trust, wanted
from colonnade.cli.errors import FAILED, Trouble, Voice
from colonnade.cli.terminal import Screen
from colonnade.errors import ColonnadeError
from colonnade.host.config.explain import explain, line, render
from colonnade.host.config.formats import existing_files
from colonnade.host.config.lookups import Input
from colonnade.host.config.reader import ConfigReader
from colonnade.host.config.settings import Config, HostProblem
from colonnade.host.config.trust import Trust, TrustRequest, forget
from colonnade.text import clean


def _reader(trust: Trust = None) -> ConfigReader:
    return ConfigReader(trust=trust, on_input=_nobody, strict=True)


def _nobody(_: Input) -> str | None:
    """Who could be asked when a server is used; here none is."""
    return None


# ---------------------------------------------------------------- explain


def explain_files(files: Sequence[str], *, everything: bool, as_json: bool) -> int:
    """Show each value and where it came from; the exit code."""
    home, folder = os.path.expanduser("~"), os.getcwd()
    groups = (
        [("", list(files))]
        if files
        else list(existing_files(home=home, folder=folder, env=os.environ))
    )
    screen, found, code = Screen(), list[dict[str, Any]](), 0
    for program, paths in groups:
        reader, trusting = _reader(), _reader(trust=True)
        config = reader.read(paths)
        trusting.read(paths)
        servers = explain(reader, trusting, everything=everything)
        code = max(code, FAILED if any(not one.server for one in config.problems) else 0)
        if as_json:
            found.append({"program": program, "servers": servers, **_told(config)})
            continue
        if program:
            screen.write(screen.heading(f"{program}\n\n"))
        screen.write(render(servers, home=home, folder=folder))
        _list(screen, config, reader)
    if not groups and not as_json:
        screen.write("no program has servers configured for this folder\n")
    if as_json:
        value = found if not files else {k: v for k, v in found[0].items() if k != "program"}
        _show_json(screen, value)
    return code


def _list(screen: Screen, config: Config, reader: ConfigReader | None = None) -> None:
    """A line for each problem; of a file that is not trusted, one for all of its servers."""
    untrusted = reader.untrusted if reader is not None else {}
    known = {problem for many in untrusted.values() for problem in many}
    for problem in config.problems:
        if problem not in known:
            screen.write(f"{line(problem)}\n")
    for file in untrusted:
        words = f"{file} is not trusted; look at it, and then: colonnade config trust {quote(file)}"
        screen.write(f"{clean(words)}\n")
    for warning in config.warnings:
        screen.write(f"{line(warning)} (a warning)\n")


# ---------------------------------------------------------------- check


def check_files(files: Sequence[str], *, as_json: bool) -> int:
    """Say what is wrong, one line each; the exit code."""
    screen, config = Screen(), _reader(trust=True).read(list(files))
    if as_json:
        _show_json(screen, _told(config))
    else:
        _list(screen, config)
    return FAILED if config.problems else 0


def _show_json(screen: Screen, value: Any) -> None:
    screen.show(msgspec.json.format(msgspec.json.encode(value)).decode())


def _told(config: Config) -> dict[str, Any]:
    return {
        "problems": [plain_problem(problem) for problem in config.problems],
        "warnings": [plain_problem(warning) for warning in config.warnings],
    }


def plain_problem(problem: HostProblem) -> dict[str, Any]:
    """A problem for programs: whose, what, and where."""
    made: dict[str, Any] = {"server": problem.server, "words": problem.words}
    return {**made, **problem.place._asdict()} if problem.place is not None else made


# ---------------------------------------------------------------- trust


def trust_file(file: str, *, yes: bool) -> int:
    """Show what a file wants, and ask whether it may be used; the exit code."""
    voice, screen = Voice(), Screen()
    asked: list[TrustRequest] = []

    def answer(question: TrustRequest) -> bool:
        asked.append(question)
        if yes:
            screen.note(f"{clean(question.file)} wants this:\n{wanted(question)}")
            return True
        if not screen.can_ask:
            screen.note(f"{clean(question.file)} wants this:\n{wanted(question)}")
            raise Trouble("nobody is here to say so; look at it, and then: --yes", FAILED)
        return ask_trust(question)

    reader = _reader(trust=answer)
    try:
        config = reader.read(file)
    except ColonnadeError as error:
        raise Trouble(f"{clean(file)} is not trusted: {error}", FAILED) from None
    wrong = [problem for problem in config.problems if not problem.server]
    if wrong:
        raise Trouble(f"{line(wrong[0])}; nothing was trusted", FAILED)
    if reader.untrusted:
        raise Trouble(f"{clean(file)} is not trusted, and none of its servers is used", FAILED)
    if not asked:
        guarded = any(source.needs_trust for source in reader.sources)
        how = "was trusted already, just so" if guarded else "is your own, and needs no trust"
        voice.say(f"{clean(file)} {how}")
        return 0
    voice.say(f"{clean(file)} is trusted from now on, until it changes")
    return 0


def forget_file(file: str) -> int:
    """Trust a file no more; the exit code."""
    known = forget(os.path.realpath(file))
    Voice().say(f"{clean(file)} is trusted no more" if known else f"{clean(file)} was not trusted")
    return 0
