"""Measure this machine's processor: how fast it multiplies, reads memory and starts operations, in about a second."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from whet.planning.machines import CPU, Fit, Machine
from whet.system.host import host_memory

_ROUNDS = 3


def this_cpu(threads: int | None = None) -> Machine:
    """Return the processor as a device, measured now, with the threads that torch uses here.

    Other programs that run meanwhile slow the measurement as they slow a run.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        with torch.inference_mode():
            flops, bandwidth = _products(), _bandwidth()
    finally:
        torch.set_num_threads(before)
    return Machine(CPU, host_memory(), flops, bandwidth, fit=CPU_FIT, measured=True)


def _products() -> float:
    a, b = torch.randn(512, 512), torch.randn(512, 1536)
    return 2 * 512 * 512 * 1536 / _best(lambda: a @ b, 20)


def _bandwidth() -> float:
    x = torch.zeros(2**25)  # 128 MiB: more than any cache
    return x.numel() * 4 / _best(lambda: x.sum(), 2)


def _best(work: Callable[[], object], times: int) -> float:
    """Return the seconds of one call, in the best of several rounds."""
    work()
    rounds = []
    for _ in range(_ROUNDS):
        begin = time.perf_counter()
        for _ in range(times):
            work()
        rounds.append((time.perf_counter() - begin) / times)
    return min(rounds)


# Shares fitted to the quickstart and to SmolLM2-135M; the context is what the interpreter, torch and transformers take.
CPU_FIT = Fit(
    products=0.9,
    saturation=64,
    attention=0.3,
    sweeps=14.0,
    gradient_bytes=40.0,
    decode_products=0.5,
    weights_read=0.8,
    cache_read=0.5,
    decode_layer_s=400e-6,
    layer_host_s=1.5e-3,
    sampled_host_s=0.3e-3,
    packed_host_s=0.1e-3,
    scored_host_s=0.1e-3,
    shared_prompt=1.0,
    modules_host=1.0,
    context_bytes=560_000_000,
)
