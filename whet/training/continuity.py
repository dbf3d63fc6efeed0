"""Checks that a checkpoint holds what its run needs to continue, and is of the model that the config names."""

from __future__ import annotations

import json
from typing import Any

from transformers import PretrainedConfig

from whet.checkpoint.manifest import MANIFEST, Checkpoint
from whet.errors import UserError

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
