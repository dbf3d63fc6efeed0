"""Samples for a step: what the engine writes, with the text that rewards and people read, and its scores.

Validation samples the held-out prompts the same way and summarises them as avg@k and pass@k.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import comb
from typing import TYPE_CHECKING

from transformers import PreTrainedTokenizerBase

from whet.config import Config, val_rollout
from whet.config.schema.rollout import RolloutConfig
from whet.data.loader import PromptLoader
from whet.rollout.collector import Collector
from whet.rollout.engine import Engine, SamplingParams
from whet.rollout.single_turn import SingleTurn
from whet.training.measure import StepClock, correctness, is_solved, mean_scores
from whet.types import Group, Prompt, Sample

if TYPE_CHECKING:
    from whet.rewards.protocol import SampleScorer

# Validation draws from a stream of its own, the same at every validation, so that two of them compare.
_VALIDATION_STREAM = 0x76616C


def sampling_params(config: RolloutConfig, max_tokens: int) -> SamplingParams:
    """Return the sampling parameters of a rollout config."""
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
    """Return those of validation, given the rollout config with its overrides applied."""
    params = sampling_params(config, max_tokens)
    return replace(params, seed=params.seed + _VALIDATION_STREAM)


class Rollouts:
    """Samples prompts with the current policy and scores what was sampled."""

    def __init__(
        self, config: Config, engine: Engine, tokenizer: PreTrainedTokenizerBase, scorer: SampleScorer | None
    ) -> None:
        self.config = config  # of the current stage
        self.engine = engine
        self.scorer = scorer  # None where the caller gives scores
        self.stays_open = False  # True if samples are in flight between two calls: the engine keeps its memory
        self._tokenizer = tokenizer
        if scorer is not None:
            scorer.decode = self._decode

    def collector(self, params: SamplingParams, penalise: bool = True, limit: int | None = None) -> Collector:
        """Return a collector of groups sampled under `params`; `penalise` adds the penalty for long responses."""
        assert self.scorer is not None, "asked for only where there is one"
        scorer = self.scorer

        async def score(samples: list[Sample]) -> None:
            await scorer.score_async(samples)
            if penalise:
                self._penalise(samples)

        sampling = SingleTurn(self.engine, params, self._add_text)
        return Collector(sampling, score, limit, together=scorer.scores_batches())

    def collect(
        self,
        rows: Sequence[int],
        prompts: Sequence[Prompt],
        params: SamplingParams,
        ids: Sequence[range],
        clock: StepClock,
        penalise: bool = True,
    ) -> list[Group]:
        """Return one group for each prompt, in their order: synchronous training, where nothing stays in flight.

        The stage `rollout` ends with the last sample, `reward` with the last score; most scores come during `rollout`.
        """
        total = len(prompts) * params.n
        with self.collector(params, penalise) as collector:
            with clock.stage("rollout", total) as advance:
                collector.submit(rows, prompts, ids)
                collector.wait_sampled(advance)
            if not self.stays_open:
                self.engine.release()
            with clock.stage("reward", total) as advance:
                return collector.take(len(prompts), ordered=True, progress=advance)

    def generate(
        self, prompts: Sequence[Prompt], params: SamplingParams, ids: Sequence[int], advance: Callable[[int], None]
    ) -> list[Sample]:
        """Return n samples for each prompt, not scored; `ids` name the first sample, and the group, of each."""
        samples = self.engine.generate(prompts, params, ids, advance)
        if not self.stays_open:
            self.engine.release()
        self._add_text(samples)
        for i, sample in enumerate(samples):
            sample.group = ids[i // params.n]
        return samples

    def score(self, samples: list[Sample], advance: Callable[[int], None] | None = None) -> dict[str, float]:
        """Score samples to train on; returns how many rewards failed."""
        assert self.scorer is not None, "asked for only where there is one"
        counts = self.scorer.score(samples, advance)
        self._penalise(samples)
        return counts

    def _add_text(self, samples: Sequence[Sample]) -> None:
        skip = self.config.worker.reward.skip_special_tokens
        texts = self._tokenizer.batch_decode([s.ids for s in samples], skip_special_tokens=skip)
        for sample, text in zip(samples, texts):
            sample.text = text

    def _decode(self, ids: list[int]) -> str:
        skip = self.config.worker.reward.skip_special_tokens
        return str(self._tokenizer.decode(ids, skip_special_tokens=skip))

    def _penalise(self, samples: Sequence[Sample]) -> None:
        if self.config.worker.reward.overlong_buffer.enable:
            from whet.rewards.overlong import penalise_overlong

            penalise_overlong(samples, self.config.worker.reward.overlong_buffer, self.config.data.max_response_length)


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
    del means["val/overall"]
    means["val/reward"] = sum(s.reward for s in samples) / len(samples)  # with what steps earned
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
