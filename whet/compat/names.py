"""Names that moved between versions of verl, and groups of its YAML files."""

from __future__ import annotations

# Names of other versions of verl, and where 0.8 has the same key; those that end in a dot or _ stand for all that
# begin so.
_LOSS = "actor_rollout_ref.actor"  # where clip-cov and kl-cov had their keys when they were published
_MOVED = {
    f"{_LOSS}.loss_mode": f"{_LOSS}.policy_loss.loss_mode",
    f"{_LOSS}.clip_cov_": f"{_LOSS}.policy_loss.clip_cov_",
    f"{_LOSS}.ppo_kl_coef": f"{_LOSS}.policy_loss.ppo_kl_coef",
    "reward.custom_reward_function.": "custom_reward_function.",
    "reward.reward_manager.name": "reward_model.reward_manager",
    "reward.reward_manager.": "reward_manager.",
    "reward.reward_kwargs.": "reward_model.reward_kwargs.",
    "reward.sandbox_fusion.": "reward_model.sandbox_fusion.",
    "reward.num_workers": "reward_model.num_workers",
    "reward.reward_model.model_path": "reward_model.model.path",
    "reward.reward_model.": "reward_model.",
    "critic.fsdp.": "critic.model.fsdp_config.",
}
MEGATRON_GROUPS = ("engine", "model_engine", "actor", "critic", "ref", "reward_model", "optim", "model")


def newer_name(key: str) -> str:
    """Return the name that verl 0.8 has for a key of another version; any other key as it is."""
    for later, earlier in _MOVED.items():
        if key == later or (later.endswith((".", "_")) and key.startswith(later)):
            return earlier + key[len(later) :]
    return key
