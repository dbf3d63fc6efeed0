"""`python tools/parity.py`: every entry of both golden files, and that it notices what does not agree."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from algos.golden import read
from algos.naive_verl import make_golden
from parity import main, recompute

from whet.algos import Signals, find_advantage
from whet.config.schema.algorithm import AlgorithmConfig

FILES = ("verl_0.9.1.json", "forks.json")
ROWS = 6


def report(golden: dict[str, Any], folder: Path) -> dict[str, str]:
    """The entries that fail, with why."""
    file = folder / "golden.json"
    file.write_text(json.dumps(golden))
    return {result.name: result.note for result in recompute(str(file)) if not result.passed}


@pytest.mark.parametrize("name", FILES)
def test_every_entry_agrees(name, tmp_path, capsys):
    file = tmp_path / name
    file.write_text(json.dumps(read(name)))
    assert main([str(file)]) == 0
    *lines, summary = capsys.readouterr().out.splitlines()
    assert len(lines) == {"verl_0.9.1.json": 68, "forks.json": 43}[name]
    raising = [line.split()[0] for line in lines if "the original raises" in line]
    assert all(line.endswith("  ok") or line.split()[0] in raising for line in lines)
    assert len(raising) == {"verl_0.9.1.json": 0, "forks.json": 7}[name]
    assert summary.endswith(" 0 fail")


def leaves(value: Any, path: tuple = ()) -> list[tuple]:
    """Where every number of an entry stands."""
    if isinstance(value, dict):
        return [leaf for name, item in value.items() for leaf in leaves(item, (*path, name))]
    if isinstance(value, list):
        return [leaf for i, item in enumerate(value) for leaf in leaves(item, (*path, i))]
    return [path] if isinstance(value, int | float) else []


def changed(golden: dict[str, Any], path: tuple, by: float) -> dict[str, Any]:
    """The file with one number moved."""
    other = copy.deepcopy(golden)
    place = other
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] += by
    return other


def outputs(golden: dict[str, Any], name: str) -> dict[str, tuple]:
    """One number of each entry that was computed, by the entry's name: the last of it."""
    settings = {"kw", "loss_token_mask", "vpreds", "returns", "aug", "top_p", "beta_min"}
    found = {}
    skipped = {"inputs", "adv_inputs", "loss_inputs", "values", "reward_baselines"}
    for section, content in golden.items():
        if section in skipped:
            continue
        nested = name.startswith("verl") and section != "value_loss"
        for entry, recorded in content.items() if nested else [("", content)]:
            if entry == "lens":
                continue
            path = (section, entry) if nested else (section,)
            numbers = [leaf for leaf in leaves(recorded) if not leaf or leaf[0] not in settings]
            if numbers:
                found["/".join(path)] = (*path, *numbers[-1])
    return found


@pytest.mark.parametrize("name", FILES)
def test_one_number_changed_fails_that_entry_alone(name, tmp_path):
    golden = read(name)
    moved = outputs(golden, name)
    assert len(moved) == {"verl_0.9.1.json": 68, "forks.json": 36}[name]
    for entry, path in list(moved.items())[::4]:
        assert list(report(changed(golden, path, 1e-5), tmp_path)) == [entry]
    for path in moved.values():  # all at once: none is overlooked
        golden = changed(golden, path, 1e-5)
    assert list(report(golden, tmp_path)) == list(moved)


@pytest.mark.parametrize("name", FILES)
def test_inputs_are_what_it_computes_from(name, tmp_path):
    golden = read(name)
    path = ("inputs", "rewards", 0, 3) if name.startswith("verl") else ("adv_inputs", "token_level_rewards", 0, 4)
    failed = report(changed(golden, path, 0.25), tmp_path)
    assert {"adv/grpo", "adv/rf++_g0.9", "adv/otb"} <= set(failed) or {"easyr1.grpo", "or1.gae"} <= set(failed)
    assert not any(entry.startswith(("policy_loss", "kl", "easyr1.loss")) for entry in failed)


def permuted(value: Any, order: list[int]) -> Any:
    """Everything that has a row for each response, its rows in another order."""
    if isinstance(value, dict):
        return {name: permuted(item, order) for name, item in value.items()}
    if isinstance(value, list) and len(value) == ROWS:
        return [value[row] for row in order]
    return value


