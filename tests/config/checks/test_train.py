"""What must hold between keys."""

import pytest

from whet.config import check_config, load_config, val_rollout, with_values
from whet.config.checks.not_yet import NOT_YET
from whet.config.keys import get
from whet.config.schema import all_keys
from whet.config.schema.algorithm import ADVANTAGES
from whet.errors import UserError

REQUIRED = [
    "worker.actor.model.model_path=org/model",
    "worker.reward.reward_function=reward.py:score",
    "data.train_files=train.jsonl",
    "worker.rollout.n=4",
]
ALONE = {"gae", "rae", "remax", "reinforce_plus_plus", "spo"}  # estimators that need one sample of a prompt
WITH = {name: (f"worker.actor.loss_type={name}",) for name in ("flowrl", "sppo")}  # estimators that have a loss
WITH["spin"] = ("worker.actor.loss_type=spin", "algorithm.demonstration_key=response")


def problems_of(*argv: str) -> list[str]:
    config = load_config([*REQUIRED, *argv])
    try:
        check_config(config)
    except UserError as error:
        return str(error).splitlines()
    return []


def test_a_sound_config_passes():
    assert problems_of() == []
    assert problems_of("trainer.val_freq=5", "data.val_files=val.jsonl", "worker.actor.micro_batch_tokens=1024") == []
    assert problems_of("worker.actor.optim.strategy=adamw_bf16", "worker.actor.fsdp.torch_dtype=bf16") == []


def test_missing_keys_are_all_named_at_once():
    with pytest.raises(UserError) as caught:
        check_config(load_config(["trainer.val_freq=5"]))
    text = str(caught.value)
    for name in (
        "worker.actor.model.model_path",
        "data.train_files",
        "data.val_files",
    ):
        assert f"{name} is not set" in text


def test_validation_alone_needs_no_training_data():
    argv = ["trainer.val_only=true", "data.val_files=val.jsonl", *REQUIRED[:2], "data.rollout_batch_size=7"]
    check_config(load_config(argv))
    with pytest.raises(UserError, match=r"data\.val_files is not set, but trainer\.val_only=true"):
        check_config(load_config([argv[0], *REQUIRED[:2]]))


@pytest.mark.parametrize("estimator", sorted(set(ADVANTAGES.names) - ALONE))
def test_group_estimators_need_two_samples(estimator):
    found = problems_of("worker.rollout.n=1", f"algorithm.adv_estimator={estimator}", *WITH.get(estimator, ()))
    assert len(found) == 1
    assert f"worker.rollout.n=1: adv_estimator={estimator} compares" in found[0]


@pytest.mark.parametrize("estimator", sorted(ALONE))
def test_other_estimators_do_with_one(estimator):
    assert problems_of("worker.rollout.n=1", f"algorithm.adv_estimator={estimator}") == []


def test_extensions_may_add_names():
    extended = ["algorithm.extensions=[mine.py]", "algorithm.adv_estimator=mine", "worker.actor.loss_type=ours"]
    assert problems_of(*extended) == []
    config = with_values(load_config([*REQUIRED, *extended]), {"algorithm.extensions": []})
    with pytest.raises(UserError, match=r"adv_estimator=mine: mine is not one of (.|\n)*loss_type=ours: ours is"):
        check_config(config)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["worker.actor.global_batch_size=100"],
            "worker.actor.global_batch_size=100 does not divide data.rollout_batch_size=512; "
            "set it to 64 or 128, or the latter to 500 or 600",
        ),
        (
            ["data.rollout_batch_size=8"],
            "worker.actor.global_batch_size=256 does not divide data.rollout_batch_size=8; "
            "set it to 8, or the latter to 256",
        ),
        (
            ["data.mini_rollout_batch_size=100"],
            "data.mini_rollout_batch_size=100 does not divide data.rollout_batch_size=512",
        ),
        (
            ["worker.actor.dynamic_batching=false", "worker.actor.micro_batch_size_per_device_for_update=3"],
            "worker.actor.micro_batch_size_per_device_for_update=3 does not divide "
            "worker.actor.global_batch_size x worker.rollout.n=1024; set it to 2 or 4",
        ),
        (
            ["worker.actor.dynamic_batching=false", "worker.actor.micro_batch_size_per_device_for_experience=5"],
            "worker.actor.micro_batch_size_per_device_for_experience=5 does not divide",
        ),
        (
            ["worker.actor.dynamic_batching=false", "worker.actor.micro_batch_tokens=4096"],
            "worker.actor.micro_batch_tokens counts tokens, but worker.actor.dynamic_batching=false counts samples",
        ),
        (["worker.actor.micro_batch_tokens=1023"], "worker.actor.micro_batch_tokens=1023 is less than one sample"),
        (["worker.rollout.max_model_len=1000"], "worker.rollout.max_model_len=1000 is less than one sample"),
        (["data.min_pixels=10", "data.max_pixels=9"], "data.min_pixels=10 is more than data.max_pixels=9"),
        (["worker.rollout.temperature=0"], "worker.rollout.temperature=0 makes all 4 samples of a prompt the same"),
        (["worker.rollout.top_k=1"], "worker.rollout.top_k=1 makes all 4 samples of a prompt the same"),
        (["algorithm.disable_kl=true", "algorithm.use_kl_loss=true"], "algorithm.disable_kl=true leaves no KL"),
        (
            ["algorithm.gdpo_reward_keys=[accuracy]", "algorithm.gdpo_reward_weights=[1, 0.5]"],
            "algorithm.gdpo_reward_weights=[1.0, 0.5]: give one weight for each of algorithm.gdpo_reward_keys",
        ),
        (["trainer.val_freq=5"], "data.val_files is not set, but trainer.val_freq=5 validates"),
        (
            ["worker.actor.optim.strategy=adamw_bf16", "worker.actor.fsdp.torch_dtype=fp32"],
            "worker.actor.optim.strategy=adamw_bf16 trains bf16 weights",
        ),
        (
            ["worker.rollout.val_override_config.temprature=1"],
            "unknown key worker.rollout.val_override_config.temprature; did you mean temperature?",
        ),
        (["worker.rollout.val_override_config.zz=1"], "validation may set n, temperature, top_p"),
        (["worker.rollout.val_override_config.n=1.5"], "worker.rollout.val_override_config.n=1.5: expected an integer"),
        (["worker.rollout.val_override_config.top_p=2"], "val_override_config.top_p=2: must be above 0 and at most 1"),
        (["worker.rollout.val_override_config.max_tokens=9"], "the response length of data.max_response_length"),
    ],
)
def test_contradictions_are_named(argv, message):
    found = problems_of(*argv)
    assert len(found) == 1
    assert message in found[0]


