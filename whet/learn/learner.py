"""The policy in this process: measures of its token distributions, updates, saving."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from whet.config.schema.actor import ActorConfig
from whet.learn.offload import with_weights_on_device
from whet.learn.packing import pad, to_device
from whet.learn.partition import Budget
from whet.learn.protocol import Learner, Objective, Progress, Weights
from whet.learn.ranks import Ranks, ranks_of
from whet.learn.recording import TokenRecorder
from whet.learn.scoring import Scored, score, score_all
from whet.learn.update import TrainedModel, make_trainable, read_scalars, save_weights, set_gradient_checkpointing
from whet.model.modality import ADAPTER_FOLDER, has_adapters
from whet.types import Sample

if TYPE_CHECKING:
    from whet.learn.reference import LocalReference
    from whet.learn.teacher import LocalTeacher


class LocalLearner(TrainedModel[PreTrainedModel, Scored], Learner):
    """The policy's weights and optimizer in this process, whole or one rank's shard of them."""

    config: ActorConfig

    def __init__(
        self,
        model: PreTrainedModel,
        config: ActorConfig,
        temperature: float,
        total_steps: int,
        budget: Budget,
        shared: bool = False,
    ) -> None:
        """Weights that are `shared` with an engine, which reads them at any time, are never offloaded."""
        make_trainable(model, config.model, budget)
        super().__init__("actor", model, config, total_steps, budget, config.offload.offload_params and not shared)
        self._temperature = temperature
        self._recorder = TokenRecorder((), ())  # of the latest update
        self.reference: LocalReference | None = None  # for exact KL divergences
        self.teacher: LocalTeacher | None = None  # that the policy is distilled from

    def configure(self, config: ActorConfig, temperature: float, budget: Budget) -> None:
        """Continue under another config, with the same weights and optimizer."""
        self.config, self._temperature, self._budget = config, temperature, budget
        set_gradient_checkpointing(self.model, config.model, budget)

    def forward(self, samples: list[Sample]) -> Scored:
        """Score one packed micro-batch, with gradient."""
        scored = score(self.model, samples, self._temperature, self.config.share_prefix)
        if self.reference is None and self.teacher is None:
            return scored
        return replace(scored, reference=self.reference, teacher=self.teacher)

    def current(self, samples: Sequence[Sample]) -> Tensor:
        """Return log-probs (B, T) under the current weights."""
        return self.log_probs(samples)

    @with_weights_on_device
    def log_probs(self, samples: Sequence[Sample]) -> Tensor:
        """Return log-probs (B, T) under the current weights, without gradient."""
        return score_all(self.model, samples, self._temperature, self.config, self._budget.tokens_experience)

    @with_weights_on_device
    def full_kl(self, samples: Sequence[Sample]) -> Tensor:
        """Return the exact KL divergence (B, T) from the reference, without gradient."""
        assert self.reference is not None, "asked for only where there is a reference"
        tokens, measure = self._budget.tokens_experience, self.reference.full_kl
        with self.reference.offload.here():
            return score_all(self.model, samples, self._temperature, self.config, tokens, measure)

    @with_weights_on_device
    def masked_kl(self, samples: Sequence[Sample], masked: Sequence[Sample]) -> Tensor:
        """Return the exact KL divergence (B, T) from the same weights given `masked`: the same responses."""
        from whet.learn.distributions import masked_kl_all

        tokens = self._budget.tokens_experience
        return masked_kl_all(self.model, samples, masked, self._temperature, self.config, tokens)

    @with_weights_on_device
    def sum_pi_squared(self, samples: Sequence[Sample]) -> Tensor:
        """Return Σ_v π(v)² (B, T) under the current weights."""
        from whet.learn.distributions import sum_pi_squared_all

        return sum_pi_squared_all(self.model, samples, self._temperature, self.config, self._budget.tokens_experience)

    def update(
        self,
        samples: Sequence[Sample],
        objective: Objective[Scored],
        step: int,
        mini_batch: int,
        progress: Progress | None = None,
        version: int | None = None,
        recorded: Sequence[int] = (),
    ) -> dict[str, float]:
        """Train on all samples (`TrainedModel.train_on`) and compare log-probs with the sampler's on the way."""
        difference, sharing = _SamplerDifference(version), _Sharing()
        recorder = TokenRecorder(recorded, samples)

        def observe(rows: list[int], chosen: list[Sample], scored: Scored) -> None:
            # Before the first optimizer step the weights are those that sampled: what differs is numerics.
            if rows[0] < mini_batch:
                difference.add(chosen, scored)
            sharing.add(scored)
            recorder.add(rows, scored)

        metrics = self.train_on(samples, objective, step, mini_batch, progress, observe)
        self._recorder = recorder
        ranks = ranks_of(self.model)
        return metrics | difference.metrics(ranks) | sharing.metrics(ranks)

    def recorded(self) -> Tensor:
        """Return (3, R, T) of the rows that the latest update recorded: log-probs, entropies, 1 if any was computed."""
        return self._recorder.values(ranks_of(self.model))

    @with_weights_on_device
    def save(self, folder: Path, tokenizer: PreTrainedTokenizerBase, model_only: bool) -> None:
        """Write a Hugging Face or PEFT folder and, unless `model_only`, the optimizer beside it."""
        where = folder / (ADAPTER_FOLDER if has_adapters(self.model) else "huggingface")
        if has_adapters(self.model):
            from whet.learn.full_state import save_adapters

            save_adapters(self.model, where)
        else:
            save_weights(self.model, where)
        if ranks_of(self.model).is_first:
            tokenizer.save_pretrained(where)
        if not model_only:
            self.save_optimizer(folder)

    @contextmanager
    def engine_weights(self) -> Iterator[Weights]:
        """Return the weights for an engine to load, on their device inside the block."""
        with self.offload.here():
            yield self._folder_weights

    def _folder_weights(self) -> Iterator[tuple[str, Tensor]]:
        from whet.model.names import folder_weights

        return folder_weights(self.model)


