"""A configuration file as the target of a command: read, trusted by whoever sits there, limited.

Rules: a file that has to be trusted is shown whole, and used for an unmistakable yes alone; where
nobody can be asked, only what was trusted before is used. A password is typed unseen.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from colonnade.cli.errors import Trouble
from colonnade.cli.options import FOUND, TIMEOUT_S, Terms, known_revision, shown_configuration
from colonnade.cli.terminal import Screen
from colonnade.host.config.formats import existing_files
from colonnade.host.config.lookups import Input
from colonnade.host.config.reader import read_config
from colonnade.host.config.settings import Config, ServerEntry
from colonnade.host.config.trust import TrustRequest
from colonnade.text import clean, one_line

WARNING = (
    "This is dangerous if you do not know who wrote it: it runs code on this machine, with the "
    "same rights as you have."
)
_WORDS = {
    "run": "starts",
    "in": "in the folder",
    "reach": "speaks to",
    "set": "with the variable",
    "send": "with the header",
    "read": "with variables of",
    "ask": "asks the program",
}


def wanted(question: TrustRequest) -> str:
    """All that a file wants, as text."""
    lines: list[str] = []
    server = None
    for wish in question.actions:
        if wish.server != server:
            server = wish.server
            lines.append(f"  {server}")
        lines.append(f"    {_WORDS[wish.what]}: {wish.text}")
        lines += [f"      ! {danger}" for danger in wish.dangers]
    return "".join(f"{line}\n" for line in lines)


def ask_trust(question: TrustRequest) -> bool:
    """Show it to whoever sits here, and ask; no, where nobody does."""
    screen = Screen()
    if not screen.can_ask:
        return False
    why = "has changed since it was trusted" if question.changed else "was never trusted here"
    screen.note(f"{clean(question.file)} {why}. It wants this:\n{wanted(question)}")
    screen.note(f"{screen.emphasis(WARNING)}\nTrust it? [y/N] ")
    answer = sys.stdin.readline().strip().lower()
    return answer in ("y", "yes")


class Trusting:
    """Asks whoever sits at the terminal; remembers what came of it."""

    def __init__(self) -> None:
        # The servers that nobody trusts, and the file that they stand in.
        self.refused: dict[str, str] = {}
        self.agreed: set[str] = set()

    def __call__(self, question: TrustRequest) -> bool:
        """Whether a file may be used as it is now."""
        servers = dict.fromkeys(wish.server for wish in question.actions)
        if ask_trust(question):
            self.agreed.update(servers)
            return True
        self.refused.update(dict.fromkeys(servers, question.file))
        return False


def asker_of_inputs(screen: Screen) -> Callable[[Input], Awaitable[str | None]] | None:
    """Who answers what a file asks for; nobody where there is no terminal."""
    if not screen.can_ask:
        return None

    async def ask(question: Input) -> str | None:
        about = one_line(question.description) or one_line(question.id)
        choices = f" ({', '.join(map(one_line, question.options))})" if question.options else ""
        usual = question.default
        if question.password:
            typed = await _unseen(screen, f"{about}: ")
        else:
            typed = await screen.ask(
                f"{about}{choices}{f' [{one_line(usual)}]' if usual else ''}: "
            )
        if not typed and typed is not None and usual is not None:
            return usual
        return typed if not question.options or typed in question.options else None

    return ask


async def _unseen(screen: Screen, words: str) -> str | None:
    """What somebody types, which is not shown meanwhile."""
    if sys.platform == "win32":
        import getpass

        return await asyncio.to_thread(getpass.getpass, words)
    import termios

    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    after = [*before]
    after[3] &= ~termios.ECHO
    termios.tcsetattr(fd, termios.TCSADRAIN, after)
    try:
        return await screen.ask(words)
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
        screen.note("\n")


def configuration(terms: Terms, screen: Screen, trusting: Trusting) -> Config:
    """The servers of the file that was named, as far as they are wanted. Raises `Trouble`.

    To be called where no loop runs: somebody may be asked.
    """
    assert isinstance(terms.target, str)
    _check(terms)
    files = [terms.target] if terms.target != FOUND else found_files()
    config = read_config(files, trust=trusting, on_input=asker_of_inputs(screen), strict=True)
    if terms.server:
        config = _limited(config, terms)
    entries = {key: _as_typed(entry, terms) for key, entry in config.entries.items()}
    return replace(config, entries=entries)


def found_files() -> list[str]:
    """The files of all programs that have servers for this folder. Raises `Trouble` for none."""
    found = existing_files(home=os.path.expanduser("~"), folder=os.getcwd(), env=os.environ)
    files = [file for _, some in found for file in some]
    if not files:
        words = "say which server: its file, its address, or its configuration"
        raise Trouble(f"{words}; no program has servers configured for this folder")
    return files


def _check(terms: Terms) -> None:
    if terms.headers or terms.header_envs:
        raise Trouble("--header goes to an address; a configuration has headers in its entries")
    if terms.envs:
        raise Trouble("--env is for a server that is named alone; here it stands in its entry")
    if terms.revision:
        known_revision(terms.revision)


def _limited(config: Config, terms: Terms) -> Config:
    """One server, and what is wrong with it or with its file."""
    known = [*config.entries, *(one.server for one in config.problems if one.server)]
    if terms.server not in known:
        raise Trouble(
            no_server(terms.server, list(dict.fromkeys(known)), shown_configuration(terms))
        )
    return replace(
        config,
        entries={key: one for key, one in config.entries.items() if key == terms.server},
        problems=tuple(one for one in config.problems if one.server in ("", terms.server)),
        warnings=tuple(one for one in config.warnings if one.server in ("", terms.server)),
    )


def no_server(name: str, known: list[str], file: str) -> str:
    """What to say of a server that is not in a file."""
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1)
    words = f"there is no server {one_line(name)} in {one_line(file)}; "
    if near:
        return f"{words}did you mean {one_line(near[0])}?"
    return words + (f"there are {one_line(', '.join(known))}" if known else "it has none")


def _as_typed(entry: ServerEntry, terms: Terms) -> ServerEntry:
    """An entry with what was typed besides."""
    settings = entry.settings
    if terms.revision:
        settings = replace(settings, revision=terms.revision)
    if terms.timeout_s != TIMEOUT_S:
        settings = replace(settings, timeout_s=terms.timeout_s, start_s=terms.timeout_s)
    return replace(entry, settings=settings) if settings is not entry.settings else entry
