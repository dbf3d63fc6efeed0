"""Time of a step: rollout, forward passes, update, weights to the samplers; from shapes and a machine's speeds.

- A decode step reads the weights and every sequence's keys and values, or computes, whichever takes longer, and each
  layer costs its launches. The rollout is played with lengths from a distribution (`decoding.py`).
- A micro-batch takes as long as its products, its attention, its activations that are read and written, and the sweep
  over weights and gradients, or as the host needs to launch it, whichever is longer.
- Sharded models gather weights and sum gradients over the links beside that; the longer of both counts. This has not
  been measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from whet.learn.memory import WORK_OF, token_bytes
from whet.planning.decoding import DecodeCost, decode
from whet.planning.lengths import draw
from whet.planning.memory import Memory, Subject, recomputed_part, reference_is_away
from whet.training.experience import needs_reference

_HOST_SEQUENCE = 33e-6  # that vLLM's scheduler spends on a sequence in a step, on slow cores
_SERVED = ("vllm", "sglang", "trtllm", "openai")
_HOST_STEP = 60  # bytes that the host moves for each parameter of an optimizer step there, at half the link's speed
# Speed of experts' grouped products relative to dense ones, in a forward pass and with gradients of weights besides:
# 550 TFLOP/s and 386 of an H200, where dense ones reach 750.
_GROUPED_FORWARD, _GROUPED_TRAINING = 0.73, 0.51
_MODULES = 2.5  # activations that a model's own modules read and write, relative to fused kernels


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of the parts of a step."""

    decode: float  # the engine alone
    rollout: float
    scoring: float  # old log-probs, reference, values
    update: float
    weights: float  # gathered for sampling, or sent to devices that sample
    rest: float  # rewards, packing, metrics
    tokens: float  # prompts and responses of a step
    busy: float  # mean share of slots in use
    micro_batches: int  # of a device in a step

    @property
    def step(self) -> float:
        """Seconds of a step, one part after another."""
        return self.rollout + self.scoring + self.update + self.weights + self.rest


def plan_times(subject: Subject, memory: Memory, lengths: str = "geometric", seed: int = 0) -> Times:
    """Predict the time of a step."""
    work, devices, fit = subject.work, subject.devices, subject.machine.fit
    mine = max(1, round(work.prompts * work.samples / devices.sample))
    drawn = draw(lengths, work.response_mean, work.response_max, mine, seed)
    cost = decode_cost(subject, memory.running)
    slots = max(1, min(work.slots, memory.running))
    shared = fit.shared_prompt if work.samples > 1 else 1.0
    played = decode([work.prompt_mean * shared] * mine, drawn, slots, cost)
    update, micro_batches = _update(subject, memory)
    forward = _pass_seconds(subject, memory, training=False) * work.scored_passes
    if needs_reference(subject.config.algorithm) and reference_is_away(subject) and not subject.machine.is_cpu:
        forward += subject.weight_bytes / subject.shards / fit.host_link  # there; the copy in host memory stays
    samples = work.prompts * work.samples
    return Times(
        decode=played.seconds,
        rollout=played.seconds + mine * fit.sampled_host_s,
        scoring=forward,
        update=update + work.epochs * samples / devices.learn * fit.packed_host_s,
        weights=_weights(subject),
        rest=samples * fit.scored_host_s,
        tokens=samples * (work.prompt_mean + work.response_mean),
        busy=played.busy,
        micro_batches=micro_batches,
    )


def decode_cost(subject: Subject, sequences: int) -> DecodeCost:
    """Return the cost of decode steps on one device, or on the devices that share an engine."""
    shape, machine, fit = subject.shape, subject.machine, subject.machine.fit
    split = max(1, subject.config.worker.rollout.tensor_parallel_size)
    width = subject.size.dtype.itemsize
    products = machine.flops * fit.decode_products * split
    read = shape.read_by(sequences) * width / (machine.bandwidth * fit.weights_read * split)
    compute = 2 * (shape.layer_weights + shape.head_weights) / products
    host = _HOST_SEQUENCE if subject.engine in _SERVED else 0.0
    per_token = shape.cache_bytes(width) / (machine.bandwidth * fit.cache_read * split)
    base = read + shape.layers * _layer_seconds(subject)
    # A prompt is read once for all its samples, which share its pages.
    reread = 2 * shape.layer_weights / (machine.flops * fit.products * split)
    prefill = reread / subject.work.samples / fit.shared_prompt
    free = 0.0 if host else read / compute
    return DecodeCost(base, compute + host, per_token, free, prefill, reread)


def _layer_seconds(subject: Subject) -> float:
    """Return the launches of one layer in a decode step: captured, captured modules, or eager."""
    fit, devices = subject.machine.fit, subject.devices
    if subject.machine.is_cpu or subject.engine in _SERVED:
        return fit.decode_layer_s
    if subject.config.worker.rollout.enforce_eager or (devices.count > 1 and not devices.apart):
        return fit.eager_layer_s
    whole = subject.shape.fused and not subject.config.worker.actor.model.lora.rank
    return fit.decode_layer_s if whole else fit.modules_layer_s


