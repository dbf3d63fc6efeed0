"""Where a mini-batch's policy gradient goes: to which tokens, and to which responses more than to others (VPPO)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from whet.algos import LossInputs
from whet.algos.aggregate import Aggregator
from whet.algos.quirks import Quirks, quirks
from whet.algos.shaping import (
    Chosen,
    Weights,
    relative_dependency,
    response_dependency,
    response_weights,
    top_tokens,
)
from whet.config.schema.algorithm import AlgorithmConfig
from whet.training.experience import Experience, on_device
from whet.training.perception import is_visual


@dataclass(frozen=True, slots=True)
class Focus:
    """What was found out about the rows of one mini-batch; everything is (B,) or (B, T) on the host."""

    config: AlgorithmConfig
    mask_BT: Tensor
    perceptive: Chosen | None  # tokens that depend on images; None where all count
    relative_B: Tensor | None  # each response's dependency from 0 to 1; None where all weigh the same
    counted_B: Tensor  # responses that depend on images, more or less
    found: dict[str, float]  # metrics that hold for the mini-batch as a whole

    def weighed(self, inputs: LossInputs, rows: Sequence[int]) -> LossInputs:
        """These rows with each response's advantages times its weight."""
        if self.relative_B is None:
            return inputs
        weights_B1 = on_device(self._weights(rows).weights_B[:, None], inputs.mask_BT.device)
        return replace(inputs, advantages_BT=inputs.advantages_BT * weights_B1.to(inputs.advantages_BT.dtype))

    def narrowed(self, inputs: LossInputs, rows: Sequence[int], entropy_BT: Tensor) -> LossInputs:
        """These rows with a gradient on the chosen tokens alone; the entropy is that of the current policy."""
        keep_BT = self._keep(inputs.mask_BT, rows, entropy_BT)
        if keep_BT is None:
            return inputs
        weights_BT = keep_BT if inputs.weights_BT is None else inputs.weights_BT * keep_BT
        return replace(inputs, weights_BT=weights_BT)

    def metrics(
        self, aggregate: Aggregator, mask_BT: Tensor, rows: Sequence[int], entropy_BT: Tensor
    ) -> dict[str, Tensor]:
        """These rows' share of what there is to say, under VPPO's names."""
        share = aggregate.token_mean(torch.ones_like(mask_BT), mask_BT)
        shares = {name: share * value for name, value in self.found.items()}
        if self.config.use_advantage_shaping and self.counted_B.any():
            weights = self._weights(rows)
            total = float(weights.weights_B[self.counted_B[list(rows)]].sum())
            shares["dynamic_scaling_max"] = share * weights.most
            shares["scaling_factor_mean"] = share.new_tensor(total / int(self.counted_B.sum()))
        if self.config.use_vppo_on_entropy:
            shares |= self._entropy_metrics(aggregate, mask_BT, entropy_BT.detach())
            if self.perceptive is not None:
                keep_BT = self._keep(mask_BT, rows, entropy_BT)
                assert keep_BT is not None
                shares["combined_token_fraction"] = aggregate.token_mean(keep_BT, mask_BT)
        return shares

    @property
    def _quirks(self) -> Quirks:
        return quirks(self.config.match)

    def _weights(self, rows: Sequence[int]) -> Weights:
        """Of these rows, 1 on average over the mini-batch; over the rows alone where that is to be reproduced."""
        least, chosen = self.config.advantage_scaling_min, list(rows)
        if self._quirks.weights_by_micro_batch and self.relative_B is not None:
            return response_weights(self.relative_B[chosen], self.counted_B[chosen], least)
        whole = response_weights(self.relative_B, self.counted_B, least)
        return replace(whole, weights_B=whole.weights_B[chosen])

    def _uncertain(self, mask_BT: Tensor, entropy_BT: Tensor) -> Chosen:
        share, single = self.config.top_p_entropy_tokens, self._quirks.counts_in_single_precision
        return top_tokens(entropy_BT.detach(), mask_BT, share, single)

    def _keep(self, mask_BT: Tensor, rows: Sequence[int], entropy_BT: Tensor) -> Tensor | None:
        """(B, T): 1 on the tokens of these rows that either rule chooses; None where there is no rule."""
        keep_BT: Tensor | None = None
        if self.perceptive is not None:
            keep_BT = on_device(self.perceptive.mask_BT[list(rows), : mask_BT.shape[1]], mask_BT.device)
        if self.config.use_vppo_on_entropy:
            uncertain_BT = self._uncertain(mask_BT, entropy_BT).mask_BT
            keep_BT = uncertain_BT if keep_BT is None else torch.maximum(keep_BT, uncertain_BT)
        return keep_BT

    def _entropy_metrics(self, aggregate: Aggregator, mask_BT: Tensor, entropy_BT: Tensor) -> dict[str, Tensor]:
        whole = self._uncertain(self.mask_BT, torch.zeros_like(self.mask_BT))  # counts depend on lengths alone
        kept, tokens = float(whole.counts_B.sum()), float(self.mask_BT.sum())
        chosen = self._uncertain(mask_BT, entropy_BT)
        inside_BT = torch.where(mask_BT.bool(), entropy_BT, 0.0)
        return {
            "entropy_token_fraction": aggregate.token_mean(chosen.mask_BT, mask_BT),
            "entropy_threshold": chosen.thresholds_B.sum() / max(int((whole.counts_B > 0).sum()), 1),
            "entropy_mean_selected": (inside_BT * chosen.mask_BT).sum() / max(kept, 1.0),
            "entropy_mean_rejected": (inside_BT * (1 - chosen.mask_BT)).sum() / max(tokens - kept, 1.0),
        }


