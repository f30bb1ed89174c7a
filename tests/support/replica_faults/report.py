"""What a run with faults has found."""

from collections import Counter

from replica_faults.load import Effect, LoadLog


class Report:
    """Lines to print, and violations."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: list[str] = []
        self.problems: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)

    def say_load(self, log: LoadLog, effects: list[Effect]) -> None:
        """The calls of clients, and what failed, by kind."""
        done = ", ".join(f"{number} {kind}" for kind, number in sorted(log.counts.items()))
        self.say(f"{sum(log.counts.values())} calls succeeded: {done}")
        self.say(
            f"{len(effects)} effects; {sum(log.errors.values())} calls failed, each within "
            f"{log.longest_failure_s:.1f} s:"
        )
        shown: Counter[str] = log.errors
        for words, number in shown.most_common(20):
            self.say(f"{number:>7}  {words}")

    def print(self) -> None:
        for line in self.lines:
            print(line)
        for problem in self.problems[:20]:
            print("VIOLATION", problem)
        print(f"{self.name}: {len(self.problems)} violations", flush=True)
