"""What stands in the files of `examples/deploy`: the commands of containers and of the unit.

Rules: read, never run here.
"""

import json
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "examples" / "deploy"
REPLICAS = DEPLOY / "replicas"
SERVE = re.compile(r"^colonnade serve .*?(?=\s+#|$)", re.MULTILINE)


class Step(NamedTuple):
    """One instruction of a Dockerfile."""

    what: str
    words: str

    @property
    def listed(self) -> list[str]:
        """Its words, where it has them as a list."""
        return json.loads(self.words)


def container(folder: Path = DEPLOY) -> list[Step]:
    """The instructions of a Dockerfile, in their order."""
    text = (folder / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [Step(*line.split(None, 1)) for line in lines]


def only(what: str, folder: Path = DEPLOY) -> Step:
    """The one instruction of a kind."""
    (found,) = [step for step in container(folder) if step.what == what]
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


# ---------------------------------------------------------------- replicas


def replica_command() -> list[str]:
    """What the image of a replica starts."""
    return only("CMD", REPLICAS).listed


def replica_addresses() -> list[str]:
    """The replicas of nginx, in the order of its configuration."""
    text = (REPLICAS / "nginx.conf").read_text("utf-8")
    upstream = text.partition("upstream trip {")[2].partition("}")[0]
    return re.findall(r"server (\S+:\d+) ", upstream)


def compose() -> dict[str, Any]:
    return yaml.safe_load((REPLICAS / "compose.yaml").read_text("utf-8"))


def manifest(kind: str, name: str) -> dict[str, Any]:
    """One object of the Kubernetes manifests."""
    everything = yaml.safe_load_all((REPLICAS / "kubernetes.yaml").read_text("utf-8"))
    (found,) = [one for one in everything if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found


def pod(kind: str, name: str) -> dict[str, Any]:
    return manifest(kind, name)["spec"]["template"]["spec"]


def redis_options() -> list[str]:
    """The options of the Redis server in compose.yaml."""
    return compose()["services"]["redis"]["command"][1:]
