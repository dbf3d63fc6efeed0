"""Guess a number: the environment knows it and answers "higher" or "lower" until the policy finds it or runs out."""

import re


class Guess:
    """One game; each sample of the policy's has its own."""

    def __init__(self, guesses: int = 6) -> None:
        self.left = guesses

    def reset(self, prompt):
        """Take the number from the row; the row's prompt stays as it is."""
        self.secret = int(prompt.extra["secret"])

    def step(self, action):
        """Return observation, reward, done and info."""
        self.left -= 1
        found = re.fullmatch(r"\s*(\d{1,4})\s*", action)
        if found is None:
            return None, 0.0, True, {"end": "no number", "accuracy": 0}
        guess = int(found[1])
        if guess == self.secret:
            return None, 1.0, True, {"end": "found", "accuracy": 1}
        if self.left == 0:
            return None, 0.0, True, {"end": "out of guesses", "accuracy": 0}
        return "higher" if guess < self.secret else "lower", 0.0, False, {}
