"""Names that moved between versions of verl, and groups of its YAML files."""

from __future__ import annotations

# Names of verl 0.9.1 and later, and where 0.8 has the same key; those that end in a dot stand for all keys below.
_MOVED = {
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
    """Return the name that verl 0.8 has for a key of a later version; any other key as it is."""
    for later, earlier in _MOVED.items():
        if key == later or (later.endswith(".") and key.startswith(later)):
            return earlier + key[len(later) :]
    return key
