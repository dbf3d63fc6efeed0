"""SGLang as configs name it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from whet.config.checks.engines import is_address
from whet.config.files import resolve_path
from whet.config.schema import Config
from whet.errors import UserError
from whet.rollout.engines.server.config import KEYS, REQUESTS, address_problems
from whet.rollout.spec import Capabilities, EngineSpec, Opening

if TYPE_CHECKING:
    from whet.rollout.engine import Engine

CAPABILITIES = Capabilities(images=True, external=True)


def _problems(config: Config) -> Iterator[str]:
    yield from address_problems(config)
    rollout = config.worker.rollout
    if rollout.server_address is not None and not rollout.server_folder and not _is_here(rollout.server_address):
        yield (
            f"worker.rollout.server_folder is not set, but the server at {rollout.server_address} reads the weights of "
            "each step from files: name a folder that both machines see"
        )


def _is_here(address: str) -> bool:
    host = urlsplit(address).hostname if is_address(address) else None
    try:
        return host in (None, "localhost") or ip_address(host or "").is_loopback
    except ValueError:
        return False


def _check_reachable(config: Config) -> None:
    from whet.rollout.engines.server.check import check_server
    from whet.rollout.engines.server.client import server_token
    from whet.rollout.engines.sglang.engine import reports_version

    rollout = config.worker.rollout
    check_server(rollout.server_address or "", server_token(), reports_version)
    folder = _folder(config)
    if folder is not None and not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"worker.rollout.server_folder={rollout.server_folder}: no folder here that can be written to")


def _open(opening: Opening) -> Engine:
    from whet.rollout.engines.server.client import client_of
    from whet.rollout.engines.sglang.engine import SGLangEngine
    from whet.rollout.engines.sglang.weight_files import DTYPES

    rollout, model = opening.config.worker.rollout, opening.policy
    return SGLangEngine(
        client_of(opening.config),
        opening.tokenizer,
        opening.ends,
        model.config,
        rollout.max_num_seqs or REQUESTS,
        _folder(opening.config),
        DTYPES[rollout.dtype] if rollout.dtype else model.dtype,
        rollout.free_cache_engine,
    )


def _folder(config: Config) -> Path | None:
    named = config.worker.rollout.server_folder
    return resolve_path(config, named).absolute() if named else None


SPEC = EngineSpec(
    open=_open,
    capabilities=CAPABILITIES,
    keys=KEYS | {"free_cache_engine"},
    problems=_problems,
    check_reachable=_check_reachable,
)
