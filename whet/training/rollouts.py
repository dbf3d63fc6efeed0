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
from whet.rewards.calls import failure_counts
from whet.rollout.collector import Collector
from whet.rollout.engine import Engine, SamplingParams
from whet.rollout.single_turn import SingleTurn
from whet.rollout.tickets import Rollout
from whet.training.measure import StepClock, correctness, episode_metrics, is_solved, mean_scores
from whet.types import Group, Prompt, Sample

if TYPE_CHECKING:
    from whet.rewards.protocol import SampleScorer
    from whet.training.episode_source import EpisodeSource

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
        self,
        config: Config,
        engine: Engine,
        tokenizer: PreTrainedTokenizerBase,
        scorer: SampleScorer | None,
        environments: EpisodeSource | None = None,
    ) -> None:
        self.config = config  # of the current stage
        self.engine = engine
        self.scorer = scorer  # None where the caller gives scores, or environments alone do
        self.environments = environments  # None for single turns
        self.stays_open = False  # True if samples are in flight between two calls: the engine keeps its memory
        self._tokenizer = tokenizer
        if scorer is not None:
            scorer.decode = self._decode

    def collector(self, params: SamplingParams, penalise: bool = True, limit: int | None = None) -> Collector:
        """Return a collector of groups sampled under `params`; `penalise` adds the penalty for long responses."""

        async def score(samples: list[Sample]) -> None:
            if scored := self._to_score(samples):
                assert self.scorer is not None, "asked for only where there is one"
                await self.scorer.score_async(scored)
            self._scored(samples, penalise)

        together = self.scorer is not None and self.scorer.scores_batches()
        return Collector(self._sampling(params), score, limit, together)

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
        if self.environments is not None:
            from whet.rollout.episodes import play_all

            samples = play_all(self._sampling(params), prompts, params.n, ids, advance)
        else:
            samples = self.engine.generate(prompts, params, ids, advance)
            self._add_text(samples)
        if not self.stays_open:
            self.engine.release()
        for i, sample in enumerate(samples):
            sample.group = ids[i // params.n]
        return samples

    def score(self, samples: list[Sample], advance: Callable[[int], None] | None = None) -> dict[str, float]:
        """Score samples to train on; returns how many rewards failed."""
        if scored := self._to_score(samples):
            assert self.scorer is not None, "asked for only where there is one"
            self.scorer.score(scored, advance)
        self._scored(samples, penalise=True)
        return failure_counts(samples)

    def require_scores(self, samples: Sequence[Sample], where: str) -> None:
        """Raise `RewardsFailedError` if none of these samples has a score of its own."""
        if self.environments is not None:
            self.environments.require(samples, where)
        if self.scorer is not None:
            self.scorer.require_scores(samples, where)

    def _sampling(self, params: SamplingParams) -> Rollout:
        if self.environments is None:
            return SingleTurn(self.engine, params, self._add_text)
        return self.environments.episodes(self.engine, params, self.config.worker.rollout, self._add_text)

    def _to_score(self, samples: list[Sample]) -> list[Sample]:
        """Return the samples that the reward function scores; the others have their scores."""
        if self.environments is None:
            return samples
        played = self.environments.settle(samples)
        if self.scorer is not None:
            return played
        for sample in played:
            sample.scores = {"overall": 0.0}  # besides what its turns earned
        return []

    def _scored(self, samples: Sequence[Sample], penalise: bool) -> None:
        if self.environments is not None:
            from whet.training.environments import note_accuracy

            note_accuracy(samples)
        if penalise:
            self._penalise(samples)

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
    params = validation_params(val_rollout(config), config.data.max_response_length)
    samples: list[Sample] = []
    with clock.stage("validate"):
        for prompts in loader:
            first, places = len(samples), range(len(prompts))
            ids = [range(first + i * params.n, first + (i + 1) * params.n) for i in places]
            groups = rollouts.collect(places, prompts, params, ids, clock, penalise=False)
            samples += [sample for group in groups for sample in group.samples]
    rollouts.require_scores(samples, f"validation at step {step}")
    return samples, summarise(samples, params.n) | {"timing_s/validate": clock.seconds["validate"]}


def summarise(samples: Sequence[Sample], n: int) -> dict[str, float]:
    """`val/*` metrics of n samples for each prompt, given in prompt order."""
    means = mean_scores(samples, "val")
    if "val/reward" in means:  # a score that the function calls so
        means["val/reward_score"] = means.pop("val/reward")
    del means["val/overall"]
    means["val/reward"] = sum(s.reward for s in samples) / len(samples)  # with what steps earned
    metrics = means | {"val/response_length_mean": sum(len(s.ids) for s in samples) / len(samples)}
    metrics |= {f"val/{name}": value for name, value in episode_metrics(samples).items()}
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
