"""Entries of the format of forks.json: `original.what[.setting]`, side by side with what they were computed from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from originals.entry import Compute, Entry
from originals.inputs import Inputs, advantage_of, aggregator, loss_of
from originals.verl import NUMBER
from whet.algos import find_advantage
from whet.algos.controllers import AdaptiveEntropy, AdaptiveKL
from whet.algos.kl import kl_penalty
from whet.algos.registry import LossInputs, Signals
from whet.algos.shaping import (
    relative_dependency,
    response_dependency,
    response_weights,
    token_dependency,
    top_tokens,
)
from whet.algos.value_loss import value_loss
from whet.config.schema.actor import LOSSES, ActorConfig
from whet.config.schema.algorithm import ADVANTAGES, MATCHES, AlgorithmConfig
from whet.errors import UserError

ORIGINALS = tuple(name for name in MATCHES if name != "whet")
INPUTS = ("adv_inputs", "loss_inputs", "reward_baselines", "values")
# Settings that neither an entry's name nor its numbers hold.
_GAE: dict[str, Any] = {"gamma": 0.99, "lam": 0.95}
_VPPO: dict[str, Any] = {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28, "clip_ratio_dual": 3.0}
_OR1: dict[str, Any] = {"clip_ratio_low": 0.2, "clip_ratio_high": 0.2}
_CLIPRANGE = 0.5
_ENTROPY: dict[str, Any] = {"value": 0.0, "target": 0.2, "delta": 1e-4, "least": 0.0, "most": 0.005}
_KL: dict[str, Any] = {"value": 0.01, "target": 0.1, "horizon": 10000.0}
_KL_SAMPLES = 512


def entries(golden: dict[str, Any]) -> Iterator[Entry]:
    """Every entry of the file."""
    inputs = Inputs(
        {
            **golden.get("adv_inputs", {}),
            **golden.get("loss_inputs", {}),
            **{n: golden[n] for n in INPUTS if n in golden},
        }
    )
    for name, recorded in golden.items():
        if name not in INPUTS:
            yield Entry(name, recorded, _compute(name, inputs, recorded), _SETTINGS)


def _compute(name: str, inputs: Inputs, recorded: Any) -> Compute | None:
    """What an entry of this name is computed by."""
    if name in _BY_NAME:
        return partial(_BY_NAME[name], inputs, recorded)
    if name.startswith("kl."):
        return lambda: kl_penalty(inputs["new"], inputs["ref"], name.removeprefix("kl."))
    original, _, what = name.partition(".")
    if original not in ORIGINALS:
        return None
    loss = re.fullmatch(rf"loss\.(\w+?)(?:_dual{NUMBER})?\.(token|seq|masked)", what)
    if loss is not None:
        known = loss[1] in LOSSES.names
        return partial(_loss, original, loss[1], loss[2], inputs, recorded) if known else None
    if what == "gae_bs1":
        return partial(_one_row, original, inputs, recorded)
    estimator = re.fullmatch(rf"(\w+)(?:\.g({NUMBER}))?", what)
    if estimator is None or estimator[1] not in ADVANTAGES.names:
        return None
    settings: dict[str, Any] = {"gamma": float(estimator[2])} if estimator[2] else _GAE if estimator[1] == "gae" else {}
    return partial(_advantage, original, estimator[1], settings, inputs)


def _advantage(original: str, estimator: str, settings: dict[str, Any], inputs: Inputs) -> Any:
    mask_BT = inputs["mask"]
    unused_BT = torch.zeros_like(mask_BT)  # none of their estimators looks at log-probs
    signals = Signals(mask_BT, inputs["token_level_rewards"], inputs.groups("index"), unused_BT)
    return advantage_of(estimator, signals, AlgorithmConfig(match=original, **settings), inputs)


def _one_row(original: str, inputs: Inputs, recorded: dict[str, Any]) -> Any:
    """GAE on a batch of one, all that EasyR1 and VPPO-RL accept.

    The entry does not say which row of the inputs it was computed from: return the row whose returns are nearest.
    """
    config = AlgorithmConfig(match=original, **_GAE)
    mask_BT, theirs_BT = inputs["mask"], Inputs(recorded)["ret"]
    if theirs_BT.shape != (1, mask_BT.shape[1]):
        raise UserError(f"ret has the shape {tuple(theirs_BT.shape)}, not one row of {mask_BT.shape[1]} tokens")
    results = []
    for row in range(len(mask_BT)):
        one = slice(row, row + 1)
        signals = Signals(
            mask_BT[one],
            inputs["token_level_rewards"][one],
            torch.zeros(1, dtype=torch.long),
            torch.zeros_like(mask_BT[one]),
            values_BT=inputs["values"][one],
        )
        advantages_BT, returns_BT = find_advantage("gae")(signals, config)
        results.append({"adv": advantages_BT, "ret": returns_BT})
    return min(results, key=lambda result: float((result["ret"] - theirs_BT).abs().max()))


def _loss_inputs(inputs: Inputs) -> LossInputs:
    return LossInputs(inputs["new"], inputs["old"], inputs["adv"], inputs["mask"])


def _loss(original: str, loss: str, mode: str, inputs: Inputs, recorded: dict[str, Any]) -> Any:
    """EasyR1's losses hold their settings; VPPO's are multiplied by a mask of the tokens it selects."""
    batch = _loss_inputs(inputs)
    if "loss_token_mask" in recorded:
        batch.weights_BT = Inputs(recorded)["loss_token_mask"]
    mode = "token" if mode == "masked" else mode
    config = ActorConfig(**recorded.get("kw", _VPPO))
    computed, metrics = loss_of(loss, batch, config, mode, original)
    sampled_entropy = aggregator(batch.mask_BT, mode, original)(-batch.log_probs_BT, batch.mask_BT)
    return computed | {"metrics": metrics | {"entropy_loss": sampled_entropy}}


def _or1_loss(inputs: Inputs, recorded: dict[str, Any]) -> Any:
    computed, metrics = loss_of("default", _loss_inputs(inputs), ActorConfig(**_OR1), "token", "or1")
    return computed | {"clipfrac": metrics["pg_clipfrac_higher"], "ppo_kl": metrics["ppo_kl"]}


def _value_loss(inputs: Inputs, recorded: dict[str, Any]) -> Any:
    mask_BT, given = inputs["mask"], Inputs(recorded)
    aggregate = aggregator(mask_BT, "token", "easyr1")
    loss, metrics = value_loss(given["vpreds"], inputs["values"], given["returns"], mask_BT, _CLIPRANGE, aggregate)
    return {"loss": loss, "metrics": metrics}


def _entropy_controller(inputs: Inputs, recorded: list[list[float]]) -> Any:
    """Rows of (entropy, coefficient, enabled), after the update by that entropy."""
    controller, rows = AdaptiveEntropy(**_ENTROPY), []
    for entropy, *_ in recorded:
        controller.update(entropy)
        rows.append([entropy, controller.value, float(controller.enabled)])
    return rows


def _kl_controller(inputs: Inputs, recorded: list[list[float]]) -> Any:
    """Rows of (KL, coefficient), after the update by that KL."""
    controller, rows = AdaptiveKL(**_KL), []
    for kl, *_ in recorded:
        controller.update(kl, _KL_SAMPLES)
        rows.append([kl, controller.value])
    return rows


def _shaping(inputs: Inputs, recorded: dict[str, Any]) -> Any:
    mask_BT = inputs["mask"]
    dependency_BT = token_dependency(Inputs(recorded)["aug"], inputs["old"])
    chosen = top_tokens(dependency_BT, mask_BT, recorded["top_p"], single_precision=True)
    dependency_B, counted_B = response_dependency(dependency_BT, mask_BT), mask_BT.any(dim=1)
    weights = response_weights(relative_dependency(dependency_B, counted_B), counted_B, recorded["beta_min"])
    return {
        "S_token": dependency_BT,
        "k": chosen.counts_B.tolist(),
        "token_mask": chosen.mask_BT,
        "S_traj": dependency_B,
        "beta_max": weights.most,
        "weights": weights.weights_B,
    }


_SETTINGS = frozenset({"kw", "loss_token_mask", "vpreds", "returns", "aug", "top_p", "beta_min"})
_BY_NAME: dict[str, Callable[[Inputs, Any], Any]] = {
    "or1.loss": _or1_loss,
    "value_loss": _value_loss,
    "or1.entctrl": _entropy_controller,
    "adaptive_kl": _kl_controller,
    "vppo.shaping": _shaping,
}
