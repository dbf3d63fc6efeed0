"""Pictures and turns reach functions that ask for them, and no others."""

from __future__ import annotations

import pickle

import pytest
from PIL import Image

from whet.config.schema.reward import RewardConfig
from whet.errors import UserError
from whet.rewards import inputs
from whet.rewards.inputs import TooLargeError, check_size, reward_input, turns_of
from whet.rewards.scorer import RewardScorer
from whet.types import Media, Prompt, Sample, Segment

RED, BLUE = (Image.new("RGB", (4, 3), colour) for colour in ("red", "blue"))
FILE = """
import sys

def pair(response, answer, images, videos=None, turns=()):
    return {"overall": float(images[0].getpixel((0, 0))[0]), "frames": len(videos[0]), "turns": len(turns)}

def batch(responses, answers, images):
    return [len(each) for each in images]

def row(reward_input, turns):
    assert reward_input["images"] == "a column"
    return sum(turn["reward"] or 0.0 for turn in turns)

def blind(response, answer):
    return float("PIL" in sys.modules)

def first(images, reward_input):
    return 0.0

def option(response, answer, turns=3):
    return turns
"""
NEEDS = """
REWARD_NEEDS = ["images"]

def main(reward_inputs):
    return [float(each["images"][0].size[0]) for each in reward_inputs]
"""


def sample() -> Sample:
    prompt = Prompt("row:0", [1], "q", "4", {"images": "a column"}, Media([RED], [[BLUE, BLUE, RED]]))
    segments = [Segment([5], True, [0.0]), Segment([6, 7], True, [0.0, 0.0]), Segment([8], False, reward=0.5)]
    return Sample(prompt, [*segments, Segment([9], True, [0.0], reward=2.0)], "stop", text="whole")


@pytest.fixture
def score(tmp_path):
    def run(spec: str, text: str = FILE, **changes: object) -> dict[str, float]:
        (tmp_path / "reward.py").write_text(text)
        scored = sample()
        with RewardScorer(f"{tmp_path}/reward.py{spec}", RewardConfig(num_cpus=1, **changes)) as scorer:
            scorer.decode = lambda ids: " ".join(map(str, ids))
            assert scorer.score([scored])["reward/failed"] == 0
        return scored.scores

    return run


def test_a_function_that_names_them_receives_images_videos_and_turns(score):
    assert score(":pair") == {"overall": 255.0, "frames": 3.0, "turns": 3.0}
    assert score(":batch")["overall"] == 1.0
    assert score(":row")["overall"] == 2.5
    assert score("", NEEDS)["overall"] == 4.0


def test_a_function_that_does_not_name_them_receives_none_of_them(score):
    assert score(":blind")["overall"] == 0.0
    assert b"PIL" not in pickle.dumps(reward_input(sample()))
    assert reward_input(sample())["images"] == "a column"


def test_a_parameter_that_the_config_sets_is_an_option(score):
    assert score(":option", reward_function_kwargs={"turns": 7})["overall"] == 7.0


@pytest.mark.parametrize(("spec", "text"), [(":first", FILE), ("", NEEDS.replace('["images"]', '["pictures"]'))])
def test_what_cannot_be_given_is_refused(score, spec, text):
    with pytest.raises(UserError, match=r"put the row there|REWARD_NEEDS"):
        score(spec, text)


def test_turns_have_one_author_each():
    first, second, third = turns_of(sample(), lambda ids: " ".join(map(str, ids)))
    assert first == {"text": "5 6 7", "by_model": True, "tokens": 3, "reward": None}
    assert second == {"text": "8", "by_model": False, "tokens": 1, "reward": 0.5}
    assert (third["text"], third["reward"]) == ("9", 2.0)
    whole = Sample.written(Prompt("a", [], ""), [1, 2], [0.0, 0.0], "stop", text="as decoded")
    assert turns_of(whole, None) == [{"text": "as decoded", "by_model": True, "tokens": 2, "reward": None}]


def test_the_pictures_of_a_call_are_bounded_and_counted_once(score, monkeypatch):
    monkeypatch.setattr(inputs, "MEDIA_LIMIT", 4 * 3 * 3)
    check_size([{"images": [RED]}, {"images": [RED]}, {"images": "a column"}])
    with pytest.raises(TooLargeError, match=r"data.max_pixels"):
        check_size([{"images": [RED, BLUE]}])
    with pytest.raises(AssertionError):
        score(":pair")  # red and blue: a failed reward, not an error of the run
