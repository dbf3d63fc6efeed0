"""Rules of optimizers and models: schedules, gradient norms, precision, offload, adapters."""

from __future__ import annotations

from typing import Any

from whet.compat.rules.rule import rule
from whet.compat.rules.sizes import devices
from whet.compat.translation import Here, There

_ACTOR = "actor_rollout_ref.actor"
# Section of each optimizer there, and the part of whet's worker that it belongs to.
OPTIMIZERS = {f"{_ACTOR}.optim": "actor", "critic.optim": "critic", "optim": "actor"}
_SCHEDULES = {"constant": "constant", "cosine": "cosine", "": "constant"}
_FP32 = ("fp32", "float32", "torch.float32")


@rule("schedule")
def _schedule(there: There, here: Here) -> None:
    """Warmup by steps or share, and the shape of the schedule."""
    for section, part in OPTIMIZERS.items():
        if f"{section}.lr" not in there:
            continue
        to = f"worker.{part}.optim"
        steps = there.count(f"{section}.lr_warmup_steps", -1)
        share = (
            f"{section}.{'warmup_steps_ratio' if f'{section}.warmup_steps_ratio' in there else 'lr_warmup_steps_ratio'}"
        )
        warms = False
        if steps >= 0:
            here.set(f"{to}.lr_warmup_steps", steps, f"{section}.lr_warmup_steps")
            warms = steps > 0
        elif there.number(share):
            here.set(f"{to}.lr_warmup_ratio", there.number(share), share)
            warms = True
        if warms:
            here.note(f"{section}: the first step of a warmup of W steps has rate 0 there, and lr/W here")
        _shape(there, here, section, to)


def _shape(there: There, here: Here, section: str, to: str) -> None:
    names = ("lr_scheduler", "warmup_style", "lr_decay_style", "lr_scheduler_type")
    found = next((f"{section}.{name}" for name in names if there.get(f"{section}.{name}")), None)
    shape = there.text(found, "constant") if found else "constant"
    if shape not in _SCHEDULES:
        here.refuse(found or section, "schedules are constant and cosine here; choose one of them")
        return
    here.set(f"{to}.lr_scheduler_type", _SCHEDULES[shape], found or f"{section}.lr_scheduler_type")
    if shape == "constant":
        return
    lowest, rate = there.number(f"{section}.min_lr"), there.number(f"{section}.lr", 1e-6)
    if lowest and rate:
        here.set(f"{to}.min_lr_ratio", lowest / rate, f"{section}.min_lr")
    elif there.number(f"{section}.min_lr_ratio"):
        here.set(f"{to}.min_lr_ratio", there.number(f"{section}.min_lr_ratio"), f"{section}.min_lr_ratio")


@rule("constant_schedule")
def _constant_schedule(there: There, here: Here) -> None:
    """Skywork-OR1's FSDP workers have a warmup and then a constant rate, whatever is set."""
    _schedule(there, here)
    for section, part in OPTIMIZERS.items():
        if here.value(f"worker.{part}.optim.lr_scheduler_type") == "cosine" and f"{section}.lr" in there:
            here.set(f"worker.{part}.optim.lr_scheduler_type", "constant", f"{section}.warmup_style")
            here.drop(f"worker.{part}.optim.min_lr_ratio")
            here.note(f"{section}.warmup_style: the rate is always constant there")


@rule("grad_norm")
def _grad_norm(there: There, here: Here) -> None:
    """Largest gradient norm: FSDP's key above the optimizer, Megatron's and SFT's inside it."""
    for above, section, part in (
        (_ACTOR, f"{_ACTOR}.optim", "actor"),
        ("critic", "critic.optim", "critic"),
        ("", "optim", "actor"),
    ):
        own, inner = f"{above}.grad_clip", f"{section}.clip_grad"
        key = own if own in there else inner
        if key in there and there.number(key):
            here.set(f"worker.{part}.max_grad_norm", there.number(key), key)
        if own in there and inner in there:
            here.idle(inner, "FSDP clips by grad_clip")


@rule("optimizer")
def _optimizer(there: There, here: Here) -> None:
    for section, part in OPTIMIZERS.items():
        name, module = (
            there.text(f"{section}.optimizer", "AdamW"),
            there.text(f"{section}.optimizer_impl", "torch.optim"),
        )
        if str(name).lower() in ("adamw", "adam"):
            continue
        rounding = there.get(f"{section}.override_optimizer_config.bf16_stochastic_round", False)
        if name == "_AdamW" and "torchao" in module and rounding:
            here.set(f"worker.{part}.optim.strategy", "adamw_bf16", f"{section}.optimizer")
            here.note(f"{section}.optimizer=_AdamW: whet rounds bf16 weights with Kahan sums, not at random")
        elif name.lower() in ("adamw8bit", "adam8bit", "adamw_8bit"):
            if devices(there) == 1:
                here.set(f"worker.{part}.optim.strategy", "adamw_8bit", f"{section}.optimizer")
            else:
                here.idle(f"{section}.optimizer", "8-bit states are for one device here; several shard fp32 states")
        elif f"{section}.optimizer" in there:
            here.refuse(f"{section}.optimizer", "AdamW is the optimizer here; set it to AdamW")


