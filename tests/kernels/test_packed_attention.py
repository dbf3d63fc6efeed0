"""Packed attention against plain torch in float64: outputs, gradients, refusals."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from kernels.conftest import DEVICE
from torch import Tensor

from whet.kernels import packed_attention_backward as backward
from whet.kernels.packed_attention import Layout, forward_blocks, packed_attention, packed_attention_forward
from whet.kernels.padded_layout import PaddedLayout
from whet.model.attention import PackedAttention, Segment

# Rows of a tile beyond the end of its segment compute nonsense that is never stored; the interpreter warns of it.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

Rows = list[tuple[int, int, int, int]]


def lay(*groups: tuple[int, list[int]]) -> Rows:
    """Segments of (prompt length, response lengths) groups, one after the other as training packs them."""
    rows: Rows = []
    start = 0
    for prompt, responses in groups:
        parent = start
        rows.append((parent, prompt, 0, 0))
        start += prompt
        for length in responses:
            rows.append((start, length, parent if prompt else 0, prompt))
            start += length
    return rows


# A trunk with branches at three of its tokens, and one at its end.
TREE = [(0, 90, 0, 0), (90, 10, 0, 90), (100, 40, 0, 70), (140, 1, 0, 33), (141, 33, 0, 33), (174, 5, 0, 1)]
LAYOUTS = {
    "no prefix": lay((1, []), (33, []), (64, []), (5, [])),
    "one child": lay((40, [150]), (1, [1])),
    "shared": lay((70, [1, 100, 33, 2, 64]), (3, []), (37, [5])),
    "small": lay((33, [1, 40]), (3, [])),
    "empty prefix": [(0, 40, 9, 0), (40, 30, 0, 0), (70, 0, 0, 40), (70, 8, 40, 30)],
    "tree": TREE,
    "deep tree": [
        (0, 90, 0, 0),
        (90, 40, 0, 70),
        (130, 9, 90, 33),
        (139, 20, 130, 5),
        (159, 3, 0, 70),
        (162, 8, 0, 12),
    ],
    "prefix behind its children": [(0, 7, 40, 20), (7, 33, 40, 20), (40, 20, 60, 9), (60, 9, 0, 0)],
}
CASES = [
    ("shared", 2, 1, None),
    *(("shared", 1, 1, window) for window in (7, 64)),
    *((name, 1, 1, window) for name in LAYOUTS if name != "shared" for window in (None, 7)),
    *(("small", H, K, window) for H, K, window in ((2, 2, 64), (4, 1, None), (6, 2, 7))),
]


def reference(q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor, rows: Rows, scale: float, window: int | None) -> Tensor:
    q, k, v = (x.double().cpu().transpose(0, 1) for x in (q_NHD, k_NKD, v_NKD))
    return PackedAttention([Segment(*r) for r in rows if r[1]]).attend(0, q, k, v, scale, window)


def inputs(N: int, H: int, K: int, D: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    """q, k and v as strided views of one buffer, as a fused projection leaves them, and a gradient of the output."""
    generator = torch.Generator().manual_seed(N + H)
    qkv = torch.randn(N, (H + 2 * K) * D, generator=generator).to(DEVICE, dtype).requires_grad_()
    q, k, v = (x.unflatten(1, (-1, D)) for x in qkv.split((H * D, K * D, K * D), dim=1))
    return q, k, v, torch.randn(N, H, D, generator=generator).to(DEVICE, dtype)


@pytest.mark.parametrize(("name", "H", "K", "window"), CASES)
def test_outputs_and_gradients_against_float64(name: str, H: int, K: int, window: int | None) -> None:
    rows = LAYOUTS[name]
    q, k, v, grad_out = inputs(sum(r[1] for r in rows), H, K, 16)
    layout = Layout(rows, DEVICE)
    out = packed_attention(q, k, v, layout, 0.3, window)
    grads = torch.autograd.grad(out, (q, k, v), grad_out)
    expected = reference(q, k, v, rows, 0.3, window)
    torch.testing.assert_close(out.cpu().double(), expected, atol=2e-6, rtol=2e-6)
    wanted = torch.autograd.grad(expected, (q, k, v), grad_out.cpu().double())
    for got, want in zip(grads, wanted):
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)
        assert got.untyped_storage().data_ptr() == grads[0].untyped_storage().data_ptr()
        assert got.stride() == q.stride()


@pytest.mark.parametrize("window", [None, 40])
def test_long_walks_are_cut_and_added(window: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backward, "LONGEST_WALK", 64)
    rows = lay((40, [1, 60, 33, 9]))
    q, k, v, grad_out = inputs(sum(r[1] for r in rows), 2, 1, 16)
    layout = Layout(rows, DEVICE)
    grads = torch.autograd.grad(packed_attention(q, k, v, layout, 0.3, window), (q, k, v), grad_out)
    wanted = torch.autograd.grad(reference(q, k, v, rows, 0.3, window), (q, k, v), grad_out.cpu().double())
    assert layout.key_tiles(32, 32, 64).slots > 0
    for got, want in zip(grads, wanted):
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("D", [32, 64, 128])
def test_head_dimensions_in_half_precision(D: int) -> None:
    dtype = torch.bfloat16 if DEVICE == "cuda" else torch.float16  # the interpreter does not multiply bfloat16
    rows = lay((20, [70, 3]))
    q, k, v, grad_out = inputs(93, 2, 1, D, dtype)
    out = packed_attention(q, k, v, Layout(rows, DEVICE), D**-0.5, None)
    assert out.dtype == dtype
    grads = torch.autograd.grad(out, (q, k, v), grad_out)
    expected = reference(q, k, v, rows, D**-0.5, None)
    torch.testing.assert_close(out.cpu().double(), expected, atol=2e-2, rtol=2e-2)
    for got, want in zip(grads, torch.autograd.grad(expected, (q, k, v), grad_out.cpu().double())):
        torch.testing.assert_close(got, want, atol=6e-2, rtol=4e-2)


def test_log_sum_exp() -> None:
    q, k, v, _ = inputs(50, 2, 1, 16)
    _, lse_NH = packed_attention_forward(q, k, v, Layout([(0, 50, 0, 0)], DEVICE), 0.25, None)
    scores_HNN = torch.einsum("nhd,md->hnm", q.double(), k[:, 0].double()) * 0.25
    seen = torch.ones(50, 50, dtype=torch.bool, device=DEVICE).tril()
    want = scores_HNN.masked_fill(~seen, float("-inf")).logsumexp(-1).T
    torch.testing.assert_close(lse_NH.double(), want, atol=2e-6, rtol=2e-6)
    assert lse_NH.dtype == torch.float32


def test_same_bits_twice_and_with_a_copied_prefix() -> None:
    rows = lay((40, [50, 21]))
    q, k, v, grad_out = inputs(111, 3, 1, 16)
    layout = Layout(rows, DEVICE)
    out = packed_attention(q, k, v, layout, 0.25, None)
    first = torch.autograd.grad(out, (q, k, v), grad_out, retain_graph=True)
    again = torch.autograd.grad(packed_attention(q, k, v, layout, 0.25, None), (q, k, v), grad_out)
    assert all(torch.equal(a, b) for a, b in zip(first, again))
    # The second response alone with its own copy of the prompt.
    alone = torch.cat([torch.arange(40), torch.arange(90, 111)]).to(DEVICE)
    copied = packed_attention(q[alone], k[alone], v[alone], Layout([(0, 61, 0, 0)], DEVICE), 0.25, None)
    torch.testing.assert_close(copied[40:], out[90:], atol=0 if DEVICE == "cuda" else 1e-6, rtol=0)


def test_expanded_gradient_and_empty_row() -> None:
    q, k, v, _ = inputs(9, 1, 1, 16)
    packed_attention(q, k, v, Layout([(0, 9, 0, 0)], DEVICE), 0.25, None).sum().backward()
    empty = torch.zeros(0, 1, 16, device=DEVICE)
    assert packed_attention(empty, empty, empty, Layout([], DEVICE), 0.25, None).shape == (0, 1, 16)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(0, 10, 0, 0), (11, 5, 0, 0)], "without gaps"),
        ([(0, 10, 0, 0), (9, 5, 0, 0)], "without gaps"),
        ([(0, 10, 0, 0), (10, 5, 0, 11)], "must be the beginning"),
        ([(0, 10, 0, 0), (10, 5, 1, 9)], "must be the beginning"),
        ([(0, 10, 0, 0), (10, 5, 40, 9)], "must be the beginning"),
        ([(0, 10, 0, 10)], "must be the beginning"),
        ([(0, 10, 10, 5), (10, 5, 0, 10)], "must be the beginning"),
        ([(0, 10, 0, 0), (10, 5, 0, 4), (15, 5, 0, 9)], "next to each other"),
        ([(0, 10, 0, 0), (10, 5, 0, 10), (15, 5, 0, 0), (20, 5, 0, 10)], "next to each other"),
    ],
)
def test_layouts_refused(rows: Rows, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Layout(np.array(rows), DEVICE)


def test_a_prefix_may_be_any_stretch_of_the_past_and_nothing_behind_it() -> None:
    layout = Layout([(0, 4, 7, 3), (4, 2, 6, 1)], DEVICE, past=4)
    assert layout.positions.tolist() == [3, 4, 5, 6, 1, 2]
    with pytest.raises(ValueError, match="must be the beginning"):
        Layout([(0, 4, 7, 3), (4, 2, 6, 5)], DEVICE, past=4)
    with pytest.raises(ValueError, match="no gradient"):
        layout.key_tiles(16, 16, 64)


def test_inputs_refused() -> None:
    layout = Layout([(0, 4, 0, 0)], DEVICE)
    x = torch.zeros(4, 2, 24, device=DEVICE)
    with pytest.raises(ValueError, match="head dimension"):
        packed_attention(x, x, x, layout, 1.0, None)
    x = torch.zeros(4, 2, 16, device=DEVICE)
    with pytest.raises(ValueError, match="do not fit"):
        packed_attention(x, x, x[:, :, :8], layout, 1.0, None)
    with pytest.raises(ValueError, match="layout is of 4 tokens"):
        packed_attention(x[:3], x[:3], x[:3], layout, 1.0, None)


COMPILE = """
import sys
import triton
from triton.backends.compiler import GPUTarget
from whet.kernels import packed_attention as forward, packed_attention_backward as backward

