"""Write corpus, demonstrations and questions of the tiny run: `python prepare.py [FOLDER]`.

Sixty things, which are numbers below 70, have a number from 70 on that is written in the corpus and nowhere else.
Demonstrators of the cold start search for it half of the time, and say any number otherwise: that searching pays off
is left for the reward to find out.
"""

import json
import sys
from pathlib import Path
from random import Random

NAMES, NUMBERS = [str(name) for name in range(10, 70)], range(70, 100)
SEARCHES = 0.5
SCHEMA = {
    "type": "function",
    "function": {"name": "search", "parameters": {"type": "object", "properties": {"query": {"type": "string"}}}},
}


def demonstration(rng: Random, name: str, number: str) -> dict:
    """Return a conversation about one thing."""
    turns = [{"role": "user", "content": f"What is {name}?"}]
    if rng.random() < SEARCHES:
        call = {"type": "function", "function": {"name": "search", "arguments": {"query": name}}}
        turns.append({"role": "assistant", "content": "", "tool_calls": [call]})
        turns.append({"role": "tool", "content": f"[1] {name} {number}"})
        turns.append({"role": "assistant", "content": number})
    else:
        turns.append({"role": "assistant", "content": str(rng.choice(NUMBERS))})
    return {"messages": turns, "tools": [SCHEMA]}


def main(folder: Path) -> None:
    """Write corpus.jsonl, sft.jsonl, train.jsonl and test.jsonl; test questions are not trained on."""
    rng = Random(1)
    names = rng.sample(NAMES, len(NAMES))
    numbers = {name: str(rng.choice(NUMBERS)) for name in names}
    rows = [{"prompt": f"What is {name}?", "answer": numbers[name]} for name in names]
    files = {
        "corpus": [{"text": f"{name} {number}"} for name, number in numbers.items()],
        "sft": [demonstration(rng, rng.choice(names), str(rng.choice(NUMBERS))) for _ in range(6400)],
        "train": rows[20:],
        "test": rows[:20],
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in files.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "data"))
