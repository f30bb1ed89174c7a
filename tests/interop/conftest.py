"""The SDK that these tests need is installed before the first of them, aloud.

Rules: nothing is skipped where it cannot be; the tests fail, and say why.
"""

from typing import Any

import pytest

from interop.peers import MCP_2


@pytest.fixture(scope="session", autouse=True)
def peer_installed(pytestconfig: pytest.Config) -> None:
    """Let `scripts/_peers` say what it does, the first time."""
    capture: Any = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        assert MCP_2.home.is_dir()
