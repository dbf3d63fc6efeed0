"""What each rank does in the tests of the sharded learner; the same lines run in one process for comparison."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from learn.objectives import FunctionObjective
from learn.samples import batch
from tiny_models import tiny_llama, tiny_model, tiny_tokenizer
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from transformers import PreTrainedModel

from whet.config import Config, with_values
from whet.config.schema.actor import CriticConfig
from whet.config.schema.model import FSDPConfig
from whet.errors import UserError
from whet.learn.critic import LocalCritic
from whet.learn.full_state import full_weights
from whet.learn.kahan import KahanAdamW
from whet.learn.layout import ParallelLayout, lay_out
from whet.learn.learner import LocalLearner
from whet.learn.optimizer import sum_gradients_in_fp32
from whet.learn.packing import pad
from whet.learn.partition import Budget
from whet.learn.ranks import Ranks
from whet.learn.reference import LocalReference
from whet.learn.sharding import shard
from whet.learn.value_head import ValueModel
from whet.model.whole import full, whole
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.native.engine import NativeEngine
from whet.training.experience import make_experience, sampler_log_probs
from whet.training.objective import objective
from whet.types import Prompt, Sample

CPU = torch.device("cpu")


@dataclass
class Case:
    """One way to cut the same training step."""

    share: bool = True
    tokens: int | None = 40
    size: int = 4
    mini_batch: int = 12
    tied: bool = True
    recompute: bool = True
    kl: str = "low_var_kl"
    scale: float = 1.0  # of the weights
    strategy: str = "adamw"
    dtype: torch.dtype = torch.float32
    fsdp: FSDPConfig = field(default_factory=FSDPConfig)
    family: str = "llama"
    tensor: int = 1
    sequence: int = 1


def model_of(case: Case) -> PreTrainedModel:
    """The same random model on every rank, sharded where there are ranks."""
    model = tiny_model(case.family, case.dtype)
    if not case.tied:
        model.config.tie_word_embeddings = False
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone().mul_(1.25))
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(case.scale)
    return spread(model, case.fsdp, None, case.tensor, case.sequence)


def layout_of(case: Case) -> ParallelLayout:
    """Which rank does what in a case."""
    return lay_out(case.fsdp, CPU, case.tensor, case.sequence)


def spread(
    model: Any, fsdp: FSDPConfig, policy: MixedPrecisionPolicy | None = None, tensor: int = 1, sequence: int = 1
) -> Any:
    """Sharded where there are ranks."""
    if dist.is_initialized():
        shard(model, fsdp, lay_out(fsdp, CPU, tensor, sequence), CPU, policy)
    return model


def config_of(case: Case) -> Config:
    """The objective and optimizer of a case."""
    values = {
        "data.max_response_length": 16,
        "algorithm.use_kl_loss": True,
        "algorithm.kl_penalty": case.kl,
        "algorithm.kl_coef": 0.3,
        "worker.actor.share_prefix": case.share,
        "worker.actor.micro_batch_size_per_device_for_update": case.size,
        "worker.actor.micro_batch_size_per_device_for_experience": case.size,
        "worker.actor.optim.lr": 0.01,
        "worker.actor.optim.strategy": case.strategy,
        "worker.actor.max_grad_norm": 0.5,
        "worker.actor.model.enable_gradient_checkpointing": case.recompute,
    }
    return with_values(Config(), values)


def learner_of(model: PreTrainedModel, case: Case) -> LocalLearner:
    """A learner of a model, sharded or not."""
    return LocalLearner(
        model, config_of(case).worker.actor, 0.8, total_steps=10, budget=Budget(case.tokens, case.tokens)
    )


def update(learner: LocalLearner, case: Case, step: int = 1, samples: list[Sample] | None = None) -> dict[str, float]:
    """One training step of the whole objective."""
    config, samples = config_of(case), samples or batch()
    old = sampler_log_probs(samples)
    ref = None
    if case.kl == "full":
        learner.reference = LocalReference(model_of(case), config.worker.actor, 0.8, case.tokens)
    else:
        ref = old - 0.2 * torch.sin(torch.arange(old.numel())).view_as(old)
    experience, _ = make_experience(samples, old, ref, config.algorithm)
    return learner.update(samples, objective(experience, config), step, case.mini_batch)


def train(cases: list[Case]) -> list[dict[str, Any]]:
    """Metrics, gradients, weights and log-probs of a step of every case."""
    found = []
    for case in cases:
        learner = learner_of(model_of(case), case)
        gradients: list[list[Tensor]] = []
        learner.optimizer.register_step_pre_hook(
            lambda optimizer, *_, kept=gradients: kept.append(
                [full(p.grad).clone() for group in optimizer.param_groups for p in group["params"]]
            )
        )
        metrics = update(learner, case)
        log_probs, peaked = learner.log_probs(batch()), learner.sum_pi_squared(batch())
        weights = full_weights(learner.model)
        found.append({"metrics": metrics, "gradients": gradients, "weights": weights, "values": [log_probs, peaked]})
    return found


def kahan(steps: int) -> list[Tensor]:
    """Parameters and state of bf16 weights, sharded where there are ranks, after a few updates by given gradients."""
    generator = torch.Generator().manual_seed(5)
    params = []
    for shape in ((7, 3), (8,), (1, 5)):  # not all of them can be cut evenly
        whole = torch.randn(shape, generator=generator).bfloat16()
        if dist.is_initialized():
            mesh = lay_out(FSDPConfig(), CPU).shards
            params.append(torch.nn.Parameter(distribute_tensor(whole, mesh, [Shard(0)])))
        else:
            params.append(torch.nn.Parameter(whole))
    sum_gradients_in_fp32(params)
    optimizer = KahanAdamW(params, lr=1e-4)
    for _ in range(steps):
        for p in params:
            gradient = torch.randn(p.shape, generator=generator)
            p.grad = distribute_tensor(gradient, p.device_mesh, p.placements) if isinstance(p, DTensor) else gradient
        optimizer.step()
    states = [value for p in params for value in optimizer.state[p].values()]
    return [full(value.detach()) for value in [*params, *states]]


def sampled(prompts: list[list[Prompt]], case: Case | None = None) -> list[Any]:
    """Responses to this rank's prompts by the native engine on whole weights, then a step, then the weights."""
    case = case or Case()
    learner = learner_of(model_of(case), case)
    engine = NativeEngine(learner.model, tiny_tokenizer(), frozenset({1}), 4)
    rank = dist.get_rank() if dist.is_initialized() else 0
    found = []
    for step in (1, 2):  # the second time with weights that have moved
        with whole(learner.model):
            for prompt in prompts[rank]:
                found += engine.generate([prompt], SamplingParams(n=2, max_tokens=6, temperature=1.0), [7])
        update(learner, case, step)
    sharded = [isinstance(p, DTensor) for p in learner.model.parameters()]
    return [[(s.ids, s.log_probs) for s in found], sharded, full_weights(learner.model)]


