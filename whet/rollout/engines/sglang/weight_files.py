"""Weights as files that a server reads: safetensors in buckets, with an index, in a folder for each version."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import PretrainedConfig

from whet.errors import UserError
from whet.rollout.engine import Weights

DTYPES = {
    **dict.fromkeys(("bf16", "bfloat16"), torch.bfloat16),
    **dict.fromkeys(("fp16", "float16"), torch.float16),
    **dict.fromkeys(("fp32", "float32"), torch.float32),
}
BUCKET_BYTES = 2**31  # of host memory at a time, and of one file
_KEY = "worker.rollout.server_folder"


class WeightFiles:
    """Folders below one of its own, which goes when it is closed."""

    def __init__(self, parent: Path | None, config: PretrainedConfig, dtype: torch.dtype | None = None) -> None:
        """`dtype` is that of the files; None keeps the learner's."""
        self._parent, self._config, self._dtype = parent, config, dtype
        self._own: Path | None = None

    def write(self, weights: Weights, version: int, bucket_bytes: int = BUCKET_BYTES) -> Path:
        """A Hugging Face folder with these weights."""
        try:
            if self._own is None:
                self._own = Path(tempfile.mkdtemp(prefix="whet-weights-", dir=self._parent))
                self._own.chmod(0o755)  # the server may be another user's
            folder = self._own / f"version-{version}"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            self._config.save_pretrained(folder)
            self._write_buckets(weights, folder, bucket_bytes)
        except OSError as error:
            where = self._own or self._parent or tempfile.gettempdir()
            raise UserError(
                f"{_KEY}: weights cannot be written to {where} ({error.strerror or error}); "
                "name a folder with room for two copies of the model"
            ) from error
        return folder

    def keep_only(self, folder: Path) -> None:
        """Remove the folders of other versions."""
        for other in folder.parent.iterdir():
            if other != folder:
                shutil.rmtree(other, ignore_errors=True)

    def close(self) -> None:
        """Remove what is left."""
        if self._own is not None:
            shutil.rmtree(self._own, ignore_errors=True)
            self._own = None

    def _write_buckets(self, weights: Weights, folder: Path, bucket_bytes: int) -> None:
        places: dict[str, str] = {}
        total = 0
        for i, bucket in enumerate(_buckets(self._converted(weights), bucket_bytes), start=1):
            name = f"model-{i:05d}.safetensors"
            save_file(bucket, folder / name, metadata={"format": "pt"})
            places |= dict.fromkeys(bucket, name)
            total += sum(tensor.nbytes for tensor in bucket.values())
        index = {"metadata": {"total_size": total}, "weight_map": places}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    def _converted(self, weights: Weights) -> Iterator[tuple[str, Tensor]]:
        for name, tensor in weights():
            dtype = self._dtype if tensor.is_floating_point() else None
            yield name, tensor.detach().to("cpu", dtype or tensor.dtype).contiguous()


def _buckets(tensors: Iterator[tuple[str, Tensor]], most_bytes: int) -> Iterator[dict[str, Tensor]]:
    bucket: dict[str, Tensor] = {}
    size = 0
    for name, tensor in tensors:
        if bucket and size + tensor.nbytes > most_bytes:
            yield bucket
            bucket, size = {}, 0
        # Two views of one storage, such as rows of a fused projection, are two tensors in a file.
        bucket[name] = tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()
        size += tensor.nbytes
    if bucket:
        yield bucket
