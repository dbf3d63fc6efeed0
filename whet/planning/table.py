"""The table of common models: how many GPUs full training and adapters take, and the time of a step there."""

from __future__ import annotations

from whet.config import Config, load_config
from whet.planning.machines import Machine
from whet.planning.models import MODELS, config_of
from whet.planning.planned import Plan, Question, plan_model
from whet.planning.shapes import Shape, shape_of

_COUNTS = (1, 2, 4, 8, 16, 32, 64)
_FEWEST = 32  # sequences that a device must be able to decode at once: fewer fit, but take hours
_STEP = (
    "data.rollout_batch_size=64",
    "worker.actor.global_batch_size=64",
    "worker.rollout.n=8",
    "data.max_prompt_length=512",
    "data.max_response_length=2048",
    "algorithm.disable_kl=true",
)
CAPTION = "64 prompts × 8 samples of up to 2,048 tokens (half of that on average), GRPO without KL"


def table(machine: Machine) -> str:
    """Return a row for each model as Markdown: parameters, least GPUs and seconds a step, full and with adapters."""
    lines = [
        f"On {machine.name} ({machine.memory / 2**30:.0f} GiB), {CAPTION}:",
        "",
        "| model | parameters | GPUs, all weights | s a step | GPUs, LoRA 32 | s a step |",
        "|---|---|---|---|---|---|",
    ]
    for name in MODELS:
        model = config_of(name)
        shape = shape_of(model)
        cells = [_least(name, shape, machine, extra) for extra in ((), ("worker.actor.model.lora.rank=32",))]
        shown = " | ".join(f"{_count(plan)} | {_step(plan)}" for plan in cells)
        lines.append(f"| {name} | {shape.parameters / 1e9:.2f} B | {shown} |")
    return "\n".join(lines)


def _least(name: str, shape: Shape, machine: Machine, extra: tuple[str, ...]) -> Plan | None:
    """Return the plan with the fewest GPUs on which a model trains, or None."""
    model = config_of(name)
    for count in _COUNTS:
        plan = plan_model(Question(_config(name, count, extra), machine), name, model, shape)
        if plan.memory.fits and plan.memory.running >= _FEWEST:
            return plan
    return None


def _config(name: str, count: int, extra: tuple[str, ...]) -> Config:
    per_node = min(8, count)
    devices = (f"trainer.n_gpus_per_node={per_node}", f"trainer.nnodes={count // per_node}")
    return load_config([f"worker.actor.model.model_path={name}", *_STEP, *devices, *extra])


def _count(plan: Plan | None) -> str:
    return "–" if plan is None else str(plan.subject.devices.count)


def _step(plan: Plan | None) -> str:
    return "" if plan is None else f"{plan.times.step:.0f}"
