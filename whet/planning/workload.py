"""`Workload`: what a step of a run samples and learns, read from its config."""

from __future__ import annotations

from dataclasses import dataclass

from whet.config.schema import Config
from whet.errors import UserError


@dataclass(frozen=True, slots=True)
class Devices:
    """Devices of a run, and how they are divided."""

    nodes: int = 1
    per_node: int = 1
    rollout: int | None = None  # devices that only sample; None where all do both

    @property
    def count(self) -> int:
        """All devices."""
        return self.nodes * self.per_node

    @property
    def learn(self) -> int:
        """Devices that learn."""
        return self.count - (self.rollout or 0)

    @property
    def sample(self) -> int:
        """Devices that sample."""
        return self.rollout or self.count

    @property
    def apart(self) -> bool:
        """True if sampling and learning have devices of their own."""
        return self.rollout is not None


@dataclass(frozen=True, slots=True)
class Workload:
    """Sizes of one training step."""

    prompts: int  # of a step
    samples: int  # of a prompt
    prompt_mean: float
    prompt_max: int
    response_mean: float
    response_max: int
    mini_batch: int  # prompts of one optimizer step
    epochs: int
    slots: int  # sequences that a device decodes at once
    scored_passes: int  # forward passes over the batch besides: old log-probs, reference, values
    critic: bool
    share_prefix: bool

    @property
    def longest(self) -> int:
        """Tokens of the longest sample."""
        return self.prompt_max + self.response_max

    @property
    def group_tokens(self) -> float:
        """Packed tokens of a prompt and its samples, at mean lengths."""
        copies = 1 if self.share_prefix else self.samples
        return copies * self.prompt_mean + self.samples * self.response_mean

    @property
    def most_group_tokens(self) -> int:
        """The same at the greatest lengths."""
        copies = 1 if self.share_prefix else self.samples
        return copies * self.prompt_max + self.samples * self.response_max

    @property
    def group_pairs(self) -> float:
        """Pairs of tokens that see each other in a group."""
        p, r = self.prompt_mean, self.response_mean
        copies = 1 if self.share_prefix else self.samples
        return copies * p * p / 2 + self.samples * (p * r + r * r / 2)


def devices_of(config: Config) -> Devices:
    """Return the devices that a config asks for."""
    trainer = config.trainer
    return Devices(trainer.nnodes, trainer.n_gpus_per_node, trainer.placement.rollout)


def workload_of(
    config: Config, cpu: bool, prompt_mean: float | None = None, response_mean: float | None = None
) -> Workload:
    """Read a step's sizes from a config; means are half of the greatest lengths where none are given."""
    import torch

    from whet.algos import needs_of
    from whet.rollout.spec import default_slots, engine_can
    from whet.training.experience import needs_reference
    from whet.training.signals import needs_old_log_probs

    data, actor = config.data, config.worker.actor
    critic = "values" in needs_of(config.algorithm.adv_estimator)
    passes = int(needs_old_log_probs(config, engine_can(config).exact_log_probs))
    passes += int(needs_reference(config.algorithm)) + int(critic)
    return Workload(
        prompts=data.rollout_batch_size,
        samples=config.worker.rollout.n,
        prompt_mean=_mean("--mean-prompt", prompt_mean, data.max_prompt_length, "data.max_prompt_length"),
        prompt_max=data.max_prompt_length,
        response_mean=_mean("--mean-response", response_mean, data.max_response_length, "data.max_response_length"),
        response_max=data.max_response_length,
        mini_batch=min(actor.global_batch_size, data.rollout_batch_size),
        epochs=actor.ppo_epochs,
        slots=config.worker.rollout.max_num_seqs or default_slots(torch.device("cpu" if cpu else "cuda")),
        scored_passes=passes,
        critic=critic,
        share_prefix=actor.share_prefix,
    )


def _mean(option: str, given: float | None, most: int, key: str) -> float:
    if given is None:
        return max(1.0, most / 2)
    if not 1 <= given <= most:
        raise UserError(f"{option} {given:g} must lie between 1 and {key}={most}")
    return float(given)