def test_the_order_of_rows_does_not_matter_to_verls_entries(tmp_path):
    golden = read("verl_0.9.1.json")
    order = [4, 2, 0, 3, 1, 5]  # groups torn apart; the one that grpo_passk has no answer for still last
    whole = {"seqlen", "val_metrics", "value_loss"}  # of other rows, or with a formula of the row's number
    other = {name: item if name in whole else permuted(item, order) for name, item in golden.items()}
    rows = other["adv"]["grpo_passk_no_c"]
    other["adv"]["grpo_passk_no_c"] = {name: [values[row] for row in order[:5]] for name, values in rows.items()}
    # metrics have no rows, and a dict of six of them is none
    assert set(report(other, tmp_path)) <= {"value_loss"}


def test_the_order_of_rows_does_not_matter_to_the_forks_entries(tmp_path):
    order = [5, 2, 0, 4, 1, 3]
    golden = read("forks.json")
    sequences = {"or1.entctrl", "adaptive_kl"}
    other = {name: item if name in sequences else permuted(item, order) for name, item in golden.items()}
    assert report(other, tmp_path) == {}


def test_other_rows_and_widths(tmp_path):
    """Two more columns of padding, each row twice under another group: what is recorded must follow."""
    golden = read("verl_0.9.1.json")

    def wider(rows: list) -> list:
        return [[*row, 0.0, 0.0] for row in rows + rows] if isinstance(rows[0], list) else rows + rows

    inputs = {name: wider(values) for name, values in golden["inputs"].items()}
    inputs["index"] = [*golden["inputs"]["index"], *(f"{group}'" for group in golden["inputs"]["index"])]
    names = ("grpo", "grpo_nostd", "rloo", "rloo_vectorized", "opo", "remax")
    adv = {name: {part: wider(rows) for part, rows in golden["adv"][name].items()} for name in names}
    kl = {
        name: {"sum": 2 * found["sum"], "grad": [[*row, 0.0, 0.0] for row in found["grad"] * 2]}
        for name, found in golden["kl"].items()
    }
    loss = {"vanilla/token-mean": {"loss": golden["policy_loss"]["vanilla/token-mean"]["loss"]}}
    rejected = {"mask": wider(golden["rollout_corr"]["rs:token_k1:0.9_1.2"]["mask"]), "masked": 0.25}
    other = {"inputs": inputs, "adv": adv, "kl": kl, "policy_loss": loss}
    other["rollout_corr"] = {"rs:token_k1:0.9_1.2": rejected}
    assert report(other, tmp_path) == {}


@pytest.mark.parametrize(
    ("section", "entry"),
    [
        ("adv", "grpo_of_tomorrow"),
        ("policy_loss", "vanila/token-mean"),
        ("policy_loss", "clip_cov(speed=1)/token-mean"),
        ("policy_loss", "vanilla/token-median"),
        ("kl", "k9"),
        ("rollout_corr", "rs:token_k9:0.1"),
        ("rollout_corr", "decoupled_everything"),
        ("seqlen", "odd4"),
        ("future", "entry"),
    ],
)
def test_what_nobody_knows_is_not_covered(section, entry, tmp_path):
    golden = read("verl_0.9.1.json")
    file = {"inputs": golden["inputs"], section: {**golden.get(section, {}), entry: {"loss": 0.0}}}
    failed = report(file, tmp_path)
    assert list(failed) == [f"{section}/{entry}" if section != "future" else section]
    assert all("NOT COVERED" in note for note in failed.values())


def test_a_number_that_we_do_not_compute_is_not_covered(tmp_path):
    golden = read("forks.json")
    golden["or1.loss"]["curvature"] = 1.0
    golden["or1.dreams"] = [1.0]
    failed = report(golden, tmp_path)
    assert failed == {"or1.loss": "NOT COVERED: curvature", "or1.dreams": "NOT COVERED"}


