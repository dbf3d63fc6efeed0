"""The source of a run's episodes: environments, or a harness that calls the policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from transformers import PreTrainedTokenizerBase

from whet.config import Config
from whet.config.schema.rollout import RolloutConfig
from whet.rollout.engine import Engine, SamplingParams
from whet.rollout.single_turn import Finish
from whet.rollout.tickets import Rollout
from whet.types import Prompt, Sample

if TYPE_CHECKING:
    from whet.model.processor import Processor


class EpisodeSource(Protocol):
    """What answers the policy during a run: environments, or a harness."""

    def __enter__(self) -> EpisodeSource: ...

    def __exit__(self, *_: object) -> None: ...

    def check(self, rows: Sequence[Prompt]) -> None:
        """Raise `UserError` for what cannot be used, before weights are loaded."""
        ...

    def episodes(self, engine: Engine, params: SamplingParams, rollout: RolloutConfig, finish: Finish) -> Rollout:
        """Return the rollout of a collector; responses have at most `params.max_tokens` tokens in all."""
        ...

    def settle(self, samples: Sequence[Sample]) -> list[Sample]:
        """Give failed samples the fallback as their score; return the others, to be scored."""
        ...

    def require(self, samples: Sequence[Sample], where: str) -> None:
        """Raise `RewardsFailedError` if every one of these episodes failed."""
        ...


def open_source(
    config: Config,
    tokenizer: PreTrainedTokenizerBase,
    ends: frozenset[int],
    processor: Processor | None,
    warn: Callable[[str], None],
) -> EpisodeSource:
    """Open what the config names; `UserError` where it cannot be used."""
    if config.worker.rollout.has_harness:
        from whet.training.harnesses import Harnesses

        return Harnesses(config, tokenizer, ends, processor, warn)
    from whet.training.environments import Environments

    return Environments(config, tokenizer, ends, processor, warn)
