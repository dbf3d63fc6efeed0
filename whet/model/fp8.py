"""Projections of a decoder in 8-bit floats: weights rounded by row, activations by token, as the sampler may compute.

`with Fp8Mode(weights):` routes the products with a model's decoder weights to FP8, through torch's published override
interface: in the fused decoder and in the model's own modules alike. On a GPU that is `torch._scaled_mm`; elsewhere
both factors are rounded as it would round them and multiplied in their own dtype. Embeddings, norms, attention, the
output head, routers and adapters stay as they are. Gradients pass straight through the rounding: they are those of the
product as it is without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel

from whet.errors import UserError
from whet.model.fused import decoder_of
from whet.model.low_rank import base_of
from whet.model.modality import text_model
from whet.model.pass_modes import ROUNDING
from whet.model.routing import mixtures

KEY = "worker.rollout.quantization=fp8"
_LARGEST = 448.0
_BESIDE = (("q_proj", "k_proj", "v_proj"), ("o_proj",), ("gate_proj", "up_proj"), ("down_proj",))


class Rounded(NamedTuple):
    """A weight (O, I) in e4m3 and the scales (O, 1) of its rows."""

    q_OI: Tensor
    scale_O1: Tensor


def rounded(x_NK: Tensor) -> Rounded:
    """Round rows to e4m3, each with its own scale."""
    if x_NK.device.type == "cuda":
        from whet.kernels.fp8 import quantise_rows

        return Rounded(*quantise_rows(x_NK))
    scale = x_NK.float().abs().amax(1, keepdim=True).clamp_min(1e-12) / _LARGEST
    return Rounded((x_NK.float() / scale).to(torch.float8_e4m3fn), scale)


def _product(x_NI: Tensor, weight: Rounded, bias_O: Tensor | None) -> Tensor:
    x = rounded(x_NI)
    if x_NI.device.type != "cuda":
        x_rounded, weight_rounded = ((each.q_OI.float() * each.scale_O1).to(x_NI.dtype) for each in (x, weight))
        return F.linear(x_rounded, weight_rounded, bias_O)
    # With scales of rows, torch returns bf16 only.
    out = torch._scaled_mm(
        x.q_OI, weight.q_OI.t(), x.scale_O1, weight.scale_O1.t(), out_dtype=torch.bfloat16, use_fast_accum=True
    ).to(x_NI.dtype)
    return out if bias_O is None else out.add_(bias_O)


class _Linear(torch.autograd.Function):
    """The rounded product, with the gradients of the plain one."""

    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None, rounded: Rounded) -> Tensor:
        ctx.save_for_backward(x_NI, weight_OI)
        return _product(x_NI, rounded, bias_O)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_NO: Tensor) -> tuple[Tensor | None, ...]:
        (x_NI, weight_OI), needed = ctx.saved_tensors, ctx.needs_input_grad
        return (
            grad_NO @ weight_OI if needed[0] else None,
            grad_NO.t() @ x_NI if needed[1] else None,
            grad_NO.sum(0) if needed[2] else None,
            None,
        )


class Fp8Weights:
    """A model's decoder weights in FP8, beside the weights themselves; `refresh` follows their changes.

    Tensors stay where they are, so that captured graphs can hold them. Weights are told apart by their address and
    rows: projections of one input that lie adjacent in memory are also one weight.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        """Raise a `UserError` for a model that has no form in FP8."""
        if mixtures(model):
            raise UserError(f"{KEY}: mixtures of experts have no form in FP8 yet; set it to null")
        if model.device.type == "cuda" and decoder_of(model) is None:
            raise UserError(f"{KEY}: on a GPU it needs a model that runs by fused kernels; set it to null")
        if model.device.type == "cuda" and torch.cuda.get_device_capability(model.device) < (8, 9):
            raise UserError(f"{KEY}: this GPU has no products in FP8; set it to null")
        self._groups = [group for group in _projections(model) if _fits(group)]
        if not self._groups:
            raise UserError(f"{KEY}: no projection of this model has a form in FP8; set it to null")
        self._kept: list[Rounded] = []
        self.table: dict[tuple[int, int], Rounded] = {}

    @property
    def addresses(self) -> set[tuple[int, int]]:
        """Address and rows of every weight that is rounded, alone and with those beside it."""
        return {key for group in self._groups for key, _ in _keys(group)}

    @torch.no_grad()
    def refresh(self) -> None:
        """Round the weights as they are now."""
        table = {}
        for i, group in enumerate(self._groups):
            whole = rounded(torch.cat([linear.weight.detach() for linear in group]))
            if i == len(self._kept):
                self._kept.append(whole)
            for mine, theirs in zip(self._kept[i], whole):
                mine.view(torch.uint8).copy_(theirs.view(torch.uint8))
            for key, rows in _keys(group):
                table[key] = Rounded(*(each[rows] for each in self._kept[i]))
        self.table = table


def _projections(model: PreTrainedModel) -> Iterator[list[nn.Linear]]:
    """The linear layers of the decoder that read the same input, together."""
    for layer in cast(Any, text_model(model)).layers:
        for part, names in zip((layer.self_attn, layer.self_attn, layer.mlp, layer.mlp), _BESIDE):
            found = [base_of(getattr(part, name)) for name in names if hasattr(part, name)]
            if found:
                yield cast(list[nn.Linear], found)


def _fits(group: list[nn.Linear]) -> bool:
    """Products in FP8 want sizes that are multiples of 16."""
    return all(linear.weight.shape[0] % 16 == 0 and linear.weight.shape[1] % 16 == 0 for linear in group)


def _keys(group: list[nn.Linear]) -> Iterator[tuple[tuple[int, int], slice]]:
    """Address and number of rows of every weight of a group, and of all of them as one; and which rows those are."""
    start = 0
    for linear in group:
        rows = len(linear.weight)
        yield (linear.weight.data_ptr(), rows), slice(start, start + rows)
        start += rows
    yield (group[0].weight.data_ptr(), start), slice(0, start)


class Fp8Mode(TorchFunctionMode):
    """Inside it, products with a model's decoder weights are computed in FP8."""

    def __init__(self, weights: Fp8Weights, live: bool = False) -> None:
        """`live` rounds a weight whenever it is used: the learner's change with every step."""
        super().__init__()
        self._weights, self._live = weights, live
        self._addresses = weights.addresses

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run `func`, or the rounded product in its place; the mode is off meanwhile."""
        return self._linear(*args, **(kwargs or {})) if func is F.linear else func(*args, **(kwargs or {}))

    def _linear(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        key = (weight.data_ptr(), len(weight))
        if key not in self._addresses:
            return F.linear(input, weight, bias)
        found = rounded(weight.detach()) if self._live else self._weights.table[key]
        x_NI = input.reshape(-1, input.shape[-1])
        if torch.is_grad_enabled() and (input.requires_grad or weight.requires_grad):
            out_NO = _Linear.apply(x_NI, weight, bias, found)
        else:
            out_NO = _product(x_NI, found, bias)
        return out_NO.view(*input.shape[:-1], len(weight))


def round_alike(model: PreTrainedModel) -> None:
    """Let the learner's passes of a model round as a sampler in FP8 does, from now on."""
    ROUNDING[model] = Fp8Mode(Fp8Weights(model), live=True)
