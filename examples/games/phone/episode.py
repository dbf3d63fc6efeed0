"""An episode on a phone as whet's environments are: a screenshot in, an action out, until the task or the turns end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PIL import Image

from phone.actions import COORDINATES, Action, BadAction, perform, read_action
from phone.device import Device
from phone.replay import Replay
from whet.errors import UserError

MULTIPLE = 28  # pixels that shown sides are a multiple of: Qwen2.5-VL's own resizing then leaves coordinates alone


class PhoneEpisode:
    """Base of the environments. A subclass opens a device, words the goal and says what an action has earned.

    `turns`: actions of an episode. `coordinates`: "pixels" of the screenshot that is shown, or "relative", from 0 to
    1000. `settle`: seconds between an action and the next screenshot. `longest`: the longer side of what is shown, in
    pixels; null shows screenshots as they are. `replay`: a folder for an animated picture of each episode.
    """

    success: str | None = None  # the end of an episode that is counted as accurate; None where nobody knows

    def __init__(
        self,
        turns: int = 10,
        coordinates: str = "pixels",
        settle: float = 0.6,
        longest: int | None = None,
        replay: str | None = None,
    ) -> None:
        if coordinates not in COORDINATES:
            raise UserError(f"coordinates={coordinates!r}: choose from {', '.join(COORDINATES)}")
        if turns < 1 or not settle >= 0 or (longest is not None and longest < MULTIPLE):
            raise UserError(f"turns must be at least 1, settle 0 or more, longest at least {MULTIPLE}")
        self._turns, self._coordinates, self._settle, self._longest = turns, coordinates, settle, longest
        self._replay = None if replay is None else Replay(Path(replay))
        self._left = turns
        self.device: Device | None = None
        self._shown: Image.Image | None = None

    def open(self, prompt: Any) -> Device:
        """Return the device of an episode."""
        raise NotImplementedError

    def goal(self, prompt: Any) -> str:
        """Return the task, as the model reads it with the first screenshot."""
        raise NotImplementedError

    def guide(self) -> str | None:
        """Return what stands before each screenshot; None shows them alone, but for the goal with the first."""
        return None

    def judge(self, action: Action) -> tuple[float, str | None]:
        """Return what an action has earned, and why the episode is over by it; None if it is not."""
        raise NotImplementedError

    def places(self) -> list[tuple[float, float]]:
        """Return the points that a player may touch now, the right one first: for demonstrations."""
        raise NotImplementedError

    def reset(self, prompt: Any) -> list[dict[str, Any]]:
        """Open the device and show its screen with the goal."""
        self.device = self.open(prompt)
        self._left = self._turns
        text = self.guide() or self.goal(prompt)
        if self._replay:
            self._replay.begin(str(prompt.extra.get("seed", prompt.uid)), text)
        content = [{"type": "image", "image": self._look()}, {"type": "text", "text": text}]
        return [{"role": "user", "content": content[::-1] if self.guide() else content}]

    def step(self, turn: str) -> tuple[Any, float, bool, dict[str, Any]]:
        """Do the action of a turn and show what came of it. A turn without one changes nothing and is told so."""
        assert self.device is not None
        assert self._shown is not None
        self._left -= 1
        try:
            action = read_action(turn, self._shown.size, self._coordinates)
        except BadAction as error:
            self._record(turn, 0.0)
            if not self._left:
                return None, 0.0, True, {**self._ended("out of turns"), "invalid": 1}
            return self._told(self._shown, str(error)), 0.0, False, {"invalid": 1}
        before = self._shown
        perform(action, self.device, self._scaled)
        reward, end = self.judge(action)
        self._record(str(action), reward, action.points, before)
        if end is None and not self._left:
            end = "out of turns"
        if end is not None:
            if self._replay:
                self.device.wait(self._settle)
                self._look()
                self._record(end, 0.0)
            return None, reward, True, {**self._ended(end), "invalid": 0}
        self.device.wait(self._settle)
        return self._told(self._look()), reward, False, {"invalid": 0}

    def _told(self, picture: Image.Image, error: str = "") -> Any:
        """Return a screenshot with what there is to say: an error after it, a guide before it."""
        guide = self.guide() or ""
        return {"text": f"{guide}<image>{error}", "images": [picture]} if guide or error else picture

    def _ended(self, end: str) -> dict[str, Any]:
        """Return what is reported of an episode that is over."""
        return {"end": end, **({"accuracy": int(end == self.success)} if self.success else {})}

    def close(self) -> None:
        """Give the device back and write the replay."""
        if self.device is not None:
            self.device.close()
        if self._replay:
            self._replay.write()

    def _look(self) -> Image.Image:
        """Take a screenshot, at the size that the model sees."""
        assert self.device is not None
        picture = self.device.screenshot()
        if self._longest is not None and max(picture.size) > self._longest:
            most = max(picture.size)
            width, height = (max(1, side * self._longest // most // MULTIPLE) * MULTIPLE for side in picture.size)
            picture = picture.resize((width, height), Image.Resampling.LANCZOS)
        self._shown = picture
        return picture

    def _scaled(self, point: tuple[int, int]) -> tuple[int, int]:
        """Return a point of the picture that was shown in pixels of the device: the middle of what it covers."""
        assert self.device is not None
        assert self._shown is not None
        (x, y), shown, own = point, self._shown.size, self.device.size()
        return int((x + 0.5) * own[0] / shown[0]), int((y + 0.5) * own[1] / shown[1])

    def _record(self, said: str, reward: float, points: Any = (), picture: Image.Image | None = None) -> None:
        if self._replay and self._shown is not None:
            self._replay.add(picture or self._shown, said, reward, points)
