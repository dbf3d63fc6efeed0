"""Rollout correction against definitions written out token by token; verl's numbers are in test_parity.py."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.algos.correction import correct
from whet.config import check_config, load_config
from whet.config.correction import RULES, rejection_rules, weight_bounds
from whet.config.schema.correction import PRESETS, RolloutCorrectionConfig
from whet.errors import UserError

KEY = "algorithm.rollout_correction"
MASK = torch.tensor([[1.0, 1.0, 1.0, 0.0], [1.0, 0.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0]])
X = torch.tensor([[0.1, -0.3, 0.6, 9.0], [-0.9, 9.0, 0.2, 0.4], [0.05, -0.02, 9.0, 9.0]])  # 9 lies outside the mask
ROLLOUT = torch.full(X.shape, -1.0)


def corrected(x: torch.Tensor = X, mask: torch.Tensor = MASK, match: str = "whet", **keys):
    return correct(
        torch.full(x.shape, -1.0) + x, torch.full(x.shape, -1.0), mask, RolloutCorrectionConfig(**keys), match
    )


def rows_of(x: torch.Tensor, mask: torch.Tensor) -> list[list[float]]:
    return [[float(v) for v, m in zip(row, keep) if m] for row, keep in zip(x, mask)]


def kept_by(rule: str, threshold: str, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The rule as it is defined, with ratios and no logarithms where it is about ratios."""
    measure = {"k1": lambda v: v, "k2": lambda v: v * v / 2, "k3": lambda v: math.exp(v) - 1 - v}[rule[-2:]]
    over = {"sum": sum, "mean": lambda row: sum(row) / len(row), "max": max}
    parts = [float(part) for part in threshold.split("_")]

    def is_kept(value: float) -> bool:
        if not rule.endswith("k1"):
            return value <= parts[0]
        low, high = parts if len(parts) == 2 else (1 / parts[0], parts[0])
        return low <= math.exp(value) <= high

    kept = mask.clone()
    for b, row in enumerate(rows_of(x, mask)):
        if rule.startswith("seq"):
            if row and not is_kept(over[rule.split("_")[1]]([measure(v) for v in row])):
                kept[b] = 0
        else:
            for t in range(x.shape[1]):
                if mask[b, t] and not is_kept(measure(float(x[b, t]))):
                    kept[b, t] = 0
    return kept


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_rule_keeps_what_its_definition_keeps(rule, data):
    B, T = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 5))
    seed = data.draw(st.integers(0, 10**6))
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(B, T, generator=generator) * 0.5
    mask = (torch.rand(B, T, generator=generator) > 0.3).float()
    threshold = data.draw(st.sampled_from(["0.8_1.3", "1.25", "0.3_0.9"] if rule.endswith("k1") else ["0.05", "0.3"]))
    ours = corrected(x, mask, rollout_rs=rule, rollout_rs_threshold=threshold)
    assert torch.equal(ours.mask_BT, kept_by(rule, threshold, x, mask))


def test_bounds_of_k1_are_bounds_of_the_learners_ratio_and_verls_of_its_inverse():
    keys = {"rollout_rs": "token_k1", "rollout_rs_threshold": "0.5_5.0"}
    ratios = torch.tensor([[0.19, 0.3, 0.6, 1.9, 2.1, 4.9, 5.1]])
    mask = torch.ones_like(ratios)
    assert corrected(ratios.log(), mask, **keys).mask_BT.tolist() == [[0, 0, 1, 1, 1, 1, 0]]
    assert corrected(ratios.log(), mask, "verl", **keys).mask_BT.tolist() == [[0, 1, 1, 1, 0, 0, 0]]


def test_rules_are_anded_each_with_its_threshold_and_repeats_are_dropped():
    both = corrected(rollout_rs="token_k1,seq_mean_k2,token_k1", rollout_rs_threshold="0.5_1.5,0.1,9")
    alone = [corrected(rollout_rs="token_k1", rollout_rs_threshold="0.5_1.5")]
    alone.append(corrected(rollout_rs="seq_mean_k2", rollout_rs_threshold="0.1"))
    assert torch.equal(both.mask_BT, alone[0].mask_BT * alone[1].mask_BT)
    assert both.mask_BT.sum() < min(each.mask_BT.sum() for each in alone)
    for each in alone:
        own = {name: value for name, value in each.metrics.items() if "_k" in name}
        assert own.items() <= both.metrics.items()
    lost = 1 - both.mask_BT.sum() / MASK.sum()
    assert both.metrics["rollout_corr/rollout_rs_masked_fraction"] == pytest.approx(float(lost))


