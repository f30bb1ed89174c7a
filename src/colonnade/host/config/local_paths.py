"""Which words of a command mean another program in another working folder.

`python shop.py` of two projects are two programs, and `npx some-server` is one wherever it is
started. So a word counts as the path that it names in the working folder, if there is one.

Rules: files are looked at and not opened. A word that is absolute, a URL, or the program that is
found on `PATH` says the same in each folder and has no path here.
"""

import itertools
import os
from collections.abc import Iterator, Sequence


def local_paths(words: Sequence[str], folder: str) -> tuple[str, ...]:
    """The absolute paths of the existing files and folders that the words of a command name
    relative to the folder in which it is started, in their order."""
    found: list[str] = []
    for at, (before, word) in enumerate(itertools.pairwise(("", *words))):
        if at == 0 and not os.path.dirname(word):
            continue  # found on PATH, also if the folder has a file of this name
        for name in _names(before, word):
            path = os.path.abspath(os.path.join(folder, name))
            if not os.path.isabs(name) and os.path.exists(path):
                found.append(path)
                break
    return tuple(found)


def _names(before: str, word: str) -> Iterator[str]:
    """The relative paths that a word may be."""
    if "://" in word or not word:
        return
    if before == "-m":  # a module of Python: a folder or a file
        module = word.replace(".", os.sep)
        yield from (module, f"{module}.py")
    yield word
    value = word.partition("=")[2]  # --directory=shop
    if value:
        yield value
    file, colon, _ = word.rpartition(":")  # shop.py:server
    if colon and file:
        yield file
