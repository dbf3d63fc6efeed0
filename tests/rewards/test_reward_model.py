"""Reward models: scores against transformers' own passes, batches, rendering, steps, and folders that are none."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from reward_models import other_tokenizer, reward_model
from safetensors.torch import load_file, save_file
from tiny_models import byte_tokenizer

from whet.config import Config, load_config
from whet.config.checks.reward import REWARD_CHECKS
from whet.config.checks.run import run_checks
from whet.errors import UserError
from whet.rewards.mixed import MixedScorer
from whet.rewards.models.classifier import batches
from whet.tracking.console import Console
from whet.training.reward_terms import open_mixed
from whet.types import Prompt, Sample

TEXTS = ("seven", "one\n\ntwo", "the answer is seven. stop here and now\n\nand then\n\n\n\nstop", "", "x" * 40)


def config_of(folder: Path | str, *more: str, **changes: Any) -> Config:
    changes = {"path": str(folder), "device": "cpu", **changes}
    pairs = [f"worker.reward.model.{name.replace('__', '.')}={json.dumps(value)}" for name, value in changes.items()]
    return load_config(["data.prompt_key=problem", "trainer.device=cpu", *pairs, *more])


def opened(folder: Path | str, run: Path, *more: str, **changes: Any) -> MixedScorer:
    scorer = open_mixed(config_of(folder, *more, **changes), byte_tokenizer(), Console(quiet=True), run)
    scorer.ready()
    return scorer


def samples(*texts: str, end: bool = True) -> list[Sample]:
    tokenizer = byte_tokenizer()
    turns = [{"role": "user", "content": "how many?"}]
    prompt = Prompt(
        "row:0",
        tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False),
        "",
        "seven",
        {"problem": "how many?", "level": 3},
    )
    found = []
    for i, text in enumerate(texts):
        ids = [*tokenizer(text, add_special_tokens=False)["input_ids"], *([tokenizer.eos_token_id] if end else [])]
        found.append(Sample.written(prompt, ids, [-0.5] * len(ids), "stop", index=i, group=0, text=text))
    return found


def alone(model: Any, ids: list[int]) -> torch.Tensor:
    """The last hidden states (T, H) of a row that shares its batch with nobody."""
    with torch.no_grad():
        return model.base_model(input_ids=torch.tensor([ids])).last_hidden_state[0]


def test_a_score_is_the_heads_at_the_last_token_of_the_policys_own_tokens(tmp_path):
    model = reward_model("sequence", tmp_path / "model")
    scored = samples(*TEXTS)
    with opened(tmp_path / "model", tmp_path) as scorer:
        scorer.check([scored[0].prompt])
        assert scorer.score(scored)["reward/failed"] == 0
    for sample in scored:
        with torch.no_grad():
            expected = float(model.score(alone(model, sample.prompt.ids + sample.ids)[-1]))
        assert sample.scores == pytest.approx({"overall": expected, "model": expected}, abs=1e-5)


@pytest.mark.parametrize("kind", ["sequence", "encoder"])
def test_a_score_does_not_depend_on_who_shares_the_batch(tmp_path, kind):
    model = reward_model(kind, tmp_path / "model", labels=1)
    found = []
    for budget in (1, 60, 100_000):
        with opened(tmp_path / "model", tmp_path, micro_batch_tokens=budget) as scorer:
            scored = samples(*TEXTS)
            scorer.score(scored)
        found.append([sample.scores["model"] for sample in scored])
    assert found[0] == pytest.approx(found[1], abs=1e-5)
    assert found[0] == pytest.approx(found[2], abs=1e-5)
    assert len(set(found[0])) == len(TEXTS)
    if kind == "encoder":
        with torch.no_grad():
            ids = torch.tensor([scored[0].prompt.ids + scored[0].ids])
            assert float(model(input_ids=ids).logits) == pytest.approx(found[0][0], abs=1e-5)


def test_groups_are_scored_beside_each_other(tmp_path):
    reward_model("sequence", tmp_path / "model")
    groups = [samples(text) for text in TEXTS]
    with opened(tmp_path / "model", tmp_path) as scorer:

        async def all_at_once() -> None:
            await asyncio.gather(*map(scorer.score_async, groups))

        asyncio.run(all_at_once())
        again = samples(*TEXTS)
        scorer.score(again)
        apart = [samples(text) for text in TEXTS]
        for group in apart:
            scorer.score(group)
    found = [each[0].scores["model"] for each in groups]
    assert found == [each[0].scores["model"] for each in apart]  # to the bit, whatever else waited
    assert found == pytest.approx([s.scores["model"] for s in again], abs=1e-5)


def test_batches_hold_every_row_once_and_keep_the_budget():
    lengths = [5, 1, 9, 3, 3, 20, 4]
    found = list(batches(lengths, 12))
    assert sorted(i for batch in found for i in batch) == list(range(7))
    assert all(len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= 12 for batch in found)


def test_labels_and_activations(tmp_path):
    model = reward_model("sequence", tmp_path / "model", labels=3)
    scored = samples("seven", "eight")
    with opened(tmp_path / "model", tmp_path, label=2, activation="softmax") as scorer:
        scorer.score(scored)
    for sample in scored:
        with torch.no_grad():
            logits = model.score(alone(model, sample.prompt.ids + sample.ids)[-1])
        assert sample.scores["model"] == pytest.approx(float(logits.softmax(-1)[2]), abs=1e-5)


def test_another_tokenizer_reads_the_conversation_in_its_own_template(tmp_path):
    theirs = other_tokenizer()
    model = reward_model("sequence", tmp_path / "model", theirs)
    scored = samples("seven", "one\n\ntwo")
    with opened(tmp_path / "model", tmp_path) as scorer:
        scorer.check([scored[0].prompt])
        scorer.score(scored)
    for sample in scored:
        ids = theirs(f"[user] how many?\n[assistant] {sample.text}\n", add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            expected = float(model.score(alone(model, ids)[-1]))
        assert sample.scores["model"] == pytest.approx(expected, abs=1e-5)


def test_a_template_of_ones_own(tmp_path):
    model = reward_model("sequence", tmp_path / "model")
    template = tmp_path / "pair.jinja"
    template.write_text("Q {{ prompt }} ({{ level }}) A {{ response }}")
    scored = samples("seven")
    with opened(tmp_path / "model", tmp_path, template=str(template)) as scorer:
        scorer.score(scored)
    ids = byte_tokenizer()("Q how many? (3) A seven")["input_ids"]
    with torch.no_grad():
        assert scored[0].scores["model"] == pytest.approx(float(model.score(alone(model, ids)[-1])), abs=1e-5)


def test_long_samples_lose_their_beginning(tmp_path):
    model = reward_model("sequence", tmp_path / "model")
    scored = samples("one two three four five six seven")
    whole = scored[0].prompt.ids + scored[0].ids
    with opened(tmp_path / "model", tmp_path, max_length=10) as scorer:
        scorer.score(scored)
    with torch.no_grad():
        expected = float(model.score(alone(model, whole[-10:])[-1]))
    assert scored[0].scores["model"] == pytest.approx(expected, abs=1e-5)
    assert scored[0].scores["model_cut"] == 1.0


def text_until(sample: Sample, count: int) -> str:
    return byte_tokenizer().decode(sample.ids[:count], skip_special_tokens=True)


def test_step_scores_lie_on_the_last_tokens_of_steps(tmp_path):
    model = reward_model("token", tmp_path / "model")
    scored = samples("one\n\ntwo three\n\n\n\nfour", "seven", "one\n\n", "\n\n\n\n")
    before = [(sample.ids, sample.mask, sample.log_probs, sample.versions) for sample in scored]
    with opened(tmp_path / "model", tmp_path) as scorer:
        assert scorer.score(scored)["reward/failed"] == 0
    assert [(sample.ids, sample.mask, sample.log_probs, sample.versions) for sample in scored] == before
    places = []
    for sample in scored:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([sample.prompt.ids + sample.ids])).logits[0, :, 0]
        own = logits[len(sample.prompt.ids) :]
        earned = {i: reward for i, reward in enumerate(sample.rewards) if reward}
        assert earned == pytest.approx({i: float(own[i]) for i in earned}, abs=1e-5)
        assert sample.scores["overall"] == 0.0
        assert sample.reward == pytest.approx(sum(earned.values()))
        assert sample.scores["model"] == pytest.approx(sum(earned.values()) / len(earned), abs=1e-6)
        places.append([text_until(sample, i + 1) for i in earned])
    assert places[0] == ["one\n\n", "one\n\ntwo three\n\n\n\n", "one\n\ntwo three\n\n\n\nfour"]
    assert places[1] == ["seven"]
    assert places[2] == ["one\n\n"]
    assert places[3] == ["\n\n\n\n"]


@pytest.mark.parametrize(
    ("how", "function"), [("mean", lambda s: sum(s) / len(s)), ("min", min), ("last", lambda s: s[-1]), ("sum", sum)]
)
def test_step_scores_as_one(tmp_path, how, function):
    reward_model("token", tmp_path / "model")
    placed, reduced = samples("one\n\ntwo\n\nthree"), samples("one\n\ntwo\n\nthree")
    with opened(tmp_path / "model", tmp_path) as scorer:
        scorer.score(placed)
    with opened(tmp_path / "model", tmp_path, steps__reduce=how) as scorer:
        scorer.score(reduced)
    steps = [reward for reward in placed[0].rewards if reward]
    assert len(steps) == 3
    assert reduced[0].scores["overall"] == pytest.approx(function(steps), abs=1e-5)
    assert len(reduced[0].segments) == 1


@pytest.mark.parametrize("own", [True, False])
def test_a_causal_model_compares_two_tokens_at_marks(tmp_path, own):
    theirs = byte_tokenizer() if own else other_tokenizer()
    model = reward_model("causal", tmp_path / "model", theirs)
    mark = "<|system|>"
    scored = samples("one\n\ntwo", end=False)
    steps = {"steps__mark": mark, "steps__good": "+", "steps__bad": "-"}
    with opened(tmp_path / "model", tmp_path, **steps) as scorer:
        assert scorer.score(scored)["reward/failed"] == 0
    (good,), (bad,) = (theirs(text, add_special_tokens=False)["input_ids"] for text in "+-")
    (at,) = theirs(mark, add_special_tokens=False)["input_ids"]
    if own:
        pieces = [byte_tokenizer()(text, add_special_tokens=False)["input_ids"] for text in ("one\n\n", "two")]
        ids = [*scored[0].prompt.ids, *pieces[0], at, *pieces[1], at]
    else:
        ids = theirs(f"[user] how many?\n[assistant] one\n\n{mark}two{mark}\n", add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        pair = model(input_ids=torch.tensor([ids])).logits[0][:, [good, bad]].softmax(-1)[:, 0]
    expected = [float(pair[i]) for i, token in enumerate(ids) if token == at]
    assert [reward for reward in scored[0].rewards if reward] == pytest.approx(expected, abs=1e-5)


def test_steps_are_found_in_another_tokenizers_text(tmp_path):
    theirs = other_tokenizer()
    model = reward_model("token", tmp_path / "model", theirs)
    scored = samples("  one\n\nżółć two\n\nthree", end=True)
    with opened(tmp_path / "model", tmp_path) as scorer:
        assert scorer.score(scored)["reward/failed"] == 0
    text = "[user] how many?\n[assistant] one\n\nżółć two\n\nthree\n"
    given = theirs(text, add_special_tokens=False, return_offsets_mapping=True)
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([given["input_ids"]])).logits[0, :, 0]
    ends = [text.index("one\n\n") + 5, text.index("two\n\n") + 5, len(text) - 1]
    last = [max(i for i, (begin, stop) in enumerate(given["offset_mapping"]) if begin < end) for end in ends]
    assert [reward for reward in scored[0].rewards if reward] == pytest.approx(
        [float(logits[i]) for i in last], abs=1e-5
    )


def test_a_critic_that_whet_saved_is_a_reward_model(tmp_path):
    model = reward_model("causal", tmp_path / "model")
    head = {"weight": torch.randn(1, 32), "bias": torch.tensor([0.25])}
    save_file(head, tmp_path / "model" / "value_head.safetensors")
    scored = samples("seven")
    with opened(tmp_path / "model", tmp_path) as scorer:
        scorer.score(scored)
    hidden = alone(model, scored[0].prompt.ids + scored[0].ids)[-2]  # the value before the last token
    expected = float(head["weight"][0] @ hidden + head["bias"])
    assert scored[0].scores["overall"] == pytest.approx(expected, abs=1e-5)


def test_a_model_is_one_part_of_a_sum(tmp_path):
    reward_model("sequence", tmp_path / "model")
    scored = samples("#### 7", "none")
    for sample in scored:
        sample.prompt.answer = "7"
    with opened(tmp_path / "model", tmp_path, "worker.reward.combine={gsm8k: 2.0, model: -0.5}") as scorer:
        scorer.check([scored[0].prompt])
        assert scorer.score(scored)["reward/failed"] == 0
    for sample, right in zip(scored, (1.0, 0.0)):
        assert sample.scores["overall"] == pytest.approx(2.0 * right - 0.5 * sample.scores["model"])


def test_numbers_that_are_none_fail_their_samples_only(tmp_path):
    model = reward_model("sequence", tmp_path / "model")
    file = tmp_path / "model" / "model.safetensors"
    weights = load_file(file)
    token = byte_tokenizer()("x", add_special_tokens=False)["input_ids"][0]
    weights["model.embed_tokens.weight"][token] = float("nan")
    save_file(weights, file, {"format": "pt"})
    scored = samples("seven", "x")
    with opened(tmp_path / "model", tmp_path) as scorer:
        assert scorer.score(scored)["reward/bad_result"] == 1
    assert model is not None
    assert [sample.failure for sample in scored] == [None, "bad result"]


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("causal", {}, "which is no reward model"),
        ("sequence3", {}, "has 3 labels"),
        ("sequence", {"label": 1}, "numbered from 0"),
        ("causal", {"steps__good": "+", "steps__bad": "-"}, "needs worker.reward.model.steps.mark"),
        ("token", {"steps__mark": "<nothing>"}, "is no token"),
        ("sequence", {"steps__reduce": "mean"}, "one score for a whole response"),
        ("sequence", {"max_length": 100_000}, "positions end at 256"),
        ("sequence", {"device": "cuda:97"}, "CUDA devices here"),
        ("damaged", {}, "holds no weights for score.weight"),
        ("no config", {}, "no model could be read"),
        ("plain", {}, "has no chat template"),
    ],
)
def test_folders_and_settings_that_cannot_be(tmp_path, kind, changes, message):
    folder = tmp_path / "model"
    if kind == "damaged":
        reward_model("sequence", folder)
        weights = load_file(folder / "model.safetensors")
        del weights["score.weight"]
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
    elif kind == "no config":
        folder.mkdir()
    elif kind == "plain":
        tokenizer = other_tokenizer()
        tokenizer.chat_template = None
        reward_model("sequence", folder, tokenizer)
    else:
        reward_model(kind.rstrip("3"), folder, labels=3 if kind.endswith("3") else 1)
    with pytest.raises(UserError, match=message), opened(folder, tmp_path, **changes):
        pass


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"render": "text"}, "needs worker.reward.model.template"),
        ({"steps__good": "+"}, "belong together"),
        ({"device": "gpu"}, "write auto, cpu"),
        ({"template": "nowhere.jinja"}, "no such file"),
    ],
)
def test_bad_settings(changes, message):
    found = run_checks(REWARD_CHECKS, config_of("m", **changes))
    assert any(message in each for each in found), found


def test_a_device_must_be_named_where_the_policy_has_several():
    config = load_config(["worker.reward.model.path=m", "trainer.n_gpus_per_node=2"])
    assert "name its device" in run_checks(REWARD_CHECKS, config)[0]
