"""`whet sft` in the processes of torchrun: it learns what one process learns, and a killed job loses nothing."""

from __future__ import annotations

import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
from distributed.processes import nothing_left
from distributed.torchrun_job import run_job
from safetensors.torch import load_file
from whet_process import QUICKSTARTS, outcome, run_folder, settled, start

from whet.cli import main

GUIDE = (Path(__file__).parents[2] / "docs" / "sft.md").read_text()
SMALL = (
    QUICKSTARTS["sft"],
    "trainer.device=cpu",
    "trainer.max_steps=4",
    "trainer.val_freq=2",
    "trainer.save_freq=2",
    "trainer.save_limit=-1",
    "sft.batch_size=4",
    "worker.actor.optim.lr_scheduler_type=constant",  # which does not ask how many steps there will be
)


def torchrun(folder: Path, *arguments: str, options: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
    """Start torchrun with two ranks in `folder`; what it prints is in `output.txt`."""
    folder.mkdir(parents=True, exist_ok=True)
    program = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", *options, "-m", "whet"]
    with (folder / "output.txt").open("wb") as output:
        return subprocess.Popen(
            [*program, *arguments],
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )


def finished(process: subprocess.Popen[bytes], folder: Path) -> str:
    """What a job printed that ended well."""
    code, text = process.wait(180), (folder / "output.txt").read_text()
    assert code == 0, text
    return text


def one_process(folder: Path, *arguments: str) -> Path:
    """The run folder of `whet sft` in a process of its own."""
    process = start(folder, "sft", *SMALL, *arguments)
    assert process.wait() == 0, process.text()
    return run_folder(folder, "sft")


def assert_same(one: Path, other: Path, step: int) -> None:
    """Losses, gradients, optimizer and weights agree as far as the order of sums lets them in fp32."""
    for mine, line in zip(settled(one / "metrics.jsonl"), settled(other / "metrics.jsonl"), strict=True):
        assert mine.keys() == line.keys()
        for name, value in line.items():
            assert mine[name] == pytest.approx(value, rel=1e-5, abs=1e-6), (name, line["step"])
    actors = [run / f"global_step_{step}" / "actor" for run in (one, other)]
    ours, theirs = (load_file(actor / "huggingface" / "model.safetensors") for actor in actors)
    assert ours.keys() == theirs.keys()
    for name, weight in ours.items():
        # Adam divides by the gradient's own size: where that is near 0, rounding decides the direction of a step.
        gap = (weight - theirs[name]).abs()
        assert gap.mean() < 1e-6, name
        assert gap.max() < 1e-3, name
    ours, theirs = (torch.load(actor / "optimizer.pt", weights_only=True) for actor in actors)
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


def test_two_ranks_learn_as_one_process_does(tmp_path, few_rows):
    """Without torchrun's own start, which takes longer than the run; below it is there."""
    keys = ("trainer.max_steps=2",)
    codes, outputs = run_job(tmp_path / "two", main, ["sft", *SMALL, *few_rows, *keys])
    assert codes == [0, 0], outputs
    assert "2 ranks on 1 machine, cpu" in outputs[0]
    assert "finished after 2 of 2 steps" in outputs[0]
    assert outputs[1] == ""
    two = run_folder(tmp_path / "two", "sft")
    assert not (two / "ranks").exists()  # Ray's
    assert_same(two, one_process(tmp_path / "one", *few_rows, *keys), 2)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["sft.batchsize=4"], "unknown key sft.batchsize; did you mean sft.batch_size?"),
        (["sft.batch_size=100"], "sft.batch_size=100 is more than the 10 rows"),
        (["trainer.n_gpus_per_node=3"], "trainer.n_gpus_per_node=3, but torchrun was started with --nproc_per_node 2"),
        (["trainer.nnodes=2"], "trainer.nnodes=2, but torchrun was started with --nnodes 1"),
        (["worker.actor.ulysses_size=4"], "does not divide the 2 devices"),
    ],
)
def test_mistakes_are_said_once(tmp_path, few_rows, arguments, expected):
    codes, outputs = run_job(tmp_path, main, ["sft", *SMALL, *few_rows, *arguments])
    assert codes == [2, 2], outputs
    assert outputs[0].count("whet: ") == 1
    assert expected in outputs[0]
    assert "Traceback" not in outputs[0]
    assert outputs[1] == ""
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.slow
def test_torchrun_itself(tmp_path, few_rows):
    text = finished(torchrun(tmp_path / "two", "sft", *SMALL, *few_rows), tmp_path / "two")
    assert text.count("finished after 4 of 4 steps") == 1
    two, one = run_folder(tmp_path / "two", "sft"), one_process(tmp_path / "one", *few_rows)
    assert_same(two, one, 4)

    more = "trainer.max_steps=6"  # each goes on where the other kind has stopped
    one_process(tmp_path / "two", *few_rows, more)
    text = finished(torchrun(tmp_path / "one", "sft", *SMALL, *few_rows, more), tmp_path / "one")
    assert "continuing from" in text
    assert_same(two, one, 6)

    process = torchrun(tmp_path / "bad", "sft", *SMALL, *few_rows, "sft.batch_size=100")
    assert process.wait(120) == 1  # torchrun's own
    text = (tmp_path / "bad" / "output.txt").read_text()
    assert text.count("whet: sft.batch_size=100 is more than the 10 rows") == 1
    assert re.findall(r"exitcode  : (\S+)", text) == ["2", "2"]


