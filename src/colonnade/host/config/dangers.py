"""What deserves attention in a configuration file: in its commands, variables, URLs and settings.

Rules: pure; nothing is opened, resolved or started. When in doubt, something is marked;
the absence of a mark promises nothing.
"""

import itertools
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast
from urllib.parse import urlsplit

from colonnade.host.config.usual_commands import (
    DELETING,
    LOADING,
    NETWORK,
    PRIVILEGED,
    SHELLS,
    STARTING,
    is_usual,
    program_name,
)

# Options of these wrappers whose value is a whole command line: `env -S "sh -c …"`.
LINE_OPTIONS: Final = frozenset({"-s", "--split-string", "-c", "--command", "--call"})
# Options that are followed by code.
CODE: Final = frozenset(
    {"-c", "-e", "--eval", "--print", "-enc", "-encodedcommand", "-command", "/c"}
)
# Interpreters, and the letters of their options that are followed by code: also `-Ic`, `-cCODE`.
CODE_LETTERS: Final = {
    **dict.fromkeys(("python", "pythonw", "pypy"), "c"),
    **dict.fromkeys(("node", "nodejs", "bun", "lua"), "ep"),
    "deno": "",
    "ruby": "e",
    "perl": "eE",
    "php": "rBRE",
}
# Options of interpreters whose value is the next word.
VALUE_OPTIONS: Final = frozenset({"-W", "-X", "-r", "--require", "--import", "--loader", "-I"})
# Where secrets and system files are; the first match is named.
PLACES: Final = (
    (re.compile(r"\.ssh\b"), "SSH keys"),
    (re.compile(r"\.(?:aws|azure|kube|gnupg|netrc|docker|npmrc|pypirc|git-credentials)\b"), "keys"),
    (re.compile(r"docker\.sock|--privileged"), "the whole machine, through Docker"),
    (re.compile(r"[Kk]eychains?\b|\bkeyrings?\b|/etc/(?:passwd|shadow|sudoers)"), "passwords"),
    (
        re.compile(r"(?:^|[\s=:\"'])/(?:etc|root|boot|proc|sys|dev|var|usr|bin|sbin|lib|System)\b"),
        "folders of the system",
    ),
    (re.compile(r"(?i)[a-z]:\\(?:windows|program files|programdata)"), "folders of the system"),
    (
        re.compile(
            r"(?:^|[\s=:\"'])(?:~|\$HOME|\$\{(?:env:)?HOME\}|\$\{userHome\}|%USERPROFILE%)"
            r"|(?:^|[\s=:\"'])/(?:home|Users)/[^/\s]+/?(?:$|[\s:\"'])"
        ),
        "your home folder",
    ),
    (re.compile(r"(?:^|[\s=:\"'])/(?:$|[\s:\"'])"), "the whole disk"),
)
# References of editors to the folder of the project itself.
_FOLDER: Final = re.compile(r"^\$\{(?:workspaceFolder|cwd)\}")
_LOOPBACK: Final = ("127.", "localhost", "::1")


def command_dangers(argv: Sequence[str], folder: str) -> list[str]:
    """What deserves attention in a command line that is started in a folder."""
    return list(dict.fromkeys(_command_dangers(argv, folder)))


def _command_dangers(argv: Sequence[str], folder: str) -> Iterator[str]:
    yield from program_dangers(argv)
    program = _FOLDER.sub(".", argv[0]) if argv else ""
    if "${" in program:
        yield "runs a program that a variable names"
    elif os.path.dirname(program) and _is_outside(program, folder):
        yield f"starts a program outside of {folder}"
    for word in argv[1:]:
        yield from path_dangers(word, folder)


def program_dangers(argv: Sequence[str]) -> Iterator[str]:
    """The dangers of a command line in any folder. A command that is not usual for a server is
    always marked."""
    found = list(dict.fromkeys(_known_dangers(argv)))
    if not found and not is_usual(argv):
        found.append(f"is not a usual command for a server ({program_name(argv[0])})")
    return iter(found)


def _known_dangers(argv: Sequence[str]) -> Iterator[str]:
    line = " ".join(argv)
    names = [program_name(word) for word in re.split(r"[\s;|&()`]+", line) if word]
    for name in names:
        if name in PRIVILEGED:
            yield f"raises privileges ({name})"
        if name in DELETING:
            yield f"may delete files ({name})"
        if name in NETWORK:
            yield f"uses the network ({name})"
    for program in _programs(argv):
        first = program_name(program[0])
        if first in SHELLS:
            yield f"runs a shell ({first})"
        elif _has_code(program):
            yield "runs inline code"
    if re.search(r"\|\s*(?:sudo\s+)?(?:ba|z|da|k)?sh\b|\beval\b|base64\s+(?:-d|--decode)", line):
        yield "runs the output of another program"


