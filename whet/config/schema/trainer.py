"""`trainer.*`: how long a run lasts, what it logs, when it validates and saves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from whet.config.keys import LARGEST_SEED, about, key, section
from whet.config.registry import Registry

PRESETS: dict[str, dict[str, None]] = {"colocated": {"rollout": None, "learn": None}}
LOGGERS = Registry("trainer.logger", "whet.tracking.loggers", "LOGGER", entry_points="whet.loggers")


@dataclass(frozen=True)
class PlacementConfig:
    """All devices do both, or some sample while others learn."""

    preset: str = key("colocated", "colocated: every device samples and learns in turn", choices=tuple(PRESETS))
    rollout: int | None = key(None, "devices that only sample; with placement.learn, all devices of the run", least=1)
    learn: int | None = key(None, "devices that only learn", least=1)


@dataclass(frozen=True)
class TrainerConfig:
    """The run."""

    total_epochs: int = key(15, "passes over the training data", least=1)
    max_steps: int | None = key(None, "training steps; replaces total_epochs when set", least=1)
    project_name: str = key("whet", "project, for loggers and the run folder")
    experiment_name: str = key("demo", "experiment, for loggers and the run folder")
    seed: int | None = key(
        None,
        "sets data.seed and worker.rollout.seed, where the same file or command line gives none",
        least=0,
        most=LARGEST_SEED,
    )
    logger: list[str] = field(
        default_factory=lambda: ["console", "file"],
        metadata=about(
            "where metrics go; path.py:CLASS is a logger of yours",
            choices=lambda: LOGGERS.names,
            open=True,
            files="logger.py:CLASS",
        ),
    )
    device: str = key("auto", "where to train; auto takes a GPU if there is one", choices=("auto", "cpu", "cuda"))
    quiet: bool | None = key(None, "plain lines instead of a live console; null = when output is not a terminal")
    log_samples: bool = key(True, "write every sample to Parquet")
    log_token_log_probs: bool = key(False, "write the log-prob of each token with each sample")
    log_token_details: bool = key(
        False, "record log-probs, entropy, advantage and version of every trained token, not of a few groups' alone"
    )
    log_token_groups: int = key(2, "groups of each step whose tokens are recorded; 0 = none", least=0, most=1_000_000)
    log_token_limit: int = key(500, "megabytes of token records in a run; earlier steps are thinned out", least=1)
    nnodes: int = key(1, "machines to train on", least=1, most=100_000)
    n_gpus_per_node: int = key(1, "devices to train on per machine", least=1, most=1024)
    placement: PlacementConfig = field(
        default_factory=PlacementConfig, metadata=section("which devices sample and which learn", PRESETS)
    )
    worker_timeout: int = key(
        45,
        "seconds that a worker may hang in a call before the run stops; -1 = no limit",
        least=1,
        most=1_000_000,
        also=(-1,),
    )
    max_restarts: int = key(
        0,
        "times that a run whose worker or engine died or hangs goes on by itself from its last checkpoint",
        least=0,
        most=1_000_000,
    )
    max_try_make_batch: int = key(
        20, "draws of a step under a filter, before it trains on what there is; -1 = no limit", least=1, also=(-1,)
    )
    max_empty_steps: int = key(10, "steps in a row in which a filter keeps nothing, before the run stops", least=1)
    rejection_sample: bool = key(False, "drop groups whose rewards are all 0 or all 1, without refilling (OR1)")
    rejection_sample_multiplier: int = key(1, "rejection_sample draws this many times the prompts", least=1, most=1000)
    max_staleness: int = key(
        0,
        "updates that the policy may see between a group's first token and its own update; 0 = synchronous training",
        least=0,
        most=1000,
    )
    steps_ahead: int | None = key(
        None,
        "steps' worth of groups sampled ahead of their use, at most max_staleness; null = max_staleness",
        least=1,
        most=1000,
    )
    on_stale: str = key(
        "wait",
        "a group that would get too old: the step waits for it, or it is dropped and sampled anew",
        choices=("wait", "drop"),
    )
    replay: str | None = key(None, "run folder whose schedule of asynchronous training is trained on again")
    stages: list[dict[str, Any]] = field(
        default_factory=list, metadata=about("[{steps or until, overrides}, ...]: settings that change during the run")
    )
    critic_warmup: int = key(0, "steps that update only the critic", least=0)
    val_freq: int = key(
        -1, "validate every so many steps and after the last; -1 = only where val_before_train did", least=1, also=(-1,)
    )
    val_before_train: bool = key(True, "validate before the first step")
    val_only: bool = key(False, "validate and stop")
    val_generations_to_log: int = key(0, "samples of each validation shown in the log", least=0)
    save_freq: int = key(-1, "save every so many steps; -1 = only at the end", least=1, also=(-1,))
    save_limit: int = key(-1, "newest checkpoints kept; -1 = all", least=1, also=(-1,))
    keep_best: bool = key(True, "keep the checkpoint with the best validation besides")
    save_model_only: bool = key(False, "save weights without what resuming needs")
    save_checkpoint_path: str | None = key(None, "the run folder; null = checkpoints/project_name/experiment_name")
    load_checkpoint_path: str | None = key(None, "checkpoint to start from: .../global_step_N")
    find_last_checkpoint: bool = key(True, "resume from the newest checkpoint in the run folder")
    ray_timeline: str | None = key(None, "file for Ray's timeline")
