"""`whet model NAME DIR`: a built-in model as an ordinary Hugging Face folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from whet.assets.smollm2 import make_smollm2
from whet.assets.store import PREFIX, builtin, recipes
from whet.errors import UserError


def write_model(name: str, folder: Path, say: Callable[[str], None]) -> None:
    """Write the built-in `name` (with or without `whet/`) into `folder`, which must be new or empty."""
    short = name.removeprefix(PREFIX)
    models = [known for known, recipe in recipes().items() if recipe.model]
    if short not in models:
        raise UserError(f"there is no built-in model {name!r}; choose {' or '.join(models)}")
    folder = Path(os.path.expanduser(folder))
    if short == "smollm2":
        make_smollm2(folder, say)
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} exists and is not an empty folder; give the name of a new one.")
    try:
        shutil.copytree(builtin(PREFIX + short, say) / "model", folder, dirs_exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} cannot be made ({error.strerror or error}); choose a folder that can.") from error
    say(f"whet/{short} is in {folder}")
