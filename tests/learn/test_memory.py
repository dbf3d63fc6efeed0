from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, Qwen2_5_VLConfig, Qwen2Config, Qwen3Config

from whet.learn.memory import (
    Budget,
    Demand,
    Device,
    TokenBytes,
    head_bytes,
    model_bytes,
    plan,
    token_bytes,
    update_work,
)

H200 = 150_000_000_000
SMOLLM2 = LlamaConfig(
    vocab_size=49152,
    hidden_size=576,
    intermediate_size=1536,
    num_hidden_layers=30,
    num_attention_heads=9,
    num_key_value_heads=3,
)
QWEN3 = Qwen3Config(
    vocab_size=151936,
    hidden_size=2048,
    intermediate_size=6144,
    num_hidden_layers=28,
    num_attention_heads=16,
    num_key_value_heads=8,
    head_dim=128,
)


def test_bytes_of_a_model() -> None:
    assert model_bytes(10, torch.bfloat16, trained=True) == 10 * (2 + 4 + 2 + 2 + 4)
    assert model_bytes(10, torch.float32, trained=True) == 10 * (4 + 4 + 4 + 4)
    assert model_bytes(10, torch.bfloat16, trained=False) == 20
    assert model_bytes(256, torch.bfloat16, trained=True, strategy="adamw_8bit") == 256 * (2 + 4 + 2 + 2) + 8
    assert model_bytes(256, torch.float32, trained=True, strategy="adamw_8bit") == 256 * (4 + 4 + 2) + 8


def test_bytes_of_a_token_by_hand() -> None:
    kept = 2 * 576 + (576 + 2 * 192) + (576 + 192) + 576 + 2 * 1536
    fused = token_bytes(SMOLLM2, torch.bfloat16, fused=True)
    assert fused.kept == 32 * 2 * kept + 16 * 576
    assert fused.recomputed == 30 * 4 * 576 + 3 * 2 * kept + 16 * 576
    assert fused.forward == 2 * 2 * kept + 16 * 576
    assert fused.mlp_recomputed == fused.kept - 29 * 2 * 2 * 1536  # those of one layer at a time are there
    modules = token_bytes(SMOLLM2, torch.bfloat16, fused=False)
    assert 2.4 * fused.kept < modules.kept < 2.5 * fused.kept


def test_bytes_of_a_token_whose_activations_are_offloaded() -> None:
    here, away = (token_bytes(QWEN3, torch.bfloat16, fused=True, offloaded=each) for each in (False, True))
    assert here.recomputed - away.recomputed == (28 - 3) * 2 * 2048 * 2
    assert (here.kept, here.mlp_recomputed, here.forward) == (away.kept, away.mlp_recomputed, away.forward)
    flat = Qwen3Config(num_hidden_layers=2)
    here, away = (token_bytes(flat, torch.bfloat16, fused=True, offloaded=each) for each in (False, True))
    assert here == away


def test_bytes_of_a_token_that_stands_for_a_piece_of_an_image() -> None:
    config = Qwen2_5_VLConfig(text_config={"num_hidden_layers": 28}, vision_config={"depth": 32})
    text = token_bytes(config.text_config, torch.bfloat16, fused=True)
    seen = token_bytes(config, torch.bfloat16, fused=True)
    layer = round(4 * (8 * 3584 + 2 * 3420) * 2 * 2.5)
    assert config.vision_config.hidden_size == 3584
    assert seen.kept - text.kept == 34 * layer
    assert seen.recomputed - text.recomputed == 32 * 4 * 3584 * 2 + 3 * layer
    frozen = token_bytes(config, torch.bfloat16, fused=True, tower_trained=False)
    assert frozen.kept - text.kept == frozen.forward - text.forward == 2 * layer


def _held(config: LlamaConfig | Qwen2Config | Qwen3Config, parameters: int) -> int:
    return model_bytes(parameters, torch.bfloat16, trained=True) + head_bytes(config, torch.bfloat16)


QWEN2_7B = Qwen2Config(
    vocab_size=152064,
    hidden_size=3584,
    intermediate_size=18944,
    num_hidden_layers=28,
    num_attention_heads=28,
    num_key_value_heads=4,
)


