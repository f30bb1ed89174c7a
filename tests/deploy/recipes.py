"""What stands in the files of `examples/deploy`: the commands of the container and of the unit.

Rules: read, never run here.
"""

import json
import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "examples" / "deploy"
SERVE = re.compile(r"^colonnade serve .*?(?=\s+#|$)", re.MULTILINE)


class Step(NamedTuple):
    """One instruction of a Dockerfile."""

    what: str
    words: str

    @property
    def listed(self) -> list[str]:
        """Its words, where it has them as a list."""
        return json.loads(self.words)


def container() -> list[Step]:
    """The instructions of the Dockerfile, in their order."""
    text = (DEPLOY / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [Step(*line.split(None, 1)) for line in lines]


def only(what: str) -> Step:
    """The one instruction of a kind."""
    (found,) = [step for step in container() if step.what == what]
    return found


def container_check() -> list[str]:
    """What the container is asked whether it is well with."""
    return json.loads(only("HEALTHCHECK").words.partition("CMD ")[2])


def unit() -> dict[str, list[str]]:
    """The settings of the unit."""
    found: dict[str, list[str]] = {}
    for line in (DEPLOY / "weather.service").read_text("utf-8").splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def unit_command() -> list[str]:
    """What the unit starts."""
    (command,) = unit()["ExecStart"]
    return shlex.split(command)


def readme_command() -> list[str]:
    """What README says serves a file over HTTP."""
    return shlex.split(SERVE.findall((ROOT / "README.md").read_text("utf-8"))[0])
