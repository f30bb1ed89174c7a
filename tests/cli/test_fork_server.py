"""A command that was forked is a command that was started: the tests of the command rely on it."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cli.process import COMMAND, WAIT_S, command, environment, written

FACTS = """
import json, os, signal, sys
from colonnade import Server

handlers = {int(one): repr(signal.getsignal(one)).partition(" at ")[0] for one in signal.Signals}
streams = [sys.stdin, sys.stdout, sys.stderr]
facts = [
    handlers, sys.argv, sys.orig_argv, sys.path, sys.warnoptions, list(sys.flags), os.getcwd(),
    sorted(os.environ.items()), len(os.listdir("/dev/fd")), sys.modules["__main__"].__spec__.name,
    [(one.encoding, one.errors, one.line_buffering, one.isatty()) for one in streams],
]
sys.stderr.write(json.dumps(facts) + "\\n")
server = Server("facts")
"""


def test_it_is_the_same_to_the_program_whether_it_was_started_or_forked(tmp_path: Path) -> None:
    written(tmp_path, facts=FACTS)
    for arguments in (("run", "facts.py"), ("ls", "none.py"), ("--version",)):
        forked = command(tmp_path, *arguments, SOME="thing")
        begun = subprocess.run(
            [*COMMAND, *arguments],
            cwd=tmp_path,
            input="",
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            env=environment(SOME="thing"),
        )
        assert (forked.returncode, forked.stdout) == (begun.returncode, begun.stdout)
        assert forked.stderr == begun.stderr


def test_commands_run_at_once_and_each_has_its_own_end(tmp_path: Path) -> None:
    words = [f"none{number}.py" for number in range(8)]
    with ThreadPoolExecutor(len(words)) as threads:
        done = list(threads.map(lambda word: command(tmp_path, "ls", word), words))
    assert [one.returncode for one in done] == [2] * len(words)
    assert all(word in one.stderr for word, one in zip(words, done, strict=True))
