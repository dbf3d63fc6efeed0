"""Entries of the format of verl_0.9.1.json: sections of entries whose names hold their settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from originals.entry import Compute, Entry
from originals.inputs import Inputs, advantage_of, aggregator, loss_of
from whet.algos.balance import partitions, workload
from whet.algos.bootstrap import bootstrap_metrics
from whet.algos.correction import correct
from whet.algos.kl import kl_penalty
from whet.algos.registry import LossInputs, Signals
from whet.algos.value_loss import value_loss
from whet.config.correction import RULES
from whet.config.schema.actor import ActorConfig
from whet.config.schema.algorithm import ADVANTAGES, AlgorithmConfig
from whet.config.schema.correction import PRESETS, RolloutCorrectionConfig

NUMBER = r"\d*\.?\d+(?:e-?\d+)?"
_ESTIMATORS = {
    "rf++": "reinforce_plus_plus",
    "rf++_baseline": "reinforce_plus_plus_baseline",
    "otb": "optimal_token_baseline",
    "tir_otb": "tir_optimal_token_baseline",
}
# Settings that an entry's name does not hold.
_ACTOR = ActorConfig(clip_ratio_low=0.2, clip_ratio_high=0.28, clip_ratio_dual=3.0, dro_beta=0.05)
_BYPASS = RolloutCorrectionConfig(
    rollout_is="token",
    rollout_is_threshold="1.2",
    rollout_rs="seq_mean_k1",
    rollout_rs_threshold="0.9_1.12",
)
_BYPASS_LOSSES = {"ppo_clip": "vanilla", "reinforce": "gpg"}
_VALIDATION = ("ppppqqqq", [1, 0, 0, 1, 0, 0, 0, 1], "xyyxzzwv")  # prompts, scores, answers


def entries(golden: dict[str, Any]) -> Iterator[Entry]:
    """Every entry of the file."""
    inputs = Inputs(golden["inputs"])
    for section, found in golden.items():
        if section == "inputs":
            continue
        if section == "value_loss":
            yield Entry(section, found, partial(_value_loss, inputs, found), frozenset({"vpred"}))
        elif section not in _SECTIONS or not isinstance(found, dict):
            yield Entry(section, found, None)
        else:
            for name, recorded in found.items():
                if section != "seqlen" or name != "lens":
                    yield Entry(f"{section}/{name}", recorded, _SECTIONS[section](name, inputs, found))


def _advantage(name: str, inputs: Inputs, found: dict[str, Any]) -> Compute | None:
    parsed = re.fullmatch(rf"(.+?)((?:_(?:g{NUMBER}|l{NUMBER}|nostd|notail|fallback|no_\w))*)", name)
    assert parsed is not None, "the pattern fits any name"
    estimator = _ESTIMATORS.get(parsed[1], parsed[1])
    if estimator not in ADVANTAGES.names:
        return None
    values: dict[str, Any] = {}
    for setting in parsed[2].split("_")[1:]:
        if setting == "nostd":
            values["norm_adv_by_std"] = False
        elif setting == "notail":
            values["otb_zero_tail"] = False
        elif re.fullmatch(f"g{NUMBER}", setting):
            values["gamma"] = float(setting[1:])
        elif re.fullmatch(f"l{NUMBER}", setting):
            values["lam"] = float(setting[1:])
    config = AlgorithmConfig(match="verl", **values)

    def compute() -> Any:
        rows = slice(None)
        if "_no_" in parsed[2]:  # a group that the estimator has no answer for stands last and was left out
            rows = slice(len(found[name]["adv"]))
        mask, rewards, old = (inputs[each][rows] for each in ("mask", "rewards", "old_log_prob"))
        signals = Signals(mask, rewards, inputs.groups("index")[rows], old)
        return advantage_of(estimator, signals, config, inputs)

    return compute


def _loss_inputs(inputs: Inputs, old: str = "old_log_prob") -> LossInputs:
    return LossInputs(inputs["log_prob"], inputs[old], inputs["adv_for_loss"], inputs["mask"])


def _policy_loss(name: str, inputs: Inputs, found: dict[str, Any]) -> Compute | None:
    bypass = re.fullmatch(r"bypass/(\w+)", name)
    if bypass is not None:
        return partial(_bypass, bypass[1], inputs) if bypass[1] in _BYPASS_LOSSES else None
    parsed = re.fullmatch(rf"(\w+?)(?:_isw({NUMBER}))?(?:\((.*)\))?(?:/([\w-]+))?", name)
    if parsed is None or parsed[1] not in _LOSSES:
        return None
    loss, weight, settings, mode = parsed.groups()
    given: dict[str, Any] = {}
    for setting in settings.split(",") if settings else []:
        key, _, value = setting.partition("=")
        known = [each for each in (f"{loss}_{key}", key) if each in _ACTOR_KEYS]
        if not known or not re.fullmatch(NUMBER, value):
            return None
        given[known[0]] = float(value)

    def compute() -> Any:
        batch = _loss_inputs(inputs)
        if weight is not None:
            batch.weights_BT = torch.full_like(batch.mask_BT, float(weight))
        computed, metrics = loss_of(loss, batch, replace(_ACTOR, **given), mode or "token-mean", "verl")
        return computed | {"metrics": _their_metrics(metrics)}

    return compute


def _bypass(loss_type: str, inputs: Inputs) -> Any:
    """The sampler's log-probs are the old ones; the clipped loss has the ratio in it and is not weighed again."""
    batch = _loss_inputs(inputs, old="rollout_log_prob")
    found = correct(inputs["log_prob"], inputs["rollout_log_prob"], batch.mask_BT, _BYPASS, "verl")
    weights_BT = found.weights_BT if loss_type == "reinforce" else None
    batch = replace(batch, mask_BT=found.mask_BT, weights_BT=weights_BT)
    computed, metrics = loss_of(_BYPASS_LOSSES[loss_type], batch, _ACTOR, "token-mean", "verl")
    return computed | {"metrics": _their_metrics(metrics) | found.metrics}


