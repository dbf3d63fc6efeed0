"""`worker.actor.*`, `worker.critic.*`, `worker.ref.*`: the models and how they are updated."""

from __future__ import annotations

from dataclasses import dataclass, field

from whet.config.function_registry import FunctionRegistry
from whet.config.keys import key, section
from whet.config.schema.model import FSDPConfig, ModelConfig, OffloadConfig, OptimConfig, RefOffloadConfig

AVG_MODES = (
    "token",
    "seq",
    "token-mean",
    "token-sum",
    "seq-mean-token-mean",
    "seq-mean-token-sum",
    "seq-mean-token-sum-norm",
)
LOSSES = FunctionRegistry(
    "worker.actor.loss_type", "whet.algos.losses", "policy_loss", entry_points="whet.policy_losses"
)


@dataclass(frozen=True)
class AdaptiveEntropyConfig:
    """Skywork-OR1's controller of the entropy bonus."""

    enabled: bool = key(False, "move entropy_coeff so that entropy stays at target_entropy")
    target_entropy: float = key(0.0, "entropy below which there is a bonus", least=0)
    max_ent_coef: float = key(0.5, "largest coefficient", least=0)
    min_ent_coef: float = key(0.0, "smallest coefficient", least=0)
    delta_ent_coef: float = key(0.001, "how far the coefficient moves after each step", least=0)


@dataclass(frozen=True)
class ActorConfig:
    """The policy: mini-batches, the loss, and how they fit in memory."""

    strategy: str = key("fsdp", "how the model is spread over devices", choices=("fsdp",))
    global_batch_size: int = key(256, "prompts per update; their n samples all belong to it", least=1, most=10_000_000)
    micro_batch_size_per_device_for_update: int = key(
        4, "samples per forward and backward pass", least=1, most=10_000_000
    )
    micro_batch_size_per_device_for_experience: int = key(
        16, "samples per forward pass for log-probs", least=1, most=10_000_000
    )
    micro_batch_tokens: int | None = key(
        None,
        "tokens per packed micro-batch; null = as memory allows (GPU), micro_batch_size full samples (CPU)",
        least=1,
    )
    share_prefix: bool = key(True, "pack once what samples have in common: prompts, and beginnings of episodes")
    recompute_old_log_probs: bool | None = key(
        None, "compute old log-probs in a pass of their own; null = only when the sampler's are not the same numbers"
    )
    max_grad_norm: float = key(1.0, "gradients are scaled down to this norm", above=0)
    clip_ratio_low: float = key(0.2, "ratios are clipped below at 1 - this; 1 = no lower bound", least=0, most=1)
    clip_ratio_high: float = key(0.3, "ratios are clipped above at 1 + this", least=0)
    clip_ratio_dual: float = key(3.0, "dual clip: bound on the ratio where the advantage is negative", above=1)
    loss_avg_mode: str = key(
        "token", "how token losses are averaged: token = token-mean, seq = seq-mean-token-mean", choices=AVG_MODES
    )
    loss_type: str = key(
        "default",
        "the policy loss; default is PPO's clipped loss, and some bring clipping and averaging of their own",
        choices=lambda: LOSSES.names,
        open=True,
    )
    ppo_epochs: int = key(1, "passes over the samples of a step", least=1)
    padding_free: bool = key(True, "pack samples instead of padding them")
    dynamic_batching: bool = key(True, "fill micro-batches by tokens; false counts samples")
    ulysses_size: int = key(
        1, "devices that share every packed row of tokens (sequence parallelism)", least=1, most=1024
    )
    tensor_parallel_size: int = key(
        1, "devices that each compute a part of every layer, and have some of its experts", least=1, most=1024
    )
    use_torch_compile: bool = key(False, "compile the model's forward pass")
    tau_positive: float = key(1.0, "sapo's temperature where the advantage is positive", above=0)
    tau_negative: float = key(1.05, "sapo's temperature where the advantage is negative", above=0)
    clip_cov_ratio: float = key(2e-4, "clip_cov: share of tokens that get no gradient", least=0, most=1)
    clip_cov_lb: float = key(1.0, "clip_cov: tokens are chosen among those whose covariance is above this")
    clip_cov_ub: float = key(5.0, "clip_cov: and below this")
    kl_cov_ratio: float = key(2e-4, "kl_cov: share of tokens that get a KL penalty", least=0, most=1)
    ppo_kl_coef: float = key(1.0, "kl_cov: weight of that penalty", least=0)
    dppo_ratio_max: float = key(20.0, "dppo_tv, dppo_kl: ratios count at most this much", above=0)
    dro_beta: float = key(0.05, "dro: weight of the squared distance to the policy that sampled", above=0)
    off_policy_delta: float = key(
        0.5, "off_policy_mask: mean log of old over current probability above which a failed response is masked"
    )
    vespo_positive: tuple[float, float] = key(
        (2.0, 3.0), "vespo: exponents c1, c2 of the ratio's weight where the advantage is not negative", least=0
    )
    vespo_negative: tuple[float, float] = key((3.0, 2.0), "vespo: the same where it is negative", least=0)
    sppo_eta: float = key(1.0, "sppo: log-ratio that a response which always wins is to reach, doubled", above=0)
    spin_lambda: float = key(0.1, "spin: scale of the log-ratios that are compared", above=0)
    entropy_coeff: float = key(0.0, "weight of the entropy bonus: the mean entropy times this is taken off the loss")
    adaptive_entropy: AdaptiveEntropyConfig = field(
        default_factory=AdaptiveEntropyConfig, metadata=section("an entropy bonus that follows a target")
    )
    model: ModelConfig = field(default_factory=ModelConfig, metadata=section("which model is trained"))
    optim: OptimConfig = field(default_factory=OptimConfig, metadata=section("optimizer and learning rate"))
    fsdp: FSDPConfig = field(default_factory=FSDPConfig, metadata=section("sharding and precision"))
    offload: OffloadConfig = field(default_factory=OffloadConfig, metadata=section("what waits in host memory"))


