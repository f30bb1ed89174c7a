"""What `colonnade inspect` does: with one server, or with each of a configuration.

Rules: servers are asked side by side, and one that is broken is told beside the others. Names are
those of the servers themselves: what they are called in a catalogue is for `ls`.
"""

import asyncio
from typing import Final

from colonnade.cli.inspecting import Facts, code_of_findings, facts_of, inspect_server, show_facts
from colonnade.cli.logins import login_for
from colonnade.cli.reached import One
from colonnade.cli.reaching import Terms, is_configuration
from colonnade.cli.screen import Screen
from colonnade.cli.talking import prepare_log, run, sentence, show_json
from colonnade.cli.talking_many import code_of_many, config_for, plain_problems, show_problems
from colonnade.cli.text import one_line
from colonnade.client.connect import connect
from colonnade.errors import ColonnadeError
from colonnade.host.opening import address_of, names_us
from colonnade.host.settings import Config, Entry, Problem

# Servers that are asked together; each may be a process.
AT_ONCE: Final = 8


def inspect_target(terms: Terms, strict: bool) -> int:
    """Show all that a server says of itself, or each of a configuration; the exit code, 1 for
    warnings if `strict`. Raises `Trouble`."""
    if not is_configuration(terms.target):
        return inspect_server(terms, strict)
    screen = Screen()
    prepare_log(terms.debug)
    return run(terms, screen, _inspect(config_for(terms, screen, ""), terms, screen, strict))


async def _inspect(config: Config, terms: Terms, screen: Screen, strict: bool) -> int:
    entries = [one for one in config.entries.values() if one.settings.enabled]
    room = asyncio.Semaphore(AT_ONCE)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_asked(entry, screen, room)) for entry in entries]
    outcomes = {entry.key: task.result() for entry, task in zip(entries, tasks, strict=True)}
    found = {key: one for key, one in outcomes.items() if isinstance(one, Facts)}
    errors = {key: one for key, one in outcomes.items() if isinstance(one, ColonnadeError)}
    broken = [_problem(key, error) for key, error in errors.items()]
    problems = [*config.problems, *broken]
    if terms.as_json:
        servers = {key: facts.plain() for key, facts in found.items()}
        show_json({"servers": servers, "problems": plain_problems(problems)}, screen)
    else:
        _show(found, screen)
        show_problems(problems, screen)
    findings = [one for facts in found.values() for one in facts.findings]
    return code_of_many(found, errors.values()) or code_of_findings(findings, strict)


def _problem(key: str, error: ColonnadeError) -> Problem:
    """What is wrong with a server, with its name."""
    words = sentence(error)
    return Problem(key, words if error.server == key else f"server {key!r}: {words}")


async def _asked(entry: Entry, screen: Screen, room: asyncio.Semaphore) -> Facts | ColonnadeError:
    settings = entry.settings
    async with room:
        try:
            target = await entry.resolve()
            url = address_of(target)
            auth = login_for(url, screen, ask=False) if url and not names_us(target) else None
            connecting = connect(
                target,
                server_name=entry.key,
                auth=auth,
                revision=settings.revision,
                timeout_s=settings.timeout_s,
            )
            async with connecting as client:
                return await facts_of(One(client))
        except ColonnadeError as error:
            return error


def _show(found: dict[str, Facts], screen: Screen) -> None:
    for number, (key, facts) in enumerate(found.items()):
        screen.write(f"{chr(10) if number else ''}{screen.accent(one_line(key))}: ")
        show_facts(facts, screen)
