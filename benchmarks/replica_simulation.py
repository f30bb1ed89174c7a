"""A thousand replicas and a million sessions, simulated: what Redis and each replica have to do.

    scripts/replicas simulate [--replicas N,…] [--sessions N,…] [--call-interval-s S] …

First a real Redis and two real replicas are measured: the commands of each kind of event (by MONITOR),
the CPU time that Redis takes for a command, for a message and for each of its receivers, and the CPU
time that a replica takes for a message about a session that it does not have. Then the clients are
simulated, event by event, in virtual time, without a network:

- a session lasts 30 minutes in the mean; it sends a call every 30 s in the mean, each to a replica that
  is chosen at random, as by a balancer without stickiness;
- half of the sessions have a stream for notifications; half end with DELETE, the others expire;
- of the calls, 2 % are streamed, 1 % wait for a response of the client, which comes to any replica,
  and 0.5 % are cancelled; one session in ten sets a log level; one list changes every ten seconds;
- a replica keeps the copies of the `max_sessions` sessions that it used last. A call without a copy
  reads the record, and a copy renews the record as `SharedSessionRegistry.check` does;
- a replica renews its lease every third of `LEASE_S`. Every broadcast is received by every replica.

A sample of the sessions is simulated, with as small a share of the copies in a replica; the rates are
those of all. Not modelled: the network, its latency, reconnects, and calls beyond their messages.

The limits are those at which one core is used to a half: that of a Redis server, and that of a replica
for messages which are not about its own sessions.
"""

import argparse
import heapq
import random
import re
import select
import socket
import sys
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any
from urllib.parse import urlsplit

from benchmarks.redis_server import RedisServer, redis_server
from benchmarks.replica_sizes import ReplicaProcess
from benchmarks.rows import cpu_s
from colonnade import Limits
from colonnade.replicas.replica import LEASE_S

REPLICAS = (3, 30, 300, 1_000)
SESSIONS = (10_000, 100_000, 1_000_000)
# Sessions that are simulated of those that there are.
SAMPLE = 10_000
# Virtual time: until the copies of the replicas are as in the long run, and what is counted then.
WARM_S, COUNTED_S = 2700.0, 900.0
# Of one core, for Redis and for what a replica does for others.
SHARE = 0.5
# Bytes of a session, of a principal and of a stream in Redis, and of a copy (`replica_sizes`).
RECORD_BYTES, STREAM_BYTES, COPY_BYTES = 919 + 300, 4_801, 7_340

# How often something is repeated for its CPU time, and how many calls are sent together.
REPEATED, TOGETHER, RECEIVERS = 20_000, 64, 100


# ---------------------------------------------------------------- measured


@dataclass
class EventCost:
    """What one event makes Redis do: commands by kind, and messages to all replicas and to one."""

    commands: Counter[str] = field(default_factory=Counter[str])
    broadcasts: int = 0
    bytes_in: int = 0


@dataclass
class Measured:
    """The costs of this release on this machine, in seconds and bytes."""

    events: dict[str, EventCost]
    command_s: dict[str, float]
    delivery_s: float
    message_bytes: int
    received_s: float


KINDS = {
    "GET": re.compile(r'^"GET"'),
    "write": re.compile(r'^"EVAL(SHA)?" .*:e:'),
    "append": re.compile(r'^"EVAL(SHA)?" .*:l:'),
    "PUBLISH": re.compile(r'^"PUBLISH"'),
}


