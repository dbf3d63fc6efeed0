"""One rank that only samples, on a device of its own: an engine, and the weights that the learning ranks send it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from transformers import PreTrainedModel
from transformers.utils import logging as transformers_logging

from whet.config import Config
from whet.distributed import Rank
from whet.distributed.weight_broadcast import Entry, Link, Meeting, table_of
from whet.learn.sharding import precision
from whet.model.load import load_tokenizer
from whet.model.names import folder_weights
from whet.rollout.engine import Engine, SamplingParams, Start
from whet.rollout.spec import Opening, engine_can, open_engine
from whet.training import policy
from whet.training.device import Placement, choose_placement
from whet.training.engines import devices_shared, engine_ranks
from whet.training.models import RankPlan
from whet.types import Sample


@dataclass(frozen=True)
class SamplerPlan:
    """The run's plan, for a rank that only samples."""

    plan: RankPlan

    def __call__(self, rank: Rank) -> SamplerWorker:
        """Build the worker, in the process it lives in."""
        return SamplerWorker(self.plan, rank)


class SamplerWorker:
    """An engine and the whole policy; ranks whose device belongs to another's engine have neither."""

    def __init__(self, plan: RankPlan, rank: Rank) -> None:
        transformers_logging.disable_progress_bar()
        transformers_logging.set_verbosity_error()
        config, device = plan.config, torch.device(rank.device)
        if device.type == "cpu":
            torch.set_num_threads(1)  # ranks of one machine share its cores
        engines = engine_ranks(config, rank.world)
        self._engine: Engine | None = None
        self._held: int | None = None  # the version of the weights, None while they are on their way
        self._links: dict[str, Link] = {}
        self._trained: frozenset[str] = frozenset()  # what changes in an update
        with devices_shared(config, rank):
            if rank.rank not in engines:
                return
            self._index = 1 + engines.index(rank.rank)
            placement = _placement(config, device)
            self._home = placement.device
            # Read from files too: the sizes and buffers are theirs, and the fused decoder is checked against them.
            self._model: PreTrainedModel = policy.load_policy(
                config, plan.path, plan.checkpoint, placement, lambda _: None
            )
            tokenizer = load_tokenizer(plan.tokenizer_path, config.worker.actor.model.trust_remote_code)
            log = plan.folder / f"rollout_{rank.rank}.log"
            self._engine = open_engine(Opening(config, self._model, tokenizer, plan.ends, log, device))

    def table(self) -> list[Entry] | None:
        """Return names and shapes, in the order of the broadcast."""
        return table_of(self._model.named_parameters()) if self._engine is not None else None

    def open_link(self, link: str, meeting: Meeting, trained: Sequence[str], index: int | None = None) -> None:
        """Meet the rank that sends weights, as the receiver of this index; each rank's own where none is given."""
        if self._engine is not None:
            self._links[link] = Link.join(meeting, self._index if index is None else index, self._home)
            self._trained = frozenset(trained)

    def receive_weights(self, link: str, version: int, everything: bool) -> None:
        """Take the weights that are being sent, all or those that are trained, and sample with them from now on."""
        if self._engine is None:
            return
        self._held = None  # should anything fail now, nothing is sampled
        parameters = dict(self._model.named_parameters())
        table = [entry for entry in table_of(parameters.items()) if everything or entry.name in self._trained]
        self._links[link].receive(table, parameters, version)
        self._engine.load_weights(lambda: folder_weights(self._model), version)
        self._held = version

    def generate(
        self, prompts: Sequence[Start], params: SamplingParams, ids: Sequence[int], version: int
    ) -> list[Sample]:
        """n samples for each of this rank's prompts, with this version of the weights or not at all."""
        if self._engine is None:
            return []
        if self._held != version:
            raise RuntimeError(f"this rank holds version {self._held} of the weights, not {version}")
        samples = self._engine.generate(prompts, params, ids) if prompts else []
        self._engine.release()
        return samples

    def close(self) -> None:
        """End what the engine started."""
        if self._engine is not None:
            self._engine.close()


def _placement(config: Config, device: torch.device) -> Placement:
    """Return the device and dtype in which weights arrive; for engines that keep a copy in host memory."""
    chosen = replace(choose_placement(config), device=device)
    passes = precision(config.worker.actor.fsdp, device).param_dtype
    home = device if engine_can(config).shares_weights else torch.device("cpu")
    return Placement(home, passes or chosen.dtype)
