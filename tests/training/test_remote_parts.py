"""The remote learner, critic and reference: generated from the protocols, answered by ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import pytest
import torch

from whet.learn.protocol import on_ranks
from whet.training import remote as module
from whet.training.remote import answer, remote, remote_critic, remote_learner, remote_reference


class Part:
    """A learner, critic and reference in one that notes its calls."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.calls: list[tuple[Any, ...]] = []
        self.broken: list[str] = []
        self.log_probs_are: Any = torch.full((2, 3), float(rank))

    def log_probs(self, samples: Any) -> Any:
        self.calls.append(("log_probs", samples))
        return self.log_probs_are

    values = log_probs

    def update(self, samples: Any, objective: Any, step: int, mini_batch: int, **rest: Any) -> dict[str, float]:
        self.calls.append(("update", samples, objective, step, mini_batch, rest))
        return {"rank": float(self.rank)}

    def save(self, folder: Path, tokenizer: Any, model_only: bool) -> None:
        self.calls.append(("save", folder, tokenizer, model_only))

    def broken_weights(self) -> list[str]:
        return self.broken


class Ranks:
    """A group of two ranks in this process."""

    size = 2

    def __init__(self, *parts: str) -> None:
        self.ranks = [Part(0), Part(1)]
        self.parts = parts or ("learner", "critic", "reference")
        self.answers: list[Any] = []

    def call(self, method: str, *args: Any) -> list[Any]:
        assert method == "answer"
        self.answers = [
            answer(dict.fromkeys(self.parts, part), {"tokenizer": f"tokenizer {part.rank}"}, *args, first=not part.rank)
            for part in self.ranks
        ]
        return self.answers


def test_the_first_rank_answers_for_all() -> None:
    group = Ranks()
    for found in (
        remote_learner(group).log_probs([1]),
        remote_reference(group).log_probs([1]),
        remote_critic(group).values([1]),
    ):
        assert torch.equal(found, torch.zeros(2, 3))
        assert group.answers[1] is None  # nothing is sent for nothing
    assert [len(part.calls) for part in group.ranks] == [3, 3]


def test_arguments_by_place_and_name_and_what_stays_with_the_caller() -> None:
    group = Ranks()
    learner = remote_learner(group)
    assert learner.update([1], "objective", 3, mini_batch=8, progress=print, version=2) == {"rank": 0.0}
    assert remote_critic(group).update([1], "objective", step=3, mini_batch=8) == {"rank": 0.0}
    for part in group.ranks:
        assert part.calls[0] == ("update", [1], "objective", 3, 8, {"version": 2})
        assert part.calls[1] == ("update", [1], "objective", 3, 8, {})
    learner.save(Path("here"), "the caller's tokenizer", model_only=True)
    assert [part.calls[2][2] for part in group.ranks] == ["tokenizer 0", "tokenizer 1"]
    with pytest.raises(TypeError, match="mini_batch"):
        learner.update([1], "objective", 3)


def test_answers_that_differ_or_have_another_type_are_errors() -> None:
    group = Ranks()
    learner = remote_learner(group)
    assert learner.broken_weights() == []
    group.ranks[1].broken = ["lm_head.weight"]
    with pytest.raises(
        RuntimeError, match=r"learner.broken_weights: rank 1 answered \['lm_head.weight'\], rank 0 \[\]"
    ):
        learner.broken_weights()
    group.ranks[0].log_probs_are = [1.0]
    with pytest.raises(TypeError, match=r"learner.log_probs: a rank answered with list instead of Tensor"):
        learner.log_probs([1])


def test_a_rank_answers_only_what_is_declared_and_there() -> None:
    part = Part(0)
    for name, method in (("critic", "values"), ("learner", "engine_weights"), ("learner", "__init__")):
        with pytest.raises(LookupError, match=f"no {name}.{method}"):
            answer({"learner": part}, {}, name, method, {}, first=True)


def test_engines_on_ranks_are_given_no_weights_by_the_caller() -> None:
    with remote_learner(Ranks()).engine_weights() as weights, pytest.raises(RuntimeError, match="on its ranks"):
        weights()


def test_a_new_method_of_a_protocol_needs_no_further_code(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counter(Protocol):
        @on_ranks("same")
        def count(self, numbers: list[int], twice: bool = False) -> int:
            """Add up."""

    class LocalCounter:
        def count(self, numbers: list[int], twice: bool = False) -> int:
            return sum(numbers) * (2 if twice else 1)

    monkeypatch.setitem(module.PROTOCOLS, "learner", Counter)
    group = Ranks("learner")
    group.ranks = [LocalCounter(), LocalCounter()]
    monkeypatch.setattr(LocalCounter, "rank", 0, raising=False)
    found: Any = remote(Counter, "learner", group)
    assert found.count([1, 2]) == 3
    assert found.count([1, 2], twice=True) == 6
