"""Exact KL over the vocabulary between two models at each token, from their hidden states.

Like log-probs, it is made a chunk of rows at a time and made again in the backward pass: the logits of both models for
all tokens never exist at once.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from whet.learn.log_probs import chunks, scaled_logits
from whet.model.load import Head


def full_kl(hidden_NH: Tensor, head: Head, ref_hidden_NH: Tensor, ref_head: Head, temperature: float) -> Tensor:
    """Σ_v π(v)·log(π(v)/π_ref(v)) of each row, (N,) in fp32, or in fp64 when the hidden states are.

    π = softmax(logits / temperature) of either model. The gradient flows into the first.
    """

    def of(hidden: Tensor, ref_hidden: Tensor) -> Tensor:
        log_p, log_q = (
            scaled_logits(h, each.weight_VH, each.bias_V, temperature, each.softcap).log_softmax(dim=-1)
            for h, each in ((hidden, head), (ref_hidden, ref_head))
        )
        return (log_p.exp() * (log_p - log_q)).sum(dim=-1)

    parts = [
        checkpoint(of, hidden_NH[rows], ref_hidden_NH[rows], use_reentrant=False, preserve_rng_state=False)
        for rows in chunks(len(hidden_NH), 2 * len(head.weight_VH))
    ]
    return torch.cat(parts)
