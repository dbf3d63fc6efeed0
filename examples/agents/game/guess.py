"""Guess a number: the environment knows it and answers "higher" or "lower" until the policy finds it or runs out."""

import math
import re


class Guess:
    """One game; each sample of the policy's has its own."""

    def __init__(self, high: int = 15, guesses: int = 4) -> None:
        self.low, self.high, self.left = 1, high, guesses
        self.scale = math.log(high)

    def reset(self, prompt):
        """Take the number from the row; the row's prompt stays as it is."""
        self.secret = int(prompt.extra["secret"])

    def step(self, action):
        """Return observation, reward, done and info.

        A turn earns half the share that it brought of what there is to know; the other half is for saying the number,
        since one who knows it and does not say it has lost. A game that is won earns 1 in all.
        """
        self.left -= 1
        found = re.fullmatch(r"\s*(\d{1,4})\s*", action)
        if found is None:
            return None, -1.0, True, {"end": "no number", "accuracy": 0}
        guess, before = int(found[1]), self.high - self.low + 1
        if guess == self.secret:
            return None, 0.5 + 0.5 * math.log(before) / self.scale, True, {"end": "found", "accuracy": 1}
        if guess < self.secret:
            self.low = max(self.low, guess + 1)
        else:
            self.high = min(self.high, guess - 1)
        reward = 0.5 * math.log(before / (self.high - self.low + 1)) / self.scale
        if self.left == 0:
            return None, reward, True, {"end": "out of guesses", "accuracy": 0}
        return "higher" if guess < self.secret else "lower", reward, False, {}
