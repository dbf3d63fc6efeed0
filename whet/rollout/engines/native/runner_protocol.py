"""`Runner`: the interface between the engine and whoever runs the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from transformers import PreTrainedModel

from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native.runner import Drawn
from whet.rollout.engines.native.sequence import Chunk, Kept, Sequence
from whet.types import Prompt

if TYPE_CHECKING:
    from whet.rollout.engines.native.pages import KeptPages


class Runner(Protocol):
    """What the engine needs of whoever runs the model. Running sequences occupy slots 0..B-1."""

    model: PreTrainedModel
    vocab_size: int
    keeps: bool  # whether it can go on from keys and values that were kept
    most_kept: int  # samples that are kept at most, for each slot

    def check(self, prompt: Prompt, params: SamplingParams) -> None:
        """Raise a `UserError` for a request that could never run; may be called from any thread."""
        ...

    def reserve(self, sequence: Sequence) -> bool:
        """Take memory for a waiting sequence and note what must be read for it; False while memory is short."""
        ...

    def prefill(self, chunks: list[Chunk]) -> None:
        """Read parts of prompts and of preempted responses for which memory was reserved."""
        ...

    def grow(self, running: list[Sequence], spare: bool = False) -> bool:
        """Take memory for what the next `decode` writes; False if it is short.

        With `spare` some memory must stay free besides, so that the next calls succeed too.
        """
        ...

    def evict(self, sequence: Sequence) -> bool:
        """Take back the memory of a sequence that does not run; False if it had none."""
        ...

    def admit(self, admitted: list[tuple[int, Sequence]]) -> list[Drawn]:
        """Give sequences their slots; their first tokens, where they are known already."""
        ...

    def decode(self, running: list[Sequence]) -> list[Drawn]:
        """Bring the running sequences further; what was drawn, now or a call ago."""
        ...

    def rearrange(self, moves: list[tuple[int, int, Sequence]], running: int) -> None:
        """Sequences moved from slot to slot; from `running` on, slots are empty."""
        ...

    def settle(self) -> list[Drawn]:
        """Return what was drawn and not returned yet, without drawing more."""
        ...

    def keep(self, slot: int, sequence: Sequence) -> Kept | KeptPages | None:
        """Hold on to the keys and values of a sequence that has just ended in a slot; None where it cannot."""
        ...

    def trim(self, kept: Kept | KeptPages, tokens: int) -> Kept | KeptPages:
        """Leave the first tokens of what was kept and give back the rest, which with 0 tokens is everything."""
        ...

    def finished(self, sequence: Sequence) -> None:
        """A sequence has ended, or its request has."""
        ...

    def occupancy(self) -> tuple[int, int]:
        """Pages in use, and pages that the cache has now; (0, 0) for a cache without pages."""
        ...

    def release(self) -> None:
        """Give back the memory held between rollouts; no sequence may hold any."""
        ...

    def reset(self) -> None:
        """Forget everything that was being decoded, after an error."""
        ...
