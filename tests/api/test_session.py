"""A loop of one's own: what the verbs do, that a session resumes, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from api.notebook import SMALL
from transformers import AutoModelForCausalLM

import whet

KEYS = {name: value for name, value in SMALL.items() if name != "batch_size"}


def _is_right(response: str, answer: str) -> float:
    return float(response.strip() == f"Answer: {answer}")


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with whet.Session(
        "whet/quickstart", _is_right, output=tmp_path_factory.mktemp("session") / "loop", **KEYS
    ) as opened:
        yield opened


def test_the_four_verbs(session: whet.Session, rows: list[dict], tmp_path: Path) -> None:
    samples = session.sample(rows[:8])
    assert len(samples) == 8 * 4
    assert all(samples[4 * i + k].prompt is samples[4 * i].prompt for i in range(8) for k in range(4))
    assert session.score(samples)["reward/failed"] == 0.0
    assert [s.reward for s in samples] == [_is_right(s.text, s.prompt.answer) for s in samples]
    metrics = session.update(samples)
    assert session.step == 1
    assert metrics["actor/grad_norm"] > 0
    assert metrics["rollout/log_prob_diff_max"] < 1e-3  # the sampler's numbers are the learner's
    assert session.run.metrics["step"] == [1]
    assert len(session.run.samples(1)) == 32
    path = session.save()
    assert path == session.run.last_checkpoint
    exported = session.save(tmp_path / "model")
    first, second = (
        AutoModelForCausalLM.from_pretrained(each).state_dict() for each in (exported, path / "actor" / "huggingface")
    )
    assert all(torch.equal(first[name], second[name]) for name in first)
    with pytest.raises(whet.UserError, match="exists already"):
        session.save(tmp_path / "model")


def test_scores_may_come_from_the_caller_and_new_weights_sample(session: whet.Session) -> None:
    before = session.sample("Sort these digits: 3 1 2", n=1, temperature=0)[0]
    samples = session.sample(["Sort these digits: 3 1 2"], n=8)
    for sample in samples:
        sample.scores = {"overall": float(len(sample.ids))}
    session.update(samples, mini_batch=4)
    after = session.sample([before.prompt], n=1, temperature=0)[0]
    assert after.version == before.version + 1


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda s: s.sample([]), "prompts is empty"),
        (lambda s: s.sample(5), "got 5"),
        (lambda s: s.sample("word " * 100), "longer than data.max_prompt_length"),
        (lambda s: s.sample([{"question": "a"}]), "did you mean|no such column"),
        (lambda s: s.sample("a", n=0), "n=0: must be at least 1"),
        (lambda s: s.sample("a", n="many"), "n=many: expected an integer"),
        (lambda s: s.sample("a", temperature=-1), "temperature=-1"),
        (lambda s: s.score([]), "samples is empty"),
        (lambda s: s.score("abc"), "got str"),
        (lambda s: s.update([1]), "samples holds a int|got int"),
        (lambda s: s.update(s.sample("a", n=2)), "no finite score"),
        (lambda s: s.update(_scored(s.sample(["a", "b"], n=1))), "no two of these have the same prompt"),
        (lambda s: s.update(_scored(s.sample("a", n=4)), mini_batch=3), "divides the 4 samples"),
        (lambda s: s.update(_scored(s.sample("a", n=2), float("nan"))), "no finite score"),
    ],
)
def test_misuse_is_one_sentence(session: whet.Session, use: Any, said: str) -> None:
    step = session.step
    with pytest.raises(whet.UserError, match=said):
        use(session)
    assert session.step == step


def _scored(samples: list[Any], score: float = 1.0) -> list[Any]:
    for sample in samples:
        sample.scores = {"overall": score}
    return samples


def test_a_session_resumes_and_a_closed_one_says_so(rows: list[dict], tmp_path: Path) -> None:
    with whet.Session("whet/quickstart", output=tmp_path / "loop", **KEYS) as first:
        first.update(_scored(first.sample(rows[:2])))
        first.save()
        with pytest.raises(whet.UserError, match="no reward function"):
            first.score(first.sample(rows[:1]))
    with pytest.raises(whet.UserError, match="closed"):
        first.sample(rows[:1])
    with whet.Session("whet/quickstart", output=tmp_path / "loop", **KEYS) as second:
        assert second.step == 1
        assert second.sample(rows[:1])[0].version == 1


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"model": 5}, "got int"),
        ({"reward": 5}, "got int"),
        ({"batch_size": 8}, "whet.Session has no keyword 'batch_size'"),
        ({"overrides": {"worker.actor.optim.lr_scheduler_type": "cosine"}}, "steps must be given"),
        ({"overrides": {"trainer.stages": [{"steps": 1}]}}, "no stages"),
        ({"advantage": "remax"}, "give reward"),
    ],
)
def test_a_session_that_cannot_start_says_why(keys: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(whet.UserError, match=said):
        whet.Session(**{"model": "whet/quickstart", "output": tmp_path / "loop", **KEYS, **keys})
    assert not (tmp_path / "loop").exists()
