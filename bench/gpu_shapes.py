"""Models that the GPU benchmark runs, and what the hardware allows for them: bytes a token, operations a token.

    python bench/gpu_shapes.py FOLDER [--tiny] [--tokenizer FOLDER]

writes a Qwen3 of 1.7 billion random weights (or a tiny one) as an ordinary Hugging Face folder: speed does not depend
on what the weights say, and no download is needed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PretrainedConfig

PEAK_FLOPS = 790e12  # bf16 products of an H200 in practice
PEAK_BYTES = 4.8e12  # its memory, a second


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a decoder that its cost depends on."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int  # in a mixture, of the experts that a token passes
    vocab: int

    @classmethod
    def of(cls, folder: str | Path) -> Shape:
        """The shape of the model in a Hugging Face folder."""
        from transformers import AutoConfig

        return cls.of_config(AutoConfig.from_pretrained(folder))

    @classmethod
    def of_config(cls, config: PretrainedConfig) -> Shape:
        """The shape of a model of this config."""
        c = config.get_text_config()
        head_dim = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
        mixed = getattr(c, "num_experts", None)
        return cls(
            c.hidden_size,
            c.num_hidden_layers,
            c.num_attention_heads,
            c.num_key_value_heads,
            head_dim,
            c.num_experts_per_tok * c.moe_intermediate_size if mixed else c.intermediate_size,
            c.vocab_size,
        )

    @property
    def layer_weights(self) -> int:
        """Weights that every token is multiplied with, the output head aside."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return self.layers * (attention + 3 * self.hidden * self.mlp)

    @property
    def head_weights(self) -> int:
        """Weights of the output head."""
        return self.vocab * self.hidden

    def decode_floor(self, prompt_lengths: Sequence[int], new_tokens: int, width: int = 2) -> float:
        """Seconds to read what decoding must read: all weights once a step, and every sequence's keys and values."""
        weights = new_tokens * (self.layer_weights + self.head_weights)
        per_token = 2 * self.layers * self.kv_heads * self.head_dim
        cached = sum(new_tokens * length + new_tokens * (new_tokens + 1) // 2 for length in prompt_lengths)
        return width * (weights + per_token * cached) / PEAK_BYTES

    def training_flops(self, groups: Sequence[tuple[float, Sequence[float]]]) -> float:
        """Operations of one forward and backward pass; a group is a prompt's length and those of its responses.

        The prompt counts once for the group, as whet packs it, and what is computed again in the backward pass does
        not count: this is what the result needs, so that time over it is comparable between programs.
        """
        tokens = sum(prompt + sum(responses) for prompt, responses in groups)
        predicted = sum(sum(responses) for _, responses in groups)
        pairs = sum(p * p / 2 + sum(p * r + r * r / 2 for r in responses) for p, responses in groups)
        forward = 2 * (self.layer_weights * tokens + self.head_weights * predicted)
        attention = 4 * self.layers * self.heads * self.head_dim * pairs
        return 3 * (forward + attention)


def llama_135m() -> PretrainedConfig:
    """SmolLM2-135M."""
    from transformers import LlamaConfig

    return LlamaConfig(
        hidden_size=576,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        intermediate_size=1536,
        vocab_size=49152,
        tie_word_embeddings=True,
        max_position_embeddings=8192,
    )


def qwen2_5_7b() -> PretrainedConfig:
    """Qwen2.5-7B."""
    from transformers import Qwen2Config

    return Qwen2Config(
        hidden_size=3584,
        num_hidden_layers=28,
        num_attention_heads=28,
        num_key_value_heads=4,
        intermediate_size=18944,
        vocab_size=152064,
        tie_word_embeddings=False,
        max_position_embeddings=32768,
    )


def qwen3_1_7b() -> PretrainedConfig:
    """Qwen3-1.7B."""
    return _qwen3(2048, 28, 16, 8, 6144, tied=True)


def qwen3_8b() -> PretrainedConfig:
    """Qwen3-8B."""
    return _qwen3(4096, 36, 32, 8, 12288)


def qwen3_32b() -> PretrainedConfig:
    """Qwen3-32B."""
    return _qwen3(5120, 64, 64, 8, 25600)


def qwen3_30b_a3b(layers: int = 48) -> PretrainedConfig:
    """Qwen3-30B-A3B, or as many of its layers as are asked for."""
    return _qwen3_moe(2048, layers, 32, 4, 768, experts=128, top_k=8)


def qwen3_moe_tiny() -> PretrainedConfig:
    """A mixture of experts for a CPU."""
    return _qwen3_moe(32, 2, 2, 1, 16, experts=4, top_k=2, vocab=512, head_dim=16)


def _qwen3_moe(
    hidden: int,
    layers: int,
    heads: int,
    kv_heads: int,
    mlp: int,
    experts: int,
    top_k: int,
    vocab: int = 151936,
    head_dim: int = 128,
) -> PretrainedConfig:
    from transformers import Qwen3MoeConfig

    return Qwen3MoeConfig(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=top_k * mlp,
        moe_intermediate_size=mlp,
        num_experts=experts,
        num_experts_per_tok=top_k,
        norm_topk_prob=True,
        decoder_sparse_step=1,
        vocab_size=vocab,
        tie_word_embeddings=False,
        max_position_embeddings=40960,
    )


def qwen3_tiny() -> PretrainedConfig:
    """A Qwen3 for a CPU."""
    return _qwen3(32, 2, 2, 1, 32, vocab=512, head_dim=16, tied=True)


def _qwen3(
    hidden: int,
    layers: int,
    heads: int,
    kv_heads: int,
    mlp: int,
    vocab: int = 151936,
    head_dim: int = 128,
    tied: bool = False,
) -> PretrainedConfig:
    from transformers import Qwen3Config

    return Qwen3Config(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=mlp,
        vocab_size=vocab,
        tie_word_embeddings=tied,
        max_position_embeddings=40960,
    )


def write_random(folder: Path, tokenizer: str, tiny: bool = False) -> None:
    """Save a Qwen3 with random weights in bf16; it gets a tokenizer so that every engine can open it."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3Config

    sizes: dict[str, int] = {
        "hidden_size": 2048,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 6144,
        "vocab_size": 151936,
    }
    if tiny:
        sizes = dict(zip(sizes, (32, 2, 4, 2, 32, 64, 512)))  # vLLM on a CPU takes heads of 32 and more
    spelling = AutoTokenizer.from_pretrained(tokenizer)
    config = Qwen3Config(
        **sizes,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        dtype="bfloat16",
        bos_token_id=None,
        eos_token_id=spelling.eos_token_id,
        pad_token_id=spelling.eos_token_id,
    )
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    spelling.save_pretrained(folder)


def write_bf16(source: str, folder: Path) -> None:
    """A copy of a model folder whose weights are bf16, which is what every engine is to run."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16).save_pretrained(folder)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--tokenizer", required=True)
    arguments = parser.parse_args()
    write_random(arguments.folder, arguments.tokenizer, arguments.tiny)


if __name__ == "__main__":
    main()
