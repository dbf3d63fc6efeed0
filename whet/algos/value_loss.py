"""The clipped loss of the critic (Schulman et al., 2017).

With v̂ = clip(v, v_old − c, v_old + c): L = ½ max((v − R)², (v̂ − R)²), so that a value gains nothing by moving further
than c from where it was when the advantages were made.
"""

from __future__ import annotations

import torch
from torch import Tensor

from whet.algos.aggregate import Aggregator


def value_loss(
    values_BT: Tensor,
    old_values_BT: Tensor,
    returns_BT: Tensor,
    mask_BT: Tensor,
    cliprange: float,
    aggregate: Aggregator,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of these rows and their share of its metrics; only `values_BT` carries a gradient."""
    inside = mask_BT.bool()
    # An inf outside the mask would pass the aggregator's forward pass and still make a nan of the gradient.
    values, old, returns = (torch.where(inside, x, 0.0) for x in (values_BT, old_values_BT, returns_BT))
    clipped = torch.maximum(torch.minimum(values, old + cliprange), old - cliprange)
    plain_error, clipped_error = (values - returns).square(), (clipped - returns).square()
    return 0.5 * aggregate(torch.maximum(plain_error, clipped_error), mask_BT), {
        "vf_clipfrac": aggregate.token_mean(clipped_error > plain_error, mask_BT),
        "vpred_mean": aggregate.token_mean(values, mask_BT),
    }
