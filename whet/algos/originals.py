"""The original systems and their quirks, by the value of `algorithm.match`."""

from __future__ import annotations

from whet.algos.quirks import Quirks

ORIGINALS = {
    "verl": Quirks(
        means_in_single_precision=True,
        singleton_keeps_score=True,
        values_outside_mask=True,
        gae_outside_mask=True,
        equal_groups_not_zero=True,
        rewards_outside_mask_are_lost=True,
        gpg_counts_scores=True,
        otb_tail_by_count=True,
        gspo_is_gspo_token=True,
        always_sequence_mean=True,
        dppo_ratio_max_is_dual_clip=True,
        kl_cov_reports_distance=True,
        k1_bounds_inverse_ratio=True,
    ),
    "easyr1": Quirks(
        means_in_single_precision=True,
        rewards_outside_mask_are_lost=True,
        rewards_end_at_observations=True,
        whitened_outside_mask=True,
        gae_outside_mask=True,
        gspo_dual_clip=True,
    ),
    "vppo": Quirks(
        means_in_single_precision=True,
        rewards_outside_mask_are_lost=True,
        rewards_end_at_observations=True,
        whitened_outside_mask=True,
        gae_outside_mask=True,
        passk_keeps_other_scores=True,
        gspo_dual_clip=True,
        masks_every_sample=True,
        videos_are_not_masked=True,
        counts_in_single_precision=True,
        text_depends_on_images=True,
        weights_by_micro_batch=True,
        penalty_by_tokens=True,
    ),
    "or1": Quirks(
        means_in_single_precision=True,
        singleton_keeps_score=True,
        values_outside_mask=True,
        gae_outside_mask=True,
        rewards_outside_mask_are_lost=True,
        rewards_end_at_observations=True,
        gae_over_observations=True,
        no_dual_clip=True,
        entropy_bonus_lags=True,
    ),
}