class _SamplerDifference:
    """|log π_learner − log π_sampler| over the tokens that the policy wrote, of one version or of all (None)."""

    def __init__(self, version: int | None) -> None:
        self._version = version
        self._gaps: list[Tensor] = []  # sum and maximum of each micro-batch, on its device
        self._tokens = 0

    def add(self, samples: Sequence[Sample], scored: Scored) -> None:
        """Take in a micro-batch; nothing is read from the device."""
        log_probs_BT = scored.log_probs_BT.detach()
        counted = [[int(m and self._version in (None, v)) for m, v in zip(s.mask, s.versions)] for s in samples]
        both_2BT = torch.stack([pad([s.log_probs for s in samples]), pad(counted)])
        (flat,) = to_device(log_probs_BT.device, both_2BT.numpy().ravel())
        sampled_BT, mask_BT = flat.view(both_2BT.shape)
        gap_BT = torch.where(mask_BT.bool(), (log_probs_BT - sampled_BT).abs(), 0.0)
        self._gaps += [gap_BT.sum(), gap_BT.max()]
        self._tokens += sum(map(sum, counted))

    def metrics(self, ranks: Ranks) -> dict[str, float]:
        """Return mean and maximum over all ranks; every rank must call it."""
        gaps = read_scalars(self._gaps) if self._gaps else []
        found = ranks.gathered({"sum": sum(gaps[::2]), "max": _largest(gaps[1::2]), "tokens": self._tokens})
        tokens = sum(each["tokens"] for each in found)
        if not tokens:
            return {}
        return {
            "rollout/log_prob_diff_mean": sum(each["sum"] for each in found) / tokens,
            "rollout/log_prob_diff_max": _largest([each["max"] for each in found]),
        }


class _Sharing:
    """Tokens that were packed, and those of the same samples if each had a copy of all that stands before it."""

    def __init__(self) -> None:
        self._tokens = self._apart = 0

    def add(self, scored: Scored) -> None:
        """Take in a micro-batch."""
        self._tokens += scored.packed.tokens
        self._apart += scored.packed.tokens_apart

    def metrics(self, ranks: Ranks) -> dict[str, float]:
        """Return the ratio over all ranks; every rank must call it."""
        found = ranks.gathered({"tokens": self._tokens, "apart": self._apart})
        apart = sum(each["apart"] for each in found)
        return {"perf/packed_ratio": sum(each["tokens"] for each in found) / apart} if apart else {}


def _largest(numbers: Sequence[float]) -> float:
    """Return the maximum: NaN if one of them is NaN, 0 of none."""
    return next((x for x in numbers if math.isnan(x)), max(numbers, default=0.0))
