"""`SimulatedDevice`: an app that is drawn with Pillow, on a phone that can be late, cover it and miss touches.

Everything follows from the seed and the calls. Time is the device's own: calls take a little of it, `wait` more, and
nobody sleeps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from PIL import Image, ImageDraw

from phone.device import KEYS, DeviceError, inside
from phone.drawing import CLOSE, SHADE, button
from whet.errors import UserError

CALL = 0.05  # seconds that a call takes
FAULTS = ("disconnect", "black", "hang")


class App(Protocol):
    """An app on the simulated device."""

    def tap(self, x: float, y: float) -> bool:
        """Take a touch; coordinates are fractions of the screen. Return True if the screen changes by it."""
        ...

    def key(self, name: str) -> bool:
        """Take a key. Return True if the screen changes by it."""
        ...

    def draw(self, size: tuple[int, int]) -> Image.Image:
        """Return the screen."""
        ...


@dataclass(frozen=True, slots=True)
class Trouble:
    """Disturbances of a simulated device; each probability is drawn anew for every touch."""

    animation: float = 0.0  # seconds in which a changed screen fades in, and takes no touch
    drop: float = 0.0  # probability that a touch is missed
    popup: float = 0.0  # probability that a window covers the app after a touch, until its cross is touched
    fault: str | None = None  # disconnect, black or hang: what every call does from `fault_call` on
    fault_call: int = 0

    def __post_init__(self) -> None:
        for name in ("drop", "popup"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"{name}={getattr(self, name)!r} must be a probability, from 0 to 1")
        if not self.animation >= 0:
            raise UserError(f"animation={self.animation!r} must be seconds, 0 or more")
        if self.fault not in (None, *FAULTS):
            raise UserError(f"fault={self.fault!r}: choose from {', '.join(FAULTS)}, or null")


def read_trouble(options: Mapping[str, Any] | None) -> Trouble:
    """Return the disturbances that a config names."""
    options = dict(options or {})
    unknown = [name for name in options if name not in Trouble.__dataclass_fields__]
    if unknown:
        raise UserError(f"trouble.{unknown[0]} is not known: choose from {', '.join(Trouble.__dataclass_fields__)}")
    return Trouble(**options)


def screen_size(size: Sequence[int]) -> tuple[int, int]:
    """Return width and height that a config names."""
    if len(size) != 2 or not all(isinstance(side, int) and 28 <= side <= 4096 for side in size):
        raise UserError(f"size={list(size)!r} must be width and height in pixels, each from 28 to 4096")
    return size[0], size[1]


class SimulatedDevice:
    """A device with one app, which is drawn at any size."""

    def __init__(
        self,
        app: App,
        size: tuple[int, int] = (84, 84),
        seed: int = 0,
        trouble: Trouble = Trouble(),  # noqa: B008
        name: str = "simulated",
    ) -> None:
        self.name, self.app = name, app
        self._size, self._rng, self._trouble = size, Random(f"device {seed}"), trouble
        self._now, self._settled = 0.0, 0.0
        self._before: Image.Image | None = None  # the screen from which an animation leads to the current one
        self._calls, self._covered = 0, False

    def size(self) -> tuple[int, int]:
        """Return width and height."""
        return self._size

    def screenshot(self) -> Image.Image:
        """Draw the screen as it is now, in the middle of an animation if there is one."""
        self._pass("screenshot")
        if self._trouble.fault == "black" and self._faulty():
            raise DeviceError(self.name, "screenshot", "the picture is black: is the screen on and unlocked?")
        shown = self._drawn()
        if self._before is not None and self._now < self._settled:
            done = 1 - (self._settled - self._now) / self._trouble.animation
            shown = Image.blend(self._before, shown, done)
        return shown

    def tap(self, x: int, y: int) -> None:
        """Touch a point: the cross of a window that covers the app, or else the app."""
        inside(self, "tap", (x, y))
        self._pass("tap")
        # Both numbers are drawn whatever happens, so that one option does not change what another does.
        dropped, popup = (self._rng.random() < each for each in (self._trouble.drop, self._trouble.popup))
        if dropped or self._now < self._settled:
            return
        before = self._drawn()
        across, down = (x + 0.5) / self._size[0], (y + 0.5) / self._size[1]
        if self._covered:
            changed = CLOSE[0] <= across <= CLOSE[2] and CLOSE[1] <= down <= CLOSE[3]
            self._covered = not changed
        else:
            changed = self.app.tap(across, down)
            self._covered = popup
        if changed or self._covered:
            self._changed(before)

    def swipe(self, x: int, y: int, to_x: int, to_y: int, seconds: float = 0.3) -> None:
        """Draw a finger over the screen, of which the games take no notice."""
        inside(self, "swipe", (x, y), (to_x, to_y))
        self._pass("swipe", seconds)

    def text(self, text: str) -> None:
        """Type, for which the games have no field."""
        self._pass("text")

    def key(self, name: str) -> None:
        """Press a key; "back" closes a window that covers the app."""
        if name not in KEYS:
            raise DeviceError(self.name, "key", f"there is no key {name[:40]!r}: choose from {', '.join(KEYS)}")
        self._pass("key")
        before = self._drawn()
        if self._covered and name == "back":
            self._covered = False
            self._changed(before)
        elif not self._covered and self.app.key(name):
            self._changed(before)

    def start(self, app: str) -> None:
        """Do nothing: the app is in front."""
        self._pass("start")

    def wait(self, seconds: float) -> None:
        """Let the device's time pass."""
        self._now += seconds

    def close(self) -> None:
        """Do nothing."""

    def _pass(self, call: str, seconds: float = CALL) -> None:
        """Count a call, let its time pass, and fail where that was asked for."""
        self._calls += 1
        self._now += seconds
        if self._faulty() and self._trouble.fault == "disconnect":
            raise DeviceError(self.name, call, "the device is not there any more")
        if self._faulty() and self._trouble.fault == "hang":
            raise DeviceError(self.name, call, "no answer within 10 s")

    def _faulty(self) -> bool:
        return self._trouble.fault is not None and self._calls > self._trouble.fault_call

    def _changed(self, before: Image.Image) -> None:
        self._before, self._settled = before, self._now + self._trouble.animation

    def _drawn(self) -> Image.Image:
        picture = self.app.draw(self._size)
        if not self._covered:
            return picture
        width, height = self._size
        picture = Image.blend(picture, Image.new("RGB", self._size, SHADE), 0.7)
        left, top, right, bottom = (part * each for part, each in zip(CLOSE, (width, height, width, height)))
        button(ImageDraw.Draw(picture), (left, top, right, bottom), (250, 250, 250), "X")
        return picture
