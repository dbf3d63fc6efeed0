"""POST /v1/weights: other weights of the same model, while requests come in.

They are read and compared first, beside the ones in use. Then whoever is being answered finishes (or is cut), whoever
comes waits, and the weights change in between: an answer is always written by one version.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import torch
from transformers import PreTrainedModel

from whet.config import resolve_path
from whet.errors import UserError
from whet.model.load import load_model
from whet.model.names import folder_weights
from whet.rollout.engine import Engine
from whet.serving.answers import WeightsAnswer
from whet.serving.errors import ApiError, come_back
from whet.serving.naming import model_folder
from whet.serving.requests import WeightsRequest
from whet.serving.service import Service

CUT = ApiError(503, "the weights were replaced while this was being written; send it again", "weights_replaced")


async def update_weights(service: Service, request: WeightsRequest) -> WeightsAnswer:
    """Serve the weights in a folder from now on."""
    if service.updating.locked():
        raise come_back(409, "another update of the weights is under way", "update_under_way", 1)
    async with service.updating:
        began = time.monotonic()
        folder = _allowed_folder(service, request.path)
        version = service.version + 1 if request.version is None else request.version
        try:
            fresh = await asyncio.to_thread(_read, service, folder)
        except UserError as error:
            raise ApiError(400, f"{folder}: {error}", "unusable_weights", "path") from None
        async with service.gate.alone(CUT if request.in_flight == "cut" else None):
            await asyncio.to_thread(_replace, service.engine, service.model, fresh, version)
        service.path = folder
        service.metrics.count("whet_weight_updates_total")
        seconds = round(time.monotonic() - began, 3)
        return WeightsAnswer(path=str(folder), version=version, seconds=seconds)


def _allowed_folder(service: Service, given: str) -> Path:
    missing = ApiError(404, f"path: no model folder and no checkpoint at {given!r} on the server", "no_folder", "path")
    try:
        path = Path(given).expanduser().resolve()
        folder = model_folder(path)
        root = service.config.serve.weights_folder
        confined = root is None or _is_inside(resolve_path(service.config, root).resolve(), path, folder)
    except (OSError, RuntimeError, ValueError):  # names that no system allows, homes of nobody
        raise missing from None
    if not confined:
        raise ApiError(403, "path: is or leads outside of serve.weights_folder", "folder_not_allowed", "path")
    if (path / "actor" / "lora_adapter").is_dir():
        raise ApiError(400, "path: is a checkpoint of adapters; write a plain model first: whet merge", param="path")
    if folder is None:
        raise missing
    return folder


def _is_inside(root: Path, path: Path, folder: Path | None) -> bool:
    """True if a path, its model folder and all files in it are inside the root once links are followed."""
    files = [] if folder is None else [folder, *folder.iterdir()]
    return all(each.resolve().is_relative_to(root) for each in (path, *files))


def _read(service: Service, folder: Path) -> PreTrainedModel:
    """The other weights, in memory of the host; `UserError` unless they fit the model that is served."""
    chosen = service.config.worker.actor.model
    fresh = load_model(str(folder), service.model.dtype, "cpu", chosen.trust_remote_code, chosen.override_config)
    mine, theirs = service.model.state_dict(), fresh.state_dict()
    wrong = sorted(mine.keys() ^ theirs.keys()) or [n for n in mine if mine[n].shape != theirs[n].shape]
    if wrong:
        raise UserError(f"these are not weights of the same model: they differ in {wrong[0]}")
    return fresh


def _replace(engine: Engine, model: PreTrainedModel, fresh: PreTrainedModel, version: int) -> None:
    with engine.pause():  # responses whose clients have left may still be on their way out
        _copy(model, fresh)
        engine.load_weights(lambda: folder_weights(model), version)


@torch.no_grad()
def _copy(model: PreTrainedModel, fresh: PreTrainedModel) -> None:
    """Copy in place: captured graphs and adjacent weights keep their addresses."""
    theirs = fresh.state_dict()
    for name, tensor in model.state_dict().items():
        tensor.copy_(theirs[name])
