"""Hugging Face folders of the built-in models, written from the files that come with the package."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load, save
from tokenizers import Tokenizer
from transformers import GenerationConfig, PretrainedConfig, PreTrainedTokenizerFast

from whet.assets.shipped import TOKENIZER, WEIGHTS, read_shipped


def shipped_tokenizer(name: str) -> Tokenizer:
    """Return the tokenizer of the built-in `name`."""
    return Tokenizer.from_str(read_shipped(f"{name}/{TOKENIZER}").decode())


def write_folder(
    name: str,
    config: PretrainedConfig,
    tokenizer: PreTrainedTokenizerFast,
    folder: Path,
) -> None:
    """Write the Hugging Face folder of the built-in `name`: its shipped weights in float32, config and tokenizer.

    No model is made: the folder does not depend on the processor, nor on torch's random state.
    """
    weights = {key: tensor.float() for key, tensor in load(read_shipped(f"{name}/{WEIGHTS}")).items()}
    folder.mkdir(parents=True, exist_ok=True)
    # save_file would make a file that only its owner can read; a cache may be shared.
    (folder / WEIGHTS).write_bytes(save(weights, metadata={"format": "pt"}))
    config.save_pretrained(folder)
    sampling(tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def sampling(tokenizer: PreTrainedTokenizerFast) -> GenerationConfig:
    """Return the generation config of the built-in models."""
    return GenerationConfig(do_sample=True, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
