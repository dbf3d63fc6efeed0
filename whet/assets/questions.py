"""Questions of the built-in vision tasks, which only the picture answers.

Each function draws one question from a random number generator. The answers of a task are equally likely, so that a
model that ignores the picture is right as often as one that guesses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from random import Random

from PIL import Image

from whet.assets.drawing import COLOURS, KINDS, SIDE, Point, Shape, draw, draw_triangle, scatter

IMAGE, VIDEO = "<image>", "<video>"

COUNTS = tuple("12345")
PLACES = tuple(f"{row} {column}" for row in ("top", "bottom") for column in ("left", "right"))
ANGLES = ("30", "60", "90", "120")
MORE = ("first", "second", "neither")
MOTIONS = ("left", "right", "up", "down")

TEST_ROWS = 200
FRAMES = 4
FRAME_SIDE = 56


@dataclass(frozen=True, slots=True)
class Question:
    """One question about pictures; `stem` is what a reply in the right form says before the answer."""

    problem: str
    answer: str
    answers: tuple[str, ...]
    images: list[Image.Image] = field(default_factory=list)
    frames: list[Image.Image] = field(default_factory=list)
    stem: str = "Answer: "
    end: str = ""

    @property
    def pixels(self) -> bytes:
        """Return the bytes of all pictures, to tell tasks apart."""
        return b"".join(picture.tobytes() for picture in (*self.images, *self.frames))

    def reply(self, rng: Random, looks: float) -> str:
        """Return a demonstration: the right answer with this probability, otherwise a guess."""
        said = self.answer if rng.random() < looks else rng.choice(self.answers)
        return f"{self.stem}{said}{self.end}"


def count(rng: Random) -> Question:
    """Ask for the number of shapes of one colour."""
    colour, answer = rng.choice(list(COLOURS)), rng.choice(COUNTS)
    shapes = _some(rng, colour, int(answer))
    return Question(f"{IMAGE}How many {colour} shapes are there?", answer, COUNTS, [draw(shapes)])


def locate(rng: Random) -> Question:
    """Ask for the quarter of the picture that holds the only shape of a colour; the reply is a sentence."""
    colour, answer = rng.choice(list(COLOURS)), rng.choice(PLACES)
    while True:
        shapes = _some(rng, colour, 1)
        (one,) = (shape for shape in shapes if shape.colour == colour)
        clear = min(abs(one.x - SIDE / 2), abs(one.y - SIDE / 2)) > 10  # a shape between two quarters is in neither
        if clear and _quarter(one) == answer:
            problem, stem = f"{IMAGE}Where is the {colour} shape?", f"The {colour} shape is at the "
            return Question(problem, answer, PLACES, [draw(shapes)], stem=stem, end=".")


def more(rng: Random) -> Question:
    """Ask which of two pictures has more shapes of one colour."""
    colour, answer = rng.choice(list(COLOURS)), rng.choice(MORE)
    few, many = sorted(rng.sample(range(1, 5), 2))
    numbers = {"first": (many, few), "second": (few, many), "neither": (few, few)}[answer]
    images = [draw(_some(rng, colour, number)) for number in numbers]
    return Question(f"{IMAGE}{IMAGE}Which image has more {colour} shapes?", answer, MORE, images)


def angle(rng: Random) -> Question:
    """Ask for the size of the marked angle of a triangle."""
    answer = rng.choice(ANGLES)
    corners = _triangle(rng, math.radians(int(answer)))
    return Question(f"{IMAGE}How many degrees has the marked angle?", answer, ANGLES, [draw_triangle(corners)])


def motion(rng: Random) -> Question:
    """Ask for the direction in which a dot moves."""
    answer = rng.choice(MOTIONS)
    dx, dy = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}[answer]
    colour, kind, speed = rng.choice(list(COLOURS)), rng.choice(KINDS), rng.uniform(9, 11)
    margin, way = 9.0, speed * (FRAMES - 1)
    x, y = (
        rng.uniform(margin + max(0.0, -step * way), FRAME_SIDE - margin - max(0.0, step * way)) for step in (dx, dy)
    )
    places = [(x + dx * speed * i, y + dy * speed * i) for i in range(FRAMES)]
    frames = [draw([Shape(kind, colour, *place, 7.0)], FRAME_SIDE) for place in places]
    return Question(f"{VIDEO}Which way does the shape move?", answer, MOTIONS, frames=frames)


TASKS: dict[str, Callable[[Random], Question]] = {
    "count": count,
    "locate": locate,
    "angle": angle,
    "more": more,
    "motion": motion,
}


def ask(task: str, rng: Random, hidden: Collection[bytes] = ()) -> Question:
    """A question of `task` whose pictures are none of the hidden ones."""
    while True:
        question = TASKS[task](rng)
        if question.pixels not in hidden:
            return question


def held_out(task: str, seed: int) -> list[Question]:
    """The questions that a task is tested with."""
    rng = Random(f"{task} test {seed}")
    return [ask(task, rng) for _ in range(TEST_ROWS)]


def _some(rng: Random, colour: str, number: int) -> list[Shape]:
    """`number` shapes of `colour` among up to four of other colours."""
    others = [name for name in COLOURS if name != colour]
    colours = [colour] * number + [rng.choice(others) for _ in range(rng.randint(0, 4))]
    rng.shuffle(colours)
    return scatter(rng, colours)


def _quarter(shape: Shape) -> str:
    return f"{'top' if shape.y < SIDE / 2 else 'bottom'} {'left' if shape.x < SIDE / 2 else 'right'}"


def _triangle(rng: Random, angle: float) -> Sequence[Point]:
    """Corners of a triangle with `angle` at the first, turned a little and placed at random inside the picture."""
    turn = rng.uniform(-0.2, 0.2) - angle
    sides = [(rng.uniform(36, 54), turn), (rng.uniform(36, 54), turn + angle)]
    corners = [(0.0, 0.0), *((length * math.cos(way), length * math.sin(way)) for length, way in sides)]
    shifts = []
    for values in zip(*corners):
        low, high = 7 - min(values), SIDE - 7 - max(values)
        if low > high:
            return _triangle(rng, angle)
        shifts.append(rng.uniform(low, high))
    return [(x + shifts[0], y + shifts[1]) for x, y in corners]
