"""Memory per device of a run: what lies there while it samples and while it learns, part by part.

Bytes per parameter and per token, the size of micro-batches and of the cache come from the functions that the program
itself plans with (`whet/learn/memory.py`, `whet/training/memory.py`, the native engine's storage).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from transformers import PretrainedConfig

from whet.config import Config
from whet.learn.log_probs import chunks
from whet.learn.memory import GRADIENT_BYTES, TokenBytes, head_bytes, input_bytes, model_bytes
from whet.learn.partition import Budget
from whet.planning.machines import Machine
from whet.planning.shapes import Shape
from whet.planning.workload import Devices, Workload
from whet.rollout.engine import kept_cache
from whet.rollout.engines.native.pages import PAGE
from whet.rollout.engines.native.storage import RESERVE, pages_within
from whet.training.device import dtype_on
from whet.training.experience import needs_reference
from whet.training.memory import DtypeOf, ModelSize, activation_bytes, budget_on, reference_may_wait, reference_waits
from whet.training.policy import check_shape

_PASS_BYTES = 2  # of a weight in forward and backward passes of sharded models: bf16
_REDUCED_BYTES = 6  # of a gathered gradient: bf16, and fp32 while it is summed over devices
_SERVED = ("vllm", "sglang", "trtllm", "openai")  # engines that take `gpu_memory_utilization` for themselves
_STEPS = 32  # parts of its capacity by which the cache grows


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes per device, by part, in the two phases of a step; with devices apart each phase has devices of its own."""

    total: int
    update: dict[str, int]
    rollout: dict[str, int]
    needed: int  # least with which the run completes: micro-batches of one sample, a cache for one
    budget: Budget
    running: int  # sequences that a device decodes at once, on average

    @property
    def peak(self) -> int:
        """The larger of the two phases."""
        return max(sum(self.update.values()), sum(self.rollout.values()))

    @property
    def phase(self) -> str:
        """Phase of the peak."""
        return "update" if sum(self.update.values()) >= sum(self.rollout.values()) else "rollout"

    @property
    def fits(self) -> bool:
        """True if the peak is within the device, and a cache for one sample."""
        return max(self.peak, self.needed) <= self.total


