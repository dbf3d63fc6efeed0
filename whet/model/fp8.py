"""Projections of a decoder in 8-bit floats: weights rounded by row, activations by token, as the sampler may compute.

`with Fp8Mode(weights):` routes the products with a model's decoder weights to FP8, through torch's published override
interface: in the fused decoder and in the model's own modules alike. On a GPU that is `torch._scaled_mm`, a kernel for
few rows (`whet/kernels/fp8_product.py`), or the grouped product of a mixture's experts, which only the fused decoder
has; elsewhere both factors are rounded as on a GPU and multiplied in their own dtype. Embeddings, norms, attention, the
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
GROUPED = "whet.kernels.grouped"  # by name: it imports triton, which not every machine has
_LARGEST = 448.0
_BESIDE = (("q_proj", "k_proj", "v_proj"), ("o_proj",), ("gate_proj", "up_proj"), ("down_proj",))


class Rounded(NamedTuple):
    """A weight (O, I) in e4m3 and the scales (O, 1) of its rows."""

    q_OI: Tensor
    scale_O1: Tensor

    def widened(self, dtype: torch.dtype) -> Tensor:
        """The rounded weight in another dtype."""
        return (self.q_OI.float() * self.scale_O1).to(dtype)


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
        return F.linear(x.widened(x_NI.dtype), weight.widened(x_NI.dtype), bias_O)
    from whet.kernels.fp8_product import few_rows_product, suits

    if suits(len(x_NI), len(weight.q_OI)):
        out = few_rows_product(*x, *weight)
    else:  # with scales of rows, torch returns bf16 only
        out = torch._scaled_mm(
            x.q_OI, weight.q_OI.t(), x.scale_O1, weight.scale_O1.t(), out_dtype=torch.bfloat16, use_fast_accum=True
        )
    out = out.to(x_NI.dtype)
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


class Place(NamedTuple):
    """A parameter by its name, since whoever lays out memory may put another tensor there."""

    module: nn.Module
    name: str

    @property
    def rows(self) -> Tensor:
        """Its rows (O, I): those of all experts, one after the other, where it has three dimensions."""
        return cast(Tensor, getattr(self.module, self.name)).detach().flatten(0, -2)


class Fp8Weights:
    """A model's decoder weights in FP8, beside the weights themselves; `refresh` follows their changes.

    Tensors stay where they are, so that captured graphs can hold them. Weights are told apart by their address and
    rows: projections of one input that lie adjacent in memory are also one weight.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        """Raise a `UserError` for a model that has no form in FP8."""
        fused = decoder_of(model) is not None
        if mixtures(model) and not fused:
            raise UserError(f"{KEY}: mixtures of experts need fused kernels, and so a GPU; set it to null")
        if model.device.type == "cuda" and not fused:
            raise UserError(f"{KEY}: on a GPU it needs a model that runs by fused kernels; set it to null")
        if model.device.type == "cuda" and torch.cuda.get_device_capability(model.device) < (8, 9):
            raise UserError(f"{KEY}: this GPU has no products in FP8; set it to null")
        self._groups = [group for group in _places(model) if _fits(group)]
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
            parts = [place.rows for place in group]
            whole = rounded(parts[0] if len(parts) == 1 else torch.cat(parts))
            if i == len(self._kept):
                self._kept.append(whole)
            for mine, theirs in zip(self._kept[i], whole):
                mine.view(torch.uint8).copy_(theirs.view(torch.uint8))
            for key, part in _keys(group):
                table[key] = Rounded(*(each[part] for each in self._kept[i]))
        self.table = table


def _places(model: PreTrainedModel) -> Iterator[list[Place]]:
    """The weights of the decoder's linear layers, those that read the same input together; of a mixture, the experts'.

    Beside experts the projections of attention are small: in FP8 they take as long, and round for nothing.
    """
    if blocks := mixtures(model):
        for block in blocks:
            yield from ([Place(block.experts, name)] for name in ("gate_up_proj", "down_proj"))
        return
    for layer in cast(Any, text_model(model)).layers:
        for part, names in zip((layer.self_attn, layer.self_attn, layer.mlp, layer.mlp), _BESIDE):
            found = [Place(base_of(getattr(part, name)), "weight") for name in names if hasattr(part, name)]
            if found:
                yield found


def _fits(group: list[Place]) -> bool:
    """Products in FP8 want sizes that are multiples of 16."""
    return all(size % 16 == 0 for place in group for size in place.rows.shape)


def _keys(group: list[Place]) -> Iterator[tuple[tuple[int, int], slice]]:
    """Address and number of rows of every weight of a group, and of all of them as one; and which rows those are."""
    start, first = 0, group[0].rows.data_ptr()
    for place in group:
        rows = place.rows
        yield (rows.data_ptr(), len(rows)), slice(start, start + len(rows))
        start += len(rows)
    yield (first, start), slice(0, start)


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
        if func is F.linear:
            return self._linear(*args, **(kwargs or {}))
        if getattr(func, "__module__", None) == GROUPED:
            return self._grouped(func, *args)
        return func(*args, **(kwargs or {}))

    def _grouped(self, func: Callable[..., Tensor], x: Tensor, weight_EOI: Tensor, *how: Any) -> Tensor:
        """A product of `whet/kernels/grouped.py`, whose last argument is for scales."""
        rows = weight_EOI.shape[0] * weight_EOI.shape[1]
        key = (weight_EOI.data_ptr(), rows)
        if key not in self._addresses or not weight_EOI.is_contiguous():
            return func(x, weight_EOI, *how)
        found = rounded(weight_EOI.detach().flatten(0, 1)) if self._live else self._weights.table[key]
        mine = rounded(x)
        if x.device.type != "cuda":
            return func(mine.widened(x.dtype), found.widened(x.dtype).view_as(weight_EOI), *how)
        scales = (mine.scale_O1, found.scale_O1)
        return func(mine.q_OI, found.q_OI.view_as(weight_EOI), *how[:-1], scales).to(x.dtype)

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
