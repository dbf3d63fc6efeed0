"""Validation: sample the held-out prompts, score them, summarise as avg@k and pass@k."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

from whet.config import Config, val_rollout
from whet.data.loader import PromptLoader
from whet.training.measure import StepClock, correctness, is_solved, mean_scores
from whet.training.rollouts import Rollouts, validation_params
from whet.types import Prompt, Sample


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
