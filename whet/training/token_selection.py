"""Token selection (VPPO): which tokens of a mini-batch receive the policy gradient, and the weight of each response."""

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
class TokenSelection:
    """Chosen tokens and response weights of one mini-batch; tensors are (B,) or (B, T) on the host."""

    config: AlgorithmConfig
    mask_BT: Tensor
    perceptive: Chosen | None  # the tokens that depend most on images; None: all tokens
    relative_B: Tensor | None  # dependency of each response on images, scaled to 0..1; None: equal weights
    counted_B: Tensor  # True for non-empty responses to prompts with images
    found: dict[str, float]  # metrics of the mini-batch as a whole

    def weighted(self, inputs: LossInputs, rows: Sequence[int]) -> LossInputs:
        """Return these rows with each response's advantages multiplied by its weight."""
        if self.relative_B is None:
            return inputs
        weights_B1 = on_device(self._weights(rows).weights_B[:, None], inputs.mask_BT.device)
        return replace(inputs, advantages_BT=inputs.advantages_BT * weights_B1.to(inputs.advantages_BT.dtype))

    def narrowed(self, inputs: LossInputs, rows: Sequence[int], entropy_BT: Tensor) -> LossInputs:
        """Return these rows with weight 0 on tokens that are not chosen; the entropy is the current policy's."""
        keep_BT = self._keep(inputs.mask_BT, rows, entropy_BT)
        if keep_BT is None:
            return inputs
        weights_BT = keep_BT if inputs.weights_BT is None else inputs.weights_BT * keep_BT
        return replace(inputs, weights_BT=weights_BT)

    def metrics(
        self, aggregate: Aggregator, mask_BT: Tensor, rows: Sequence[int], entropy_BT: Tensor
    ) -> dict[str, Tensor]:
        """Return what these rows add to the mini-batch's metrics, under VPPO's names."""
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
        """Return these rows' weights, 1 on average over the mini-batch, or over the rows to match VPPO's code."""
        least, chosen = self.config.advantage_scaling_min, list(rows)
        if self._quirks.weights_by_micro_batch and self.relative_B is not None:
            return response_weights(self.relative_B[chosen], self.counted_B[chosen], least)
        whole = response_weights(self.relative_B, self.counted_B, least)
        return replace(whole, weights_B=whole.weights_B[chosen])

    def _uncertain(self, mask_BT: Tensor, entropy_BT: Tensor) -> Chosen:
        share, single = self.config.top_p_entropy_tokens, self._quirks.counts_in_single_precision
        return top_tokens(entropy_BT.detach(), mask_BT, share, single)

    def _keep(self, mask_BT: Tensor, rows: Sequence[int], entropy_BT: Tensor) -> Tensor | None:
        """Return (B, T): 1 on the tokens of these rows that either rule chooses; None without a rule."""
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


def select_tokens(experience: Experience, mini: list[int], config: AlgorithmConfig) -> TokenSelection | None:
    """Choose tokens and weight responses of a mini-batch (rows of the experience); None if all count the same."""
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
            # Responses to text-only prompts cannot depend on images: all of their tokens count.
            perceptive = replace(chosen, mask_BT=torch.where(visual_B[:, None], chosen.mask_BT, mask_BT))
        if shapes and counted_B.any():
            s_B = response_dependency(S_BT, mask_BT)
            relative_B = relative_dependency(s_B, counted_B)
            found |= {
                "sensitivity_score_mean": float(s_B[counted_B].mean()),
                "global_sensitivity_score_min": float(s_B[counted_B].min()),
                "global_sensitivity_score_max": float(s_B[counted_B].max()),
            }
    return TokenSelection(config, mask_BT, perceptive, relative_B, counted_B, found)


def _perception_metrics(S_BT: Tensor, mask_BT: Tensor, chosen: Chosen, counted_B: Tensor) -> dict[str, float]:
    """Return statistics of chosen and rejected tokens over responses to prompts with images."""
    S_BT, mask_BT, kept_BT = S_BT[counted_B], mask_BT[counted_B].bool(), chosen.mask_BT[counted_B].bool()
    rejected = S_BT[mask_BT & ~kept_BT]
    return {
        "perception_token_fraction": float(kept_BT.sum() / mask_BT.sum()),
        "low_var_kl_threshold": float(chosen.thresholds_B[counted_B].mean()),
        "low_var_kl_mean_selected": float(S_BT[kept_BT].mean()),
        **({"low_var_kl_mean_rejected": float(rejected.mean())} if len(rejected) else {}),
    }
