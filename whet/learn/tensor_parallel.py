"""Tensor parallelism: the products of a decoder layer cut over a group of ranks, by the plan its own config publishes.

Every parameter becomes a DTensor over the group: cut where transformers' `base_model_tp_plan` cuts it, whole on each
rank elsewhere (embedding, norms, output head). Experts of a mixture are dealt out whole, some to each rank (expert
parallelism); routers stay whole. For the time of a call a module sees its rank's part as an ordinary tensor, so that
nothing is computed on DTensors; the group adds up what products over cut rows give, and gradients of what all read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

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
Made = dict[nn.Parameter, nn.Parameter]  # parameters that were cut, so that tied ones stay one


@dataclass(eq=False)
class Cut(ParallelStyle):
    """How the parameters of one module lie on the ranks, and what they add up around a call of it."""

    weight: int | None = None  # the dimension of the weight that is cut
    bias: int | None = None
    sums_gradients: bool = False  # all ranks read the same input, each for a part of the output
    sums_outputs: bool = False  # each rank's output is a summand of the whole
    on_part: bool = False  # a whole parameter that each rank applies to another part of the activations
    experts: bool = False
    made: Made = field(default_factory=dict)

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        """Distribute the module's own parameters and watch over its calls."""
        for name, p in list(module.named_parameters(recurse=False)):
            if p not in self.made:
                parted = distribute_tensor(p.detach(), device_mesh, [self._placement(name)], src_data_rank=None)
                self.made[p] = nn.Parameter(parted, p.requires_grad)
            setattr(module, name, self.made[p])
        call = _Call(self, device_mesh.get_group(), device_mesh.size())
        module.register_forward_pre_hook(call.enter)
        module.register_forward_hook(call.leave, always_call=True)  # recomputation ends a call by an exception
        return module

    def _placement(self, name: str) -> Placement:
        cut = self.bias if name == "bias" else self.weight
        return Replicate() if cut is None else Shard(cut)


