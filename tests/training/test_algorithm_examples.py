"""Every recipe in examples/algorithms trains, and is in the guide."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from whet_process import run_folder, start

from whet.tracking import read_metrics

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "examples" / "algorithms").glob("*.yaml"))
CUT = (  # sizes only: what makes the recipe what it is stays
    "trainer.device=cpu",
    "data.rollout_batch_size=4",
    "worker.rollout.n=4",
    "worker.actor.global_batch_size=4",
    "trainer.max_steps=3",
    "trainer.val_before_train=false",
    "trainer.val_freq=-1",
    "trainer.save_freq=-1",
)
ALSO = {"ppo": ("worker.critic.global_batch_size=2",), "dapo": ("data.mini_rollout_batch_size=2",)}


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_recipe_trains(recipe: Path, tmp_path: Path, few_rows: tuple[str, str]) -> None:
    process = start(tmp_path, "train", f"config={recipe}", *few_rows, *CUT, *ALSO.get(recipe.stem, ()))
    assert process.wait() == 0, process.text()
    lines = read_metrics(run_folder(tmp_path, recipe.stem) / "metrics.jsonl")
    assert [line["step"] for line in lines] == [1, 2, 3]
    updated = [line for line in lines if "actor/grad_norm" in line]
    assert updated
    assert all(math.isfinite(line["actor/grad_norm"]) and line["actor/grad_skipped"] == 0 for line in updated)


def test_the_promised_recipes_are_there() -> None:
    promised = "ppo grpo dapo dr_grpo gspo cispo sapo rloo remax reinforce_pp opo gpg gmpo clip_cov kl_cov otb or1"
    assert {path.stem for path in RECIPES} >= set(promised.split())
