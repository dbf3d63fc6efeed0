"""Rewards and environments of the recipes by themselves: numbers by hand, and input that is not as expected."""

from __future__ import annotations

import importlib.util
import io
import json
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageChops

from whet.assets.recipes import recipes_folder
from whet.types import Media, Prompt


def _module(recipe: str, name: str) -> ModuleType:
    path = recipes_folder() / recipe / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{recipe}_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("response", "truth", "reward"),
    [
        ("[10, 20]", [0, 0, 15, 25], 2.0),
        ("[50, 50] [10, 20]", [0, 0, 15, 25], 1 + 1 / math.sqrt(4)),
        ("[50, 50] [60, 10] [10, 20]", "[0, 0, 15, 25]", 1 + 1 / 3),
        (
            '[{"point_2d": [10, 20]}, {"point_2d": [50, 50]}]',
            {"x1": 0, "y1": 0, "x2": 15, "y2": 25},
            1 + 1 / math.sqrt(2),
        ),
        ("[50, 50] [60, 10] [70, 20]", [0, 0, 15, 25], 1 - 1 / 3),
        ("[1, 1] [2, 2] [3, 3]", [2, 2, 3, 3], -1.0),  # on a line
        ("[2, 2] [9, 3] [4, 4] [6, 6]", [2, 2, 3, 3], -1.0),  # three of four are
        ("no point", [0, 0, 1, 1], -1.0),
        ("Answer: 9 5 2", "9", 1 + 1 / math.sqrt(3)),
        ("Answer: 5 9", "9", 1.5),
        ("Answer: 5 8", "9", 0.5),
    ],
)
def test_infigui_reward(response: str, truth: Any, reward: float) -> None:
    score = _module("infigui_g1", "reward").compute_score({"response": response, "ground_truth": truth})
    assert score["overall"] == pytest.approx(reward)


@pytest.mark.parametrize("truth", [[1, 2], "[0, 0, 1]", {"x1": 3}, [0, 0, None, 1]])
def test_infigui_names_a_truth_that_is_no_box(truth: Any) -> None:
    with pytest.raises(ValueError, match="is no box"):
        _module("infigui_g1", "reward").compute_score({"response": "[1, 2]", "ground_truth": truth})


def test_fapo_reward() -> None:
    score = _module("fapo", "reward").compute_score
    row = {"problem": "Sort these digits: 5 2 9", "ground_truth": "2 5 9"}
    said = {"5 2 9 = 2 5 9": (1.0, 0.0), "9 2 5 = 2 5 9": (0.0, 1.0), "5 2 9 = 9 5 2": (-1.0, 0.0), "": (-1.0, 0.0)}
    for response, (reward, flawed) in said.items():
        found = score(row | {"response": response})
        assert (found["overall"], found["flawed"]) == (reward, flawed), response
        assert score(row | {"response": response}, lam=0.0)["overall"] == (1.0 if found["accuracy"] else -1.0)


