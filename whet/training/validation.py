"""Validation: sample the held-out prompts, score them, summarise as avg@k and pass@k."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import comb

from whet.config import Config, val_rollout
from whet.config.rollout import RolloutConfig
from whet.data.loader import PromptLoader
from whet.rollout.engine import SamplingParams
from whet.training.measure import StepClock, correctness, is_solved, mean_scores
from whet.training.rollouts import Rollouts
from whet.types import Prompt, Sample

# Validation draws from a stream of its own, the same at every validation, so that two of them compare.
_VALIDATION_STREAM = 0x76616C


def sampling_params(config: RolloutConfig, max_tokens: int) -> SamplingParams:
    """How samples are drawn under a rollout config."""
    return SamplingParams(
        n=config.n,
        temperature=config.temperature,
        top_p=config.top_p,
        top_k=config.top_k,
        min_p=config.min_p,
        max_tokens=max_tokens,
        stop=tuple(config.stop),
        ignore_eos=config.ignore_eos,
        seed=config.seed,
    )


def validation_params(config: RolloutConfig, max_tokens: int) -> SamplingParams:
    """How validation samples are drawn, given the rollout config with its overrides applied."""
    params = sampling_params(config, max_tokens)
    return replace(params, seed=params.seed + _VALIDATION_STREAM)


def validate(
    rollouts: Rollouts, loader: PromptLoader[Prompt], config: Config, step: int, clock: StepClock
) -> tuple[list[Sample], dict[str, float]]:
    """Sample and score every validation prompt; return the samples in prompt order and their metrics."""
    assert rollouts.scorer is not None, "every run that validates has a reward function"
    params = validation_params(val_rollout(config), config.data.max_response_length)
    samples: list[Sample] = []
    with clock.stage("validate"):
        for prompts in loader:
            first, places = len(samples), range(len(prompts))
            ids = [range(first + i * params.n, first + (i + 1) * params.n) for i in places]
            groups = rollouts.collect(places, prompts, params, ids, clock, penalise=False)
            samples += [sample for group in groups for sample in group.samples]
    rollouts.scorer.require_scores(samples, f"validation at step {step}")
    return samples, summarise(samples, params.n) | {"timing_s/validate": clock.seconds["validate"]}


def summarise(samples: Sequence[Sample], n: int) -> dict[str, float]:
    """`val/*` metrics of n samples for each prompt, given in prompt order."""
    means = mean_scores(samples, "val")
    if "val/reward" in means:  # a score that the function calls so
        means["val/reward_score"] = means.pop("val/reward")
    means["val/reward"] = means.pop("val/overall")
    metrics = means | {"val/response_length_mean": sum(len(s.ids) for s in samples) / len(samples)}
    failed = sum(s.failure is not None for s in samples)
    if failed:
        metrics["val/failed"] = failed
    if n > 1:
        score = correctness(samples)
        groups = [[score(s) for s in samples[i : i + n]] for i in range(0, len(samples), n)]
        metrics[f"val/avg@{n}"] = sum(sum(g) / n for g in groups) / len(groups)
        for k in _powers_up_to(n):
            metrics[f"val/pass@{k}"] = sum(pass_at_k(n, sum(map(is_solved, g)), k) for g in groups) / len(groups)
    return metrics


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Chance that k of n samples, drawn without replacement, hold a correct one (Chen et al., 2021)."""
    return 1.0 - comb(n - correct, k) / comb(n, k)


def _powers_up_to(n: int) -> list[int]:
    ks = [2**i for i in range(n.bit_length()) if 2**i < n]
    return [*ks, n]
