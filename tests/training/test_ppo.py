"""PPO: the critic learns, warms up, is saved and comes back to the bit; nobody else has one."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel
from whet_process import SMALL, outcome, run_folder, settled, start, train

from whet.assets import resolve_model
from whet.config import Config
from whet.tracking.console import Console
from whet.tracking.run_folder import RunFolder
from whet.training.store import check_disk

PPO = (
    "algorithm.adv_estimator=gae",
    "worker.critic.global_batch_size=4",
    "worker.critic.model.enable_gradient_checkpointing=false",
    "worker.critic.optim.lr=3e-3",
)
# Everything of the critic that carries over from step to step: epochs over mini-batches, a schedule, decay, warm-up.
RICH = (
    "worker.critic.ppo_epochs=2",
    "worker.critic.global_batch_size=2",
    "worker.critic.optim.lr_scheduler_type=cosine",
    "worker.critic.optim.lr_warmup_steps=2",
    "worker.critic.optim.weight_decay=0.1",
    "worker.critic.share_prefix=false",
    "trainer.critic_warmup=2",
    "algorithm.lam=0.95",
    "trainer.save_freq=1",
)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, few_rows: tuple[str, str]) -> Path:
    """The run folder of a run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("alone")
    code, text = train(folder, *few_rows, *PPO, *RICH)
    assert code == 0, text
    assert "warning" not in text
    return run_folder(folder)


def critic_bits(run: Path, step: int) -> tuple[bytes, ...]:
    critic = run / f"global_step_{step}" / "critic"
    names = ("huggingface/model.safetensors", "huggingface/value_head.safetensors", "optimizer.pt")
    return tuple((critic / name).read_bytes() for name in names)


def actor_bits(run: Path, step: int) -> bytes:
    return (run / f"global_step_{step}" / "actor" / "huggingface" / "model.safetensors").read_bytes()


def steps_of(run: Path) -> list[dict[str, Any]]:
    return [line for line in settled(run / "metrics.jsonl") if line["step"]]


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path, few_rows, alone):
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    run, deaths = run_folder(tmp_path), 0
    for _ in range(5):
        process = start(tmp_path, "train", *SMALL, *few_rows, *PPO, *RICH)
        lines = len(steps_of(run)) if (run / "metrics.jsonl").exists() else 0
        wanted = lines + chance.randint(1, 2)
        process.wait_for(lambda n=wanted: (run / "metrics.jsonl").exists() and len(steps_of(run)) >= n)
        process.process.join(chance.uniform(0, 0.2))
        if process.process.exitcode is not None:
            break
        process.kill()
        deaths += 1
    code, text = train(tmp_path, *few_rows, *PPO, *RICH)
    assert code == 0, text
    assert deaths
    assert outcome(run, 6) == outcome(alone, 6), f"seed {seed}"
    assert critic_bits(run, 6) == critic_bits(alone, 6), f"seed {seed}"


def test_warm_up_trains_the_critic_alone(alone):
    first, second, third = steps_of(alone)[:3]
    for line in (first, second):
        assert "critic/vf_loss" in line
        assert not any(name.startswith("actor/") for name in line)
    assert third["actor/grad_norm"] > 0
    assert actor_bits(alone, 1) == actor_bits(alone, 2) != actor_bits(alone, 3)
    assert critic_bits(alone, 1) != critic_bits(alone, 2)
    assert first["critic/values/mean"] == first["critic/values/max"] == 0
    assert second["critic/values/mean"] != 0
    assert [line["critic/lr"] for line in (first, second)] == pytest.approx([1.5e-3, 3e-3])


def test_the_critics_folder_loads_with_transformers(alone):
    folder = alone / "global_step_6" / "critic" / "huggingface"
    backbone, head = AutoModel.from_pretrained(folder), load_file(folder / "value_head.safetensors")
    assert head["weight"].shape == (1, backbone.config.hidden_size)
    assert torch.any(head["weight"] != 0)


def test_a_saved_critic_starts_another_run(tmp_path, few_rows, alone):
    path = alone / "global_step_6" / "critic" / "huggingface"
    code, text = train(tmp_path, *few_rows, *PPO, f"worker.critic.model.model_path={path}", "trainer.max_steps=1")
    assert code == 0, text
    assert steps_of(run_folder(tmp_path))[0]["critic/values/mean"] != 0


