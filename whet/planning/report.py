"""A plan as text and as JSON, and the table of common models."""

from __future__ import annotations

from typing import Any

from whet.planning.advice import Advice, least_devices, sentences
from whet.planning.measured import Compared, compare, worst
from whet.planning.memory import recomputed_part
from whet.planning.planned import Plan

_GIB = 2**30
_PARTS = ("step", "rollout", "scoring", "update", "weights", "rest", "decode")
_UNKNOWN = "has not been measured: its speeds are its data sheet's, and the shares of them those of an H200"


def text(plan: Plan, advice: list[Advice]) -> str:
    """Return the report of a plan."""
    lines = [*_heading(plan), "", *_memory(plan)]
    lines += ["", *_time(plan)] if plan.memory.fits else []
    if notes := notes_of(plan):
        lines += ["", *(f"note: {note}" for note in notes)]
    if not plan.memory.fits:
        least = least_devices(plan)
        more = f"; as it is, it fits on {least} such GPUs" if least and not plan.question.machine.is_cpu else ""
        lines += ["", f"It does not fit{more}. Changes with which it does, the fastest first:"]
        lines += [f"  {line}" for line in sentences(advice, plan)] or ["  none was found; take a GPU with more memory"]
    elif advice:
        lines += ["", "It fits. Faster with:", *(f"  {line}" for line in sentences(advice, plan))]
    else:
        lines += ["", "It fits."]
    return "\n".join([*lines, "", error_sentence(plan)])


def _heading(plan: Plan) -> list[str]:
    subject, size, work = plan.subject, plan.subject.size, plan.subject.work
    trained = "all trained" if size.trained == size.parameters else f"{size.trained:,} trained"
    devices = f"{subject.devices.count} × {subject.machine.name}"
    if subject.devices.apart:
        devices += f" ({subject.devices.sample} sample, {subject.devices.learn} learn)"
    return [
        f"model    {plan.name}: {size.parameters:,} parameters, {trained}, {str(size.dtype).removeprefix('torch.')}",
        f"devices  {devices}, {subject.machine.memory / _GIB:.1f} GiB each",
        f"step     {work.prompts} prompts of {work.prompt_mean:g} tokens (at most {work.prompt_max}) × {work.samples} "
        f"samples of {work.response_mean:g} (at most {work.response_max}), engine {subject.engine}",
    ]


def _memory(plan: Plan) -> list[str]:
    memory = plan.memory
    names = list(dict.fromkeys([*memory.update, *memory.rollout]))
    rows = [(name, memory.update.get(name), memory.rollout.get(name)) for name in names]
    rows.append(("in all", sum(memory.update.values()), sum(memory.rollout.values())))
    lines = [f"{'GiB per device':<16}{'update':>10}{'rollout':>10}"]
    lines += [f"  {name:<14}{_gib(update):>10}{_gib(rollout):>10}" for name, update, rollout in rows]
    budget = memory.budget
    kept = {"nothing": "kept", "mlp": "of MLPs computed again", "all": "computed again"}[recomputed_part(budget)]
    if away := (budget.tokens_update or 0) * plan.subject.offloaded_bytes:
        kept += f" from inputs in host memory ({_gib(away)} GiB)"
    lines.append(
        f"  micro-batches of {budget.tokens_update:,} tokens, activations {kept}; {memory.running} sequences decoded "
        f"at once; at least {memory.needed / _GIB:.1f} GiB needed"
    )
    return lines


def _gib(value: int | None) -> str:
    return "" if value is None else f"{value / _GIB:.2f}"


def _time(plan: Plan) -> list[str]:
    times = plan.times
    parts = {"rollout": times.rollout, "scoring": times.scoring, "update": times.update, "weights": times.weights}
    each = ", ".join(f"{name} {_seconds(value)}" for name, value in {**parts, "rest": times.rest}.items() if value)
    lines = [
        f"step     {_seconds(times.step)} s: {each}",
        f"         {times.tokens / times.step:,.0f} tokens/s in all; {times.micro_batches} micro-batches on a device; "
        f"{times.busy:.0%} of the slots in use",
    ]
    steps = plan.question.config.trainer.max_steps
    if plan.step_cost is not None:
        total = f", {plan.step_cost * steps:,.2f} for trainer.max_steps={steps}" if steps else ""
        lines.append(f"cost     {plan.step_cost:.4f} a step, {1000 * plan.step_cost:,.2f} for 1,000 steps{total}")
    if steps:
        lines.append(
            f"run      {steps} steps in {times.step * steps / 3600:.2f} hours, validation and checkpoints aside"
        )
    return lines


