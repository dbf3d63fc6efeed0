"""What every engine offers: prompts in, samples out, at once or one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from whet.errors import UserError
from whet.types import FinishReason, Prompt, Sample

KEPT_CACHE = 0.2  # share of a GPU's memory that an engine may hold on to while others train
Progress = Callable[[int], None]  # called with the number of samples that just finished
Weights = Callable[[], Iterator[tuple[str, Tensor]]]  # tensors by their names in a Hugging Face folder, read anew


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to write a response. Filters apply in this order: temperature, top_k, top_p, min_p."""

    n: int = 1
    temperature: float = 1.0  # 0 is greedy
    top_p: float = 1.0
    top_k: int = -1  # -1 keeps every token
    min_p: float = 0.0  # drop tokens less likely than min_p times the likeliest
    max_tokens: int = 512
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    seed: int = 0
    stop_ids: tuple[int, ...] = ()  # tokens that end a response besides the model's own; not every engine can
    top_logprobs: int = 0  # likeliest tokens to report at every place; not every engine can

    def __post_init__(self) -> None:
        for name, right, range_ in (
            ("n", self.n >= 1, "1 or more"),
            ("temperature", 0 <= self.temperature < float("inf"), "0 or more"),
            ("top_p", 0 < self.top_p <= 1, "above 0 and at most 1"),
            ("top_k", self.top_k == -1 or self.top_k >= 1, "1 or more, or -1 for every token"),
            ("min_p", 0 <= self.min_p <= 1, "between 0 and 1"),
            ("max_tokens", self.max_tokens >= 1, "1 or more"),
            ("stop", "" not in self.stop, "texts that are not empty"),
            ("top_logprobs", self.top_logprobs >= 0, "0 or more"),
        ):
            if not right:
                raise UserError(f"sampling parameter {name}={getattr(self, name)!r} must be {range_}")

    @property
    def filters(self) -> bool:
        """Whether some tokens can be cut from the distribution."""
        return self.top_p < 1.0 or self.top_k > 0 or self.min_p > 0.0


@dataclass(frozen=True, slots=True)
class Piece:
    """What was added to one response since it was last looked at."""

    prompt: int  # which of the prompts
    index: int  # which of the prompt's n samples
    ids: list[int]
    log_probs: list[float]
    tops: list[list[tuple[int, float]]]  # the likeliest tokens at each place, where they were asked for
    finish: FinishReason | None  # None while it goes on


class EngineGoneError(UserError):
    """An engine ended by itself, and can be asked for nothing more; the message says how."""


class Engine(Protocol):
    """Writes responses with the current policy.

    Sample ids name samples for the random numbers: the same (seed, sample id) writes the same response whatever else
    is in the batch. `sample_ids[i]` belongs to prompt i; its n samples take the ids that follow from it.
    """

    version: int  # how many updates the weights have seen; stamped on every sample

    def generate(
        self,
        prompts: Sequence[Prompt],
        params: SamplingParams,
        sample_ids: Sequence[int] | None = None,
        progress: Progress | None = None,
    ) -> list[Sample]:
        """n samples for each prompt, in the order of the prompts."""
        ...

    async def sample(self, prompt: Prompt, params: SamplingParams, sample_id: int = 0) -> list[Sample]:
        """n samples of one prompt; joins whatever is being decoded, leaves when cancelled."""
        ...

    def release(self) -> None:
        """Give back the memory held for sampling until the next call."""
        ...

    def load(self, weights: Weights, version: int) -> None:
        """Sample with these weights from now on, and call them `version`."""
        ...

    def close(self) -> None:
        """End whatever the engine started; it is not used afterwards."""
        ...
