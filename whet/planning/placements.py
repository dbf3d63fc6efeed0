"""Scenarios of the simulator for the placements of N devices, from a plan or from measured costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from whet.planning.decoding import DecodeCost
from whet.planning.planned import Plan, plan_model
from whet.planning.simulate import Scenario, Simulated, UpdateCost, simulate
from whet.planning.times import decode_cost


@dataclass(frozen=True, slots=True)
class Costs:
    """Measured costs of one device: `update` is divided by the devices that learn."""

    decode: DecodeCost
    update: UpdateCost
    sync: float = 0.0


@dataclass(frozen=True, slots=True)
class Row:
    """One placement and what came of it."""

    placement: str
    sample: int
    learn: int
    staleness: int
    fits: bool
    result: Simulated


def rows(
    plan: Plan, costs: Costs | None, lengths: Sequence[int], bounds: Sequence[int], reward: float, steps: int
) -> list[Row]:
    """Simulate every placement, asynchronous ones with each bound; of divisions of the devices the fastest counts."""
    count, config = plan.subject.devices.count, plan.question.config
    together, recompute = _scenario(plan, costs, None, reward), config.worker.rollout.recompute_cache
    if recompute is None:  # the cache stays where it fits beside the update
        memory = plan.memory
        recompute = sum(memory.update.values()) + memory.rollout["cache"] > memory.total
    found = [Row("colocated", count, count, 0, together[1], simulate(together[0], lengths, steps))]
    for bound in bounds:
        turns = replace(together[0], staleness=bound, partial=True, recompute_cache=recompute)
        turns = replace(turns, ahead=config.trainer.steps_ahead)
        found.append(Row("in turns", count, count, bound, together[1], simulate(turns, lengths, steps)))
    for name, bound in [("one-step-off", 1), *(("asynchronous", bound) for bound in bounds)]:
        tried = []
        for sample in _splits(count):
            scenario, fits = _scenario(plan, costs, sample, reward)
            scenario = replace(scenario, staleness=bound, partial=name == "asynchronous")
            scenario = replace(scenario, ahead=config.trainer.steps_ahead)
            tried.append(Row(name, sample, count - sample, bound, fits, simulate(scenario, lengths, steps)))
        if tried:
            found.append(min(tried, key=lambda row: (not row.fits, row.result.step)))
    return found


def _splits(count: int) -> Iterator[int]:
    """Yield numbers of devices that sample: all up to eight devices, eighths of more."""
    step = max(1, count // 8)
    yield from range(step, count, step)


def _scenario(plan: Plan, costs: Costs | None, sample: int | None, reward: float) -> tuple[Scenario, bool]:
    """Return a placement with `sample` devices that only sample, or None for all; and whether it fits in memory."""
    count, work = plan.subject.devices.count, plan.subject.work
    learn = count - (sample or 0)
    if costs is not None:
        scenario = Scenario(
            engines=sample or count,
            decode=costs.decode,
            update=UpdateCost(costs.update.fixed, costs.update.per_token / learn),
            batch=work.prompts,
            samples=work.samples,
            slots=work.slots,
            prompt=work.prompt_mean,
            apart=sample is not None,
            sync=costs.sync,
            reward=reward,
        )
        return scenario, True
    pools = {"rollout": sample, "learn": learn if sample else None}
    values: dict[str, object] = {f"trainer.placement.{name}": size for name, size in pools.items()}
    made = plan_model(plan.question.changed(values), plan.name, plan.model, plan.shape)
    tokens = work.prompts * work.group_tokens
    host = made.times.rollout - made.times.decode  # requests and results, while the device waits
    seconds = made.times.update + made.times.scoring + made.times.rest + (host if sample is None else 0.0)
    scenario = Scenario(
        engines=sample or count,
        decode=decode_cost(made.subject, made.memory.running),
        update=UpdateCost(0.0, seconds / tokens),
        batch=work.prompts,
        samples=work.samples,
        slots=max(1, min(work.slots, made.memory.running)),
        prompt=work.prompt_mean,
        apart=sample is not None,
        resumed=made.subject.machine.fit.sampled_host_s,
        sync=made.times.weights,
        reward=reward,
    )
    return scenario, made.memory.fits


def table(found: Sequence[Row]) -> str:
    """Return the rows as Markdown."""
    lines = [
        "| placement | sample | learn | staleness | s a step | speed | tokens/s | sampler idle | learner idle | age |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    first = found[0].result.step
    for row in found:
        result = row.result
        note = "" if row.fits else " (does not fit)"
        lines.append(
            f"| {row.placement}{note} | {row.sample} | {row.learn} | {row.staleness} | {result.step:.3g} | "
            f"{first / result.step:.2f}× | {result.tokens_per_s:,.0f} | {result.engines_idle:.0%} | "
            f"{result.learner_idle:.0%} | {result.staleness:.1f} (at most {result.oldest}) |"
        )
    return "\n".join(lines)
