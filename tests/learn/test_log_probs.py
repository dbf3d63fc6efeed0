from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor

from whet import kernels
from whet.learn import log_probs as module
from whet.learn.log_probs import token_log_probs
from whet.model.load import Head

N, H, V = 37, 8, 23


def _inputs(dtype: torch.dtype, bias: bool) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    g = torch.Generator().manual_seed(5)
    hidden = torch.randn(N, H, dtype=torch.float64, generator=g)
    weight = torch.randn(V, H, dtype=torch.float64, generator=g)
    offset = torch.randn(V, dtype=torch.float64, generator=g) if bias else None
    targets = torch.randint(V, (N,), generator=g)
    leaves = [x.to(dtype).requires_grad_() if x is not None else None for x in (hidden, weight, offset)]
    return leaves[0], leaves[1], leaves[2], targets


def _plain(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, temperature: float, softcap: float | None
) -> tuple[Tensor, Tensor]:
    logits = hidden @ weight.t()
    if bias is not None:
        logits = logits + bias
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    log_p = torch.log_softmax(logits / temperature, dim=-1)
    return log_p[torch.arange(len(targets)), targets], -(log_p.exp() * log_p).sum(dim=-1)


def _gradients(log_probs: Tensor, entropy: Tensor, leaves: list[Tensor]) -> tuple[Tensor, ...]:
    g = torch.Generator().manual_seed(6)
    a, b = (torch.randn(N, dtype=torch.float64, generator=g).to(log_probs.dtype) for _ in range(2))
    return torch.autograd.grad((a * log_probs + b * entropy).sum(), leaves)


@pytest.mark.parametrize("chunk", [V, 16 * V, 17 * V, 37 * V, 2**24])
@pytest.mark.parametrize(
    ("temperature", "softcap", "bias"), [(1.0, None, False), (0.7, None, True), (1.3, 2.0, False), (1.0, 5.0, True)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_gradients(
    dtype: torch.dtype,
    temperature: float,
    softcap: float | None,
    bias: bool,
    chunk: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_CHUNK_ELEMENTS", chunk)
    *leaves, targets = _inputs(dtype, bias)
    *exact, _ = _inputs(torch.float64, bias)
    ours = token_log_probs(leaves[0], Head(leaves[1], leaves[2], softcap), targets, temperature)
    expected = _plain(*exact, targets, temperature, softcap)
    tolerance = {"atol": 2e-5, "rtol": 2e-5} if dtype == torch.float32 else {"atol": 1e-12, "rtol": 1e-12}
    for ours_N, expected_N in zip(ours, expected):
        assert ours_N.dtype == dtype
        torch.testing.assert_close(ours_N.double(), expected_N, **tolerance)
    keep = [i for i in range(3) if leaves[i] is not None]
    grads = _gradients(*ours, [leaves[i] for i in keep])
    for grad, reference in zip(grads, _gradients(*expected, [exact[i] for i in keep])):
        torch.testing.assert_close(grad.double(), reference, **tolerance)


@pytest.mark.parametrize("softcap", [None, 3.0])
def test_gradcheck(softcap: float | None) -> None:
    g = torch.Generator().manual_seed(1)
    hidden, weight, bias = (
        torch.randn(*shape, dtype=torch.float64, generator=g).requires_grad_() for shape in ((4, 3), (5, 3), (5,))
    )
    targets = torch.tensor([0, 4, 2, 2])
    assert torch.autograd.gradcheck(
        lambda h, w, b: token_log_probs(h, Head(w, b, softcap), targets, 0.8), (hidden, weight, bias)
    )


def test_only_one_output_used() -> None:
    *leaves, targets = _inputs(torch.float64, bias=True)
    for used in (0, 1):
        ours = token_log_probs(leaves[0], Head(leaves[1], leaves[2], None), targets, 0.9)[used].sum()
        expected = _plain(*leaves, targets, 0.9, None)[used].sum()
        for a, b in zip(torch.autograd.grad(ours, leaves), torch.autograd.grad(expected, leaves)):
            torch.testing.assert_close(a, b)


def test_frozen_head_gets_no_gradient() -> None:
    *leaves, targets = _inputs(torch.float32, bias=False)
    weight = leaves[1].detach()
    token_log_probs(leaves[0], Head(weight, None, None), targets, 1.0)[0].sum().backward()
    assert leaves[0].grad is not None
    assert weight.grad is None


def test_bf16_weights_give_fp32_log_probs() -> None:
    hidden, weight, _, targets = _inputs(torch.bfloat16, bias=False)
    # Virtual machines that announce AMX without having it crash in oneDNN's bf16 products.
    with torch.backends.mkldnn.flags(enabled=False):
        log_probs, entropy = token_log_probs(hidden, Head(weight, None, None), targets, 1.0)
        assert log_probs.dtype == entropy.dtype == torch.float32
        logits = (hidden @ weight.t()).float()  # rounded once, by the bf16 product
        torch.testing.assert_close(log_probs, torch.log_softmax(logits, -1)[torch.arange(N), targets])
        log_probs.sum().backward()
    assert hidden.grad.dtype == weight.grad.dtype == torch.bfloat16


def test_kernels_are_for_a_gpu_and_not_for_every_head() -> None:
    """On a CPU, in fp64 and with a soft cap the plain way stays."""
    assert not module._use_kernels(torch.zeros(1, 1), None)
    if torch.cuda.is_available():
        hidden = torch.zeros(1, 1, device="cuda")
        assert module._use_kernels(hidden, None) == kernels.available("cuda")
        assert not module._use_kernels(hidden, 30.0)
        assert not module._use_kernels(hidden.double(), None)


def test_extreme_logits_stay_finite() -> None:
    hidden = torch.tensor([[1e4], [-1e4]], requires_grad=True)
    weight = torch.tensor([[1.0], [-1.0], [0.5]])
    log_probs, entropy = token_log_probs(hidden, Head(weight, None, None), torch.tensor([1, 1]), 1.0)
    (log_probs + entropy).sum().backward()
    assert torch.isfinite(hidden.grad).all()
    torch.testing.assert_close(log_probs, torch.tensor([-2e4, 0.0]))
    assert torch.all(entropy >= 0)


_MEASURE = """
import resource, torch
from whet.learn import log_probs
from whet.model.load import Head
log_probs._CHUNK_ELEMENTS = 2**20
N, H, V = 8192, 4, 8192
hidden = torch.randn(N, H, requires_grad=True)
weight = torch.randn(V, H, requires_grad=True)
targets = torch.randint(V, (N,))
def run(n):
    a, b = log_probs.token_log_probs(hidden[:n], Head(weight, None, None), targets[:n], 1.0)
    (a + b).sum().backward()
run(512)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
run(N)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / (N * V * 4))
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_tokens_times_vocabulary() -> None:
    """A pass over 64 chunks needs little more than one over 4, and far from one full matrix of logits (256 MiB)."""
    out = subprocess.run([sys.executable, "-c", _MEASURE], capture_output=True, text=True, check=True, timeout=120)
    assert float(out.stdout) < 0.4  # what the allocator keeps for itself varies by some chunks
