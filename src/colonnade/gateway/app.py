"""The HTTP application of a gateway: its endpoint, and one below it for each of its views.

Rules: each endpoint is an application of its own, with its own sessions; they share nothing but the
host behind them, and the names of hosts and origins that are allowed.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from colonnade.ports import Service, Store
from colonnade.protocol.http.security import HostPolicy
from colonnade.transport.http_server.app import HttpApp

if TYPE_CHECKING:  # loaded with a shared store only
    from colonnade.replicas.replica import Replica


class ReplicatedService(Service, Protocol):
    """A service that is a replica itself, beside the sessions of its application."""

    def make_replica(self, store: Store) -> "Replica": ...


class GatewayApp(HttpApp):
    """An application that other endpoints may belong to."""

    def __init__(
        self, service: ReplicatedService, views: Sequence[HttpApp], **options: Any
    ) -> None:
        super().__init__(service, **options)
        self._replicated = service
        self._views = views
        for view in views:
            view.handles_signals = False  # this one does

    @property
    def has_routes_of_others(self) -> bool:
        """Whether an application of the user may serve /health itself: it wraps the first view
        (`around=`)."""
        return self._views[0].has_around if self._views else self.has_around

    def make_replica(self, store: Store) -> "Replica":
        """The replica that the gateway is: one name and one lease for both."""
        return self._replicated.make_replica(store)

    def use_policy(self, policy: HostPolicy) -> None:
        """Set the allowed host names of all endpoints, if none were given."""
        super().use_policy(policy)
        for view in self._views:
            view.use_policy(policy)
