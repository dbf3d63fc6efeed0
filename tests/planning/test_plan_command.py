"""`whet plan` and `whet plan simulate` as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whet.cli import main

SMALL = ["data.rollout_batch_size=16", "worker.actor.global_batch_size=16"]


def told(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(["plan", *arguments]) == code
    shown = capsys.readouterr()
    return shown.out if code == 0 else shown.err


def test_a_run_that_fits_has_memory_time_and_cost(capsys: pytest.CaptureFixture[str]) -> None:
    shown = told(capsys, "Qwen/Qwen3-1.7B", *SMALL, "--gpu", "h200", "--price", "2.5", "trainer.max_steps=100")
    for part in ("weights", "gradients", "optimizer", "activations", "cache", "1,720,574,976", "cost", "It fits."):
        assert part in shown
    assert "off by at most" in shown


def test_json_has_the_parts_of_the_peak(capsys: pytest.CaptureFixture[str]) -> None:
    plan = json.loads(told(capsys, "Qwen3-1.7B", *SMALL, "--gpu=H200", "--json", "--price=3"))
    memory = plan["memory"]
    assert memory["peak"] == max(sum(memory["update"].values()), sum(memory["rollout"].values()))
    assert plan["cost_per_step"] == pytest.approx(3 * plan["seconds"]["step"] / 3600)
    assert memory["fits"]
    assert plan["gpu"] == "H200-141G"


def test_a_run_that_does_not_fit_is_told_what_to_change(capsys: pytest.CaptureFixture[str]) -> None:
    plan = json.loads(told(capsys, "Qwen2.5-7B", *SMALL, "--gpu", "A100-80G", "--json"))
    assert not plan["memory"]["fits"]
    assert plan["seconds"] is None
    same = [each for each in plan["advice"] if not each["costs"]]
    assert same
    assert all(each["peak"] <= plan["memory"]["total"] for each in plan["advice"])
    assert plan["advice"].index(same[-1]) == len(same) - 1  # what trains the same comes first
    keys = [key for each in plan["advice"] for key in each["change"]]
    assert "trainer.n_gpus_per_node" in keys
    assert "worker.actor.model.lora.rank" in keys


def test_advice_is_true(capsys: pytest.CaptureFixture[str]) -> None:
    common = ["Qwen2.5-7B", *SMALL, "--gpu", "A100-80G", "--json"]
    best = json.loads(told(capsys, *common))["advice"][0]
    changed = [f"{key}={json.dumps(value)}" for key, value in best["change"].items()]
    again = json.loads(told(capsys, *common, *changed))
    assert again["memory"]["fits"]
    assert again["memory"]["peak"] == best["peak"]
    assert again["seconds"]["step"] == pytest.approx(best["step"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "takes a model or a config"),
        (["Qwen2.5-7B", "--gpu", "H1000"], "no such GPU is known.*H100-80G"),
        (["Qwen2.5-7B", "--gpu", "A100"], "several of this name"),
        (["Qwen2.5-7B", "--gpus", "0"], "--gpus 0: must be a number"),
        (["Qwen2.5-7B", "--gpus", "2.5"], "whole number"),
        (["Qwen2.5-7B", "--price", "cheap"], "--price cheap: must be a number"),
        (["Qwen2.5-7B", "--price"], "--price needs a value"),
        (["Qwen2.5-7B", "--fast"], "no option --fast"),
        (["Qwen2.5-7B", "--mean-response", "9999"], r"between 1 and data\.max_response_length=512"),
        (["Qwen2.5-7B", "--lengths", "long"], "choose one of fixed, geometric"),
        (["Qwen2.5-7B", "data.rollout_batch_siz=4"], "did you mean data.rollout_batch_size"),
        (["Qwen2.5-7B", "data.rollout_batch_size=100"], "does not divide"),
        (["Qwen2.5-7B", "--gpus", "6", "worker.actor.tensor_parallel_size=4"], "worker.actor.tensor_parallel_size=4"),
        (
            ["Qwen2.5-7B", "--gpus", "8", "worker.actor.tensor_parallel_size=8"],
            "28 attention heads, which it must divide",
        ),
        (["Qwen2.5-7B", "worker.actor.model.freeze_vision_tower=true"], "no vision encoder"),
        (["nothing/here"], "none of the models"),
        (["simulate"], "takes a model or a config"),
        (["simulate", "Qwen2.5-7B", "--decode", "1,2,3"], "belong together"),
        (["simulate", "Qwen2.5-7B", "--decode", "1,2", "--update", "1,2"], "give 3 or 4 numbers"),
        (["simulate", "Qwen2.5-7B", "--lengths", "nowhere"], "name the folder of a run"),
        (["simulate", "Qwen2.5-7B", "--steps", "10000", "data.rollout_batch_size=4096"], "too many to simulate"),
    ],
)
def test_mistakes_get_a_sentence(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    import re

    shown = told(capsys, *arguments, code=2)
    assert re.search(said, shown), shown
    assert "Traceback" not in shown


def test_simulate_compares_placements(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    costs = ["--decode", "2e-3,1e-5,0", "--update", "0.1,1e-5", "--steps", "6", "--staleness", "1,4", "--json"]
    rows = json.loads(told(capsys, "simulate", "Qwen3-1.7B", *SMALL, "--gpus", "4", *costs))
    together, apart = ["colocated", "in turns", "in turns"], ["one-step-off", "asynchronous", "asynchronous"]
    assert [row["placement"] for row in rows] == together + apart
    assert all(row["sample"] == row["learn"] == 4 for row in rows[:3])
    assert all(row["sample"] + row["learn"] == 4 for row in rows[3:])
    assert rows == json.loads(told(capsys, "simulate", "Qwen3-1.7B", *SMALL, "--gpus", "4", *costs))
    (tmp_path / "samples").mkdir()
    assert "no samples/train_" in told(capsys, "simulate", "Qwen3-1.7B", "--lengths", str(tmp_path), code=2)


def test_a_cpu_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    plan = json.loads(told(capsys, "whet/quickstart", *SMALL, "--gpu", "cpu", "--json"))
    assert plan["gpu"] == "cpu"
    assert plan["memory"]["fits"]
    assert plan["seconds"]["step"] > 0
