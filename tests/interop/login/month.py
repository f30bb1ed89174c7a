"""Thirty simulated days of logins: every client, two users each, two processes that are restarted.

Each day all clients connect, call, and call again 45 s, 106 s, 12 min and 28 min later: within the
minute of the provider's token, after it, within the quarter of an hour of ours, and after that. Every
third day a process is restarted between two calls, and once a week one is killed. On one day the
provider does not respond: calls fail, and no login ends. On another day all call twice a second
while their tokens expire. After thirty days the first user removes the application at the provider:
one login for each of its clients, none for those of the other user.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from auth.provider_replicas import served
from interop.login.parts import (
    USERS,
    ClientFailed,
    ClientProcess,
    LiveBrowser,
    LoginClient,
    LoginProvider,
    ProxyProcesses,
    Traffic,
    client_process,
)
from interop.login.simulated_clock import SimulatedClock
from scripted_http_server import http_response

DAY_S = 24 * 3600.0
# A session ends after half an hour without requests by the clock of the store.
PAUSES_S = (0.0, 45.0, 61.0, 600.0, 950.0)
AT_ONCE = 5
OUTAGE_DAY = 10
BUSY_DAY = 20
BUSY_CALLS, BUSY_PAUSE_S = 100, 0.4
DAYS_AFTER = 2


@dataclass
class MonthReport:
    """What happened in a month."""

    days: int = 0
    took_s: float = 0.0
    restarts: int = 0
    kills: int = 0
    refused_in_outage: int = 0
    clients: list[ClientProcess] = field(default_factory=list[ClientProcess])
    traffic: Traffic | None = None
    failures: list[str] = field(default_factory=list[str])


class Month:
    """The parts of a month, while it runs."""

    def __init__(
        self,
        provider: LoginProvider,
        processes: ProxyProcesses,
        clock: SimulatedClock,
        clients: list[ClientProcess],
        report: MonthReport,
    ) -> None:
        self.provider = provider
        self.processes = processes
        self.clock = clock
        self.clients = clients
        self.report = report

    async def forward(self, seconds: float) -> None:
        await self.clock.forward(seconds)
        self.provider.now = self.clock()

    async def all(self, do: Callable[[ClientProcess], Awaitable[object]]) -> None:
        """Let all clients do something at once, and note which of them fail."""
        results = await asyncio.gather(*map(do, self.clients), return_exceptions=True)
        for client, result in zip(self.clients, results, strict=True):
            if isinstance(result, BaseException):
                when = f"day {self.report.days}"
                self.report.failures.append(f"{when}, {client}: {result or type(result)}")

    async def day(self) -> None:
        """One day of all clients."""
        report, ends_at = self.report, self.clock.offset + DAY_S
        await self.all(lambda one: one.do("connect"))
        for pause_s in PAUSES_S:
            await self.forward(pause_s)
            if pause_s == 61.0:
                await self.restart_process()
            # Of several calls at once, each finds that the token has expired.
            calls = AT_ONCE if pause_s == PAUSES_S[-1] else 1
            await self.all(lambda one, calls=calls: one.call(calls))
        if report.days == OUTAGE_DAY:
            await self.outage()
        if report.days == BUSY_DAY:
            await self.be_busy()
        await self.all(lambda one: one.do("close"))
        report.days += 1
        await self.forward(ends_at - self.clock.offset)

    async def restart_process(self) -> None:
        report = self.report
        if report.days % 3 == 0:
            await self.processes.restart(report.days // 3 % 2)
            report.restarts += 1
        elif report.days % 7 == 4:
            await self.processes.kill_and_start(report.days // 7 % 2)
            report.kills += 1

    async def outage(self) -> None:
        """The provider does not respond for a while: calls fail, and no login ends."""
        path = self.provider.base_path + self.provider.token_path
        self.provider.answers[path] = http_response(503)
        await self.forward(61)

        async def be_refused(client: ClientProcess) -> None:
            with contextlib.suppress(ClientFailed):
                await client.call()
                raise AssertionError("a call succeeded without the provider")
            self.report.refused_in_outage += 1

        await self.all(be_refused)
        del self.provider.answers[path]
        await self.all(lambda one: one.do("close"))
        await self.all(lambda one: one.do("connect"))
        await self.all(lambda one: one.call())

    async def be_busy(self) -> None:
        """Call often from before until after the expiry of the token that the last call got, as it is
        announced, and as it is."""
        await self.all(lambda one: one.do("close"))
        await self.all(lambda one: one.do("connect"))
        # A session that has sent nothing but `initialize` lasts for a minute.
        await self.all(lambda one: one.call())
        await self.forward(860)
        for _ in range(BUSY_CALLS):
            await self.forward(BUSY_PAUSE_S)
            await self.all(lambda one: one.call())

    def check_logins(self, expected: dict[str, int]) -> None:
        """See that each client has logged in so often, by all who count it."""
        report = self.report
        assert report.traffic is not None
        for client in self.clients:
            counted = (client.logins, report.traffic.authorizations[client.client_id])
            if counted != (expected[client.user],) * 2:
                report.failures.append(
                    f"day {report.days}, {client}: logins and authorization requests are "
                    f"{counted}, not {expected[client.user]}"
                )


async def play_month(
    clients: Sequence[LoginClient], store: str, folder: Path, days: int = 30
) -> MonthReport:
    """Play a month; the report has the failures."""
    report, began = MonthReport(), time.monotonic()
    clock = SimulatedClock(folder / "clock")
    async with contextlib.AsyncExitStack() as stack:
        log = stack.enter_context((folder / "log").open("wb"))
        provider = await stack.enter_async_context(served(LoginProvider))
        provider.now = clock()
        path = folder / "store.db"
        processes = ProxyProcesses(provider, folder / "clock", store or str(path), log)
        await stack.enter_async_context(processes)
        report.traffic = Traffic(provider)
        processes.relay.on_response = report.traffic.note
        browsers = {
            user: LiveBrowser(processes.address.origin, provider.url, user) for user in USERS
        }
        for number, client in enumerate(clients):
            for user, browser in browsers.items():
                home = folder / f"{number}-{user}"
                home.mkdir()
                made = client_process(client, browser, processes, home)
                report.clients.append(await stack.enter_async_context(made))
        month = Month(provider, processes, clock, report.clients, report)
        for _ in range(days):
            await month.day()
        month.check_logins({"ann": 1, "bob": 1})
        provider.revoke_grants("ann")
        for _ in range(DAYS_AFTER):
            await month.day()
        month.check_logins({"ann": 2, "bob": 1})
        report.failures += report.traffic.misplaced()
        if path.exists() and any(name.encode() in path.read_bytes() for name in provider.issued):
            report.failures.append("a token of the provider is in the store, and not encrypted")
    report.took_s = time.monotonic() - began
    return report