def test_model_only_checkpoints(tmp_path, few_rows):
    more = (*PPO, "trainer.save_model_only=true")
    assert train(tmp_path, *few_rows, *more, "trainer.max_steps=2")[0] == 0
    assert not list(run_folder(tmp_path).rglob("optimizer.pt"))
    assert list(run_folder(tmp_path).rglob("critic/huggingface/model.safetensors"))
    code, text = train(tmp_path, *few_rows, *more, "trainer.max_steps=3")
    assert code == 0, text
    assert text.count("trainer.save_model_only: the optimizer starts afresh") == 1


def test_others_have_no_critic_and_may_get_one_later(tmp_path, few_rows):
    run = run_folder(tmp_path)
    assert train(tmp_path, *few_rows, "trainer.max_steps=2")[0] == 0
    assert not list(run.rglob("critic"))
    assert not any(name.startswith("critic/") for line in steps_of(run) for name in line)
    code, text = train(tmp_path, *few_rows, *PPO, "trainer.max_steps=3")
    assert code == 0, text
    assert "was made by a run without a critic: the critic starts afresh" in text
    assert (run / "global_step_3" / "critic" / "optimizer.pt").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("worker.critic.global_batch_size=3",), "worker.critic.global_batch_size=3 does not divide"),
        (("worker.critic.micro_batch_tokens=5",), "worker.critic.micro_batch_tokens=5 is less than one sample"),
        (("algorithm.adv_estimator=grpo", "trainer.critic_warmup=2"), "adv_estimator=grpo has no critic to warm up"),
        pytest.param(  # the hub is asked, several times where there is no network
            ("worker.critic.model.model_path=nowhere",),
            "worker.critic.model.model_path: no model could be read",
            marks=pytest.mark.slow,
        ),
        (
            ("worker.critic.optim.strategy=adamw_bf16", "worker.critic.fsdp.torch_dtype=fp32"),
            "worker.critic.optim.strategy=adamw_bf16 trains bf16 weights",
        ),
    ],
)
def test_mistakes_are_named_before_weights_are_loaded(tmp_path, few_rows, arguments, expected):
    code, text = train(tmp_path, *few_rows, *PPO, *arguments)
    assert code == 2
    assert expected in text
    assert "Traceback" not in text
    assert "model:" not in text


def test_another_optimizer_of_the_critic_is_refused(tmp_path, few_rows):
    assert train(tmp_path, *few_rows, *PPO, "trainer.max_steps=1")[0] == 0
    code, text = train(tmp_path, *few_rows, *PPO, "trainer.max_steps=2", "worker.critic.optim.strategy=adamw_bf16")
    assert code == 2
    assert "worker.critic.optim.strategy=adamw_bf16" in text
    assert "holds the state of adamw" in text


def test_the_disk_must_hold_the_critic_too(quickstart, tmp_path, monkeypatch):
    wanted: list[int] = []
    monkeypatch.setattr(RunFolder, "check_free", lambda self, needed: wanted.append(needed))
    path = resolve_model("whet/quickstart", lambda text: None)
    config = Config()
    with RunFolder(tmp_path / "run") as folder:
        wanted.clear()  # opening it asks for a little, too
        for models in ([path], [path, path]):
            check_disk(config, folder, models, 10, Console(config.trainer.quiet))
    assert wanted[1] == 2 * wanted[0] > 0


@pytest.mark.slow
def test_ppo_learns_the_quickstart(quickstart, tmp_path):
    more = ("worker.critic.global_batch_size=8", "worker.critic.ppo_epochs=2", "trainer.critic_warmup=5")
    process = start(tmp_path, "train", *PPO, *more, "trainer.max_steps=30", "trainer.val_freq=30")
    assert process.wait(600) == 0, process.text()
    lines = settled(run_folder(tmp_path) / "metrics.jsonl")
    assert lines[0]["val/accuracy"] < 0.3
    assert lines[-1]["val/accuracy"] > 0.55
    # While the policy stands still, the values come to foretell a good part of what differs between responses.
    explained = [line["critic/vf_explained_var"] for line in lines[1:6]]
    assert abs(explained[0]) < 0.01
    assert explained[-1] > 0.05
    assert lines[-1]["critic/values/mean"] == pytest.approx(lines[-1]["reward/overall"], abs=0.15)
