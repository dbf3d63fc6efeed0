"""Divergences between the token distributions of a policy and a teacher, from hidden states.

With s the policy's distribution and t the teacher's, at each token:

    reverse_kl   Σ_v s log(s/t)
    forward_kl   Σ_v t log(t/s)
    jsd          β Σ_v t log(t/m) + (1 − β) Σ_v s log(s/m),  m = β t + (1 − β) s   (Agarwal et al., 2024, GKD)

jsd with β = 0 is forward_kl and with β = 1 reverse_kl, the limits of jsd/β and jsd/(1 − β). Logits are computed a chunk
of rows at a time, and again in the backward pass: those of all tokens never exist at once. M is the number of response
tokens, H the hidden size, V the vocabulary.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from whet.learn.log_probs import chunks, scaled_logits
from whet.model.load import Head


def divergence(
    hidden_MH: Tensor,
    head: Head,
    teacher_hidden_MH: Tensor,
    teacher_head: Head,
    temperature: float,
    name: str,
    beta: float,
) -> Tensor:
    """Return the divergence of each row: (M,) in fp32, or in fp64 if the hidden states are; the policy has a gradient.

    Both distributions are softmax(logits / temperature) over the tokens that both heads have: heads of one tokenizer
    may be padded to different sizes.
    """
    V = min(len(head.weight_VH), len(teacher_head.weight_VH))

    def log_probs(hidden: Tensor, each: Head) -> Tensor:
        bias = None if each.bias_V is None else each.bias_V[:V]
        return scaled_logits(hidden, each.weight_VH[:V], bias, temperature, each.softcap).log_softmax(dim=-1)

    def of_rows(hidden: Tensor, teacher_hidden: Tensor) -> Tensor:
        with torch.no_grad():
            log_t = log_probs(teacher_hidden, teacher_head)
        return between(log_probs(hidden, head), log_t, name, beta)

    parts = [
        checkpoint(of_rows, hidden_MH[rows], teacher_hidden_MH[rows], use_reentrant=False, preserve_rng_state=False)
        for rows in chunks(len(hidden_MH), 3 * V)
    ]
    return torch.cat(parts)


def between(log_s_MV: Tensor, log_t_MV: Tensor, name: str, beta: float) -> Tensor:
    """Return the divergence (M,) of distributions given as log-probs."""
    log_t_MV = log_t_MV.to(log_s_MV.dtype)
    if name == "reverse_kl" or (name == "jsd" and beta == 1):
        return _kl(log_s_MV, log_t_MV)
    if name == "forward_kl" or (name == "jsd" and beta == 0):
        return _kl(log_t_MV, log_s_MV)
    log_m_MV = torch.logaddexp(log_t_MV + math.log(beta), log_s_MV + math.log1p(-beta))
    return beta * _kl(log_t_MV, log_m_MV) + (1 - beta) * _kl(log_s_MV, log_m_MV)


def _kl(log_p_MV: Tensor, log_q_MV: Tensor) -> Tensor:
    return (log_p_MV.exp() * (log_p_MV - log_q_MV)).sum(dim=-1)
