"""Warm start on episodes of several turns: what a demonstrator writes is learned, what stands between is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice

from torch import Tensor, tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from whet.assets.tokenizer import END
from whet.assets.warm_start.text import IGNORED, fit

# The text before the first turn, and each turn with the text that leads to the next ("" behind the last).
Episode = tuple[str, list[tuple[str, str]]]


def texts(episodes: Iterator[Episode], count: int) -> list[str]:
    """Return the texts of some episodes, to learn a tokenizer from."""
    return [text for head, turns in islice(episodes, count) for text in (head, *chain.from_iterable(turns))]


def encode(tokenizer: PreTrainedTokenizerFast, episodes: list[Episode]) -> tuple[Tensor, Tensor]:
    """Right-padded token ids (B, T) of episodes; labels (B, T): the turns and their ends, IGNORED elsewhere.

    Turns are encoded piece by piece, as they are in an episode with the environment.
    """
    rows, labels = [], []
    for head, turns in episodes:
        ids: list[int] = tokenizer(head)["input_ids"]
        wanted = [IGNORED] * len(ids)
        for written, between in turns:
            turn: list[int] = tokenizer(f"{written}{END}")["input_ids"]
            read: list[int] = tokenizer(between)["input_ids"] if between else []
            ids, wanted = ids + turn + read, wanted + turn + [IGNORED] * len(read)
        rows.append(tensor(ids))
        labels.append(tensor(wanted))
    return (
        pad_sequence(rows, batch_first=True, padding_value=tokenizer.pad_token_id),
        pad_sequence(labels, batch_first=True, padding_value=IGNORED),
    )


def teach(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, episodes: Iterator[Episode], say: Callable[[str], None]
) -> None:
    """Supervised learning on the turns, in place."""
    fit(model, lambda size: encode(tokenizer, list(islice(episodes, size))), say)