def _update(subject: Subject, memory: Memory) -> tuple[float, int]:
    """Return the seconds of all optimizer steps, and the number of micro-batches of a device."""
    work = subject.work
    steps = work.epochs * -(-work.prompts // work.mini_batch)
    seconds = _pass_seconds(subject, memory, training=True) * work.epochs
    seconds += steps * _optimizer(subject)
    if work.critic:
        seconds *= 2
    micro_batches = steps * _micro_batches(subject, memory.budget.tokens_update)
    return seconds + _moved(subject, micro_batches), micro_batches


def _tokens(subject: Subject) -> float:
    """Packed tokens of a mini-batch on one device that learns."""
    tensor = subject.config.worker.actor.tensor_parallel_size
    return subject.work.mini_batch * subject.work.group_tokens * tensor / subject.devices.learn


def _micro_batches(subject: Subject, budget: int | None) -> int:
    """Return the micro-batches of a device in a mini-batch; groups larger than one are cut with their prompt."""
    work, sequence = subject.work, subject.config.worker.actor.ulysses_size
    tokens = _tokens(subject)
    if budget is None or budget >= work.group_tokens:
        return max(1, -(-round(tokens) // (budget or round(tokens)) * sequence))
    per_micro = max(1, int((budget - work.prompt_mean) // max(1.0, work.response_mean)))
    groups = work.mini_batch * subject.config.worker.actor.tensor_parallel_size * sequence / subject.devices.learn
    return max(1, round(groups * -(-work.samples // per_micro)))


def _pass_seconds(subject: Subject, memory: Memory, training: bool) -> float:
    """Return the seconds of one pass over the batch of a step: forward and backward, or forward alone."""
    work, shape, machine, fit = subject.work, subject.shape, subject.machine, subject.machine.fit
    mini_batches = -(-work.prompts // work.mini_batch)
    micros = _micro_batches(subject, memory.budget.tokens_update if training else memory.budget.tokens_experience)
    tokens = _tokens(subject)
    share = tokens / work.group_tokens  # groups on this device
    again = WORK_OF[recomputed_part(memory.budget)] if training else 1.0
    times = (3.0 if _all_trained(subject) else 2.0) if training else 1.0
    split = subject.config.worker.actor.tensor_parallel_size
    # 1. Products, which small micro-batches keep from full speed, and attention.
    each = tokens / micros
    products = machine.flops * fit.products * each / (each + fit.saturation)
    predicted = share * work.samples * work.response_mean
    slower = 1 / (_GROUPED_TRAINING if training else _GROUPED_FORWARD) - 1
    weighed = shape.forward_flops(tokens, predicted, 0) + 2 * shape.expert_weights * tokens * slower
    dense = weighed * times * again / products / split
    attention = shape.attention_flops(share * work.group_pairs) * times * again
    attention /= machine.flops * fit.attention * split
    # 2. Activations, and for every micro-batch weights and gradients.
    kept = token_bytes(subject.size.config, subject.size.dtype, fused=True).kept
    wide = 1.0 if subject.size.fused or machine.is_cpu else _MODULES
    swept = tokens * kept * fit.sweeps * wide * again * times / 3
    if training:
        swept += micros * subject.size.trained * fit.gradient_bytes / split
    gpu = dense + attention + swept / machine.bandwidth
    # 3. The host launches, and links carry the shards, meanwhile.
    launches = shape.layers * fit.layer_host_s * times / 3 * again * (1.0 if subject.size.fused else fit.modules_host)
    links = micros * _shard_seconds(subject, training)
    if training:
        links = max(links, 2 * tokens * subject.offloaded_bytes / fit.host_link)
    work_seconds = max(gpu, micros * launches, links) if not machine.is_cpu else gpu + micros * launches
    return mini_batches * work_seconds


def _all_trained(subject: Subject) -> bool:
    """False under adapters, whose backward pass computes no gradients of the weights."""
    return not subject.config.worker.actor.model.lora.rank


def _optimizer(subject: Subject) -> float:
    """Return the seconds of one optimizer step: gradients twice, states and weights read and written."""
    moved = subject.size.trained / subject.shards * (2 * 4 + 2 * (8 + subject.size.dtype.itemsize))
    return moved / (subject.machine.bandwidth * subject.machine.fit.weights_read)


def _moved(subject: Subject, micro_batches: int) -> float:
    """Return the seconds in which what waits in host memory is moved there and back."""
    actor, size, fit = subject.config.worker.actor, subject.size, subject.machine.fit
    if subject.machine.is_cpu:
        return 0.0
    moved = 2 * 8 * size.trained / subject.shards if actor.offload.offload_optimizer else 0.0
    if actor.fsdp.enable_cpu_offload and subject.devices.count > 1:
        # Shards go to the device in every pass, gradients back, and the optimizer steps on the host.
        moved += micro_batches * (2 * size.dtype.itemsize * size.parameters + 4 * size.trained) / subject.shards
        moved += _HOST_STEP * size.trained / subject.shards
    return moved / fit.host_link


def _link(subject: Subject) -> float:
    """Bytes a second that a device exchanges with others of its sharding group."""
    machine = subject.machine
    return machine.network if subject.devices.nodes > 1 else machine.link


def _shard_seconds(subject: Subject, training: bool) -> float:
    """Return the seconds that a micro-batch's weights and gradients need on the links."""
    if subject.shards <= 1 or subject.machine.is_cpu:
        return 0.0
    part = (subject.shards - 1) / subject.shards
    gathered = subject.size.parameters * 2 * (2 if training else 1)
    reduced = subject.size.trained * 4 if training else 0
    return part * (gathered + reduced) / _link(subject)


def _weights(subject: Subject) -> float:
    """Return the seconds that the policy needs to reach all who sample."""
    if subject.devices.count == 1 or subject.machine.is_cpu:
        return 0.0
    return subject.weight_bytes / _link(subject)
