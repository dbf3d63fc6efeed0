"""The policy being trained: one update from a batch of scored samples."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from whet.config.actor import ActorConfig
from whet.learn.optimizer import build_optimizer, learning_rate
from whet.learn.packing import micro_batches, pad
from whet.learn.scoring import response_log_probs, score_all
from whet.types import Sample

# (log-probs, entropies, rows) of a micro-batch -> loss and metrics; rows index the mini-batch it was made for
MicroLoss = Callable[[Tensor, Tensor, list[int]], tuple[Tensor, dict[str, Tensor]]]
# rows of the batch that form a mini-batch, and a pass over it for its current log-probs (B, T) without gradient, which
# only losses that look at the whole mini-batch ask for -> the loss of its micro-batches
MakeLoss = Callable[[list[int], Callable[[], Tensor]], MicroLoss]


@dataclass(frozen=True, slots=True)
class Budget:
    """How much of a batch goes through the model at once."""

    tokens_update: int | None  # None counts samples instead
    tokens_experience: int | None


class Learner:
    """Holds the trained weights and their optimizer; knows nothing of where samples come from."""

    def __init__(
        self,
        model: PreTrainedModel,
        config: ActorConfig,
        temperature: float,
        total_steps: int,
        budget: Budget,
    ) -> None:
        self.model, self.config = model, config
        self._temperature, self._total_steps, self._budget = temperature, total_steps, budget
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0  # log-probs are compared with the sampler's; noise would be taken for a policy change
        if config.model.enable_gradient_checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        self.optimizer = build_optimizer(model.parameters(), config.optim)

    def log_probs(self, samples: Sequence[Sample]) -> Tensor:
        """Log-probs (B, T) of the current weights, without gradient."""
        return score_all(self.model, samples, self._temperature, self.config, self._budget.tokens_experience)

    def update(
        self,
        samples: Sequence[Sample],
        make_loss: MakeLoss,
        step: int,
        mini_batch: int,
        progress: Callable[[int], None] | None = None,
    ) -> dict[str, float]:
        """Train on all samples: `ppo_epochs` passes of one optimizer step per `mini_batch` samples."""
        lr = learning_rate(step, self._total_steps, self.config.optim)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        rows = list(range(len(samples)))
        minis = [rows[i : i + mini_batch] for i in range(0, len(rows), mini_batch)]
        history: defaultdict[str, list[float]] = defaultdict(list)
        self.model.train()
        for epoch in range(self.config.ppo_epochs):
            for i, mini in enumerate(minis):
                # Before the first optimizer step the weights are those that sampled: what differs is numerics.
                fresh = epoch == 0 and i == 0
                chosen = [samples[row] for row in mini]
                loss_of = make_loss(mini, partial(self.log_probs, chosen))
                for name, value in self._mini_batch(chosen, loss_of, fresh, progress).items():
                    history[name].append(value)
        self.model.eval()
        metrics = {name: sum(values) / len(values) for name, values in history.items()}
        metrics["actor/grad_skipped"] = sum(history["actor/grad_skipped"])
        metrics["actor/lr"] = lr
        return metrics

    def _mini_batch(
        self,
        chosen: list[Sample],
        loss_of: MicroLoss,
        fresh: bool,
        progress: Callable[[int], None] | None,
    ) -> dict[str, float]:
        sums: defaultdict[str, float] = defaultdict(float)
        difference = _Difference()
        size = self.config.micro_batch_size_per_device_for_update
        for rows in micro_batches(chosen, self.config.share_prefix, self._budget.tokens_update, size):
            micro = [chosen[i] for i in rows]
            log_probs, entropy = response_log_probs(self.model, micro, self._temperature, self.config.share_prefix)
            loss, metrics = loss_of(log_probs, entropy, rows)
            loss.backward()
            for name, value in metrics.items():
                sums[f"actor/{name}"] += float(value)
            if fresh:
                difference.add(micro, log_probs.detach())
            if progress is not None:
                progress(len(rows))
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.max_grad_norm)
        finite = bool(torch.isfinite(norm))
        if finite:
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        # A skipped update has no norm to average; its count says that it happened.
        skipped = {"actor/grad_skipped": 0.0, "actor/grad_norm": float(norm)} if finite else {"actor/grad_skipped": 1.0}
        return dict(sums) | skipped | (difference.metrics() if fresh else {})

    def save(self, folder: Path, tokenizer: PreTrainedTokenizerBase, model_only: bool) -> None:
        """Write a Hugging Face folder and, unless `model_only`, the optimizer beside it."""
        self.model.save_pretrained(folder / "huggingface")
        tokenizer.save_pretrained(folder / "huggingface")
        if not model_only:
            torch.save(self.optimizer.state_dict(), folder / "optimizer.pt")

    def load_optimizer(self, folder: Path) -> None:
        """Read back what `save` wrote; the weights are loaded with the model."""
        self.optimizer.load_state_dict(torch.load(folder / "optimizer.pt", weights_only=True))


class _Difference:
    """|log π_learner − log π_sampler| over the tokens that the model wrote."""

    def __init__(self) -> None:
        self._sum, self._max, self._tokens = 0.0, 0.0, 0

    def add(self, samples: Sequence[Sample], log_probs_BT: Tensor) -> None:
        sampled = pad([s.log_probs for s in samples]).to(log_probs_BT.device)
        mask = pad([s.mask for s in samples]).to(log_probs_BT.device)
        gap = torch.where(mask.bool(), (log_probs_BT - sampled).abs(), 0.0)
        self._sum += float(gap.sum())
        self._max = max(self._max, float(gap.max()))
        self._tokens += int(mask.sum())

    def metrics(self) -> dict[str, float]:
        return {
            "rollout/log_prob_diff_mean": self._sum / max(self._tokens, 1),
            "rollout/log_prob_diff_max": self._max,
        }
