"""The number game as an environment, on a simulated device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from number_game.board import NumberBoard
from phone.actions import Action
from phone.device import Device
from phone.episode import PhoneEpisode
from phone.simulated import SimulatedDevice, read_trouble, screen_size

RULE = "Tap the numbers in ascending order."


class NumberGame(PhoneEpisode):
    """One board, by the row's seed. Each number earns its share of 1; more wrong ones than `mistakes` end the game."""

    success = "won"

    def __init__(
        self,
        size: Sequence[int] = (392, 784),
        columns: int = 3,
        rows: int = 4,
        count: int = 5,
        highest: int = 99,
        mistakes: int = 0,
        trouble: Mapping[str, Any] | None = None,
        turns: int = 10,
        coordinates: str = "pixels",
        settle: float = 0.6,
        longest: int | None = None,
        replay: str | None = None,
    ) -> None:
        super().__init__(turns, coordinates, settle, longest, replay)
        read_trouble(trouble)  # refuses what it does not know
        self._size, self._board = screen_size(size), (columns, rows, count, highest)
        self._count, self._mistakes, self._trouble = count, mistakes, trouble or {}

    def open(self, prompt: Any) -> Device:
        """Lay out the board."""
        seed = int(prompt.extra["seed"])
        self._app = NumberBoard(seed, *self._board)
        self._tiles, self._wrong = len(self._app.tiles), 0
        trouble = read_trouble({**self._trouble, **(prompt.extra.get("trouble") or {})})
        return SimulatedDevice(self._app, self._size, seed, trouble, name=f"simulated number_game, seed {seed}")

    def goal(self, prompt: Any) -> str:
        """Return the rule."""
        return RULE

    def places(self) -> list[tuple[float, float]]:
        """Return the middles of the tiles that are left, in order."""
        return [tile.middle for tile in sorted(self._app.tiles, key=lambda tile: tile.number)]

    def judge(self, action: Action) -> tuple[float, str | None]:
        """Pay for a number that has gone."""
        reward = (self._tiles - len(self._app.tiles)) / self._count
        self._tiles = len(self._app.tiles)
        if not self._tiles:
            return reward, "won"
        if self._app.mistakes > self._mistakes:
            return reward, "wrong number"
        return reward, "gave up" if action.name == "done" else None
