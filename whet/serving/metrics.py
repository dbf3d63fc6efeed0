"""Counts and times in the text format of Prometheus (version 0.0.4)."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
HELP = {
    "whet_requests_total": "Requests answered, by path and status.",
    "whet_clients_gone_total": "Requests whose client left before the answer was complete.",
    "whet_prompt_tokens_total": "Tokens of prompts.",
    "whet_completion_tokens_total": "Tokens written.",
    "whet_weight_updates_total": "Times that the weights were replaced.",
    "whet_request_seconds": "Time from a request's arrival to the end of its answer.",
    "whet_first_token_seconds": "Time from a request's arrival to the first token of its answer.",
    "whet_requests_running": "Requests being answered.",
    "whet_requests_waiting": "Requests in the queue.",
    "whet_weights_version": "Version of the weights that answers are written with.",
}
Labels = tuple[tuple[str, str], ...]


class Metrics:
    """Counters and histograms; what is a state is asked for when somebody looks."""

    def __init__(self, gauges: dict[str, Callable[[], float]]) -> None:
        self._gauges = gauges
        self._counters: dict[str, Counter[Labels]] = defaultdict(Counter)
        self._buckets = {name: [0] * (len(SECONDS) + 1) for name in HELP if name.endswith("_seconds")}
        self._sums = dict.fromkeys(self._buckets, 0.0)
        for name in HELP:
            if name.endswith("_total") and name != "whet_requests_total":
                self._counters[name][()] = 0

    def count(self, name: str, amount: int = 1, **labels: str) -> None:
        """Add to a counter."""
        self._counters[name][tuple(labels.items())] += amount

    def observe(self, name: str, seconds: float) -> None:
        """Add a time to a histogram."""
        self._buckets[name][bisect_left(SECONDS, seconds)] += 1
        self._sums[name] += seconds

    def text(self) -> str:
        """The page that Prometheus reads."""
        return "\n".join([*self._lines(), ""])

    def _lines(self) -> Iterator[str]:
        for name, counter in sorted(self._counters.items()):
            yield from (f"# HELP {name} {HELP[name]}", f"# TYPE {name} counter")
            yield from (f"{name}{_braces(labels)} {value}" for labels, value in sorted(counter.items()))
        for name, gauge in self._gauges.items():
            yield from (f"# HELP {name} {HELP[name]}", f"# TYPE {name} gauge", f"{name} {gauge():g}")
        for name, buckets in self._buckets.items():
            yield from (f"# HELP {name} {HELP[name]}", f"# TYPE {name} histogram")
            total = 0
            for bound, count in zip((*map(str, SECONDS), "+Inf"), buckets):
                total += count
                yield f'{name}_bucket{{le="{bound}"}} {total}'
            yield from (f"{name}_sum {self._sums[name]:.6f}", f"{name}_count {total}")


def _braces(labels: Labels) -> str:
    # Values are routes and numbers of whet's own, so that nothing in them needs escaping.
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels) + "}" if labels else ""
