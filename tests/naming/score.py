"""Whether the names of files say what is in them: do newcomers find the right file by its name?

    python tests/naming/score.py --check            # each question has one file, or two
    python tests/naming/score.py ann.toml bob.json  # how well each of them guessed

Somebody who knows only the names of the files under `src` reads the questions in
`questions.toml`, and writes for each number one or two paths, the likelier first:

    1 = ["protocol/headers.py", "auth/login.py"]

A path begins at the repository (`src/...`) or in the package.

Rules: a question is answered by whichever file has all of its patterns in it, so that files can be
moved, renamed and merged without a change here. Nothing of the package is imported.
"""

import argparse
import json
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

ROOT = Path(__file__).resolve().parents[2]
QUESTIONS = Path(__file__).with_name("questions.toml")

# What is in more files than this is no question of where something is.
MAX_FILES = 2
# Guesses of one question that count.
MAX_GUESSES = 2

# By the number of a question: the files that hold its answer, or the paths that were guessed.
Places: TypeAlias = dict[int, list[str]]


@dataclass(frozen=True, slots=True)
class Question:
    """One thing to look for, and what is in the file that holds it."""

    number: int
    ask: str
    patterns: tuple[re.Pattern[str], ...]


def read_questions(path: Path = QUESTIONS) -> list[Question]:
    """All questions, in their order."""
    tables: list[dict[str, Any]] = tomllib.loads(path.read_text("utf-8"))["question"]
    return [
        Question(one["number"], one["ask"], tuple(map(re.compile, one["patterns"])))
        for one in tables
    ]


def read_sources(root: Path = ROOT) -> dict[str, str]:
    """The text of every Python file of the package, by its path in the repository."""
    paths = sorted(root.glob("src/*/**/*.py"))
    return {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in paths}


def locate(questions: list[Question], sources: dict[str, str]) -> Places:
    """The files in which all patterns of a question match."""
    return {
        question.number: [
            path
            for path, text in sources.items()
            if all(pattern.search(text) for pattern in question.patterns)
        ]
        for question in questions
    }


def check(questions: list[Question], found: Places) -> list[str]:
    """What is wrong with the questions, a sentence each; nothing where all is well."""
    numbers = [question.number for question in questions]
    wrong: list[str] = []
    if numbers != list(range(1, len(numbers) + 1)):
        wrong.append("the questions are not numbered from 1 on, one after the other")
    for question in questions:
        files = found[question.number]
        if not question.patterns:
            wrong.append(f"{question.number}: it has no patterns")
        elif not files:
            wrong.append(f"{question.number}: its patterns match in no file ({question.ask})")
        elif len(files) > MAX_FILES:
            wrong.append(f"{question.number}: its patterns match in {', '.join(files)}")
    return wrong


def read_answers(path: Path) -> Places:
    """The guesses in a file. Raises `ValueError` for what is no file of answers."""
    text = path.read_text("utf-8")
    given: object = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    if not isinstance(given, dict):
        raise ValueError(f"{path}: this is no table of numbers and paths")
    answers: Places = {}
    for number, guesses in given.items():
        listed = [guesses] if isinstance(guesses, str) else guesses
        if not str(number).isdecimal() or not isinstance(listed, list):
            raise ValueError(f"{path}: {number!r} is no number of a question with a list of paths")
        answers[int(number)] = [str(guess) for guess in listed][:MAX_GUESSES]
    return answers


def is_right(guess: str, files: list[str]) -> bool:
    """Whether this path is one of the files, written from the repository or in the package."""
    wanted = guess.strip().removeprefix("./").lstrip("/")
    # src/package/folder/file.py, package/folder/file.py, folder/file.py
    return any(wanted in (path, *(path.split("/", cut)[cut] for cut in (1, 2))) for path in files)


def report(name: str, questions: list[Question], found: Places, answers: Places) -> str:
    """How well one newcomer guessed, and what was not found at once."""
    first = within = 0
    misses: list[str] = []
    for question in questions:
        files, guesses = found[question.number], answers.get(question.number, [])
        right = [is_right(guess, files) for guess in guesses]
        first += right[:1] == [True]
        within += any(right)
        if right[:1] != [True]:
            kind = "second guess" if any(right) else "missed"
            misses += [
                f"  {question.number}. {question.ask}",
                f"      {kind}: {', '.join(guesses) or 'nothing'}",
                f"      it is in: {', '.join(files) or 'no file'}",
            ]
    total = len(questions)
    counts = f"first guess right {_share(first, total)}, within two {_share(within, total)}"
    return "\n".join([f"{name}: {counts}", *misses])


def _share(count: int, total: int) -> str:
    return f"{count} of {total} ({100 * count / max(total, 1):.0f}%)"


def main(arguments: list[str] | None = None) -> int:
    """Check the questions, or score answers; the exit code."""
    parser = argparse.ArgumentParser(description="Do the names of files say what is in them?")
    parser.add_argument("answers", nargs="*", type=Path, help="TOML or JSON: number to paths")
    parser.add_argument("--check", action="store_true", help="see that each question has a file")
    options = parser.parse_args(arguments)
    if not options.check and not options.answers:
        parser.error("give files of answers, or --check")
    questions = read_questions()
    found = locate(questions, read_sources())
    if options.check:
        wrong = check(questions, found)
        for sentence in wrong:
            print(sentence, file=sys.stderr)
        if wrong:
            return 1
        print(f"{len(questions)} questions, each with its file")
    for path in options.answers:
        try:
            answers = read_answers(path)
        except (OSError, ValueError) as error:
            print(error, file=sys.stderr)
            return 1
        print(report(path.name, questions, found, answers))
    return 0


if __name__ == "__main__":
    sys.exit(main())
