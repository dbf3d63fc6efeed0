"""Runs with adapters: they come back to the bit, PEFT reads their checkpoints, and merged ones need no PEFT."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from whet_process import SMALL, run_folder, settled, start, train

from whet.assets import resolve_model
from whet.cli import main
from whet.config import load_config
from whet.learn.memory import head_bytes, model_bytes
from whet.tracking import read_metrics
from whet.training.device import choose_placement
from whet.training.memory import ModelSize, held_by, reference_bytes
from whet.training.policy import load_policy

EXAMPLE = Path(__file__).parents[2] / "examples" / "lora.yaml"
LORA = (
    "worker.actor.model.lora.rank=4",
    "worker.actor.model.lora.alpha=8",
    "worker.actor.optim.lr=3e-3",
    "trainer.experiment_name=lora",
)
# What carries over from step to step: epochs over mini-batches, a schedule, decay, the reference under the adapters.
RICH = (
    *LORA,
    "worker.actor.ppo_epochs=2",
    "worker.actor.global_batch_size=2",
    "worker.actor.optim.lr_scheduler_type=cosine",
    "worker.actor.optim.lr_warmup_steps=2",
    "worker.actor.optim.weight_decay=0.1",
    "algorithm.disable_kl=false",
    "algorithm.use_kl_loss=true",
    "algorithm.kl_penalty=full",
    "algorithm.kl_coef=0.1",
    "trainer.save_freq=1",
)


def bits(run: Path, step: int) -> tuple[bytes, bytes, list[dict[str, Any]]]:
    """What two runs that did the same share to the last bit."""
    actor = run / f"global_step_{step}" / "actor"
    adapters = (actor / "lora_adapter" / "adapter_model.safetensors").read_bytes()
    return adapters, (actor / "optimizer.pt").read_bytes(), settled(run / "metrics.jsonl")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, few_rows: tuple[str, str]) -> Path:
    """The run folder of a run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("alone")
    code, text = train(folder, *few_rows, *RICH)
    assert code == 0, text
    assert "warning" not in text
    assert "adapters: rank 4, " in text
    return run_folder(folder, "lora")


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path, few_rows, alone):
    run, deaths = run_folder(tmp_path, "lora"), 0
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    for _ in range(3):
        process = start(tmp_path, "train", *SMALL, *few_rows, *RICH)
        standing = len(list(run.glob("global_step_*")))
        process.wait_for(lambda standing=standing: len(list(run.glob("global_step_*"))) > standing)
        process.process.join(chance.uniform(0, 0.2))
        if process.process.exitcode is not None:
            break
        process.kill()
        deaths += 1
    code, text = train(tmp_path, *few_rows, *RICH)
    assert code == 0, text
    assert deaths
    assert bits(run, 6) == bits(alone, 6), f"seed {seed}"


def test_the_sampler_has_the_adapters(alone):
    lines = [line for line in read_metrics(alone / "metrics.jsonl") if line["step"]]
    assert max(line["rollout/log_prob_diff_max"] for line in lines) < 1e-4
    assert lines[-1]["actor/kl_loss"] > 1e-4  # they have moved away from the reference, which is the base


def test_a_checkpoint_holds_adapters_and_their_optimizer_alone(alone, quickstart):
    actor = alone / "global_step_6" / "actor"
    assert {path.name for path in actor.iterdir()} == {"lora_adapter", "optimizer.pt"}
    adapters = load_file(actor / "lora_adapter" / "adapter_model.safetensors")
    state = torch.load(actor / "optimizer.pt", weights_only=True)["state"]
    sizes = [sum(t.numel() for t in each) for each in (adapters.values(), [s["exp_avg"] for s in state.values()])]
    assert sizes[0] == sizes[1]
    saved = json.loads((actor / "lora_adapter" / "adapter_config.json").read_text())
    assert saved["base_model_name_or_path"] == "whet/quickstart"


def test_peft_and_the_merged_folder_give_the_same_logits(alone, quickstart, tmp_path, capsys):
    from peft import PeftModel

    checkpoint = alone / "global_step_6"
    assert main(["merge", str(checkpoint), str(tmp_path / "merged")]) == 0
    assert f"the merged model is in {tmp_path / 'merged'}" in capsys.readouterr().out
    base = AutoModelForCausalLM.from_pretrained(quickstart / "model")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "merged")
    ids = tokenizer("Sort these digits: 3 1 2 5", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        first = base(ids).logits
        adapted = PeftModel.from_pretrained(base, str(checkpoint / "actor" / "lora_adapter"))(ids).logits
        ours = merged(ids).logits
    torch.testing.assert_close(ours, adapted, rtol=0, atol=1e-4)
    assert (adapted - first).abs().max() > 0.01


def test_adapters_can_be_kept(alone, tmp_path):
    checkpoint = alone / "global_step_6"
    assert main(["merge", str(checkpoint), str(tmp_path / "kept"), "--keep-lora"]) == 0
    adapters = checkpoint / "actor" / "lora_adapter"
    assert {p.name: p.read_bytes() for p in (tmp_path / "kept").iterdir()} == {
        p.name: p.read_bytes() for p in adapters.iterdir()
    }


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            "worker.actor.model.lora.rank=0",
            "holds adapters of rank 4. Set it to 4, or write the merged model (whet merge",
        ),
        ("worker.actor.model.lora.rank=8", "were trained with 4"),
        ("worker.actor.model.lora.alpha=16", "were trained with 8"),
        ("worker.actor.model.lora.target_modules=q_proj", "were trained with all-linear"),
    ],
)
def test_other_adapters_cannot_go_on(alone, few_rows, tmp_path, change, expected):
    shutil.copytree(alone.parents[2], tmp_path / "copy")
    code, text = train(tmp_path / "copy", *few_rows, *RICH, "trainer.max_steps=9", change)
    assert code == 2
    assert f"{change}: " in text
    assert expected in text
    assert "model:" not in text


