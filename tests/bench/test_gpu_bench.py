"""The GPU benchmark: its arithmetic, its table, and whet's parts of it at a tiny size on a CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture(autouse=True)
def _bench_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))


def test_shape_counts_every_weight_of_the_model(tmp_path):
    from gpu_shapes import Shape
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=48,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        intermediate_size=64,
        vocab_size=100,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config)
    model.save_pretrained(tmp_path)
    shape = Shape.of(tmp_path)
    matrices = sum(p.numel() for p in model.parameters() if p.dim() == 2)
    assert shape.layer_weights + shape.head_weights == matrices


def test_decode_floor_is_bytes_over_bandwidth():
    from gpu_shapes import PEAK_BYTES, Shape

    shape = Shape(hidden=2, layers=1, heads=1, kv_heads=1, head_dim=2, mlp=1, vocab=10)
    weights = shape.layer_weights + shape.head_weights
    keys_and_values = 2 * 2 * ((3 + 1) + (3 + 2))  # two tokens after a prompt of three
    assert shape.decode_floor([3], 2) == pytest.approx(2 * (2 * weights + keys_and_values) / PEAK_BYTES)


def test_training_flops_count_a_shared_prompt_once():
    from gpu_shapes import Shape

    shape = Shape(hidden=64, layers=2, heads=4, kv_heads=2, head_dim=16, mlp=128, vocab=1000)
    apart = shape.training_flops([(10, [20]), (10, [20])])
    shared = shape.training_flops([(10, [20, 20])])
    prompt = 3 * (2 * shape.layer_weights * 10 + 4 * 2 * 4 * 16 * 10 * 10 / 2)
    assert apart - shared == pytest.approx(prompt)


def test_table_has_a_row_for_each_part_and_for_a_failed_one():
    from gpu_table import COLUMNS, table

    steps = {"tokens": 200.0, "step_s": [2.0, 1.0, 3.0], "stages_s": {"rollout": 1.0}, "first_step_s": 9.0, "mfu": 0.4}
    rollout = {"tokens": 100, "rollout_s": [2.0, 1.0], "floor_s": 0.5, "new_tokens": 10, "ready_s": 3.0}
    switch = {"switch_s": [0.5, 0.7, 0.9], "stages_s": {"sleep": 0.2, "load": 0.4}, "ready_s": 3.0}
    parts = {"a": rollout, "b": steps, "c": {"error": "137: killed"}, "d": switch, "e": {"skipped": "no vLLM"}}
    lines = table(parts).splitlines()
    assert all(line.count("|") == len(COLUMNS) + 1 for line in lines)
    assert lines[2].startswith("| a | 100 | 1.00 |")
    assert "100.00 (2.0x)" in lines[2]
    assert lines[3].startswith("| b | 100 | 2.00 | rollout 1.00, rest 1.00 |")
    assert "40.0%" in lines[3]
    assert lines[4].startswith("| c | failed |")
    assert lines[5].startswith("| d |  | 0.70 | sleep 0.20, load 0.40, rest 0.10 |")
    assert lines[6].startswith("| e | skipped: no vLLM |")


@pytest.mark.slow
def test_whet_parts_run_tiny_on_a_cpu(quickstart, tmp_path):
    command = [sys.executable, str(BENCH / "gpu.py"), "--tiny", "--out", str(tmp_path), "--work", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    assert set(results) == {"whet-rollout-135m", "whet-steps-135m", "whet-rollout-1.7b", "whet-update-1.7b"}
    assert not any("error" in result for result in results.values()), results
    assert results["whet-rollout-135m"]["tokens"] == 4 * 2 * 8
    assert len(results["whet-steps-135m"]["step_s"]) == 2
    assert results["whet-steps-135m"]["log_prob_diff_mean"] < 1e-4
