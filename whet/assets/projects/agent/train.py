"""The project from Python: `python train.py [STEPS]`."""

import sys

from env import Guess

import whet


def main(steps: int = 100) -> None:
    run = whet.train(env=Guess, config="config.yaml", output="run-python", steps=steps)
    print(run.metrics["val/accuracy"])
    print(run.plot().save("curves.svg"))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