@rule("offload")
def _offload(there: There, here: Here) -> None:
    """The optimizer's state waits in host memory if any of Megatron's keys says so."""
    for section, part in OPTIMIZERS.items():
        above = section.rpartition(".")[0]
        config = f"{section}.override_optimizer_config"
        keys = (
            f"{config}.optimizer_cpu_offload",
            f"{config}.optimizer_offload_fraction",
            f"{above}.megatron.optimizer_offload",
        )
        asked = [key for key in keys if there.get(key)]
        if asked:
            here.set(f"worker.{part}.offload.offload_optimizer", True, *asked)


@rule("dtype")
def _dtype(there: There, here: Here) -> None:
    """Weights that are trained: fp32 there where nothing is said."""
    places = {
        f"{_ACTOR}.fsdp_config": "actor",
        "critic.model.fsdp_config": "critic",
        "actor_rollout_ref.ref.fsdp_config": "ref",
        "engine": "actor",
        "model.fsdp_config": "actor",
    }
    for section, part in places.items():
        key = f"{section}.model_dtype"
        if key not in there:
            continue
        value = str(there.get(key, "fp32")).removeprefix("torch.")
        if part == "ref" and not there.is_given(key):
            continue  # a frozen model computes in bf16 there whatever it is kept in
        here.set(f"worker.{part}.fsdp.torch_dtype", "fp32" if value in _FP32 else value, key)


@rule("strategy")
def _strategy(there: There, here: Here) -> None:
    for section in (_ACTOR, "critic", "model"):
        value = there.get(f"{section}.strategy", "fsdp")
        if value not in ("fsdp", "fsdp2", "megatron"):
            here.refuse(f"{section}.strategy", "models are spread by FSDP2 here; set it to fsdp2")
        elif value == "megatron":
            here.idle(f"{section}.strategy", "models are spread by FSDP2 and worker.actor.tensor_parallel_size here")


@rule("tokenizer")
def _tokenizer(there: There, here: Here) -> None:
    for key in ("actor_rollout_ref.model.tokenizer_path", "data.tokenizer", "model.tokenizer_path"):
        if there.get(key):
            here.set("worker.actor.model.tokenizer_path", there.get(key), key)
            return


@rule("trust")
def _trust(there: There, here: Here) -> None:
    for key in ("data.trust_remote_code", "actor_rollout_ref.model.trust_remote_code", "model.trust_remote_code"):
        if there.on(key):
            here.set("worker.actor.model.trust_remote_code", True, key)


@rule("override_config")
def _override_config(there: There, here: Here) -> None:
    for section, part in (("actor_rollout_ref.model", "actor"), ("critic.model", "critic"), ("model", "actor")):
        made: dict[str, Any] = {}
        for name, value in there.below(f"{section}.override_config").items():
            bare = name.removeprefix("model_config.")
            if (
                not bare.startswith(("moe_config", "attn_implementation"))
                and bare != "model_config"
                and value is not None
            ):
                made[bare] = value
        if made:
            keys = [f"{section}.override_config.{name}" for name in there.below(f"{section}.override_config")]
            here.set(f"worker.{part}.model.override_config", made, *keys)


@rule("lora")
def _lora(there: There, here: Here) -> None:
    """Adapters, only where a rank is given: alpha is 16 there by default, and 32 below `lora`."""
    for section in ("actor_rollout_ref.model", "model"):
        rank = f"{section}.lora_rank" if there.number(f"{section}.lora_rank") else f"{section}.lora.rank"
        if not there.number(rank):
            for name in ("lora_alpha", "target_modules", "exclude_modules"):
                here.idle(f"{section}.{name}", "counts only with a rank")
            continue
        old = rank.endswith("lora_rank")
        here.set("worker.actor.model.lora.rank", there.count(rank), rank)
        alpha = f"{section}.lora_alpha" if old else f"{section}.lora.alpha"
        here.set("worker.actor.model.lora.alpha", int(there.number(alpha, 16 if old else 32)), alpha)
        for name in ("target_modules", "exclude_modules"):
            _modules(there, here, f"{section}.{name}" if old else f"{section}.lora.{name}", name)
    if there.number("critic.model.lora_rank") or there.number("critic.model.lora.rank"):
        here.refuse("critic.model.lora_rank", "a critic with adapters is not here; set it to 0")


def _modules(there: There, here: Here, key: str, name: str) -> None:
    value = there.get(key)
    if isinstance(value, list):
        if "linear_qkv" in value or "linear_proj" in value:  # Megatron's names for all linear layers
            value = "all-linear"
        else:
            value = ",".join(map(str, value))
    if value:
        here.set(f"worker.actor.model.lora.{name}", str(value), key)
