"""Log-prob, entropy and likeliest alternatives of each token of a response under some weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from whet.learn.scoring import packed_row, response_hidden_states
from whet.model.load import head_of
from whet.resample.opened import Opened
from whet.types import Sample

_CHUNK = 256  # tokens whose distributions are computed at a time


@dataclass(frozen=True, slots=True)
class TokenView:
    """Numbers of each token; `alternatives` are (id, log-prob), likeliest first."""

    log_probs: list[float]
    entropies: list[float]
    alternatives: list[list[tuple[int, float]]]


@torch.no_grad()
def view_tokens(opened: Opened, sample: Sample, temperature: float, top: int) -> TokenView:
    """Compute the distributions of a response's M tokens in one forward pass."""
    packed = packed_row(opened.model, [sample], share_prefix=False)
    hidden_MH = response_hidden_states(opened.model, packed)
    head, targets_M = head_of(opened.model), packed.targets_M
    view = TokenView([], [], [])
    for start in range(0, len(targets_M), _CHUNK):
        logits_mV = head.logits(hidden_MH[start : start + _CHUNK]).float() / (temperature or 1.0)
        log_probs_mV = torch.log_softmax(logits_mV, dim=-1)
        _add(view, log_probs_mV, targets_M[start : start + _CHUNK], top)
    return view


def _add(view: TokenView, log_probs_mV: Tensor, targets_m: Tensor, top: int) -> None:
    view.log_probs.extend(log_probs_mV.gather(1, targets_m[:, None]).squeeze(1).tolist())
    view.entropies.extend((-(log_probs_mV.exp() * log_probs_mV).nan_to_num(0.0).sum(dim=-1)).tolist())
    values_mk, ids_mk = log_probs_mV.topk(min(top, log_probs_mV.shape[1]), dim=-1)
    view.alternatives.extend(list(zip(ids, values)) for ids, values in zip(ids_mk.tolist(), values_mk.tolist()))
