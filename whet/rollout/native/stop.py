"""When a response ends: an end token, a stop string, or its length."""

from __future__ import annotations

from transformers import PreTrainedTokenizerBase

from whet.rollout.native.sequence import Sequence
from whet.types import FinishReason


class StopCheck:
    """Decides after each token whether the response is finished."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, end_ids: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._end_ids = end_ids

    def __call__(self, sequence: Sequence) -> FinishReason | None:
        """Why the sequence ends here, or None when it goes on."""
        params = sequence.request.params
        if not params.ignore_eos and sequence.ids[-1] in self._end_ids:
            return "stop"
        if params.stop and self._wrote(sequence.ids, params.stop):
            return "stop"
        if len(sequence.ids) >= params.max_tokens:
            return "length"
        return None

    def _wrote(self, ids: list[int], stop: tuple[str, ...]) -> bool:
        # A token holds at least one byte, so the tail that can hold a stop string is as many tokens as it has bytes;
        # a few more keep a character that spans tokens whole.
        tail = ids[-(max(len(s.encode()) for s in stop) + 8) :]
        text = self._tokenizer.decode(tail, skip_special_tokens=False)
        return any(s in text for s in stop)
