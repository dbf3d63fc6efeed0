"""Muon for the matrices of layers, AdamW for the rest (Jordan et al., 2024; Liu et al., 2025).

Muon's update of a matrix is its momentum with all singular values near 1. It is meant for matrices between hidden
states: embeddings, the output head, norms and biases are AdamW's. Muon's step is scaled to the size that AdamW's would
have (`match_rms_adamw`), so one learning rate serves both.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from whet.config.schema.model import OptimConfig

MOMENTUM = 0.95


class MuonAdamW(torch.optim.Optimizer):
    """Two optimizers of torch's behind one interface; parameter group 0 is Muon's, 1 AdamW's."""

    def __init__(self, matrices: list[nn.Parameter], others: list[nn.Parameter], config: OptimConfig) -> None:
        settings: dict[str, Any] = {"lr": config.lr, "weight_decay": config.weight_decay}
        self._parts: list[torch.optim.Optimizer] = []
        if matrices:
            self._parts.append(
                torch.optim.Muon(matrices, momentum=MOMENTUM, adjust_lr_fn="match_rms_adamw", **settings)
            )
        if others:
            betas = (config.betas[0], config.betas[1])
            self._parts.append(torch.optim.AdamW(others, betas=betas, fused=True, **settings))
        super().__init__([group for part in self._parts for group in part.param_groups], {})
        self._link()

    def step(self, closure: Any = None) -> Any:
        """Update all parameters that have a gradient."""
        loss = closure() if closure is not None else None
        for part in self._parts:
            part.step()
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what `state_dict` returned."""
        super().load_state_dict(state_dict)
        self._link()

    def _link(self) -> None:
        """Have the parts work on this object's groups and state, which are what is saved, offloaded and set."""
        for part, group in zip(self._parts, self.param_groups, strict=True):
            part.param_groups, part.state = [group], self.state


def hidden_matrices(model: nn.Module) -> set[nn.Parameter]:
    """Return the trained matrices that map hidden states to hidden states: no embedding and no output head."""
    outside = {id(p) for module in model.modules() if isinstance(module, nn.Embedding) for p in module.parameters()}
    for name, module in model.named_modules():
        if name.rpartition(".")[2] in ("lm_head", "head"):
            outside |= {id(p) for p in module.parameters()}
    return {p for p in model.parameters() if p.requires_grad and p.ndim == 2 and id(p) not in outside}
