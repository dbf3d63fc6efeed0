"""Sampling with temperature and filters of each row as tensors: for mixed requests, and for decoding in windows."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from whet.kernels.upload import upload
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native.sampler import pick, without

_ALL = 2**31  # top-k that keeps every token


@dataclass(frozen=True, slots=True)
class SamplingRows:
    """Temperature and filters of each row, as tensors."""

    temperature_B: Tensor
    top_k_B: Tensor
    top_p_B: Tensor
    min_p_B: Tensor

    @staticmethod
    def of(params: Seq[SamplingParams], device: torch.device) -> SamplingRows:
        """One row for each of `params`."""
        rows = [(p.temperature, p.top_k if p.top_k > 0 else _ALL, p.top_p, p.min_p) for p in params]
        temperature, top_k, top_p, min_p = upload(np.array(rows, dtype=np.float64).T, device)
        return SamplingRows(temperature.float(), top_k.long(), top_p, min_p.float())

    @staticmethod
    def neutral(rows: int, device: torch.device) -> SamplingRows:
        """Temperature 1 and no filters."""
        return SamplingRows.of([SamplingParams()] * rows, device)

    def first(self, B: int) -> SamplingRows:
        """The first B rows."""
        return SamplingRows(self.temperature_B[:B], self.top_k_B[:B], self.top_p_B[:B], self.min_p_B[:B])

    def put(self, where: Tensor, params: Seq[SamplingParams]) -> None:
        """Overwrite some rows."""
        given = SamplingRows.of(params, where.device)
        for mine, theirs in zip(self._columns(), given._columns()):
            mine.index_copy_(0, where, theirs)

    def move(self, sources: Tensor, targets: Tensor) -> None:
        """Copy rows over others."""
        for column in self._columns():
            column.index_copy_(0, targets, column.index_select(0, sources))

    def _columns(self) -> tuple[Tensor, ...]:
        return self.temperature_B, self.top_k_B, self.top_p_B, self.min_p_B


def sample_rows(
    logits_BV: Tensor, rows: SamplingRows, uniforms_B: Tensor, filtered: bool = True, never: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The same with parameters that are tensors already; nothing here comes from the host."""
    greedy = rows.temperature_B == 0
    logits_BV = logits_BV.float() / rows.temperature_B.where(~greedy, 1.0)[:, None]
    log_normaliser = torch.logsumexp(logits_BV, dim=-1, keepdim=True)
    possible_BV = without(logits_BV, never)
    probs_BV = torch.exp(possible_BV - log_normaliser)
    tokens = pick(_cut(probs_BV, rows) if filtered else probs_BV, uniforms_B)
    tokens = torch.where(greedy, possible_BV.argmax(dim=-1), tokens)
    return tokens, (logits_BV.gather(1, tokens[:, None]) - log_normaliser).squeeze(1)


def _cut(probs_BV: Tensor, rows: SamplingRows) -> Tensor:
    """Zero the probability of tokens that top-k, top-p or min-p leave out."""
    ordered, index = probs_BV.sort(dim=-1, descending=True, stable=True)
    top_p = rows.top_p_B[:, None]
    kept = ordered.where(torch.arange(probs_BV.shape[1], device=probs_BV.device) < rows.top_k_B[:, None], 0.0)
    total = kept.sum(dim=-1, keepdim=True, dtype=torch.float64)
    before = kept.double().cumsum(dim=-1) - kept  # mass of the likelier tokens
    kept = kept.where((before < top_p * total) | (top_p >= 1.0), 0.0)
    kept = kept.where(ordered >= rows.min_p_B[:, None] * ordered[:, :1], 0.0)
    return torch.zeros_like(probs_BV).scatter_(1, index, kept)
