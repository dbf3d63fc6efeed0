"""`whet sft --show`: rows as the model reads them, with what it learns in brackets."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

from transformers import PreTrainedTokenizerBase

from whet.assets import resolve_model
from whet.config import Config
from whet.model.load import end_ids, load_model_config, load_tokenizer
from whet.model.processor import load_processor
from whet.run import parts
from whet.run.console import Console
from whet.run.lines import visible
from whet.sft.rooms import open_demonstrations
from whet.types import Sample

OPEN, CLOSE = "⟦", "⟧"


def show(config: Config, rows: int, say: Callable[[str], None]) -> None:
    """Say the demonstrations of the first rows of the training data."""
    chosen = config.worker.actor.model
    path = resolve_model(parts.local_name(config, chosen.model_path or ""), say)
    tokenizer_path = parts.local_name(config, chosen.tokenizer_path) if chosen.tokenizer_path else path
    tokenizer = load_tokenizer(tokenizer_path, chosen.trust_remote_code)
    model_config = load_model_config(path, chosen.trust_remote_code, chosen.override_config)
    processor = load_processor(path, model_config, tokenizer, chosen.trust_remote_code)
    ends, console = end_ids(path, tokenizer), Console(quiet=True)
    dataset = open_demonstrations(config, "train_files", tokenizer, ends, console, processor)
    for samples in dataset.take(range(min(rows, len(dataset)))):
        for sample in samples:
            learned, tokens = sum(sample.mask), len(sample.prompt.ids) + len(sample.ids)
            say(f"── {sample.prompt.uid}: {tokens} tokens, {learned} to learn ──")
            say(visible(bracketed(sample, tokenizer)))


def bracketed(sample: Sample, tokenizer: PreTrainedTokenizerBase) -> str:
    """The text of a demonstration; brackets hold what is learned."""
    text = sample.prompt.text
    for learned, pairs in groupby(zip(sample.mask, sample.ids), key=lambda pair: pair[0]):
        piece = tokenizer.decode([token for _, token in pairs], skip_special_tokens=False)
        text += f"{OPEN}{piece}{CLOSE}" if learned else str(piece)
    return text
