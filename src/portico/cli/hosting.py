"""A host for what was typed: all servers of a configuration file, or one server alone.

Rules: a file that has to be trusted is shown whole, and used when a person says so; with nobody to
ask it is not. Nothing is started here.
"""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from portico.cli.reaching import CONFIGURATIONS, Terms, reach
from portico.cli.screen import Screen
from portico.host.host import Host
