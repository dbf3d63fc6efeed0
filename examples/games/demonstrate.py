"""Write demonstrations of the games for `whet sft`: `python examples/games/demonstrate.py FOLDER`.

They teach the tiny vision model the form of an action and what it sees, and leave the game for reinforcement learning.
Number game: the first demonstrators touch the right place and the last ones touch any, in trees, too. Tree game:
questions ask where a colour is; who is told to open it touches any button.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

FOLDER = Path(__file__).parent
sys.path.append(str(FOLDER))
from environments import NumberGame, TreeGame  # noqa: E402

from whet.config import load_config  # noqa: E402

FIRST_SEED = 1_000_000  # games that neither configs nor tests play
TEST_ROWS = 64
SCHEMA = pa.schema(
    [
        ("messages", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        ("images", pa.list_(pa.struct([("bytes", pa.binary())]))),
    ]
)

Row = dict[str, Any]


def main() -> None:
    """Write train.parquet and test.parquet into a folder for each game."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    for name, rows in {"number_game": number_rows, "tree_game": tree_rows}.items():
        written = rows(Random(chosen.seed))
        folder = chosen.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        for part, some in (("train", written[:-TEST_ROWS]), ("test", written[-TEST_ROWS:])):
            pq.write_table(pa.Table.from_pylist(some, SCHEMA), folder / f"{part}.parquet")
        print(f"{len(written) - TEST_ROWS} demonstrations: {folder / 'train.parquet'}")


def number_rows(rng: Random) -> list[Row]:
    """Return turns of those who touch the right place, then of those who touch any; a third of them in trees."""
    seeds = count(FIRST_SEED)
    numbers = Demonstrator(NumberGame, "number_game", rng, seeds)
    trees = Demonstrator(TreeGame, "tree_game", rng, seeds, guided=False)
    rows, right, other = [], 4000, 2400 + TEST_ROWS
    for i in range(right + other):
        demonstrator = numbers if rng.random() < 0.65 else trees
        rows.append(demonstrator.played(demonstrator.before(), knows=i < right))
    return rows


def tree_rows(rng: Random) -> list[Row]:
    """Return questions about one screen, then about as many as a game has; last, those who touch any button, too."""
    demonstrator = Demonstrator(TreeGame, "tree_game", rng, count(FIRST_SEED))
    rows = [demonstrator.asked(0) for _ in range(22400)]
    rows += [demonstrator.asked(demonstrator.before()) for _ in range(3200)]
    for _ in range(1920 + TEST_ROWS):
        before, asks = demonstrator.before(), rng.random() < 0.25
        rows.append(demonstrator.asked(before) if asks else demonstrator.played(before, knows=False))
    return rows


class Demonstrator:
    """Conversations about games of the tiny config, each about a new one; the last turn is the one to learn."""

    def __init__(self, game: type, name: str, rng: Random, seeds: Iterator[int], **changed: Any) -> None:
        options = load_config([f"config={FOLDER / name / 'config.yaml'}"]).worker.rollout.env_args
        self._game, self._options, self._rng, self._seeds = game, {**options, **changed}, rng, seeds
        self._turns = options["count" if game is NumberGame else "depth"]

    def before(self) -> int:
        """Draw how many turns of a right game come before the one to learn."""
        return self._rng.randrange(self._turns)

    def played(self, before: int, knows: bool) -> Row:
        """Play a game right for as many turns and end with one more, of a demonstrator who knows or does not."""
        env, said, picture = self._begin()
        row: Row = {"messages": [], "images": []}
        for turn in range(before + 1):
            action = f"tap{self._point(env, knows or turn < before)}"
            _add(row, said, picture, action)
            if turn < before:
                said, picture = _shown(env.step(action)[0])
        return row

    def asked(self, before: int) -> Row:
        """Ask where the button is that leads on, after as many other questions."""
        env, _, picture = self._begin()
        row: Row = {"messages": [], "images": []}
        for turn in range(before + 1):
            point = self._point(env, True)
            # "at (" has as many tokens as "tap(": the tiny model finds pictures by their distance.
            _add(row, f"Where is {env.wanted}?<image>", picture, f"at {point}")
            if turn < before:
                _, picture = _shown(env.step(f"tap{point}")[0])
        return row

    def _begin(self) -> tuple[Any, str, Any]:
        """Open a new game; return it with what is said at first and the screenshot."""
        env, seed = self._game(**self._options), next(self._seeds)
        (message,) = env.reset(SimpleNamespace(extra={"seed": seed}, uid=str(seed), text="", messages=[]))
        said = "".join("<image>" if part["type"] == "image" else part["text"] for part in message["content"])
        return env, said, next(part["image"] for part in message["content"] if part["type"] == "image")

    def _point(self, env: Any, right: bool) -> str:
        """Return the point of the right place, or of any."""
        x, y = env.places()[0] if right else self._rng.choice(env.places())
        width, height = env.device.size()
        return f"({int(x * width)}, {int(y * height)})"


def _shown(observation: Any) -> tuple[str, Any]:
    """Return the text and the screenshot of an observation."""
    return (
        (observation["text"], observation["images"][0]) if isinstance(observation, dict) else ("<image>", observation)
    )


def _add(row: Row, said: str, picture: Any, reply: str) -> None:
    """Append what was said and shown, and the reply."""
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG", compress_level=1)
    row["messages"] += [{"role": "user", "content": said}, {"role": "assistant", "content": reply}]
    row["images"].append({"bytes": buffer.getvalue()})


if __name__ == "__main__":
    main()
