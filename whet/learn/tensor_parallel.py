"""Tensor parallelism: linear layers of a decoder split over a group of ranks, by the plan of the model's own config.

Every parameter becomes a DTensor over the group: sharded where transformers' `base_model_tp_plan` shards it, replicated
elsewhere (embedding, norms, output head). Experts of a mixture are distributed whole, some to each rank (expert
parallelism); routers are replicated. During its forward a module sees its rank's shard as an ordinary tensor, so that
nothing is computed on DTensors. As in Megatron, a row-wise layer all-reduces its outputs, and a column-wise layer the
gradients of its inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle, parallelize_module
from transformers import PretrainedConfig

from whet.errors import UserError

KEY = "worker.actor.tensor_parallel_size"
_LAYERS = "layers.*."  # before the names of a layer's modules in a plan
Made = dict[nn.Parameter, nn.Parameter]  # original -> distributed parameter, so that tied ones stay tied


@dataclass(eq=False)
class Split(ParallelStyle):
    """Placement of one module's parameters over ranks, and what is all-reduced around its forward."""

    weight: int | None = None  # the sharded dimension of the weight
    bias: int | None = None
    sums_gradients: bool = False  # column-wise: all ranks read the same input, each for a part of the output
    sums_outputs: bool = False  # row-wise: each rank's output is a summand of the whole
    on_part: bool = False  # a replicated parameter that each rank applies to its own part of the activations
    experts: bool = False
    made: Made = field(default_factory=dict)

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        """Distribute the module's own parameters and register hooks around its forward."""
        for name, p in list(module.named_parameters(recurse=False)):
            if p not in self.made:
                parted = distribute_tensor(p.detach(), device_mesh, [self._placement(name)], src_data_rank=None)
                self.made[p] = nn.Parameter(parted, p.requires_grad)
            setattr(module, name, self.made[p])
        hooks = _ForwardHooks(self, device_mesh.get_group(), device_mesh.size())
        module.register_forward_pre_hook(hooks.enter)
        module.register_forward_hook(hooks.leave, always_call=True)  # recomputation ends a forward by an exception
        return module

    def _placement(self, name: str) -> Placement:
        cut = self.bias if name == "bias" else self.weight
        return Replicate() if cut is None else Shard(cut)


