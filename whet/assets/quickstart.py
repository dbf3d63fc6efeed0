"""The built-in `whet/quickstart`: a task, a tokenizer and a warm-started model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

from transformers import LlamaConfig, PreTrainedTokenizerFast

from whet.assets import digits
from whet.assets.folder import shipped_tokenizer, write_folder
from whet.assets.tokenizer import with_chat_template

SEED = 1


def write_rows(path: Path, lists: Iterable[digits.Digits]) -> None:
    """One JSON object per line, as `data.train_files` reads it."""
    path.write_text("".join(json.dumps(digits.row(one)) + "\n" for one in lists), encoding="utf-8")


def make_config(tokenizer: PreTrainedTokenizerFast) -> LlamaConfig:
    """The config of a Llama of 0.13 million parameters."""
    return LlamaConfig(
        architectures=["LlamaForCausalLM"],
        dtype="float32",
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        # The usual 0.02 suits widths of thousands; at this width it would start the layers near zero and learn slowly.
        initializer_range=0.08,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def make_quickstart(folder: Path, say: Callable[[str], None]) -> None:
    """Write `train.jsonl`, `test.jsonl` and the Hugging Face folder `model/` under `folder`."""
    train, test = digits.splits(SEED)
    write_rows(folder / "train.jsonl", train)
    write_rows(folder / "test.jsonl", test)
    tokenizer = with_chat_template(shipped_tokenizer("quickstart"))
    write_folder("quickstart", make_config(tokenizer), tokenizer, folder / "model")
