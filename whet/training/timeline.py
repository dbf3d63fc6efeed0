"""When each part of a step began and ended: its stages, and the groups that were sampled and scored meanwhile."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from whet.training.measure import StepClock
from whet.types import Group

MOST_GROUPS = 256  # in one line; of larger batches every second, third, ... group


def timeline(step: int, clock: StepClock, groups: Sequence[Group]) -> dict[str, Any]:
    """Return a line of timeline.jsonl; times are seconds since the step began, negative for what began before it."""
    now = time.perf_counter()
    stages = [[name, *(round(at - clock.start, 4) for at in span)] for name, *span in clock.spans]
    timed = [group for group in groups if group.times is not None and group.samples]
    stride = max(1, -(-len(timed) // MOST_GROUPS))
    return {
        "step": step,
        "began": round(time.time() - (now - clock.start), 3),
        "seconds": round(now - clock.start, 4),
        "stages": stages,
        "groups": [
            [group.samples[0].group, *(round(at - clock.start, 4) for at in group.times or ())]
            for group in timed[::stride]
        ],
        "all_groups": len(timed),
    }
