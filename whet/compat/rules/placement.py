"""Rules of devices: how many learn and sample, how the model is spread over them, asynchronous training."""

from __future__ import annotations

import math

from whet.compat.rules.rule import rule
from whet.compat.rules.sizes import devices, divisor
from whet.compat.translation import Here, There

_ACTOR = "actor_rollout_ref.actor"
STALENESS = "trainer.max_staleness"


@rule("devices")
def _devices(there: There, here: Here) -> None:
    """Machines and devices; those that only sample are counted beside those that learn."""
    nodes, each = max(1, there.count("trainer.nnodes", 1)), max(1, there.count("trainer.n_gpus_per_node", 8))
    section = "rollout" if "rollout.nnodes" in there else "actor_rollout_ref.rollout"
    own = there.count(f"{section}.nnodes", 0) * there.count(f"{section}.n_gpus_per_node", 0)
    if there.on("actor_rollout_ref.hybrid_engine") and section != "rollout":
        own = 0
    if not own:
        here.set("trainer.nnodes", nodes, "trainer.nnodes")
        here.set("trainer.n_gpus_per_node", each, "trainer.n_gpus_per_node")
        return
    learn = nodes * each
    total = learn + own
    machines = nodes if nodes == there.count(f"{section}.nnodes", 0) else nodes + there.count(f"{section}.nnodes", 0)
    if total % machines:
        machines = divisor(machines, total)
    keys = ("trainer.nnodes", "trainer.n_gpus_per_node", f"{section}.nnodes", f"{section}.n_gpus_per_node")
    here.set("trainer.nnodes", machines, *keys)
    here.set("trainer.n_gpus_per_node", total // machines, *keys)
    here.set("trainer.placement.learn", learn, "trainer.nnodes", "trainer.n_gpus_per_node")
    here.set("trainer.placement.rollout", own, f"{section}.nnodes", f"{section}.n_gpus_per_node")
    here.set("worker.hybrid_engine", False, "actor_rollout_ref.hybrid_engine")


@rule("fsdp_size")
def _fsdp_size(there: There, here: Here) -> None:
    """Sharding groups; all devices, or a size that does not divide them, is -1 here."""
    count = devices(there) // max(1, _tensor(there))
    for section, part in (
        (f"{_ACTOR}.fsdp_config", "actor"),
        ("critic.model.fsdp_config", "critic"),
        ("actor_rollout_ref.ref.fsdp_config", "ref"),
    ):
        size = there.count(f"{section}.fsdp_size", -1)
        if 0 < size < count and count % size == 0:
            here.set(f"worker.{part}.fsdp.fsdp_size", size, f"{section}.fsdp_size")
        else:
            here.idle(f"{section}.fsdp_size", "all devices share the model")


def _tensor(there: There) -> int:
    section = f"{_ACTOR}.megatron"
    asked = (f"{section}.tensor_model_parallel_size", f"{section}.expert_model_parallel_size")
    wanted = max([there.count(key, 1) for key in asked if key in there], default=1)
    return math.gcd(wanted, devices(there)) if wanted > 1 else 1


@rule("megatron")
def _megatron(there: There, here: Here) -> None:
    """Tensor, expert and context parallelism as whet's tensor and sequence parallelism."""
    section = f"{_ACTOR}.megatron"
    if f"{section}.tensor_model_parallel_size" not in there:
        return
    tensor = _tensor(there)
    keys = (f"{section}.tensor_model_parallel_size", f"{section}.expert_model_parallel_size")
    if tensor > 1:
        here.set("worker.actor.tensor_parallel_size", tensor, *keys)
    here.idle(f"{section}.expert_tensor_parallel_size", "worker.actor.tensor_parallel_size spreads experts too")
    rest = devices(there) // tensor
    context = math.gcd(max(1, there.count(f"{section}.context_parallel_size", 1)), rest)
    if context > 1:
        here.set("worker.actor.ulysses_size", context, f"{section}.context_parallel_size")
    if there.get(f"{section}.override_transformer_config.recompute_granularity"):
        here.set(
            "worker.actor.model.enable_gradient_checkpointing",
            True,
            f"{section}.override_transformer_config.recompute_granularity",
        )


@rule("sequence_parallel")
def _sequence_parallel(there: There, here: Here) -> None:
    for section, part in ((_ACTOR, "actor"), ("critic", "critic")):
        size = there.count(f"{section}.ulysses_sequence_parallel_size", 1)
        if size > 1:
            here.set(f"worker.{part}.ulysses_size", size, f"{section}.ulysses_sequence_parallel_size")


@rule("staleness")
def _staleness(there: There, here: Here) -> None:
    """Asynchronous training: a sample may be as old as the versions that the system allows."""
    if "async_training.staleness_threshold" not in there:
        return
    threshold = there.number("async_training.staleness_threshold", 0.1)
    ahead = math.ceil(threshold) if threshold > 0 else 0
    if not here.has(STALENESS):
        if ahead:
            here.refuse(
                "async_training.staleness_threshold",
                "asynchronous training is not in this version; set it to 0, or run verl.trainer.main_ppo",
            )
        return
    here.set(
        STALENESS,
        ahead + 1 if there.on("async_training.partial_rollout") else ahead,
        "async_training.staleness_threshold",
    )
    steps = there.count("async_training.trigger_parameter_sync_step", 1)
    if steps > 1:
        here.note(f"async_training.trigger_parameter_sync_step={steps}: weights are sent after every step here")
    if there.is_given("rollout.test_freq"):
        here.set("trainer.val_freq", max(1, there.count("rollout.test_freq", 1)) * steps, "rollout.test_freq")


@rule("one_step_off")
def _one_step_off(there: There, here: Here) -> None:
    if here.has(STALENESS):
        here.set(STALENESS, 1, "rollout.nnodes", given=True)
    else:
        here.refuse(
            "rollout.nnodes",
            "training one step off policy is not in this version; run verl.trainer.main_ppo with the same keys",
        )


@rule("device")
def _device(there: There, here: Here) -> None:
    name = there.get("trainer.device", "cuda")
    if name not in ("cuda", "cpu"):
        here.refuse("trainer.device", "NVIDIA GPUs and CPUs are supported; leave it out")
    elif there.is_given("trainer.device"):
        here.set("trainer.device", name, "trainer.device")
