"""Checks that a run can continue from a checkpoint: the same job and model, with all that resuming reads."""

from __future__ import annotations

import json
from typing import Any

from transformers import PretrainedConfig

from whet.checkpoint.manifest import MANIFEST, Checkpoint
from whet.config import Config
from whet.errors import UserError
from whet.model.lora import KEY as LORA
from whet.tracking.console import Console

_SHARED: dict[str, tuple[type, ...]] = {"before": (dict,), "latest": (dict,), "config": (dict,)}
# Everything that resuming reads of a manifest, by the command that wrote it.
_NEEDED: dict[str, dict[str, tuple[type, ...]]] = {
    "sft": _SHARED | {"loader": (dict, type(None))},
    "train": _SHARED
    | {
        "loader": (dict, type(None)),
        "samples_drawn": (int,),
        "version": (int,),
        "empty_steps": (int,),
        "control": (dict,),
        "stages": (dict,),
        "stages.index": (int,),
        "stages.steps": (int,),
        "stages.streak": (int,),
    },
}
_SHAPE = ("model_type", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")


def check_continues(
    checkpoint: Checkpoint, config: Config, model: PretrainedConfig, job: str, console: Console, own: bool
) -> None:
    """Raise a `UserError` unless the run can continue from a checkpoint; warn where the config has changed since.

    The run's `own` checkpoint must be of the very model that the config names; another one of any that fits it.
    """
    from whet.training.differences import changed_keys, check_same_model

    _check_job(checkpoint, job)
    check_meta(checkpoint, job)
    if own:
        check_same_model(checkpoint, config)
    check_shape(checkpoint, model)
    console.note(f"continuing from {checkpoint.path}")
    _check_adapters(checkpoint, config)
    _check_optimizer(checkpoint, config)
    if changed := changed_keys(checkpoint, config):
        console.warn("the config differs from the one this checkpoint was made with:\n  " + "\n  ".join(changed))


def at(tree: Any, name: str) -> Any:
    """The value under a dotted name in nested dictionaries, None where there is none."""
    for part in name.split("."):
        if not isinstance(tree, dict) or part not in tree:
            return None
        tree = tree[part]
    return tree


def check_meta(checkpoint: Checkpoint, job: str) -> None:
    """Raise a `UserError` if the manifest lacks something that resuming needs."""
    meta = checkpoint.meta
    wrong = [name for name, kinds in _NEEDED[job].items() if not _fits(at(meta, name), kinds)]
    if wrong:
        raise UserError(
            f"{checkpoint.path / MANIFEST} lacks what `whet {job}` needs to continue ({', '.join(wrong)}): another "
            "version of whet or another program wrote it. Continue with that version, choose another checkpoint, or "
            f"start a new run from its weights (worker.actor.model.model_path={checkpoint.path}/actor/huggingface)."
        )


def check_position(checkpoint: Checkpoint, rows: int) -> None:
    """Raise a `UserError` if the position in the data is none."""
    state = checkpoint.meta["loader"]
    counts = all(_fits(state.get(name), (int,)) for name in ("epoch", "position", "rows"))
    if not counts or "seed" not in state or "shuffle" not in state or state["position"] > max(rows, state["rows"]):
        raise UserError(
            f"{checkpoint.path / MANIFEST}: its position in the data cannot be used. Choose another checkpoint."
        )


def check_shape(checkpoint: Checkpoint, model: PretrainedConfig) -> None:
    """Raise a `UserError` if the saved model has another shape than the one that the config names."""
    file = checkpoint.path / "actor" / "huggingface" / "config.json"
    if not file.is_file():
        return  # adapters, which are compared with their own settings
    try:
        saved = json.loads(file.read_text(encoding="utf-8"))
        saved = saved.get("text_config") or saved
        here = model.get_text_config()
        differs = [n for n in _SHAPE if n in saved and hasattr(here, n) and saved[n] != getattr(here, n)]
    except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise UserError(
            f"{file} is not a model's config ({type(error).__name__}). Choose another checkpoint."
        ) from error
    if differs:
        name = differs[0]
        raise UserError(
            f"worker.actor.model.model_path: {checkpoint.path} holds another model ({name} {saved[name]}, not "
            f"{getattr(here, name)}). Set the model of that run, or give this one its own trainer.experiment_name."
        )


def _fits(value: Any, kinds: tuple[type, ...]) -> bool:
    """Return True if a value has one of the kinds; counts are not negative."""
    return isinstance(value, kinds) and not isinstance(value, bool) and not (isinstance(value, int) and value < 0)


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
