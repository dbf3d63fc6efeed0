"""The tree game: screens with a button for each branch, and a leaf that is to be found."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from phone.drawing import COLOURS, GROUND, button
from PIL import Image, ImageDraw

from whet.errors import UserError

# Things by their kinds: who knows the words knows the way.
WORDS = {
    "animals": {
        "birds": ("owl", "eagle", "swan"),
        "fish": ("trout", "shark", "tuna"),
        "insects": ("bee", "ant", "moth"),
    },
    "plants": {
        "trees": ("oak", "birch", "pine"),
        "flowers": ("rose", "tulip", "daisy"),
        "fruit": ("apple", "plum", "lemon"),
    },
    "things": {
        "tools": ("hammer", "saw", "drill"),
        "clothes": ("hat", "coat", "sock"),
        "vehicles": ("train", "truck", "ship"),
    },
}
NAMES = ("words", "colours")
HEAD = 0.14  # of the height, for the name of the screen
PLAIN = (200, 205, 215)


@dataclass(slots=True)
class Node:
    """A screen, or, without branches, a leaf."""

    name: str
    branches: list[Node] = field(default_factory=list)
    above: Node | None = None

    @property
    def path(self) -> list[str]:
        """Return the names from the first branch down to this one."""
        return [] if self.above is None else [*self.above.path, self.name]


class TreeMenu:
    """An app for the simulated device. A button opens its branch; the key "back" leads to the screen above."""

    def __init__(self, seed: int, depth: int = 3, branches: int = 3, names: str = "words") -> None:
        most = 3 if names == "words" else len(COLOURS)
        if names not in NAMES:
            raise UserError(f"names={names!r}: choose from {', '.join(NAMES)}")
        if not 1 <= depth <= (3 if names == "words" else 6) or not 2 <= branches <= most:
            raise UserError(f"depth={depth}, branches={branches}: {names} have 2 to {most} branches and fewer levels")
        rng = Random(f"tree game {seed}")
        self.root = _grown(rng, depth, branches, names)
        self.here, self.head = self.root, names == "words"
        self.leaf = self.root
        while self.leaf.branches:
            self.leaf = rng.choice(self.leaf.branches)

    @property
    def distance(self) -> int:
        """Return how many steps the leaf is away: up to the last common screen, then down."""
        here, there = self.here.path, self.leaf.path
        shared = 0
        while shared < min(len(here), len(there)) and here[shared] == there[shared]:
            shared += 1
        return len(here) + len(there) - 2 * shared

    def tap(self, x: float, y: float) -> bool:
        """Open the branch whose button was touched."""
        for node, (left, top, right, bottom) in zip(self.here.branches, self.boxes()):
            if left <= x <= right and top <= y <= bottom:
                self.here = node
                return True
        return False

    def key(self, name: str) -> bool:
        """Go up."""
        if name != "back" or self.here.above is None:
            return False
        self.here = self.here.above
        return True

    def boxes(self) -> list[tuple[float, float, float, float]]:
        """Return left, top, right and bottom of this screen's buttons, in fractions of the screen."""
        first = HEAD if self.head else 0.0
        many = max(1, len(self.here.branches))
        high = (1 - first) / many
        return [(0.06, first + high * (i + 0.08), 0.94, first + high * (i + 0.92)) for i in range(many)]

    def draw(self, size: tuple[int, int]) -> Image.Image:
        """Draw the screen's name and its buttons; a leaf shows its name alone."""
        width, height = size
        picture = Image.new("RGB", size, GROUND)
        pen = ImageDraw.Draw(picture)
        if self.head:
            title = self.here.name or "start"
            button(pen, (0, 0, width, HEAD * height), (50, 60, 80), title)
        for node, (left, top, right, bottom) in zip(self.here.branches, self.boxes()):
            box = (left * width, top * height, right * width, bottom * height)
            button(pen, box, COLOURS.get(node.name, PLAIN), node.name)
        return picture


def _grown(rng: Random, depth: int, branches: int, names: str) -> Node:
    """Return the root of a tree whose names and their order are drawn."""
    root = Node("")
    _grow(rng, root, depth, branches, WORDS if names == "words" else None)
    return root


def _grow(rng: Random, node: Node, depth: int, branches: int, words: object) -> None:
    if not depth:
        return
    known = list(words) if isinstance(words, dict | tuple) else list(COLOURS)
    # The tiny model knows the first four colours; more branches than that use others, too.
    known = known if words is not None else known[: max(4, branches)]
    for name in rng.sample(known, branches):
        branch = Node(name, above=node)
        node.branches.append(branch)
        _grow(rng, branch, depth - 1, branches, words[name] if isinstance(words, dict) else words and ())
