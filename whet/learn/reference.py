"""The frozen model that KL is measured against."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from transformers import PreTrainedModel

from whet.config.actor import ActorConfig
from whet.learn.scoring import score_all
from whet.types import Sample


class Reference:
    """Log-probs under the weights that training started from."""

    def __init__(self, model: PreTrainedModel, config: ActorConfig, temperature: float, max_tokens: int | None) -> None:
        self._model = model.requires_grad_(False)
        self._config, self._temperature, self._max_tokens = config, temperature, max_tokens

    def log_probs(self, samples: Sequence[Sample]) -> Tensor:
        """Log-probs (B, T), 0 past the end of a response."""
        return score_all(self._model, samples, self._temperature, self._config, self._max_tokens)