@pytest.mark.parametrize(
    ("response", "verdict", "reward"),
    [
        ("17 + 17 = 34\nAnswer: 34", "\\boxed{-1}", 1.0),
        ("I guess.\nAnswer: $\\boxed{34}$", "Step 0 guesses: \\boxed{-1}? No: \\boxed{0}", 0.0),
        ("Answer: 34", "I cannot tell.", 1.0),
        ("Answer: 34", None, 1.0),
        ("Answer: 35", "unasked", -1.0),
        ("", "unasked", -1.0),
    ],
)
def test_fapo_asks_for_the_first_wrong_step(
    response: str, verdict: str | None, reward: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    fapo, asked = _module("fapo", "reward"), []

    def answer(request: Any, timeout: float) -> io.BytesIO:
        asked.append(json.loads(request.data)["messages"][0]["content"])
        return io.BytesIO(json.dumps({"choices": [{"message": {"content": verdict}}]}).encode())

    monkeypatch.setattr(fapo.urllib.request, "urlopen", answer)
    row = {"prompt": "What is 17 + 17? {}", "ground_truth": "34", "response": response}
    assert fapo.compute_score(row, url="http://there/v1")["overall"] == reward
    assert len(asked) == (verdict != "unasked")  # wrong answers are not examined
    assert all(part in said for said in asked for part in (row["prompt"], row["ground_truth"], response))


def test_r1_reward() -> None:
    score = _module("r1", "reward").compute_score
    assert score("<think>so</think> \\boxed{1 2}", "1 2") == {"overall": 1.0, "accuracy": 1.0, "format": 1.0}
    assert score("<think>so</think> 12", "1 2")["accuracy"] == 1.0
    assert score("1 2", "1 2")["overall"] == 0.0  # no thoughts
    assert score("<think>so</think> <think> 1 2", "1 2")["format"] == 0.0
    assert score("<think>so</think> 3", "1 2")["overall"] == pytest.approx(0.1)
    assert score(r"<think>so</think> \boxed{\frac{\sqrt{2}}{2}}", r"\frac{\sqrt{2}}{2}")["accuracy"] == 1.0


def test_zoom_shows_the_part_that_was_asked_for() -> None:
    image = Image.new("RGB", (80, 60))
    image.paste((255, 0, 0), (40, 0, 80, 30))
    make = _module("deepeyes", "zoom").Zoom
    env = make(looks=2, enlarged=160)
    env.reset(Prompt("rows:1", [], "", answer="Red", media=Media(images=[image])))
    call = '<tool_call>{"name": "zoom", "arguments": {"box": [40, 0, 80, 30]}}</tool_call>'
    seen, reward, done, _ = env.step(call)
    assert (reward, done) == (0.0, False)
    assert seen["images"][0].size == (160, 120)
    assert seen["images"][0].getpixel((80, 60)) == (255, 0, 0)
    for wrong in ("[5, 5, 2, 9]", "[900, 0, 950, 10]", '["a", 1, 2, 3]', "[1, 2]", "{}"):
        other = make(looks=1)
        other.reset(Prompt("rows:1", [], "", answer="Red", media=Media(images=[image])))
        said, _, done, _ = other.step(f'<tool_call>{{"name": "zoom", "arguments": {{"box": {wrong}}}}}</tool_call>')
        assert not done
        assert said.startswith("Error"), wrong
    short = make(looks=1, enlarged=160)
    short.reset(Prompt("rows:1", [], "", answer="Red", media=Media(images=[image])))
    assert short.step("zoom(40, 0, 80, 30)")[0]["images"][0].tobytes() == seen["images"][0].tobytes()
    assert env.step("<answer>red</answer>")[1:] == (1.5, True, {"end": "answered", "accuracy": 1.0, "looks": 1})
    fresh = make(looks=0)
    fresh.reset(Prompt("rows:1", [], "", answer="red", media=Media(images=[image])))
    assert fresh.step(call)[2:] == (True, {"end": "too many looks", "accuracy": 0, "looks": 0})
    with pytest.raises(ValueError, match="needs a row with an image"):
        make().reset(Prompt("rows:1", [], ""))


def test_colours_are_in_what_zooming_shows_and_hardly_in_what_is_shown_first() -> None:
    prepare, zoom = _module("deepeyes", "prepare"), _module("deepeyes", "zoom")
    first, parts = [], []
    for colour in ("red", "green"):
        original = prepare.picture((colour,) * 4)["bytes"]
        shown = Image.open(io.BytesIO(original)).resize((prepare.SHOWN, prepare.SHOWN))
        env = zoom.Zoom(looks=1, enlarged=prepare.SHOWN)
        env.reset(Prompt("rows:1", [], "", answer=colour, extra={"original": original}, media=Media(images=[shown])))
        seen, *_ = env.step(prepare.call("bottom left"))
        first.append(shown)
        parts.append(seen["images"][0])
        assert parts[-1].tobytes() == Image.open(io.BytesIO(prepare.part(colour)["bytes"])).tobytes()
    assert max(high for _, high in ImageChops.difference(*first).getextrema()) < 20
    assert max(high for _, high in ImageChops.difference(*parts).getextrema()) > 150


def test_the_user_without_a_model_answers_and_pays() -> None:
    make = _module("collabllm", "user").NumberInMind
    user = make(high=15, turns=3, penalty=0.3)
    user.reset(Prompt("rows:1", [], "", extra={"secret": "11"}))
    said, first, done, _ = user.step("8")
    assert (said, done) == ("higher", False)
    assert first == pytest.approx(0.25 * math.log(15 / 7) / math.log(15) - 0.1)
    assert user.step("12")[0] == "lower"
    assert user.step("11")[1:] == (pytest.approx(0.9), True, {"end": "done", "accuracy": 1, "turns_used": 3})
    other = make()
    other.reset(Prompt("rows:1", [], "", extra={"secret": "3"}))
    assert other.step("three")[1:3] == (-1.0, True)


@pytest.mark.parametrize(
    ("last", "success"),
    [("So it is 1,250.", 1), ("It is $1250.00", 1), ("12509", 0), ("1 2 3 1250 9", 0), ("", 0), ("Which pens?", 0)],
)
def test_a_conversation_succeeds_with_the_number_that_was_meant(
    last: str, success: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = _module("collabllm", "user")
    replies = iter(["Tom has some.", "[[DONE]]"])
    monkeypatch.setattr(module.Conversation, "reply", lambda self: next(replies))
    talk = module.Conversation("http://there/v1", "user", budget=10)
    talk.reset(Prompt("rows:1", [], "", answer="1250", extra={"intent": "count", "prompt": "How many?"}))
    assert talk.step(_said("How many has Tom?", 3)) == ("Tom has some.", 0.0, False, {})
    _, reward, done, about = talk.step(_said(last, 2))
    assert (done, about["end"], about["accuracy"]) == (True, "done", success)
    assert reward == pytest.approx(success - 0.5 * 5 / 10)


def _said(text: str, tokens: int) -> Any:
    class Action(str):
        ids = tuple(range(tokens))

    return Action(text)


def test_spin_demonstrations_of_chats(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    pq.write_table(
        pa.Table.from_pylist([{"real": chat}, {"real": chat[:1]}, {"real": chat * 2}]), tmp_path / "x.parquet"
    )
    prepare, folder = _module("spin", "prepare"), tmp_path / "rows"
    prepare.main([str(tmp_path / "x.parquet"), str(folder)])
    rows = [json.loads(line) for name in ("test", "train") for line in (folder / f"{name}.jsonl").open()]
    assert rows == [{"prompt": chat[:1], "response": "Hello"}] * 2
    for wrong in ("none.parquet", "y.parquet"):
        pq.write_table(pa.Table.from_pylist([{"text": "x"}]), tmp_path / "y.parquet")
        with pytest.raises(SystemExit, match=r"there is no file|neither a column real nor messages"):
            prepare.main([str(tmp_path / wrong), str(folder)])


def test_conversations_of_gsm8k() -> None:
    row = _module("collabllm", "prepare").conversation("Tom has 3 pens. He buys 2. How many pens has he?", "5")
    assert row["prompt"].endswith("How many pens has he?")
    assert "3 pens" not in row["prompt"]
    assert "3 pens" in row["intent"]
