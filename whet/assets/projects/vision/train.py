"""The project from Python: `python train.py [STEPS]`."""

import sys

from reward import compute_score

import whet


def main(steps: int = 120) -> None:
    run = whet.train(reward=compute_score, config="config.yaml", output="run-python", steps=steps)
    print(run.metrics["val/accuracy"])
    print(run.plot().save("curves.svg"))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
