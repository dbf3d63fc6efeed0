"""Write demonstrations of the games for `whet sft`: `python examples/games/demonstrate.py FOLDER`.

They teach the tiny vision model the form of an action and what a tile or a button is. The first demonstrators choose
the right one and the last ones choose any: what they leave is a model that writes `tap(x, y)` and touches tiles, but
plays no better than chance. That choosing pays is left for reinforcement learning to find.
"""

from __future__ import annotations

import argparse
import io
import sys
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

FOLDER = Path(__file__).parent
sys.path.append(str(FOLDER))
from environments import NumberGame, TreeGame  # noqa: E402
from phone.device import Device  # noqa: E402

from whet.config import load_config  # noqa: E402

FIRST_SEED = 1_000_000  # games that neither configs nor tests play
SCHEMA = pa.schema(
    [
        ("messages", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        ("images", pa.list_(pa.struct([("bytes", pa.binary())]))),
    ]
)


def main() -> None:
    """Write train.parquet and test.parquet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--right", type=int, default=4000, help="rows whose demonstrator chooses the right one")
    parser.add_argument("--any", type=int, default=2400, help="rows whose demonstrator chooses any, which come last")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    rng, seeds = Random(chosen.seed), iter(range(FIRST_SEED, FIRST_SEED * 2))
    for name, right, other in (("train", chosen.right, chosen.any), ("test", 0, 64)):
        rows = [demonstration(rng, next(seeds), knows=i < right) for i in range(right + other)]
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), chosen.folder / f"{name}.parquet")
    print(f"{chosen.right + chosen.any} demonstrations: {chosen.folder / 'train.parquet'}")


def demonstration(rng: Random, seed: int, knows: bool) -> dict[str, Any]:
    """Play a game right for some turns and end with one turn more, of a demonstrator who knows or does not."""
    kind = NumberGame if rng.random() < 0.65 else TreeGame
    options = tiny_options(kind)
    env, turns = kind(**options), options["count" if kind is NumberGame else "depth"]
    (message,) = env.reset(SimpleNamespace(extra={"seed": seed}, uid=str(seed), text="", messages=[]))
    image, text = message["content"]
    pictures, messages = [image["image"]], [{"role": "user", "content": f"<image>{text['text']}"}]
    for _ in range(rng.randrange(turns)):
        action = _tap(env.device, env.places()[0])
        messages.append({"role": "assistant", "content": action})
        picture, _, done, _ = env.step(action)
        assert not done
        pictures.append(picture)
        messages.append({"role": "user", "content": "<image>"})
    place = env.places()[0] if knows else rng.choice(env.places())
    messages.append({"role": "assistant", "content": _tap(env.device, place)})
    return {"messages": messages, "images": [{"bytes": _png(picture)} for picture in pictures]}


def tiny_options(kind: type) -> dict[str, Any]:
    """Return the options of the tiny config, with a phone that gives no trouble."""
    name = {NumberGame: "number_game", TreeGame: "tree_game"}[kind]
    if name not in _OPTIONS:
        rollout = load_config([f"config={FOLDER / name / 'config.yaml'}"]).worker.rollout
        _OPTIONS[name] = {**rollout.env_args, "trouble": None}
    return _OPTIONS[name]


_OPTIONS: dict[str, dict[str, Any]] = {}


def _tap(device: Device, place: tuple[float, float]) -> str:
    width, height = device.size()
    return f"tap({int(place[0] * width)}, {int(place[1] * height)})"


def _png(picture: Any) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG", compress_level=1)
    return buffer.getvalue()


if __name__ == "__main__":
    main()
