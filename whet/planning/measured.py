"""Measured runs that predictions are compared with, and how far off they are.

The constants of `machines.py` and `probe.py` were fitted to these figures by hand: they are no independent test.
Each row names the page that has the figure.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from whet.planning.machines import CPU, GPUS, Machine

_H200 = "H200-141G"
_LARGE = "docs/studies/large_models.md"
_NO_RECOMPUTING = "worker.actor.model.enable_gradient_checkpointing=false"


@dataclass(frozen=True, slots=True)
class Measured:
    """A run, and what was measured: GiB at the peak (of the device, or of tensors), seconds of a step and its parts."""

    name: str
    model: str
    machine: str
    source: str
    figures: dict[str, float]
    prompts: int
    samples: int
    prompt_mean: float
    response_mean: float
    response_max: int
    prompt_max: int = 512
    lengths: str = "fixed"
    settings: tuple[str, ...] = ()
    speeds: tuple[float, float] = field(default=(0.0, 0.0))  # of a CPU: products and bytes a second, as probed then

    def arguments(self) -> list[str]:
        """Return the run's settings as the command line has them."""
        return [
            f"worker.actor.model.model_path={self.model}",
            f"data.rollout_batch_size={self.prompts}",
            f"worker.actor.global_batch_size={self.prompts}",
            f"worker.rollout.n={self.samples}",
            f"worker.rollout.max_num_seqs={self.prompts * self.samples}",
            f"data.max_prompt_length={self.prompt_max}",
            f"data.max_response_length={self.response_max}",
            "algorithm.disable_kl=true",
            *self.settings,
        ]

    def device(self) -> Machine:
        """Return the machine that it ran on."""
        if self.machine != CPU:
            return GPUS[self.machine]
        from whet.planning.probe import CPU_FIT
        from whet.system.host import host_memory

        return Machine(CPU, host_memory(), *self.speeds, fit=CPU_FIT, measured=True)


MEASURED = (
    Measured(
        "135M, GRPO step",
        "SmolLM2-135M",
        _H200,
        "docs/studies/plan.md",  # which of several measurements these are
        {"peak_gib": 24.8, "rollout_s": 1.18, "update_s": 0.73, "step_s": 2.18},
        64,
        8,
        150,
        330,
        512,
        lengths="geometric",
        settings=(_NO_RECOMPUTING,),
    ),
    Measured("135M, rollout", "SmolLM2-135M", _H200, "docs/performance.md", {"decode_s": 1.13}, 64, 8, 150, 512, 512),
    Measured("1.7B, rollout", "Qwen3-1.7B", _H200, "docs/performance.md", {"decode_s": 4.34}, 64, 8, 150, 512, 512),
    Measured(
        "1.7B, update",
        "Qwen3-1.7B",
        _H200,
        "docs/performance.md",
        {"update_peak_gib": 48.3, "update_s": 3.33},
        64,
        8,
        150,
        288,
        512,
        settings=(_NO_RECOMPUTING, "worker.actor.micro_batch_tokens=16384"),
    ),
    Measured(
        "1.7B, GRPO step",
        "Qwen3-1.7B",
        _H200,
        "docs/studies/plan.md",
        {"rollout_s": 11.2, "update_s": 12.2, "step_s": 23.5},
        64,
        8,
        150,
        1024,
        1024,
        settings=(_NO_RECOMPUTING, "worker.actor.micro_batch_tokens=16384"),
    ),
    Measured(
        "7B, GRPO step",
        "Qwen2.5-7B",
        _H200,
        _LARGE,
        {"tensors_gib": 111.7, "rollout_s": 6.7, "update_s": 14.0, "step_s": 20.7},
        64,
        8,
        150,
        331,
        512,
        prompt_max=200,
        lengths="geometric",
    ),
    Measured("7B, rollout", "Qwen2.5-7B", _H200, _LARGE, {"rollout_s": 16.1}, 64, 8, 150, 546, 2048, 200, "geometric"),
    Measured(
        "1.7B, rollout to 4,096",
        "Qwen3-1.7B",
        _H200,
        _LARGE,
        {"rollout_s": 38.0},
        128,
        8,
        150,
        871,
        4096,
        prompt_max=200,
        lengths="geometric",
        settings=("worker.rollout.max_num_seqs=512",),
    ),
    Measured(
        "8B, update of 16,000",
        "Qwen3-8B",
        _H200,
        _LARGE,
        {"tensors_gib": 118.7, "update_s": 10.9},
        2,
        2,
        150,
        16000,
        16000,
        prompt_max=200,
    ),
    Measured(
        "the same, adamw_8bit",
        "Qwen3-8B",
        _H200,
        _LARGE,
        {"tensors_gib": 104.5, "update_s": 9.3},
        2,
        2,
        150,
        16000,
        16000,
        prompt_max=200,
        settings=("worker.actor.optim.strategy=adamw_8bit",),
    ),
    Measured(
        "32B, adapters, update",
        "Qwen3-32B",
        _H200,
        _LARGE,
        {"tensors_gib": 106.9, "update_s": 11.8},
        32,
        8,
        150,
        163,
        256,
        prompt_max=200,
        lengths="geometric",
        settings=("worker.actor.model.lora.rank=16",),
    ),
    Measured(
        "0.13M, GRPO step",
        "whet/quickstart",
        CPU,
        "docs/studies/plan.md",
        {"peak_gib": 0.617, "rollout_s": 0.137, "update_s": 0.102, "step_s": 0.27},
        32,
        8,
        18,
        8,
        16,
        prompt_max=32,
        lengths="geometric",
        settings=(_NO_RECOMPUTING, "worker.actor.micro_batch_size_per_device_for_update=64"),
        speeds=(72e9, 15e9),
    ),
    Measured(
        "135M, GRPO step",
        "SmolLM2-135M",
        CPU,
        "docs/studies/plan.md",
        {"peak_gib": 5.03, "rollout_s": 20.5, "update_s": 38.1, "step_s": 58.7},
        8,
        4,
        72,
        64,
        64,
        prompt_max=192,
        settings=(_NO_RECOMPUTING, "worker.actor.micro_batch_tokens=1024"),
        speeds=(72e9, 15e9),
    ),
)


@dataclass(frozen=True, slots=True)
class Compared:
    """One measured figure beside its prediction."""

    name: str
    machine: str
    figure: str
    measured: float
    planned: float
    source: str

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.planned / self.measured - 1

    @property
    def of_memory(self) -> bool:
        """True for memory, False for time."""
        return self.figure.endswith("gib")


def compare() -> list[Compared]:
    """Plan every measured run again."""
    from whet.config import load_config
    from whet.planning.planned import Question, make_plan

    rows = []
    for run in MEASURED:
        config = load_config(run.arguments())
        question = Question(config, run.device(), run.prompt_mean, run.response_mean, run.lengths)
        plan = make_plan(question)
        planned = {
            "peak_gib": plan.memory.peak / 2**30,
            "tensors_gib": (plan.memory.peak - plan.subject.machine.fit.context_bytes) / 2**30,
            "update_peak_gib": sum(plan.memory.update.values()) / 2**30,
            "decode_s": plan.times.decode,
            "rollout_s": plan.times.rollout,
            "update_s": plan.times.update,
            "step_s": plan.times.step,
        }
        rows += [
            Compared(run.name, run.machine, name, value, planned[name], run.source)
            for name, value in run.figures.items()
        ]
    return rows


def worst(rows: list[Compared], of_memory: bool) -> float:
    """Return the largest relative error of memory or of time."""
    return max(abs(row.error) for row in rows if row.of_memory == of_memory)
