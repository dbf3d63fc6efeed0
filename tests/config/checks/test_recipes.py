"""Contradictions between the keys of filters, penalties and controllers are named."""

from __future__ import annotations

import pytest

from whet.config import check_config, load_config
from whet.config.checks.recipes import draws_allowed
from whet.errors import UserError

REQUIRED = [
    "worker.actor.model.model_path=org/model",
    "worker.reward.reward_function=reward.py:main",
    "data.train_files=train.jsonl",
    "data.rollout_batch_size=8",
    "worker.actor.global_batch_size=8",
    "worker.rollout.n=4",
]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["algorithm.online_filtering=true", "algorithm.filter_low=1"], "algorithm.filter_low=1.0 is not below"),
        (["algorithm.online_filtering=true", "trainer.rejection_sample=true"], "drops groups without refilling"),
        (["trainer.rejection_sample_multiplier=2"], "belongs to trainer.rejection_sample"),
        (
            ["worker.actor.loss_type=vespo", "algorithm.rollout_correction=decoupled_seq_is"],
            "loss_type=vespo multiplies the weights of a response's tokens; set algorithm.rollout_correction",
        ),
        (
            ["trainer.rejection_sample=true", "worker.rollout.n=1", "algorithm.adv_estimator=reinforce_plus_plus"],
            "trainer.rejection_sample=true looks at how the samples of a prompt differ",
        ),
        (
            ["algorithm.online_filtering=true", "data.mini_rollout_batch_size=2", "trainer.max_try_make_batch=3"],
            "trainer.max_try_make_batch=3 draws of 2 prompts can never fill data.rollout_batch_size=8",
        ),
        (
            [
                "algorithm.filter_groups.enable=true",
                "data.gen_batch_size=2",
                "algorithm.filter_groups.max_num_gen_batches=1",
            ],
            "algorithm.filter_groups.max_num_gen_batches=1 draws of 2 prompts can never fill",
        ),
        (["worker.reward.overlong_buffer.enable=true"], "set it between 1 and data.max_response_length=512"),
        (
            ["reward_model.overlong_buffer.enable=true", "reward_model.overlong_buffer.len=513"],
            "worker.reward.overlong_buffer.len=513",
        ),
        (["algorithm.kl_type=adaptive", "algorithm.kl_coef=0"], "a kl_coef of 0 stays 0"),
        (["algorithm.kl_type=adaptive", "algorithm.disable_kl=true"], "algorithm.disable_kl=true leaves no KL"),
        (["worker.actor.adaptive_entropy.enabled=true"], "target_entropy=0 is below every entropy"),
        (
            [
                "worker.actor.adaptive_entropy.enabled=true",
                "worker.actor.adaptive_entropy.target_entropy=0.2",
                "worker.actor.adaptive_entropy.min_ent_coef=0.6",
            ],
            "min_ent_coef=0.6 is more than max_ent_coef=0.5",
        ),
        (["data.mini_rollout_batch_size=3"], "data.mini_rollout_batch_size=3 does not divide"),
        (["reward_model.overlong_buffer.log=true"], "the penalty is always logged"),
        (
            ["algorithm.use_vppo_on_entropy=true", "worker.actor.loss_type=geo_mean"],
            "algorithm.use_vppo_on_entropy=true chooses tokens, but worker.actor.loss_type=geo_mean has one loss",
        ),
        (
            ["algorithm.use_advantage_shaping=true", "algorithm.match=vppo"],
            "algorithm.use_advantage_shaping=true does nothing in VPPO-RL without algorithm.use_vppo_on_perception",
        ),
        (["algorithm.top_p_perception_tokens=0"], "algorithm.top_p_perception_tokens=0"),
        (["algorithm.advantage_scaling_min=1.5"], "algorithm.advantage_scaling_min=1.5"),
        (["algorithm.perception_mask=black"], "algorithm.perception_mask=black"),
    ],
)
def test_contradictions_are_named(argv, message):
    with pytest.raises(UserError) as error:
        check_config(load_config([*REQUIRED, *argv]))
    assert message in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_a_step_that_refills_may_draw_any_number_of_prompts():
    for size in ("3", "24"):
        config = load_config([*REQUIRED, "algorithm.filter_groups.enable=true", f"data.gen_batch_size={size}"])
        check_config(config)
        assert config.algorithm.refills


def test_how_often_a_step_may_draw():
    groups = "algorithm.filter_groups.enable=true"
    limit = "algorithm.filter_groups.max_num_gen_batches=5"
    assert draws_allowed(load_config([groups])) == 20
    assert draws_allowed(load_config([groups, limit])) == 5
    assert draws_allowed(load_config(["algorithm.online_filtering=true", limit])) == 20
    assert draws_allowed(load_config([groups, "trainer.max_try_make_batch=-1"])) is None
