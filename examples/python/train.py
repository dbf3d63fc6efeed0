"""Train from Python: rows, the reward and the template are Python objects.

    python examples/python/train.py

The built-in model of 0.13 million parameters learns to sort digits, in about a minute on two cores.
"""

import random
import sys

import whet


def problems(count: int, seed: int) -> list[dict]:
    """Rows of data: any dicts, with the prompt and what the reward needs to know."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        digits = draw.sample("0123456789", draw.randint(4, 6))
        rows.append({"prompt": f"Sort these digits: {' '.join(digits)}", "answer": " ".join(sorted(digits))})
    return rows


def reward(response: str, answer: str) -> dict:
    """Score one response. It runs in worker processes with a timeout; a crash costs one sample and not the run."""
    form = response.strip().startswith("Answer: ")
    right = response.strip() == f"Answer: {answer}"
    return {"overall": 0.9 * right + 0.1 * form, "accuracy": float(right)}


def main(steps: int = 50) -> None:
    run = whet.train(
        model="whet/quickstart",
        data=problems(2000, seed=0),
        val_data=problems(100, seed=1),
        reward=reward,
        template='{{ content }}\nBegin with "Answer:"',
        steps=steps,
        batch_size=32,
        n=8,
        lr=1e-3,
        kl=0,
        max_prompt_length=32,
        max_response_length=16,
    )
    print(run.metrics)
    run.plot("reward/overall", "val/accuracy").save(run.folder / "reward.svg")
    print(run.generate("Sort these digits: 5 2 9 1 7", temperature=0)["response"][0])


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
