"""The HTTP application of a gateway: its endpoint, and one below it for each of its views.

Rules: each endpoint is an application of its own, with its own sessions; they share nothing but the
host behind them, and the names of hosts and origins that are allowed.
"""

from collections.abc import Sequence
from typing import Any

from colonnade.ports import Service
from colonnade.protocol.http.security import HostPolicy
from colonnade.transport.http_server.app import HttpApp


class GatewayApp(HttpApp):
    """An application that other endpoints belong to."""

    def __init__(self, service: Service, views: Sequence[HttpApp], **options: Any) -> None:
        super().__init__(service, **options)
        self._views = views
        for view in views:
            view.handles_signals = False  # this one does

    def use_policy(self, policy: HostPolicy) -> None:
        """Set the allowed host names of all endpoints, if none were given."""
        super().use_policy(policy)
        for view in self._views:
            view.use_policy(policy)
