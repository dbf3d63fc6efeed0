"""Asynchronous training: how old samples may be, what a kill leaves behind, and the same bits once more."""

from __future__ import annotations

import gzip
import json
import random
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from whet_process import run_folder, start, train

from whet.config import Config, load_config, with_values
from whet.config.examples import examples_folder
from whet.tracking import read_metrics
from whet.tracking.console import Console
from whet.training.flow import Flow, staleness
from whet.training.job import open_trainer
from whet.training.pending import Waiting
from whet.types import Prompt, Sample, Segment

ASYNC = ("trainer.max_staleness=2", "trainer.max_steps=8", "trainer.save_freq=2")
SLOW_REWARD = """
import hashlib, time

def compute_score(reward_input):
    drawn = int(hashlib.sha256(reward_input["response"].encode()).hexdigest(), 16) % 100
    time.sleep(0.3 if drawn < 5 else 0.003 * drawn / 10)
    right = reward_input["response"].strip() == "Answer: " + str(reward_input["ground_truth"])
    return {"overall": float(right) + drawn / 1000, "accuracy": float(right)}
"""


@pytest.fixture(scope="module")
def reward(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A reward function that is fast for most responses and slow for some."""
    file = tmp_path_factory.mktemp("reward") / "slow.py"
    file.write_text(SLOW_REWARD)
    return f"worker.reward.reward_function={file}:compute_score"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, few_rows: tuple[str, str], reward: str) -> Path:
    """The folder of an asynchronous run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("flow")
    code, text = train(folder, *few_rows, *ASYNC, reward)
    assert code == 0, text
    return run_folder(folder)


def schedule(run: Path) -> dict[int, list[dict]]:
    """The records of each step's groups."""
    files = {int(path.name.split(".")[0]): path for path in (run / "schedule").iterdir()}
    return {step: json.loads(gzip.decompress(path.read_bytes())) for step, path in sorted(files.items())}


def weights(run: Path, step: int) -> bytes:
    return (run / f"global_step_{step}/actor/huggingface/model.safetensors").read_bytes()


def test_no_token_is_older_than_the_bound(run):
    lines = [line for line in read_metrics(run / "metrics.jsonl") if line["step"] > 0]
    assert max(line["async/staleness_max"] for line in lines) <= 2
    assert any(line["async/staleness_max"] > 0 for line in lines)  # something was sampled ahead
    for step, records in schedule(run).items():
        for record in records:
            for sample in record["group"]["samples"]:
                versions = [segment["version"] for segment in sample["segments"]]
                assert versions == sorted(versions)
                assert step - 1 - 2 <= versions[0]
                assert versions[-1] <= step - 1


def test_no_prompt_is_left_out_or_taken_twice(run):
    taken = [record["ids"][0] for records in schedule(run).values() for record in records]
    assert len(taken) == len(set(taken)) == 8 * 4
    assert set(taken) <= set(range(0, (8 + 2) * 4 * 4, 4))


def test_a_replay_ends_with_the_same_bits(run, tmp_path, few_rows, reward):
    code, text = train(tmp_path, *few_rows, *ASYNC, reward, f"trainer.replay={run}")
    assert code == 0, text
    again = run_folder(tmp_path)
    for step in (2, 4, 6, 8):
        assert weights(again, step) == weights(run, step)
        assert (again / f"global_step_{step}/actor/optimizer.pt").read_bytes() == (
            run / f"global_step_{step}/actor/optimizer.pt"
        ).read_bytes()


def test_a_replay_of_fewer_steps_than_the_run_has_is_refused_at_once(run, tmp_path, few_rows, reward):
    code, text = train(tmp_path, *few_rows, *ASYNC, reward, f"trainer.replay={run}", "trainer.max_steps=11")
    assert code == 2
    assert f"trainer.replay={run}: that run has recorded steps 1 to 8, and this one has 11" in text
    assert "step  1/11" not in text


@pytest.mark.parametrize("kills", [3, pytest.param(30, marks=pytest.mark.slow)])
def test_killed_and_replayed(tmp_path, few_rows, reward, kills):
    """After any number of kills the schedule is whole: each prompt once, and a replay gives the same bits."""
    chance = random.Random(kills)
    folder, run = tmp_path / "killed", run_folder(tmp_path / "killed")
    more = (*ASYNC, "trainer.save_freq=1", reward, f"trainer.max_steps={max(8, kills)}")
    for _ in range(kills):
        process = start(folder, "train", *_small(), *few_rows, *more)
        lines = _count(run) + 1
        until = time.monotonic() + 60
        while _count(run) < lines and process.process.exitcode is None and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(chance.random() * 0.3)
        process.process.kill()
        process.process.join(10)
    code, text = train(folder, *few_rows, *more)
    assert code == 0, text
    taken = [record["ids"][0] for records in schedule(run).values() for record in records]
    assert len(taken) == len(set(taken)) == max(8, kills) * 4
    code, text = train(tmp_path / "replayed", *few_rows, *more, f"trainer.replay={run}")
    assert code == 0, text
    assert weights(run_folder(tmp_path / "replayed"), max(8, kills)) == weights(run, max(8, kills))


def test_late_groups_are_dropped_and_sampled_anew(tmp_path, few_rows, reward):
    code, text = train(tmp_path, *few_rows, *ASYNC, reward, "trainer.on_stale=drop", "trainer.max_staleness=1")
    assert code == 0, text
    lines = [line for line in read_metrics(run_folder(tmp_path) / "metrics.jsonl") if line["step"] > 0]
    assert max(line["async/staleness_max"] for line in lines) <= 1
    taken = [record["ids"][0] for records in schedule(run_folder(tmp_path)).values() for record in records]
    assert len(taken) == len(set(taken)) == 8 * 4


def test_caches_that_are_computed_anew(tmp_path, few_rows, reward):
    """Samples that an update interrupts go on, with tokens of several versions, and train to a whole run."""
    code, text = train(tmp_path, *few_rows, *ASYNC, reward, "worker.rollout.recompute_cache=true")
    assert code == 0, text
    samples = [
        sample
        for records in schedule(run_folder(tmp_path)).values()
        for record in records
        for sample in record["group"]["samples"]
    ]
    assert {sample["finish"] for sample in samples} <= {"stop", "length"}
    assert all(sum(len(segment["ids"]) for segment in sample["segments"]) <= 16 for sample in samples)
    assert [sample["index"] for sample in samples] == [0, 1, 2, 3] * 32


def test_a_batch_function_and_a_filter(tmp_path, few_rows):
    """The quickstart's own reward scores what one step handed in; the filter asks for more groups."""
    more = ("algorithm.filter_groups.enable=true", "algorithm.filter_groups.metric=overall")
    code, text = train(tmp_path, *few_rows, *ASYNC, *more)
    assert code == 0, text
    lines = [line for line in read_metrics(run_folder(tmp_path) / "metrics.jsonl") if line["step"] > 0]
    assert max(line.get("async/staleness_max", 0) for line in lines) <= 2


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (("trainer.on_stale=drop",), "trainer.max_staleness=0"),
        (("trainer.max_staleness=1", "trainer.steps_ahead=2"), "trainer.steps_ahead=2"),
        (("trainer.replay=/nowhere",), "there is no schedule in /nowhere"),
        (("trainer.max_staleness=1", "algorithm.adv_estimator=remax"), "adv_estimator=remax"),
        (("trainer.max_staleness=-1",), "trainer.max_staleness"),
    ],
)
def test_what_is_refused(tmp_path, few_rows, keys, words):
    code, text = train(tmp_path, *few_rows, *keys)
    assert code == 2
    assert words in text
    assert "Traceback" not in text


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 4), st.integers(1, 5), st.randoms(use_true_random=False))
def test_every_group_is_taken_in_time(bound, per_step, chance):
    """Whatever order groups get ready in, a step never has to wait for more than it takes, and none gets too old."""
    flow = Flow.__new__(Flow)
    flow._config = with_values(Config(), {"trainer.max_staleness": bound, "data.rollout_batch_size": per_step})
    flow._waiting = {}
    number = 0
    for version in range(12):
        while len(flow._waiting) < (bound + 1) * per_step:
            flow._waiting[number] = Waiting(0, range(number, number + 1), version)
            number += 1
        order = list(flow._waiting)
        chance.shuffle(order)
        chosen = next(
            found
            for count in range(per_step, len(order) + 1)
            if (found := flow._choose(per_step, version, order[:count])) is not None
        )
        assert len(chosen) == len(set(chosen)) == per_step
        assert all(version - flow._waiting.pop(each).version <= bound for each in chosen)