def _seconds(value: float) -> str:
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def notes_of(plan: Plan) -> list[str]:
    """Return what a reader should know about this run besides its numbers."""
    subject, work, notes = plan.subject, plan.subject.work, []
    devices = subject.devices
    if devices.count > 1:
        notes.append("several devices have not been measured; links are taken to reach their data sheets' speed")
    if (work.prompts * work.samples) % devices.sample:
        notes.append(
            f"{work.prompts * work.samples} samples do not divide by {devices.sample} devices: some wait for others"
        )
    if subject.size.fused is False and not subject.machine.is_cpu:
        notes.append("this model trains by its own modules: fused kernels are for one device and models that they know")
    if plan.memory.update.get("reference") == 0 and not subject.machine.is_cpu:
        notes.append("the reference waits in host memory while the policy samples and learns (worker.ref.offload)")
    if devices.learn > 1 and plan.memory.budget.tokens_update == work.longest:
        notes.append(
            "micro-batches of sharded models are planned as if each device held the whole model: "
            "worker.actor.micro_batch_tokens sets a larger size"
        )
    text_config = plan.model.get_text_config()
    limit = getattr(text_config, "max_position_embeddings", None)
    if limit is not None and work.longest > limit:
        notes.append(
            f"data.max_prompt_length + data.max_response_length = {work.longest}, but the model's positions end at "
            f"{limit}: whet train refuses that"
        )
    if plan.question.response_mean is None:
        notes.append("responses are taken to be half as long as they may be; --mean-response says otherwise")
    return notes


def error_sentence(plan: Plan) -> str:
    """Return how far off predictions were where they could be compared."""
    rows = compare()
    known = (
        f"Predictions of {len({(row.name, row.machine) for row in rows})} measured runs were off by at most "
        f"{worst(rows, True):.0%} (memory) and {worst(rows, False):.0%} (time): docs/plan.md."
    )
    machine = plan.question.machine
    return known if machine.measured else f"{known} {machine.name} {_UNKNOWN}."


def as_json(plan: Plan, advice: list[Advice]) -> dict[str, Any]:
    """Return the plan as plain values: bytes and seconds."""
    subject, memory, times = plan.subject, plan.memory, plan.times
    rows = compare()
    return {
        "model": plan.name,
        "parameters": subject.size.parameters,
        "trained": subject.size.trained,
        "gpu": subject.machine.name,
        "devices": subject.devices.count,
        "memory": {
            "total": memory.total,
            "peak": memory.peak,
            "phase": memory.phase,
            "needed": memory.needed,
            "fits": memory.fits,
            "update": memory.update,
            "rollout": memory.rollout,
            "micro_batch_tokens": memory.budget.tokens_update,
            "recomputed": recomputed_part(memory.budget),
            "sequences": memory.running,
        },
        "seconds": {name: getattr(times, name) for name in _PARTS} if memory.fits else None,
        "tokens_per_s": times.tokens / times.step if memory.fits else None,
        "cost_per_step": plan.step_cost if memory.fits else None,
        "advice": [
            {
                "change": each.change.values,
                "costs": each.change.costs,
                "peak": each.plan.memory.peak,
                "step": each.plan.times.step,
            }
            for each in advice
        ],
        "notes": notes_of(plan),
        "error": {"memory": worst(rows, True), "time": worst(rows, False), "measured": subject.machine.measured},
    }


def measured_table() -> str:
    """Return every measured figure beside its prediction, as Markdown."""
    lines = ["| run | device | figure | measured | planned | error | source |", "|---|---|---|---|---|---|---|"]
    return "\n".join(lines + [_row(row) for row in compare()])


def _row(row: Compared) -> str:
    figures = f"{row.measured:g} | {row.planned:.3g} | {row.error:+.0%}"
    return f"| {row.name} | {row.machine} | {row.figure} | {figures} | {row.source} |"