@dataclass(frozen=True, slots=True)
class Subject:
    """A run that is planned: its config, model, devices and workload."""

    config: Config
    shape: Shape
    size: ModelSize
    machine: Machine
    devices: Devices
    work: Workload

    @property
    def shards(self) -> int:
        """Devices over which weights are cut: FSDP's group times the tensor-parallel one."""
        tensor, group = self.config.worker.actor.tensor_parallel_size, self.config.worker.actor.fsdp.fsdp_size
        return tensor * (group if group > 0 else max(1, self.devices.learn // tensor))

    @property
    def weight_bytes(self) -> int:
        """Bytes of the whole policy."""
        return model_bytes(self.size.parameters, self.size.dtype, trained=False)

    @property
    def offloads_activations(self) -> bool:
        """True if inputs of layers go to host memory."""
        return not self.machine.is_cpu and self.config.worker.actor.model.offloads_activations

    @property
    def offloaded_bytes(self) -> int:
        """Bytes of a token that go to host memory in a forward pass."""
        return input_bytes(self.size.config, self.size.dtype) if self.offloads_activations else 0

    @property
    def engine(self) -> str:
        """Name of the engine."""
        return self.config.worker.rollout.name


def plan_memory(subject: Subject) -> Memory:
    """Predict the memory of a run."""
    budget = _budget(subject)
    models = _models(subject)
    sampling = _sampling(subject, models)
    cache, running = _cache(subject, sum(sampling.values()))
    context = subject.machine.fit.context_bytes
    update = {**models, **_passes(subject, _micro_tokens(subject, budget), recomputed_part(budget)), "context": context}
    rollout = {**sampling, "cache": cache, "context": context}
    kept = 0 if subject.devices.apart else _kept(subject, cache)
    if kept:
        update["cache"] = kept
    least = _passes(subject, subject.work.longest, "all" if _may_recompute(subject) else "nothing")
    one = _cache_bytes(subject, subject.work.longest)
    needed = max(
        sum(models.values()) + sum(least.values()) + context,
        sum(sampling.values()) + context + one,
    )
    return Memory(subject.machine.memory, update, rollout, needed, budget, running)


def _budget(subject: Subject) -> Budget:
    """Return the size of micro-batches, as `training/parts.py` chooses it."""
    config, machine = subject.config, subject.machine
    actor, longest = config.worker.actor, subject.work.longest
    by_samples = actor.micro_batch_size_per_device_for_update * longest
    asked = actor.micro_batch_tokens
    if machine.is_cpu:
        wanted = actor.model.enable_gradient_checkpointing
        experience = actor.micro_batch_size_per_device_for_experience * longest
        return Budget(asked or by_samples, asked or experience, recompute=True if wanted is None else wanted)
    planned = budget_on(*_on_gpu(subject))
    if not actor.dynamic_batching:
        return replace(planned, tokens_update=by_samples)
    return planned if asked is None else replace(planned, tokens_update=asked, tokens_experience=asked)


def _on_gpu(subject: Subject) -> tuple[int, Config, str, ModelSize, DtypeOf, int]:
    """Return what `training/memory.py` plans from."""
    total, size = subject.machine.memory, subject.size
    return total, subject.config, "actor", size, lambda _: size.dtype, kept_cache(total, subject.weight_bytes)


def _micro_tokens(subject: Subject, budget: Budget) -> int:
    """Return the most tokens of one micro-batch on one device: its budget, or all that a mini-batch has for it."""
    work, actor = subject.work, subject.config.worker.actor
    rows = max(1, subject.devices.learn // (actor.tensor_parallel_size * actor.ulysses_size))
    whole = max(work.longest, -(-work.mini_batch * work.most_group_tokens // rows))
    return -(-min(budget.tokens_update or whole, whole) // actor.ulysses_size)


def _models(subject: Subject) -> dict[str, int]:
    """Return weights, gradients, optimizer, reference and critic on one device that learns."""
    size, config, shards = subject.size, subject.config, subject.shards
    parts = {
        "weights": subject.weight_bytes // shards,
        "gradients": 4 * size.trained // shards,
        "optimizer": _optimizer_bytes(size, config.worker.actor.optim.strategy) // shards,
    }
    if config.worker.actor.fsdp.enable_cpu_offload and subject.devices.count > 1:
        parts = dict.fromkeys(parts, 0)
    if needs_reference(config.algorithm) and config.worker.actor.model.lora.rank == 0:
        parts["reference"] = 0 if reference_is_away(subject) else subject.weight_bytes // shards
    if subject.work.critic:
        waits = config.worker.critic.offload.offload_optimizer
        strategy = config.worker.critic.optim.strategy
        parts["critic"] = model_bytes(size.parameters, size.dtype, trained=True, strategy=strategy)
        parts["critic"] //= subject.devices.learn
        parts["critic"] -= _optimizer_bytes(size, strategy) // subject.devices.learn if waits else 0
    if subject.devices.count > 1:
        parts["gathered"] = _gathered(subject)
    return parts


def _optimizer_bytes(size: ModelSize, strategy: str) -> int:
    """Return the optimizer's state of the policy, or of a critic as large."""
    states = model_bytes(size.trained, size.dtype, trained=True, strategy=strategy)
    return states - size.trained * (size.dtype.itemsize + GRADIENT_BYTES)


def reference_is_away(subject: Subject) -> bool:
    """Return True if the reference waits in host memory while others use the device."""
    ref = subject.config.worker.ref
    if subject.machine.is_cpu:
        return ref.fsdp.enable_cpu_offload or ref.offload.offload_params is True
    if subject.devices.count > 1 and ref.fsdp.enable_cpu_offload:
        return True
    asked = reference_may_wait(subject.config)
    return reference_waits(*_on_gpu(subject)) if asked is None else asked


def _gathered(subject: Subject) -> int:
    """Return what FSDP holds of whole parameters in a pass: two layers, embedding and head, and their gradients."""
    shape, tensor = subject.shape, subject.config.worker.actor.tensor_parallel_size
    layer, ends = shape.largest_layer // tensor, shape.head_weights * (1 if shape.tied else 2)
    gradients = _REDUCED_BYTES * max(layer, ends) if subject.size.trained == subject.size.parameters else 0
    held = _PASS_BYTES * (2 * layer + ends)
    if not subject.config.worker.actor.fsdp.enable_full_shard:
        held = _PASS_BYTES * subject.size.parameters // tensor
    return held + gradients


def recomputed_part(budget: Budget) -> str:
    """Return what is computed again in the backward pass: "nothing", "mlp" or "all"."""
    return "all" if budget.recompute else "mlp" if budget.recompute_mlp else "nothing"


def _passes(subject: Subject, tokens: int, recomputed: str) -> dict[str, int]:
    """Return what a micro-batch of so many tokens holds: activations, and logits with what is made of them."""
    token = activation_bytes(subject.size, subject.config.worker.actor.model, subject.offloads_activations)
    each = _per_token(token, recomputed) // subject.config.worker.actor.tensor_parallel_size
    return {"activations": tokens * each, "logits": _logits(subject, tokens)}


def _per_token(token: TokenBytes, recomputed: str) -> int:
    return {"nothing": token.kept, "mlp": token.mlp_recomputed, "all": token.recomputed}[recomputed]


def _logits(subject: Subject, tokens: int) -> int:
    shape, size = subject.shape, subject.size
    if not subject.machine.is_cpu:
        return head_bytes(size.config, size.dtype, trained=not subject.config.worker.actor.model.lora.rank)
    rows = chunks(tokens, shape.vocab)[0].stop
    return 4 * rows * shape.vocab * 4 + 4 * shape.head_weights  # logits, log-probs, gradient, one copy; the weight's


def _may_recompute(subject: Subject) -> bool:
    return subject.config.worker.actor.model.enable_gradient_checkpointing is not False


def _sampling(subject: Subject, models: dict[str, int]) -> dict[str, int]:
    """Return what lies on a device that samples, its cache aside."""
    whole = {"whole policy": subject.weight_bytes // max(1, subject.config.worker.rollout.tensor_parallel_size)}
    if subject.devices.apart:
        return whole
    waits = subject.config.worker.actor.offload
    kept = {name: size for name, size in models.items() if name not in ("gradients", "gathered")}
    if waits.offload_optimizer:
        kept["optimizer"] = 0
    if subject.engine in _SERVED and waits.offload_params:
        kept["weights"] = 0
    if subject.devices.count > 1 or subject.engine in _SERVED:
        kept |= whole
    return kept


def _cache_bytes(subject: Subject, tokens: int) -> int:
    return tokens * subject.shape.cache_bytes(subject.size.dtype.itemsize)


def _cache(subject: Subject, beside: int) -> tuple[int, int]:
    """Return the bytes of the cache at its largest beside so many others, and the sequences that run at once."""
    work, machine, shape = subject.work, subject.machine, subject.shape
    mine = -(-work.prompts * work.samples // subject.devices.sample)
    slots = min(work.slots, mine)
    groups = min(slots, -(-work.prompts // subject.devices.sample))
    page = PAGE * shape.cache_bytes(subject.size.dtype.itemsize)
    if machine.is_cpu:
        return _cache_bytes(subject, slots * work.longest), slots
    # 1. Pages that all slots fill at once: samples at the greatest length, prompts once for each group.
    most = groups * -(-work.prompt_max // PAGE) + slots * -(-work.response_max // PAGE)
    mean = groups * work.prompt_mean / PAGE + slots * (work.response_mean / PAGE + 0.5)
    # 2. Pages that the engine's share of the device and what else lies there leave.
    share, whole = subject.config.worker.rollout.gpu_memory_utilization, subject.weight_bytes
    capacity = pages_within(share, machine.memory, whole, page)
    free = machine.memory * (1 - RESERVE) - machine.fit.context_bytes - beside
    room = max(2, min(capacity, int(free // page)))
    # 3. The cache grows by steps until all that run fit, or the room ends.
    grown = min(room, round(mean + min(most - mean, room / _STEPS)))
    running = slots if mean <= room else max(1, int(slots * room / mean))
    if subject.engine in _SERVED:
        return max(0, round(share * machine.memory) - whole), running
    return grown * page, running


def _kept(subject: Subject, cache: int) -> int:
    """Return the bytes of cache that stay while the model learns."""
    if subject.machine.is_cpu or subject.engine in _SERVED:
        return 0
    most = kept_cache(subject.machine.memory, subject.weight_bytes)
    return cache if cache <= most else 0


def policy_size(config: Config, model: PretrainedConfig, shape: Shape, machine: Machine, devices: Devices) -> ModelSize:
    """Return the policy as the program will see it: dtype, trained parameters, fused kernels or modules."""
    actor = config.worker.actor
    adapters = check_shape(config, model)
    trained = shape.parameters - (shape.tower if actor.model.freeze_vision_tower else 0)
    fused = not machine.is_cpu and devices.learn == 1 and shape.fused
    own = shape.parameters + (adapters or 0)
    dtype = dtype_on("cpu" if machine.is_cpu else "cuda", config)
    return ModelSize(model, dtype, own, trained if adapters is None else adapters, fused)
