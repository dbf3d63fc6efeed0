"""Weights on their way to a server that reads files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from rollout.engines.server.stand_in import SGLangStandIn
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaConfig

from whet.errors import UserError
from whet.model import attention
from whet.model.names import folder_weights
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.sglang.weight_files import WeightFiles

SIZES = {
    "vocab_size": 320,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def test_weights_cross_in_buckets_and_in_the_dtype_that_was_asked_for(policy, tmp_path) -> None:
    files = WeightFiles(tmp_path, policy.config, torch.bfloat16)
    folder = files.write(lambda: folder_weights(policy), 2, bucket_bytes=20_000)
    shards = sorted(folder.glob("*.safetensors"))
    assert len(shards) > 2
    read = {name: tensor for shard in shards for name, tensor in load_file(shard).items()}
    assert read.keys() == dict(folder_weights(policy)).keys()
    for name, tensor in folder_weights(policy):
        assert torch.equal(read[name], tensor.bfloat16())
    files.close()
    with pytest.raises(UserError, match=r"worker\.rollout\.server_folder"):
        WeightFiles(Path("/proc/nowhere"), policy.config).write(lambda: folder_weights(policy), 0)


def test_tied_weights_cross_once(llama, open_engine, prompts) -> None:
    torch.manual_seed(2)
    first, policy = (AutoModelForCausalLM.from_config(LlamaConfig(**SIZES, tie_word_embeddings=True)) for _ in range(2))
    server = SGLangStandIn(first.eval(), llama.tokenizer)
    first.set_attn_implementation(attention.NAME)
    engine = open_engine(server, config=policy.config)
    engine.load_weights(lambda: folder_weights(policy), 1)
    assert len(engine.generate(prompts[:1], SamplingParams(max_tokens=4))) == 1
    assert torch.equal(server.model.lm_head.weight, policy.model.embed_tokens.weight)
    engine.close()
    server.close()
