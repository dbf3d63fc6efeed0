"""Pictures show what the answers say: each is read back from the pixels."""

import math
from collections import Counter
from random import Random

import numpy as np
import pytest

from whet.assets import questions
from whet.assets.drawing import COLOURS, SIDE


def places_of(picture, colour):
    """(rows, columns) of the pixels of a colour."""
    return np.nonzero((np.asarray(picture, dtype=int) == COLOURS[colour]).all(axis=-1))


def patches_of(picture, colour):
    """How many separate patches of a colour a picture has."""
    left = set(zip(*(axis.tolist() for axis in places_of(picture, colour))))
    patches = 0
    while left:
        patches += 1
        edge = [left.pop()]
        while edge:
            y, x = edge.pop()
            near = {(y + dy, x + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)} & left
            left -= near
            edge += near
    return patches


def centre_of(picture, colour):
    rows, columns = places_of(picture, colour)
    return columns.mean(), rows.mean()


def colour_in(text):
    return next(colour for colour in COLOURS if colour in text)


def draw(task, number=25):
    rng = Random(7)
    return [questions.TASKS[task](rng) for _ in range(number)]


def test_counts_are_those_of_the_picture():
    for question in draw("count"):
        assert patches_of(question.images[0], colour_in(question.problem)) == int(question.answer)


def test_places_are_those_of_the_picture():
    for question in draw("locate"):
        colour = colour_in(question.problem)
        assert patches_of(question.images[0], colour) == 1
        x, y = centre_of(question.images[0], colour)
        vertical, horizontal = question.answer.split()
        assert (vertical == "top") == (y < SIDE / 2)
        assert (horizontal == "left") == (x < SIDE / 2)
        assert question.reply(Random(1), looks=1.0) == f"The {colour} shape is at the {question.answer}."


def test_the_image_with_more_has_more():
    for question in draw("more"):
        first, second = (patches_of(image, colour_in(question.problem)) for image in question.images)
        assert question.answer == ("first" if first > second else "second" if second > first else "neither")


def test_angles_are_those_between_the_sides_at_the_marked_corner():
    for degrees in map(int, questions.ANGLES):
        corner, one, other = questions._triangle(Random(degrees), math.radians(degrees))
        ways = [math.atan2(end[1] - corner[1], end[0] - corner[0]) for end in (one, other)]
        assert math.degrees(ways[1] - ways[0]) == pytest.approx(degrees)
        assert all(0 < value < SIDE for point in (corner, one, other) for value in point)
    for question in draw("angle"):
        assert patches_of(question.images[0], "red") == 1


def test_the_shape_moves_where_the_answer_says():
    for question in draw("motion"):
        assert len(question.frames) == questions.FRAMES
        colour = next(name for name in COLOURS if len(places_of(question.frames[0], name)[0]))
        (x, y), (to_x, to_y) = (centre_of(question.frames[at], colour) for at in (0, -1))
        ways = {"left": x - to_x, "right": to_x - x, "up": y - to_y, "down": to_y - y}
        assert max(ways, key=ways.get) == question.answer


@pytest.mark.parametrize("task", questions.TASKS)
def test_answers_are_equally_likely(task):
    found = Counter(question.answer for question in draw(task, 1000))
    answers = draw(task, 1)[0].answers
    assert set(found) == set(answers)
    assert all(abs(count * len(answers) / 1000 - 1) < 0.25 for count in found.values())


def test_demonstrators_look_as_often_as_they_are_told():
    (question,) = draw("count", 1)
    rng = Random(1)
    right = sum(question.reply(rng, looks=0.5) == f"Answer: {question.answer}" for _ in range(2000)) / 2000
    assert abs(right - (0.5 + 0.5 / len(question.answers))) < 0.04