def bad_loss(broken: int) -> list[Any]:
    """A step in which the loss of one sample is not a number."""
    case, samples = Case(), batch()
    learner = learner_of(model_of(case), case)
    before = [full(p.detach()).clone() for p in learner.model.parameters()]

    def nan_for_one(scored: Any, rows: list[int], mini: list[int]) -> tuple[Tensor, dict[str, Tensor]]:
        loss = scored.log_probs_BT.sum() * (float("nan") if broken in [mini[i] for i in rows] else 1.0)
        return loss, {"rows": torch.tensor(float(len(rows)))}

    metrics = learner.update(samples, FunctionObjective(nan_for_one), 1, len(samples))
    after = [full(p.detach()) for p in learner.model.parameters()]
    return [metrics, all(torch.equal(a, b) for a, b in zip(before, after))]


def criticise(mini_batch: int, sequence: int = 1) -> list[Any]:
    """Values before and after an update of a critic, and what the update said."""
    samples = batch()
    model = ValueModel(tiny_llama("whet").base_model)
    with torch.no_grad():
        model.head.weight.copy_(torch.linspace(-0.3, 0.3, 32)[None])
    spread(model, FSDPConfig(), sequence=sequence)
    config = with_values(CriticConfig(), {"optim.lr": 0.01})
    critic = LocalCritic(model, config, total_steps=10, budget=Budget(40, 40))

    def square(values: Tensor, rows: list[int], mini: list[int]) -> tuple[Tensor, dict[str, Tensor]]:
        written = pad([[1.0] * len(samples[mini[i]].ids) for i in rows])
        loss = ((values - 1.0).square() * written).sum() / len(mini)
        return loss, {"loss": loss.detach()}

    before = critic.values(samples)
    metrics = critic.update(samples, FunctionObjective(square), 1, mini_batch)
    return [before, metrics, critic.values(samples)]


def narrow_passes() -> list[Any]:
    """Dtypes of fp32 weights trained with bf16 passes, and the log-probs that those give."""
    case = Case()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    with torch.backends.mkldnn.flags(enabled=False):  # some CPUs promise bf16 products that they do not have
        learner = learner_of(spread(tiny_llama("whet"), case.fsdp, policy), case)
        before = learner.log_probs(batch())
        metrics = update(learner, case)
        with whole(learner.model):
            inside = {p.dtype for p in learner.model.parameters()}
    return [before, metrics, inside, {p.dtype for p in learner.model.parameters()}]


def bad_mesh(size: int) -> str:
    """What is said about groups of a size that does not divide the ranks."""
    try:
        lay_out(FSDPConfig(fsdp_size=size), CPU)
    except UserError as error:
        return str(error)
    return "nothing"


def bf16_step() -> list[Any]:
    """Log-probs of bf16 weights before and after a step, and the dtypes of gradients that the optimizer saw."""
    case, samples = Case(strategy="adamw_bf16", dtype=torch.bfloat16, tokens=20), batch()
    seen: set[torch.dtype] = set()
    with torch.backends.mkldnn.flags(enabled=False):  # some CPUs promise bf16 products that they do not have
        learner = learner_of(model_of(case), case)
        learner.optimizer.register_step_pre_hook(
            lambda optimizer, *_: seen.update(p.grad.dtype for g in optimizer.param_groups for p in g["params"])
        )
        before = learner.log_probs(samples)
        metrics = update(learner, case)
        return [before, learner.log_probs(samples), metrics["actor/grad_norm"], seen]


def twins(case: Case) -> list[Any]:
    """A step of two pairs of ranks; those of a pair compute the same share, as ranks of a tensor-parallel group do."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "twin"))
    data = mesh["data"]
    ranks = Ranks(data.get_local_rank(), 2, data.get_group(), dist.group.WORLD, CPU)
    model = tiny_llama("whet")
    shard(model, case.fsdp, ParallelLayout(data, None, ranks), CPU)
    learner = learner_of(model, case)
    metrics = update(learner, case)
    return [metrics, learner.log_probs(batch()), full_weights(model), ranks.is_first]