def test_a_run_of_all_weights_does_not_go_on_with_adapters(tmp_path, few_rows):
    assert train(tmp_path, *few_rows, "trainer.max_steps=1")[0] == 0
    code, text = train(tmp_path, *few_rows, *LORA[:-1], "trainer.max_steps=2")
    assert code == 2
    assert "holds all weights and no adapters. Set it to 0" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["worker.actor.model.lora.rank=4096"], "worker.actor.model.lora.rank=4096 is more than"),
        (["worker.actor.model.lora.target_modules=query"], "no linear layer called query; it has"),
        (["worker.actor.model.lora.target_modules=(q"], "worker.actor.model.lora.target_modules=(q is no regular"),
        (["worker.actor.model.lora.exclude_modules=.*"], "worker.actor.model.lora.exclude_modules=.* leaves none"),
        (["worker.rollout.exact=true"], "worker.rollout.exact=true: adapters"),
        (["worker.critic.model.lora.rank=2"], "worker.critic.model.lora.rank=2: a critic with adapters is not in this"),
    ],
)
def test_mistakes_are_found_before_work_starts(tmp_path, few_rows, arguments, words):
    code, text = train(tmp_path, *few_rows, *LORA, *arguments)
    assert code == 2
    assert words in text
    assert "Traceback" not in text
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing", "out"], "nothing is not a folder; name a checkpoint"),
        (["nothing"], "whet merge takes a checkpoint and a folder"),
    ],
)
def test_merging_what_is_no_checkpoint(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert main(["merge", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_the_memory_plan_counts_adapters_as_trained_and_no_reference(quickstart):
    config = load_config([f"config={EXAMPLE}", "trainer.device=cpu"])
    model = load_policy(config, resolve_model("whet/quickstart", print), None, choose_placement(config), print)
    adapters = model.num_parameters(only_trainable=True)
    frozen = model.num_parameters() - adapters
    expected = model_bytes(frozen, model.dtype, trained=False) + model_bytes(adapters, model.dtype, trained=True)
    assert 0 < adapters < frozen
    known = config, "actor", ModelSize.of(model), lambda _: model.dtype
    assert held_by(*known) == expected + head_bytes(model.config, model.dtype, trained=False)
    assert reference_bytes(*known) == 0


def test_the_hf_engine_samples_with_adapters(tmp_path, few_rows):
    code, text = train(tmp_path, *few_rows, *LORA, "worker.rollout.name=hf", "trainer.max_steps=3")
    assert code == 0, text
    lines = [line for line in read_metrics(run_folder(tmp_path, "lora") / "metrics.jsonl") if line["step"]]
    assert max(line["rollout/log_prob_diff_max"] for line in lines) < 1e-3


def test_ppo_trains_adapters_and_a_whole_critic(tmp_path, few_rows):
    ppo = ("algorithm.adv_estimator=gae", "worker.critic.global_batch_size=4", "trainer.max_steps=2")
    code, text = train(tmp_path, *few_rows, *LORA, *ppo)
    assert code == 0, text
    checkpoint = run_folder(tmp_path, "lora") / "global_step_2"
    assert (checkpoint / "actor" / "lora_adapter").is_dir()
    assert (checkpoint / "critic" / "huggingface" / "model.safetensors").is_file()
    code, text = train(tmp_path, *few_rows, *LORA, *ppo[:-1], "trainer.max_steps=3")
    assert code == 0, text
    assert "adapters: rank 4 from " in text


@pytest.mark.slow
def test_the_example_learns(tmp_path, quickstart):
    process = start(tmp_path, "train", f"config={EXAMPLE}", "trainer.device=cpu")
    assert process.wait(300) == 0, process.text()
    lines = read_metrics(run_folder(tmp_path, "lora") / "metrics.jsonl")
    assert lines[0]["val/accuracy"] < 0.3
    assert lines[-1]["val/accuracy"] > 0.65
