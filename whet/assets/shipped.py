"""Files of the built-in models that are part of the package: weights and tokenizers, checked before they are used.

`weights/NAME/` holds `model.safetensors`, in half precision, and `tokenizer.json`. `python -m whet.assets.warm_start`
makes both. They are shipped because training rounds differently from processor to processor: made on the spot, every
machine would start from a model of its own.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from whet.errors import UserError

FOLDER = Path(__file__).parent / "weights"
CHECKSUMS = "SHA256SUMS"  # lines as sha256sum writes and checks them
WEIGHTS, TOKENIZER = "model.safetensors", "tokenizer.json"


def checksums() -> dict[str, str]:
    """Return the SHA-256 of each shipped file by its path within FOLDER, as recorded."""
    try:
        lines = (FOLDER / CHECKSUMS).read_text(encoding="ascii").splitlines()
        return {name: digest for digest, name in (line.split(maxsplit=1) for line in lines)}
    except (OSError, ValueError) as error:
        raise _damaged(FOLDER / CHECKSUMS, "cannot be read") from error


def read_shipped(name: str) -> bytes:
    """Return the content of the shipped file `name`, such as `vision/tokenizer.json`, verified."""
    path = FOLDER / name
    try:
        content = path.read_bytes()
    except OSError as error:
        raise _damaged(path, f"cannot be read ({error.strerror})") from error
    expected = checksums().get(name)
    if hashlib.sha256(content).hexdigest() != expected:
        raise _damaged(path, "is not the file that whet was released with (its SHA-256 differs)")
    return content


def _damaged(path: Path, problem: str) -> UserError:
    return UserError(f"{path}, a file of the whet package, {problem}. Reinstall whet.")
