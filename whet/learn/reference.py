"""The frozen model that KL divergence is measured from: weights of its own, or the policy with its adapters off."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from whet.config.schema.actor import ActorConfig
from whet.learn.offload import Offload, of_weights, with_weights_on_device
from whet.learn.protocol import Reference
from whet.learn.scoring import Scored, response_hidden_states, score_all
from whet.model.load import head_of
from whet.model.lora import adapters_off
from whet.model.modality import has_adapters
from whet.types import Sample


class LocalReference(Reference):
    """Log-probs and exact KL divergence under the weights that training started from.

    A model with adapters is the policy itself, not a copy: without the adapters its weights are the initial ones.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        config: ActorConfig,
        temperature: float,
        max_tokens: int | None,
        offload: Offload | None = None,
    ) -> None:
        """`offload` brings the weights to their device; without one they always are there."""
        self.offload = offload or of_weights(model, wait=False)
        self._model = model if has_adapters(model) else model.requires_grad_(False)
        self.configure(config, temperature, max_tokens)

    def configure(self, config: ActorConfig, temperature: float, max_tokens: int | None) -> None:
        """Continue under another config, with the same weights."""
        self._config, self._temperature, self._max_tokens = config, temperature, max_tokens

    @with_weights_on_device
    def log_probs(self, samples: Sequence[Sample]) -> Tensor:
        """Return log-probs (B, T), 0 past the end of a response."""
        with adapters_off(self._model):
            return score_all(self._model, samples, self._temperature, self._config, self._max_tokens)

    @with_weights_on_device
    def full_kl(self, scored: Scored) -> Tensor:
        """Return the exact KL divergence (B, T) of the policy that scored a micro-batch from this model.

        The reference runs on the same packed row; the gradient flows into the policy.
        """
        from whet.learn.distributions import full_kl

        with torch.no_grad(), adapters_off(self._model):
            ref_hidden_MH = response_hidden_states(self._model, scored.packed)
        kl_M = full_kl(scored.hidden_MH, scored.head, ref_hidden_MH, head_of(self._model), self._temperature or 1.0)
        return scored.packed.unpack(kl_M)
