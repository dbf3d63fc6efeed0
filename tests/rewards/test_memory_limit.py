"""A reward process may use so much memory and no more; what needs more costs its own sample."""

from __future__ import annotations

import sys

import pytest

from whet.config.schema.reward import RewardConfig
from whet.errors import UserError
from whet.rewards.scorer import RewardScorer
from whet.types import Prompt, Sample

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of other systems differ")
FILE = """
import os

def main(response, answer):
    if response == "hog": return len(bytearray(10**9))
    if response == "child":
        pid = os.fork()
        if pid == 0:
            try:
                len(bytearray(10**9))
            except MemoryError:
                os._exit(5)
            os._exit(0)
        return float(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    return 1.0
"""


def samples(*texts: str) -> list[Sample]:
    return [Sample.written(Prompt("row:0", [1], "q", "4"), [1], [0.0], "stop", text=text) for text in texts]


@pytest.mark.parametrize("limit", [None, 256])
def test_more_memory_than_allowed_is_a_failed_reward(tmp_path, limit):
    (tmp_path / "reward.py").write_text(FILE)
    scored = samples("hog", "fine", "child", "fine")
    config = RewardConfig(num_cpus=1, fallback=-1.0, memory_limit_mb=limit)
    with RewardScorer(f"{tmp_path}/reward.py", config, warn=lambda _: None) as scorer:
        counts = scorer.score(scored)
    assert counts["reward/failed"] == (0 if limit is None else 1)
    found = [each.scores["overall"] for each in scored]
    assert found == ([1e9, 1.0, 0.0, 1.0] if limit is None else [-1.0, 1.0, 5.0, 1.0])


def test_a_file_that_needs_more_to_be_imported_says_so(tmp_path):
    (tmp_path / "reward.py").write_text("TABLE = bytearray(10**9)\n" + FILE)
    config = RewardConfig(num_cpus=1, memory_limit_mb=64)
    named = r"MemoryError.*worker.reward.memory_limit_mb=64"
    with RewardScorer(f"{tmp_path}/reward.py", config) as scorer, pytest.raises(UserError, match=named):
        scorer.check([])
