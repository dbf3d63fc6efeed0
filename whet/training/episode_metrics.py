"""Numbers about episodes with an environment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from whet.types import Sample

MOST_NAMES = 100  # of numbers that environments report, in one step


def metrics_of(played: Sequence[Sample]) -> dict[str, float]:
    """Failures, ends, branches and reported numbers of episodes."""
    names = list(dict.fromkeys(name for s in played for name in s.info))[:MOST_NAMES]
    failures = Counter(s.failure.removeprefix("env ") for s in played if s.failure and s.failure.startswith("env "))
    ends = Counter(s.end for s in played if not (s.failure and s.failure.startswith("env ")))
    values = {name: [s.info[name] for s in played if name in s.info] for name in names}
    return {
        **{f"env/{name}": sum(given) / len(given) for name, given in values.items()},
        "env/branches": sum(len(s.branches) for s in played) / len(played),
        "env/failed": float(failures.total()),
        **{f"env/failed_{kind.replace(' ', '_')}": float(count) for kind, count in failures.items()},
        **{f"env/end_{end}": count / len(played) for end, count in ends.most_common(MOST_NAMES)},
    }
