"""`whet merge`: find out what a folder is, and write its model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from whet.errors import UserError
from whet.merge.checkpoint import is_checkpoint, merge_checkpoint
from whet.merge.folder import check_upload, upload
from whet.merge.foreign import merge_shards
from whet.merge.options import Options
from whet.merge.shards import has_shards


def merge(options: Options, say: Callable[[str], None]) -> Path:
    """Write the model of a checkpoint as a Hugging Face folder, and push it where a repository is named."""
    folder = options.local_dir
    work = _work_for(folder)
    if options.hf_upload_path:
        check_upload(options.hf_upload_path)
    target = work(options, say)
    if options.hf_upload_path:
        upload(target, options.hf_upload_path, options.private, say)
    return target


def _work_for(folder: Path) -> Callable[[Options, Callable[[str], None]], Path]:
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder; name a checkpoint: a global_step_N, or actor/ in it")
    for place in (folder, folder.parent):
        if is_checkpoint(place) and (place == folder or folder.name == "actor"):
            return lambda options, say: merge_checkpoint(options, place, say)
    for place in (folder, folder / "actor"):
        if place.is_dir() and has_shards(place):
            return lambda options, say: merge_shards(options, place, say)
    raise UserError(
        f"{folder} is no checkpoint: it has neither a manifest.json of whet nor model_world_size_W_rank_R.pt of verl, "
        "EasyR1 or Skywork-OR1; name a global_step_N folder, or actor/ in it"
    )
