"""A training loop of your own: sample, score, update, save.

    python examples/python/custom_loop.py

This one has a curriculum: it starts with three digits to sort and adds one whenever most answers are right.
"""

import random
import sys

import whet

draw = random.Random(0)


def problem(length: int) -> dict:
    digits = draw.sample("0123456789", length)
    return {"prompt": f"Sort these digits: {' '.join(digits)}", "answer": " ".join(sorted(digits))}


def reward(response: str, answer: str) -> float:
    right = response.strip() == f"Answer: {answer}"
    return 0.9 * right + 0.1 * response.strip().startswith("Answer: ")


def main(steps: int = 40) -> None:
    settings = {"lr": 1e-3, "n": 8, "kl": 0, "max_prompt_length": 32, "max_response_length": 16}
    template = '{{ content }}\nBegin with "Answer:"'
    length = 3
    with whet.Session("whet/quickstart", reward, template=template, **settings) as session:
        for _ in range(steps):
            samples = session.sample([problem(length) for _ in range(32)])
            session.score(samples)
            metrics = session.update(samples)
            mean = metrics["reward/overall"]
            print(f"step {session.step}: {length} digits, reward {mean:.2f}")
            if mean > 0.75 and length < 8:
                length += 1
        print("saved", session.save())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
