"""Built-in names such as `whet/quickstart`: made on demand and kept, as a hub id is downloaded and kept."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from filelock import FileLock

from whet.assets import shipped
from whet.errors import UserError
from whet.system import private

Say = Callable[[str], None]

PREFIX = "whet/"

# The files of whet/shapes: rows to train on, to test on, and the latter with nothing in their pictures.
SHAPES = tuple(
    f"{task}_{part}" for task in ("count", "locate", "angle", "more", "motion") for part in ("train", "test", "blank")
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """Recipe of one built-in."""

    version: str  # another version is another folder
    splits: tuple[str, ...]  # the data files in it: "train" is train.jsonl
    disk: int  # bytes that making it needs
    make: Callable[[Path, Say], None]
    suffix: str = ".jsonl"  # of the data files
    model: bool = True  # whether there is a folder model/


def _maker(function: str, inside: str = "") -> Callable[[Path, Say], None]:
    """Return what writes a built-in: MODULE.FUNCTION of this package, imported when it is called."""

    def make(folder: Path, say: Say) -> None:
        module, _, name = function.partition(".")
        getattr(import_module(f"whet.assets.{module}"), name)(folder / inside, say)

    return make


def _version(*files: str, weights: str = "") -> str:
    """Name a recipe by its source and the model it ships, so that no change of them leaves an old folder in use."""
    folder = Path(__file__).parent
    parts = [(folder / file).read_bytes() for file in files]
    if weights:
        parts += [(folder / file).read_bytes() for file in ("shipped.py", "folder.py", "tokenizer.py")]
        parts += [digest.encode() for name, digest in shipped.checksums().items() if name.startswith(f"{weights}/")]
    return hashlib.sha256(b"".join(parts)).hexdigest()[:8]


def recipes() -> dict[str, Recipe]:
    """Every built-in by its name after `whet/`."""
    pictures = ("drawing.py", "questions.py", "vision.py")
    model = ("vision.py", "vision_model.py")
    return {
        "quickstart": Recipe(
            version=_version("digits.py", "quickstart.py", weights="quickstart"),
            splits=("train", "test"),
            disk=10 << 20,
            make=_maker("quickstart.make_quickstart"),
        ),
        "smollm2": Recipe(
            version=_version("smollm2.py"),
            splits=(),
            disk=600 << 20,
            make=_maker("smollm2.make_smollm2", inside="model"),
        ),
        "shapes": Recipe(
            version=_version(*pictures),
            splits=SHAPES,
            disk=50 << 20,
            make=_maker("vision.make_shapes"),
            suffix=".parquet",
            model=False,
        ),
        "vision": Recipe(
            version=_version(*model, weights="vision"), splits=(), disk=10 << 20, make=_maker("vision.make_vision")
        ),
        "vision3": Recipe(
            version=_version(*model, weights="vision3"), splits=(), disk=10 << 20, make=_maker("vision.make_vision3")
        ),
        "sentences": Recipe(
            version=_version(*pictures, "sentences.py", "vision_model.py", weights="sentences"),
            splits=("train", "test", "blank"),
            disk=20 << 20,
            make=_maker("sentences.make_sentences"),
            suffix=".parquet",
        ),
        "collect": Recipe(
            version=_version("collect.py", "drawing.py", "questions.py", "vision_model.py", weights="collect"),
            splits=("train", "test"),
            disk=10 << 20,
            make=_maker("collect.make_collect"),
        ),
        "guess": Recipe(
            version=_version("guess.py", "quickstart.py", weights="guess"),
            splits=("train", "test"),
            disk=10 << 20,
            make=_maker("guess.make_guess"),
        ),
        "calculator": Recipe(
            version=_version("calculator.py", "quickstart.py", weights="calculator"),
            splits=("train", "test"),
            disk=10 << 20,
            make=_maker("calculator.make_calculator"),
        ),
    }


def home() -> Path:
    """Return the folder of built-ins: $WHET_HOME, or ~/.cache/whet."""
    return Path(os.environ.get("WHET_HOME") or Path.home() / ".cache" / "whet").expanduser()


def is_builtin(name: str) -> bool:
    """Return True if `name` is a built-in: it reads `whet/...` and no such file or folder exists."""
    return name.startswith(PREFIX) and name.count("/") == 1 and not Path(name).exists()


def _recipe(name: str) -> Recipe:
    known = recipes()
    if name.removeprefix(PREFIX) not in known:
        raise UserError(f"{name}: there is no such built-in. Those that exist: {', '.join(PREFIX + k for k in known)}.")
    return known[name.removeprefix(PREFIX)]


def _writable_home(name: str, need: int) -> Path:
    root = home()
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root):
            pass
    except OSError as error:
        raise UserError(
            f"{name} is written once and kept in {root}, which cannot be written to ({error.strerror}). "
            "Set the environment variable WHET_HOME to a folder that can."
        ) from error
    free = shutil.disk_usage(root).free
    if free < need:
        raise UserError(
            f"{name} needs {need >> 20} MB in {root}, where {free >> 20} MB are free. "
            "Make room, or set the environment variable WHET_HOME to a folder on another disk."
        )
    return root


def builtin(name: str, say: Say) -> Path:
    """The folder of the built-in `name`, made now if it is not there yet."""
    recipe = _recipe(name)
    short = name.removeprefix(PREFIX)
    folder, lock = home() / f"{short}-{recipe.version}", home() / f".{short}.lock"
    for path in (home(), folder, lock):
        if private.is_planted(path):
            raise UserError(
                f"{name}: {path} belongs to another user, in a folder that everybody can write to. Remove it, or set "
                "the environment variable WHET_HOME to a folder of your own."
            )
    if folder.is_dir():
        return folder
    root = _writable_home(name, recipe.disk)
    # The lock keeps a second process from doing the same work; the rename keeps a killed one from leaving half of it.
    with FileLock(lock):
        if folder.is_dir():
            return folder
        for left_behind in root.glob(f".{short}-*"):
            shutil.rmtree(left_behind)
        side = Path(tempfile.mkdtemp(prefix=f".{short}-", dir=root))
        try:
            recipe.make(side, say)
            side.chmod(0o755)  # mkdtemp makes folders that only their owner can read
            side.rename(folder)
        finally:
            shutil.rmtree(side, ignore_errors=True)
    return folder


def resolve_model(name: str, say: Say) -> str:
    """The model folder of a built-in name; any other name as it is."""
    if not is_builtin(name):
        return name
    if not _recipe(name).model:
        raise UserError(f"{name} is data and no model; name it in data.train_files, with a split.")
    return str(builtin(name, say) / "model")


def resolve_data(files: str, say: Say) -> str:
    """The files of built-ins such as `whet/quickstart@train`, alone or among others in a comma-separated list."""
    return ",".join(_data_file(spec.strip(), say) if is_builtin(spec.strip()) else spec for spec in files.split(","))


def _data_file(spec: str, say: Say) -> str:
    name, _, split = spec.partition("@")
    recipe = _recipe(name)
    splits = recipe.splits
    if not splits:
        raise UserError(f"{spec}: the built-in {name} is a model and has no data.")
    if split not in splits:
        raise UserError(f"{spec}: name a split: {' or '.join(f'{name}@{choice}' for choice in splits)}.")
    return str(builtin(name, say) / f"{split}{recipe.suffix}")
