"""The update: mini-batches, micro-batches, forward, loss, backward, optimizer step.

`TrainedModel.train_on` is the one training loop of the policy (`learner.py`), of the critic (`critic.py`) and of
supervised fine-tuning. What is minimised comes from an `Objective` (`protocol.py`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from whet.config.schema.actor import ActorConfig, CriticConfig
from whet.config.schema.model import ModelConfig
from whet.learn.offload import Offload, of_weights, optimizer_tensors, with_optimizer_on_device, with_weights_on_device
from whet.learn.optimizer import (
    broken_weights,
    build_optimizer,
    learning_rate,
    sum_gradients_in_fp32,
    widen_gradients,
)
from whet.learn.partition import Budget, passes
from whet.learn.protocol import Objective, Progress
from whet.learn.ranks import ranks_of
from whet.model.fused import decoder_of
from whet.model.pass_modes import OFFLOADING, recompute_contexts, rounds_alike
from whet.types import Sample

Model = TypeVar("Model", bound=nn.Module)
Outputs = TypeVar("Outputs")


class TrainedModel(ABC, Generic[Model, Outputs]):
    """A model, its optimizer and the training loop; names of metrics begin with `name`."""

    def __init__(
        self,
        name: str,
        model: Model,
        config: ActorConfig | CriticConfig,
        total_steps: int,
        budget: Budget,
        offload_weights: bool,
    ) -> None:
        self.model, self.config = model, config
        self._name, self._total_steps, self._budget = name, total_steps, budget
        self.offload = of_weights(model, offload_weights)
        sum_gradients_in_fp32(model.parameters())
        self.optimizer = build_optimizer(model.parameters(), config.optim, model)
        self.optimizer_offload = Offload(lambda: optimizer_tensors(self.optimizer), config.offload.offload_optimizer)

    @abstractmethod
    def forward(self, samples: list[Sample]) -> Outputs:
        """Run one packed micro-batch, with gradient."""

    @abstractmethod
    def current(self, samples: Sequence[Sample]) -> Tensor:
        """Return what `Objective.begin` may ask for: (B, T) of all samples, without gradient."""

    @with_weights_on_device
    @with_optimizer_on_device
    def train_on(
        self,
        samples: Sequence[Sample],
        objective: Objective[Outputs],
        step: int,
        mini_batch: int,
        progress: Progress | None = None,
        observe: Callable[[list[int], list[Sample], Outputs], None] | None = None,
    ) -> dict[str, float]:
        """Train on B samples: `ppo_epochs` passes, one optimizer step per `mini_batch` samples; return metrics.

        Every rank is given all samples. `observe` sees rows, samples and outputs of this rank's micro-batches in the
        first pass over the batch.
        """
        # 1. The learning rate is a function of the training step.
        lr = self._set_learning_rate(step)
        history: defaultdict[str, list[float]] = defaultdict(list)
        self.model.train()
        for epoch in range(self.config.ppo_epochs):
            for first in range(0, len(samples), mini_batch):
                # 2. A mini-batch: b consecutive rows of the B samples. The objective sees all of them, on every rank.
                rows = list(range(first, min(first + mini_batch, len(samples))))
                chosen = [samples[row] for row in rows]
                mini_batch_loss = objective.begin(rows, partial(self.current, chosen))
                history["update_skipped"].append(float(mini_batch_loss is None))
                if mini_batch_loss is None:
                    continue  # even a gradient of 0 would move the weights: by decay, and by earlier moments
                # 3. This rank's micro-batches: forward, loss, backward. `micro` are m indices into the b samples, whose
                #    outputs are (m, T), T the longest response among them. Losses are summands of the mini-batch's, so
                #    that gradients add up to its gradient. Nothing here waits for the device.
                parts: list[dict[str, Tensor]] = []
                for micro, counts in self._passes(chosen):
                    outputs = self.forward([chosen[i] for i in micro])
                    if observe is not None and counts and epoch == 0:
                        observe([first + i for i in micro], [chosen[i] for i in micro], outputs)
                    loss, metrics = mini_batch_loss.loss(outputs, micro)
                    del outputs  # the backward pass frees what it has used
                    # An idle pass keeps step with ranks that have more to do: they gather parameters together.
                    self._accumulate(loss if counts else loss * 0.0)
                    if counts:
                        parts.append(metrics)
                        if progress is not None:
                            progress(len(micro))
                # 4. One optimizer step, unless the gradient is not finite.
                for name, value in self._optimizer_step(parts).items():
                    history[name].append(value)
        self.model.eval()
        # 5. Metrics are means over mini-batches; skipped ones are counted.
        return self._summary(history, lr) | objective.metrics()

    def _set_learning_rate(self, step: int) -> float:
        lr = learning_rate(step, self._total_steps, self.config.optim)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        return lr

    def _passes(self, samples: list[Sample]) -> list[tuple[list[int], bool]]:
        """Return the rows of each micro-batch of this rank, and whether it counts."""
        size = self.config.micro_batch_size_per_device_for_update
        tokens = self._budget.tokens_update
        return passes(ranks_of(self.model), samples, self.config.share_prefix, tokens, size).all()

    def _accumulate(self, loss: Tensor) -> None:
        """Add a micro-batch's gradient to those before it; with `_optimizer_step` all that knows of gradients."""
        loss.backward()
        widen_gradients(self.model.parameters())

    def _optimizer_step(self, parts: Sequence[dict[str, Tensor]]) -> dict[str, float]:
        """Clip the gradient of a mini-batch and apply it; return the sums of its micro-batches' metrics."""
        # 1. Clip to `max_grad_norm` by the norm over the shards of all ranks.
        parameters, ranks = list(self.model.parameters()), ranks_of(self.model)
        norm = ranks.norm([p.grad for p in parameters if p.grad is not None])
        nn.utils.clip_grads_with_norm_(parameters, self.config.max_grad_norm, norm)
        # 2. Read the norm and all metrics at once: the only time per mini-batch that the host waits for the device.
        grad_norm, *values = read_scalars([norm, *(value for metrics in parts for value in metrics.values())])
        # 3. A gradient that is not finite is dropped, and leaves no trace in the optimizer.
        finite = math.isfinite(grad_norm)
        if finite:
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        # 4. Sum metrics over micro-batches, then over ranks. A skipped update has no norm to average.
        sums: defaultdict[str, float] = defaultdict(float)
        for name, value in zip((name for metrics in parts for name in metrics), values):
            sums[name] += value
        return ranks.totals(sums) | ({"grad_skipped": 0.0, "grad_norm": grad_norm} if finite else {"grad_skipped": 1.0})

    def _summary(self, history: dict[str, list[float]], lr: float) -> dict[str, float]:
        metrics = {f"{self._name}/{name}": sum(values) / len(values) for name, values in history.items()}
        for skipped in ("grad_skipped", "update_skipped"):
            metrics[f"{self._name}/{skipped}"] = sum(history.get(skipped, []))
        metrics[f"{self._name}/lr"] = lr
        if broken := broken_weights(self.model, trained_only=True):
            metrics[f"{self._name}/weights_not_finite"] = float(len(broken))
        return metrics

    @with_weights_on_device
    def broken_weights(self) -> list[str]:
        """Return the names of parameters that hold NaN or infinite values."""
        return broken_weights(self.model)

    @with_weights_on_device
    @with_optimizer_on_device
    def save_optimizer(self, folder: Path) -> None:
        """Write the optimizer's state to `folder`; every rank must call it, the first one writes."""
        ranks = ranks_of(self.model)
        if ranks.world is None:
            state = self.optimizer.state_dict()
        else:
            from whet.learn.full_state import full_optimizer_state

            state = full_optimizer_state(self.optimizer, ranks)
        if ranks.is_first:
            torch.save(state, folder / "optimizer.pt")

    @with_optimizer_on_device
    def load_optimizer(self, folder: Path) -> None:
        """Read the state that `save_optimizer` wrote, with the same number of ranks or another."""
        from whet.learn.full_state import check_optimizer_state, load_optimizer_state
        from whet.model import torch_file

        ranks = ranks_of(self.model)
        state = None
        if ranks.is_first:
            state = torch_file.load(folder / "optimizer.pt")
            check_optimizer_state(self.optimizer, state, folder / "optimizer.pt")
        settings = [{name: each[name] for name in each if name != "params"} for each in self.optimizer.param_groups]
        load_optimizer_state(self.optimizer, state, ranks)
        for group, configured in zip(self.optimizer.param_groups, settings):
            group.update(configured)  # the present config, not that of the checkpoint


