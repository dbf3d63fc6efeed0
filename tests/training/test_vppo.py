"""VPPO in the objective of a mini-batch: against its equations in plain loops, however the mini-batch is cut."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace

import pytest
import torch
from learn.samples import sample, set_log_probs
from torch import Tensor

from whet.config import load_config
from whet.config.schema import Config
from whet.training.experience import Experience, make_experience, sampler_log_probs
from whet.training.objective import objective
from whet.types import Media, Prompt, Sample

LENGTHS = [5, 3, 10, 6, 2, 5, 1, 7]
CUTS = ([list(range(8))], [[4, 1], [0], [7, 2, 6], [3, 5]], [[i] for i in range(8)])
VPPO = ("algorithm.use_vppo_on_perception=true", "algorithm.top_p_perception_tokens=0.4")
ENTROPY = ("algorithm.use_vppo_on_entropy=true", "algorithm.top_p_entropy_tokens=0.3")
SHAPING = ("algorithm.use_advantage_shaping=true", "algorithm.advantage_scaling_min=0.9")
TEXT = (2, 3)  # rows whose prompt has no image


def samples_of(text_rows: tuple[int, ...] = TEXT) -> list[Sample]:
    rng = random.Random(0)
    samples: list[Sample] = []
    for i, length in enumerate(LENGTHS):
        media = None if i in text_rows else Media(images=["an image"])
        prompt = samples[-1].prompt if i % 2 else Prompt(f"row:{i}", [1, 2], "?", media=media)
        log_probs = [-rng.random() * 2 for _ in range(length)]
        mask = [int(t != 1 or i != 5) for t in range(length)]  # a tool wrote one token
        samples.append(sample(prompt, [3] * length, mask, score=rng.random(), group=i // 2))
        set_log_probs(samples[-1], log_probs)
    return samples


def drawn(seed: int) -> Tensor:
    return torch.rand(len(LENGTHS), max(LENGTHS), generator=torch.Generator().manual_seed(seed))


def case(*keys: str, text_rows: tuple[int, ...] = TEXT) -> tuple[Config, Experience]:
    config = load_config([*keys])
    samples = samples_of(text_rows)
    dependency = drawn(1) * torch.tensor([[float(i not in text_rows)] for i in range(8)])
    experience, _ = make_experience(
        samples, sampler_log_probs(samples), None, config.algorithm, {"dependency": dependency}
    )
    return config, experience


def run(config: Config, experience: Experience, cut: list[list[int]]) -> tuple[float, Tensor, dict[str, float]]:
    """Loss, gradient and metrics of all rows as one mini-batch; the policy has moved a little since sampling."""
    moved = experience.old_log_probs_BT + 0.2 * (drawn(2) - 0.5) * experience.mask_BT
    log_probs = moved.clone().requires_grad_()
    loss_of = objective(experience, config).begin(list(range(8)), lambda: moved)
    total, sums = 0.0, dict[str, float]()
    for rows in cut:
        T = max(LENGTHS[i] for i in rows)
        scored = SimpleNamespace(log_probs_BT=log_probs[rows, :T], entropy_BT=drawn(3)[rows, :T])
        loss, metrics = loss_of.loss(scored, rows)
        loss.backward()
        total += float(loss.detach())
        for name, value in metrics.items():
            sums[name] = sums.get(name, 0.0) + float(value)
    return total, log_probs.grad, sums


def largest(values: Tensor, mask: Tensor, share: float) -> set[int]:
    inside = [t for t in range(len(mask)) if mask[t]]
    return set(sorted(inside, key=lambda t: (-float(values[t]), t))[: math.ceil(len(inside) * share - 1e-9)])


def naive(experience: Experience, config: Config, micro: list[list[int]] | None = None) -> Tensor:
    """(B, T) of what the gradient of the clipped loss is multiplied by, token by token and row by row."""
    algorithm, mask, S = config.algorithm, experience.mask_BT, experience.dependency_BT
    counted = [i for i in range(8) if micro is not None or i not in TEXT]
    means = {i: float((S[i] * mask[i]).sum() / mask[i].sum()) for i in counted}
    low, high = min(means.values()), max(means.values())
    weight = dict.fromkeys(range(8), 1.0)
    for rows in micro or [counted]:
        z = {i: (means[i] - low) / (high - low) for i in rows}
        most = algorithm.advantage_scaling_min + (1 - algorithm.advantage_scaling_min) / (sum(z.values()) / len(z))
        for i in rows:
            weight[i] = algorithm.advantage_scaling_min + z[i] * (most - algorithm.advantage_scaling_min)
    out = torch.zeros_like(mask)
    for i in range(8):
        kept = (
            set(range(len(mask[i])))
            if not (algorithm.use_vppo_on_perception or algorithm.use_vppo_on_entropy)
            else set()
        )
        if algorithm.use_vppo_on_perception:
            everything = i not in counted
            kept |= set(range(LENGTHS[i])) if everything else largest(S[i], mask[i], algorithm.top_p_perception_tokens)
        if algorithm.use_vppo_on_entropy:
            kept |= largest(drawn(3)[i], mask[i], algorithm.top_p_entropy_tokens)
        for t in kept:
            out[i, t] = weight[i] if algorithm.use_advantage_shaping else 1.0
    return out * mask


@pytest.mark.parametrize("keys", [VPPO, ENTROPY, SHAPING, VPPO + SHAPING, VPPO + ENTROPY, VPPO + ENTROPY + SHAPING])
def test_the_gradient_is_the_equations_however_the_mini_batch_is_cut(keys: tuple[str, ...]) -> None:
    wide = ("worker.actor.clip_ratio_low=0.9", "worker.actor.clip_ratio_high=9", "worker.actor.clip_ratio_dual=99")
    config, experience = case(*keys, *wide)
    plain = run(load_config([*wide]), experience, CUTS[0])[1]
    loss, grad, metrics = run(config, experience, CUTS[0])
    torch.testing.assert_close(grad, plain * naive(experience, config), rtol=1e-5, atol=1e-8)
    assert not torch.equal(grad, plain)
    for cut in CUTS[1:]:
        other = run(config, experience, cut)
        assert other[0] == pytest.approx(loss, rel=1e-5)
        torch.testing.assert_close(other[1], grad, rtol=1e-5, atol=1e-8)
        assert other[2] == pytest.approx(metrics, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("loss_type", ["gspo", "clip_cov", "kl_cov", "cispo", "sapo", "gpg", "dppo_tv", "dro"])
@pytest.mark.parametrize("mode", ["token", "seq", "seq-mean-token-sum-norm"])
def test_every_loss_adds_up_over_any_cut(loss_type: str, mode: str) -> None:
    keys = (*VPPO, *ENTROPY, *SHAPING, "algorithm.use_entropy_penalty=true")
    config, experience = case(
        *keys,
        f"worker.actor.loss_type={loss_type}",
        f"worker.actor.loss_avg_mode={mode}",
        "worker.actor.clip_cov_ratio=0.2",
        "worker.actor.clip_cov_lb=0.01",
        "worker.actor.kl_cov_ratio=0.2",
    )
    whole = run(config, experience, CUTS[0])
    for cut in CUTS[1:]:
        other = run(config, experience, cut)
        assert other[0] == pytest.approx(whole[0], rel=1e-5, abs=1e-7)
        torch.testing.assert_close(other[1], whole[1], rtol=1e-4, atol=1e-7)
        assert other[2] == pytest.approx(whole[2], rel=1e-4, abs=1e-6)


def test_metrics_have_their_names_and_say_what_they_say() -> None:
    config, experience = case(*VPPO, *ENTROPY, *SHAPING)
    metrics = run(config, experience, CUTS[1])[2]
    seen = [i for i in range(8) if i not in TEXT]
    S, mask = experience.dependency_BT, experience.mask_BT
    chosen = {i: largest(S[i], mask[i], 0.4) for i in seen}
    kept = [float(S[i, t]) for i in seen for t in chosen[i]]
    rejected = [float(S[i, t]) for i in seen for t in range(LENGTHS[i]) if mask[i, t] and t not in chosen[i]]
    tokens = len(kept) + len(rejected)
    assert metrics["perception_token_fraction"] == pytest.approx(len(kept) / tokens)
    assert metrics["low_var_kl_mean_selected"] == pytest.approx(sum(kept) / len(kept), rel=1e-5)
    assert metrics["low_var_kl_mean_rejected"] == pytest.approx(sum(rejected) / len(rejected), rel=1e-5)
    least = [min(float(S[i, t]) for t in chosen[i]) for i in seen]
    assert metrics["low_var_kl_threshold"] == pytest.approx(sum(least) / len(least), rel=1e-5)
    uncertain = [float(drawn(3)[i, t]) for i in range(8) for t in largest(drawn(3)[i], mask[i], 0.3)]
    assert metrics["entropy_token_fraction"] == pytest.approx(len(uncertain) / float(mask.sum()))
    assert metrics["entropy_mean_selected"] == pytest.approx(sum(uncertain) / len(uncertain), rel=1e-5)
    assert metrics["entropy_mean_rejected"] < metrics["entropy_threshold"] < metrics["entropy_mean_selected"]
    union = naive(experience, load_config([*VPPO, *ENTROPY]))
    assert metrics["combined_token_fraction"] == pytest.approx(float(union.sum() / mask.sum()))
    means = [float((S[i] * mask[i]).sum() / mask[i].sum()) for i in seen]
    assert metrics["sensitivity_score_mean"] == pytest.approx(sum(means) / len(means), rel=1e-5)
    assert metrics["global_sensitivity_score_min"] == pytest.approx(min(means), rel=1e-5)
    assert metrics["global_sensitivity_score_max"] == pytest.approx(max(means), rel=1e-5)
    assert metrics["scaling_factor_mean"] == pytest.approx(1.0)
    assert metrics["dynamic_scaling_max"] > 1


def test_a_batch_of_text_is_left_alone() -> None:
    config, experience = case(*VPPO, *SHAPING, text_rows=tuple(range(8)))
    loss, grad, metrics = run(config, experience, CUTS[1])
    plain = run(load_config([]), experience, CUTS[1])
    assert loss == plain[0]
    assert torch.equal(grad, plain[1])
    assert metrics == plain[2]  # there is nothing to say about images


def test_as_in_vppo_text_loses_tokens_and_weights_are_those_of_micro_batches() -> None:
    keys = (*VPPO, *ENTROPY, *SHAPING, "algorithm.match=vppo")
    wide = ("worker.actor.clip_ratio_low=0.9", "worker.actor.clip_ratio_high=9", "worker.actor.clip_ratio_dual=99")
    config, experience = case(*keys, *wide)
    plain = run(load_config([*wide]), experience, CUTS[0])[1]
    for cut in (CUTS[0], CUTS[1]):
        grad = run(config, experience, cut)[1]
        torch.testing.assert_close(grad, plain * naive(experience, config, micro=cut), rtol=1e-5, atol=1e-8)


def test_the_entropy_penalty_of_vppo_is_a_mean_over_tokens() -> None:
    keys = (
        "algorithm.use_entropy_penalty=true",
        "worker.actor.loss_avg_mode=seq",
        "worker.actor.entropy_penalty_coef=0.5",
    )
    for match in ("whet", "vppo"):
        config, experience = case(*keys, f"algorithm.match={match}")
        without = run(load_config([keys[1], f"algorithm.match={match}"]), experience, CUTS[1])[1]
        grad = run(config, experience, CUTS[1])[1] - without
        mask = experience.mask_BT
        counts = mask.sum() if match == "vppo" else 8 * mask.sum(dim=1, keepdim=True)
        torch.testing.assert_close(grad, -0.5 * mask / counts, rtol=1e-4, atol=1e-7)


def test_importance_weights_are_kept_on_chosen_tokens() -> None:
    config, experience = case(*VPPO)
    weights = 0.5 + drawn(9)
    plain = run(load_config([]), experience, CUTS[0])[1]
    experience.weights_BT = weights
    grad = run(config, experience, CUTS[1])[1]
    torch.testing.assert_close(grad, plain * weights * naive(experience, config), rtol=1e-5, atol=1e-8)
