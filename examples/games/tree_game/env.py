"""The tree game as an environment, on a simulated device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from phone.actions import Action
from phone.device import Device
from phone.episode import PhoneEpisode
from phone.simulated import SimulatedDevice, read_trouble, screen_size
from tree_game.menu import TreeMenu


class TreeGame(PhoneEpisode):
    """One tree, by the row's seed. A step nearer to the leaf than any before earns its share of 1.

    Nothing costs: where wrong ways do, a policy that rarely finds the leaf learns to stay where it is.
    """

    success = "found"

    def __init__(
        self,
        size: Sequence[int] = (392, 784),
        depth: int = 3,
        branches: int = 3,
        names: str = "words",
        guided: bool = False,
        trouble: Mapping[str, Any] | None = None,
        turns: int = 10,
        coordinates: str = "pixels",
        settle: float = 0.6,
        longest: int | None = None,
        replay: str | None = None,
    ) -> None:
        super().__init__(turns, coordinates, settle, longest, replay)
        read_trouble(trouble)  # refuses what it does not know
        self._size, self._tree = screen_size(size), (depth, branches, names)
        self._depth, self._guided, self._trouble = depth, guided, trouble or {}

    def open(self, prompt: Any) -> Device:
        """Grow the tree and begin at its root."""
        seed = int(prompt.extra["seed"])
        self._app = TreeMenu(seed, *self._tree)
        self._nearest = self._app.distance
        trouble = read_trouble({**self._trouble, **(prompt.extra.get("trouble") or {})})
        return SimulatedDevice(self._app, self._size, seed, trouble, name=f"simulated tree_game, seed {seed}")

    def goal(self, prompt: Any) -> str:
        """Name the leaf; in a tree of colours, by the way to it."""
        return f"Open {self._app.leaf.name if self._app.head else ' then '.join(self._app.leaf.path)}."

    def guide(self) -> str | None:
        """Name the button of the current screen that leads to the leaf, if the game is guided."""
        if not self._guided:
            return None
        here, way = self._app.here.path, self._app.leaf.path
        return f"Open {self.wanted}." if here == way[: len(here)] else "Go back."

    @property
    def wanted(self) -> str:
        """Return the name of the button that leads to the leaf."""
        return self._app.leaf.path[len(self._app.here.path)]

    def places(self) -> list[tuple[float, float]]:
        """Return the middles of the buttons, the one that leads to the leaf first."""
        middles = [((left + right) / 2, (top + bottom) / 2) for left, top, right, bottom in self._app.boxes()]
        return sorted(middles, key=lambda middle: self._app.here.branches[middles.index(middle)].name != self.wanted)

    def judge(self, action: Action) -> tuple[float, str | None]:
        """Pay for coming nearer than before."""
        reward = max(0, self._nearest - self._app.distance) / self._depth
        self._nearest = min(self._nearest, self._app.distance)
        if not self._nearest:
            return reward, "found"
        if not self._app.here.branches:
            return reward, "wrong leaf"
        return reward, "gave up" if action.name == "done" else None
