"""Demonstrations of the data beside the policy's own samples: one in each group, in place of its last sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from torch import Tensor
from transformers import PreTrainedTokenizerBase

from whet.config import Config
from whet.data.columns import MISSING, lookup
from whet.errors import UserError
from whet.types import Prompt, Sample, Segment

DEMONSTRATION = "demonstration"  # the score that tells them from samples: 1, and 0 for samples


def with_demonstrations(
    samples: Sequence[Sample],
    tokenizer: PreTrainedTokenizerBase,
    config: Config,
    log_probs: Callable[[Sequence[Sample]], Tensor],
    version: int,
) -> list[Sample]:
    """Return samples in which the last one of every group is its row's demonstration.

    Its old log-probs are the policy's own, from a pass of `log_probs`. A demonstration that is longer than responses
    may be is left out, and its group keeps its samples.
    """
    last = {sample.group: place for place, sample in enumerate(samples)}
    made: dict[int, Sample] = {}
    for place in last.values():
        ids = _ids(samples[place].prompt, tokenizer, config)
        if len(ids) <= config.data.max_response_length:
            made[place] = _demonstration(samples[place], ids, tokenizer, version)
    if made:
        rows = log_probs(list(made.values())).tolist()
        for (place, sample), row in zip(made.items(), rows):
            segment = sample.segments[0]
            made[place] = replace(sample, segments=[replace(segment, log_probs=row[: len(segment.ids)])])
    for place, sample in enumerate(samples):
        if place not in made:
            sample.scores[DEMONSTRATION] = 0.0
    return [made.get(place, sample) for place, sample in enumerate(samples)]


def _ids(prompt: Prompt, tokenizer: PreTrainedTokenizerBase, config: Config) -> list[int]:
    key = config.algorithm.demonstration_key
    text = lookup(prompt.extra, str(key))
    if text is MISSING or not isinstance(text, str) or not text:
        raise UserError(
            f"{prompt.uid}: the column {key}, which algorithm.demonstration_key names, holds no text; each row needs "
            "the response that it demonstrates"
        )
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return [*ids, int(tokenizer.eos_token_id)]


def _demonstration(sample: Sample, ids: list[int], tokenizer: PreTrainedTokenizerBase, version: int) -> Sample:
    """Return a sample of the same prompt and group; it counts as solved, and its reward drives nothing."""
    text = str(tokenizer.decode(ids, skip_special_tokens=True))
    scores = {**dict.fromkeys(sample.scores, 0.0), "overall": 1.0, DEMONSTRATION: 1.0}
    return replace(sample, segments=[Segment(ids, True, [], version)], finish="stop", text=text, scores=scores)
