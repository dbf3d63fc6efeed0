"""Write data/: pictures with four tiles, questions about them, and demonstrations of calls and answers.

A picture has 448 × 448 pixels, of which the tiny model is shown 56 × 56. A tile in each corner is a fine pattern of a
colour, whose mean is that of the ground: shown so small, hardly anything is left of it. The demonstrators say what they
see in an enlarged part; before they have looked, they guess or look anywhere.
"""

import io
from functools import cache
from itertools import product
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

SIDE, SHOWN, TILE = 448, 56, 64  # pixels; what the model is shown has SHOWN
SCALE = SIDE // SHOWN
GROUND = (124, 124, 124)
COLOURS = {"red": (216, 40, 40), "green": (40, 216, 40), "blue": (40, 40, 216), "white": (216, 216, 216)}
CORNERS = {"top left": (0, 0), "top right": (1, 0), "bottom left": (0, 1), "bottom right": (1, 1)}
SCHEMA = pa.schema(
    [
        ("problem", pa.string()),
        ("answer", pa.string()),
        ("messages", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        ("images", pa.list_(pa.struct([("bytes", pa.binary())]))),
        ("original", pa.binary()),
    ]
)


def tile(colour):
    """Return a tile: squares of 6 × 6 pixels every 8 pixels, on a colour that makes the mean that of the ground."""
    inside = COLOURS[colour]
    around = tuple(round((64 * ground - 36 * each) / 28) for ground, each in zip(GROUND, inside))
    made = Image.new("RGB", (TILE, TILE), around)
    for x in range(1, TILE, SCALE):
        for y in range(1, TILE, SCALE):
            made.paste(inside, (x, y, x + 6, y + 6))
    return made


@cache
def picture(colours):
    """Return a picture by the colours of its corners, as data files hold it."""
    made = Image.new("RGB", (SIDE, SIDE), GROUND)
    for colour, (right, low) in zip(colours, CORNERS.values()):
        made.paste(tile(colour), ((SIDE - TILE) * right, (SIDE - TILE) * low))
    return png(made)


@cache
def part(colour):
    """Return a corner as the environment shows it."""
    return png(tile(colour).resize((SHOWN, SHOWN)))


def question(corner):
    """Return the question about a corner."""
    return f"What colour is at the {corner}?<image>"


def call(corner):
    """Return the call that looks at a corner, in pixels of what the model is shown."""
    last, wide = (SIDE - TILE) // SCALE, TILE // SCALE
    x, y = (last * each for each in CORNERS[corner])
    return f"zoom({x}, {y}, {x + wide}, {y + wide})"


def png(image):
    """Return an image as data files hold it."""
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return {"bytes": buffer.getvalue()}


def row(rng, pictures):
    """Return a question with its answer."""
    colours, (corner, colour) = drawn(rng, pictures)
    made = picture(colours)
    return {"problem": question(corner), "answer": colour, "images": [made], "original": made["bytes"]}


def lesson(rng, pictures):
    """Return a demonstration of one who sees, or who is told where to look."""
    return demonstration(rng, pictures, ("sees", "told"))


def demonstration(rng, pictures, kinds=("sees",) * 7 + ("told",) * 4 + ("looks",) * 5 + ("guesses",) * 4):
    """Return a conversation, of which the last turn is to be learned."""
    colours, (asked, _) = drawn(rng, pictures)
    looked, colour = rng.choice(list(zip(CORNERS, colours)))
    said, images, kind = [question(asked)], [picture(colours)], rng.choice(kinds)
    if kind == "told":
        said, looked = [f"Zoom in at the {asked}.<image>"], asked
    said.append(f"Answer: {rng.choice(list(COLOURS))}" if kind == "guesses" else call(looked))
    if kind == "sees":
        said += ["This is that part of the image:<image>", f"Answer: {colour}"]
        images.append(part(colour))
    messages = [{"role": ("user", "assistant")[i % 2], "content": each} for i, each in enumerate(said)]
    return {"messages": messages, "images": images}


def drawn(rng, pictures):
    """Return the colours of a picture, and one of its corners with its colour."""
    colours = rng.choice(pictures)
    return colours, rng.choice(list(zip(CORNERS, colours)))


def main():
    """Write the files; pictures of the test are not in the others."""
    Path("data").mkdir(exist_ok=True)
    pictures = list(product(COLOURS, repeat=4))
    Random(1).shuffle(pictures)
    seen, unseen = pictures[:200], pictures[200:]
    for name, some, parts in (
        ("train", seen, ((row, 2000),)),
        ("test", unseen, ((row, 200),)),
        ("demonstrations", seen, ((lesson, 2400), (demonstration, 2400))),
        ("check", unseen, ((demonstration, 64),)),
    ):
        rng = Random(f"deepeyes {name}")
        rows = [make(rng, some) for make, count in parts for _ in range(count)]
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), f"data/{name}.parquet")


if __name__ == "__main__":
    main()
