"""Log-probs, entropies and gradients of logits against fp64, alone and inside the learner's own function."""

from __future__ import annotations

import pytest
import torch
from kernels.conftest import DEVICE
from torch import Tensor

from whet.kernels.log_probs import logit_gradient_, row_statistics
from whet.learn import kernel_log_probs
from whet.learn import log_probs as learner
from whet.model.load import Head

SIZES = [(3, 37), (2, 4096), (2, 9000)]


def _logits(N: int, V: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(N + V)
    logits = 4 * torch.randn(N, V, generator=g)
    return logits.to(DEVICE, dtype), torch.randint(V, (N,), generator=g).to(DEVICE)


def _plain(logits: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    z = logits.double() / temperature
    log_p = z.log_softmax(-1)
    entropy = -(log_p.exp() * log_p.clamp(min=-1e300)).sum(-1)
    return log_p.gather(1, targets[:, None]).squeeze(1), z.logsumexp(-1), entropy


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize(("N", "V"), SIZES)
def test_statistics(N: int, V: int, temperature: float, dtype: torch.dtype) -> None:
    logits, targets = _logits(N, V, dtype)
    ours = row_statistics(logits, targets, temperature, want_entropy=True)
    for a, b in zip(ours, _plain(logits, targets, temperature)):
        torch.testing.assert_close(a.double(), b, atol=4e-6, rtol=1e-6)
    without = row_statistics(logits, targets, temperature, want_entropy=False)
    assert without[2] is None
    assert torch.equal(without[0], ours[0])
    assert torch.equal(without[1], ours[1])


def test_logits_of_minus_infinity_and_far_apart() -> None:
    logits, targets = _logits(4, 9000)
    logits[0, 1:] = float("-inf")
    logits[1, :4096] = float("-inf")
    logits[2, 17] = 3e4
    targets[:3] = torch.tensor([0, 5000, 17])
    ours = row_statistics(logits, targets, 1.0, want_entropy=True)
    for a, b in zip(ours, _plain(logits, targets, 1.0)):
        torch.testing.assert_close(a.double(), b, atol=4e-6, rtol=1e-6)
    logit_gradient_(logits, targets, ours[1], ours[2], torch.ones_like(ours[1]), torch.ones_like(ours[1]), 1.0)
    assert torch.isfinite(logits).all()


def test_nan_stays_nan() -> None:
    logits, targets = _logits(2, 5000)
    logits[1, 4999] = float("nan")
    log_probs, lse, entropy = row_statistics(logits, targets, 1.0, want_entropy=True)
    for x in (log_probs, lse, entropy):
        assert x.isnan().tolist() == [False, True]


@pytest.mark.parametrize("used", ["log-probs", "entropy", "both"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize(("N", "V"), SIZES)
def test_gradient(N: int, V: int, temperature: float, used: str) -> None:
    logits, targets = _logits(N, V)
    _, lse, entropy = row_statistics(logits, targets, temperature, want_entropy=True)
    a, b = torch.randn(2, N, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    leaf = logits.double().requires_grad_()
    log_p, _, plain_entropy = _plain(leaf, targets, temperature)
    parts = {"log-probs": a * log_p, "entropy": b * plain_entropy, "both": a * log_p + b * plain_entropy}
    (expected,) = torch.autograd.grad(parts[used].sum(), leaf)
    by_log_prob, by_entropy = a if used != "entropy" else None, b if used != "log-probs" else None
    logit_gradient_(logits, targets, lse, entropy, by_log_prob, by_entropy, temperature)
    torch.testing.assert_close(logits.double(), expected, atol=4e-6, rtol=4e-6)


@pytest.mark.parametrize(
    ("N", "temperature", "bias", "chunk"),
    [(20, 1.0, False, 2**20), (130, 0.7, True, 1)],  # a chunk has 128 rows at least
)
def test_learner(N: int, temperature: float, bias: bool, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The learner's function over the kernels, values and gradients, in one piece and in several."""
    monkeypatch.setattr(learner, "_use_kernels", lambda hidden, softcap: True)
    monkeypatch.setattr(kernel_log_probs, "_KERNEL_CHUNK_ELEMENTS", chunk)
    H, V = 8, 70
    g = torch.Generator().manual_seed(5)
    exact = [torch.randn(*shape, dtype=torch.float64, generator=g).to(DEVICE) for shape in ((N, H), (V, H), (V,))]
    leaves = [x.float().requires_grad_() for x in exact]
    exact = [x.requires_grad_() for x in exact]
    targets = torch.randint(V, (N,), generator=g).to(DEVICE)
    ours = learner.token_log_probs(leaves[0], Head(leaves[1], leaves[2] if bias else None, None), targets, temperature)
    logits = exact[0] @ exact[1].t() + (exact[2] if bias else 0)
    expected = _plain(logits, targets, temperature)
    torch.testing.assert_close(ours[0].double(), expected[0], atol=2e-5, rtol=2e-5)
    torch.testing.assert_close(ours[1].double(), expected[2], atol=2e-5, rtol=2e-5)
    a, b = torch.randn(2, N, generator=g).to(DEVICE)
    count = 3 if bias else 2
    grads = torch.autograd.grad((a * ours[0] + b * ours[1]).sum(), leaves[:count])
    references = torch.autograd.grad((a * expected[0] + b * expected[2]).sum(), exact[:count])
    for grad, reference in zip(grads, references):
        torch.testing.assert_close(grad.double(), reference, atol=5e-5, rtol=5e-5)


@pytest.mark.parametrize("used", [0, 1])
def test_learner_with_one_output_and_a_frozen_head(used: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learner, "_use_kernels", lambda hidden, softcap: True)
    g = torch.Generator().manual_seed(6)
    hidden, weight = torch.randn(9, 4, generator=g).to(DEVICE), torch.randn(50, 4, generator=g).to(DEVICE)
    targets = torch.randint(50, (9,), generator=g).to(DEVICE)
    leaf, exact = hidden.clone().requires_grad_(), hidden.double().requires_grad_()
    learner.token_log_probs(leaf, Head(weight, None, None), targets, 0.9)[used].sum().backward()
    log_probs, _, entropy = _plain(exact @ weight.double().t(), targets, 0.9)
    (log_probs, entropy)[used].sum().backward()
    torch.testing.assert_close(leaf.grad.double(), exact.grad, atol=1e-5, rtol=1e-5)


def test_learner_in_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients by a bf16 head come in fp32 where they are wanted so."""
    monkeypatch.setattr(learner, "_use_kernels", lambda hidden, softcap: True)
    g = torch.Generator().manual_seed(8)
    hidden, weight = (torch.randn(n, 16, generator=g).to(DEVICE, torch.bfloat16).requires_grad_() for n in (20, 30))
    weight.grad_dtype = torch.float32
    targets = torch.randint(30, (20,), generator=g).to(DEVICE)
    # Virtual machines that announce AMX without having it crash in oneDNN's bf16 products.
    with torch.backends.mkldnn.flags(enabled=False):
        log_probs, entropy = learner.token_log_probs(hidden, Head(weight, None, None), targets, 1.0)
        log_probs.sum().backward()
        logits = hidden.detach() @ weight.detach().t()
    assert log_probs.dtype == entropy.dtype == weight.grad.dtype == torch.float32
    assert hidden.grad.dtype == torch.bfloat16
    torch.testing.assert_close(log_probs.double(), _plain(logits, targets, 1.0)[0], atol=4e-6, rtol=1e-6)
    by_logits = torch.nn.functional.one_hot(targets, 30) - logits.double().softmax(-1)
    torch.testing.assert_close(weight.grad.double(), by_logits.t() @ hidden.detach().double(), atol=2e-2, rtol=1e-2)


@pytest.mark.cuda
@pytest.mark.skipif(DEVICE == "cpu", reason="bf16 products with fp32 results are CUDA's")
def test_learner_in_bf16_adds_up_weight_gradients_in_fp32() -> None:
    """Many chunks, each too small to move a bf16 sum: the gradient by the weight loses none of them."""
    g = torch.Generator().manual_seed(7)
    hidden = torch.randn(4096, 64, generator=g).to(DEVICE, torch.bfloat16)
    weight = torch.randn(512, 64, generator=g).to(DEVICE, torch.bfloat16).requires_grad_()
    targets = torch.randint(512, (4096,), generator=g).to(DEVICE)
    grads = []
    for chunk in (1, 2**28):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernel_log_probs, "_KERNEL_CHUNK_ELEMENTS", chunk)
            log_probs, _ = learner.token_log_probs(hidden, Head(weight, None, None), targets, 1.0)
            grads.append(torch.autograd.grad(log_probs.sum(), weight)[0])
    assert grads[0].dtype == torch.bfloat16
    torch.testing.assert_close(grads[0], grads[1], atol=1e-4, rtol=2**-6)
