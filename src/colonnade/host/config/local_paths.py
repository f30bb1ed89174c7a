"""Which words of a command mean another program in another working folder.

`python shop.py` of two projects are two programs, and `npx some-server` is one wherever it is
started. So a word that looks like a program of the working folder counts as its path there.

Rules: a word is judged by how it looks, not by whether there is such a file: a server that can
write to its folder could make one, and be another server by that. Only the module after `-m` is
looked for, since installed ones look the same. A word that is absolute, a URL, or the program that
is found on `PATH` says the same in each folder and has no path here.
"""

import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Final

# Files that interpreters and launchers run.
PROGRAM_SUFFIXES: Final = (
    *(".py", ".pyz", ".js", ".mjs", ".cjs", ".ts", ".mts", ".sh", ".rb", ".pl", ".php", ".lua"),
    *(".jar", ".exe", ".dll", ".bat", ".cmd", ".ps1", ".wasm"),
)


def local_paths(words: Sequence[str], folder: str) -> tuple[str, ...]:
    """The absolute paths of the programs that the words of a command name relative to the folder in
    which it is started, in their order."""
    found: list[str] = []
    for at, (before, word) in enumerate(itertools.pairwise(("", *words))):
        if at == 0:
            name = word if os.path.dirname(word) else None  # otherwise it is found on PATH
        elif before == "-m":
            name = _module(word, folder)
        else:
            name = next((one for one in _names(word) if _is_program(one)), None)
        if name and not os.path.isabs(name):
            found.append(os.path.abspath(os.path.join(folder, name)))
    return tuple(found)


def _is_program(name: str) -> bool:
    """Whether a word looks like a file or folder below the working folder that is run."""
    parts = name.replace(os.sep, "/").split("/")
    return parts[0] in (".", "..") or name.lower().endswith(PROGRAM_SUFFIXES)


def _module(word: str, folder: str) -> str | None:
    """The file or folder of a module of Python in the working folder, if there is one."""
    module = word.replace(".", os.sep)
    names = (module, f"{module}.py")
    return next((one for one in names if os.path.exists(os.path.join(folder, one))), None)


def _names(word: str) -> Iterator[str]:
    """The relative paths that a word may be."""
    if "://" in word:
        return
    yield word
    value = word.partition("=")[2]  # --directory=./shop
    if value:
        yield value
    file, colon, _ = word.rpartition(":")  # shop.py:server
    if colon and file:
        yield file
