"""Rollout correction inside a step and in whole runs."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor
from whet_process import outcome, run_folder, settled, train

from whet.config import load_config, with_values
from whet.config.schema import Config
from whet.config.schema.algorithm import ADVANTAGES
from whet.training.experience import Experience, make_experience, sampler_log_probs
from whet.training.objective import objective, warn_of_skips
from whet.types import Prompt, Sample

KEY = "algorithm.rollout_correction"
EVERYTHING = (f"{KEY}.rollout_rs=token_k1", f"{KEY}.rollout_rs_threshold=1.5_2.0")  # no ratio is 1.5 before an update
SHORT = ("trainer.max_steps=2", "trainer.val_freq=-1", "trainer.save_freq=1")


def samples_of(lengths: list[int], n: int = 2, seed: int = 0) -> list[Sample]:
    rng = random.Random(seed)
    samples = []
    for i, length in enumerate(lengths):
        prompt = samples[-1].prompt if i % n else Prompt(f"row:{i}", [1, 2], "?")
        log_probs = [-rng.random() * 2 for _ in range(length)]
        score = {"overall": rng.random()}
        samples.append(Sample.written(prompt, [3] * length, log_probs, "stop", group=i // n, scores=score))
    return samples


def noise(shape: torch.Size, scale: float = 0.3, seed: int = 1) -> Tensor:
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def experience_and_metrics(samples: list[Sample], config: Config) -> tuple[Experience, dict[str, float]]:
    sampled = sampler_log_probs(samples)
    bypass = config.algorithm.rollout_correction.bypass_mode
    return make_experience(samples, sampled if bypass else sampled + noise(sampled.shape), None, config.algorithm)


def experience_of(samples: list[Sample], config: Config) -> Experience:
    return experience_and_metrics(samples, config)[0]


def gradient(
    experience: Experience, config: Config, log_probs: Tensor, cuts: list[list[int]]
) -> tuple[float, Tensor, dict[str, float]]:
    """The loss of all rows as one mini-batch, cut into these micro-batches, its gradient, and the update's metrics."""
    log_probs = log_probs.clone().requires_grad_()
    whole = objective(experience, config)
    loss_of = whole.begin(list(range(len(log_probs))), lambda: log_probs.detach())
    total = 0.0
    for rows in cuts:
        scored = SimpleNamespace(log_probs_BT=log_probs[rows], entropy_BT=torch.zeros_like(log_probs[rows]))
        loss, _ = loss_of.loss(scored, rows)
        loss.backward()
        total += float(loss.detach())
    return total, log_probs.grad, whole.metrics()


@pytest.mark.parametrize("preset", ["decoupled_seq_is_rs", "bypass_pg_geo_rs_token_tis", "bypass_ppo_clip_k3_rs"])
@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum"])
def test_the_gradient_does_not_depend_on_micro_batches(preset, mode):
    threshold = {"decoupled_seq_is_rs": "0.5_2.0", "bypass_ppo_clip_k3_rs": "0.05"}.get(preset, "0.8_1.25")
    rules = [f"{KEY}.rollout_rs_threshold={threshold}"]
    rules += [f"{KEY}.rollout_is_batch_normalize=true"] if preset.startswith("bypass_pg") else []
    config = load_config([f"{KEY}={preset}", *rules, f"worker.actor.loss_avg_mode={mode}"])
    samples = samples_of([5, 3, 4, 6, 2, 5, 1, 6])
    experience = experience_of(samples, config)
    current = sampler_log_probs(samples) + noise(experience.mask_BT.shape, seed=2)
    whole = gradient(experience, config, current, [list(range(8))])
    cut = gradient(experience, config, current, [[4, 1], [0], [7, 2, 6], [3, 5]])
    assert cut[0] == pytest.approx(whole[0], rel=1e-5)
    torch.testing.assert_close(cut[1], whole[1], rtol=1e-5, atol=1e-7)
    assert 0 < float(whole[1].any(dim=1).sum()) < 8  # some responses are rejected, not all


def test_decoupled_weights_and_mask_reach_advantages_and_loss():
    config = load_config(
        [f"{KEY}=decoupled_token_is", f"{KEY}.rollout_rs=token_k2", f"{KEY}.rollout_rs_threshold=0.02"]
    )
    samples = samples_of([5, 3, 4, 6])
    experience, metrics = experience_and_metrics(samples, config)
    x = experience.old_log_probs_BT - sampler_log_probs(samples)
    written = sampler_log_probs(samples) != 0
    assert torch.equal(experience.mask_BT.bool(), written & (x.square() / 2 <= 0.02))
    torch.testing.assert_close(experience.weights_BT, torch.where(written, x.exp().clamp(max=2.0), 0.0))
    assert not experience.advantages_BT[experience.mask_BT == 0].any()
    # At the old policy the gradient of the clipped loss is −A·w over the kept tokens.
    _, grad, _ = gradient(experience, config, experience.old_log_probs_BT, [[0, 1, 2, 3]])
    expected = -experience.advantages_BT * experience.weights_BT * experience.mask_BT / experience.mask_BT.sum()
    torch.testing.assert_close(grad, expected)
    assert metrics["rollout_corr/rollout_rs_masked_fraction"] > 0


