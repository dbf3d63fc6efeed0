"""Warm start on games of several turns: every guess of a demonstration is learned, the answers between them are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice

from torch import Tensor, tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from whet.assets.guess import PROMPT, Game
from whet.assets.tokenizer import ASSISTANT, END, USER
from whet.assets.warm_start.text import IGNORED, fit


def texts(games: Iterator[Game], count: int) -> list[str]:
    """Return the words of some games, to learn a tokenizer from."""
    return [PROMPT, *chain.from_iterable(chain.from_iterable(islice(games, count)))]


def encode(tokenizer: PreTrainedTokenizerFast, games: list[Game]) -> tuple[Tensor, Tensor]:
    """Right-padded token ids (B, T) of games; labels (B, T): the guesses and their ends, IGNORED elsewhere.

    Turns are encoded piece by piece, as they are in a game with the environment.
    """
    rows, labels = [], []
    for game in games:
        ids: list[int] = tokenizer(f"{USER}{PROMPT}{END}{ASSISTANT}")["input_ids"]
        wanted = [IGNORED] * len(ids)
        for guess, answer in game:
            turn: list[int] = tokenizer(f"{guess}{END}")["input_ids"]
            heard: list[int] = tokenizer(f"{USER}{answer}{END}{ASSISTANT}")["input_ids"] if answer else []
            ids, wanted = ids + turn + heard, wanted + turn + [IGNORED] * len(heard)
        rows.append(tensor(ids))
        labels.append(tensor(wanted))
    return (
        pad_sequence(rows, batch_first=True, padding_value=tokenizer.pad_token_id),
        pad_sequence(labels, batch_first=True, padding_value=IGNORED),
    )


def teach(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, games: Iterator[Game], say: Callable[[str], None]
) -> None:
    """Supervised learning on the guesses, in place."""
    fit(model, lambda size: encode(tokenizer, list(islice(games, size))), say)