def test_micro_batches_of_tokens_need_not_divide():
    assert problems_of("worker.actor.micro_batch_size_per_device_for_update=3") == []


def test_values_set_in_python_are_checked_too():
    config = with_values(load_config(REQUIRED), {"worker.rollout.top_p": 1.5})
    with pytest.raises(UserError, match=r"worker\.rollout\.top_p=1\.5: must be above 0 and at most 1"):
        check_config(config)


def test_validation_samples_with_its_own_parameters():
    config = load_config([*REQUIRED, "worker.rollout.val_override_config={n: 1, temperature: 0, stop: [END]}"])
    rollout = val_rollout(config)
    assert (rollout.n, rollout.temperature, rollout.stop, rollout.top_p) == (1, 0.0, ["END"], 1.0)
    assert (config.worker.rollout.n, config.worker.rollout.temperature) == (4, 1.0)


@pytest.mark.parametrize(
    ("argument", "leave"),
    [
        ("worker.critic.model.lora.rank=8", "0"),
        ("worker.actor.padding_free=false", "true"),
        ("worker.actor.use_torch_compile=true", "false"),
        ("worker.actor.fsdp.torch_dtype=fp16", "null or bf16 or bfloat16 or fp32 or float32"),
        ("worker.critic.padding_free=false", "true"),
        ("worker.critic.model.tokenizer_path=folder", "null"),
        ("trainer.ray_timeline=ray.json", "null"),
    ],
)
def test_features_that_are_not_here_are_refused(argument, leave):
    found = problems_of(argument)
    assert len(found) == 1
    assert found[0].startswith(f"{argument}: ")
    assert found[0].endswith(f" is not in this version yet; leave it at {leave}")


@pytest.mark.parametrize(
    "key",
    [
        "actor.fsdp.enable_cpu_offload=true",
        "actor.fsdp.mp_param_dtype=fp32",
        "critic.fsdp.enable_full_shard=false",
        "ref.fsdp.fsdp_size=2",
    ],
)
def test_sharding_keys_are_for_several_devices(key):
    (problem,) = problems_of(f"worker.{key}")
    assert problem.startswith(f"worker.{key}: ")
    assert "trainer.n_gpus_per_node" in problem
    assert problems_of(f"worker.{key}", "trainer.n_gpus_per_node=2") == []


def test_what_does_not_divide_the_devices_is_named_with_what_would():
    (problem,) = problems_of("worker.critic.fsdp.fsdp_size=4", "trainer.n_gpus_per_node=6")
    assert problem.endswith(
        "does not divide the 6 devices of trainer.n_gpus_per_node x trainer.nnodes: use -1 or one of 1, 2, 3, 6"
    )
    pools = ("trainer.n_gpus_per_node=6", "trainer.placement={rollout: 3, learn: 3}")
    (problem,) = problems_of("worker.actor.fsdp.fsdp_size=2", *pools)
    assert "the 3 devices of trainer.placement.learn" in problem
    (problem,) = problems_of("worker.rollout.name=vllm", "worker.rollout.tensor_parallel_size=2", *pools)
    assert "worker.rollout.tensor_parallel_size=2 does not divide trainer.placement.rollout=3" in problem
    assert problems_of("worker.rollout.name=vllm", "worker.rollout.tensor_parallel_size=2", pools[0]) == []


def test_a_rollout_apart_says_how_many_devices_it_has():
    (problem,) = problems_of("worker.hybrid_engine=false")
    assert "trainer.placement={rollout: 4, learn: 4}" in problem
    pools = ("trainer.n_gpus_per_node=2", "trainer.placement={rollout: 1, learn: 1}")
    assert problems_of("worker.hybrid_engine=false", *pools) == []


def test_harmless_keys_are_accepted():
    argv = ["padding_free=true", "dynamic_batching=true", "share_prefix=false", "recompute_old_log_probs=true"]
    rollout = ["enforce_eager=true", "gpu_memory_utilization=0.8", "enable_chunked_prefill=true", "dtype=fp32"]
    assert problems_of(*(f"worker.actor.{arg}" for arg in argv), *(f"worker.rollout.{arg}" for arg in rollout)) == []
    assert problems_of("data.min_pixels=1024", "worker.actor.model.lora.exclude_modules=.*visual.*") == []


def test_every_line_of_the_table_of_absent_features_matches_a_key():
    from fnmatch import fnmatchcase

    for refusal in NOT_YET:
        matched = [name for name in all_keys() if fnmatchcase(name, refusal.pattern)]
        assert matched, refusal.pattern
        assert not refusal.allowed or get(load_config([]), matched[0]) in refusal.allowed
