"""What an engine behind an address needs of the config."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address
from urllib.parse import urlsplit

from whet.config.schema import Config

SERVERS = ("sglang", "trtllm", "openai")  # engines that are servers and nothing else
WITHOUT_UPDATES = ("trtllm", "openai")  # no documented way to give them the weights of a step


def server_problems(config: Config) -> Iterator[str]:
    """A sentence for each key that the chosen server misses or cannot follow."""
    rollout = config.worker.rollout
    name, address = f"worker.rollout.name={rollout.name}", rollout.server_address
    if rollout.name in ("native", "hf") and address is not None:
        yield f"worker.rollout.server_address={address}: {name} samples in this process; leave the address out"
    if rollout.free_cache_engine and rollout.name != "sglang":
        yield f"worker.rollout.free_cache_engine=true is for sglang, but {name}; leave it out"
    if address is not None and not _is_address(address):
        yield f"worker.rollout.server_address={address}: write it as http://host:port"
    if rollout.name not in SERVERS:
        return
    if address is None:
        yield f"worker.rollout.server_address is not set, but {name} is a server: name it as http://host:port"
    if rollout.name in WITHOUT_UPDATES and not config.trainer.val_only:
        yield (
            f"{name}: such a server keeps the weights it was started with, so training would sample a policy that is "
            "not the learner's; train with native, vllm or sglang, or set trainer.val_only=true"
        )
    if rollout.name == "sglang" and address is not None and not rollout.server_folder and not _is_here(address):
        yield (
            f"worker.rollout.server_folder is not set, but the server at {address} reads the weights of each step "
            "from files: name a folder that both machines see"
        )


def _is_address(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        return False


def _is_here(address: str) -> bool:
    host = urlsplit(address).hostname if _is_address(address) else None
    try:
        return host in (None, "localhost") or ip_address(host or "").is_loopback
    except ValueError:
        return False
