"""Animated pictures of a run's episodes: `python examples/games/replay.py RUN [--step 60] [--folder replays]`.

A simulated game follows from its seed and the actions, so that an episode is played again from what the run recorded:
the row of the data, and the policy's turns.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

FOLDER = Path(__file__).parent
sys.path.append(str(FOLDER))
import environments  # noqa: E402

from whet.config import Config, load_config, resolve_path  # noqa: E402
from whet.errors import UserError  # noqa: E402
from whet.types import Prompt  # noqa: E402

CLOSE_ENOUGH = 1e-6


def main(arguments: list[str] | None = None) -> int:
    """Write a picture of each chosen episode and print its name; 2 for bad input."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="a run folder")
    parser.add_argument("--step", type=int, help="the last one by default")
    parser.add_argument("--most", type=int, default=8, help="episodes")
    parser.add_argument("--folder", type=Path, default=Path("replays"))
    chosen = parser.parse_args(arguments)
    try:
        for text in replay(chosen.run, chosen.step, chosen.most, chosen.folder):
            print(text)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def replay(run: Path, step: int | None, most: int, folder: Path) -> list[str]:
    """Play episodes of a step again and return a line for each."""
    config = load_config([f"config={run / 'config.yaml'}"])
    name = str(config.worker.rollout.env).rpartition(":")[2]
    if name not in ("NumberGame", "TreeGame"):
        raise UserError(f"{run}: worker.rollout.env={config.worker.rollout.env} is no simulated game")
    pattern = "train_*.parquet" if step is None else f"train_{step:06d}.parquet"
    files = sorted((run / "samples").glob(pattern))
    if not files:
        raise UserError(f"{run / 'samples'} has no {pattern}")
    lines = []
    for sample in pq.read_table(files[-1]).to_pylist()[:most]:
        env = getattr(environments, name)(**{**config.worker.rollout.env_args, "replay": str(folder)})
        row = row_of(config, sample["uid"])
        env.reset(Prompt(f"{sample['uid']}-{sample['index']}", [], "", extra={"seed": row["seed"]}))
        earned = play(env, turns_of(sample["response"]))
        env.close()
        same = abs(earned - sum(sample["turn_rewards"])) < CLOSE_ENOUGH
        lines.append(f"seed {row['seed']}: {sample['end']}" + ("" if same else " (the replay earned something else)"))
    return lines


def play(env: Any, turns: list[str]) -> float:
    """Give an environment the turns of an episode; return what they earned."""
    earned = 0.0
    for turn in turns:
        _, reward, done, _ = env.step(turn)
        earned += reward
        if done:
            break
    return earned


def turns_of(response: str) -> list[str]:
    """Cut a response into the policy's turns: observations stand between them as turns of the user."""
    return [part.partition("\nuser\n")[0] for part in response.split("\nassistant\n")]


def row_of(config: Config, uid: str) -> dict[str, Any]:
    """Return the row that `FILE:NUMBER` names, of the config's training files."""
    name, _, number = uid.rpartition(":")
    given = config.data.train_files
    for each in given.split(","):
        path = resolve_path(config, each.strip())
        if path.name == Path(name).name and path.suffix == ".jsonl":
            return dict(json.loads(path.read_text(encoding="utf-8").splitlines()[int(number) - 1]))
    raise UserError(f"row {uid} is in none of data.train_files={given}: replays read .jsonl files")


if __name__ == "__main__":
    sys.exit(main())
