"""The everything server behind a gateway, for the official conformance suite.

Each tool and each prompt has its own name as an alias, since the suite calls them by that.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from everything_server import announce, server

from colonnade import Gateway, Host
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Settings

if __name__ == "__main__":
    names = [one.definition.name for one in (*server.tools, *server.prompts)]
    revision = sys.argv[1] if sys.argv[1:] else None
    settings = Settings(
        aliases={name: name for name in names},
        sampling=True,
        roots="caller",
        revision=revision,
    )
    gateway = Gateway(Host({"e": entry_of("e", server, settings)}), name="gateway")
    gateway.run("http", port=0, started=announce)
