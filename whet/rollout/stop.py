"""End of a response: an end token, a stop string, or its length."""

from __future__ import annotations

from transformers import PreTrainedTokenizerBase

from whet.rollout.engines.native.sequence import Sequence
from whet.types import FinishReason


class StopCheck:
    """Decides how many of the tokens that were drawn a response takes, and whether it is finished."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, end_ids: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._end_ids = end_ids

    def __call__(self, sequence: Sequence, tokens: list[int]) -> tuple[int, FinishReason | None]:
        """Return how many of the drawn tokens belong to the sequence, and its finish reason; None if it continues."""
        params = sequence.request.params
        room = params.max_tokens - len(sequence.ids)
        ends = frozenset(params.stop_ids) if params.stop_ids or params.ignore_eos else self._end_ids
        if params.stop_ids and not params.ignore_eos:
            ends |= self._end_ids
        if not params.stop and not any(token in ends for token in tokens):
            return (room, "length") if len(tokens) >= room else (len(tokens), None)
        # A token holds at least one byte, so the tail that can hold a stop string is as many tokens as it has bytes;
        # a few more keep a character that spans tokens whole.
        reach = max((len(s.encode()) for s in params.stop), default=0) + 8
        tail = sequence.ids[-reach:]
        for taken, token in enumerate(tokens, start=1):
            tail = [*tail[-reach:], token]
            if token in ends or self._wrote(tail, params.stop):
                return taken, "stop"
            if taken >= room:
                return taken, "length"
        return len(tokens), None

    def _wrote(self, tail: list[int], stop: tuple[str, ...]) -> bool:
        text = self._tokenizer.decode(tail, skip_special_tokens=False) if stop else ""
        return any(s in text for s in stop)
