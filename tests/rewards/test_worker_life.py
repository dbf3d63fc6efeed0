"""Workers live exactly as long as they should: through Ctrl-C, not beyond the trainer, and without torch."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from patience import PATIENCE, eventually

from whet.config.schema.reward import RewardConfig
from whet.rewards.process import WorkerProcess
from whet.rewards.scorer import RewardScorer
from whet.types import Prompt, Sample

REWARD = """
import os, re, subprocess, sys, time

def main(reward_input):
    text = reward_input["response"]
    if text == "modules": return {"overall": 1.0, "heavy": len({"torch", "transformers", "numpy"} & set(sys.modules))}
    if text == "child": subprocess.Popen(["sleep", "300"]); time.sleep(300)
    if text == "detach": print(subprocess.Popen(["sleep", "300"], start_new_session=True).pid); time.sleep(300)
    if text == "regex": re.match(r"(a+)+$", "a" * 40 + "b")
    return os.getpid()
"""

TRAINER = """
import sys, threading
from pathlib import Path
from whet.config.schema.reward import RewardConfig
from whet.rewards.scorer import RewardScorer
from whet.types import Prompt, Sample
config = RewardConfig(timeout=60.0)
scorer = RewardScorer(sys.argv[1], config, output=Path(sys.argv[1]).with_name("reward.log"))

def score(*texts):
    samples = [Sample.written(Prompt("row:0", [], ""), [], [], "stop", text=text) for text in texts]
    scorer.score(samples)
    return [int(sample.reward) for sample in samples]

def start_workers():
    while sum(worker.ready for worker in scorer._pool._workers) < 2:
        score("pid", "pid")

thread = threading.Thread(target=start_workers)  # workers must outlive the thread that started them
thread.start()
thread.join()
try:
    print(*[worker.pid for worker in scorer._pool._workers], flush=True)
    input()
except KeyboardInterrupt:
    print(*score("pid"), flush=True)
score(*sys.argv[2:])
"""


def alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pids: list[int]) -> bool:
    """Return True once all of them have ended."""
    return eventually(lambda: not any(map(alive, pids)))


@pytest.fixture
def reward_file(tmp_path):
    file = tmp_path / "reward.py"
    file.write_text(REWARD)
    return file


def start_trainer(reward_file, *texts: str) -> tuple[subprocess.Popen, list[int]]:
    """A process that scores, and the pids of its workers."""
    trainer = subprocess.Popen(
        [sys.executable, "-c", TRAINER, str(reward_file), *texts],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    return trainer, [int(pid) for pid in trainer.stdout.readline().split()]


def groups_of(workers: list[int]) -> list[int]:
    """The live processes of the workers' process groups."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    members = []
    for other in pids:
        try:
            if os.getpgid(other) in workers and alive(other):
                members.append(other)
        except ProcessLookupError:
            continue
    return members


def test_ctrl_c_reaches_the_trainer_only(reward_file):
    trainer, workers = start_trainer(reward_file)
    os.killpg(trainer.pid, signal.SIGINT)
    for worker in workers:
        os.kill(worker, signal.SIGINT)
    assert int(trainer.stdout.readline()) in workers
    trainer.communicate("", timeout=PATIENCE)
    assert gone(workers)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("texts", [(), ("child", "regex")])
def test_workers_and_their_children_die_with_a_killed_trainer(reward_file, texts):
    trainer, workers = start_trainer(reward_file, *texts)
    if texts:
        trainer.stdin.write("\n")
        trainer.stdin.flush()
        assert eventually(lambda: len(groups_of(workers)) >= 3)
    pids = groups_of(workers)
    assert len(pids) == (3 if texts else 2)
    trainer.kill()
    trainer.communicate()
    assert gone(pids)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process that detaches itself is not found")
def test_detached_processes_die_with_a_killed_trainer(reward_file):
    trainer, workers = start_trainer(reward_file, "detach")
    log = reward_file.with_name("reward.log")
    trainer.stdin.write("\n")
    trainer.stdin.flush()
    assert eventually(lambda: log.exists() and log.read_text().strip())
    detached = int(log.read_text())
    assert alive(detached)
    trainer.kill()
    trainer.communicate()
    assert gone([detached, *workers])


@pytest.fixture
def scorer(reward_file):
    config = RewardConfig(num_cpus=1, timeout=20.0)
    with RewardScorer(str(reward_file), config) as scorer:
        yield scorer


def sample(text: str) -> Sample:
    """A sample with this response."""
    return Sample.written(Prompt("row:0", [], ""), [], [], "stop", text=text)


def test_workers_import_nothing_heavy_and_start_fast(scorer):
    one = sample("modules")
    start = time.monotonic()
    scorer.score([one])
    worker = time.monotonic() - start
    assert one.scores == {"overall": 1.0, "heavy": 0.0}
    start = time.monotonic()
    subprocess.run([sys.executable, "-c", "import json, socket"], check=True)
    assert worker < 2.0 + 20 * (time.monotonic() - start)  # torch alone would take a hundred times a bare start


def test_close_does_not_wait_for_a_stopped_worker(scorer):
    one = sample("pid")
    scorer.score([one])
    os.kill(int(one.reward), signal.SIGSTOP)
    start = time.monotonic()
    scorer.close()
    assert time.monotonic() - start < 10.0  # of the 20 that a call may take
    assert gone([int(one.reward)])


def test_a_stopped_worker_cannot_block_a_large_call(scorer, monkeypatch):
    monkeypatch.setattr(scorer, "_config", replace(scorer._config, timeout=1.0))
    one = sample("pid")
    scorer.score([one])
    os.kill(int(one.reward), signal.SIGSTOP)
    large = sample("x" * 10**7)
    start = time.monotonic()
    assert scorer.score([large])["reward/timeout"] == 1
    assert time.monotonic() - start < PATIENCE  # it would never end


def test_an_interrupted_call_leaves_no_reply_behind(scorer):
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scorer.score([sample("pid"), sample("pid")], interrupt)
    one = sample("modules")
    scorer.score([one])
    assert one.scores["overall"] == 1.0


def test_descriptors_are_returned(scorer):
    setup = scorer._pool._setup
    before = len(os.listdir("/dev/fd"))
    for _ in range(3):
        WorkerProcess(setup).kill()
    assert len(os.listdir("/dev/fd")) == before
