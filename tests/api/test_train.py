"""whet.train and whet.sft: stopping and resuming, threads, names, and mistakes said in a sentence."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from api.notebook import SMALL, run_cell, scorer

import whet
from whet.api.names import SHORT_NAMES, names_of
from whet.config.schema import all_keys

STOPPING = """
import os, signal, whet

@whet.advantage("stopping")
def stopping(signals, config):
    os.kill(os.getpid(), signal.SIGINT)
    advantages_BT = signals.rewards_BT.sum(dim=1, keepdim=True) * signals.mask_BT
    return advantages_BT, advantages_BT
"""


def test_import_whet_is_instant() -> None:
    """Neither torch nor the config is imported before a name is used, and every public name resolves."""
    program = (
        "import sys, whet; heavy = {'torch', 'transformers', 'omegaconf', 'pyarrow'} & set(sys.modules); "
        "assert not heavy, heavy; whet.train, whet.load, whet.UserError; assert 'torch' not in sys.modules; "
        "[getattr(whet, name) for name in whet.__all__]; assert set(dir(whet)) == set(whet.__all__)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_every_short_name_sets_keys_that_exist_and_is_in_the_help() -> None:
    for short in SHORT_NAMES:
        assert set(short.keys) | set(short.replaces) <= set(all_keys())
    for job, function in (("train", whet.train), ("sft", whet.sft), ("evaluate", whet.evaluate)):
        assert all(f"    {short.name} " in inspect.getdoc(function) for short in names_of(job).values())


def test_ctrl_c_saves_the_step_and_the_same_output_resumes_in_a_thread(rows: list[dict], tmp_path: Path) -> None:
    run_cell(STOPPING, number=2)
    arguments: dict[str, Any] = {**SMALL, "output": tmp_path / "run", "steps": 2}
    with pytest.raises(KeyboardInterrupt, match="resumes"):
        whet.train("whet/quickstart", rows, scorer(1.0), advantage="stopping", **arguments)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert whet.load(tmp_path / "run").metrics["step"] == [1]
    finished: list[whet.Run] = []

    def resume() -> None:
        finished.append(whet.train("whet/quickstart", rows, scorer(1.0), **arguments))

    thread = threading.Thread(target=resume)
    thread.start()
    thread.join()
    assert finished[0].metrics["step"] == [1, 2]


def test_a_cell_that_is_run_again_replaces_its_function() -> None:
    text = "import whet\n@whet.advantage('edited')\ndef edited(signals, config):\n    return {}\n"
    from whet.algos import find_advantage

    run_cell(text.format(1), number=3)
    run_cell(text.format("2, 2"), number=4)  # ipykernel names each version of a cell differently
    assert find_advantage("edited").__code__.co_filename != find_advantage("edited").__wrapped__.__code__.co_filename
    assert find_advantage("edited").__wrapped__(None, None) == (2, 2)
    with pytest.raises(whet.UserError, match="taken"):
        run_cell("import whet\n@whet.advantage('grpo')\ndef mine(signals, config):\n    return 1\n", number=5)


def test_sft_learns_from_rows(rows: list[dict], tmp_path: Path) -> None:
    demonstrations = [{"prompt": row["problem"], "response": f"Answer: {row['answer']}"} for row in rows]
    names = {"max_prompt_length": 32, "max_response_length": 16, "lr": 1e-3, "batch_size": 32}
    run = whet.sft("whet/quickstart", demonstrations, steps=2, output=tmp_path / "sft", **names)
    assert run.metrics["step"] == [1, 2]
    assert run.metrics["actor/loss"][1] < run.metrics["actor/loss"][0]
    with pytest.raises(whet.UserError, match="has no keyword 'reward_timeout'"):
        whet.sft("whet/quickstart", demonstrations, reward_timeout=1)


def test_without_output_every_call_has_a_folder_of_its_own(
    rows: list[dict], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is there before the job starts, and nothing is left of a job that never did."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(whet.UserError, match="no such model folder"):
        whet.train(tmp_path / "nothing", rows, scorer(1.0), **SMALL)
    assert not list(tmp_path.rglob("*.jsonl"))
    assert not list(tmp_path.glob("checkpoints/whet/*"))
    from whet.api.prepare import Arguments, prepare

    first = prepare("train", Arguments(keys={})).folder
    first.mkdir(parents=True)
    second = prepare("train", Arguments(keys={})).folder
    assert first.parent == second.parent == tmp_path / "checkpoints" / "whet"
    assert first != second


LOCK = threading.Lock()
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"model": None}, "model must be given"),
    ({"model": 5}, "expected a model folder, a hub id or a Run, got int"),
    ({"model": ""}, "model is empty"),
    ({"data": []}, "data is empty"),
    ({"data": {"problem": ["a"]}}, "a dict for each row"),
    ({"data": iter([])}, "list_iterator"),
    ({"data": [1]}, "row 1: expected a dict"),
    ({"data": [{"problem": object()}]}, "row 1, column 'problem': a value of type object"),
    ({"data": [{5: "a"}]}, "column name 5"),
    ({"data": "nothing.jsonl"}, "no such data file"),
    ({"val_data": []}, "val_data is empty"),
    ({"reward": 5}, "expected a function, path.py:function or a name, got int"),
    ({"reward": "maht"}, "did you mean math"),
    ({"reward": "nothing.py:f"}, "no such file"),
    ({"reward": lambda response, answer: LOCK.locked()}, "its variable LOCK is a _thread.lock"),
    ({"learning_rat": 1}, "did you mean learning_rate"),
    ({"weight_decay": 1}, "worker.actor.optim.weight_decay"),
    ({"lr": "fast"}, r"worker.actor.optim.lr=fast \(lr=\): expected a number"),
    ({"lr": 1, "learning_rate": 2}, "both set worker.actor.optim.lr"),
    ({"n": 1}, "compares the samples of a prompt"),
    ({"batch_size": 3, "mini_batch_size": 2}, "does not divide"),
    ({"algorithm": "grop"}, "did you mean grpo"),
    ({"steps": True}, "expected an integer"),
    ({"batch_size": {"a": 1}}, r"data.rollout_batch_size=.* \(batch_size=\): expected an integer"),
    ({"stop": object()}, "stop: expected text"),
    ({"config": 5}, "config: expected a YAML file or a dict, got int"),
    ({"config": {"worker": {"rolout": {}}}}, "unknown key worker.rolout"),
    ({"config": "nothing.yaml"}, "there is no such file"),
    ({"overrides": {"worker.rollout.n": 8}}, "both set worker.rollout.n"),
    ({"overrides": ["a"]}, "overrides: expected a dict"),
    ({"output": "a\0b"}, "NUL character"),
    ({"output": os.devnull}, "cannot write"),
]


def test_empty_questions_are_named_as_they_were_given() -> None:
    with pytest.raises(whet.UserError, match=r"^data is empty"):
        whet.evaluate("whet/quickstart", [], scorer(1.0))


@pytest.mark.parametrize(("wrong", "said"), WRONG, ids=[said for _, said in WRONG])
def test_mistakes_are_one_sentence(wrong: dict[str, Any], said: str, rows: list[dict], tmp_path: Path) -> None:
    arguments = {"model": "whet/quickstart", "data": rows, "reward": scorer(1.0), "output": tmp_path / "run", **SMALL}
    with pytest.raises(whet.UserError, match=said):
        whet.train(**{**arguments, **wrong})


def test_keywords_configs_and_overrides_make_one_config(rows: list[dict], tmp_path: Path) -> None:
    from whet.api.prepare import Arguments, prepare

    file = tmp_path / "base.yaml"
    file.write_text("worker: {rollout: {n: 16, top_p: 0.5}}\ntrainer: {experiment_name: mine}\n")
    config = prepare(
        "train",
        Arguments(
            "whet/quickstart",
            {"data.train_files": rows},
            "math",
            file,
            {"worker.actor.optim.weight_decay": 0.5},
            {"lr": 2e-5, "batch_size": 32, "n": 4, "worker.rollout.top_k": 7, "trainer": {"save_freq": 3}},
        ),
    ).config
    assert (config.worker.rollout.n, config.worker.rollout.top_p, config.worker.rollout.top_k) == (4, 0.5, 7)
    assert (config.worker.actor.optim.lr, config.worker.actor.optim.weight_decay) == (2e-5, 0.5)
    assert (config.data.rollout_batch_size, config.worker.actor.global_batch_size) == (32, 32)
    assert config.trainer.save_freq == 3
    assert config.trainer.save_checkpoint_path == str(Path("checkpoints/whet/mine").absolute())
    assert str(config.worker.reward.reward_function).endswith("reward_function/math.py:compute_score")
    assert config.data.val_files == ""  # nothing of the quickstart


def test_all_mistakes_of_a_call_come_together(rows: list[dict], tmp_path: Path) -> None:
    wrong = {"learning_rates": 1, "lr": "much", "n": 1, "overrides": {"data.sed": 1, "trainer.save_freq": {"a": 1}}}
    with pytest.raises(whet.UserError) as refused:
        whet.train("whet/quickstart", rows, scorer(1.0), output=tmp_path / "run", **wrong)
    text = str(refused.value)
    assert text.startswith("5 problems:\n  1. whet.train has no keyword 'learning_rates'; did you mean learning_rate?")
    for part in (
        "unknown key data.sed",
        "trainer.save_freq={a: 1}",
        "lr=much (lr=)",
        "worker.rollout.n=1: adv_estimator",
    ):
        assert part in text
    assert not (tmp_path / "run").exists()
