"""Files that torch.save wrote, read as tensors and plain values only."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import torch

from whet.errors import UserError


def load_tensors(path: Path) -> Any:
    """Read a file of a checkpoint onto the host; anything but what torch.save writes is a `UserError` naming it."""
    try:
        with zipfile.ZipFile(path) as archive:
            packed = [entry.filename for entry in archive.infolist() if entry.compress_type != zipfile.ZIP_STORED]
        if packed:  # torch reads the compressed bytes as if they were the tensor's
            raise UserError(f"{path} was compressed by another program ({packed[0]}); restore the file that whet wrote")
        return torch.load(path, map_location="cpu", weights_only=True)
    except UserError:
        raise
    except Exception as error:  # a malformed archive or pickle may raise anything
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        raise UserError(f"{path} cannot be read: {reason}. Restore it, or choose another checkpoint.") from error