class Watch:
    """The commands that Redis executes, as MONITOR writes them."""

    def __init__(self, redis: RedisServer) -> None:
        self._client = redis.client
        parts = urlsplit(redis.url)
        self._sock = socket.create_connection((parts.hostname, parts.port), timeout=30)
        self._sock.sendall(b"MONITOR\r\n")
        self._marks = 0

    def during(self, action: Callable[[], object]) -> EventCost:
        """What an action makes Redis do; leases are not of it."""
        self._read()
        action()
        time.sleep(0.1)  # what follows a response
        cost = EventCost()
        for line in self._read():
            kind = next((kind for kind, pattern in KINDS.items() if pattern.match(line)), None)
            if kind is None or ":e:replica " in line or ":t:replica " in line:
                continue  # a lease; and messages to one replica are in the model
            cost.commands[kind] += 1
            print("DBG", line[:200]) if __import__("os").environ.get("DBG") else None
            cost.bytes_in += len(line)
            cost.broadcasts += ":t:replicas" in line
        return cost

    def close(self) -> None:
        self._sock.close()

    def _read(self) -> list[str]:
        self._marks += 1
        mark = f"mark {self._marks}"
        self._client.echo(mark)
        data = b""
        while mark.encode() not in data:
            data += self._sock.recv(1 << 20)
        lines = [line.partition("] ") for line in data.decode(errors="replace").split("\r\n")]
        return [after for before, _, after in lines if not before.endswith("lua")]


def measure() -> Measured:
    """Measure a real Redis and two real replicas."""
    with redis_server() as redis:
        first, second = ReplicaProcess(redis.url), ReplicaProcess(redis.url)
        try:
            watch = Watch(redis)
            # Twice: the first of each kind sends the source of its script.
            for name in ("ann", "bob"):
                events = {kind: watch.during(do) for kind, do in _events(first, second, name)}
            watch.close()  # it takes CPU time of Redis
            session = first.open_session("ann")
            level = {"id": 1, "method": "logging/setLevel", "params": {"level": "error"}}
            channel, message = _broadcast_of(redis, lambda: first.post(level, "ann", session))
            first.delete("ann", session)
            received = _received_s(redis, second, channel, message)
        finally:
            first.end()
            second.end()
        command_s = _command_s(redis)
        delivery_s = _delivery_s(redis, message, command_s["PUBLISH"])
    return Measured(events, command_s, delivery_s, len(message), received)


def _events(
    first: ReplicaProcess, second: ReplicaProcess, name: str
) -> Iterator[tuple[str, Callable[[], object]]]:
    """What clients do, each in a session of its own."""
    ping = {"id": 1, "method": "ping"}
    level = {"id": 1, "method": "logging/setLevel", "params": {"level": "error"}}
    cancelled = {"method": "notifications/cancelled", "params": {"requestId": 99}}
    steps = {"name": "steps", "arguments": {}, "_meta": {"progressToken": 1}}
    streamed = {"id": 1, "method": "tools/call", "params": steps}
    yield "open", lambda: first.open_session(name)
    actions: dict[str, Callable[[str], object]] = {
        "copy": lambda session: second.post(ping, name, session),
        "call": lambda session: first.post(ping, name, session),
        "stream": lambda session: first.open_stream(name, session),
        "level": lambda session: first.post(level, name, session),
        "streamed call": lambda session: first.post(streamed, name, session),
        "cancel": lambda session: first.post(cancelled, name, session),
        "delete": lambda session: first.delete(name, session),
    }
    for kind, action in actions.items():
        yield kind, partial(action, first.open_session(name))


def _broadcast_of(redis: RedisServer, action: Callable[[], object]) -> tuple[str, bytes]:
    """The topic of all replicas, and a message of it."""
    listener = redis.client.pubsub()
    listener.psubscribe("*:t:replicas")
    listener.get_message(timeout=5)
    action()
    found = listener.get_message(timeout=5)
    listener.close()
    assert found is not None
    return found["channel"].decode(), found["data"]


