"""verl's names lead to ours, or say what to set instead."""

import pytest

from whet.config import load_config
from whet.config.loading.aliases import ALIASES
from whet.config.loading.layer import foreign_sections
from whet.config.loading.replaced import DERIVED, REPLACED
from whet.config.schema import all_keys, all_presets, all_sections
from whet.errors import UserError


def test_every_alias_leads_to_a_key():
    for theirs, ours in ALIASES.items():
        assert theirs not in all_keys(), theirs
        assert ours in all_keys() or ours.startswith(
            ("worker.rollout.val_override_config.", "worker.reward.reward_function_kwargs.")
        ), theirs
    assert set(REPLACED).isdisjoint({*ALIASES, *all_keys(), *DERIVED})


def test_verl_arguments_set_our_keys():
    config = load_config(
        [
            "data.train_batch_size=64",
            "actor_rollout_ref.model.path=org/model",
            "actor_rollout_ref.actor.optim.lr=3e-6",
            "actor_rollout_ref.actor.ppo_mini_batch_size=32",
            "actor_rollout_ref.actor.clip_ratio_c=4",
            "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum",
            "actor_rollout_ref.actor.use_kl_loss=True",
            "actor_rollout_ref.actor.kl_loss_type=k3",
            "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
            "actor_rollout_ref.rollout.val_kwargs.temperature=0.6",
            "critic.optim.lr=1e-5",
            "trainer.test_freq=5",
            "trainer.total_training_steps=100",
            "trainer.default_local_dir=runs/a",
        ]
    )
    actor = config.worker.actor
    assert (config.data.rollout_batch_size, actor.global_batch_size) == (64, 32)
    assert (actor.model.model_path, actor.optim.lr, actor.clip_ratio_dual) == ("org/model", 3e-6, 4.0)
    assert (config.algorithm.use_kl_loss, config.algorithm.kl_penalty) == (True, "k3")
    assert config.worker.rollout.val_override_config == {"temperature": 0.6}
    assert (config.trainer.val_freq, config.trainer.max_steps) == (5, 100)
    assert (config.trainer.save_checkpoint_path, config.worker.critic.optim.lr) == ("runs/a", 1e-5)


def test_aliases_work_in_files_too(tmp_path):
    file = tmp_path / "verl.yaml"
    file.write_text("actor_rollout_ref:\n  actor:\n    ppo_epochs: 2\n  rollout: {n: 4}\n")
    config = load_config([f"config={file}", "worker.rollout.n=8"])
    assert (config.worker.actor.ppo_epochs, config.worker.rollout.n) == (2, 8)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["data.train_batch_size=4", "data.rollout_batch_size=8"],
            "data.train_batch_size=4 and data.rollout_batch_size=8 both set data.rollout_batch_size; keep one",
        ),
        (
            ["worker.rollout.val_override_config.n=4", "actor_rollout_ref.rollout.n_val=2"],
            "both set worker.rollout.val_override_config.n; keep one",
        ),
        (["data.train_batch_size=many"], "data.train_batch_size=many: expected an integer"),
        (["actor_rollout_ref.actor.optm.lr=1"], "did you mean actor_rollout_ref.actor.optim.lr?"),
        (["actor_rollout_ref=1"], "actor_rollout_ref=1: is a section"),
        (
            ["actor_rollout_ref.actor.clip_ratio=0.2"],
            "set worker.actor.clip_ratio_low and worker.actor.clip_ratio_high",
        ),
        (["reward_model.enable=true"], "worker.reward.model.path names a reward model"),
        (["custom_reward_function.path=a.py"], "set worker.reward.reward_function=path.py:function"),
        (["trainer.resume_mode=auto"], "set trainer.find_last_checkpoint"),
    ],
)
def test_what_cannot_be_taken_over_is_said(argv, message):
    with pytest.raises(UserError) as caught:
        load_config(argv)
    assert message in str(caught.value)


def test_an_alias_may_repeat_the_same_value():
    assert load_config(["data.train_batch_size=8", "data.rollout_batch_size=8"]).data.rollout_batch_size == 8


@pytest.mark.parametrize("value", ["3", "null", "", "[1]"])
def test_every_section_refuses_a_single_value(value):
    for name in {*all_sections(), *foreign_sections()} - set(all_presets()):  # where a single value names a preset
        with pytest.raises(UserError, match=f"{name}=.*: is a section; give its keys, such as {name}"):
            load_config([f"{name}={value}"])
