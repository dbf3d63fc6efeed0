"""States of turns (GiGPO), observed tokens in the loss (ECHO), demonstrations in groups (SPIN)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from algos.golden import peers
from torch import Tensor

from whet.config import load_config
from whet.errors import UserError
from whet.training.demonstrated import with_demonstrations
from whet.training.experience import Experience
from whet.training.objective import Coefficients, objective
from whet.training.turn_states import turn_states
from whet.types import Prompt, Sample, Segment


def _episode(group: int, *parts: tuple[str, list[int]]) -> Sample:
    segments = [Segment(ids, by_model=who == "policy") for who, ids in parts]
    return Sample(Prompt("rows:1", [1, 2], "text"), segments, "stop", group=group)


def test_states_are_equal_by_observation_or_by_history() -> None:
    one = _episode(0, ("policy", [5]), ("env", [8, 8]), ("policy", [6, 6]), ("env", [9]), ("policy", [7]))
    other = _episode(0, ("policy", [4]), ("env", [8, 8]), ("policy", [6]))
    stranger = _episode(1, ("policy", [5]), ("env", [8, 8]), ("policy", [6, 6]))
    seen = turn_states([one, other, stranger], "observation")
    assert seen.tolist()[0] == [0, -1, -1, 1, 1, -1, 2]
    assert seen.tolist()[1] == [0, -1, -1, 1, -1, -1, -1]  # the same observation after another action
    assert seen.tolist()[2] == [3, -1, -1, 4, 4, -1, -1]  # another group shares nothing
    known = turn_states([one, other, stranger], "history")
    assert known[0, 0] == known[1, 0]
    assert known[0, 3] != known[1, 3]


def test_pieces_of_one_turn_and_of_one_answer_belong_together() -> None:
    whole = _episode(0, ("policy", [5, 5]), ("env", [8, 9]), ("policy", [6]))
    pieces = _episode(0, ("policy", [5]), ("policy", [5]), ("env", [8]), ("env", [9]), ("policy", [6]))
    for anchor in ("observation", "history"):
        states = turn_states([pieces], anchor)
        assert states[0].tolist() == [0, 0, -1, -1, 1]
    assert turn_states([whole], "observation")[0].tolist() == [0, 0, -1, -1, 1]


def _surprise(rows: list[list[int]], observed: Tensor, log_probs: Tensor, mode: str) -> tuple[float, Tensor]:
    """The loss over micro-batches of these rows, and its gradient."""
    keys = ["algorithm.observation_coef=0.3", f"worker.actor.loss_avg_mode={mode}", "data.max_response_length=9"]
    config = load_config(keys)
    B, T = observed.shape
    mask = 1.0 - observed
    nothing = torch.zeros(B, T)
    samples = [Sample.written(Prompt("rows:1", [1], ""), [1] * T, [0.0] * T, "stop", group=0) for _ in range(B)]
    batch = Experience(samples, mask, log_probs.detach().float(), None, nothing, nothing, observed_BT=observed)
    loss_of = objective(batch, config, Coefficients(0.0, 0.0)).begin(list(range(B)), lambda: log_probs)
    assert loss_of is not None
    leaf = log_probs.detach().clone().requires_grad_()
    total = 0.0
    for chosen in rows:
        outputs: Any = SimpleNamespace(log_probs_BT=leaf[chosen], entropy_BT=nothing[chosen])
        loss, metrics = loss_of.loss(outputs, chosen)
        loss.backward()
        total += float(metrics["observation_loss"])
    return total, leaf.grad


@pytest.mark.parametrize("mode", ["token", "seq-mean-token-mean"])
def test_observed_tokens_are_learned(mode: str) -> None:
    rng = np.random.default_rng(2)
    observed = torch.tensor(rng.integers(0, 2, (4, 6)), dtype=torch.float32)
    observed[1] = 0.0
    log_probs = torch.tensor(-rng.random((4, 6)), dtype=torch.float32)
    found, grad = _surprise([[0, 1, 2, 3]], observed, log_probs, mode)
    lengths = observed.sum(dim=1, keepdim=True)
    weights = observed / observed.sum() if mode == "token" else observed / lengths.clamp(min=1) / 4
    assert found == pytest.approx(float(-(weights * log_probs).sum()), rel=1e-5)
    torch.testing.assert_close(grad, -0.3 * weights)  # advantages are 0, so nothing else has a gradient
    cut, slope = _surprise([[2], [0, 3], [1]], observed, log_probs, mode)
    assert cut == pytest.approx(found, rel=1e-5)
    torch.testing.assert_close(slope, grad)


@pytest.mark.parametrize(
    ("entry", "mode"),
    [
        ("echo_token_mean", "token"),
        ("echo_sequence_mean", "seq"),
        ("echo_seq_mean_token_sum_norm", "seq-mean-token-sum-norm"),
    ],
)
def test_observed_tokens_like_the_authors_of_echo(entry: str, mode: str) -> None:
    """Their code adds 0.001 to counts of tokens."""
    given = peers()
    observed, log_probs = (torch.tensor(given["inputs"][key], dtype=torch.float32) for key in ("observed", "log_probs"))
    assert not torch.all(observed.any(dim=1))
    found, grad = _surprise([[0, 1, 2, 3], [4, 5, 6, 7]], observed, log_probs, mode)
    expected = given["authors"][entry]
    assert found == pytest.approx(expected["loss"], rel=1.1e-3)
    torch.testing.assert_close(grad, 0.3 * torch.tensor(expected["grad"]), rtol=1.1e-3, atol=1e-7)


class _Tokens:
    eos_token_id = 99

    def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
        assert not add_special_tokens
        return {"input_ids": [len(word) for word in text.split()]}

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        return " ".join(map(str, ids))


def test_the_last_sample_of_a_group_becomes_a_demonstration() -> None:
    config = load_config(
        ["algorithm.adv_estimator=spin", "algorithm.demonstration_key=shown", "data.max_response_length=4"]
    )
    prompts = [Prompt(f"rows:{i}", [1], "", extra={"shown": text}) for i, text in enumerate(["a bb", "a b c d e"])]
    samples = [
        Sample.written(prompts[i // 2], [3], [-0.5], "stop", index=i % 2, group=i // 2, scores={"overall": 0.25})
        for i in range(4)
    ]

    def log_probs(given: Sequence[Sample]) -> Tensor:
        return torch.tensor([[-float(token) for token in each.ids] for each in given])

    tokens: Any = _Tokens()
    found = with_demonstrations(samples, tokens, config, log_probs, version=7)
    assert [each.scores["demonstration"] for each in found] == [0.0, 1.0, 0.0, 0.0]  # the second is too long
    shown = found[1]
    assert (shown.ids, shown.log_probs, shown.version, shown.group) == ([1, 2, 99], [-1.0, -2.0, -99.0], 7, 0)
    assert found[3] is samples[3]
    missing = [replace(samples[0], prompt=Prompt("rows:9", [1], "", extra={}))]
    with pytest.raises(UserError, match="rows:9: the column shown"):
        with_demonstrations(missing, tokens, config, log_probs, version=7)