def _received_s(redis: RedisServer, replica: ReplicaProcess, channel: str, message: bytes) -> float:
    """The CPU time of a replica for a message about a session that it does not have."""
    before = cpu_s(replica.pid)
    for _ in range(REPEATED // TOGETHER):
        pipeline = redis.client.pipeline(transaction=False)
        for _ in range(TOGETHER):
            pipeline.publish(channel, message)
        pipeline.execute()
        time.sleep(0.001)  # a topic drops messages of a replica that does not read them
    last = -1.0
    while (now := cpu_s(replica.pid)) - last > 0.002:
        last = now
        time.sleep(0.1)
    return (now - before) / (REPEATED // TOGETHER * TOGETHER)


def _command_s(redis: RedisServer) -> dict[str, float]:
    """The CPU time of Redis for a command, if many are sent together, by the real scripts."""
    import asyncio

    from colonnade.store.limits import StoreLimits
    from colonnade.store.redis import RedisStore

    value = b"x" * 400
    taken: dict[str, float] = {}

    async def repeat() -> None:
        limits = StoreLimits(principal_entries=10**7, principal_bytes=2**40, log_entries=10**6)
        store = RedisStore(redis.url, limits=limits)
        calls: dict[str, Callable[[int], Any]] = {
            "write": lambda n: store.put("ann", f"session {n % 1000}", value, 1800.0),
            "GET": lambda n: store.get("ann", f"session {n % 1000}"),
            "append": lambda n: store.append("ann", f"stream {n % 1000}", value, 300.0),
            "PUBLISH": lambda n: store.publish("ann", "topic", value),
        }
        for kind, call in calls.items():
            before = cpu_s(redis.pid)
            for first in range(0, REPEATED, TOGETHER):
                await asyncio.gather(*(call(first + number) for number in range(TOGETHER)))
            taken[kind] = (cpu_s(redis.pid) - before) / REPEATED
        await store.close()

    asyncio.run(repeat())
    return taken


def _delivery_s(redis: RedisServer, message: bytes, publish_s: float) -> float:
    """The CPU time of Redis for each replica that receives a message."""
    parts = urlsplit(redis.url)
    sockets = [socket.create_connection((parts.hostname, parts.port)) for _ in range(RECEIVERS)]
    poll = select.epoll()
    for one in sockets:
        one.sendall(b"SUBSCRIBE all\r\n")
        one.recv(4096)
        one.setblocking(False)
        poll.register(one, select.EPOLLIN)
    by_number = {one.fileno(): one for one in sockets}
    times = REPEATED // RECEIVERS
    before = cpu_s(redis.pid)
    for _ in range(times):
        redis.client.publish("all", message)
        for number, _ in poll.poll(0):
            by_number[number].recv(1 << 16)
    taken = cpu_s(redis.pid) - before
    for one in sockets:
        one.close()
    return max(taken / times - publish_s, 0.0) / RECEIVERS


# ---------------------------------------------------------------- simulated


@dataclass(frozen=True)
class Model:
    """What the clients do."""

    session_s: float = 1800.0
    call_interval_s: float = 30.0
    with_stream: float = 0.5
    deleted: float = 0.5
    streamed: float = 0.02
    answered: float = 0.01
    cancelled: float = 0.005
    levels: float = 0.1
    list_changes_per_s: float = 0.1
    # The share of the sessions that belong to the principal with the most of them.
    largest_principal: float = 0.01


class Simulation:
    """Sessions and the replicas that have copies of them, in virtual time."""

    def __init__(self, replicas: int, sessions: int, model: Model) -> None:
        self._replicas = replicas
        self._model = model
        self._dice = random.Random(1)
        self._sample = min(sessions, SAMPLE)
        self._scale = sessions / self._sample
        limits = Limits()
        self._room = max(1, round(limits.max_sessions / self._scale))
        self._renewed_after_s = limits.session_idle_timeout_s / 4
        # By replica: the sessions that it has copies of, the least recently used first.
        self._copies: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(replicas)]
        self._ends: dict[int, float] = {}
        # When the record of each session was written last.
        self._renewed: dict[int, float] = {}
        # When, what, the session, and the replica of a copy.
        self._queue: list[tuple[float, str, int, int]] = []
        self._numbers = count()
        self._seen: Counter[str] = Counter()

    def run(self) -> dict[str, float]:
        """The events in a second, of all sessions, and the copies in a replica."""
        for _ in range(self._sample):
            self._open(0.0)
        self._run_until(WARM_S)
        self._seen.clear()
        self._run_until(WARM_S + COUNTED_S)
        scale = self._scale / COUNTED_S
        rates = {name: number * scale for name, number in self._seen.items()}
        rates["copies"] = sum(map(len, self._copies)) * self._scale / self._replicas
        return rates

    def _run_until(self, end: float) -> None:
        queue = self._queue
        while queue[0][0] < end:
            now, what, session, replica = heapq.heappop(queue)
            if session not in self._ends:
                continue
            if what == "renew":
                if session in self._copies[replica]:
                    self._seen["renewal check"] += 1
                    if now - self._renewed[session] >= self._renewed_after_s:
                        self._seen["renew"] += 1
                        self._renewed[session] = now
                    due = self._renewed[session] + self._renewed_after_s
                    self._push(due, "renew", session, replica)
            elif now >= self._ends[session]:
                self._end(session)
                self._open(now)
            else:
                self._call(session, now)

    def _push(self, at: float, what: str, session: int, replica: int = 0) -> None:
        heapq.heappush(self._queue, (at, what, session, replica))

    def _open(self, now: float) -> None:
        model, dice, session = self._model, self._dice, next(self._numbers)
        self._ends[session] = now + dice.expovariate(1 / model.session_s)
        self._renewed[session] = now
        self._seen["open"] += 1
        self._seen["stream"] += dice.random() < model.with_stream
        self._seen["level"] += dice.random() < model.levels
        self._use(session, now)
        self._next_call(session, now)

    def _end(self, session: int) -> None:
        del self._ends[session], self._renewed[session]
        self._seen["delete"] += self._dice.random() < self._model.deleted
        for here in self._copies:
            here.pop(session, None)

    def _next_call(self, session: int, now: float) -> None:
        after_s = self._dice.expovariate(1 / self._model.call_interval_s)
        self._push(now + after_s, "call", session)

    def _call(self, session: int, now: float) -> None:
        model, dice = self._model, self._dice
        self._seen["call"] += 1
        self._seen["copy"] += not self._use(session, now)
        self._seen["streamed call"] += dice.random() < model.streamed
        # In another replica than the one that runs the call.
        elsewhere = 1 - 1 / self._replicas
        self._seen["answered elsewhere"] += dice.random() < model.answered * elsewhere
        self._seen["cancel"] += dice.random() < model.cancelled * elsewhere
        self._next_call(session, now)

    def _use(self, session: int, now: float) -> bool:
        """Send a request to a replica; whether it had a copy."""
        replica = self._dice.randrange(self._replicas)
        here = self._copies[replica]
        if session in here:
            here.move_to_end(session)
            return True
        here[session] = None
        self._push(now + self._renewed_after_s, "renew", session, replica)
        if len(here) > self._room:
            here.popitem(last=False)
        return False


@dataclass
class Load:
    """What Redis and a replica have to do."""

    rates: dict[str, float]
    commands: dict[str, float]
    broadcasts: float
    redis_cpu: float
    broadcast_cpu: float
    bytes_in: float
    bytes_out: float
    replica_cpu: float
    hottest: tuple[str, float]
    redis_bytes: float
    replica_bytes: float


def load_of(replicas: int, sessions: int, model: Model, measured: Measured) -> Load:
    """The work of one second."""
    rates = Simulation(replicas, sessions, model).run()
    commands: dict[str, float] = dict.fromkeys(KINDS, 0.0)
    broadcasts = model.list_changes_per_s
    commands["PUBLISH"] += model.list_changes_per_s
    bytes_in = 0.0
    # A copy reads the record, and writes it if no other one has renewed it; nothing is broadcast.
    costs = measured.events | {
        "renewal check": EventCost(Counter({"GET": 1}), 0, 100),
        "renew": EventCost(Counter({"write": 1}), 0, 600),
        "answered elsewhere": EventCost(Counter({"PUBLISH": 1}), 0, 300),
    }
    for name, rate in rates.items():
        if name in costs and name != "call":
            cost = costs[name]
            for kind, number in cost.commands.items():
                commands[kind] += number * rate
            broadcasts += cost.broadcasts * rate
            bytes_in += cost.bytes_in * rate
    leases = replicas / (LEASE_S / 3)
    commands["write"] += leases
    own_cpu = sum(rate * measured.command_s[kind] for kind, rate in commands.items())
    deliveries = broadcasts * replicas
    broadcast_cpu = deliveries * measured.delivery_s
    hot = {
        "topic of all replicas (deliveries)": deliveries,
        "index of the server's own entries (leases)": leases,
        "index of the largest principal": model.largest_principal
        * (commands["write"] - leases + commands["append"]),
    }
    hottest = max(hot, key=lambda name: hot[name])
    streams = sessions * model.with_stream
    kept = sessions * (1 + (1 - model.deleted) * Limits().session_idle_timeout_s / model.session_s)
    return Load(
        rates=rates,
        commands=commands,
        broadcasts=broadcasts,
        redis_cpu=own_cpu,
        broadcast_cpu=broadcast_cpu,
        bytes_in=bytes_in,
        bytes_out=deliveries * measured.message_bytes + commands["GET"] * 400,
        replica_cpu=broadcasts * measured.received_s,
        hottest=(hottest, hot[hottest]),
        redis_bytes=kept * RECORD_BYTES + streams * STREAM_BYTES,
        replica_bytes=rates["copies"] * COPY_BYTES,
    )


# ---------------------------------------------------------------- reported


def report(chosen: argparse.Namespace) -> None:
    measured = measure()
    print("measured: what an event makes Redis execute")
    for name, cost in measured.events.items():
        told = ", ".join(f"{number} {kind}" for kind, number in cost.commands.items()) or "nothing"
        print(f"  {name:<16} {told}; {cost.broadcasts} to all replicas")
    costs = ", ".join(f"{kind} {one * 1e6:.1f}" for kind, one in measured.command_s.items())
    print(f"CPU µs of Redis: {costs}, each receiver of a message {measured.delivery_s * 1e6:.2f}")
    print(
        f"a message of {measured.message_bytes} bytes about a session of others: "
        f"{measured.received_s * 1e6:.0f} CPU µs of a replica\n"
    )
    model = Model(call_interval_s=chosen.call_interval_s, session_s=chosen.session_s)
    print(
        f"{'':>8} {'':>9} {'':>8} {'Redis':>9} {'CPU %':>6} {'CPU % of':>10} {'MB/s':>6} "
        f"{'messages':>9} {'CPU %':>6} {'GB':>6} {'copies':>7}"
    )
    print(
        f"{'replicas':>8} {'sessions':>9} {'calls/s':>8} {'commands':>9} {'of it':>6} "
        f"{'broadcast':>10} {'out':>6} {'a replica':>9} {'of it':>6} {'Redis':>6} {'MB':>7}   hottest key"
    )
    for replicas in chosen.replicas:
        for sessions in chosen.sessions:
            load = load_of(replicas, sessions, model, measured)
            print(
                f"{replicas:>8,} {sessions:>9,} {load.rates['call']:>8,.0f} "
                f"{sum(load.commands.values()):>9,.0f} {load.redis_cpu * 100:>6.1f} "
                f"{load.broadcast_cpu * 100:>10.1f} {load.bytes_out / 1e6:>6.1f} "
                f"{load.broadcasts:>9,.0f} {load.replica_cpu * 100:>6.1f} "
                f"{load.redis_bytes / 1e9:>6.2f} {load.replica_bytes / 1e6:>7.0f}   "
                f"{load.hottest[0]}: {load.hottest[1]:,.0f}/s   {limit(load)}",
                flush=True,
            )


def limit(load: Load) -> str:
    """What is beyond its limit, if anything is."""
    found = {
        f"Redis is busy: {load.redis_cpu / SHARE:.1f} shards": load.redis_cpu > SHARE,
        "broadcasts: too many for one Redis": load.broadcast_cpu > SHARE,
        "broadcasts: too many for a replica": load.replica_cpu > SHARE,
    }
    return "; ".join(name for name, is_beyond in found.items() if is_beyond)


def numbers(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="scripts/replicas simulate")
    parser.add_argument("--replicas", type=numbers, default=list(REPLICAS))
    parser.add_argument("--sessions", type=numbers, default=list(SESSIONS))
    parser.add_argument("--call-interval-s", type=float, default=Model.call_interval_s)
    parser.add_argument("--session-s", type=float, default=Model.session_s)
    report(parser.parse_args(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