def test_weights_of_tokens_and_of_responses():
    token = corrected(rollout_is="token", rollout_is_threshold="1.5").weights_BT
    torch.testing.assert_close(token, X.exp().clamp(max=1.5) * MASK)
    sequence = corrected(rollout_is="sequence", rollout_is_threshold="1.2").weights_BT
    for row, weights, keep in zip(rows_of(X, MASK), sequence, MASK):
        torch.testing.assert_close(weights, min(math.exp(sum(row)), 1.2) * keep)
    icepop = corrected(rollout_is="token", rollout_is_threshold="0.7_1.5")
    ratio = X.exp()
    torch.testing.assert_close(icepop.weights_BT, torch.where((ratio >= 0.7) & (ratio <= 1.5), ratio, 0.0) * MASK)
    assert torch.equal(icepop.mask_BT, MASK)  # a weight of 0 still counts as a token
    assert icepop.metrics["rollout_corr/rollout_is_oob_ratio"] == pytest.approx(2 / 8)


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_normalised_weights_have_mean_one(level):
    ours = corrected(rollout_is=level, rollout_is_batch_normalize=True).weights_BT
    if level == "token":
        assert float(ours[MASK.bool()].mean()) == pytest.approx(1.0)
    else:
        assert float(ours.amax(dim=1).mean()) == pytest.approx(1.0)


def test_effective_sample_size_and_shares_out_of_bounds():
    ours = corrected(rollout_is="token", rollout_is_threshold="1.3").metrics
    w = torch.tensor([v for row in rows_of(X, MASK) for v in row]).exp()
    cut = w.clamp(max=1.3)
    assert ours["rollout_corr/rollout_is_eff_sample_size"] == pytest.approx(float(cut.mean() ** 2 / (cut**2).mean()))
    assert ours["rollout_corr/rollout_is_ratio_fraction_high"] == pytest.approx(float((w > 1.3).float().mean()))
    assert ours["rollout_corr/rollout_is_ratio_fraction_low"] == pytest.approx(float((w < 1 / 1.3).float().mean()))
    assert ours["rollout_corr/rollout_is_std"] == pytest.approx(float(cut.std(correction=0)), abs=1e-6)


@pytest.mark.parametrize("preset", PRESETS)
def test_agreement_changes_nothing(preset):
    same = correct(ROLLOUT, ROLLOUT, MASK, RolloutCorrectionConfig(preset=preset, **PRESETS[preset]))
    assert torch.equal(same.mask_BT, MASK)
    assert same.weights_BT is None or torch.equal(same.weights_BT, MASK)
    assert same.metrics["rollout_corr/kl"] == 0
    assert same.metrics["rollout_corr/ppl_ratio"] == 1


def test_what_lies_outside_the_mask_has_no_effect():
    keys = {"rollout_is": "sequence", "rollout_rs": "seq_max_k3,seq_sum_k1", "rollout_rs_threshold": "0.2,2.0"}
    clean = corrected(torch.where(MASK.bool(), X, 0.0), **keys)
    for junk in (math.nan, math.inf, -1e9):
        dirty = corrected(torch.where(MASK.bool(), X, junk), **keys)
        assert torch.equal(dirty.mask_BT, clean.mask_BT)
        assert torch.equal(dirty.weights_BT, clean.weights_BT)
        assert dirty.metrics == clean.metrics


def test_nothing_to_correct_and_nothing_left():
    empty = corrected(mask=torch.zeros_like(MASK), rollout_is="token", rollout_rs="token_k2", rollout_rs_threshold="1")
    assert empty.metrics == {}
    assert not empty.mask_BT.any()
    gone = corrected(rollout_rs="seq_mean_k3", rollout_rs_threshold="1e-9")
    assert not gone.mask_BT.any()
    assert gone.metrics["rollout_corr/rollout_rs_masked_fraction"] == pytest.approx(1.0)
    assert all(math.isfinite(value) for value in gone.metrics.values())


