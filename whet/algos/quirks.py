"""Differences between the original systems and whet, by name; `algorithm.match` chooses whose numbers to reproduce.

Everything is off by default: each line here is something we hold to be a slip of its original, kept for people who
need its numbers. A function asks for the one it has (`quirks(config.match).singleton_keeps_score`; a policy loss finds
them in its aggregator, `aggregate.quirks`) and nothing else in the package knows about originals.
"""

from __future__ import annotations

from dataclasses import dataclass

from whet.errors import UserError


@dataclass(frozen=True, slots=True)
class Quirks:
    """One switch for each difference; the comment names who has it."""

    # Advantages
    singleton_keeps_score: bool = False  # verl, or1: a prompt's only response has its raw score as advantage
    means_in_single_precision: bool = False  # all: so equal scores differ from their mean, and GRPO divides by 1e-6
    values_outside_mask: bool = False  # verl, or1: ReMax and the returns of OTB are not masked
    gae_outside_mask: bool = False  # all: GAE's advantages and returns are not masked
    equal_groups_not_zero: bool = False  # verl: whitening (GDPO, RF++ baseline) and the tail of OTB move equal scores
    gpg_counts_scores: bool = False  # verl: GPG's scale counts scores that are not 0, not groups that differ
    rewards_outside_mask_are_lost: bool = False  # verl, easyr1, vppo, or1: to all but estimators of the total score
    otb_tail_by_count: bool = False  # verl: the tail of OTB is counted in tokens, though tools wrote in between
    rewards_end_at_observations: bool = False  # easyr1, vppo, or1: RF++ forgets a reward before a tool's tokens
    whitened_outside_mask: bool = False  # easyr1, vppo: the advantages of RF++ are not masked
    gae_over_observations: bool = False  # or1: GAE runs through tokens that the model did not write
    passk_keeps_other_scores: bool = False  # vppo: all but the best response have their raw score as advantage
    # Policy losses
    gspo_is_gspo_token: bool = False  # verl: `gspo` is the paper's token form, its log-ratio at most 10
    gspo_dual_clip: bool = False  # easyr1, vppo: GSPO's losses have PPO's dual clip
    no_dual_clip: bool = False  # or1: PPO has no dual clip
    always_sequence_mean: bool = False  # verl: SAPO and GMPO average over responses whatever loss_avg_mode says
    dppo_ratio_max_is_dual_clip: bool = False  # verl: DPPO's ratios count at most clip_ratio_c
    kl_cov_reports_distance: bool = False  # verl: ppo_kl of KL-Cov is the mean of |log π/π_old|
    # Visual dependency
    masks_every_sample: bool = False  # vppo: each sample masks its images anew; the samples of a prompt share nothing
    videos_are_not_masked: bool = False  # vppo: only images are
    counts_in_single_precision: bool = False  # vppo: ⌈share · length⌉ is now and then one more than it should be
    text_depends_on_images: bool = False  # vppo: responses to text alone lose tokens, and count as not dependent
    weights_by_micro_batch: bool = False  # vppo: shaping's mean weight is 1 in each micro-batch, not the mini-batch
    penalty_by_tokens: bool = False  # vppo: the entropy penalty is a mean over tokens whatever loss_avg_mode says
    # Controllers
    entropy_bonus_lags: bool = False  # or1: the adaptive bonus is switched by the entropy of the step before
    # Rollout correction
    k1_bounds_inverse_ratio: bool = False  # verl: k1 rejection bounds apply to π_roll/π_train


NONE = Quirks()


def quirks(match: str) -> Quirks:
    """The quirks of the original that `algorithm.match` names; none for whet."""
    if match == "whet":
        return NONE
    from whet.algos.originals import ORIGINALS

    if match not in ORIGINALS:
        raise UserError(f"algorithm.match={match}: choose one of {', '.join(['whet', *ORIGINALS])}")
    return ORIGINALS[match]