def test_staleness_counts_the_tokens_of_the_policy():
    prompt = Prompt("row", [1], "")
    old, tool, new = Segment([1, 2], True, [0, 0], 3), Segment([9], False), Segment([3], True, [0], 5)
    found = staleness([Sample(prompt, [old, tool, new], "stop"), Sample(prompt, [new], "stop")], 5)
    assert found == {
        "async/staleness_mean": 1.0,
        "async/staleness_max": 2,
        "async/stale_tokens": 0.5,
        "async/mixed_samples": 0.5,
    }


def _small() -> tuple[str, ...]:
    from whet_process import SMALL

    return SMALL


def _count(run: Path) -> int:
    metrics = run / "metrics.jsonl"
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


@pytest.mark.slow
def test_two_thousand_steps_with_random_cancellations(tmp_path, few_rows):
    """Groups are dropped and sampled anew, and samples aborted at any moment: every step is taken."""
    reward = tmp_path / "uneven.py"
    reward.write_text(SLOW_REWARD.replace("0.3 if", "0.05 if").replace("0.003", "0.0003"))
    keys = [
        *_small(),
        *few_rows,
        "data.rollout_batch_size=2",
        "worker.actor.global_batch_size=2",
        "worker.rollout.n=2",
        "data.max_response_length=8",
        "trainer.max_staleness=1",
        "trainer.on_stale=drop",
        "trainer.max_steps=2000",
        "trainer.save_freq=-1",
        "trainer.val_freq=-1",
        "trainer.val_before_train=false",
        "trainer.quiet=true",
        f"worker.reward.reward_function={reward}:compute_score",
        f"trainer.save_checkpoint_path={tmp_path / 'run'}",
    ]
    config = load_config([f"config={examples_folder() / 'quickstart.yaml'}", *keys])
    ended, chance, aborts = threading.Event(), random.Random(3), []
    with ExitStack() as stack:
        trainer = open_trainer(config, Console(quiet=True), stack)

        def disturb() -> None:
            while not ended.wait(chance.random() * 0.1):
                trainer.models.engine.abort()
                aborts.append(1)

        thread = threading.Thread(target=disturb, daemon=True)
        thread.start()
        trainer.fit()
        ended.set()
        thread.join()
    taken = [record["ids"][0] for records in schedule(tmp_path / "run").values() for record in records]
    assert len(taken) == len(set(taken)) == 2000 * 2
    assert len(aborts) > 100