class _Call:
    """What happens before and after a module with parted parameters computes; with whole ones, nothing."""

    def __init__(self, cut: Cut, group: dist.ProcessGroup, size: int) -> None:
        self._cut, self._group, self._size = cut, group, size
        self._chosen: _Chosen | None = None

    def enter(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Show the module its part as ordinary tensors."""
        parted = {name: p for name, p in module.named_parameters(recurse=False) if isinstance(p, DTensor)}
        for name, p in parted.items():
            # An attribute goes before the parameter of the same name, which FSDP and optimizers still find.
            module.__dict__[name] = self._own(name, p)
        if self._cut.experts:
            held = next(module.parameters(recurse=False))
            setattr(module, "num_experts", len(held.to_local() if isinstance(held, DTensor) else held))  # noqa: B010
        if not parted:
            return args
        if self._cut.sums_gradients:
            args = tuple(_Read.apply(x, self._group) if _floats(x) else x for x in args)
        if self._cut.experts:
            hidden_NH, index_NK, weights_NK = args
            count = cast(int, module.num_experts)
            self._chosen = _Chosen(hidden_NH, index_NK, weights_NK, dist.get_rank(self._group), count)
            args = self._chosen.args
        return args

    def leave(self, module: nn.Module, args: tuple[Any, ...], out: Tensor | None) -> Tensor | None:
        """Hide it again, and add up what the ranks have."""
        own = [module.__dict__.pop(name, None) for name, _ in module.named_parameters(recurse=False)]
        chosen, self._chosen = self._chosen, None
        if out is None or not any(each is not None for each in own):
            return out
        out = chosen.back(out) if chosen is not None else out
        return _Sum.apply(out, self._group) if self._cut.sums_outputs else out

    def _own(self, name: str, p: DTensor) -> Tensor:
        if name == "bias" and self._cut.sums_outputs and self._cut.bias is None:  # of which every rank adds its share
            return p.to_local(grad_placements=[Partial()]) / self._size
        return p.to_local(grad_placements=[Partial()]) if self._cut.on_part else p.to_local()


class _Chosen:
    """The choices of experts that fall on this rank's, each a row of its own, as a call of the experts."""

    def __init__(self, hidden_NH: Tensor, index_NK: Tensor, weights_NK: Tensor, rank: int, count: int) -> None:
        own_NK = index_NK - rank * count
        mine_NK = (own_NK >= 0) & (own_NK < count)
        weights_NK = torch.where(mine_NK, weights_NK, 0.0)
        pairs = mine_NK.nonzero()
        if not len(pairs):  # one that counts for nothing: other ranks wait for the gradients of this one
            pairs, own_NK = pairs.new_zeros(1, 2), torch.zeros_like(own_NK)
        self._at = tuple(pairs.unbind(1))
        self._shape = index_NK.shape
        self.args = (hidden_NH[self._at[0]], own_NK[self._at].unsqueeze(1), weights_NK[self._at].unsqueeze(1))

    def back(self, out_PH: Tensor) -> Tensor:
        """(N, H): the sum of each token's choices."""
        rows_NK = torch.full(
            self._shape, len(out_PH), device=out_PH.device
        )  # where there is none, the zeros at the end
        rows_NK[self._at] = torch.arange(len(out_PH), device=out_PH.device)
        return nn.functional.pad(out_PH, (0, 0, 0, 1))[rows_NK].sum(dim=1)


def cut_layer(layer: nn.Module, config: PretrainedConfig, mesh: DeviceMesh) -> None:
    """Cut a decoder layer over the ranks of a mesh of one dimension, in place."""
    plan = {name.removeprefix(_LAYERS): style for name, style in plan_of(config) if name.startswith(_LAYERS)}
    there = {name for name, _ in layer.named_modules()}  # a plan may be for layers of several kinds
    styles = {name: _STYLES[style] for name, style in plan.items() if name in there}
    made: Made = {}
    chosen = {name: _choose(layer, name, styles, config, made) for name in _holders(layer)}
    parallelize_module(layer, mesh, dict(chosen))


def keep_whole(model: nn.Module, mesh: DeviceMesh) -> None:
    """Let every rank hold all of the parameters that no layer was cut by; tied ones stay one."""
    made: Made = {}
    for module in model.modules():
        if any(not isinstance(p, DTensor) for p in module.parameters(recurse=False)):
            parallelize_module(module, mesh, Cut(made=made))


def plan_of(config: PretrainedConfig) -> list[tuple[str, str]]:
    """The plan of a model's config, which must be one that can be followed."""
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
    """Names of modules with parameters of their own."""
    return (name for name, module in layer.named_modules() if next(module.parameters(recurse=False), None) is not None)


def _choose(
    layer: nn.Module, name: str, styles: dict[str, dict[str, Any]], config: PretrainedConfig, made: Made
) -> Cut:
    """How to cut a module: as the plan says, as adapters of what the plan says, or not at all."""
    if name in styles:
        return Cut(**styles[name], made=made)
    for planned, style in styles.items():
        inner = name.removeprefix(f"{planned}.")
        if inner != name:
            return Cut(**_adapter(inner, style), made=made)
    parent = name.rpartition(".")[0]
    beside = [style for planned, style in styles.items() if planned.rpartition(".")[0] == parent]
    if _COLUMNS in beside:  # it reads what only one rank has; a norm of a head's size does so head by head
        text = config.get_text_config()
        head = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        if any(p.shape != (head,) for p in layer.get_submodule(name).parameters(recurse=False)):
            raise UserError(f"{KEY}: transformers' plan for {text.model_type} leaves out {name}; leave it at 1")
        return Cut(on_part=True, made=made)
    return Cut(made=made)


def _adapter(inner: str, style: dict[str, Any]) -> dict[str, Any]:
    """The layer under adapters is cut as planned; of the two products of an adapter, the one on the same side is."""
    part = inner.partition(".")[0]
    if part == "base_layer" or (part, style) in (("lora_B", _COLUMNS), ("lora_A", _ROWS)):
        return style
    return {}


def _floats(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()


class _Read(torch.autograd.Function):
    """What all ranks read: the same forward; backward, the sum of what each of them made of it."""

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
    """The sum over ranks forward; backward, the gradient that all of them have."""

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
