"""`whet merge CHECKPOINT FOLDER`: the model of a LoRA run as an ordinary Hugging Face folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from whet.assets import resolve_model
from whet.errors import UserError
from whet.model.export import base_of, export_merged
from whet.model.lora import FOLDER
from whet.run.manifest import MANIFEST, DamagedError, verify


def merge_checkpoint(checkpoint: Path, folder: Path, base: str | None, say: Callable[[str], None]) -> None:
    """Write the policy of `checkpoint` (global_step_N) to `folder`; `base` is where its first weights are by now."""
    adapters = checkpoint / "actor" / FOLDER
    if not (checkpoint / MANIFEST).is_file() or not adapters.is_dir():
        raise UserError(f"{checkpoint} is no checkpoint with adapters; name a global_step_N folder of a LoRA run")
    try:
        chosen = verify(checkpoint).meta["config"]["worker"]["actor"]["model"]
    except DamagedError as damage:
        raise UserError(f"{checkpoint} is damaged: {damage}. Choose another checkpoint.") from damage
    path = resolve_model(base or base_of(adapters), say)
    export_merged(adapters, folder, path, chosen["trust_remote_code"], chosen["override_config"])
    say(f"the merged model is in {folder}")
