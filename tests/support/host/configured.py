"""A home and a folder with files in them, and what a host makes of them."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from colonnade.host.config.lookups import Inputs, OnInput
from colonnade.host.config.reader import ConfigReader
from colonnade.host.config.settings import Config, ServerEntry
from colonnade.host.config.trust import Trust


class Place:
    """Where somebody works."""

    def __init__(self, root: Path) -> None:
        self.home, self.folder = root / "home", root / "folder"
        self.home.mkdir()
        self.folder.mkdir()

    def write(self, name: str, content: Any) -> Path:
        """A file in the folder; what is no text is written as JSON."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
        file.chmod(0o600)
        return file

    def reader(
        self,
        *,
        trust: Trust = None,
        on_input: OnInput | Inputs | None = None,
        env: Mapping[str, str] | None = None,
        strict: bool = False,
    ) -> ConfigReader:
        return ConfigReader(
            trust=trust,
            on_input=on_input,
            env={} if env is None else env,
            home=str(self.home),
            folder=self.folder,
            strict=strict,
        )

    def read(self, *names: str, **options: Any) -> Config:
        return self.reader(**options).read([str(self.folder / name) for name in names])


def resolved(entry: ServerEntry) -> Any:
    """What is started or reached, with every reference looked up."""
    return asyncio.run(cast("Any", entry.resolve()))
