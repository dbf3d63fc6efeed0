"""A run killed at any instant and started again ends with the same bits as one that was left alone."""

from __future__ import annotations

import os
import random
import re
import shutil
import time
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer
from whet_process import SMALL, outcome, run_folder, settled, start, train

pytestmark = pytest.mark.early

# Everything that carries over from step to step at once: two epochs over two mini-batches, a schedule, a reference.
RICH = (
    "worker.actor.ppo_epochs=2",
    "worker.actor.global_batch_size=2",
    "data.mini_rollout_batch_size=2",
    "worker.actor.optim.lr_scheduler_type=cosine",
    "worker.actor.optim.lr_warmup_steps=2",
    "worker.actor.optim.weight_decay=0.1",
    "algorithm.disable_kl=false",
    "algorithm.use_kl_loss=true",
    "algorithm.kl_penalty=low_var_kl",
    "algorithm.kl_coef=0.1",
    "trainer.save_freq=1",
)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, few_rows: tuple[str, str]) -> Path:
    """The run folder of a plain run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("alone")
    code, text = train(folder, *few_rows)
    assert code == 0, text
    return run_folder(folder)


@pytest.fixture
def copy(alone: Path, tmp_path: Path) -> Path:
    """A folder that holds a copy of that run, to go on from."""
    shutil.copytree(alone.parents[2], tmp_path / "copy")
    return tmp_path / "copy"


def contents(run: Path) -> dict[str, bytes | str]:
    """Everything that a checkpoint folder of a run holds."""
    files = (path for path in run.glob("global_step_*/**/*") if path.is_symlink() or path.is_file())
    return {str(path): os.readlink(path) if path.is_symlink() else path.read_bytes() for path in files}


def steps(run: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("global_step_")) for path in run.glob("global_step_*"))


def appended_only(before: bytes, metrics: Path) -> bytes:
    """The file as it is now, after checking that it begins with what it was."""
    now = metrics.read_bytes() if metrics.exists() else b""
    assert now.startswith(before)
    return now


def count_lines(metrics: Path) -> int:
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


@pytest.mark.parametrize(
    ("more", "kills"),
    [
        pytest.param((), 5, id="plain"),
        pytest.param(RICH, 7, id="rich", marks=pytest.mark.slow),
        pytest.param((*RICH, "trainer.max_steps=40"), 60, id="many", marks=pytest.mark.slow),
    ],
)
def test_killed_at_random_moments(tmp_path, few_rows, alone, more, kills):
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    if more:
        code, text = train(tmp_path / "alone", *few_rows, *more)
        assert code == 0, text
        alone = run_folder(tmp_path / "alone")
    run, written, deaths = run_folder(tmp_path / "killed"), b"", 0
    for _ in range(kills):
        process = start(tmp_path / "killed", "train", *SMALL, *few_rows, *more)
        if chance.random() < 0.8:  # after a few lines of metrics, else while it is still starting
            lines = written.count(b"\n") + chance.randint(1, 3)
            process.wait_for(lambda lines=lines: count_lines(run / "metrics.jsonl") >= lines)
        process.process.join(chance.uniform(0, 0.2))
        if process.process.exitcode is not None:
            break
        process.kill()
        deaths += 1
        written = appended_only(written, run / "metrics.jsonl")
    code, text = train(tmp_path / "killed", *few_rows, *more)
    assert code == 0, text
    assert deaths
    appended_only(written, run / "metrics.jsonl")
    last = steps(alone)[-1]
    assert outcome(run, last) == outcome(alone, last), f"seed {seed}"


def test_killed_while_saving(tmp_path, few_rows, alone):
    run, seen = run_folder(tmp_path), 0

    def is_saving() -> bool:
        return any(run.glob(".global_step_*.tmp-*"))

    for delay in (0.0, 0.002, 0.005, 0.01, 0.02):
        process = start(tmp_path, "train", *SMALL, *few_rows, "trainer.save_freq=1")
        if process.wait_for(lambda: run.is_dir() and not is_saving()) and process.wait_for(is_saving):
            time.sleep(delay)
            seen += process.process.is_alive()
            process.kill()
    code, text = train(tmp_path, *few_rows, "trainer.save_freq=1")
    assert code == 0, text
    assert seen >= 3
    assert not list(run.glob(".global_step_*"))
    assert outcome(run, 6) == outcome(alone, 6)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("actor/huggingface/model.safetensors", lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]),
        ("actor/optimizer.pt", lambda data: data[: len(data) // 2]),
        ("manifest.json", lambda data: data[:-20]),
    ],
    ids=["a flipped bit", "half a file", "no manifest"],
)
def test_damaged_checkpoint_is_reported_and_the_one_before_is_used(copy, few_rows, alone, name, damage):
    shutil.rmtree(run_folder(copy) / "global_step_6")
    file = run_folder(copy) / "global_step_4" / name
    file.write_bytes(damage(file.read_bytes()))
    code, text = train(copy, *few_rows)
    assert code == 0, text
    assert re.search(r"warning: checkpoint \S*global_step_4 is damaged", text)
    assert re.search(r"continuing from \S*global_step_2\n", text)
    assert outcome(run_folder(copy), 6) == outcome(alone, 6)


def test_every_checkpoint_damaged_starts_over_only_when_told_to(copy, few_rows, alone):
    run = run_folder(copy)
    for manifest in run.glob("global_step_*/manifest.json"):
        manifest.write_text("{")
    before = contents(run)
    code, text = train(copy, *few_rows, "trainer.save_limit=1")
    assert code == 2
    assert "Traceback" not in text
    assert text.count("is damaged") == 3
    assert contents(run) == before
    code, text = train(copy, *few_rows, "trainer.save_limit=1", "trainer.find_last_checkpoint=false")
    assert code == 0, text
    assert text.count("starts over beside it") == 3
    assert outcome(run, 6)[:2] == outcome(alone, 6)[:2]
    kept = [path / "manifest.json" for path in run.glob("global_step_*.aside-*")]
    assert sum(path.read_text() == "{" for path in kept) == 3, "whatever was in the way is still there"


@pytest.mark.parametrize("kind", ["other format", "unreadable"])
def test_newest_checkpoint_that_may_be_fine_is_never_passed_over(copy, few_rows, alone, kind):
    run = run_folder(copy)
    manifest = run / "global_step_6" / "manifest.json"
    good = manifest.read_text()
    if kind == "other format":
        manifest.write_text(good.replace('"format": 1', '"format": 2'))
    else:
        manifest.unlink()
        manifest.symlink_to(manifest)  # opening it is an error of the system
    before = contents(run)
    code, text = train(copy, *few_rows, "trainer.max_steps=8", "trainer.save_limit=1")
    assert code == 2
    assert "Traceback" not in text
    assert re.search(r"global_step_6 (has another format|cannot be read)", text)
    assert contents(run) == before
    manifest.unlink()
    manifest.write_text(good)
    assert train(copy, *few_rows)[0] == 0


def test_finished_run_is_left_as_it_is(copy, few_rows):
    run = run_folder(copy)
    files = (run / "metrics.jsonl", run / "config.yaml")
    before = outcome(run, 6), [file.read_bytes() for file in files], steps(run)
    code, text = train(copy, *few_rows)
    assert code == 0, text
    assert "nothing was trained: this run has finished, at step 6" in text
    assert "  more steps trainer.max_steps=7 or more\n  new run    trainer.experiment_name=NAME\n" in text
    assert "differs" not in text
    code, text = train(copy, *few_rows, "worker.actor.optim.lr=0.5")
    assert code == 0, text
    assert "nothing was trained" in text
    assert "  worker.actor.optim.lr: 0.001 → 0.5\n" in text
    assert (outcome(run, 6), [file.read_bytes() for file in files], steps(run)) == before


def test_another_model_in_the_folder_of_a_run_is_refused(copy, few_rows, quickstart):
    model = shutil.copytree(quickstart / "model", copy / "mine")  # of the same shape
    run = run_folder(copy)
    before = (run / "config.yaml").read_text()
    code, text = train(copy, *few_rows, "trainer.max_steps=9", f"worker.actor.model.model_path={model}")
    assert code == 2
    assert f"worker.actor.model.model_path={model}: {run} holds a run of another model, whet/quickstart, at" in text
    assert "trainer.experiment_name=NAME" in text
    assert (run / "config.yaml").read_text() == before


def test_more_steps_continue_a_finished_run(copy, tmp_path, few_rows):
    code, text = train(copy, *few_rows, "trainer.max_steps=9")
    assert code == 0, text
    assert "trainer.max_steps: 6 → 9" in text
    assert train(tmp_path / "at once", *few_rows, "trainer.max_steps=9")[0] == 0
    assert outcome(run_folder(copy), 9) == outcome(run_folder(tmp_path / "at once"), 9)


def test_starting_over_in_a_used_folder_is_refused(copy, few_rows):
    before = outcome(run_folder(copy), 6)
    code, text = train(copy, *few_rows, "trainer.find_last_checkpoint=false")
    assert code == 2
    assert "trainer.find_last_checkpoint=false" in text
    assert "Traceback" not in text
    assert "model:" not in text
    assert outcome(run_folder(copy), 6) == before


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("data.seed=5", "Set data.seed=1 to resume"),
        ("data.shuffle=false", "Set data.shuffle=True to resume"),
        ("data.train_files=whet/quickstart@train", "made with 10 rows of training data and there are 2000 now"),
        ("worker.actor.optim.strategy=muon", "holds the state of adamw"),
    ],
)
def test_what_a_checkpoint_cannot_continue_is_refused(copy, few_rows, change, expected):
    run = run_folder(copy)
    before = (run / "config.yaml").read_text(), (run / "metrics.jsonl").read_bytes()
    code, text = train(copy, *few_rows, "trainer.max_steps=9", change)
    assert code == 2
    assert expected in text
    assert "Traceback" not in text
    assert "model:" not in text
    assert ((run / "config.yaml").read_text(), (run / "metrics.jsonl").read_bytes()) == before


def test_run_folder_in_use_is_refused(tmp_path, few_rows):
    first = start(tmp_path, "train", *SMALL, *few_rows, "trainer.max_steps=1000")
    assert first.wait_for(lambda: "step " in first.text())
    code, text = train(tmp_path, *few_rows)
    first.kill()
    assert code == 2
    assert f"is in use by another run (process {first.process.pid}" in text


@pytest.mark.parametrize("named", ["global_step_4", ""], ids=["a checkpoint", "a run folder"])
def test_continues_from_a_named_checkpoint_in_another_experiment(copy, few_rows, alone, named):
    shutil.rmtree(run_folder(copy) / "global_step_6")
    source = run_folder(copy) / named
    more = (f"trainer.load_checkpoint_path={source}", "trainer.experiment_name=branch")
    code, text = train(copy, *few_rows, *more)
    assert code == 0, text
    branch = run_folder(copy, "branch")
    assert steps(branch) == [6]
    assert outcome(branch, 6)[:2] == outcome(alone, 6)[:2]
    assert settled(branch / "metrics.jsonl") == settled(alone / "metrics.jsonl")[-2:]
    assert steps(run_folder(copy)) == [2, 4]


def test_model_only_checkpoints_warn_on_resume(tmp_path, few_rows):
    more = ("trainer.save_model_only=true",)
    assert train(tmp_path, *few_rows, *more, "trainer.max_steps=2")[0] == 0
    assert not list(run_folder(tmp_path).rglob("optimizer.pt"))
    code, text = train(tmp_path, *few_rows, *more, "trainer.max_steps=3")
    assert code == 0, text
    assert "warning:" in text
    assert "trainer.save_model_only: the optimizer starts afresh" in text


def test_checkpoints_load_with_transformers(alone):
    assert steps(alone) == [2, 4, 6]
    for step in steps(alone):
        folder = alone / f"global_step_{step}" / "actor" / "huggingface"
        model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
        ids = tokenizer.apply_chat_template(
            [{"role": "user", "content": 'Sort these digits: 3 1 2 5\nBegin with "Answer:"'}],
            add_generation_prompt=True,
            return_tensors="pt",
        )["input_ids"]
        written = model.generate(ids, max_new_tokens=16, do_sample=False)[0, ids.shape[1] :]
        assert tokenizer.decode(written).startswith("Answer:")


def test_keeps_the_newest_and_the_best(tmp_path, few_rows):
    code, text = train(tmp_path, *few_rows, "trainer.save_limit=1", "trainer.save_freq=1", "trainer.val_freq=1")
    assert code == 0, text
    run = run_folder(tmp_path)
    scores = {line["step"]: line["val/accuracy"] for line in settled(run / "metrics.jsonl") if line["step"]}
    best = max(scores, key=lambda step: (scores[step], step))
    assert steps(run) == sorted({best, 6})