def _programs(argv: Sequence[str]) -> Iterator[Sequence[str]]:
    """The command line, and the command lines that it starts: `env A=1 nohup sh -c …` has three.
    After a wrapper, each word may be a program, since the options before that word may have values:
    rather too many words are checked than too few."""
    if not argv:
        return
    yield argv
    if program_name(argv[0]) not in STARTING:
        return
    for at in range(1, len(argv)):
        is_line = " " in argv[at] and argv[at - 1].lower() in LINE_OPTIONS
        inner = _split_line(argv[at]) if is_line else argv[at:]
        name = program_name(inner[0]) if inner else ""
        if name in STARTING:
            yield from _programs(inner)
            return
        if name in SHELLS or _interpreter(name) in CODE_LETTERS:
            yield inner


def _split_line(text: str) -> list[str]:
    """The words of a command line. If its quotes do not match, split at spaces."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _interpreter(name: str) -> str:
    return re.sub(r"[\d.]+$", "", name)


def _has_code(program: Sequence[str]) -> bool:
    """Whether an interpreter is given code: `-c CODE`, and also `-cCODE`, `-Ic CODE`, `eval CODE`,
    `--eval=CODE`."""
    letters = CODE_LETTERS.get(_interpreter(program_name(program[0])))
    if letters is None:
        return False
    if any(word.lower().partition("=")[0] in CODE for word in program[1:]):
        return True
    for before, word in itertools.pairwise(program):
        if letters and re.match(f"-[A-Za-z]*[{letters}]", word):
            return True
        if not word.startswith("-") and before not in VALUE_OPTIONS:
            return word == "eval"  # else the program, and what follows is for it
    return False


def path_dangers(word: str, folder: str) -> Iterator[str]:
    """What deserves attention in a word that may be a path, or have one: `--root=/srv`."""
    yield from place_dangers(word)
    if _is_outside(word.rpartition("=")[2], folder):
        yield f"uses a path outside of {folder}"


def place_dangers(word: str) -> Iterator[str]:
    for pattern, what in PLACES:
        if pattern.search(word):
            yield f"uses {what}"
            return


def _is_outside(path: str, folder: str) -> bool:
    if "://" in path:
        return False
    whole = os.path.normpath(os.path.join(folder, _FOLDER.sub(".", path)))
    return whole != folder and not whole.startswith(os.path.join(folder, ""))


def variable_dangers(name: str, value: str) -> list[str]:
    """What deserves attention in an environment variable."""
    found = ["makes programs load code"] if LOADING.fullmatch(name) else []
    return found + list(place_dangers(value))


def url_dangers(url: str) -> list[str]:
    """What deserves attention in a URL."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return ["is not a valid URL"]
    if parts.scheme in ("http", "redis") and not host.startswith(_LOOPBACK):
        return ["is not encrypted"]
    return []


def is_on_another_machine(url: str) -> bool:
    """Whether a URL may lead to another machine. True for an invalid URL."""
    try:
        return not (urlsplit(url).hostname or "").startswith(_LOOPBACK)
    except ValueError:
        return True


def setting_dangers(name: str, value: Any, folder: str) -> list[str]:
    """What deserves attention in a setting of a server, or of all servers."""
    if name in _SETTINGS and value in _SETTINGS[name]:
        return [_SETTINGS[name][value]]
    paths = cast("list[str]", value) if name in ("roots", "args") and value != "caller" else []
    return list(dict.fromkeys(one for path in paths for one in path_dangers(path, folder)))


# Settings that switch a protection off, or let a server do more; and why.
_SETTINGS: Final[dict[str, dict[Any, str]]] = {
    "trusted": {True: "policy rules rely on its tool annotations"},
    "pins": dict.fromkeys(("warn", "off"), "changed definitions are used without a question"),
    "contain": dict.fromkeys(("mark", "off"), "hidden text in results is passed on"),
    "sampling": {True: "may use your model"},
    "sandbox": {False: "switches the sandbox off"},
    "credentials": dict.fromkeys(("exchange", "id-jag"), "gets tokens that belong to its callers"),
    "sharing": dict.fromkeys(("pooled", "shared"), "its callers share sessions"),
}


def table_dangers(table: str, name: str, value: Any, folder: str) -> list[str]:
    """What deserves attention in a key of `[gateway]`, `[audit]`, `[approvals]` or `[pins]`."""
    if (table, name) == ("gateway", "store") and isinstance(value, str):
        return _store_dangers(value, folder)
    if (table, name) == ("gateway", "auth.issuer"):
        return ["decides who may use the gateway", *url_dangers(str(value))]
    if (table, name) == ("pins", "mode") and value != "strict":
        return ["changed definitions are used without a question"]
    if (table, name) == ("audit", "contents") and value != "none":
        return ["records arguments and results"]
    if (table, name) == ("approvals", "socket") and value is False:
        return ["`colonnade inbox` cannot answer"]
    if name in ("path", "heads", "store") and isinstance(value, str):
        return list(path_dangers(value, folder))
    return []


def _store_dangers(text: str, folder: str) -> list[str]:
    if text.startswith("redis"):
        found = ["keeps its state on another machine"] if is_on_another_machine(text) else []
        return found + url_dangers(text)
    return list(path_dangers(text.removeprefix("sqlite:").removeprefix("//"), folder))
