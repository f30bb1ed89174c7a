"""The SDKs that these tests need are installed before the first of them, aloud.

Rules: nothing is skipped where it cannot be; the tests fail, and say why.
"""

from typing import Any

import pytest

from interop.peers import MCP_1, MCP_2
from interop.third_party_servers import FASTMCP, GIT, TIME


@pytest.fixture(scope="session", autouse=True)
def peers_installed(pytestconfig: pytest.Config) -> None:
    """Let `scripts/_peers` say what it does, the first time."""
    capture: Any = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        assert all(peer.home.is_dir() for peer in (MCP_2, MCP_1, FASTMCP, TIME, GIT))
