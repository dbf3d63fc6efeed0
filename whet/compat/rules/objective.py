"""Rules of the objective: KL, clipping, the old policy, corrections."""

from __future__ import annotations

from typing import Any

from whet.compat.rules.rule import rule
from whet.compat.translation import Here, There

_ACTOR, _CTRL = "actor_rollout_ref.actor", "algorithm.kl_ctrl"
_CORRECTION = "algorithm.rollout_correction"


@rule("kl")
def _kl(there: There, here: Here) -> None:
    """Turn verl's two switches (KL in the loss, KL in the reward) into one choice and one coefficient."""
    in_loss, in_reward = there.on(f"{_ACTOR}.use_kl_loss"), there.on("algorithm.use_kl_in_reward")
    if in_loss and in_reward:
        here.refuse(
            "algorithm.use_kl_in_reward",
            "KL in the loss and in the reward at once are two terms with two weights; keep one of the switches",
        )
    if in_loss:
        here.set("algorithm.use_kl_loss", True, f"{_ACTOR}.use_kl_loss")
        here.set("algorithm.kl_penalty", there.get(f"{_ACTOR}.kl_loss_type", "low_var_kl"), f"{_ACTOR}.kl_loss_type")
        here.set("algorithm.kl_coef", there.number(f"{_ACTOR}.kl_loss_coef", 0.001), f"{_ACTOR}.kl_loss_coef")
        for name in ("kl_penalty", "kl_ctrl.kl_coef", "kl_ctrl.type", "kl_ctrl.horizon", "kl_ctrl.target_kl"):
            here.idle(f"algorithm.{name}", "counts only where KL is in the reward")
        return
    for name in ("kl_loss_coef", "kl_loss_type"):
        here.idle(f"{_ACTOR}.{name}", "counts only with use_kl_loss=True")
    if not in_reward:
        here.set("algorithm.disable_kl", True, f"{_ACTOR}.use_kl_loss", "algorithm.use_kl_in_reward")
        here.set("algorithm.use_kl_loss", False, f"{_ACTOR}.use_kl_loss")
        for name in ("kl_penalty", "kl_ctrl.kl_coef", "kl_ctrl.type", "kl_ctrl.horizon", "kl_ctrl.target_kl"):
            here.idle(f"algorithm.{name}", "counts only with use_kl_in_reward=True")
        return
    here.set("algorithm.use_kl_loss", False, "algorithm.use_kl_in_reward")
    here.set("algorithm.kl_penalty", there.get("algorithm.kl_penalty", "kl"), "algorithm.kl_penalty")
    here.set("algorithm.kl_coef", there.number(f"{_CTRL}.kl_coef", 0.001), f"{_CTRL}.kl_coef")
    here.set("algorithm.kl_type", there.get(f"{_CTRL}.type", "fixed"), f"{_CTRL}.type")
    here.set("algorithm.kl_horizon", there.number(f"{_CTRL}.horizon", 10000), f"{_CTRL}.horizon")
    here.set("algorithm.kl_target", there.number(f"{_CTRL}.target_kl", 0.1), f"{_CTRL}.target_kl")


@rule("no_kl")
def _no_kl(there: There, here: Here) -> None:
    """Skywork-OR1 makes no reference worker, so that no coefficient of KL counts."""
    here.set("algorithm.disable_kl", True, f"{_ACTOR}.use_kl_loss")
    if there.on(f"{_ACTOR}.use_kl_loss"):
        here.note(
            "actor_rollout_ref.actor.use_kl_loss=True fails in Skywork-OR1, which makes no reference; there is no KL"
        )
    for name in ("kl_loss_coef", "kl_loss_type"):
        here.idle(f"{_ACTOR}.{name}", "Skywork-OR1 makes no reference model, so there is no KL")
    for name in ("kl_penalty", "kl_ctrl.kl_coef", "kl_ctrl.type", "kl_ctrl.horizon", "kl_ctrl.target_kl"):
        here.idle(f"algorithm.{name}", "Skywork-OR1 makes no reference model, so there is no KL")


