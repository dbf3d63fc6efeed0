"""Counts told in free words: what the replies say, what is paid for."""

import importlib.util
import io
import math
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pyarrow.parquet as pq
import pytest
from assets.test_questions import colour_in, patches_of
from PIL import Image
from transformers import AutoTokenizer

from whet.assets import builtin, sentences
from whet.assets.questions import COUNTS, TEST_ROWS
from whet.assets.store import recipes
from whet.assets.vision import TRAIN_ROWS
from whet.assets.warm_start.pictures import Encoder
from whet.config.schema.data import DataConfig
from whet.data.dataset import PromptDataset
from whet.model.load import load_model, load_model_config
from whet.model.processor import load_processor

REWARD = Path(__file__).parents[2] / "examples" / "reward_function" / "shapes.py"
PARTS = ("train", "test", "blank")
FREE = (
    sentences.OPENINGS,
    sentences.WHOSE,
    sentences.PICTURES,
    sentences.HOW,
    sentences.SHOWS,
    sentences.WHOM,
    sentences.THINGS,
    sentences.WHERE,
    sentences.CLOSINGS,
)


@pytest.fixture(scope="module")
def folder(whet_home):
    return builtin("whet/sentences", print)


@pytest.fixture(scope="module")
def paid():
    spec = importlib.util.spec_from_file_location("shapes_reward", REWARD)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def one(response, truth):
        (score,) = module.compute_told([{"response": response, "ground_truth": truth}])
        assert score["overall"] == score["accuracy"]
        return score["accuracy"]

    return one


def test_the_number_is_that_of_the_picture_and_is_what_is_paid_for(paid):
    rng = Random(3)
    for question in sentences.draw_questions("a test", 20):
        colour = colour_in(question.problem)
        assert patches_of(question.images[0], colour) == int(question.answer)
        reply = question.reply(rng, looks=1.0)
        assert f" {question.answer} {colour} " in reply
        assert paid(reply, question.answer) == 1.0
        for other in set(COUNTS) - {question.answer}:
            assert paid(reply.replace(question.answer, other), question.answer) == 0.0


def test_no_number_and_several_are_not_paid_for(paid):
    assert paid("3", "3") == 1.0
    for response in ("", "Well, this picture plainly shows me red shapes.", "3 or 4", "3 and 3", "33", "13"):
        assert paid(response, "3") == 0.0


def test_words_around_the_number_are_drawn_whatever_there_is_to_see():
    rng, (question,) = Random(5), sentences.draw_questions("a test", 1)
    replies = [question.reply(rng, looks=1.0).replace(",", "").rstrip(".").split() for _ in range(3000)]
    places = [Counter(words) for words in zip(*replies)]
    assert [len(each) for each in places] == [6, 6, 6, 6, 6, 6, 1, 1, 6, 6, 6]
    free = [each for each in places if len(each) > 1]
    for found, words in zip(free, FREE):
        assert set(found) == set(words)
        assert all(abs(count * 6 / 3000 - 1) < 0.25 for count in found.values())
    assert len(free) * math.log(6) > 9 * math.log(len(COUNTS))  # against the entropy of a guessed number


def test_demonstrators_look_as_often_as_they_are_told(paid):
    rng, (question,) = Random(1), sentences.draw_questions("a test", 1)
    right = sum(paid(question.reply(rng, looks=0.5), question.answer) for _ in range(2000)) / 2000
    assert abs(right - (0.5 + 0.5 / len(COUNTS))) < 0.04


def test_rows_have_pictures_of_their_own_and_blanks_nothing_to_see(folder):
    train, test, blank = (pq.read_table(folder / f"{part}.parquet").to_pylist() for part in PARTS)
    assert (len(train), len(test), len(blank)) == (TRAIN_ROWS, TEST_ROWS, TEST_ROWS)
    seen, held_out = ({row["images"][0]["bytes"] for row in rows} for rows in (train, test))
    assert not seen & held_out
    assert [row["answer"] for row in test] == [row["answer"] for row in blank]
    decoded = np.asarray(Image.open(io.BytesIO(blank[0]["images"][0]["bytes"])))
    assert (decoded == decoded[0, 0]).all()


def test_every_word_of_a_reply_is_one_token(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    rng = Random(2)
    for question in sentences.draw_questions("a test", 20):
        assert len(tokenizer(question.reply(rng, looks=0.0))["input_ids"]) == 14  # and its end


def test_the_warm_start_shows_what_a_run_shows(folder):
    path = str(folder / "model")
    tokenizer = AutoTokenizer.from_pretrained(path)
    processor = load_processor(path, load_model_config(path), tokenizer)
    settings = DataConfig(prompt_key="problem", min_pixels=784, max_pixels=50176)
    prompt = PromptDataset(str(folder / "test.parquet"), settings, tokenizer, processor=processor)[3]
    question = list(sentences.draw_questions("test", 4))[3]
    shown = Encoder(load_model(path), tokenizer, sentences.QWEN2_5)(question)
    assert shown.ids.tolist() == prompt.ids
    assert np.allclose(prompt.media.inputs["pixel_values"], shown.pixels, atol=1e-5)


def test_it_has_a_version_of_its_own():
    known = recipes()
    assert known["sentences"].splits == PARTS
    assert known["sentences"].version not in {recipe.version for name, recipe in known.items() if name != "sentences"}