def test_bypass_weighs_reinforce_by_the_current_ratio_and_the_clipped_loss_not_at_all():
    samples = samples_of([3, 4])
    current = sampler_log_probs(samples) + noise(torch.Size([2, 4]), 0.1)
    ratio = (current - sampler_log_probs(samples)).exp()
    for loss_type in ("reinforce", "ppo_clip"):
        keys = [f"{KEY}.bypass_mode=true", f"{KEY}.rollout_is=token", f"{KEY}.loss_type={loss_type}"]
        config = load_config([*keys, f"{KEY}.rollout_is_threshold=5", "worker.actor.clip_ratio_high=9"])
        config = with_values(config, {"worker.actor.clip_ratio_low": 0.99})
        experience = experience_of(samples, config)
        assert torch.equal(experience.old_log_probs_BT, sampler_log_probs(samples))
        _, grad, metrics = gradient(experience, config, current, [[0], [1]])
        # −A·ρ·∇log π either way: as the weight of REINFORCE, or as the ratio's own gradient
        torch.testing.assert_close(grad, -experience.advantages_BT * ratio / 7)
        assert metrics["rollout_corr/rollout_is_mean"] > 0


@pytest.mark.parametrize("estimator", ADVANTAGES.names)
@pytest.mark.parametrize("match", ["whet", "verl"])
def test_a_batch_that_is_rejected_as_a_whole_has_no_advantage_and_no_loss(estimator, match):
    config = load_config([*EVERYTHING, f"algorithm.adv_estimator={estimator}", f"algorithm.match={match}"])
    samples = samples_of([5, 3, 4, 6])
    sampled = sampler_log_probs(samples)
    for sample in samples:  # expectations that a run keeps from step to step
        sample.scores |= {"expected_reward": 0.5, "role_baseline": 0.5, "demonstration": 0.0}
    states = torch.zeros_like(sampled, dtype=torch.int64)
    known = {"values": sampled, "sum_pi_squared": sampled.exp(), "baselines": torch.zeros(4), "states": states}
    known["process_rewards"] = torch.zeros_like(sampled)
    experience, metrics = make_experience(samples, sampled, sampled, config.algorithm, known)
    assert not experience.mask_BT.any()
    assert torch.isfinite(experience.advantages_BT).all()
    if match == "whet":
        assert not experience.advantages_BT.any()
    assert objective(experience, config).begin([0, 1, 2, 3], lambda: sampled) is None
    assert metrics["rollout_corr/rollout_rs_masked_fraction"] == pytest.approx(1.0)


def test_skips_are_said_once_a_step():
    said: list[str] = []
    warn_of_skips({"actor/update_skipped": 0.0}, 1, said.append)
    warn_of_skips({"actor/update_skipped": 2.0}, 7, said.append)
    assert len(said) == 1
    assert "step 7: 2 of its updates skipped" in said[0]
    assert f"{KEY}.rollout_rs_threshold" in said[0]


@pytest.mark.parametrize(
    "keys",
    [
        (f"{KEY}=decoupled_k3_rs_token_tis",),
        (f"{KEY}=bypass_pg_geo_rs_seq_tis", "worker.actor.global_batch_size=2", f"{KEY}.rollout_rs_threshold=0.5_2.0"),
        (f"{KEY}=bypass_ppo_clip", "worker.actor.ppo_epochs=2"),
    ],
)
def test_a_run_with_a_preset(keys, tmp_path, few_rows):
    code, text = train(tmp_path, *few_rows, *SHORT, *keys)
    assert code == 0, text
    assert "warning" not in text
    for line in settled(run_folder(tmp_path) / "metrics.jsonl")[1:]:
        assert all(value is not None and math.isfinite(value) for value in line.values())
        found = {name for name in line if name.startswith("rollout_corr/")}
        assert bool(found) == (keys[0] != f"{KEY}=bypass_ppo_clip")  # which needs no pass to compare with
        assert line["actor/update_skipped"] == 0
        if found:
            # Weights that hardly moved since sampling; a mini-batch after the first differs by one update.
            assert line["rollout_corr/rollout_is_mean"] == pytest.approx(1.0, abs=0.2)
            assert line["rollout_corr/rollout_rs_masked_fraction"] < 0.5


@pytest.mark.parametrize("bypass", ["true", "false"])
def test_a_run_that_rejects_everything_says_so_and_changes_nothing(bypass, tmp_path, few_rows):
    code, text = train(tmp_path, *few_rows, *SHORT, *EVERYTHING, f"{KEY}.bypass_mode={bypass}")
    assert code == 0, text
    assert text.count("updates skipped, because nothing was left to train on") == 2
    run = run_folder(tmp_path)
    assert outcome(run, 1)[:2] == outcome(run, 2)[:2]
    for line in settled(run / "metrics.jsonl")[1:]:
        assert line["actor/update_skipped"] == 1
        assert line["rollout_corr/rollout_rs_masked_fraction"] == pytest.approx(1.0)
        assert "actor/grad_norm" not in line
