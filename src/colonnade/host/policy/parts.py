"""The parts of a guard beside its rules: the audit log, the inbox, the pins and the containment of
hidden text. They are made when a host starts, and those of its files are replaced by a reload.

Rules: a part that the program has given is used as it is, and never replaced. A part that cannot be
made, or a log that cannot be written, is a problem, and the one before it stays in force. What is
replaced is closed: a log gets its last line, and calls that wait in an inbox are refused and may be
made again.
"""

import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from colonnade.errors import ColonnadeError, Refused
from colonnade.host.config.settings import AuditSettings, Config, HostProblem, PinsTable
from colonnade.host.policy.containment import Containment
from colonnade.host.policy.guard import PolicyGuard
from colonnade.host.policy.pins.pins import Pins
from colonnade.host.policy.request import Approver, AuditSink, RuleSet
from colonnade.host.policy.rules.rules import first_that_asks
from colonnade.host.policy.steps import ADD_APPROVER

if TYPE_CHECKING:  # many policies ask for no approval
    from colonnade.host.policy.approvals.approvals import Approvals
    from colonnade.host.policy.approvals.config import ApprovalSettings
    from colonnade.host.policy.approvals.inbox import Inbox
    from colonnade.host.policy.audit.log import AuditLog

log: logging.Logger = logging.getLogger("colonnade.host")


class GivenParts(NamedTuple):
    """The parts that a program has given; each is None if it has not."""

    pins: Pins | None = None
    audit: AuditSink | None = None
    inbox: "Inbox | Approver | None" = None
    containment: Containment | None = None


class ReloadedParts(NamedTuple):
    """What a reload has led to: what could not be used, and whether the sessions of all servers are
    to be opened anew: their lists were not compared, or they were told other capabilities."""

    problems: tuple[HostProblem, ...] = ()
    renews: bool = False