def ranks_of(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The ranks that torchrun runs at the moment, in their order."""
    found = {}
    for child in psutil.Process(process.pid).children():
        rank = child.environ().get("RANK")
        if rank is not None:
            found[int(rank)] = child
    return [found[rank] for rank in sorted(found)]


def wait_for_lines(process: subprocess.Popen[bytes], metrics: Path, count: int) -> bool:
    """Whether so many lines of metrics were there before the job ended."""
    end = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < end:
        if metrics.exists() and metrics.read_bytes().count(b"\n") >= count:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.slow
def test_killed_ranks_and_jobs_lose_nothing(tmp_path, few_rows):
    """Each rank once, after which torchrun starts all again by itself, and then everything, torchrun included."""
    seed = random.randrange(1 << 30)
    chance, keys = random.Random(seed), (*SMALL, *few_rows, "trainer.max_steps=12", "trainer.save_freq=1")
    codes, outputs = run_job(tmp_path / "alone", main, ["sft", *keys])
    assert codes == [0, 0], outputs
    run = run_folder(tmp_path / "killed", "sft")
    with nothing_left():
        process = torchrun(tmp_path / "killed", "sft", *keys, options=("--max-restarts", "2"))
        for rank, lines in ((1, 3), (0, 6)):
            assert wait_for_lines(process, run / "metrics.jsonl", lines)
            time.sleep(chance.uniform(0, 0.1))
            ranks_of(process)[rank].kill()
        assert wait_for_lines(process, run / "metrics.jsonl", 9)
        for each in (psutil.Process(process.pid), *ranks_of(process)):
            each.kill()
        process.wait()
        said = (tmp_path / "killed" / "output.txt").read_text()
        text = finished(torchrun(tmp_path / "killed", "sft", *keys), tmp_path / "killed")
    assert said.count("continuing from") == 2
    assert said.count("whet: another rank ended in the middle of") == 1  # rank 0 lived to say it once
    assert "continuing from" in text
    assert outcome(run, 12) == outcome(run_folder(tmp_path / "alone", "sft"), 12), f"seed {seed}"


@pytest.mark.slow
def test_one_signal_to_torchrun_saves_and_stops(tmp_path, few_rows):
    run = run_folder(tmp_path, "sft")
    keys = (*SMALL, *few_rows, "trainer.max_steps=500", "trainer.val_freq=-1", "trainer.save_freq=-1")
    with nothing_left():
        process = torchrun(tmp_path, "sft", *keys)
        assert wait_for_lines(process, run / "metrics.jsonl", 4)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    text = (tmp_path / "output.txt").read_text()
    (stopped,) = re.findall(r"stopped after (\d+) of 500 steps", text)
    assert (run / f"global_step_{stopped}" / "manifest.json").exists()


@pytest.mark.slow
def test_commands_of_the_guide(tmp_path, quickstart):
    (command,) = re.findall(r"```text\n(torchrun .*? whet sft)\n```", GUIDE)
    options = shlex.split(command)[1:]
    assert options == ["--nproc_per_node", "2", "-m", "whet", "sft"]
    cut = ("trainer.device=cpu", "trainer.max_steps=2", "trainer.val_freq=-1")
    text = finished(torchrun(tmp_path, *options[4:], *cut), tmp_path)
    assert "finished after 2 of 2 steps" in text
