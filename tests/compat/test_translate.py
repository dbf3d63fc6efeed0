"""Meaning of other systems' keys: values that depend on several keys, and keys that are refused with advice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from whet.compat.checking import Verdict, check_command
from whet.compat.systems import SYSTEMS
from whet.compat.translate import translate
from whet.compat.translation import Translation
from whet.config.schema import all_keys

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
NAME = f"{ROLLOUT}.name=vllm"


def made(*arguments: str, system: str = "verl", module: str = "verl.trainer.main_ppo") -> Translation:
    entry = SYSTEMS[system].entry(module)
    assert entry is not None
    return translate(
        SYSTEMS[system], entry, [NAME, *arguments] if module.endswith("main_ppo") else list(arguments), Path(".")
    )


def settings(*arguments: str, **where: str) -> dict[str, Any]:
    found = made(*arguments, **where)
    assert found.original == []
    assert found.refused == []
    return {key: setting.value for key, setting in found.settings.items()}


def test_kl_switches_decide_which_coefficient_counts() -> None:
    both = ("algorithm.kl_ctrl.kl_coef=0.5", f"{ACTOR}.kl_loss_coef=0.25", f"{ACTOR}.kl_loss_type=mse")
    assert settings(*both)["algorithm.disable_kl"] is True
    assert "algorithm.kl_coef" not in settings(*both)
    loss = settings(*both, f"{ACTOR}.use_kl_loss=True")
    assert (loss["algorithm.use_kl_loss"], loss["algorithm.kl_coef"], loss["algorithm.kl_penalty"]) == (
        True,
        0.25,
        "mse",
    )
    reward = settings(*both, "algorithm.use_kl_in_reward=True")
    assert (reward["algorithm.use_kl_loss"], reward["algorithm.kl_coef"]) == (False, 0.5)
    assert "algorithm.disable_kl" not in reward
    refused = made(f"{ACTOR}.use_kl_loss=True", "algorithm.use_kl_in_reward=True").refused
    assert [remark.key for remark in refused] == ["algorithm.use_kl_in_reward"]
    assert settings("algorithm.kl_ctrl.kl_coef=0.5", system="or1")["algorithm.disable_kl"] is True


def test_keys_that_nobody_here_knows_are_refused_unless_they_are_off(tmp_path: Path) -> None:
    found = made("+data.mine=0", "+data.other=False", "+data.third=null")
    assert [remark.key for remark in found.refused] == ["data.mine"]
    assert [remark.key for remark in found.no_effect] == ["data.other", "data.third"]
    config = tmp_path / "verl" / "trainer" / "config"
    config.mkdir(parents=True)
    (config / "ppo_trainer.yaml").write_text(
        "retriever: {url: x, cache: false}\ntrainer: {default_hdfs_dir: ~/copies}\n"
    )
    entry = SYSTEMS["verl"].entry("verl.trainer.main_ppo")
    assert entry is not None
    fork = translate(SYSTEMS["verl"], entry, [NAME], tmp_path)
    assert fork.refused == []
    assert any(note.endswith("retriever.url") for note in fork.notes)
    assert any("~/copies" in note for note in fork.notes)


def test_earlier_names_of_easyr1() -> None:
    where = {"system": "easyr1", "module": "verl.trainer.main"}
    found = settings(
        "worker.actor.kl_loss_coef=0.5", "worker.actor.entropy_coeff=0.25", "worker.actor.clip_ratio=0.1",
        "worker.actor.ulysses_sequence_parallel_size=2", "worker.reward.reward_type=sequential",
        "worker.reward.score_function=a.py:f", "trainer.total_episodes=3", "trainer.remove_previous_ckpt=true",
        "worker.actor.offload.param_offload=true", **where,
    )  # fmt: skip
    assert (found["algorithm.kl_coef"], found["algorithm.kl_penalty"]) == (0.5, "low_var_kl")
    assert (found["worker.actor.clip_ratio_low"], found["worker.actor.clip_ratio_high"]) == (0.1, 0.1)
    assert (found["worker.actor.entropy_coeff"], found["worker.actor.ulysses_size"]) == (0.25, 2)
    assert (found["worker.reward.reward_type"], found["worker.reward.reward_function"]) == ("sequential", "a.py:f")
    assert (found["trainer.total_epochs"], found["trainer.save_limit"]) == (3, 1)
    assert found["worker.actor.offload.offload_params"] is True
    off = settings("worker.actor.kl_loss_coef=0.5", "worker.actor.use_kl_loss=false", **where)
    assert off.get("algorithm.kl_coef") != 0.5
    refused = made("worker.reward.compute_score=math", "data.system_prompt=x", **where).refused
    assert {remark.key for remark in refused} == {"worker.reward.compute_score", "data.system_prompt"}


def test_numbers_that_count_for_nothing_are_left_out() -> None:
    found = settings(
        f"{ACTOR}.clip_ratio=0.3", f"++{ACTOR}.clip_ratio_low=-1", "+trainer.rejection_sample_multiplier=2"
    )
    assert found["worker.actor.clip_ratio_low"] == 0.3
    assert "trainer.rejection_sample_multiplier" not in found
    kept = settings("trainer.rejection_sample=True", "trainer.rejection_sample_multiplier=2", system="or1")
    assert (kept["trainer.rejection_sample"], kept["trainer.rejection_sample_multiplier"]) == (True, 2)


def test_an_empty_switch_is_off() -> None:
    assert settings(f"{ACTOR}.use_kl_loss=")["algorithm.disable_kl"] is True


def test_numbers_may_come_from_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMPLES", "4")
    assert str(settings(f"{ROLLOUT}.n=${{oc.env:SAMPLES}}")["worker.rollout.n"]) == "4"
    assert [each.key for each in made(f"{ROLLOUT}.n=${{oc.env:SAMPLES}}x").refused] == [f"{ROLLOUT}.n"]


def test_files_are_joined_and_a_list_of_one_is_its_name() -> None:
    assert settings("data.train_files=['a.parquet', 'b.parquet']")["data.train_files"] == "a.parquet,b.parquet"
    assert settings("data.train_files=[a.parquet]")["data.train_files"] == "a.parquet"


def test_micro_batches_are_made_to_fit() -> None:
    sizes = ("data.train_batch_size=6", f"{ACTOR}.ppo_mini_batch_size=6", f"{ACTOR}.ppo_micro_batch_size_per_gpu=4")
    assert settings(*sizes)["worker.actor.micro_batch_size_per_device_for_update"] == 3
    dynamic = (*sizes, f"{ACTOR}.use_dynamic_bsz=True", f"{ACTOR}.ppo_max_token_len_per_gpu=10")
    assert settings(*dynamic)["worker.actor.micro_batch_tokens"] == 1024
    assert "worker.actor.micro_batch_tokens" not in settings(*sizes, f"{ACTOR}.ppo_max_token_len_per_gpu=10")


def test_clipping() -> None:
    assert settings(f"{ACTOR}.clip_ratio_low=10")["worker.actor.clip_ratio_low"] == 1
    wide = settings(f"{ACTOR}.clip_ratio=0.1", f"{ACTOR}.clip_ratio_low=null", f"{ACTOR}.clip_ratio_high=null")
    assert (wide["worker.actor.clip_ratio_low"], wide["worker.actor.clip_ratio_high"]) == (0.1, 0.1)
    assert settings(f"{ACTOR}.clip_ratio=0.3", system="or1")["worker.actor.clip_ratio_low"] == 0.3


def test_megatron_becomes_tensor_and_sequence_parallelism() -> None:
    section = f"{ACTOR}.megatron"
    found = settings(
        "--config-name=ppo_megatron_trainer",
        f"{section}.tensor_model_parallel_size=2",
        f"{section}.pipeline_model_parallel_size=2",
        f"{section}.context_parallel_size=2",
        f"{section}.param_offload=True",
        f"+{section}.override_transformer_config.moe_permute_fusion=True",
        f"{section}.override_transformer_config.recompute_granularity=full",
        f"{ACTOR}.optim.clip_grad=0.5",
        f"{ACTOR}.optim.lr_decay_style=cosine",
        f"{ACTOR}.optim.min_lr=1e-7",
    )
    assert (found["worker.actor.tensor_parallel_size"], found["worker.actor.ulysses_size"]) == (2, 2)
    assert found["worker.actor.offload.offload_params"] is True
    assert found["worker.actor.model.enable_gradient_checkpointing"] is True
    assert found["worker.actor.max_grad_norm"] == 0.5
    assert found["worker.actor.optim.min_lr_ratio"] == pytest.approx(0.1)


def test_activation_offload_is_taken_over_where_it_is_asked_for() -> None:
    offload = "model.enable_activation_offload"
    found = settings(f"actor_rollout_ref.{offload}=True", f"critic.{offload}=True")
    assert found[f"worker.actor.{offload}"] is found[f"worker.critic.{offload}"] is True
    assert f"worker.actor.{offload}" not in settings()
    assert settings(f"{offload}=True", module="verl.trainer.sft_trainer")[f"worker.actor.{offload}"] is True


def test_rewards() -> None:
    found = settings(
        "custom_reward_function.path=r.py",
        "+custom_reward_function.reward_kwargs.x=2",
        "reward_model.reward_manager=dapo",
        "+reward_model.reward_kwargs.overlong_buffer_cfg.enable=True",
        "+reward_model.reward_kwargs.overlong_buffer_cfg.len=8",
        "+reward_model.reward_kwargs.max_resp_len=512",
    )
    assert found["worker.reward.reward_function"] == "r.py:compute_score"
    assert found["worker.reward.reward_function_kwargs"] == {"x": 2}
    assert (found["worker.reward.manager"], found["worker.reward.overlong_buffer.len"]) == ("dapo", 8)
    later = settings("reward.custom_reward_function.path=r.py", "reward.custom_reward_function.name=f")
    assert later["worker.reward.reward_function"] == "r.py:f"


def test_resuming_checkpoints_and_loggers() -> None:
    found = settings("trainer.resume_mode=resume_path", "trainer.resume_from_path=x/global_step_3")
    assert (found["trainer.find_last_checkpoint"], found["trainer.load_checkpoint_path"]) == (False, "x/global_step_3")
    assert settings("trainer.resume_mode=disable")["trainer.find_last_checkpoint"] is False
    assert settings("trainer.logger=[console,trackio]")["trainer.logger"] == ["console", "file"]
    assert settings("trainer.critic_warmup=3")["trainer.critic_warmup"] == 2


def test_supervised_columns() -> None:
    where = {"module": "verl.trainer.fsdp_sft_trainer"}
    found = settings("data.prompt_key=extra_info", "data.prompt_dict_keys=[question]", "data.max_length=100", **where)
    assert (found["data.prompt_key"], found["sft.messages_key"]) == ("extra_info.question", None)
    assert found["data.max_prompt_length"] + found["data.max_response_length"] == 100
    assert settings("data.multiturn.enable=true", "data.multiturn.messages_key=m", **where)["sft.messages_key"] == "m"


@pytest.mark.parametrize(
    ("argument", "key"),
    [
        ("data.custom_cls.path=x.py", "data.custom_cls.path"),
        ("actor_rollout_ref.model.mtp.enable=True", "actor_rollout_ref.model.mtp.enable"),
        ("trainer.device=npu", "trainer.device"),
        (f"{ACTOR}.strategy=veomni", f"{ACTOR}.strategy"),
        (f"{ACTOR}.shuffle=True", f"{ACTOR}.shuffle"),
        (f"+{ROLLOUT}.something_new=1", f"{ROLLOUT}.something_new"),
        ("+trainer.something_new=1", "trainer.something_new"),
        (f"{ROLLOUT}.quantization=fp8", f"{ROLLOUT}.quantization"),
        ("reward_model.reward_manager=mine", "reward_model.reward_manager"),
    ],
)
def test_what_is_not_here_is_refused_by_name(argument: str, key: str) -> None:
    found = made("algorithm.adv_estimator=grpo", argument)
    assert found.original == []
    assert [remark.key for remark in found.refused] == [key]
    assert found.refused[0].says


@pytest.mark.parametrize(
    "argument",
    [
        "data.train_max_samples=-1",
        "actor_rollout_ref.model.mtp.enable=False",
        "actor_rollout_ref.model.use_remove_padding=True",
        f"{ROLLOUT}.enforce_eager=True",
        f"{ROLLOUT}.multi_turn.enable=True",
        f"{ROLLOUT}.mode=async",
        f"+{ROLLOUT}.engine_kwargs.vllm.disable_mm_preprocessor_cache=True",
        f"{ACTOR}.use_torch_compile=True",
        "trainer.balance_batch=True",
    ],
)
def test_what_asks_for_nothing_passes(argument: str) -> None:
    assert made(argument).refused == []


def test_asynchronous_mains_need_staleness_here() -> None:
    for module in (
        "verl.experimental.one_step_off_policy.main_ppo",
        "verl.experimental.fully_async_policy.fully_async_main",
    ):
        entry = SYSTEMS["verl"].entry(module)
        assert entry is not None
        found = translate(SYSTEMS["verl"], entry, [NAME, "actor_rollout_ref.hybrid_engine=False"], Path("."))
        if "trainer.max_staleness" in all_keys():
            assert found.refused == []
            assert found.settings["trainer.max_staleness"].value >= 1
        else:
            assert len(found.refused) == 1
        assert found.settings["trainer.placement.rollout"].value == 8
        assert found.settings["trainer.n_gpus_per_node"].value == 16


def test_one_response_of_a_prompt_is_trained_on_where_the_original_does() -> None:
    arguments = [NAME, "algorithm.adv_estimator=grpo", f"{ROLLOUT}.n=1"]
    assert check_command("verl", "verl.trainer.main_ppo", arguments, Path(".")).verdict is Verdict.ACCEPTED
    easy = check_command("easyr1", "verl.trainer.main", ["worker.rollout.n=1"], Path("."))
    assert easy.verdict is Verdict.REFUSED


def test_a_module_that_is_no_main_is_not_known() -> None:
    assert check_command("verl", "verl.utils.x", [], Path(".")).verdict is Verdict.UNKNOWN


def test_rows_and_variables_of_the_chat_template() -> None:
    found = settings(
        "data.train_max_samples=100",
        "data.val_max_samples=-1",
        "+data.apply_chat_template_kwargs.enable_thinking=False",
    )
    assert found["data.max_train_rows"] == 100
    assert "data.max_val_rows" not in found
    assert found["data.chat_template_args"] == {"enable_thinking": False}
    assert settings("data.apply_chat_template_kwargs={enable_thinking: true}")["data.chat_template_args"] == {
        "enable_thinking": True
    }


@pytest.mark.parametrize(("devices", "strategy"), [(1, "adamw_8bit"), (8, None)])
def test_optimizers_with_8_bit_states_are_for_one_device(devices: int, strategy: str | None) -> None:
    found = settings(f"{ACTOR}.optim.optimizer=AdamW8bit", f"trainer.n_gpus_per_node={devices}")
    assert found.get("worker.actor.optim.strategy") == strategy


def test_a_proximal_policy_is_a_correction() -> None:
    module = "verl.experimental.fully_async_policy.fully_async_main"
    found = settings(NAME, "async_training.compute_prox_log_prob=True", module=module)
    assert found["algorithm.rollout_correction.rollout_is"] == "token"
    assert "worker.actor.recompute_old_log_probs" not in found
