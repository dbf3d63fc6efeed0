"""POST /v1/weights: other weights of the same model, while requests come in.

They are read and compared first, beside the ones in use. Then whoever is being answered finishes (or is cut), whoever
comes waits, and the weights change in between: an answer is always written by one version.
"""

from __future__ import annotations

import time
from pathlib import Path

from whet.config import resolve_path
from whet.errors import UserError
from whet.rollout.engine import EngineGoneError
from whet.serving.answers import WeightsAnswer
from whet.serving.errors import ApiError, come_back, engine_gone
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
            await _replace(service, folder, version, CUT if request.in_flight == "cut" else None)
        except EngineGoneError:
            raise engine_gone() from None
        service.path = folder
        service.metrics.count("whet_weight_updates_total")
        seconds = round(time.monotonic() - began, 3)
        return WeightsAnswer(path=str(folder), version=version, seconds=seconds)


async def _replace(service: Service, folder: Path, version: int, cut: ApiError | None) -> None:
    read = await _read(service, folder)
    try:
        async with service.gate.alone(cut):
            await service.backend.use_weights(read, version)
    finally:
        service.backend.drop_weights(read)


async def _read(service: Service, folder: Path) -> object:
    try:
        return await service.backend.read_weights(folder)
    except EngineGoneError:
        raise
    except UserError as error:
        raise ApiError(400, f"{folder}: {error}", "unusable_weights", "path") from None


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
