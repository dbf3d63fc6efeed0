"""Forward passes of a model whose parameters are sharded over devices (FSDP2).

FSDP gathers the parameters of a module when it is called. whet never calls a causal model itself, only the decoder in
it, and reads the output matrix on its own: `gathered_pass` is a call that holds the parameters outside the layers
(embedding, last norm, head) together from its beginning until the end of the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

T = TypeVar("T")
METHOD = "gathered_pass"  # an attribute of sharded models


def gathered_pass(model: nn.Module, forward: Callable[[], T]) -> T:
    """Call `forward` with the parameters outside the layers gathered where they are sharded; return its tensors.

    They stay so for what reads the head afterwards: until the backward pass is over, or `part` is called.
    """
    method = getattr(model, METHOD, None)
    return forward() if method is None else method(forward)


def sharded_modules(model: nn.Module) -> list[FSDPModule]:
    """The modules that gather and free parameters of their own, the outermost first; none where all is in one place."""
    return [module for module in model.modules() if isinstance(module, FSDPModule)]


def part(model: nn.Module) -> None:
    """Free what passes without gradient gathered; each rank keeps its shard."""
    for module in sharded_modules(model):
        module.reshard()


def local(tensor: Tensor) -> Tensor:
    """This rank's shard of a tensor, in the same memory; the tensor itself where it is not sharded."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
