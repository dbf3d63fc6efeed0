"""The updates of a training step, one per mini-batch: what the policy and the critic share."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from whet.config.schema.actor import ActorConfig, CriticConfig
from whet.learn.finite import broken_weights
from whet.learn.full_state import check_optimizer_state, full_optimizer_state, load_optimizer_state
from whet.learn.offload import Offload, optimizer_tensors, with_weights_on_device
from whet.learn.optimizer import build_optimizer, learning_rate, sum_gradients_in_fp32, widen_gradients
from whet.learn.partition import passes
from whet.learn.ranks import ranks_of
from whet.model import torch_file
from whet.types import Sample

Progress = Callable[[int], None]
# a micro-batch and its rows of the mini-batch -> its share of the mini-batch's loss and metrics
MicroStep = Callable[[list[Sample], list[int]], tuple[Tensor, dict[str, Tensor]]]
# rows of the batch that form a mini-batch, and whether no update came before it in this step -> what to do with its
# micro-batches, or None where nothing is left to train on
BeginMiniBatch = Callable[[list[int], bool], MicroStep | None]


@dataclass(frozen=True, slots=True)
class Budget:
    """How much of a batch goes through the model at once."""

    tokens_update: int | None  # None counts samples instead
    tokens_experience: int | None
    recompute: bool = True  # whether memory needs gradient checkpointing; the config's true or false goes before it


class Updates:
    """Owns the optimizer of a model; its metrics begin with `name`."""

    def __init__(
        self, name: str, model: nn.Module, config: ActorConfig | CriticConfig, total_steps: int, budget: Budget
    ) -> None:
        self._name, self._model, self._config = name, model, config
        self._total_steps, self._budget = total_steps, budget
        sum_gradients_in_fp32(model.parameters())
        self.optimizer = build_optimizer(model.parameters(), config.optim)
        self.offload = Offload(lambda: optimizer_tensors(self.optimizer), config.offload.offload_optimizer)
        self.idle = False  # whether the current pass counts for nothing, and only keeps step with other ranks

    def configure(self, config: ActorConfig | CriticConfig, budget: Budget) -> None:
        """Go on under another config of the same optimizer."""
        self._config, self._budget = config, budget

    @with_weights_on_device
    def run(
        self,
        samples: Sequence[Sample],
        begin: BeginMiniBatch,
        step: int,
        mini_batch: int,
        progress: Progress | None = None,
    ) -> dict[str, float]:
        """`ppo_epochs` passes over all samples, with one optimizer step per `mini_batch` of them."""
        lr = learning_rate(step, self._total_steps, self._config.optim)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        rows = list(range(len(samples)))
        minis = [rows[i : i + mini_batch] for i in range(0, len(rows), mini_batch)]
        history: defaultdict[str, list[float]] = defaultdict(list)
        self._model.train()
        for epoch in range(self._config.ppo_epochs):
            for i, mini in enumerate(minis):
                micro_step = begin(mini, epoch == 0 and i == 0)
                history[f"{self._name}/update_skipped"].append(float(micro_step is None))
                if micro_step is None:
                    continue  # even a gradient of 0 would move the weights: by decay, and by what came before
                for name, value in self._mini_batch([samples[row] for row in mini], micro_step, progress).items():
                    history[f"{self._name}/{name}"].append(value)
        self._model.eval()
        metrics = {name: sum(values) / len(values) for name, values in history.items()}
        for skipped in (f"{self._name}/grad_skipped", f"{self._name}/update_skipped"):
            metrics[skipped] = sum(history[skipped])
        metrics[f"{self._name}/lr"] = lr
        if broken := broken_weights(self._model, trained_only=True):
            metrics[f"{self._name}/weights_not_finite"] = float(len(broken))
        return metrics

    def _mini_batch(self, chosen: list[Sample], micro_step: MicroStep, progress: Progress | None) -> dict[str, float]:
        # Nothing here waits for the device until all micro-batches are on their way.
        shares: list[dict[str, Tensor]] = []
        ranks, size = ranks_of(self._model), self._config.micro_batch_size_per_device_for_update
        planned = passes(ranks, chosen, self._config.share_prefix, self._budget.tokens_update, size)
        for rows, counts in planned.all():
            self.idle = not counts
            loss, metrics = micro_step([chosen[i] for i in rows], rows)
            (loss if counts else loss * 0.0).backward()
            widen_gradients(self._model.parameters())
            if counts:
                shares.append(metrics)
                if progress is not None:
                    progress(len(rows))
        self.idle = False
        norm = self._clip()
        grad_norm, *values = read([norm, *(value for metrics in shares for value in metrics.values())])
        finite = math.isfinite(grad_norm)
        if finite:
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        sums: defaultdict[str, float] = defaultdict(float)
        for name, value in zip((name for metrics in shares for name in metrics), values):
            sums[name] += value
        # A skipped update has no norm to average; its count says that it happened.
        return ranks.totals(sums) | ({"grad_skipped": 0.0, "grad_norm": grad_norm} if finite else {"grad_skipped": 1.0})

    def _clip(self) -> Tensor:
        """Scale gradients down to `max_grad_norm`; their norm before, over the shards of all ranks."""
        norm = ranks_of(self._model).norm([p.grad for p in self._model.parameters() if p.grad is not None])
        nn.utils.clip_grads_with_norm_(self._model.parameters(), self._config.max_grad_norm, norm)
        return norm

    @with_weights_on_device
    def save(self, folder: Path) -> None:
        """Write the optimizer's state to `folder`; every rank must call it, the first one writes."""
        ranks = ranks_of(self._model)
        state = full_optimizer_state(self.optimizer, ranks)
        if ranks.is_first:
            torch.save(state, folder / "optimizer.pt")

    @with_weights_on_device
    def load(self, folder: Path) -> None:
        """Read back what `save` wrote, with as many ranks or another number."""
        ranks = ranks_of(self._model)
        state = None
        if ranks.is_first:
            state = torch_file.load(folder / "optimizer.pt")
            check_optimizer_state(self.optimizer, state, folder / "optimizer.pt")
        chosen = [{name: each[name] for name in each if name != "params"} for each in self.optimizer.param_groups]
        load_optimizer_state(self.optimizer, state, ranks)
        for group, settings in zip(self.optimizer.param_groups, chosen):
            group.update(settings)  # a config that was changed since counts, not what the checkpoint was made with


def read(numbers: Sequence[Tensor | float]) -> list[float]:
    """Numbers from wherever they are, the first's device asked once for all of them."""
    device = torch.as_tensor(numbers[0]).device
    return torch.stack([torch.as_tensor(x, device=device).detach().reshape(()) for x in numbers]).tolist()


def largest(numbers: Sequence[float]) -> float:
    """The largest number, NaN if there is one among them, 0 of none."""
    return next((x for x in numbers if math.isnan(x)), max(numbers, default=0.0))


def make_trainable(model: PreTrainedModel, wanted: bool | None, budget: Budget) -> None:
    """Turn off dropout, whose noise would be taken for a change of the weights, and set up recomputation."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    recompute_activations(model, wanted, budget)


def recompute_activations(model: PreTrainedModel, wanted: bool | None, budget: Budget) -> None:
    """Turn gradient checkpointing on or off as `enable_gradient_checkpointing` says, else as the budget was planned."""
    if budget.recompute if wanted is None else wanted:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    elif model.is_gradient_checkpointing:
        model.gradient_checkpointing_disable()
