"""Collect shapes: the policy sees one at a time and names it; if it is right, the next one appears."""

from whet.assets.collect import QUESTION, Board


class Collect:
    """One board; each sample of the policy's has its own."""

    def __init__(self, shapes: int = 3, turns: int = 5) -> None:
        self.shapes, self.left = shapes, turns

    def reset(self, prompt):
        """Begin with the board of the row's seed, and show a picture instead of the row's prompt."""
        self.board = Board(int(prompt.extra["seed"]), self.shapes)
        return [{"role": "user", "content": self._asked()}]

    def step(self, action):
        """Return observation, reward, done and info. A shape that is named earns its share of 1."""
        self.left -= 1
        reward = self.board.name(action.strip()) / self.shapes
        if self.board.names and self.left:
            return [{"role": "user", "content": self._asked()}], reward, False, {}
        won = not self.board.names
        return None, reward, True, {"accuracy": int(won), "end": "all named" if won else "out of turns"}

    def _asked(self):
        """Show a picture, and ask as the model was taught to be asked."""
        return [{"type": "image", "image": self.board.picture()}, {"type": "text", "text": QUESTION}]
