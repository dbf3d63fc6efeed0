"""Rules of EasyR1 and VPPO-RL, whose keys are whet's."""

from __future__ import annotations

from whet.compat.rules.rule import rule
from whet.compat.rules.sampling import choose_engine, engine_size
from whet.compat.rules.sizes import devices, divisor, longest
from whet.compat.translation import Here, There

_ROLLOUT = "worker.rollout"


@rule("engine_easyr1")
def _engine(there: There, here: Here) -> None:
    name = choose_engine(there, here, _ROLLOUT)
    size, per_node = engine_size(there, f"{_ROLLOUT}.tensor_parallel_size"), there.count("trainer.n_gpus_per_node", 8)
    if name == "vllm" and size > 1 and per_node % size == 0:
        here.set(f"{_ROLLOUT}.tensor_parallel_size", size, f"{_ROLLOUT}.tensor_parallel_size")
    else:
        here.idle(f"{_ROLLOUT}.tensor_parallel_size", "splits vLLM; whet's sampler follows the learner")
    if name == "vllm" and there.get(f"{_ROLLOUT}.dtype"):
        here.set(f"{_ROLLOUT}.dtype", there.get(f"{_ROLLOUT}.dtype"), f"{_ROLLOUT}.dtype")
    else:
        here.idle(f"{_ROLLOUT}.dtype", "the sampler has the learner's weights")
    wanted = there.count(f"{_ROLLOUT}.max_model_len", 0)
    if wanted >= longest(there):
        here.set(f"{_ROLLOUT}.max_model_len", wanted, f"{_ROLLOUT}.max_model_len")
    else:
        here.idle(f"{_ROLLOUT}.max_model_len", "prompt + response")


@rule("micro_batches_easyr1")
def _micro_batches(there: There, here: Here) -> None:
    n = max(1, there.count(f"{_ROLLOUT}.n", 1))
    for part in ("actor", "critic"):
        section = f"worker.{part}"
        whole = {
            "update": there.count(f"{section}.global_batch_size", 256) * n,
            "experience": there.count("data.rollout_batch_size", 512) * n,
        }
        for what, samples in whole.items():
            key = f"{section}.micro_batch_size_per_device_for_{what}"
            size = max(1, there.count(key, 4))
            here.set(key, size if there.on(f"{section}.dynamic_batching") else divisor(size, max(1, samples)), key)


@rule("fp32_easyr1")
def _fp32(there: There, here: Here) -> None:
    """Trained weights are fp32 there unless the key or the bf16 optimizer says otherwise."""
    for part in ("actor", "critic"):
        key = f"worker.{part}.fsdp.torch_dtype"
        value = there.get(key)
        if value is None and there.get(f"worker.{part}.optim.strategy", "adamw") != "adamw":
            continue
        here.set(key, value or "fp32", key)


@rule("fsdp_size_easyr1")
def _fsdp_size(there: There, here: Here) -> None:
    for part in ("actor", "critic", "ref"):
        key = f"worker.{part}.fsdp.fsdp_size"
        size, count = there.count(key, -1), devices(there)
        if 0 < size < count and count % size == 0:
            here.set(key, size, key)
        else:
            here.idle(key, "all devices share the model")


@rule("validation_easyr1")
def _validation(there: There, here: Here) -> None:
    made = {name: value for name, value in there.below(f"{_ROLLOUT}.val_override_config").items() if value is not None}
    if made:
        here.set(f"{_ROLLOUT}.val_override_config", made, *(f"{_ROLLOUT}.val_override_config.{name}" for name in made))


@rule("mappings_easyr1")
def _mappings(there: There, here: Here) -> None:
    for key in ("worker.actor.model.override_config", "worker.reward.reward_function_kwargs"):
        made = there.below(key)
        if made:
            here.set(key, made, *(f"{key}.{name}" for name in made))


@rule("frequencies_easyr1")
def _frequencies(there: There, here: Here) -> None:
    for key in ("trainer.val_freq", "trainer.save_freq"):
        value = there.count(key, -1)
        here.set(key, value if value > 0 else -1, key)


@rule("kl_of_actor")
def _kl_of_actor(there: There, here: Here) -> None:
    """In the first versions the loss had a coefficient and an estimator of its own, and a switch of the actor."""
    coef, kind, switch = (f"worker.actor.{name}" for name in ("kl_loss_coef", "kl_loss_type", "use_kl_loss"))
    if not there.is_given(coef, kind):
        here.idle(switch, "read by nobody there: the key of the same name in algorithm counts")
        return
    in_loss = there.on(switch) if there.is_given(switch) else True
    here.set("algorithm.use_kl_loss", in_loss, switch)
    if in_loss:
        here.set("algorithm.kl_coef", there.number(coef, 0.001), coef)
        here.set("algorithm.kl_penalty", there.text(kind, "low_var_kl"), kind)


@rule("older_reward")
def _older_reward(there: There, here: Here) -> None:
    """A function of one sample, or of all; its older names."""
    kind = there.text("worker.reward.reward_type")
    if kind in ("batch", "sequential"):
        here.set("worker.reward.reward_type", kind, "worker.reward.reward_type")
    else:
        here.idle("worker.reward.reward_type", "whet looks whether the function takes one sample or all")
    for name in ("function", "function_kwargs"):
        if value := there.get(f"worker.reward.score_{name}"):
            here.set(f"worker.reward.reward_{name}", value, f"worker.reward.score_{name}")


@rule("older_saves")
def _older_saves(there: There, here: Here) -> None:
    key = "trainer.remove_previous_ckpt"
    if there.on(key):
        here.set("trainer.save_limit", 1, key)
    else:
        here.idle(key, "all checkpoints are kept")


@rule("fp32_weights")
def _fp32_weights(there: There, here: Here) -> None:
    """Skywork-OR1 trains fp32 weights, and has no key for it in its file."""
    for section, part in (("actor_rollout_ref.actor.fsdp_config", "actor"), ("critic.model.fsdp_config", "critic")):
        if f"{section}.model_dtype" not in there and f"{section}.param_offload" in there:
            here.set(f"worker.{part}.fsdp.torch_dtype", "fp32", f"{section}.model_dtype", given=False)