def test_a_huge_gap_stays_finite():
    far = corrected(
        torch.tensor([[80.0, -80.0, 3.0]]), torch.ones(1, 3), rollout_is="sequence", rollout_is_threshold="2"
    )
    assert all(math.isfinite(value) for name, value in far.metrics.items() if name != "rollout_corr/k3_kl")


def test_a_preset_by_name_and_keys_that_win_over_it(tmp_path):
    config = load_config([f"{KEY}=decoupled_token_is", f"{KEY}.rollout_is_threshold=3"]).algorithm.rollout_correction
    assert config == RolloutCorrectionConfig("decoupled_token_is", "token", "3")
    file = tmp_path / "run.yaml"
    file.write_text("algorithm:\n  rollout_correction: {preset: bypass_pg_is, rollout_is_threshold: 0.5_2}\n")
    config = load_config([f"config={file}"]).algorithm.rollout_correction
    assert config == RolloutCorrectionConfig(
        "bypass_pg_is", "sequence", "0.5_2", bypass_mode=True, loss_type="reinforce"
    )
    other = load_config([f"config={file}", f"{KEY}=decoupled_k3_rs"]).algorithm.rollout_correction
    assert other == RolloutCorrectionConfig("decoupled_k3_rs", rollout_rs="seq_mean_k3", rollout_rs_threshold="0.01")
    assert not load_config([f"config={file}", f"{KEY}=null"]).algorithm.rollout_correction.active
    file.write_text("algorithm:\n  rollout_correction: disabled\n")
    assert load_config([f"config={file}"]).algorithm.rollout_correction.active


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_survives_a_round_trip(preset, tmp_path):
    config = load_config([f"{KEY}={preset}"])
    assert vars(config.algorithm.rollout_correction) | PRESETS[preset] == vars(config.algorithm.rollout_correction)
    weight_bounds(config.algorithm.rollout_correction)
    rejection_rules(config.algorithm.rollout_correction)
    file = tmp_path / "resolved.yaml"
    file.write_text(config.to_yaml())
    assert load_config([f"config={file}"]) == config


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["=decoupled_tokn_is"], r"rollout_correction.preset=decoupled_tokn_is.*did you mean decoupled_token_is"),
        (["=[a]"], r"rollout_correction.preset=\[a\]: expected text"),
        ([".rollout_is=tokens"], r"rollout_is=tokens.*did you mean token"),
        ([".rollout_is_threshold=0"], r"rollout_is_threshold=0: must be above 0"),
        ([".rollout_is_threshold=3_2"], r"rollout_is_threshold=3_2: the first number must not be above the second"),
        ([".rollout_is_threshold=big"], r"rollout_is_threshold=big: expected a number"),
        ([".rollout_rs=token_k1"], r"rollout_rs_threshold is not set"),
        ([".rollout_rs=token_k4", ".rollout_rs_threshold=1"], r"no rule token_k4; did you mean token_k"),
        ([".rollout_rs=seq_max_k1", ".rollout_rs_threshold=2"], r"no rule seq_max_k1; did you mean"),
        ([".rollout_rs=token_k1,token_k2", ".rollout_rs_threshold=2,1,1"], r"3 thresholds for 2 rules"),
        ([".rollout_rs=token_k2", ".rollout_rs_threshold=0.5_2"], r"two belong to k1 rules"),
        ([".rollout_rs=token_k1", ".rollout_rs_threshold=0.5"], r"at least 1"),
        (["=bypass_pg_is", "recompute=true"], r"bypass_mode=true takes the sampler's"),
        (["=disabled", "recompute=false"], r"compares the learner's log-probs with the sampler's"),
        (["=bypass_pg_is", "loss=gspo"], r"loss_type=gspo, but .*bypass_mode=true"),
    ],
)
def test_mistakes_name_their_key(keys, message):
    names = {"recompute": "worker.actor.recompute_old_log_probs", "loss": "worker.actor.loss_type"}
    arguments = []
    for key in keys:
        name, _, value = key.partition("=")
        arguments.append(f"{names.get(name, KEY + name)}={value}")
    with pytest.raises(UserError, match=message):
        check_config(load_config(arguments))
