"""The built-in `whet/sentences`: counts in sentences of free words, of which one depends on the picture.

"Well, this picture plainly shows me 3 red figures here, indeed." Nine words of a reply are drawn among six each,
whatever there is to see, before and after the number: about ten times its entropy, and nothing that is rewarded. The
model's warm start is that of `whet/vision`, with these replies.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from whet.assets.questions import TEST_ROWS, Question, count
from whet.assets.vision import SCHEMA, SEED, TRAIN_ROWS, row
from whet.assets.vision_model import QWEN2_5, write_vision_folder

TASK = "tell"

# Each is as good as any other of its list.
OPENINGS = ("Well", "So", "Okay", "Right", "Now", "Hm")
WHOSE = ("this", "that", "the", "your", "our", "my")
PICTURES = ("picture", "image", "drawing", "scene", "sketch", "photo")
HOW = ("plainly", "clearly", "surely", "really", "simply", "just")
SHOWS = ("shows", "gives", "offers", "presents", "displays", "reveals")
WHOM = ("me", "us", "you", "one", "people", "everyone")
THINGS = ("shapes", "figures", "things", "forms", "objects", "items")
WHERE = ("here", "there", "inside", "altogether", "overall", "somewhere")
CLOSINGS = ("indeed", "friend", "yes", "thanks", "folks", "alright")


@dataclass(frozen=True, slots=True)
class SentenceQuestion(Question):
    """A question that is answered in a sentence of free words around a number."""

    colour: str = ""

    def reply(self, rng: Random, looks: float) -> str:
        """Return a demonstration: the right answer with this probability, otherwise a guess."""
        said = self.answer if rng.random() < looks else rng.choice(self.answers)
        before = [rng.choice(words) for words in (WHOSE, PICTURES, HOW, SHOWS, WHOM)]
        things, where = rng.choice(THINGS), rng.choice(WHERE)
        sentence = f"{' '.join(before)} {said} {self.colour} {things} {where}"
        return f"{rng.choice(OPENINGS)}, {sentence}, {rng.choice(CLOSINGS)}."


def ask_sentence(rng: Random) -> SentenceQuestion:
    """Ask for the number of shapes of one colour, in a sentence."""
    asked_for = count(rng)
    colour = asked_for.problem.split()[2]  # "<image>How many red shapes are there?"
    problem, answer, answers = asked_for.problem, asked_for.answer, asked_for.answers
    return SentenceQuestion(problem, answer, answers, asked_for.images, stem="", colour=colour)


def draw_questions(name: str, number: int, hidden: Collection[bytes] = ()) -> Iterator[SentenceQuestion]:
    """Questions drawn from the generator of this name, none about hidden pictures."""
    rng = Random(f"{TASK} {name} {SEED}")
    while number:
        question = ask_sentence(rng)
        if question.pixels not in hidden:
            number -= 1
            yield question


def make_sentences(folder: Path, say: Callable[[str], None]) -> None:
    """Write `train.parquet`, `test.parquet`, `blank.parquet` and the Hugging Face folder `model/` under `folder`."""
    test = list(draw_questions("test", TEST_ROWS))
    hidden = {question.pixels for question in test}
    train = list(draw_questions("train", TRAIN_ROWS, hidden))
    for part, questions, blanked in (("train", train, False), ("test", test, False), ("blank", test, True)):
        rows = [row(TASK, question, blanked) for question in questions]
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), folder / f"{part}.parquet")
    write_vision_folder("sentences", QWEN2_5, folder / "model")