def focus_of(experience: Experience, mini: list[int], config: AlgorithmConfig) -> Focus | None:
    """The focus of a mini-batch (rows of the experience); None where every token and response counts the same."""
    selects, shapes = config.use_vppo_on_perception, config.use_advantage_shaping
    if not (selects or shapes or config.use_vppo_on_entropy):
        return None
    mask_BT, slips = experience.mask_BT[mini], quirks(config.match)
    written_B = mask_BT.any(dim=1)
    visual_B = torch.tensor([is_visual(experience.samples[row].prompt) for row in mini])
    if slips.text_depends_on_images:
        visual_B = torch.ones_like(visual_B)
    counted_B = visual_B & written_B
    perceptive, relative_B, found = None, None, dict[str, float]()
    if selects or shapes:
        assert experience.dependency_BT is not None, "it is computed wherever it is needed"
        S_BT = experience.dependency_BT[mini]
        if selects and counted_B.any():
            chosen = top_tokens(S_BT, mask_BT, config.top_p_perception_tokens, slips.counts_in_single_precision)
            found |= _perception_metrics(S_BT, mask_BT, chosen, counted_B)
            # Of text nothing is chosen by how it depends on images: all of it counts.
            perceptive = replace(chosen, mask_BT=torch.where(visual_B[:, None], chosen.mask_BT, mask_BT))
        if shapes and counted_B.any():
            s_B = response_dependency(S_BT, mask_BT)
            relative_B = relative_dependency(s_B, counted_B)
            found |= {
                "sensitivity_score_mean": float(s_B[counted_B].mean()),
                "global_sensitivity_score_min": float(s_B[counted_B].min()),
                "global_sensitivity_score_max": float(s_B[counted_B].max()),
            }
    return Focus(config, mask_BT, perceptive, relative_B, counted_B, found)


def _perception_metrics(S_BT: Tensor, mask_BT: Tensor, chosen: Chosen, counted_B: Tensor) -> dict[str, float]:
    """Of responses to images: how many tokens are chosen, and what sets them apart."""
    S_BT, mask_BT, kept_BT = S_BT[counted_B], mask_BT[counted_B].bool(), chosen.mask_BT[counted_B].bool()
    rejected = S_BT[mask_BT & ~kept_BT]
    return {
        "perception_token_fraction": float(kept_BT.sum() / mask_BT.sum()),
        "low_var_kl_threshold": float(chosen.thresholds_B[counted_B].mean()),
        "low_var_kl_mean_selected": float(S_BT[kept_BT].mean()),
        **({"low_var_kl_mean_rejected": float(rejected.mean())} if len(rejected) else {}),
    }
