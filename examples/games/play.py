"""Let a model play: `python -m examples.games.play --simulated number_game`, or `--device emulator-5554` on a phone.

On a phone the model is given a goal (`--goal`), sees screenshots and answers with actions until it writes `done()` or
its turns are over. `--replay DIR` writes an animated picture of each episode.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from whet.errors import UserError

FOLDER = Path(__file__).parent
GAMES = ("number_game", "tree_game")
GOAL = "Play the game that you see."
PATIENCE = 3600.0  # seconds that an episode waits for the one before it


def main(arguments: list[str] | None = None) -> int:
    """Play and print what came of each episode; 0 if one was played to its end, 1 if all failed, 2 for bad input."""
    chosen = parser().parse_args(arguments)
    try:
        played = play(chosen)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for number, row in enumerate(played, start=1):
        earned = f"reward {row['env_reward'] or 0.0:.2f}, " if chosen.device is None else ""
        failed = f" (it failed: {row['failure']})" if row["failure"] else ""
        print(f"episode {number}: {row['end']}, {earned}{row['turns']} turns{failed}")
    return 0 if any(not row["failure"] for row in played) else 1


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    made = argparse.ArgumentParser(prog="python -m examples.games.play", description=__doc__.splitlines()[0])
    where = made.add_mutually_exclusive_group(required=True)
    where.add_argument("--device", metavar="SERIAL", help="an Android device, as `adb devices` lists it")
    where.add_argument("--simulated", choices=GAMES, metavar="GAME", help=" or ".join(GAMES))
    made.add_argument("--config", type=Path, help="model and limits; by default those of the game, or phone.yaml")
    made.add_argument("--model", help="another model: a folder, a run's checkpoint or a hub id")
    made.add_argument("--episodes", type=int, default=1)
    made.add_argument("--turns", type=int, help="actions of an episode")
    made.add_argument("--seed", type=int, default=0, help="of the first simulated game")
    made.add_argument("--goal", default=GOAL, help="on a device")
    made.add_argument("--app", help="package or package/activity that is started first, on a device")
    made.add_argument("--seconds", type=float, default=10.0, help="time limit of one call to the device")
    made.add_argument("--replay", type=Path, metavar="DIR", help="where to write animated pictures")
    return made


def play(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """Play the episodes that the arguments ask for; return a row for each, as `whet generate` writes them."""
    import whet

    config = chosen.config or FOLDER / (f"{chosen.simulated}/config.yaml" if chosen.simulated else "phone.yaml")
    if not config.is_file():
        raise UserError(f"--config: there is no file {config}")
    if chosen.episodes < 1 or (chosen.turns is not None and chosen.turns < 1):
        raise UserError("--episodes and --turns must be at least 1")
    seeds = range(chosen.seed, chosen.seed + chosen.episodes)
    rows = [{"prompt": chosen.goal, "seed": seed} for seed in seeds]
    overrides = {"worker.rollout.n": 1, **(_on_device(chosen) if chosen.device else {})}
    if chosen.turns is not None:
        overrides |= {"worker.rollout.max_turns": chosen.turns + 1, "worker.rollout.env_args.turns": chosen.turns}
    if chosen.replay is not None:
        overrides["worker.rollout.env_args.replay"] = str(chosen.replay)
    return list(whet.generate(chosen.model, rows, config=str(config), overrides=overrides))


def _on_device(chosen: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of a task on a real device, on which one episode is played after the other."""
    sys.path.append(str(FOLDER))
    from phone.adb import AndroidDevice
    from phone.device import DeviceError

    try:  # a device that is not there is named before a model is loaded
        AndroidDevice(chosen.device, chosen.seconds).size()
    except DeviceError as error:
        raise UserError(f"--device={error}") from error
    options = {"device": chosen.device, "app": chosen.app, "seconds": chosen.seconds, "patience": PATIENCE}
    return {
        "worker.rollout.env": f"{FOLDER / 'environments.py'}:PhoneTask",
        "worker.rollout.env_timeout": PATIENCE + 60,
        "worker.rollout.max_num_seqs": 1,
        **{f"worker.rollout.env_args.{name}": value for name, value in options.items()},
    }


if __name__ == "__main__":
    sys.exit(main())
