"""Runs that learn from a teacher: towards it, resumed to the bit, from the policy with a hint, and refused teachers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from whet_process import outcome, run_folder, train

from whet.assets import resolve_model
from whet.config import Config, with_values
from whet.config.checks.distill import distill_problems
from whet.tracking import read_metrics

SHORT = ("trainer.val_freq=-1", "trainer.val_before_train=false", "trainer.save_freq=-1")


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A teacher some way from the quickstart's policy."""
    folder = tmp_path_factory.mktemp("teacher") / "model"
    shutil.copytree(resolve_model("whet/quickstart", lambda _: None), folder)
    weights, g = load_file(folder / "model.safetensors"), torch.Generator().manual_seed(1)
    moved = {name: w + 0.1 * torch.randn(w.shape, generator=g) for name, w in weights.items()}
    save_file(moved, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_the_policy_comes_closer_and_resumes_to_the_bit(
    tmp_path: Path, few_rows: tuple[str, str], teacher: Path
) -> None:
    keys = (
        *few_rows,
        f"algorithm.distill.model_path={teacher}",
        "algorithm.distill.divergence=jsd",
        "worker.rollout.n=1",  # which grpo refuses where rewards count
        "data.rollout_batch_size=8",
        "worker.actor.global_batch_size=8",
        "worker.actor.ppo_epochs=4",
        "trainer.val_before_train=false",
        "trainer.val_freq=-1",
    )
    code, text = train(tmp_path / "whole", *keys)
    assert code == 0, text
    assert "(jsd, no rewards)" in text
    losses = [line["actor/distill_loss"] for line in read_metrics(run_folder(tmp_path / "whole") / "metrics.jsonl")]
    assert losses[-1] < losses[0]
    for steps in (4, 6):
        code, text = train(tmp_path / "parts", *keys, f"trainer.max_steps={steps}")
        assert code == 0, text
    assert outcome(run_folder(tmp_path / "parts"), 6) == outcome(run_folder(tmp_path / "whole"), 6)


def test_log_probs_as_advantages_beside_rewards(tmp_path: Path, few_rows: tuple[str, str], teacher: Path) -> None:
    path = f"algorithm.distill.model_path={teacher}"
    mixed = ("algorithm.distill.use=advantage", "algorithm.distill.reward_coef=0.5", "trainer.max_steps=2")
    code, text = train(tmp_path, *few_rows, *SHORT, path, *mixed)
    assert code == 0, text
    lines = read_metrics(run_folder(tmp_path) / "metrics.jsonl")
    assert all("actor/teacher_kl" in line and "actor/distill_loss" not in line for line in lines)


def test_the_policy_is_its_own_teacher(tmp_path: Path, few_rows: tuple[str, str]) -> None:
    hint = tmp_path / "hint.jinja"
    hint.write_text('{{ content | trim }}\n{{ answer }}\nBegin with "Answer:"')
    plain = tmp_path / "plain.jinja"
    plain.write_text('{{ content | trim }}\nBegin with "Answer:"')
    found = {}
    for template in (hint, plain):
        place = tmp_path / template.stem
        key = f"algorithm.distill.format_prompt={template}"
        code, text = train(place, *few_rows, *SHORT, key, "trainer.max_steps=1")
        assert code == 0, text
        (line,) = read_metrics(run_folder(place) / "metrics.jsonl")
        found[template.stem] = line["actor/distill_loss"]
    assert found["hint"] > 1e-3
    assert abs(found["plain"]) < 1e-6  # the same prompt: nothing to learn from oneself


def test_a_row_without_a_hint_is_named(tmp_path: Path, few_rows: tuple[str, str]) -> None:
    hint = tmp_path / "hint.jinja"
    hint.write_text("{{ content }} {{ no_such_column }}")
    code, text = train(tmp_path, *few_rows, *SHORT, f"algorithm.distill.format_prompt={hint}")
    assert code == 2
    assert "no_such_column" in text
    assert "Traceback" not in text


def test_another_vocabulary_is_refused(tmp_path: Path, few_rows: tuple[str, str], teacher: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(teacher, other)
    read = json.loads((other / "tokenizer.json").read_text())
    vocabulary = read["model"]["vocab"]
    a, b = sorted(vocabulary, key=vocabulary.get)[-2:]
    vocabulary[a], vocabulary[b] = vocabulary[b], vocabulary[a]
    (other / "tokenizer.json").write_text(json.dumps(read))
    code, text = train(tmp_path, *few_rows, *SHORT, f"algorithm.distill.model_path={other}")
    assert code == 2
    assert "algorithm.distill.model_path" in text
    assert "its tokenizer is not the policy's" in text
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"coef": 2.0}, "algorithm.distill.coef=2.0 has no effect without a teacher"),
        ({"model_path": "a/b", "use": "advantage", "divergence": "jsd"}, "needs all tokens of the vocabulary"),
        ({"model_paths": {"code": "a/b"}, "format_prompt": "hint.jinja"}, "set algorithm.distill.model_path"),
        ({"model_path": "a/b", "model_paths": {"code": 3}}, "algorithm.distill.model_paths.code=3: expected"),
    ],
)
def test_keys_that_do_not_go_together(keys: dict[str, object], sentence: str) -> None:
    config = with_values(Config(), {f"algorithm.distill.{name}": value for name, value in keys.items()})
    assert any(sentence in problem for problem in distill_problems(config))


def test_several_devices_are_refused() -> None:
    config = with_values(Config(), {"algorithm.distill.model_path": "a/b", "trainer.n_gpus_per_node": 2})
    (problem,) = distill_problems(config)
    assert "set both to 1" in problem
