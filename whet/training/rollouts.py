"""Samples for a step: what the engine writes, with the text that rewards and people read, and its scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from transformers import PreTrainedTokenizerBase

from whet.config import Config
from whet.rewards.overlong import penalise_overlong
from whet.rewards.scorer import RewardScorer
from whet.rollout.engine import Engine, SamplingParams
from whet.types import Prompt, Sample


class Rollouts:
    """Samples prompts with the current policy and scores what was sampled."""

    def __init__(
        self, config: Config, engine: Engine, tokenizer: PreTrainedTokenizerBase, scorer: RewardScorer | None
    ) -> None:
        self.config = config  # of the current stage
        self.engine = engine
        self.scorer = scorer  # None where the caller gives scores
        self._tokenizer = tokenizer

    def generate(
        self, prompts: Sequence[Prompt], params: SamplingParams, ids: Sequence[int], advance: Callable[[int], None]
    ) -> list[Sample]:
        """Return n samples for each prompt, in the order of the prompts; `ids` name the first sample of each."""
        samples = self.engine.generate(prompts, params, ids, advance)
        self.engine.release()
        skip = self.config.worker.reward.skip_special_tokens
        texts = self._tokenizer.batch_decode([s.ids for s in samples], skip_special_tokens=skip)
        for i, (sample, text) in enumerate(zip(samples, texts)):
            sample.text, sample.group = text, ids[i // params.n]
        return samples

    def score(self, samples: list[Sample], advance: Callable[[int], None] | None = None) -> dict[str, float]:
        """Score samples to train on; returns how many rewards failed."""
        assert self.scorer is not None, "asked for only where there is one"
        counts = self.scorer.score(samples, advance)
        penalise_overlong(samples, self.config.worker.reward.overlong_buffer, self.config.data.max_response_length)
        return counts
