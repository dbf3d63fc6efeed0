"""One rank of a run on several devices: its shards of the models, its engine, and the calls that all ranks answer.

Every rank is given all samples and computes its share of them; `learn/` sums results over ranks. Only prompts are
divided between ranks: each samples from the whole policy, whose parameters are gathered for the length of a rollout.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.utils import logging as transformers_logging

from whet.checkpoint.manifest import Checkpoint
from whet.config import Config, local_name
from whet.distributed import Rank
from whet.distributed.weight_broadcast import Entry, Meeting
from whet.learn.critic import LocalCritic
from whet.learn.layout import lay_out
from whet.learn.sharding import load_sharded
from whet.learn.value_head import ValueModel
from whet.model.empty import empty_backbone, empty_model
from whet.model.gathering import part
from whet.model.load import load_tokenizer
from whet.model.lora import add_adapters
from whet.model.modality import freeze_tower, has_adapters
from whet.model.names import folder_weights
from whet.model.whole import whole
from whet.rollout.engine import Engine, SamplingParams, Start
from whet.rollout.spec import Opening, engine_can, open_engine
from whet.training import critics, parts, policy
from whet.training.device import Placement, choose_placement, reference_placement
from whet.training.engines import devices_shared, engine_ranks
from whet.training.extensions import load_extensions
from whet.training.models import RankPlan
from whet.training.remote import answer
from whet.training.weight_sender import WeightSender
from whet.types import Sample


class RankWorker:
    """Learner, critic, reference and engine of this rank, on its device."""

    def __init__(self, plan: RankPlan, rank: Rank) -> None:
        transformers_logging.disable_progress_bar()
        transformers_logging.set_verbosity_error()
        config, device = plan.config, torch.device(rank.device)
        self._rank, self._shares_weights = rank, engine_can(config).shares_weights
        if device.type == "cpu":
            torch.set_num_threads(1)  # ranks of one machine share its cores
        load_extensions(config)
        placement = replace(choose_placement(config), device=device)
        self._tokenizer = load_tokenizer(plan.tokenizer_path, config.worker.actor.model.trust_remote_code)
        model = _load(plan, placement, plan.checkpoint)
        self._learner = parts.open_learner(config, model, plan.total_steps)
        if plan.uses_reference:
            frozen = model if has_adapters(model) else _load(plan, reference_placement(config, placement), None, "ref")
            policy.attach_reference(config, frozen, self._learner)
        device_of_links = self._learner.model.device if self._shares_weights else torch.device("cpu")
        self._sender = WeightSender(self._learner, rank.rank == 0, device_of_links)
        self._critic: LocalCritic | None = None
        if plan.critic_path is not None:
            self._critic = critics.open_critic(config, _load_critic(plan, plan.critic_path, device), plan.total_steps)
        self._engine: Engine | None = None
        if plan.samples:
            with devices_shared(config, rank):
                if rank.rank in engine_ranks(config, rank.world):
                    log = plan.folder / f"rollout_{rank.rank}.log"
                    opening = Opening(config, model, self._tokenizer, plan.ends, log, device, moving=True)
                    self._engine = open_engine(opening)

    def configure(self, config: Config) -> None:
        """Continue under the config of another stage."""
        parts.configure_models(config, self._learner, self._critic)

    def publish(self, version: int) -> None:
        """Give the current weights this version, and load them into engines that have a copy of their own."""
        model = self._learner.model
        part(model)
        with self._learner.offload.here():
            if self._engine is not None:
                self._engine.load_weights(lambda: folder_weights(model), version)
            elif not self._shares_weights:
                for _ in folder_weights(model):  # all ranks take part in gathering, for those that load
                    pass

    def invite_samplers(self, link: str, table: Sequence[Entry], receivers: int) -> tuple[Meeting, list[str]] | None:
        """Open a rendezvous for ranks that only sample; return its address and the names of trained parameters."""
        return self._sender.invite(link, table, receivers)

    def open_link(self, link: str) -> bool:
        """Connect to the ranks that were invited; False if one did not come."""
        return self._sender.open(link)

    def send_weights(self, link: str, version: int, everything: bool) -> bool:
        """Send the current weights, all or those that are trained; False if a receiver was lost meanwhile."""
        return self._sender.send(link, version, everything)

    def send_weights_again(self, link: str, version: int) -> bool:
        """Send a version that was sent already; False if the weights have changed since, or the receiver was lost."""
        return self._sender.send_again(link, version)

    def generate(
        self, prompts: Sequence[Start], params: SamplingParams, ids: Sequence[int], version: int
    ) -> list[Sample]:
        """Return n samples for each of this rank's prompts."""
        with ExitStack() as stack:
            if self._shares_weights:
                with self._learner.offload.here():  # shards are read to gather them, and not while sampling
                    stack.enter_context(whole(self._learner.model))
            if self._engine is None:
                return []
            assert self._engine.version == version, f"version {self._engine.version} where {version} was asked for"
            samples = self._engine.generate(prompts, params, ids) if prompts else []
            self._engine.release()
        return samples

    def answer(self, part: str, method: str, arguments: dict[str, Any]) -> Any:
        """Call a method of this rank's learner, critic or reference; the other side of `remote.remote`."""
        if (part, method) == ("learner", "update"):
            self._sender.current = False
        held = {"learner": self._learner, "critic": self._critic, "reference": self._learner.reference}
        present = {name: each for name, each in held.items() if each is not None}
        return answer(present, {"tokenizer": self._tokenizer}, part, method, arguments, first=self._rank.rank == 0)

    def close(self) -> None:
        """Close the engine."""
        if self._engine is not None:
            self._engine.close()


def _load(plan: RankPlan, placement: Placement, checkpoint: Checkpoint | None, part: str = "actor") -> PreTrainedModel:
    """Load the policy of a checkpoint, or the initial one: read by the first rank, sharded over all."""
    config, actor = plan.config, plan.config.worker.actor
    chosen, fsdp = actor.model, config.worker.ref.fsdp if part == "ref" else actor.fsdp
    host = replace(placement, device=torch.device("cpu"))

    def empty() -> PreTrainedModel:
        model = empty_model(plan.path, placement.dtype, chosen.trust_remote_code, chosen.override_config)
        if chosen.lora.rank:
            add_adapters(model, chosen.lora, local_name(config, chosen.model_path or ""), config.data.seed)
        if chosen.freeze_vision_tower:
            freeze_tower(model)
        return model

    return load_sharded(
        lambda: policy.load_policy(config, plan.path, checkpoint, host, lambda _: None),
        empty,
        fsdp,
        lay_out(fsdp, placement.device, actor.tensor_parallel_size, actor.ulysses_size, part),
        placement.device,
    )


def _load_critic(plan: RankPlan, path: str, device: torch.device) -> ValueModel:
    """Load the value model of a checkpoint, or the initial one, sharded likewise."""
    config, chosen = plan.config, plan.config.worker.critic_model
    weights = critics.critic_weights(path, plan.checkpoint)
    dtype = choose_placement(config, "critic").dtype

    def empty() -> ValueModel:
        backbone = empty_backbone(weights, dtype, chosen.trust_remote_code, chosen.override_config)
        if config.worker.critic.model.freeze_vision_tower:
            freeze_tower(backbone)
        return ValueModel(backbone)

    fsdp = config.worker.critic.fsdp
    return load_sharded(
        lambda: critics.load_critic(config, weights, Placement(torch.device("cpu"), dtype)),
        empty,
        fsdp,
        lay_out(fsdp, device, sequence=config.worker.critic.ulysses_size, part="critic"),
        device,
    )
