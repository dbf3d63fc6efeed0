"""What to change in a run: so that it fits, or to make it faster, ranked by the planned time of a step.

Every change is planned like the run itself, and left out if the config's own checks would refuse it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from whet.config.checks.required import DATA_CHECKS
from whet.config.checks.run import Check, run_checks
from whet.config.checks.train import REWARD, TRAIN_CHECKS
from whet.config.values import show
from whet.errors import UserError
from whet.planning.planned import Plan, plan_model

# A plan needs neither data nor rewards.
PLAN_CHECKS: tuple[Check, ...] = tuple(check for check in TRAIN_CHECKS if check not in {*DATA_CHECKS, REWARD})
_MOST_DEVICES = 1024
_SHOWN = 4
_AS_FAST = 1.03
_FASTER = 0.95  # of the step's time, below which a change is worth a line


@dataclass(frozen=True, slots=True)
class Change:
    """Keys with other values, and what else that changes: nothing but speed and memory, unless `costs` says so."""

    values: dict[str, object]
    costs: str = ""

    def joined(self, other: Change) -> Change:
        """Return both changes as one."""
        return Change(self.values | other.values, "; ".join(filter(None, (self.costs, other.costs))))

    def __str__(self) -> str:
        return " ".join(f"{key}={show(value)}" for key, value in self.values.items())


@dataclass(frozen=True, slots=True)
class Advice:
    """A change and the plan of the run with it."""

    change: Change
    plan: Plan

    @property
    def device_seconds(self) -> float:
        """Seconds of a step on all devices together, so that twice the devices must be twice as fast."""
        return self.plan.times.step * self.plan.subject.devices.count

    def sort_key(self) -> tuple[bool, float, int]:
        """Changes that train the same come first, then the fastest, then those of the fewest keys."""
        return bool(self.change.costs), self.device_seconds, len(self.change.values)


def advise(plan: Plan) -> list[Advice]:
    """Return the best changes: those with which a run fits that does not, or with which one that fits is faster."""
    tried = [Advice(change, made) for change in _changes(plan) if (made := _planned(plan, change)) is not None]
    if plan.memory.fits:
        same = [each for each in tried if not each.change.costs and each.plan.memory.fits]
        quicker = [each for each in same if each.plan.times.step < _FASTER * plan.times.step and _same_size(plan, each)]
        return _best(quicker)
    fitting = [each for each in tried if each.plan.memory.fits]
    if sum(not each.change.costs for each in fitting) < 2:
        # Pairs of changes, of those that save something.
        saving = [each.change for each in tried if each.plan.memory.peak < plan.memory.peak]
        for one, other in combinations(saving[:12], 2):
            if one.values.keys() & other.values.keys():
                continue
            made = _planned(plan, change := one.joined(other))
            if made is not None and made.memory.fits:
                fitting.append(Advice(change, made))
    return _best(fitting)


def _best(found: list[Advice]) -> list[Advice]:
    """Return one change of each set of keys, the best first: the smallest memory among those about as fast."""
    by_keys: dict[tuple[str, ...], list[Advice]] = {}
    for each in sorted(found, key=Advice.sort_key):
        by_keys.setdefault(tuple(sorted(each.change.values)), []).append(each)
    chosen = []
    for same in by_keys.values():
        quick = [each for each in same if each.device_seconds <= _AS_FAST * same[0].device_seconds]
        chosen.append(min(quick, key=lambda each: (each.plan.subject.devices.count, each.plan.memory.peak)))
    return sorted(chosen, key=Advice.sort_key)[:_SHOWN]


def _same_size(plan: Plan, advice: Advice) -> bool:
    return advice.plan.subject.devices.count == plan.subject.devices.count


def _planned(plan: Plan, change: Change) -> Plan | None:
    try:
        question = plan.question.changed(change.values)
        if run_checks(PLAN_CHECKS, question.config):
            return None
        return plan_model(question, plan.name, plan.model, plan.shape)
    except UserError:
        return None


def _changes(plan: Plan) -> Iterator[Change]:
    yield from _passes(plan)
    yield from _sampling(plan)
    yield from _devices(plan)
    config = plan.question.config
    if not config.worker.actor.model.lora.rank:
        yield Change({"worker.actor.model.lora.rank": 32}, "trains adapters instead of all weights")
    if config.data.max_response_length >= 512:
        half = config.data.max_response_length // 2
        yield Change({"data.max_response_length": half}, "cuts long responses")


def _passes(plan: Plan) -> Iterator[Change]:
    """Changes of the update that leave its numbers alone."""
    actor, longest, budget = plan.question.config.worker.actor, plan.subject.work.longest, plan.memory.budget
    if not budget.recompute:
        yield Change({"worker.actor.model.enable_gradient_checkpointing": True})
    elif actor.model.enable_gradient_checkpointing:
        yield Change({"worker.actor.model.enable_gradient_checkpointing": None})
    if not plan.question.machine.is_cpu and actor.model.enable_gradient_checkpointing is not False:
        yield Change({"worker.actor.model.enable_activation_offload": not actor.model.enable_activation_offload})
    for tokens in (65536, 32768, 16384, 8192, 4096, longest):
        if tokens >= longest and actor.dynamic_batching and tokens != budget.tokens_update:
            yield Change({"worker.actor.micro_batch_tokens": tokens})
    if "reference" in plan.memory.update and not plan.question.config.worker.ref.offload.offload_params:
        yield Change({"worker.ref.offload.offload_params": True})


def _sampling(plan: Plan) -> Iterator[Change]:
    """Changes of what lies on the device while it samples."""
    config = plan.question.config
    if not config.worker.actor.offload.offload_optimizer and not plan.question.machine.is_cpu:
        yield Change({"worker.actor.offload.offload_optimizer": True})
    share = config.worker.rollout.gpu_memory_utilization
    yield from (
        Change({"worker.rollout.gpu_memory_utilization": other})
        for other in (0.8, 0.5, 0.4, 0.3, 0.2)
        if other != share
    )
    slots = plan.subject.work.slots
    yield from (Change({"worker.rollout.max_num_seqs": fewer}) for fewer in (slots // 2, slots // 4) if fewer >= 8)


def _devices(plan: Plan) -> Iterator[Change]:
    config, devices = plan.question.config, plan.subject.devices
    if plan.question.machine.is_cpu:
        return
    count = devices.count
    if not devices.apart:
        for more in _powers(count):
            per_node = min(8, more)
            yield Change({"trainer.n_gpus_per_node": per_node, "trainer.nnodes": more // per_node})
    if count > 1:
        for key in ("worker.actor.ulysses_size", "worker.actor.tensor_parallel_size"):
            now = getattr(config.worker.actor, key.rpartition(".")[2])
            yield from (Change({key: size}) for size in (2, 4, 8) if size > now and size <= devices.per_node)
        if not config.worker.actor.fsdp.enable_cpu_offload:
            yield Change({"worker.actor.fsdp.enable_cpu_offload": True})
        if not devices.apart:
            half = count // 2
            yield Change({"trainer.placement.rollout": count - half, "trainer.placement.learn": half})


def _powers(count: int) -> Iterator[int]:
    """Yield larger numbers of devices: up to four, then whole machines of eight."""
    more = 2
    while more <= _MOST_DEVICES:
        if more > count:
            yield more
        more *= 2


def least_devices(plan: Plan) -> int | None:
    """Return the smallest of 1, 2, 4, 8, 16, ... devices on which the run fits as it is; None if none is."""
    for count in (1, *_powers(1)):
        per_node = min(8, count)
        made = _planned(plan, Change({"trainer.n_gpus_per_node": per_node, "trainer.nnodes": count // per_node}))
        if made is not None and made.memory.fits:
            return count
    return None


def sentences(found: Sequence[Advice], plan: Plan) -> list[str]:
    """Return a line for each change, with what it brings."""
    lines = []
    for each in found:
        speed = f"{each.plan.times.step:.3g} s a step"
        if plan.memory.fits:
            speed += f", {plan.times.step / each.plan.times.step:.2f} times as fast"
        note = f"; {each.change.costs}" if each.change.costs else ""
        lines.append(f"{each.change}: {each.plan.memory.peak / 2**30:.1f} GiB, {speed}{note}")
    return lines
