"""Weights that reach another process through the memory of the GPU that both use. Needs a GPU, but no vLLM."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fork_server import run_script
from torch import Tensor

from whet.rollout.engines.vllm.sender import WeightSender

WORKER = Path(__file__).parent / "weight_worker.py"


def take(sender: WeightSender, device: str) -> dict[str, Any]:
    """What a worker in a process of its own says it took."""
    done = run_script(WORKER, *sender.offer().values(), device, folder=WORKER.parent)
    assert done.code == 0, done.err[-2000:]
    return json.loads(done.out.splitlines()[-1])


def check(tensors: dict[str, Tensor], device: str, way: str) -> dict[str, Any]:
    def weights() -> Iterator[tuple[str, Tensor]]:
        yield from tensors.items()

    with WeightSender(weights, 3, workers=1) as sender:
        taken = take(sender, device)
        assert sender.error is None
        sender.check([taken["received"]])
    assert sender.way == way
    expected = {name: float(tensor.double().sum()) for name, tensor in tensors.items()}
    assert taken["sums"] == pytest.approx(expected, rel=1e-6)
    return taken | {"bytes": sender.bytes}


def made(device: str, scale: int) -> dict[str, Tensor]:
    torch.manual_seed(0)
    sizes = {
        "embedding": (scale * 40, 1024),
        "odd": (7,),
        "scalar": (),
        **{f"layer {i}": (scale, 1024) for i in range(9)},
    }
    return {name: torch.randn(size, device=device).to(torch.bfloat16) for name, size in sizes.items()}


def test_another_process_takes_what_was_sent() -> None:
    check(made("cpu", 8), "cpu", "a connection")


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_process_on_the_same_gpu_takes_weights_from_its_memory() -> None:
    check(made("cuda", 8), "cuda", "this GPU's memory")
    large = check(made("cuda", 34_000), "cuda", "this GPU's memory")  # 3.4 GB: buckets, and a tensor larger than one
    print(f"{large['bytes'] / 1e9:.2f} GB in {large['seconds']:.3f} s, the worker's connection and checksums included")
    assert large["seconds"] < 1.0


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_process_elsewhere_is_sent_the_bytes_of_weights_on_a_gpu() -> None:
    check(made("cuda", 8), "cpu", "a connection")
