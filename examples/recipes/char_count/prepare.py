"""Write the rows of char_count: `python prepare.py [FOLDER] [--tiny]`.

A question names a letter and a word that is spelled out: "How many a are there in b-a-n-a?" A solution walks along the
word and keeps count, "b0a1n1a2 = 2", because a model of this size cannot count at a glance. Demonstrations for
the supervised stage are right only sometimes: what is left for reinforcement learning is to be right always.
"""

import argparse
import json
from pathlib import Path
from random import Random

LETTERS, LONGEST = "abcdefghijklmnopqrstuvwxyz", 12
TINY_LETTERS, TINY_LENGTH = "abcd", 5
RIGHT = 0.4  # share of demonstrations that count right


def question(letter: str, word: str) -> str:
    """Return the prompt."""
    return f"How many {letter} are there in {'-'.join(word)}?"


def solution(letter: str, word: str, wrong: int | None = None) -> str:
    """Return a walk along the word; from position `wrong` on the count is off by one."""
    count, steps = 0, []
    for i, each in enumerate(word):
        count += (each == letter) + (i == wrong)
        steps.append(f"{each}{count}")
    return f"{''.join(steps)} = {count}"


def draw(rng: Random, letters: str, lengths: tuple[int, int]) -> tuple[str, str]:
    """Return a letter and a word in which it may occur."""
    word = "".join(rng.choice(letters) for _ in range(rng.randint(*lengths)))
    return rng.choice(word if rng.random() < 0.8 else letters), word


def main() -> None:
    """Write sft.jsonl, train.jsonl and test.jsonl; no question of the last is in the others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default="data", type=Path)
    parser.add_argument("--tiny", action="store_true", help="words of five of four letters, fewer rows")
    arguments = parser.parse_args()
    letters, lengths = (TINY_LETTERS, (TINY_LENGTH, TINY_LENGTH)) if arguments.tiny else (LETTERS, (3, LONGEST))
    rng, held_out = Random(1), set()
    while len(held_out) < 100:
        held_out.add(draw(rng, letters, lengths))
    files = {"sft": [], "train": [], "test": sorted(held_out)}
    for name, count in {"sft": 3840 if arguments.tiny else 6400, "train": 2000}.items():
        while len(files[name]) < count:
            if (drawn := draw(rng, letters, lengths)) not in held_out:
                files[name].append(drawn)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name, drawn in files.items():
        lines = []
        for letter, word in drawn:
            wrong = None if rng.random() < RIGHT else rng.randrange(len(word))
            row = {"problem": question(letter, word), "answer": str(word.count(letter))}
            if name == "sft":
                row["response"] = solution(letter, word, wrong)
            lines.append(json.dumps(row) + "\n")
        (arguments.folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
