"""Pass rates, role baselines and the replay buffer: numbers by hand, draws, and state that survives saving."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from algos.golden import peers
from whet_process import outcome, run_folder, settled, train

from whet.algos import find_advantage
from whet.algos.registry import Signals
from whet.config import load_config
from whet.config.checks.train import check_config
from whet.config.examples import examples_folder
from whet.config.schema.algorithm import AlgorithmConfig, ReplayBufferConfig
from whet.config.schema.data import CurriculumConfig
from whet.errors import UserError
from whet.training.pass_rates import EXPECTED, PassRates
from whet.training.replay_buffer import ReplayBuffer
from whet.training.role_baselines import BASELINE, RoleBaselines
from whet.types import Group, Prompt, Sample, Segment


def _group(row: int, scores: list[float], version: int = 0, **extra: str) -> Group:
    prompt = Prompt(f"rows:{row}", [1, 2], "text", extra=extra)
    samples = [
        Sample.written(prompt, [3], [-0.1], "stop", index=i, group=row, version=version, scores={"overall": score})
        for i, score in enumerate(scores)
    ]
    return Group(row, samples)


def test_pass_rates_by_hand() -> None:
    rates = PassRates(CurriculumConfig(decay=0.5), seed=1, rows=3)
    assert rates.rates.tolist() == [0.5, 0.5, 0.5]
    first = _group(1, [1.0, 0.0, 0.0, 0.5])
    rates.observe([first], note_expected=True)
    assert [sample.scores[EXPECTED] for sample in first.samples] == [0.5] * 4  # the mean before any group
    assert rates.rates[1] == pytest.approx((1 + 0.5) / (4 + 1))
    assert rates.mean == pytest.approx(0.9 * 0.5 + 0.1 * 0.375)
    second = _group(1, [1.0, 1.0])
    rates.observe([second], note_expected=True)
    assert second.samples[0].scores[EXPECTED] == pytest.approx((1.5 + 0.4875) / 5)
    assert rates.rates[1] == pytest.approx((0.5 + 2 + 0.5) / (2 + 2 + 1))
    assert rates.rates[0] == 0.5


def test_prompts_solved_half_of_the_time_are_drawn_most() -> None:
    rates = PassRates(CurriculumConfig(enable=True, explore=0.02), seed=1, rows=30)
    for row in range(30):
        solved = {0: 0, 1: 8, 2: 16}[row % 3]
        rates.observe([_group(row, [1.0] * solved + [0.0] * (16 - solved))], note_expected=False)
    drawn = Counter(row % 3 for _ in range(300) for row in rates.choose(5))
    weight = lambda p: (p * (1 - p)) ** 0.5 + 0.02  # noqa: E731
    expected = weight(8.5 / 17) / (weight(0.5 / 17) + weight(8.5 / 17) + weight(16.5 / 17))
    assert drawn[1] / 1500 == pytest.approx(expected, abs=0.07)
    assert drawn[0] > 0
    assert drawn[2] > 0


def test_draws_depend_on_the_state_alone() -> None:
    one, other = (PassRates(CurriculumConfig(enable=True), seed=4, rows=20) for _ in range(2))
    groups = [_group(row, [1.0, 0.0, row / 20]) for row in (3, 7, 11)]
    one.observe(groups, note_expected=False)
    one.choose(4)
    other.load_state_dict(one.state_dict())
    assert one.state_dict() == other.state_dict()
    assert [one.choose(6) for _ in range(3)] == [other.choose(6) for _ in range(3)]
    assert len(set(one.choose(20))) == 20  # without replacement
    assert PassRates(CurriculumConfig(enable=True), seed=5, rows=20).choose(6) != PassRates(
        CurriculumConfig(enable=True), seed=4, rows=20
    ).choose(6)


def test_solved_rows_retire_and_the_last_ones_are_named() -> None:
    rates = PassRates(CurriculumConfig(retire_at=0.9, retire_after=8), seed=1, rows=6)
    rates.observe([_group(0, [1.0] * 4), _group(1, [1.0] * 8), _group(2, [1.0] * 7 + [0.0])], note_expected=False)
    assert rates.retired.tolist() == [False, True, False, False, False, False]
    assert all(1 not in rates.choose(5) for _ in range(20))
    drawn = Counter(row for _ in range(400) for row in rates.choose(2))  # without enable, equal chances for the rest
    assert all(drawn[row] == pytest.approx(160, abs=50) for row in (0, 2, 3, 4, 5))
    assert rates.learned(5) is None
    with pytest.raises(UserError, match=r"retire_at=0\.9 has retired all but 5 of 6 rows"):
        rates.choose(6)


def test_role_baselines_by_hand() -> None:
    roles = RoleBaselines(AlgorithmConfig(rae_key="seat", rae_decay=0.5))
    groups = [_group(0, [1.0, 0.0], seat="first"), _group(1, [-1.0], seat="second", data_source="poker")]
    roles.observe(groups)
    assert [sample.scores[BASELINE] for sample in groups[0].samples] == [0.0, 0.5]  # before each is counted
    assert groups[1].samples[0].scores[BASELINE] == 0.0
    assert roles.state_dict() == {"first": 0.25, "poker/second": -0.5}
    with pytest.raises(UserError, match="rows:4: has no column seat"):
        roles.observe([_group(4, [1.0])])
    mask = torch.ones(3, 2)
    rewards = torch.tensor([[0.0, 1.0], [0.0, 0.0], [0.0, -1.0]])
    signals = Signals(mask, rewards, torch.arange(3), mask, scores={BASELINE: torch.tensor([0.5, 0.25, -0.5])})
    ours, _ = find_advantage("rae")(signals, AlgorithmConfig())
    assert ours[:, 0].tolist() == [0.5, -0.25, -0.5]


def test_role_baselines_like_their_authors() -> None:
    given = peers()["rae"]
    roles = RoleBaselines(AlgorithmConfig(rae_decay=given["decay"]))
    games = [_group(row, [reward], role="first") for row, reward in enumerate(given["rewards"])]
    roles.observe(games[:3])
    roles.observe(games[3:])
    gains = [group.samples[0].reward - group.samples[0].scores[BASELINE] for group in games]
    assert gains == pytest.approx(given["advantages"], abs=1e-9)


def test_spo_by_hand() -> None:
    rng = np.random.default_rng(0)
    scores, expected = rng.random(6), rng.random(6)
    mask = torch.tensor(rng.integers(0, 2, (6, 4)), dtype=torch.float32)
    rewards = torch.zeros(6, 4)
    rewards[:, 3] = torch.tensor(scores)
    signals = Signals(mask, rewards, torch.arange(6), mask, scores={EXPECTED: torch.tensor(expected)})
    ours, _ = find_advantage("spo")(signals, AlgorithmConfig())
    gains = scores - expected
    by_hand = (gains - gains.mean()) / (gains.std(ddof=1) + 1e-6)
    np.testing.assert_allclose(ours.numpy(), by_hand[:, None] * mask.numpy(), rtol=1e-5, atol=1e-6)
    with pytest.raises(UserError, match="without what was expected"):
        find_advantage("spo")(Signals(mask, rewards, torch.arange(6), mask), AlgorithmConfig())


def test_the_buffer_keeps_what_says_something() -> None:
    buffer = ReplayBuffer(ReplayBufferConfig(size=3, groups=2, max_age=4), seed=1)
    buffer.add([_group(0, [1.0, 1.0]), _group(1, [0.0, 0.0]), _group(2, [1.0, 0.0], version=1)])
    assert [group.row for group in buffer.groups] == [2]
    assert buffer.draw(step=1, version=1) == []  # too few
    buffer.add([_group(row, [0.0, 1.0], version=row) for row in (3, 4, 5)])
    assert [group.row for group in buffer.groups] == [3, 4, 5]
    drawn = [[group.row for group in buffer.draw(step, version=7)] for step in range(20)]
    assert drawn == [[group.row for group in buffer.draw(step, version=7)] for step in range(20)]
    assert {tuple(each) for each in drawn} == {(3, 4), (3, 5), (4, 5)}
    buffer.draw(step=1, version=8)
    assert [group.row for group in buffer.groups] == [4, 5]  # group 3 is five updates old


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["data.curriculum.enable=true", "trainer.max_staleness=1"], "data.curriculum depends on the scores of all"),
        (["algorithm.replay_buffer.size=4", "algorithm.replay_buffer.groups=32"], "below data.rollout_batch_size=32"),
        (["algorithm.replay_buffer.size=2", "algorithm.replay_buffer.groups=3"], "more than the 2 groups"),
        (["data.curriculum.retire_at=0.9", "worker.rollout.n=1", "algorithm.adv_estimator=remax"], "worker.rollout.n"),
        (["algorithm.adv_estimator=flowrl"], "set both to flowrl"),
        (["worker.actor.loss_type=sppo"], "set both to sppo"),
        (["algorithm.observation_coef=0.1"], "only episodes have observations"),
    ],
)
def test_what_does_not_go_together_is_named(arguments: list[str], said: str) -> None:
    with pytest.raises(UserError) as error:
        check_config(load_config([f"config={examples_folder() / 'quickstart.yaml'}", *arguments]))
    assert said in str(error.value)


ALL = (
    "data.curriculum.enable=true",
    "data.curriculum.retire_at=0.99",
    "algorithm.replay_buffer.size=6",
    "algorithm.replay_buffer.groups=1",
)


# Turns that are decoded together depend on when the tool answers; what is kept of them must not.
EPISODES = (f"config={examples_folder()}/agents/calculator/config.yaml", *ALL, "trainer.experiment_name=quickstart")
PRIME = ("algorithm.adv_estimator=prime", "algorithm.prime.lr=1e-3")


@pytest.mark.slow
@pytest.mark.parametrize(
    "more", [ALL, ("algorithm.adv_estimator=spo",), (*ALL, "worker.actor.optim.strategy=muon"), PRIME, EPISODES]
)
def test_a_run_that_was_stopped_resumes_bit_for_bit(more: tuple[str, ...], tmp_path: Path, quickstart: Path) -> None:
    code, text = train(tmp_path / "whole", *more)
    assert code == 0, text
    for steps in ("4", "6"):
        code, text = train(tmp_path / "cut", *more, f"trainer.max_steps={steps}")
        assert code == 0, text
    whole, cut = (run_folder(tmp_path / name) for name in ("whole", "cut"))
    assert outcome(whole, 6)[:2] == outcome(cut, 6)[:2]
    written = {path.name for path in (whole / "global_step_6").iterdir()}
    expected = {"prm"} if more == PRIME else {"history.json", "replay.json"} if ALL[0] in more else {"history.json"}
    assert expected <= written
    for name in expected:
        for file in [path for path in (whole / "global_step_6" / name).rglob("*") if path.is_file()] or [name]:
            place = whole / "global_step_6" / file
            assert place.read_bytes() == (cut / place.relative_to(whole)).read_bytes(), file
    lines = {line["step"]: line for line in settled(whole / "metrics.jsonl")}
    if more == PRIME:
        assert lines[6]["prm/loss"] > 0
    else:
        assert lines[6]["curriculum/seen"] > lines[1]["curriculum/seen"]
    if ALL[0] in more:
        assert (lines[6]["batch/replayed"], lines[6]["batch/groups"]) == (1, 4)


def test_kept_groups_have_the_learners_log_probs() -> None:
    """Samples of the step, which are logged, stay as the sampler wrote them; groups of other steps are left alone."""
    buffer = ReplayBuffer(ReplayBufferConfig(size=4), seed=1)
    prompt = Prompt("rows:1", [1, 2], "text")
    turns = [Segment([3, 4], log_probs=[-0.1, -0.2]), Segment([5], by_model=False), Segment([6], log_probs=[-0.3])]
    both = [Sample(prompt, list(turns), "stop", scores={"overall": score}) for score in (1.0, 0.0)]
    earlier = _group(2, [1.0, 0.0])
    buffer.add([earlier, Group(1, both)])
    buffer.relabel(both, torch.tensor([[-1.0, -2.0, 9.0, -3.0, 9.0], [-4.0, -5.0, 9.0, -6.0, 9.0]]))
    assert buffer.groups[0] is earlier
    assert [sample.log_probs for sample in buffer.groups[1].samples] == [
        [-1.0, -2.0, 0.0, -3.0],
        [-4.0, -5.0, 0.0, -6.0],
    ]
    assert both[0].log_probs == [-0.1, -0.2, 0.0, -0.3]
    assert buffer.groups[1].samples[0].prompt is prompt


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("algorithm.filter_groups.enable=true", "data.mini_rollout_batch_size=4")])
def test_a_run_whose_rows_are_retired_is_saved(more: tuple[str, ...], tmp_path: Path, quickstart: Path) -> None:
    few = ("data.max_train_rows=8", "data.curriculum.retire_at=0.01", "data.curriculum.retire_after=1")
    code, text = train(tmp_path, *few, *more, "trainer.max_steps=40")
    assert code == 0, text
    assert "the data is learned. The run ends with step" in text
    (saved,) = run_folder(tmp_path).glob("global_step_*")
    assert saved.name != "global_step_40"
    code, text = train(tmp_path, *few, *more, "trainer.max_steps=40")
    assert code == 0, text
    assert "nothing was trained: this run has finished" in text