@pytest.mark.parametrize("text", ["{", "[1, 2]", "{}", '{"a": 1}', '{"inputs": {}}', '{"inputs": 3}'])
def test_other_files_are_refused(text, tmp_path, capsys):
    file = tmp_path / "other.json"
    file.write_text(text)
    assert main([str(file)]) == 2
    assert "other.json" in capsys.readouterr().err
    assert main([str(tmp_path / "nowhere.json")]) == 2
    assert main([]) == 2


def test_inputs_of_different_shapes_are_refused(tmp_path, capsys):
    golden = read("verl_0.9.1.json")
    golden["inputs"]["rewards"] = [row[:-1] for row in golden["inputs"]["rewards"]]
    file = tmp_path / "golden.json"
    file.write_text(json.dumps(golden))
    assert main([str(file)]) == 2
    assert "not of one shape" in capsys.readouterr().err


@pytest.mark.parametrize(("score", "size"), [(0.7, 7), (0.9, 3), (0.1, 16), (0.5, 4)])
@pytest.mark.parametrize("match", ["verl", "easyr1", "vppo", "or1"])
def test_the_originals_round_the_mean_of_equal_scores(score, size, match):
    rewards = torch.full((size, 1), score)
    signals = Signals(torch.ones(size, 1), rewards, torch.zeros(size, dtype=torch.long), torch.zeros(size, 1))
    scores = rewards.sum(dim=1)
    expected = (scores - scores.mean()) / (scores.std() + 1e-6)
    ours, _ = find_advantage("grpo")(signals, AlgorithmConfig(match=match))
    torch.testing.assert_close(ours[:, 0], expected, atol=3e-6, rtol=0)
    assert bool(expected.any()) == (score != 0.5)
    assert not find_advantage("grpo")(signals, AlgorithmConfig())[0].any()


@pytest.mark.parametrize("seed", range(4))
def test_files_with_other_numbers(seed, tmp_path):
    assert report(make_golden(seed), tmp_path) == {}


def _gae_of_one(rewards: list[float], values: list[float], mask: list[float]) -> dict[str, list[list[float]]]:
    """GAE (γ 0.99, λ 0.95) of one response in plain floats; outside the mask the next token's advantage is repeated."""
    advantages, next_value, last = [0.0] * len(rewards), 0.0, 0.0
    for t in reversed(range(len(rewards))):
        if mask[t]:
            last = rewards[t] + 0.99 * next_value - values[t] + 0.99 * 0.95 * last
            next_value = values[t]
        advantages[t] = last
    inside = [a for a, m in zip(advantages, mask) if m]
    mean = sum(inside) / len(inside)
    variance = sum((a - mean) ** 2 for a in inside) / (len(inside) - 1)
    whitened = [(a - mean) / (variance + 1e-8) ** 0.5 for a in advantages]
    return {"adv": [whitened], "ret": [[a + v for a, v in zip(advantages, values)]]}


@pytest.mark.parametrize("original", ["easyr1", "vppo"])
@pytest.mark.parametrize("mask", [[1, 1, 1, 1, 1], [1, 1, 0, 0, 1], [0, 1, 1, 0, 1]])
def test_gae_on_a_batch_of_one(original, mask, tmp_path):
    generator = torch.Generator().manual_seed(sum(mask))
    rewards = [[0.1, -0.3, 0.7, 0.2, 1.0]] * 2
    values = torch.randn(2, 5, generator=generator).tolist()
    masks = [[1.0] * 5, [float(m) for m in mask]]
    recorded = _gae_of_one(rewards[1], values[1], masks[1])
    both = {
        "adv_inputs": {"mask": masks, "token_level_rewards": rewards, "index": ["a", "a"]},
        "values": values,
        f"{original}.gae_bs1": recorded,
    }
    alone = {
        "adv_inputs": {"mask": masks[1:], "token_level_rewards": rewards[1:], "index": ["a"]},
        "values": values[1:],
        f"{original}.gae": recorded,
    }
    assert report(both, tmp_path) == {}
    assert report(alone, tmp_path) == {}
    for golden, name in ((both, f"{original}.gae_bs1"), (alone, f"{original}.gae")):
        wrong = changed(golden, (name, "adv", 0, 1), 1e-3)
        assert report(wrong, tmp_path) == {name: "DIFFERS in adv"}