class PolicyParts:
    """The parts of the guard of one host."""

    def __init__(self, given: GivenParts, config: Config, rules: RuleSet | None) -> None:
        self._given = given
        # The tables that are in force.
        self._tables = config
        self._is_served = False
        # The rule that asks without a way to ask.
        self._warned_of = ""
        # Of the inbox: its control socket, its callbacks and its store.
        self._inbox_stack = AsyncExitStack()
        self._audit: AuditSink | None = given.audit
        if given.audit is None and config.audit is not None:
            self._audit = _open_audit(config.audit)
        self.approver: Approver | None = self._as_approver(given.inbox)
        if given.inbox is None and config.approvals is not None:
            self.approver = self._configured_approver(config.approvals)
        self._pins = given.pins
        self.guard: PolicyGuard | None = self._make_guard(config, rules)

    def _make_guard(self, config: Config, rules: RuleSet | None) -> PolicyGuard | None:
        """The guard with these parts; None if there are none. The settings of a single server may
        ask for pins or containment, and with any other part hidden text is contained."""
        if self._pins is None and _wants_pins(config):
            self._pins = _new_pins(config)
        parts = (rules, self._pins, self._audit, self.approver, self._given.containment)
        is_bare = all(one is None for one in parts)
        every = config.entries.values()
        if is_bare and all(one.settings.contain in (None, "off") for one in every):
            return None
        containment = self._given.containment
        containment = containment or Containment("off" if is_bare else "neutralise")
        return PolicyGuard(rules, self._pins, self._audit, self.approver, containment)

    def check_audit(self) -> None:
        """Log a warning if the log of the configuration cannot be written. Raises `Refused` if it
        is required, so that this is known before the first call."""
        settings = self._tables.audit
        if self._given.audit is not None or settings is None:
            return
        for problem in _audit_problems(_open_audit(settings), settings):
            if settings.required:
                raise Refused(problem.summary, reason="audit", hint=problem.hint)
            log.warning("%s", problem)

    # ------------------------------------------------------------ inbox

    @property
    def approvals(self) -> "Approvals | None":
        """The approver, if it asks by an inbox."""
        if self.approver is None:
            return None
        from colonnade.host.policy.approvals.approvals import Approvals  # on use

        return self.approver if isinstance(self.approver, Approvals) else None

    def _as_approver(self, inbox: "Inbox | Approver | None") -> Approver | None:
        """What asks the people behind an inbox."""
        if inbox is None:
            return None
        from colonnade.host.policy.approvals.approvals import Approvals  # on use
        from colonnade.host.policy.approvals.inbox import Inbox

        if not isinstance(inbox, Inbox):
            return inbox
        approvals = Approvals(inbox)
        self._inbox_stack.callback(approvals.close)
        return approvals

    def _configured_approver(self, settings: "ApprovalSettings") -> Approver | None:
        from colonnade.host.policy.approvals.config import make_inbox  # on use

        inbox = make_inbox(settings)
        self._inbox_stack.push_async_callback(inbox.store.close)
        self._inbox_stack.push_async_callback(inbox.close)
        return self._as_approver(inbox)

    async def serve(self) -> None:
        """Serve the control socket of the inbox, if it wants one. Raises `Refused`."""
        self._is_served = True
        approvals = self.approvals
        if approvals is not None and approvals.inbox.socket:
            from colonnade.host.policy.approvals.control import ControlServer  # on use

            server = ControlServer(approvals.inbox, approvals.remembered)
            await self._inbox_stack.enter_async_context(server)

    def check_approver(self, rules: RuleSet | None) -> None:
        """Log a warning if a rule asks and there is no way to ask, so that this is known before the
        first call; once, until that has changed."""
        rule = first_that_asks(rules) if self._is_without_approver() else ""
        if rule and not self._warned_of:
            log.warning(
                "%s asks for approvals, and there is no way to ask: such calls are refused; %s, or "
                "let a rule allow or deny them",
                rule,
                ADD_APPROVER,
            )
        self._warned_of = rule

    def _is_without_approver(self) -> bool:
        if self.approver is None:
            return True
        approvals = self.approvals
        # An approver that the program has made says itself what it cannot do.
        is_own = approvals is None or self._given.inbox is approvals
        return not is_own and approvals is not None and not approvals.inbox.has_approver

    # ------------------------------------------------------------ reload

    async def reload(self, config: Config, rules: RuleSet | None) -> ReloadedParts:
        """Use the tables of another configuration from now on."""
        had_approver = self.approver is not None
        async with AsyncExitStack() as replaced:  # closed once nothing uses it
            problems = await self._reload_approvals(config, replaced)
            problems += self._reload_audit(config, replaced)
            is_stricter = self._reload_pins(config)
            if self.guard is not None:
                self.guard.use_parts(self._pins, self._audit, self.approver)
            else:
                self.guard = self._make_guard(config, rules)
                if self.guard is not None:
                    self.guard.set_rules(None)  # they are set with the servers
        return ReloadedParts(
            problems, is_stricter or had_approver is not (self.approver is not None)
        )

    def _reload_audit(self, config: Config, replaced: AsyncExitStack) -> tuple[HostProblem, ...]:
        if self._given.audit is not None:
            return ()
        before, after = self._tables.audit, config.audit
        opened = _open_audit(after) if after is not None else None
        problems: tuple[HostProblem, ...] = ()
        if opened is not None and after is not None:
            problems = _audit_problems(opened, after)
        if _is_same_audit(before, after):
            return problems
        if problems and self._audit is not None:
            hint = "what was in force before it still is"
            return tuple(one._replace(hint=hint) for one in problems)
        if after is None:
            log.warning("there is no audit log any more: [audit] is gone from the configuration")
        if self._audit is not None:
            replaced.push_async_callback(self._audit.close)
        self._audit = opened
        self._tables = replace(self._tables, audit=after)
        return problems

    async def _reload_approvals(
        self, config: Config, replaced: AsyncExitStack
    ) -> tuple[HostProblem, ...]:
        before, after = self._tables.approvals, config.approvals
        if self._given.inbox is not None or before == after:
            return ()
        approvals = self.approvals
        if approvals is not None and after is not None and _is_same_place(before, after):
            _set_times(approvals.inbox, after)
            self._tables = replace(self._tables, approvals=after)
            return ()
        stack, approver = self._inbox_stack, self.approver
        self._inbox_stack = AsyncExitStack()
        try:
            self.approver = self._configured_approver(after) if after is not None else None
            if self._is_served:
                await self.serve()
        except ColonnadeError as error:
            await self._inbox_stack.aclose()
            self._inbox_stack, self.approver = stack, approver
            what = f"[approvals] has changed and cannot be used: {error}"
            return (HostProblem("", what, hint="what was in force before it still is"),)
        self._tables = replace(self._tables, approvals=after)
        replaced.push_async_callback(stack.aclose)
        if approvals is not None:
            replaced.push_async_callback(approvals.inbox.withdraw_all)
        return ()

    def _reload_pins(self, config: Config) -> bool:
        """Use other pins, or another mode; whether a server has strict pins that had none."""
        if self._pins is None:
            self._pins = _new_pins(config) if _wants_pins(config) else None
            return self._pins is not None
        assert self.guard is not None, "it has the pins"
        assert self.guard.pins is not None
        table = config.pins
        if self._given.pins is None:
            table = table or PinsTable(mode="off")
        was_strict = self._pins.mode == "strict"
        if table is not None:
            self.guard.pins.use(table)
        return self._pins.mode == "strict" and not was_strict

    async def close(self) -> None:
        """Close everything that this host has made, and the log and the pins that it was given."""
        await self._inbox_stack.aclose()
        if self._pins is not None:
            await self._pins.close()
        if self._audit is not None:
            await self._audit.close()


def _open_audit(settings: AuditSettings) -> "AuditLog":
    from colonnade.host.policy.audit.log import open_audit_log  # on use

    return open_audit_log(settings)


def _audit_problems(opened: "AuditLog", settings: AuditSettings) -> tuple[HostProblem, ...]:
    """Why the log of a configuration cannot be written, if it cannot."""
    failure = opened.check()
    if failure is None:
        return ()
    why = failure.strerror or type(failure).__name__
    what = f"the audit log in {opened.path} cannot be written: {why}"
    calls = "every call is refused" if settings.required else "calls are not recorded"
    return (HostProblem("", what, settings.place, hint=f"{calls} until it can be"),)


def _is_same_audit(before: AuditSettings | None, after: AuditSettings | None) -> bool:
    if before is None or after is None:
        return before is after
    return replace(after, place=before.place) == before


def _is_same_place(before: "ApprovalSettings", after: "ApprovalSettings") -> bool:
    return (before.socket, before.store) == (after.socket, after.store)


def _set_times(inbox: "Inbox", settings: "ApprovalSettings") -> None:
    inbox.wait_s = settings.wait_s
    inbox.usable_s = settings.usable_s
    inbox.deadline_s = settings.deadline_s


def _wants_pins(config: Config) -> bool:
    every = [one.settings.pins for one in config.entries.values()]
    return config.pins is not None or any(one not in (None, "off") for one in every)


def _new_pins(config: Config) -> Pins:
    table = config.pins or PinsTable(mode="off")
    return Pins(mode=table.mode, first=table.first)
