"""The tensors of a golden file, and what every kind of entry is computed with."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from whet.algos import LossInputs, Signals, find_advantage, find_policy_loss, needs_of, preparation_of
from whet.algos.aggregate import Aggregator, count
from whet.algos.quirks import quirks
from whet.config.schema.actor import ActorConfig
from whet.config.schema.algorithm import AlgorithmConfig
from whet.errors import UserError

# What an estimator may need: the field of Signals, and the input of a golden file.
_NEEDED = {
    "values": ("values_BT", "values"),
    "sum_pi_squared": ("sum_pi_squared_BT", "sum_pi_squared"),
    "baselines": ("baselines_B", "reward_baselines"),
}


class Inputs:
    """What a golden file was computed from, by its own names."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values
        shapes = {name: (len(rows), len(rows[0])) for name, rows in values.items() if _is_table(rows)}
        if len(set(shapes.values())) > 1:
            raise UserError(f"the inputs are not of one shape: {shapes}")

    def __getitem__(self, name: str) -> Tensor:
        """An array in the precision that the originals computed in."""
        if name not in self._values:
            raise UserError(f"the file has no input {name}")
        try:
            return torch.tensor(self._values[name], dtype=torch.float32)
        except (TypeError, ValueError) as error:
            raise UserError(f"input {name} is not an array of numbers") from error

    def groups(self, name: str) -> Tensor:
        """Group numbers for the group names of each row."""
        if name not in self._values:
            raise UserError(f"the file has no input {name}")
        numbers = {group: number for number, group in enumerate(dict.fromkeys(self._values[name]))}
        return torch.tensor([numbers[group] for group in self._values[name]])


def _is_table(rows: Any) -> bool:
    return isinstance(rows, list) and bool(rows) and isinstance(rows[0], list)


def advantage_of(name: str, signals: Signals, config: AlgorithmConfig, inputs: Inputs) -> dict[str, Tensor]:
    """Advantages and returns, as golden files name them; what the estimator needs besides comes from the inputs."""
    rows = len(signals.mask_BT)
    for need in needs_of(name):
        field, theirs = _NEEDED[need]
        setattr(signals, field, inputs[theirs][:rows])
    advantages_BT, returns_BT = find_advantage(name)(signals, config)
    return {"adv": advantages_BT, "ret": returns_BT}


def aggregator(mask_BT: Tensor, mode: str, match: str) -> Aggregator:
    """One mini-batch that holds every row, T being the longest response allowed."""
    return Aggregator(mode, count(mask_BT, horizon=mask_BT.shape[1]), quirks(match))


def loss_of(
    name: str, inputs: LossInputs, config: ActorConfig, mode: str, match: str
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The loss of a whole mini-batch with its gradient, and its metrics by our names."""
    prepare = preparation_of(name)
    inputs.prepared = prepare(inputs, config) if prepare else {}
    log_probs_BT = inputs.log_probs_BT.clone().requires_grad_()
    inputs.log_probs_BT = log_probs_BT
    loss, metrics = find_policy_loss(name)(inputs, config, aggregator(inputs.mask_BT, mode, match))
    (grad_BT,) = torch.autograd.grad(loss, log_probs_BT)
    return {"loss": loss.detach(), "grad": grad_BT}, metrics