def _their_metrics(metrics: dict[str, Tensor]) -> dict[str, Tensor]:
    """Metrics by verl's names; a share of clipped tokens that a loss does not have is 0 there."""
    theirs = {f"actor/{name}": value for name, value in metrics.items()}
    theirs["actor/pg_clipfrac"] = theirs.pop("actor/pg_clipfrac_higher", torch.zeros(()))
    return {"actor/pg_clipfrac_lower": torch.zeros(())} | theirs


def _kl(name: str, inputs: Inputs, found: dict[str, Any]) -> Compute:
    def compute() -> Any:
        log_probs_BT = inputs["log_prob"].requires_grad_()
        total = (kl_penalty(log_probs_BT, inputs["ref_log_prob"], name) * inputs["mask"]).sum()
        (grad_BT,) = torch.autograd.grad(total, log_probs_BT)
        return {"sum": total, "grad": grad_BT}

    return compute


def _value_loss(inputs: Inputs, found: dict[str, Any]) -> Any:
    """The new values are written as a formula: a wave of some height over the old ones."""
    text = str(found.get("vpred")).replace(" ", "")
    parsed = re.fullmatch(rf"values\+({NUMBER})\*sin\(arange\(.*;returns=(\w+);cliprange_value=({NUMBER})", text)
    if parsed is None:
        return {}
    old_BT, mask_BT = inputs["values"], inputs["mask"]
    wave_BT = torch.arange(old_BT.numel(), dtype=torch.float32).sin().view(old_BT.shape)
    values_BT = old_BT + float(parsed[1]) * wave_BT
    aggregate = aggregator(mask_BT, "token-mean", "verl")
    loss, metrics = value_loss(values_BT, old_BT, inputs[parsed[2]], mask_BT, float(parsed[3]), aggregate)
    return {"loss": loss, "clipfrac": metrics["vf_clipfrac"]}


def _correction(name: str, inputs: Inputs, found: dict[str, Any]) -> Compute | None:
    rule = re.fullmatch(r"rs:([\w,]+):([\w.,-]+)", name)
    normalised = re.fullmatch(rf"(token|seq)_tis({NUMBER}(?:_{NUMBER})?)_bn", name)
    if name in PRESETS:
        config = RolloutCorrectionConfig(preset=name, **PRESETS[name])
    elif rule is not None and set(rule[1].split(",")) <= set(RULES):
        config = RolloutCorrectionConfig(rollout_rs=rule[1], rollout_rs_threshold=rule[2])
    elif normalised is not None:
        level = "sequence" if normalised[1] == "seq" else "token"
        config = RolloutCorrectionConfig(
            rollout_is=level, rollout_is_threshold=normalised[2], rollout_is_batch_normalize=True
        )
    else:
        return None

    def compute() -> Any:
        ours = correct(inputs["old_log_prob"], inputs["rollout_log_prob"], inputs["mask"], config, "verl")
        computed: dict[str, Any] = {"weights": ours.weights_BT, "mask": ours.mask_BT, "metrics": ours.metrics}
        for theirs, metric in _CORRECTION_METRICS.items():
            if metric in ours.metrics:
                computed[theirs] = ours.metrics[metric]
        return computed

    return compute


def _partitions(name: str, inputs: Inputs, found: dict[str, Any]) -> Compute | None:
    parsed = re.fullmatch(r"(eq|neq)(\d+)", name)
    if parsed is None or "lens" not in found:
        return None
    equal, lengths = parsed[1] == "eq", found["lens"]
    costs = [workload(length) for length in lengths] if equal else lengths
    return partial(partitions, costs, int(parsed[2]), equal)


def _validation(name: str, inputs: Inputs, found: dict[str, Any]) -> Compute:
    return partial(bootstrap_metrics, *_VALIDATION)


_CORRECTION_METRICS = {
    "factor": "rollout_corr/rollout_is_batch_norm_factor",
    "masked": "rollout_corr/rollout_rs_masked_fraction",
    "seq_masked": "rollout_corr/rollout_rs_seq_masked_fraction",
}
_ACTOR_KEYS = {each.name for each in fields(ActorConfig)}
_LOSSES = {
    *("vanilla", "gspo", "gspo_token", "cispo", "sapo", "gpg", "clip_cov", "kl_cov", "geo_mean"),
    *("dppo_tv", "dppo_kl", "dro"),
}
_SECTIONS: dict[str, Callable[[str, Inputs, dict[str, Any]], Compute | None]] = {
    "adv": _advantage,
    "policy_loss": _policy_loss,
    "kl": _kl,
    "rollout_corr": _correction,
    "seqlen": _partitions,
    "val_metrics": _validation,
}
