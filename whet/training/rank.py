"""One rank of a run on several devices: its shard of the policy, and what the loop asks of all ranks at once.

Every rank is given all samples and computes its share of them; `learn/` adds up what belongs together. Only prompts are
dealt out: each rank samples from the whole policy, gathered for the time of a rollout.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.utils import logging as transformers_logging

from whet.checkpoint.manifest import Checkpoint
from whet.config import Config, local_name
from whet.distributed import Rank
from whet.distributed.weight_broadcast import Entry, Link, Meeting, invite
from whet.learn.critic import Critic
from whet.learn.layout import lay_out
from whet.learn.learner import Learner
from whet.learn.reference import Reference
from whet.learn.sharding import load_sharded
from whet.learn.value_head import ValueModel
from whet.model.gathering import full, part, whole
from whet.model.load import empty_backbone, empty_model, load_tokenizer
from whet.model.lora import add_adapters, has_adapters
from whet.model.modality import freeze_tower
from whet.model.names import folder_weights
from whet.rollout.engine import Engine, SamplingParams, Start
from whet.rollout.registry import engine_can, open_engine
from whet.rollout.spec import Opening
from whet.training import critics, parts, policy
from whet.training.budget import budget
from whet.training.device import Placement, choose_placement, reference_placement
from whet.training.engines import devices_shared, engine_ranks
from whet.training.extensions import load_extensions
from whet.training.objective import Objective
from whet.training.offloading import reference_offload
from whet.training.plan import RankPlan
from whet.training.values import ValueObjective
from whet.types import Sample


class RankWorker:
    """The policy's learner, its reference and an engine, all on this rank's device."""

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
        self._reference: Reference | None = None
        if plan.uses_reference:
            frozen = model if has_adapters(model) else _load(plan, reference_placement(config, placement), None, "ref")
            tokens = budget(config, "actor", frozen).tokens_experience
            self._reference = Reference(
                frozen,
                config.worker.actor,
                config.worker.rollout.temperature,
                tokens,
                reference_offload(config, frozen, self._learner),
            )
        self._link: Link | None = None
        self._sent = False
        self._critic: Critic | None = None
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
        """Go on under the config of another stage."""
        parts.configure_models(config, self._learner, self._critic, self._reference)

    def publish(self, version: int) -> None:
        """The weights as they are now have this version; engines with weights of their own are given them."""
        model = self._learner.model
        part(model)
        with self._learner.offload.here():
            if self._engine is not None:
                self._engine.load_weights(lambda: folder_weights(model), version)
            elif not self._shares_weights:
                for _ in folder_weights(model):  # each is gathered by all ranks for those that send it on
                    pass

    def invite_samplers(self, table: Sequence[Entry], receivers: int) -> tuple[Meeting, list[str]] | None:
        """Open a door for the ranks that only sample; where it is, and what of their table changes in an update."""
        parameters = dict(self._learner.model.named_parameters())
        assert [(each.name, each.shape) for each in table] == [(name, p.shape) for name, p in parameters.items()]
        self._table = list(table)
        if self._rank.rank:
            return None
        self._store, self._meeting = invite(receivers)
        return self._meeting, [name for name, p in parameters.items() if p.requires_grad]

    def open_link(self) -> None:
        """Meet those that were invited; the first rank sends for all."""
        if self._rank.rank == 0:
            device = self._learner.model.device if self._shares_weights else torch.device("cpu")
            self._link = Link(self._store, 0, self._meeting.size, device)

    def send_weights(self, version: int) -> None:
        """Send the weights as they are now, all of them the first time, and then those that are trained."""
        model = self._learner.model
        part(model)
        chosen = {name: p for name, p in model.named_parameters() if p.requires_grad or not self._sent}
        gathered = ((name, full(p.detach())) for name, p in chosen.items())
        with self._learner.offload.here():
            if self._link is not None:
                self._link.send([entry for entry in self._table if entry.name in chosen], gathered, version)
            else:
                for _ in gathered:  # the first rank has them by the others' help
                    pass
        self._sent = True

    def generate(
        self, prompts: Sequence[Start], params: SamplingParams, ids: Sequence[int], version: int
    ) -> list[Sample]:
        """n samples for each of this rank's prompts."""
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

    def log_probs(self, samples: Sequence[Sample]) -> Tensor | None:
        """Of the current weights; like all measures below, by the first rank for all."""
        return self._first(self._learner.log_probs(samples))

    def reference_log_probs(self, samples: Sequence[Sample]) -> Tensor | None:
        """Of the frozen reference."""
        assert self._reference is not None, "asked for only where there is one"
        return self._first(self._reference.log_probs(samples))

    def full_kl(self, samples: Sequence[Sample]) -> Tensor | None:
        """Exact KL from the reference."""
        assert self._reference is not None, "asked for only where there is one"
        return self._first(self._learner.full_kl(samples, self._reference))

    def masked_kl(self, samples: Sequence[Sample], masked: Sequence[Sample]) -> Tensor | None:
        """Exact KL from the same weights with masked images."""
        return self._first(self._learner.masked_kl(samples, masked))

    def sum_pi_squared(self, samples: Sequence[Sample]) -> Tensor | None:
        """Σ_v π(v)² of the current weights."""
        return self._first(self._learner.sum_pi_squared(samples))

    def update(
        self, objective: Objective, step: int, mini_batch: int, version: int
    ) -> tuple[dict[str, float], list[dict[str, float]]]:
        """One step's update; its metrics, and what a rollout correction found."""
        loss = replace(objective, reference=self._reference)
        experience = objective.experience
        metrics = self._learner.update(experience.samples, loss, step, mini_batch, None, version)
        return metrics, experience.correction_metrics

    def values(self, samples: Sequence[Sample]) -> Tensor | None:
        """Of the critic."""
        assert self._critic is not None, "asked for only where there is one"
        return self._first(self._critic.values(samples))

    def update_critic(self, objective: ValueObjective, step: int, mini_batch: int) -> dict[str, float]:
        """One step's update of the critic; its metrics."""
        assert self._critic is not None, "asked for only where there is one"
        return self._critic.update(objective.experience.samples, objective, step, mini_batch)

    def save(self, part: str, folder: Path, model_only: bool) -> None:
        """Write the policy or the critic with its optimizer; the first rank writes, all have to be asked."""
        self._trained(part).save(folder, self._tokenizer, model_only)

    def broken_weights(self, part: str) -> list[str]:
        """Names of parameters of the policy or the critic that are not finite."""
        return self._trained(part).broken_weights()

    def load_optimizer(self, part: str, folder: Path) -> None:
        """Read back what `save` wrote."""
        self._trained(part).load_optimizer(folder)

    def close(self) -> None:
        """End what the engine started."""
        if self._engine is not None:
            self._engine.close()

    def _trained(self, part: str) -> Learner | Critic:
        trained = self._learner if part == "actor" else self._critic
        assert trained is not None, "asked for only where there is one"
        return trained

    def _first(self, values: Tensor) -> Tensor | None:
        return values if self._rank.rank == 0 else None


def _load(plan: RankPlan, placement: Placement, checkpoint: Checkpoint | None, part: str = "actor") -> PreTrainedModel:
    """The policy of a checkpoint, or the first one, read by the first rank and sharded over all."""
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
    """The value model of a checkpoint, or the first one, sharded likewise."""
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
