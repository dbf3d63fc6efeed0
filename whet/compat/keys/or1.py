"""Rows of Skywork-OR1's main_ppo where they differ from verl's: a fork of an early version, with rules of its own."""

from __future__ import annotations

from whet.compat.keys.row import Row, Table, absent, harmless, mapped, under
from whet.compat.keys.verl import VERL

_NO_REFERENCE = "Skywork-OR1 makes no reference model, so there is no KL"

ROWS: list[Row] = [
    *mapped(
        "algorithm.kl_penalty algorithm.kl_ctrl.type algorithm.kl_ctrl.kl_coef algorithm.kl_ctrl.horizon "
        "algorithm.kl_ctrl.target_kl",
        "algorithm.disable_kl",
        _NO_REFERENCE,
        rule="no_kl",
    ),
    *under(
        "actor_rollout_ref.actor",
        mapped("use_kl_loss kl_loss_coef kl_loss_type", "algorithm.disable_kl", _NO_REFERENCE, rule="no_kl"),
        harmless("ppo_epochs", "read by nobody there: every sample is used once"),
        under(
            "optim",
            mapped(
                "lr_warmup_steps_ratio warmup_style min_lr_ratio",
                "worker.actor.optim.lr_warmup_ratio worker.actor.optim.lr_scheduler_type",
                "a warmup, then a constant rate whatever is set",
                rule="constant_schedule",
            ),
        ),
    ),
    *under(
        "critic",
        mapped(
            "ppo_mini_batch_size",
            "worker.critic.global_batch_size",
            "samples there, prompts here",
            rule="critic_batch_of_samples",
        ),
        under(
            "optim",
            mapped(
                "lr_warmup_steps_ratio warmup_style min_lr_ratio",
                "worker.critic.optim.lr_warmup_ratio",
                "a warmup, then a constant rate whatever is set",
                rule="constant_schedule",
            ),
        ),
    ),
    *mapped(
        "actor_rollout_ref.rollout.n_val actor_rollout_ref.rollout.val_temperature",
        "worker.rollout.val_override_config",
        "n_val counts; val_temperature does not",
        rule="validation_or1",
    ),
    *mapped("reward_model.reward_manager", "", "one scorer of math and code there", rule="reward_or1"),
    *absent("reward_model.is_power4_reward", "a reward to the fourth power is not here; set it to False", (False,)),
    *harmless("reward_model.is_long_penalty reward_model.is_binary_reward", "read by nobody, or as whet does it"),
    *harmless("critic.kl_ctrl.*", _NO_REFERENCE),
    *harmless("data.val_batch_size", "the whole validation set is taken at once there"),
    *harmless("trainer.val_generations_to_log_to_wandb_*", "how tables are logged there"),
]
OR1 = Table(ROWS, VERL.rows)