@rule("kl_easyr1")
def _kl_easyr1(there: There, here: Here) -> None:
    """In EasyR1 and VPPO-RL disable_kl wins over use_kl_loss; whet refuses the pair."""
    if there.on("algorithm.disable_kl"):
        here.set("algorithm.disable_kl", True, "algorithm.disable_kl")
        here.set("algorithm.use_kl_loss", False, "algorithm.use_kl_loss")
        return
    here.set("algorithm.use_kl_loss", there.on("algorithm.use_kl_loss"), "algorithm.use_kl_loss")


@rule("clip")
def _clip(there: There, here: Here) -> None:
    """Both bounds; clip_ratio stands in for one that is null, and is the only one in Skywork-OR1."""
    both = there.number(f"{_ACTOR}.clip_ratio", 0.2)
    for side in ("low", "high"):
        name = f"{_ACTOR}.clip_ratio_{side}"
        own = there.values.get(name)
        if isinstance(own, int | float) and own < 0:  # none, in forks
            own = None
        source = f"{_ACTOR}.clip_ratio" if own is None else name
        value = both if own is None else own
        if side == "low" and isinstance(value, int | float) and value > 1:
            here.note(f"{source}={value}: no ratio is below 0, so there is no lower bound, which is 1 in whet")
            value = 1
        here.set(f"worker.actor.clip_ratio_{side}", value, source)
        if own is not None:
            here.idle(f"{_ACTOR}.clip_ratio", "counts only where clip_ratio_low and clip_ratio_high are null")
    if f"{_ACTOR}.clip_ratio_c" in there:
        here.set("worker.actor.clip_ratio_dual", there.number(f"{_ACTOR}.clip_ratio_c", 3.0), f"{_ACTOR}.clip_ratio_c")


@rule("old_log_probs")
def _old_log_probs(there: There, here: Here) -> None:
    """The sampler's log-probs as those of the old policy."""
    keys = (f"{_ACTOR}.use_rollout_log_probs", "async_training.use_rollout_log_probs")
    if any(there.on(key) for key in keys) and not there.on(f"{_CORRECTION}.bypass_mode"):
        here.set("worker.actor.recompute_old_log_probs", False, *keys)


@rule("proximal")
def _proximal(there: There, here: Here) -> None:
    """Decoupled PPO: clip against the policy before the update, and weight tokens by its ratio to the sampler's."""
    key = "async_training.compute_prox_log_prob"
    if not there.on(key):
        return
    here.drop("worker.actor.recompute_old_log_probs")
    if not there.get(f"{_CORRECTION}.rollout_is"):
        here.set(f"{_CORRECTION}.rollout_is", "token", key)


@rule("correction")
def _correction(there: There, here: Here) -> None:
    """Rollout correction: the same names; thresholds count only beside what they bound."""
    if there.values.get(_CORRECTION) is None and not there.below(_CORRECTION):
        return
    values: dict[str, Any] = there.below(_CORRECTION)
    if not values.get("rollout_is"):
        values.pop("rollout_is_threshold", None)
        values.pop("rollout_is_batch_normalize", None)
    if not values.get("rollout_rs"):
        values.pop("rollout_rs_threshold", None)
    for name, value in values.items():
        key = f"{_CORRECTION}.{name}"
        if not here.has(key):
            if there.is_given(key) and value not in (None, False):
                here.refuse(key, "rollout correction has no such key here; leave it out")
        elif value is not None:
            here.set(key, str(value) if name.endswith("rs_threshold") else value, key)
    if there.on(f"{_CORRECTION}.bypass_mode"):
        here.drop("worker.actor.recompute_old_log_probs")
        loss = here.value("worker.actor.loss_type", "default")
        if loss != "default":
            here.drop("worker.actor.loss_type")
            here.idle(f"{_ACTOR}.policy_loss.loss_mode", "bypass_mode trains with rollout_correction.loss_type")


@rule("repetition")
def _repetition(there: There, here: Here) -> None:
    if there.number("actor_rollout_ref.rollout.repetition_penalty", 1) != 1:
        here.refuse("actor_rollout_ref.rollout.repetition_penalty", "a repetition penalty is not here; set it to 1")
