"""Files of whet that one training step runs through.

    python bench/step_files.py                       # the quickstart
    python bench/step_files.py --list worker.rollout.name=hf

Runs `whet train` for four steps in a fresh process and notes every file of whet in which a function, generator or
coroutine begins or goes on, in any thread, between the start of the third step and that of the fourth: sampling,
scoring, the update, metrics and the sample log, without validation and checkpoints. Processes that the run starts
(reward workers, ranks) are not looked into. Further arguments are keys of the config; `--list` prints every file.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

MOST_FILES = 35  # that a step of the quickstart may run through
_STEPS = ("trainer.max_steps=4", "trainer.val_freq=-1", "trainer.val_before_train=false", "trainer.save_freq=-1")
_RUN = """
import json, sys, threading
from whet.cli import main
from whet.training.trainer import Trainer

step, steps, seen = Trainer.train_step.__code__, 0, {}

def watch(frame, event, argument):
    global steps
    code = frame.f_code
    if code is step and event == "call":
        steps += 1
    elif steps == 3 and event == "call":
        seen.setdefault(code.co_filename, set()).add(code.co_qualname)

threading.setprofile(watch)  # threads that begin from now on
sys.setprofile(watch)
code = main(sys.argv[2:])
sys.setprofile(None)
assert steps == 4, steps
json.dump({name: sorted(calls) for name, calls in seen.items()}, open(sys.argv[1], "w"))
sys.exit(code)
"""


def visited(arguments: list[str]) -> dict[str, list[str]]:
    """Run `whet` with these arguments; the functions that its third step called, by file of the package."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "files.json"
        subprocess.run([sys.executable, "-c", _RUN, str(found), *arguments], check=True)
        seen = json.loads(found.read_text())
    inside = {name: calls for name, calls in seen.items() if "/whet/" in name and "/site-packages/" not in name}
    return {f"whet/{name.rpartition('/whet/')[2]}": calls for name, calls in inside.items()}


def quickstart(keys: list[str], folder: str) -> list[str]:
    """The arguments of four steps of the quickstart, with further keys, in a run folder of its own."""
    return ["train", *_STEPS, "trainer.quiet=true", f"trainer.save_checkpoint_path={folder}", *keys]


def main(arguments: list[str]) -> int:
    """Print how many files a step runs through; 1 if the quickstart's are too many."""
    keys = [each for each in arguments if each != "--list"]
    with tempfile.TemporaryDirectory() as folder:
        files = visited(quickstart(keys, folder))
    if "--list" in arguments:
        for name in sorted(files):
            print(f"{name}: {', '.join(files[name])}")
    print(f"{len(files)} files in one step")
    return int(not keys and len(files) > MOST_FILES)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