class _ForwardHooks:
    """Hooks around the forward of a module with distributed parameters; while they are gathered, they do nothing."""

    def __init__(self, split: Split, group: dist.ProcessGroup, size: int) -> None:
        self._split, self._group, self._size = split, group, size
        self._chosen: _Chosen | None = None

    def enter(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Have the module see its shards as ordinary tensors."""
        # 1. An attribute hides the parameter of the same name, which FSDP and optimizers still find.
        distributed = {name: p for name, p in module.named_parameters(recurse=False) if isinstance(p, DTensor)}
        for name, p in distributed.items():
            module.__dict__[name] = self._own(name, p)
        count = 0
        if self._split.experts:
            held = next(module.parameters(recurse=False))
            count = len(held.to_local() if isinstance(held, DTensor) else held)
            setattr(module, "num_experts", count)  # noqa: B010
        if not distributed:
            return args
        # 2. Inputs that all ranks read: their gradients are summed over ranks in the backward pass.
        if self._split.sums_gradients:
            args = tuple(_Read.apply(x, self._group) if _floats(x) else x for x in args)
        # 3. Of each token's K chosen experts, keep those of this rank.
        if self._split.experts:
            hidden_NH, index_NK, weights_NK = args
            self._chosen = _Chosen(hidden_NH, index_NK, weights_NK, dist.get_rank(self._group), count)
            args = self._chosen.args
        return args

    def leave(self, module: nn.Module, args: tuple[Any, ...], out: Tensor | None) -> Tensor | None:
        """Remove the attributes of `enter`, and sum the outputs over ranks if they are summands."""
        own = [module.__dict__.pop(name, None) for name, _ in module.named_parameters(recurse=False)]
        chosen, self._chosen = self._chosen, None
        if out is None or not any(each is not None for each in own):
            return out
        out = chosen.back(out) if chosen is not None else out
        return _Sum.apply(out, self._group) if self._split.sums_outputs else out

    def _own(self, name: str, p: DTensor) -> Tensor:
        # Outputs are summed over ranks, so that every rank adds its fraction of a replicated bias.
        if name == "bias" and self._split.sums_outputs and self._split.bias is None:
            return p.to_local(grad_placements=[Partial()]) / self._size
        return p.to_local(grad_placements=[Partial()]) if self._split.on_part else p.to_local()


class _Chosen:
    """The (token, expert) pairs whose expert is on this rank, as arguments of the experts' forward.

    N tokens choose K experts each; P pairs are this rank's. Each pair becomes a row with one expert.
    """

    def __init__(self, hidden_NH: Tensor, index_NK: Tensor, weights_NK: Tensor, rank: int, count: int) -> None:
        # 1. Expert numbers on this rank, 0 to count − 1; others are not here, and weigh 0.
        own_NK = index_NK - rank * count
        mine_NK = (own_NK >= 0) & (own_NK < count)
        weights_NK = torch.where(mine_NK, weights_NK, 0.0)
        # 2. Pairs (P, 2) of token and choice. Without any, one of weight 0: other ranks wait for this one's gradients.
        pairs = mine_NK.nonzero()
        if not len(pairs):
            pairs, own_NK = pairs.new_zeros(1, 2), torch.zeros_like(own_NK)
        # 3. Hidden states (P, H), expert (P, 1) and weight (P, 1) of each pair.
        self._at = tuple(pairs.unbind(1))
        self._shape = index_NK.shape
        self.args = (hidden_NH[self._at[0]], own_NK[self._at].unsqueeze(1), weights_NK[self._at].unsqueeze(1))

    def back(self, out_PH: Tensor) -> Tensor:
        """Return (N, H): the sum over each token's pairs."""
        # Index P is a row of zeros, for choices that are not on this rank.
        rows_NK = torch.full(self._shape, len(out_PH), device=out_PH.device)
        rows_NK[self._at] = torch.arange(len(out_PH), device=out_PH.device)
        return nn.functional.pad(out_PH, (0, 0, 0, 1))[rows_NK].sum(dim=1)


def split_layer(layer: nn.Module, config: PretrainedConfig, mesh: DeviceMesh) -> None:
    """Split a decoder layer over the ranks of a one-dimensional mesh, in place."""
    plan = {name.removeprefix(_LAYERS): style for name, style in plan_of(config) if name.startswith(_LAYERS)}
    present = {name for name, _ in layer.named_modules()}  # a plan may be for layers of several kinds
    styles = {name: _STYLES[style] for name, style in plan.items() if name in present}
    made: Made = {}
    chosen = {name: _choose(layer, name, styles, config, made) for name in _holders(layer)}
    parallelize_module(layer, mesh, dict(chosen))


def replicate_rest(model: nn.Module, mesh: DeviceMesh) -> None:
    """Replicate all parameters that no layer has split; tied ones stay tied."""
    made: Made = {}
    for module in model.modules():
        if any(not isinstance(p, DTensor) for p in module.parameters(recurse=False)):
            parallelize_module(module, mesh, Split(made=made))


def plan_of(config: PretrainedConfig) -> list[tuple[str, str]]:
    """Return the (module, style) pairs of the plan of a model's config; `UserError` if it cannot be followed."""
    text = config.get_text_config()
    plan: dict[str, str] = getattr(text, "base_model_tp_plan", None) or {}
    if not any(name.startswith(_LAYERS) for name in plan):
        raise UserError(f"{KEY}: transformers has no plan by which {text.model_type} could be cut; leave it at 1")
    experts = [f"{name}." for name, style in plan.items() if style == _EXPERTS]
    followed = [(name, style) for name, style in plan.items() if not name.startswith(tuple(experts))]
    for name, style in followed:
        if name.startswith(_LAYERS) and style not in _STYLES:
            raise UserError(
                f"{KEY}: transformers' plan for {text.model_type} cuts {name} as {style}, which whet cannot do; "
                "leave it at 1"
            )
    return followed


def _holders(layer: nn.Module) -> Iterator[str]:
    """Return the names of modules with parameters of their own."""
    return (name for name, module in layer.named_modules() if next(module.parameters(recurse=False), None) is not None)


def _choose(
    layer: nn.Module, name: str, styles: dict[str, dict[str, Any]], config: PretrainedConfig, made: Made
) -> Split:
    """Choose how to split a module: by the plan, as an adapter of a planned module, or not at all."""
    if name in styles:
        return Split(**styles[name], made=made)
    for planned, style in styles.items():
        inner = name.removeprefix(f"{planned}.")
        if inner != name:
            return Split(**_adapter(inner, style), made=made)
    parent = name.rpartition(".")[0]
    beside = [style for planned, style in styles.items() if planned.rpartition(".")[0] == parent]
    if _COLUMNS in beside:  # it reads activations of one rank; a norm of a head's size reads them head by head
        text = config.get_text_config()
        head = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        if any(p.shape != (head,) for p in layer.get_submodule(name).parameters(recurse=False)):
            raise UserError(f"{KEY}: transformers' plan for {text.model_type} leaves out {name}; leave it at 1")
        return Split(on_part=True, made=made)
    return Split(made=made)


def _adapter(inner: str, style: dict[str, Any]) -> dict[str, Any]:
    """Return the style of a part of an adapted layer: the base layer's, or that of the adapter's product beside it."""
    part = inner.partition(".")[0]
    if part == "base_layer" or (part, style) in (("lora_B", _COLUMNS), ("lora_A", _ROWS)):
        return style
    return {}


def _floats(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()


class _Read(torch.autograd.Function):
    """Identity forward; backward, the sum of the gradients over ranks."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        summed = grad.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(summed, group=ctx.group)
        return summed, None


class _Sum(torch.autograd.Function):
    """Sum over ranks forward; identity backward, as the gradient is the same on all ranks."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        summed = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(summed, group=group)
        return summed

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        return grad, None


_COLUMNS: dict[str, Any] = {"weight": 0, "bias": 0, "sums_gradients": True}
_ROWS: dict[str, Any] = {"weight": 1, "sums_outputs": True}
_EXPERTS = "moe_tp_experts"
_STYLES: dict[str, dict[str, Any]] = {
    "colwise": _COLUMNS,
    "rowwise": _ROWS,
    "replicated_with_grad_allreduce": {"on_part": True},
    _EXPERTS: {"weight": 0, "bias": 0, "sums_gradients": True, "sums_outputs": True, "experts": True},
}
