"""What environments may return, and the sentence for what they may not."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from whet.envs.harness.scores import read_scores
from whet.envs.observations import BadResultError, read_answer, read_observation

PICTURE = Image.new("RGB", (4, 4))


@pytest.mark.parametrize(
    ("value", "contents", "images"),
    [
        ("hello", ["hello"], 0),
        (PICTURE, ["<image>"], 1),
        (np.zeros((4, 4, 3), dtype=np.uint8), ["<image>"], 1),
        ({"text": "look", "images": [PICTURE, PICTURE]}, ["<image><image>look"], 2),
        ({"text": "at <image> here", "images": [PICTURE]}, ["at <image> here"], 1),
        ([{"role": "tool", "content": "3"}, {"role": "user", "content": "go on"}], ["3", "go on"], 0),
        (
            [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image", "image": PICTURE}]}],
            ["a<image>"],
            1,
        ),
    ],
    ids=["text", "image", "array", "both", "placed", "chat", "parts"],
)
def test_observations_of_every_kind(value: Any, contents: list[str], images: int) -> None:
    observed = read_observation(value, "user")
    assert observed is not None
    assert [message["content"] for message in observed.messages] == contents
    assert len(observed.images) == images
    assert all(isinstance(image, Image.Image) for image in observed.images)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (3, "must be text, chat messages, a PIL image"),
        (b"bytes", "it is a bytes"),
        ([], "empty list of messages"),
        ([{"content": "x"}], "message 1 of the observation must be a dict with role and content"),
        ([{"role": "user", "content": 4}], "must be text or a list of parts, not a int"),
        ([{"role": "user", "content": [{"type": "video"}]}], "must be of type text or image"),
        ({"txt": "x"}, "it is a dict with txt"),
        ({"images": ["x.png"]}, "must be PIL images; it is a str"),
        (np.zeros((4, 4, 7), dtype=np.uint8), "shape (4, 4, 7)"),
    ],
)
def test_wrong_observations_are_named(value: Any, said: str) -> None:
    with pytest.raises(BadResultError) as error:
        read_observation(value, "user")
    assert said in str(error.value)


def test_a_step_is_read_with_its_numbers_and_the_rest_of_info_is_left_out() -> None:
    info = {
        "moves": 3,
        "won": True,
        "ratio": np.float32(0.5),
        "note": "text",
        "bad": float("nan"),
        "huge": 10**400,
        "end": "won",
    }
    answer = read_answer(("x", np.float64(1.5), np.bool_(False), info), "user")
    assert (answer.reward, answer.done, answer.end) == (1.5, False, "won")
    assert answer.info == {"moves": 3.0, "won": 1.0, "ratio": 0.5}
    assert len(read_answer(("x", 1.0, True, {"end": "x" * 10_000}), "user").end or "") == 200


@pytest.mark.parametrize(
    ("reward", "done", "read"),
    [
        (True, False, 1.0),
        (np.bool_(True), np.array(True), 1.0),
        (np.array([2.5]), np.bool_(False), 2.5),
        (np.array(2.5), True, 2.5),
        (Decimal("0.5"), True, 0.5),
        (torch.tensor([0.5]), torch.tensor(True), 0.5),
    ],
    ids=str,
)
def test_numbers_and_truths_of_other_libraries_are_read(reward: Any, done: Any, read: float) -> None:
    answer = read_answer(("x", reward, done, {"turn": reward}), "user")
    assert (answer.reward, answer.done, answer.info) == (read, bool(done), {"turn": read})
    assert read_scores(reward).reward == read


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "four values observation, reward, done, info; it returned None"),
        (("x", 1.0, True), "it returned 3 values"),
        (
            ("x", 1.0, True, False, {}),
            "5 values, as environments of gymnasium do: return observation, reward, terminated",
        ),
        ((("x", {}), 1.0, False, {}), "return the observation alone"),
        (("\ud800", 1.0, False, {}), "half of a character"),
        (("x", "1", True, {}), "the reward (second value of step) must be a number within ±1e+06, not a str"),
        (("x", float("nan"), True, {}), "not nan"),
        (("x", 1e9, True, {}), "not 1000000000.0"),
        (("x", -(10**400), True, {}), "not -1000000"),
        (("x", np.zeros(2), True, {}), "not array([0., 0.])"),
        (("x", torch.tensor(float("inf")), True, {}), "not tensor(inf)"),
        (("x", 1.0, np.array([True]), {}), "done (third value of step) must be True or False, not a ndarray"),
        (("x", 1.0, 1, {}), "done (third value of step) must be True or False, not a int"),
        (("x", 1.0, "yes", {}), "done (third value of step) must be True or False, not a str"),
        (("x", 1.0, True, [1]), "info (fourth value of step) must be a dict, not a list"),
        ((None, 1.0, False, {}), "is None and done is False"),
        (("x", 1.0, True, {"message": "hi"}), 'info["message"] must be a chat message'),
    ],
)
def test_wrong_steps_are_named(value: Any, said: str) -> None:
    with pytest.raises(BadResultError) as error:
        read_answer(value, "user")
    assert said in str(error.value)
