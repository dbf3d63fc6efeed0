"""Write rows in the format of EasyR1's android_gui example: `python examples/games/android_gui/make_data.py FOLDER`.

A screenshot has a traffic light and three cards with numbers. Green asks for the largest number, red for the smallest,
yellow for the one between; the answer is the card's place: "0", "1" or "2". Columns are problem, answer and images.
"""

from __future__ import annotations

import argparse
import io
import sys
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image, ImageDraw

sys.path.append(str(Path(__file__).parents[1]))
from phone.drawing import GROUND, button

PROBLEM = "<image>Which card is right?"
LIGHTS = {"red": (240, 30, 30), "yellow": (240, 210, 20), "green": (20, 200, 50)}  # smallest, middle, largest
OFF = (60, 58, 54)
SCHEMA = pa.schema(
    [
        ("problem", pa.string()),
        ("answer", pa.string()),
        ("images", pa.list_(pa.struct([("bytes", pa.binary())]))),
        ("data_source", pa.string()),
    ]
)


def main() -> None:
    """Write train.parquet and test.parquet, without a screen in common."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--train", type=int, default=1000, help="rows to train on")
    parser.add_argument("--test", type=int, default=100, help="rows to test with")
    parser.add_argument("--size", type=int, nargs=2, default=(392, 784), metavar=("WIDTH", "HEIGHT"))
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    rng, seen = Random(chosen.seed), set[tuple[str, tuple[int, ...]]]()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("test", chosen.test), ("train", chosen.train)):
        rows = []
        while len(rows) < count:
            light, numbers = rng.choice(list(LIGHTS)), tuple(rng.sample(range(100), 3))
            if (light, numbers) not in seen:
                seen.add((light, numbers))
                rows.append(row(light, numbers, tuple(chosen.size)))
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), chosen.folder / f"{name}.parquet")


def row(light: str, numbers: tuple[int, ...], size: tuple[int, int]) -> dict[str, object]:
    """Return one row of the data."""
    buffer = io.BytesIO()
    draw(light, numbers, size).save(buffer, format="PNG")
    answer = str(numbers.index(sorted(numbers)[list(LIGHTS).index(light)]))
    return {
        "problem": PROBLEM,
        "answer": answer,
        "images": [{"bytes": buffer.getvalue()}],
        "data_source": "android_gui",
    }


def draw(light: str, numbers: tuple[int, ...], size: tuple[int, int]) -> Image.Image:
    """Draw the traffic light above the three cards."""
    width, height = size
    picture = Image.new("RGB", size, GROUND)
    pen = ImageDraw.Draw(picture)
    for at, (name, colour) in enumerate(LIGHTS.items()):
        x, y, radius = width * (at + 1) / 4, height * 0.2, min(width, height) / 10
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour if name == light else OFF)
    for at, number in enumerate(numbers):
        box = (width * (at + 0.1) / 3, height * 0.45, width * (at + 0.9) / 3, height * 0.7)
        button(pen, box, (250, 250, 250), str(number))
    return picture


if __name__ == "__main__":
    main()
