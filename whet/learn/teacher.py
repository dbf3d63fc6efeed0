"""Frozen models that the policy is distilled from: their log-probs, and divergences of the policy from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from whet.config.schema.actor import ActorConfig
from whet.learn.divergence import divergence
from whet.learn.packing import Packed, pack
from whet.learn.scoring import Scored, response_hidden_states, score_all
from whet.model.load import head_of
from whet.types import Sample

SOURCE = "data_source"  # the column that says whose teacher a row has


class LocalTeacher:
    """One teacher, or several by data source, on the policy's device.

    Samples are given as teachers read them: with the policy's prompts, or with others of their own before the same
    responses. The policy's own weights may be a teacher; they get no gradient here.
    """

    def __init__(
        self, models: Mapping[str | None, PreTrainedModel], config: ActorConfig, temperature: float, tokens: int | None
    ) -> None:
        """`models` are by data source; None has all sources that are not named."""
        self._models = models
        self.configure(config, temperature, tokens)

    def configure(self, config: ActorConfig, temperature: float, tokens: int | None) -> None:
        """Continue under another config, with the same weights."""
        self._config, self._temperature, self._tokens = config, temperature, tokens

    def log_probs(self, samples: Sequence[Sample]) -> Tensor:
        """Return log-probs (B, T) of the response tokens, each sample's under its own teacher."""
        out_BT = torch.zeros(len(samples), max(len(sample.ids) for sample in samples))
        for model, rows in self._rows_of(samples):
            chosen = [samples[row] for row in rows]
            found = score_all(model, chosen, self._temperature, self._config, self._tokens)
            out_BT[rows, : found.shape[1]] = found
        return out_BT

    def divergence(
        self, scored: Scored, samples: Sequence[Sample], own_prompts: bool, name: str, beta: float
    ) -> Tensor:
        """Return the divergence (B, T) between the policy that scored a micro-batch and its teachers.

        `samples` are those of the micro-batch; with `own_prompts` their prompts are not the policy's. The gradient
        flows into the policy.
        """
        packed = scored.packed
        if own_prompts:
            packed = pack(samples, self._config.share_prefix, packed.ids_N.device)
        row_M = packed.place_M // packed.shape[1]  # the sample that each response token belongs to
        total_M = torch.zeros((), dtype=scored.log_probs_BT.dtype, device=row_M.device)
        for model, rows in self._rows_of(samples):
            is_theirs_M = torch.isin(row_M, torch.tensor(rows, device=row_M.device))
            hidden_MH = _hidden_states(model, packed)
            found_M = divergence(
                scored.hidden_MH, scored.head, hidden_MH, head_of(model), self._temperature or 1.0, name, beta
            )
            total_M = total_M + torch.where(is_theirs_M, found_M, 0.0)
        return scored.packed.unpack(total_M)

    def _rows_of(self, samples: Sequence[Sample]) -> list[tuple[PreTrainedModel, list[int]]]:
        """Return the teachers of these samples, each with its rows; one model under two names runs once."""
        rows: dict[int, list[int]] = {}
        models: dict[int, PreTrainedModel] = {}
        for row, sample in enumerate(samples):
            source = sample.prompt.extra.get(SOURCE)
            model = self._models[source if isinstance(source, str) and source in self._models else None]
            models[id(model)] = model
            rows.setdefault(id(model), []).append(row)
        return [(models[name], found) for name, found in rows.items()]


@torch.no_grad()
def _hidden_states(model: PreTrainedModel, packed: Packed) -> Tensor:
    return response_hidden_states(model, packed)
