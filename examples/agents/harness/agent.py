"""Guess a number, as a program with OpenAI's client: it plays the game of examples/agents/game by itself.

    whet train config=examples/agents/harness/config.yaml

Nothing of whet is imported: with another base URL and key the same function plays with any model.
"""

import math
import re

from openai import AsyncOpenAI

HIGH, GUESSES = 60, 6
clients: dict[str, AsyncOpenAI] = {}


async def run(base_url: str, api_key: str, row: dict) -> dict:
    """Play one game; the reward is the share of what there is to know that the guesses brought."""
    if base_url not in clients:  # one for all games: making a client takes longer than a call
        clients[base_url] = AsyncOpenAI(base_url=base_url, api_key=api_key)
    client = clients[base_url].with_options(api_key=api_key)  # the key says which sample is calling
    secret, low, high = int(row["secret"]), 1, HIGH
    messages = list(row["messages"])
    for _ in range(GUESSES):
        answer = await client.chat.completions.create(model="policy", messages=messages)
        said = answer.choices[0].message
        found = re.fullmatch(r"\s*(\d{1,4})\s*", said.content or "")
        if found is None:
            return {"reward": -1.0, "accuracy": 0, "end": "no number"}
        guess = int(found[1])
        if guess == secret:
            return {"reward": 1.0, "accuracy": 1, "end": "found"}
        low, high = (max(low, guess + 1), high) if guess < secret else (low, min(high, guess - 1))
        messages += [said, {"role": "user", "content": "higher" if guess < secret else "lower"}]
    known = 1 - math.log(high - low + 1) / math.log(HIGH)
    return {"reward": known, "accuracy": 0, "end": "out of guesses"}
