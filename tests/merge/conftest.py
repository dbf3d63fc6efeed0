"""A small model with awkward sizes, and its files on several ranks."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from learn.distributed.gloo import run_ranks
from merge.shard_programs import EVERYWHERE, IN_FOURS, SHARED, cut
from tiny_models import WORDS, tiny_tokenizer
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

Beside = Callable[[Path], Path]


def small_llama(dtype: torch.dtype = torch.bfloat16, tied: bool = False) -> PreTrainedModel:
    """Rows that no number of ranks divides; a layer of 6 rows, of which the last of four ranks has none."""
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=WORDS + 2,
        hidden_size=20,
        intermediate_size=6,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=6,
        tie_word_embeddings=tied,
        eos_token_id=1,
    )
    model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model.generation_config.temperature, model.generation_config.do_sample = 0.6, True
    return model


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model that all shards are cut from, as a Hugging Face folder."""
    folder = tmp_path_factory.mktemp("whole") / "model"
    small_llama().save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def shards(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """A folder with shards for a number of ranks, cut in every way; made once."""
    made: dict[int, Path] = {}

    def get(world: int) -> Path:
        if world not in made:
            folder = tmp_path_factory.mktemp(f"world{world}")
            kinds = EVERYWHERE + (SHARED if world > 1 else ()) + (IN_FOURS if world == 4 else ())
            run_ranks(world, cut, folder / "ranks", small_model, folder, kinds)
            made[world] = folder
        return made[world]

    return get


@pytest.fixture
def checkpoint(shards: Callable[[int], Path], small_model: Path, tmp_path: Path) -> Callable[[int, str], Path]:
    """`actor/` as the originals leave it: files of ranks, and huggingface/ with everything but weights."""

    def make(world: int, kind: str = "fsdp2") -> Path:
        folder = tmp_path / f"global_step_{world}" / "actor"
        shutil.copytree(shards(world) / kind, folder)
        describe(small_model, folder)
        return folder

    return make


def describe(model: Path, folder: Path) -> None:
    """huggingface/ with what a model folder has besides weights."""
    shutil.copytree(model, folder / "huggingface", ignore=shutil.ignore_patterns("*.safetensors"))
