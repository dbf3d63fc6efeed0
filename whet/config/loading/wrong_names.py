"""Errors about names that are no keys, and the keys that they probably mean."""

from __future__ import annotations

from whet.config.loading.aliases import ALIASES
from whet.config.loading.layer import foreign_sections, is_section
from whet.config.loading.replaced import reason_not_settable
from whet.config.problems import did_you_mean, nearest_key
from whet.config.schema import all_keys, all_sections
from whet.config.values import Given, show
from whet.errors import UserError

# Names of the Python API and of other trainers, for which the most similar key would be a wrong guess.
_SHORT = {
    "n": "worker.rollout.n",
    "model": "worker.actor.model.model_path",
    "reward": "worker.reward.reward_function",
    "learning_rate": "worker.actor.optim.lr",
    "batch_size": "data.rollout_batch_size",
    "num_generations": "worker.rollout.n",
    "steps": "trainer.max_steps",
    "epochs": "trainer.total_epochs",
    "num_train_epochs": "trainer.total_epochs",
    "output": "trainer.save_checkpoint_path",
    "output_dir": "trainer.save_checkpoint_path",
    "save_steps": "trainer.save_freq",
    "gpus": "trainer.n_gpus_per_node",
    "lora_rank": "worker.actor.model.lora.rank",
    "beta": "algorithm.kl_coef",
    "max_tokens": "data.max_response_length",
    "max_new_tokens": "data.max_response_length",
    "max_completion_length": "data.max_response_length",
    "report_to": "trainer.logger",
}


def section_error(given: Given) -> UserError:
    """Return the error for a section that was given one value."""
    example = next(known for known in [*all_keys(), *ALIASES] if known.startswith(f"{given.name}."))
    return given.error(f"is a section; give its keys, such as {example}")


def wrong_name(given: Given) -> UserError:
    """Return the error for a name that is no key: what replaced it, or the nearest real one."""
    name = show(given.name)
    reason = reason_not_settable(given.name)
    if reason:
        return UserError(f"{name}{given.place} {reason}")
    above = given.name.rpartition(".")[0]
    while above and not is_section(above):
        if above in all_keys():
            return UserError(f"{name}{given.place}: {above} is a single value and has no keys below it")
        above = above.rpartition(".")[0]
    close = did_you_mean(close_key(given.name))
    return UserError(f"unknown key {name}{given.place}{close or '; `whet config` lists every key'}")


def close_key(name: str) -> str | None:
    """Return the key or alias that an unknown name probably means."""
    if name in _SHORT:
        return _SHORT[name]
    root, _, leaf = name.partition(".")[0], *name.rpartition(".")[1:]
    is_foreign = root in foreign_sections()
    if leaf in _SHORT and not is_foreign and not any(key.rpartition(".")[2] == leaf for key in all_keys()):
        return _SHORT[leaf]
    aliases = [alias for alias in ALIASES if alias.partition(".")[0] in all_sections()]
    return nearest_key(name, ALIASES if is_foreign else [*all_keys(), *aliases, "config"])
