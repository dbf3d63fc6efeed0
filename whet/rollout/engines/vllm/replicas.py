"""One or several vLLMs on the same device, asked as if they were one."""

from __future__ import annotations

import subprocess
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch

from whet.errors import UserError
from whet.rollout.engine import Weights
from whet.rollout.engines.vllm.channel import Channel, Hear, InlineChannel, Offer, ProcessChannel
from whet.rollout.engines.vllm.media import Shown
from whet.rollout.engines.vllm.sender import WeightsAtHand, WeightSender
from whet.rollout.engines.vllm.settings import Settings

_ROOM = 1 << 30  # bytes that vLLM needs besides its cache when it wakes


class Replicas:
    """Prompts are dealt out to the vLLMs in turn; weights, sleep and ends reach all of them."""

    def __init__(self, settings: Settings, arguments: dict[str, Any], log: Path | None) -> None:
        """The first starts alone, so that the others find what it compiled."""
        self._settings = settings
        whole = int(settings.gpu_memory_utilization * settings.device_memory)
        self._cache: int = arguments.get("kv_cache_memory_bytes", whole) * settings.replicas  # bytes
        self._channels: list[Channel] = []
        self._sum: int | None = None  # of the weights that were loaded last
        self.last_load: dict[str, Any] = {}  # how many bytes and tensors, their sum, and the way they took
        self._at_hand = settings.mode == "inline" and settings.tensor_parallel_size == 1
        self._discards = self._asleep = False
        self._next = 0
        try:
            for index in range(settings.replicas):
                own = log if log is None or not index else log.with_stem(f"{log.stem}_{index}")
                self._channels.append(
                    InlineChannel(settings, arguments)
                    if settings.mode == "inline"
                    else ProcessChannel(settings, arguments, own)
                )
                if not index:
                    self._channels[0].wait_until_up()
            for channel in self._channels[1:]:
                channel.wait_until_up()
        except BaseException:
            self.close()
            raise

    @property
    def pending(self) -> int:
        """Samples that are being written."""
        return sum(channel.pending for channel in self._channels)

    @property
    def gone(self) -> str | None:
        """Return how a replica ended, once one has."""
        return next((channel.gone for channel in self._channels if channel.gone is not None), None)

    @property
    def processes(self) -> list[subprocess.Popen[bytes]]:
        """The processes that run vLLM, where they are others."""
        return [channel.process for channel in self._channels if isinstance(channel, ProcessChannel)]

    def submit(
        self,
        prompts: list[list[int]],
        requests: list[tuple[str, int, int]],
        params: dict[str, Any],
        version: int,
        shown: dict[int, Shown],
        hear: Hear | None = None,
    ) -> list[Future[dict[str, Any]]]:
        """Queue samples: the key, the prompt and the seed of each. Samples of a prompt stay together."""
        if self._asleep:
            self._asleep = False
            self._make_room()
        first, many = self._next, len(self._channels)
        self._next = (first + len(prompts)) % many
        futures: dict[str, Future[dict[str, Any]]] = {}
        for at, channel in enumerate(self._channels):
            mine = [which for which in range(len(prompts)) if (first + which) % many == at]
            places = {which: place for place, which in enumerate(mine)}
            share = [(key, places[which], seed) for key, which, seed in requests if which in places]
            if share:
                seen = {places[which]: media for which, media in shown.items() if which in places}
                queued = channel.submit([prompts[which] for which in mine], share, params, version, seen, hear)
                futures |= zip((key for key, _, _ in share), queued)
        return [futures[key] for key, _, _ in requests]

    def abort(self, keys: list[str], version: int | None = None) -> None:
        """Let samples go; who waits for one gets an empty one of this version, if there is any."""
        for channel in self._channels:
            channel.abort(keys, version)

    def load(self, weights: Weights, version: int, again: bool = False) -> None:
        """Have every worker take these weights, and see that all of them have them.

        `again` they must be the ones that were loaded last: RuntimeError if they have changed since.
        """
        with self._offer(weights, version) as offer:
            try:
                answers = [future.result() for future in [channel.load(offer) for channel in self._channels]]
            except UserError:
                if offer.error is not None:
                    raise offer.error from None
                raise
            offer.check([each for answer in answers for each in answer["received"]])
        if again and offer.total != self._sum:
            raise RuntimeError(f"the learner's weights are no longer those of version {version}: load them as another")
        self._sum, self._discards = offer.total, offer.whole and self._settings.weights_at_hand
        self.last_load = {"bytes": offer.bytes, "tensors": offer.count, "sum": offer.total, "way": offer.way}

    def sleep(self) -> bool:
        """Have every vLLM give its memory back; whether their weights are gone."""
        level = 2 if self._discards else 1
        reached = [future.result()["level"] for future in [channel.sleep(level) for channel in self._channels]]
        self._asleep = any(reached)
        return 2 in reached

    def close(self) -> None:
        """End every vLLM and all they started."""
        for channel in self._channels:
            channel.close()

    def _make_room(self) -> None:
        """Let torch give back what it only keeps for later, where vLLM's cache would not fit beside it."""
        if torch.cuda.is_initialized() and torch.cuda.mem_get_info()[0] < self._cache + _ROOM:
            torch.cuda.empty_cache()

    def _offer(self, weights: Weights, version: int) -> Offer:
        if self._at_hand:
            return WeightsAtHand(weights, version)
        return WeightSender(weights, version, len(self._channels) * self._settings.tensor_parallel_size)