types = {"lse": "*fp32", "delta": "*fp32", "partial": "*fp32", "tiles": "*i32", "chain": "*i32", "key_items": "*i32"}
types |= {"query_tiles": "*i32", "positions": "*i32", "scale": "fp32", "scale_log2": "fp32"}
types |= dict.fromkeys(("q", "k", "v", "out", "grad_out", "grad_q", "grad_k", "grad_v"), "*bf16")
D = int(sys.argv[1])
for kernel, blocks in (
    (forward._forward, forward.forward_blocks(D, 2)),
    (backward._backward, backward.backward_blocks(D, 2)),
):
    block_m, block_n, warps, stages = blocks
    constants = {"GROUP": 2, "D": D, "BLOCK_M": block_m, "BLOCK_N": block_n, "WINDOWED": True, "CHAINED": True}
    constants |= {"PRECISION": "tf32"}
    signature = {p.name: "constexpr" if p.is_constexpr else types.get(p.name, "i32") for p in kernel.params}
    source = triton.compiler.ASTSource(fn=kernel, signature=signature, constexprs=constants)
    options = {"num_warps": warps, "num_stages": stages}
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    print(compiled.metadata.shared)
"""


@pytest.mark.slow
@pytest.mark.parametrize("D", [16, 64, 128, 256])
def test_compiles_for_hopper_within_its_shared_memory(D: int) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", COMPILE, str(D)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(int(shared) < 227 * 1024 for shared in done.stdout.split())


def test_a_row_of_fixed_size_has_the_bits_of_its_segments_alone() -> None:
    q, k, v = (torch.randn(40, 2, 16, device=DEVICE) for _ in range(3))
    padded = PaddedLayout(40, 4, forward_blocks(16, 4)[0], torch.device(DEVICE))
    for lengths in ([7, 20], [40], [1, 1, 33]):
        padded.lay(np.array(lengths))
        out = packed_attention_forward(q, k, v, padded, 0.25, None)[0]
        starts = np.cumsum(lengths) - lengths
        alone = Layout([(int(start), n, 0, 0) for start, n in zip(starts, lengths)], DEVICE)
        n = sum(lengths)
        assert torch.equal(out[:n], packed_attention_forward(q[:n], k[:n], v[:n], alone, 0.25, None)[0])


def test_a_row_of_fixed_size_refuses_what_does_not_fit() -> None:
    padded = PaddedLayout(8, 2, 32, torch.device(DEVICE))
    for lengths in ([9], [1, 1, 1]):
        with pytest.raises(ValueError, match="do not fit"):
            padded.lay(np.array(lengths))
    with pytest.raises(ValueError, match="tiles of 32"):
        padded.query_tiles(64)
