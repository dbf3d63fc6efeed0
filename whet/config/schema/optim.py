"""`worker.*.optim.*`: the optimizer and its learning rate."""

from __future__ import annotations

from dataclasses import dataclass

from whet.config.keys import key


@dataclass(frozen=True)
class OptimConfig:
    """AdamW and its schedule; the schedule moves once per training step."""

    lr: float = key(1e-6, "learning rate", least=0, most=1000)
    betas: tuple[float, float] = key((0.9, 0.999), "decay rates of AdamW's two moments", least=0, below=1)
    weight_decay: float = key(0.01, "decoupled weight decay", least=0)
    strategy: str = key(
        "adamw",
        "adamw, with Kahan sums where weights are bf16; adamw_bf16 asks for such weights",
        choices=("adamw", "adamw_bf16"),
    )
    lr_warmup_ratio: float = key(0.0, "share of all steps over which lr rises from 0", least=0, most=1)
    lr_warmup_steps: int | None = key(None, "steps over which lr rises from 0; null = by lr_warmup_ratio", least=0)
    min_lr_ratio: float | None = key(
        None, "where the cosine schedule ends, as a share of lr; null = 0", least=0, most=1
    )
    lr_scheduler_type: str = key("constant", "shape of the schedule after warmup", choices=("constant", "cosine"))
