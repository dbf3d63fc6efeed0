"""The model behind the API: `Backend`, and the one whose engine is in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from whet.config import Config
from whet.errors import UserError
from whet.model.fused import make_exact
from whet.model.load import count_parameters, load_model
from whet.model.names import folder_weights
from whet.rollout.engine import Engine, Piece, SamplingParams
from whet.rollout.spec import Opening, engine_can, open_engine
from whet.training.device import Placement, choose_threads
from whet.types import Prompt


@dataclass(frozen=True)
class Loading:
    """Everything that a backend is opened with."""

    config: Config  # with the longest sequence and the number of slots filled in
    path: str  # of the model's folder
    tokenizer: str  # its folder
    ends: frozenset[int]  # token ids that end a response
    placement: Placement


class Backend(Protocol):
    """A model that writes responses and takes other weights."""

    parameters: int

    @property
    def version(self) -> int:
        """Version of the current weights."""
        ...

    @property
    def sees(self) -> bool:
        """True if prompts may hold images."""
        ...

    @property
    def failure(self) -> str | None:
        """Return how the engine ended, if it did by itself; no request can be served then."""
        ...

    def stream(
        self, prompts: Sequence[Prompt], params: SamplingParams, sample_ids: Sequence[int], parts: bool
    ) -> AsyncIterator[Piece]:
        """Yield the tokens of n samples of each prompt, as `Engine.stream` does."""
        ...

    async def read_weights(self, folder: Path) -> object:
        """Read the weights in a folder beside the ones in use; `UserError` unless they are of the same model.

        What is returned stands for them.
        """
        ...

    async def use_weights(self, read: Any, version: int) -> None:
        """Write with weights that were read from now on; nothing is being written meanwhile."""
        ...

    def drop_weights(self, read: Any) -> None:
        """Give back the memory of weights that were read."""
        ...

    def close(self) -> None:
        """End what was started."""
        ...


class LocalBackend:
    """A model and its engine in this process."""

    def __init__(self, loading: Loading, tokenizer: PreTrainedTokenizerBase) -> None:
        """Load the model and open its engine."""
        config, placement, chosen = loading.config, loading.placement, loading.config.worker.actor.model
        choose_threads(placement, count_parameters(loading.path))
        # An engine with a copy of the weights has it on the device; the one here waits for updates in host memory.
        device = placement.device if engine_can(config).shares_weights else torch.device("cpu")
        model = load_model(loading.path, placement.dtype, device, chosen.trust_remote_code, chosen.override_config)
        if config.worker.rollout.exact:
            make_exact(model)
        self.config, self.model, self.parameters = config, model, model.num_parameters()
        self.engine: Engine = open_engine(Opening(config, model, tokenizer, loading.ends, device=placement.device))
        self.engine.load_weights(lambda: folder_weights(model), config.serve.version)

    @property
    def version(self) -> int:
        """Version of the current weights."""
        return self.engine.version

    @property
    def sees(self) -> bool:
        """True if the engine takes prompts with images."""
        return self.engine.capabilities.images

    @property
    def failure(self) -> str | None:
        """Return how the engine ended, if it did by itself."""
        return self.engine.failure

    def stream(
        self, prompts: Sequence[Prompt], params: SamplingParams, sample_ids: Sequence[int], parts: bool
    ) -> AsyncIterator[Piece]:
        """Yield the tokens of n samples of each prompt as they are written."""
        return self.engine.stream(prompts, params, sample_ids, parts)

    async def read_weights(self, folder: Path) -> PreTrainedModel:
        """Read and compare weights in another thread."""
        return await asyncio.to_thread(self.read, folder)

    async def use_weights(self, read: PreTrainedModel, version: int) -> None:
        """Replace the weights in another thread."""
        await asyncio.to_thread(self.replace, read, version)

    def drop_weights(self, read: PreTrainedModel) -> None:
        """Nothing but the caller holds them."""

    def close(self) -> None:
        """End the engine."""
        self.engine.close()

    def read(self, folder: Path) -> PreTrainedModel:
        """Read other weights into host memory; `UserError` unless they fit the model that is served."""
        chosen = self.config.worker.actor.model
        fresh = load_model(str(folder), self.model.dtype, "cpu", chosen.trust_remote_code, chosen.override_config)
        mine, theirs = self.model.state_dict(), fresh.state_dict()
        wrong = sorted(mine.keys() ^ theirs.keys()) or [n for n in mine if mine[n].shape != theirs[n].shape]
        if wrong:
            raise UserError(f"these are not weights of the same model: they differ in {wrong[0]}")
        return fresh

    @torch.no_grad()
    def replace(self, fresh: PreTrainedModel, version: int) -> None:
        """Serve weights that were read, and call them `version`."""
        theirs = fresh.state_dict()
        with self.engine.pause():  # responses whose clients have left may still be on their way out
            for name, tensor in self.model.state_dict().items():
                tensor.copy_(theirs[name])  # in place: captured graphs and adjacent weights keep their addresses
            self.engine.load_weights(lambda: folder_weights(self.model), version)
