"""What a checkpoint keeps of a group that waits: the routing of its samples comes back to the last bit."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from whet.training.groups import group_from_record, group_record
from whet.types import Group, Prompt, Sample


class OneRow:
    """A loader that knows one prompt."""

    def prompts(self, rows: list[int]) -> list[Prompt]:
        return [Prompt("a", [1, 2], "") for _ in rows]


@pytest.mark.parametrize("dtype", [np.uint8, np.int16])
def test_routing_survives_a_checkpoint(dtype: type) -> None:
    routing = np.arange(4 * 3 * 2, dtype=dtype).reshape(4, 3, 2)[:, ::-1]
    (prompt,) = OneRow().prompts([0])
    recorded, plain = (Sample.written(prompt, [5, 6, 7], [-1.0, -0.5, -2.0], "stop") for _ in range(2))
    recorded.routing = routing
    loader: Any = OneRow()
    group = group_from_record(json.loads(json.dumps(group_record(Group(0, [recorded, plain])))), loader)
    assert group.samples == [recorded, plain]
    assert group.samples[1].routing is None
    assert group.samples[0].routing.dtype == dtype
    assert np.array_equal(group.samples[0].routing, routing)
