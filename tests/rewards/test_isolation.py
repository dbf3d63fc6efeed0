"""What one call does to its process, its descriptors, its modules and its children costs no other call anything."""

from __future__ import annotations

import math
import os
import resource
import sys

import pytest
from patience import eventually

from whet.config import with_values
from whet.config.schema.reward import RewardConfig
from whet.errors import RewardsFailedError, UserError
from whet.rewards import capped_log, scorer
from whet.rewards.capped_log import CappedLog
from whet.rewards.scorer import RewardScorer
from whet.types import Prompt, Sample

# A response is a number, the score, and before it what else happens.
REWARD = """
import json, os, subprocess, sys, threading, time

def main(reward_input):
    act, _, number = reward_input["response"].rpartition(" ")
    if act == "fork": os.fork()
    if act == "patch": json.dumps = os.write = None
    if act == "die": os._exit(3)
    if act == "die later": threading.Thread(target=lambda: (time.sleep(0.2), os._exit(3))).start()
    if act == "slow": time.sleep(0.6)
    if act == "detach": return subprocess.Popen(["sleep", "600"], start_new_session=True).pid
    if act == "print": [sys.stdout.write("x" * 10**6) for _ in range(40)]
    if act == "surrogate": print(reward_input["note"]); return float(reward_input["note"] == "a\\ud800b")
    if act == "raise": raise ValueError("\\ud800 \\x1b[2J")
    if act == "parent": return os.getppid()
    if act == "name": return {"overall": 1.0, f"name {number}": 2.0}
    return float(number)
"""


@pytest.fixture
def score(tmp_path):
    """Score texts with one worker; returns the samples. `score.scorer` and `score.warnings` are what was used."""
    file = tmp_path / "reward.py"
    file.write_text(REWARD)
    warnings: list[str] = []
    config = RewardConfig(num_cpus=1, timeout=20.0, fallback=-1.0)
    with RewardScorer(str(file), config, warn=warnings.append, output=tmp_path / "reward.log") as built:

        def run(*texts: str) -> list[Sample]:
            prompt = Prompt("rows\ud800.jsonl:0", [], "", "4", {"note": "a\ud800b"})
            samples = [Sample.written(prompt, [], [], "stop", text=text) for text in texts]
            built.score(samples)
            return samples

        run.scorer, run.warnings = built, warnings
        yield run


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_fork_and_a_patched_module_mix_up_nothing(score):
    samples = score("0", "fork 1", "2", "patch 3", *map(str, range(4, 30)))
    assert [sample.reward for sample in samples] == list(range(30))


def test_a_call_that_is_hit_by_what_an_earlier_one_left_is_made_again(score):
    samples = score("1", "die later 2", "slow 3", "die 4", "5")
    assert [sample.reward for sample in samples] == [1.0, 2.0, 3.0, -1.0, 5.0]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process that detaches itself is not found")
@pytest.mark.parametrize("end", ["close", "die"])
def test_a_process_that_detached_itself_ends_with_the_worker(score, end):
    (sample,) = score("detach 1")
    assert alive(int(sample.reward))
    if end == "close":
        score.scorer.close()
    else:
        score("die 1")
    assert eventually(lambda: not alive(int(sample.reward)))


def test_the_functions_parent_is_not_the_trainer(score):
    assert score("parent 1")[0].reward not in (os.getpid(), 1)


def test_the_log_keeps_its_beginning_and_its_end(score, tmp_path):
    (tmp_path / "reward.log").write_text("the beginning\n")
    score("print 1")
    score("surrogate 1")
    score.scorer.close()
    text = (tmp_path / "reward.log").read_text()
    assert len(text) < capped_log.LIMIT
    assert text.startswith("the beginning\nxxx")
    assert text.endswith("a\\ud800b\n")
    assert text.count(capped_log.MARK) == 1


def test_a_log_that_several_cut_stays_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(capped_log, "LIMIT", 1000)
    monkeypatch.setattr(capped_log, "KEPT", 300)
    logs = [CappedLog(str(tmp_path / "log")) for _ in range(3)]
    for i in range(600):
        logs[i % 3].write(b"%04d\n" % i)
    text = (tmp_path / "log").read_text()
    assert len(text) <= 1000
    assert text.startswith("0000\n0001\n")
    assert text.endswith("0598\n0599\n")


def test_lone_surrogates_reach_the_function_and_come_back(score):
    assert score("surrogate 1")[0].reward == 1.0
    assert score("raise 1")[0].failure == "raised"
    assert "\\ud800 \N{REPLACEMENT CHARACTER}[2J" in score.warnings[0]


@pytest.mark.parametrize("seconds", [3_000_000.0, 1e300, math.inf])
def test_enormous_timeouts(score, seconds):
    score.scorer._config = with_values(score.scorer._config, {"timeout": seconds})
    assert score("7")[0].reward == 7.0


@pytest.mark.parametrize("changes", [{"timeout": math.nan}, {"timeout": -1.0}, {"timeout": 0}, {"fallback": 1e39}])
def test_limits_that_are_none(tmp_path, changes):
    with pytest.raises(UserError, match=f"worker.reward.{next(iter(changes))}"):
        RewardScorer(str(tmp_path / "reward.py"), RewardConfig(**changes))


def test_rows_that_cannot_be_sent_fail_alone(score):
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    prompts = [Prompt("row:0", [], "", None, {"deep": deep}), Prompt("row:1", [], "", None, {})]
    samples = [Sample.written(prompt, [], [], "stop", text="3") for prompt in prompts]
    score.scorer.score(samples)
    assert [sample.failure for sample in samples] == ["raised", None]
    assert "row cannot be given" in score.warnings[0]
    while deep:  # its own destructor would recurse
        deep = deep.pop()


def test_ever_new_names_are_left_out(score, monkeypatch):
    monkeypatch.setattr(scorer, "MOST_NAMES", 10)
    samples = score(*[f"name {i}" for i in range(20)])
    assert [len(sample.scores) for sample in samples] == [2] * 9 + [1] * 11
    assert len(score.warnings) == 1


def test_an_error_only_where_every_sample_failed(score):
    score.scorer.require_scores(score("1", "die 1"), "step 3")
    score.scorer.require_scores([], "step 3")
    with pytest.raises(
        RewardsFailedError, match=r"(?s)step 3: .*failed on all 2 samples \(1 died, 1 raised\).*reward.log"
    ):
        score.scorer.require_scores(score("die 1", "x"), "step 3")


def test_too_few_file_descriptors_for_all_workers(tmp_path):
    file = tmp_path / "reward.py"
    file.write_text(
        "import time\ndef main(reward_input):\n    time.sleep(0.01)\n    return float(reward_input['response'])"
    )
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    samples = [Sample.written(Prompt("row:0", [], ""), [], [], "stop", text=str(i)) for i in range(20)]
    with RewardScorer(str(file), RewardConfig(num_cpus=20)) as many:
        many.check([])
        taken = [os.dup(0) for _ in range(200)]  # all the numbers below the last of them
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(taken) + 1, hard))
        for descriptor in taken[-15:]:
            os.close(descriptor)
        try:
            many.score(samples)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for descriptor in taken[:-15]:
                os.close(descriptor)
        assert len(many._pool._workers) < 20
    assert [sample.reward for sample in samples] == list(range(20))
