"""The engines of a run on several devices, as the loop sees them: calls to a group of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from whet.config import Config
from whet.distributed import Group
from whet.rollout.batch_engine import BatchEngine
from whet.rollout.engine import Progress, SamplingParams, Start, Weights, ids_of
from whet.rollout.spec import engine_can
from whet.training.engines import engine_ranks
from whet.types import Prompt, Sample

_LINK = "pool"


class RemoteEngine(BatchEngine):
    """Every rank with an engine samples for its share of the prompts; one call after the other."""

    def __init__(self, config: Config, group: Group) -> None:
        super().__init__()
        self._group, self._engines = group, engine_ranks(config, group.size)
        self.capabilities = replace(
            engine_can(config),
            updates_in_flight=False,
            concurrent=False,
            streams=False,
            prefix_reuse=False,
            partial=False,
        )

    def generate(
        self,
        prompts: Sequence[Start],
        params: SamplingParams,
        sample_ids: Sequence[int] | None = None,
        progress: Progress | None = None,
    ) -> list[Sample]:
        """Return n samples for each start, in the order of the starts."""
        ids, size = ids_of(prompts, params, sample_ids), len(self._engines)
        idle: tuple[list[Start], SamplingParams, list[int], int] = ([], params, [], self.version)
        shares = [idle] * self._group.size
        for engine, rank in enumerate(self._engines):
            shares[rank] = (list(prompts[engine::size]), params, list(ids[engine::size]), self.version)
        with self.turn:
            drawn = self._group.scatter("generate", shares)
        samples: list[Sample] = []
        for i, start in enumerate(prompts):
            first = i // size * params.n
            for sample in drawn[self._engines[i % size]][first : first + params.n]:
                sample.prompt = start if isinstance(start, Prompt) else start.prompt  # not a copy of it
                samples.append(sample)
        if progress is not None:
            progress(len(samples))
        return samples

    def load_weights(self, weights: Weights, version: int) -> None:
        """Have the ranks give their weights to engines that keep a copy; now they are this version."""
        with self.turn:
            self._group.call("publish", version)
            self.version = version


class PoolEngine(RemoteEngine):
    """A group that samples, with the weights of a group that learns."""

    def __init__(self, config: Config, group: Group, learn: Group) -> None:
        super().__init__(config, group)
        self._learn = learn
        self._sent = False
        table = group.call("table")[self._engines[0]]
        meeting, trained = learn.call("invite_samplers", _LINK, table, len(self._engines))[0]
        opening = learn.start("open_link", _LINK)
        group.call("open_link", _LINK, meeting, trained)
        _check_all(opening.wait())

    def load_weights(self, weights: Weights, version: int) -> None:
        """Have the ranks that learn send their weights to those that sample: all of them the first time."""
        with self.turn:
            sending = self._learn.start("send_weights", _LINK, version, not self._sent)
            receiving = self._group.start("receive_weights", _LINK, version, not self._sent)
            sent = sending.wait()
            receiving.wait()
            _check_all(sent)
            self._sent, self.version = True, version


def _check_all(arrived: Sequence[bool]) -> None:
    if not all(arrived):
        raise RuntimeError("the link between the ranks that learn and those that sample is broken")