@dataclass(frozen=True)
class CriticConfig:
    """The value model of PPO."""

    strategy: str = key("fsdp", "how the model is spread over devices", choices=("fsdp",))
    global_batch_size: int = key(256, "prompts per update of the critic", least=1, most=10_000_000)
    micro_batch_size_per_device_for_update: int = key(
        4, "samples per forward and backward pass", least=1, most=10_000_000
    )
    micro_batch_size_per_device_for_experience: int = key(
        16, "samples per forward pass for values", least=1, most=10_000_000
    )
    micro_batch_tokens: int | None = key(
        None,
        "tokens per packed micro-batch; null = as memory allows (GPU), micro_batch_size full samples (CPU)",
        least=1,
    )
    share_prefix: bool = key(True, "pack once what samples have in common: prompts, and beginnings of episodes")
    max_grad_norm: float = key(1.0, "gradients are scaled down to this norm", above=0)
    cliprange_value: float = key(0.5, "how far a value may move from the old one", above=0)
    loss_avg_mode: str = key("token", "how token losses are averaged", choices=AVG_MODES)
    ppo_epochs: int = key(1, "passes over the samples of a step", least=1)
    padding_free: bool = key(True, "pack samples instead of padding them")
    dynamic_batching: bool = key(True, "fill micro-batches by tokens; false counts samples")
    ulysses_size: int = key(
        1, "devices that share every packed row of tokens (sequence parallelism)", least=1, most=1024
    )
    model: ModelConfig = field(default_factory=ModelConfig, metadata=section("which model gives values"))
    optim: OptimConfig = field(default_factory=OptimConfig, metadata=section("optimizer and learning rate"))
    fsdp: FSDPConfig = field(default_factory=FSDPConfig, metadata=section("sharding and precision"))
    offload: OffloadConfig = field(default_factory=OffloadConfig, metadata=section("what waits in host memory"))


@dataclass(frozen=True)
class RefConfig:
    """The frozen model that KL is measured against."""

    strategy: str = key("fsdp", "how the model is spread over devices", choices=("fsdp",))
    fsdp: FSDPConfig = field(default_factory=FSDPConfig, metadata=section("sharding and precision"))
    offload: RefOffloadConfig = field(default_factory=RefOffloadConfig, metadata=section("what waits in host memory"))