def save_weights(model: PreTrainedModel, folder: Path) -> None:
    """Write a Hugging Face folder; every rank must call it, the first one writes."""
    if ranks_of(model).world is None:
        model.save_pretrained(folder)
    else:
        from whet.learn.full_state import save_sharded

        save_sharded(model, folder)


def read_scalars(numbers: Sequence[Tensor | float]) -> list[float]:
    """Copy scalars to the host in one transfer from the first one's device."""
    device = torch.as_tensor(numbers[0]).device
    return torch.stack([torch.as_tensor(x, device=device).detach().reshape(()) for x in numbers]).tolist()


def make_trainable(model: PreTrainedModel, config: ModelConfig, budget: Budget) -> None:
    """Turn off dropout, whose noise would look like a change of the weights, and set up gradient checkpointing."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    set_gradient_checkpointing(model, config, budget)


def set_gradient_checkpointing(model: PreTrainedModel, config: ModelConfig, budget: Budget) -> None:
    """Turn gradient checkpointing on or off: as the config wants it, else as the budget was planned."""
    wanted = True if config.offloads_activations else config.enable_gradient_checkpointing
    alike = rounds_alike(model)
    planned = budget.recompute or (alike and budget.recompute_mlp)  # half a layer cannot be rounded again
    if planned if wanted is None else wanted:
        given = {"use_reentrant": False} | ({"context_fn": partial(recompute_contexts, model)} if alike else {})
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=given)
    elif model.is_gradient_checkpointing:
        model.gradient_checkpointing_disable()
    if (decoder := decoder_of(model)) is not None:
        decoder.recompute_mlp = budget.recompute_mlp and wanted is None and not alike
    if config.offloads_activations or model in OFFLOADING:
        from whet.learn.activations import set_activation_offload

        set_activation_offload(model, config.offloads_activations)
