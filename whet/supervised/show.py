"""`whet sft --show`: rows as the model reads them, with what it learns in brackets."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

from transformers import PreTrainedTokenizerBase

from whet.config import Config
from whet.supervised.data import open_demonstrations
from whet.tracking.console import Console
from whet.tracking.lines import visible
from whet.training.model_folder import find_model
from whet.types import Sample

OPEN, CLOSE = "⟦", "⟧"


def show(config: Config, rows: int, say: Callable[[str], None]) -> None:
    """Say the demonstrations of the first rows of the training data."""
    model = find_model(config, say)
    dataset = open_demonstrations(config, "train_files", model, Console(quiet=True))
    for samples in dataset.take(range(min(rows, len(dataset)))):
        for sample in samples:
            learned, tokens = sum(sample.mask), len(sample.prompt.ids) + len(sample.ids)
            say(f"── {sample.prompt.uid}: {tokens} tokens, {learned} to learn ──")
            say(visible(bracketed(sample, model.tokenizer)))


def bracketed(sample: Sample, tokenizer: PreTrainedTokenizerBase) -> str:
    """The text of a demonstration; brackets hold what is learned."""
    text = sample.prompt.text
    for learned, pairs in groupby(zip(sample.mask, sample.ids), key=lambda pair: pair[0]):
        piece = tokenizer.decode([token for _, token in pairs], skip_special_tokens=False)
        text += f"{OPEN}{piece}{CLOSE}" if learned else str(piece)
    return text
