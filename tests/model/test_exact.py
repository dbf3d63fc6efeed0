"""Under ExactMode a token's numbers do not depend on its batch, and are those of the plain model otherwise."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from importlib.util import find_spec

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

if find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

from kernels.conftest import DEVICE  # sets the interpreter up before a kernel is defined
from kernels.interpreter import dots_keep_rows
from model.test_families import FAMILIES
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from whet.errors import UserError
from whet.model.exact import ExactMode, exact_linear

HALF = torch.bfloat16 if DEVICE == "cuda" else torch.float16  # the interpreter cannot multiply bfloat16


class EachTokenItself:
    """Attention of a token to its own key, which leaves tokens apart: (N, H, D) of the values."""

    def attend(
        self, layer: int, query_HND: Tensor, key_HND: Tensor, value_HND: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """The value of each token, of the key-value head of each query head."""
        gate = (query_HND * key_HND.repeat_interleave(len(query_HND) // len(key_HND), 0) * scale).sum(-1, keepdim=True)
        value = value_HND.repeat_interleave(len(query_HND) // len(value_HND), 0)
        # No sigmoid here: a CPU's differs in the last bit between full vectors of elements and their remainder.
        return (gate / (1 + gate.abs()) * value).transpose(0, 1)


def _random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(DEVICE, dtype)


def _model(config: PretrainedConfig, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    torch.manual_seed(0)
    config = deepcopy(config)
    config.intermediate_size = 64  # full vectors for a CPU's activation function
    config._attn_implementation = "whet"
    return AutoModelForCausalLM.from_config(config).to(DEVICE, dtype).eval()


def _logits(model: PreTrainedModel, ids_N: Tensor) -> Tensor:
    positions_N = ids_N * 3  # a token's position is its own here: rows may then be moved
    return model(
        input_ids=ids_N[None], position_ids=positions_N[None], attention=EachTokenItself(), use_cache=False
    ).logits[0]


@pytest.mark.parametrize("dtype", [torch.float32, HALF])
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma3", "gpt2"])
def test_a_token_has_the_same_bits_in_any_batch(family: str, dtype: torch.dtype) -> None:
    model = _model(FAMILIES[family], dtype)
    ids_N = torch.arange(40, device=DEVICE).repeat(2)[:70]
    close = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 0.05, "atol": 0.1}
    with torch.no_grad(), ExactMode():
        whole = _logits(model, ids_N)
        for rows in (slice(0, 1), slice(60, 67)):
            found = _logits(model, ids_N[rows])
            if dots_keep_rows():
                assert torch.equal(found, whole[rows])
            else:  # the interpreter's products round otherwise elsewhere in a tile
                torch.testing.assert_close(found, whole[rows], **close)
    with torch.no_grad():
        torch.testing.assert_close(whole, _logits(model, ids_N), **close)


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma3", "gpt2"])
def test_gradients_are_those_of_the_plain_model(family: str) -> None:
    plain, exact = _model(FAMILIES[family]), _model(FAMILIES[family])
    ids_N = torch.arange(11, device=DEVICE)
    _logits(plain, ids_N).logsumexp(-1).mean().backward()
    with ExactMode():
        _logits(exact, ids_N).logsumexp(-1).mean().backward()
    for (name, wanted), got in zip(plain.named_parameters(), exact.parameters()):
        assert wanted.grad is not None
        assert got.grad is not None, name
        torch.testing.assert_close(got.grad, wanted.grad, rtol=1e-4, atol=1e-5, msg=name)


X, W, B, LEFT = _random(3, 5, 24), _random(7, 24), _random(7), _random(9, 5)
NORM, SHIFT = _random(24) + 1, _random(24)
CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda x: F.linear(x, W, B),
    "linear of a vector": lambda x: F.linear(x[0, 0], W),
    "matmul": lambda x: x @ W.t(),
    "matmul of a vector": lambda x: torch.matmul(x, W[0]),
    "vector first": lambda x: x[0, 0] @ W.t(),
    "matrix first": lambda x: LEFT @ x,
    "outer product": lambda x: x[:, :1].mT @ x[:, 1:2],
    "mm": lambda x: x[0].mm(W.t()),
    "addmm": lambda x: torch.addmm(B, x[0], W.t()),
    "mean": lambda x: x.mean(-1, keepdim=True),
    "mean of all": lambda x: torch.mean(x),
    "mean of two dimensions": lambda x: x.mean((0, 2)),
    "mean in float64": lambda x: x.mean(1, dtype=torch.float64),
    "sum": lambda x: x.sum(dim=1),
    "sum of nothing": lambda x: x[:0].sum(-1),
    "count": lambda x: (x > 0).sum(-1) + (x > 0).sum(),
    "softmax": lambda x: F.softmax(x, dim=-1, dtype=torch.float32),
    "softmax method": lambda x: x.softmax(1),
    "log_softmax": lambda x: torch.log_softmax(x, -1),
    "logsumexp": lambda x: x.logsumexp(-1),
    "logsumexp of -inf": lambda x: x.masked_fill(x < 2, -torch.inf).logsumexp(-1, keepdim=True),
    "rms_norm": lambda x: F.rms_norm(x, (24,), NORM, eps=1e-3),
    "rms_norm module": lambda x: nn.RMSNorm(24, device=DEVICE)(x),
    "layer_norm": lambda x: F.layer_norm(x, (24,), NORM, SHIFT),
    "layer_norm of two dimensions": lambda x: F.layer_norm(x, (5, 24)),
}


@pytest.mark.parametrize("name", CALLS)
def test_each_function_gives_what_torch_gives(name: str) -> None:
    wanted = CALLS[name](X)
    with ExactMode():
        got = CALLS[name](X)
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "name", [name for name in CALLS if name not in ("count", "sum of nothing", "logsumexp of -inf")]
)
def test_each_function_has_torchs_gradient(name: str) -> None:
    grads = []
    for mode in (torch.enable_grad(), ExactMode()):
        x = X.clone().requires_grad_()
        with mode:
            y = CALLS[name](x)
        y.backward(torch.linspace(-1, 2, y.numel(), device=DEVICE, dtype=y.dtype).view(y.shape))
        grads.append(x.grad)
    torch.testing.assert_close(grads[1], grads[0], rtol=1e-5, atol=1e-5)


def test_frozen_weights_get_no_gradient() -> None:
    x, w = X.clone().requires_grad_(), W.clone()
    exact_linear(x, w).sum().backward()
    torch.testing.assert_close(x.grad, w.sum(0).expand_as(x))
    assert w.grad is None


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.bmm(X, X.mT),
        lambda: X @ X.mT,
        lambda: torch.einsum("bij,bkj->bik", X, X),
        lambda: X.norm(dim=-1),
        lambda: F.normalize(X),
        lambda: F.conv1d(X, X[:, :5]),
        lambda: torch.addmm(B, X[0], W.t(), beta=2),
    ],
)
def test_what_cannot_be_exact_is_refused(call: Callable[[], Tensor]) -> None:
    with ExactMode(), pytest.raises(UserError, match=r"worker\.rollout\.exact: this model calls"):
        call()
