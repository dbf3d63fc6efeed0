"""Find the checkpoint that a run continues from, and check the disk space for what it will save."""

from __future__ import annotations

from transformers import PretrainedConfig

from whet.checkpoint.manifest import Checkpoint
from whet.checkpoint.store import CheckpointStore
from whet.config import Config, resolve_path
from whet.data.loader import PromptLoader
from whet.errors import UserError
from whet.model.load import count_parameters
from whet.model.lora import KEY as LORA
from whet.tracking.console import Console
from whet.tracking.run_folder import RunFolder
from whet.training.continuity import at, check_meta, check_position, check_shape
from whet.training.differences import changed_keys, check_same_model

# fp32 weights and AdamW's two moments
_BYTES_PER_PARAMETER = 12
_BYTES_PER_PARAMETER_MODEL_ONLY = 4


def starting_point(
    config: Config, store: CheckpointStore, console: Console, model: PretrainedConfig, job: str = "train"
) -> Checkpoint | None:
    """The checkpoint to continue from: the newest good one of this run, else the one named, else none.

    It must be one of the same `job`, the command that wrote it, and of a model of the same shape; the run's own newest
    one must be of the very model that the config names.
    """
    trainer = config.trainer
    found = own = store.last() if trainer.find_last_checkpoint else None
    if found is None and trainer.load_checkpoint_path is not None:
        found = store.open(resolve_path(config, trainer.load_checkpoint_path))
    elif not trainer.find_last_checkpoint:
        store.refuse_usable()
    store.continue_from(found)
    if found is None:
        return None
    _check_job(found, job)
    check_meta(found, job)
    if own is not None:  # a checkpoint that the config names is used with whatever model fits it
        check_same_model(own, config)
    check_shape(found, model)
    console.note(f"continuing from {found.path}")
    _check_adapters(found, config)
    _check_optimizer(found, config)
    if changed := changed_keys(found, config):
        console.warn("the config differs from the one this checkpoint was made with:\n  " + "\n  ".join(changed))
    return found


def take_position(checkpoint: Checkpoint | None, loader: PromptLoader | None) -> None:
    """Put the loader where the checkpoint left it; refused when the data or its order is another."""
    if checkpoint is not None and loader is not None and checkpoint.meta["loader"] is not None:
        check_position(checkpoint, len(loader))
        loader.load_state_dict(checkpoint.meta["loader"])


def check_disk(
    config: Config,
    folder: RunFolder,
    models: list[str],
    total_steps: int,
    console: Console,
    adapters: int | None = None,
) -> None:
    """Refuse when not even the checkpoint being written and the one before it fit; warn when not all will.

    `adapters` counts the parameters that are saved in place of the first model's.
    """
    parameters = sum(count_parameters(path) or 0 for path in (models if adapters is None else models[1:]))
    parameters += adapters or 0
    if not parameters or config.trainer.val_only:
        return
    each = parameters * (_BYTES_PER_PARAMETER_MODEL_ONLY if config.trainer.save_model_only else _BYTES_PER_PARAMETER)
    saves = 1 + (total_steps - 1) // config.trainer.save_freq if config.trainer.save_freq > 0 else 1
    folder.check_free(each * min(saves, 2))
    kept = saves if config.trainer.save_limit < 0 else min(saves, config.trainer.save_limit + 2)
    free = folder.free_bytes()
    if free < each * kept:
        console.warn(
            f"{kept} checkpoints of {each / 1e9:.1f} GB will not all fit: {folder.path} has {free / 1e9:.1f} GB free. "
            "Set trainer.save_limit or a larger trainer.save_freq."
        )


def _check_job(checkpoint: Checkpoint, job: str) -> None:
    """Supervised and reinforcement learning start from each other's weights, and do not continue each other."""
    wrote = checkpoint.meta.get("job", "train")
    if wrote != job:
        raise UserError(
            f"{checkpoint.path} is a checkpoint of `whet {wrote}`, which `whet {job}` cannot continue. To start from "
            f"its weights, set worker.actor.model.model_path={checkpoint.path}/actor/huggingface and another "
            "trainer.experiment_name (adapters are merged first: whet merge)."
        )


def _check_optimizer(checkpoint: Checkpoint, config: Config) -> None:
    """The state of one optimizer means nothing to another."""
    for part in ("actor", "critic"):
        before = at(checkpoint.meta["config"], f"worker.{part}.optim.strategy")
        now = at(config.stored(), f"worker.{part}.optim.strategy")
        if before not in (None, now) and (checkpoint.path / part).is_dir() and not config.trainer.val_only:
            raise UserError(
                f"worker.{part}.optim.strategy={now}: {checkpoint.path} holds the state of {before}. Set it to "
                f"{before}, or start a new run from its weights "
                f"(worker.{part}.model.model_path={checkpoint.path}/{part}/huggingface)."
            )


def _check_adapters(checkpoint: Checkpoint, config: Config) -> None:
    """Adapters mean something only with the rank, scale and layers they were trained with."""
    now = config.stored()["worker"]["actor"]["model"]["lora"]
    before = at(checkpoint.meta["config"], "worker.actor.model.lora") or dict(now, rank=0)
    if not now["rank"] and not before["rank"]:
        return
    if before["rank"] and not now["rank"]:
        raise UserError(
            f"{LORA}.rank=0: {checkpoint.path} holds adapters of rank {before['rank']}. Set it to {before['rank']}, or "
            f"write the merged model (whet merge {checkpoint.path} FOLDER) and start a new run from it."
        )
    if not before["rank"]:
        raise UserError(
            f"{LORA}.rank={now['rank']}: {checkpoint.path} holds all weights and no adapters. Set it to 0, or start a "
            f"new run from its weights (worker.actor.model.model_path={checkpoint.path}/actor/huggingface)."
        )
    for name, value in now.items():
        if value != before.get(name, value):
            raise UserError(
                f"{LORA}.{name}={value}: the adapters in {checkpoint.path} were trained with {before[name]}; set it to "
                "that, or start a new run under another trainer.experiment_name"
            )
