"""Checks of `algorithm.rollout_correction.*`, and of samplers whose probabilities need it."""

from __future__ import annotations

from collections.abc import Iterator

from whet.config.checks.run import Check
from whet.config.correction import SECTION, rejection_rules, weight_bounds
from whet.config.schema import Config
from whet.config.values import show
from whet.errors import UserError


def _correction(config: Config) -> Iterator[str]:
    correction, actor = config.algorithm.rollout_correction, config.worker.actor
    for read in (weight_bounds, rejection_rules):
        try:
            read(correction)
        except UserError as error:
            yield str(error)
    recompute = f"worker.actor.recompute_old_log_probs={show(actor.recompute_old_log_probs)}"
    if correction.bypass_mode and actor.recompute_old_log_probs:
        yield f"{recompute}, but {SECTION}.bypass_mode=true takes the sampler's; keep one"
    if correction.active and not correction.bypass_mode and actor.recompute_old_log_probs is False:
        yield f"{recompute}, but {SECTION} compares the learner's log-probs with the sampler's; leave it out"
    rollout = config.worker.rollout
    alike = (("quantization", rollout.quantize_learner), ("kv_cache_dtype", False))
    for name, same in alike:
        if getattr(rollout, name) and not (same or correction.active):
            yield (
                f"worker.rollout.{name}={getattr(rollout, name)} samples from other probabilities than the learner's: "
                f"set {SECTION}=decoupled_token_is, which corrects for it"
            )
    if correction.bypass_mode and actor.loss_type != "default":
        yield (
            f"worker.actor.loss_type={actor.loss_type}, but {SECTION}.bypass_mode=true trains with "
            f"{SECTION}.loss_type={correction.loss_type}; leave the former out"
        )
    if actor.loss_type == "vespo" and (correction.rollout_is == "sequence" or correction.rollout_is_batch_normalize):
        yield (
            f"worker.actor.loss_type=vespo multiplies the weights of a response's tokens; set {SECTION}."
            f"rollout_is=token and {SECTION}.rollout_is_batch_normalize=false"
        )


CORRECTION_CHECKS: tuple[Check, ...] = (_correction,)
