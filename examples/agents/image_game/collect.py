"""Collect shapes from a board: the policy says where a shape is; one that it has found is taken off the picture."""

from random import Random

from whet.assets.drawing import COLOURS, SIDE, Shape, draw

PLACES = {"top left": (0, 0), "top right": (1, 0), "bottom left": (0, 1), "bottom right": (1, 1)}


class Collect:
    """One board; each sample of the policy's has its own."""

    def __init__(self, shapes: int = 2, turns: int = 3) -> None:
        self.wanted, self.left = shapes, turns

    def reset(self, prompt):
        """Draw the board of the row's seed and show it instead of the row's prompt."""
        rng = Random(int(prompt.extra["seed"]))
        colours = rng.sample(list(COLOURS), self.wanted)
        places = rng.sample(list(PLACES), self.wanted)
        self.board = {colour: (place, self._shape(rng, colour, place)) for colour, place in zip(colours, places)}
        return [{"role": "user", "content": self._asked()}]

    def step(self, action):
        """Return observation, reward, done and info. A shape that is found earns its share of 1."""
        self.left -= 1
        place, _ = self.board[self.colour]
        found = action.strip() == f"The {self.colour} shape is at the {place}."
        if found:
            del self.board[self.colour]
        reward = found / self.wanted
        if not self.board or not self.left:
            info = {"accuracy": int(not self.board), "end": "all found" if not self.board else "out of turns"}
            return None, reward, True, info
        return [{"role": "user", "content": self._asked()}], reward, False, {}

    def _asked(self):
        """Ask for the first shape on the board, as the model was taught to be asked."""
        self.colour = next(iter(self.board))
        picture = draw([shape for _, shape in self.board.values()])
        return [{"type": "image", "image": picture}, {"type": "text", "text": f"Where is the {self.colour} shape?"}]

    @staticmethod
    def _shape(rng, colour, place):
        column, row = PLACES[place]
        x, y = ((0.25 + 0.5 * each) * SIDE + rng.uniform(-8, 8) for each in (column, row))
        return Shape(rng.choice(("circle", "square", "triangle")), colour, x, y, rng.uniform(7, 9))