@pytest.mark.parametrize(
    ("config", "parameters", "device", "expected"),
    [
        (QWEN2_7B, 7_620_000_000, H200, Budget(4096, 16384, False)),
        (SMOLLM2, 135_000_000, H200, Budget(39936, 39936, False)),
        (QWEN3, 1_720_000_000, H200, Budget(16384, 16384, False)),
        (QWEN3, 1_720_000_000, 40_000_000_000, Budget(3072, 16384, False)),
        (QWEN3, 1_720_000_000, 34_000_000_000, Budget(2048, 9216, True)),
    ],
)
def test_known_models_on_known_devices(
    config: LlamaConfig | Qwen2Config | Qwen3Config, parameters: int, device: int, expected: Budget
) -> None:
    token = token_bytes(config, torch.bfloat16, fused=True)
    held = _held(config, parameters)
    found = plan(Device(device, held, held), Demand(parameters, token, longest=1024, needed=1024, recompute=None))
    assert found == expected


QWEN3_8B = Qwen3Config(
    vocab_size=151936,
    hidden_size=4096,
    intermediate_size=12288,
    num_hidden_layers=36,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
)


@pytest.mark.parametrize(("offloaded", "tokens"), [(False, 7168), (True, 16384)])
def test_offload_makes_micro_batches_larger(offloaded: bool, tokens: int) -> None:
    parameters = 8_190_000_000
    token = token_bytes(QWEN3_8B, torch.bfloat16, fused=True, offloaded=offloaded)
    held = _held(QWEN3_8B, parameters)
    found = plan(Device(H200, held, held), Demand(parameters, token, 4096, 4096, recompute=True))
    assert found == Budget(tokens, 16384, True)


PARAMETERS = 167_800_000  # 32 kilotokens are enough work
TOKEN = TokenBytes(kept=1000, mlp_recomputed=1000, recomputed=100, forward=50)


@pytest.mark.parametrize(
    ("room", "longest", "needed", "recompute", "expected"),
    [
        (4_000_000, 700, 700, False, Budget(3072, 32768, False)),  # in whole kilotokens
        (4_000_000, 700, 700, None, Budget(32768, 32768, True)),  # the host would launch small ones for too long
        (40_000_000, 700, 700, None, Budget(32768, 32768, False)),
        (1_500_000, 700, 1600, None, Budget(14336, 29696, True)),  # what is needed does not fit without
        (4_000_000, 700, 700, True, Budget(32768, 32768, True)),  # the config has the last word
        (1_500_000, 1600, 1600, False, Budget(1600, 29696, False)),  # the longest sample at least
        (-5, 700, 700, None, Budget(700, 700, True)),
        (10**9, 50_000, 50_000, None, Budget(50_000, 50_000, False)),
    ],
)
def test_plan(room: int, longest: int, needed: int, recompute: bool | None, expected: Budget) -> None:
    total = 10**9
    held = round(total * 0.85) - room
    assert plan(Device(total, held, held), Demand(PARAMETERS, TOKEN, longest, needed, recompute)) == expected


def test_devices_that_share_rows_have_room_for_longer_ones() -> None:
    total, room = 10**9, 1_500_000
    device = Device(total, round(total * 0.85) - room, round(total * 0.85) - room)

    def planned(longest: int, needed: int, recompute: bool | None) -> Budget:
        return plan(device, Demand(PARAMETERS * 100, TOKEN, longest, needed, recompute, shared=4))

    assert planned(700, 5600, None) == Budget(4 * 1024, 4 * 16384, False)
    assert planned(700, 6100, None) == Budget(4 * 14336, 4 * 16384, True)
    assert planned(6000, 6000, False).tokens_update == 6000


def test_passes_without_gradient_have_their_own_room() -> None:
    total = 10**9
    full = round(total * 0.85)
    demand = Demand(PARAMETERS, TOKEN, 700, 700, False)
    assert plan(Device(total, full - 4_000_000, full - 100_000), demand) == Budget(3072, 1024, False)
    assert plan(Device(total, full - 4_000_000, full + 5), demand) == Budget(3072, 700, False)


def test_work_grows_as_memory_shrinks() -> None:
    total = 10**9
    demand = Demand(PARAMETERS * 100, TOKEN, 700, 700, None)
    held = [round(total * 0.85) - room for room in (10**9, 4_000_000, 1_100_000, 150_000, 50_000)]
    work = [update_work(Device(total, each, each), demand) for each in held]
    assert work == sorted(work)
    assert 1.0 < work[0] < 1.05
    assert work[-1] == float("inf")  # not even one of the longest samples fits
