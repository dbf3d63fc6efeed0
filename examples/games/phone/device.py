"""The `Device` protocol: a screen that can be seen and touched.

`AndroidDevice` in adb.py and `SimulatedDevice` in simulated.py have these methods. Coordinates are pixels of the
screenshot, (0, 0) at the top left. A call that fails raises `DeviceError`, whose message names the device and the call.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from PIL import Image

KEYS = ("back", "home", "enter", "delete", "menu", "recents")
PRINTABLE = re.compile(r"[ -~]+")  # texts that Android's `input text` can type
ATTEMPTS = 3
PAUSE = 0.5  # seconds before the second attempt, twice as long before each further one

Result = TypeVar("Result")


class DeviceError(Exception):
    """A device did not do what it was asked for: `DEVICE: CALL: what happened`."""

    def __init__(self, device: str, call: str, problem: str) -> None:
        super().__init__(f"{device}: {call}: {problem}")
        self.device, self.call, self.problem = device, call, problem


class Unreachable(DeviceError):  # noqa: N818
    """The call has not reached the device, so that it may be repeated."""


class Device(Protocol):
    """A phone. Calls block until the device has taken them, at most for a time limit of the device's own."""

    name: str

    def size(self) -> tuple[int, int]:
        """Return width and height of the screen in pixels."""
        ...

    def screenshot(self) -> Image.Image:
        """Return what the screen shows, in RGB."""
        ...

    def tap(self, x: int, y: int) -> None:
        """Touch a point for a moment."""
        ...

    def swipe(self, x: int, y: int, to_x: int, to_y: int, seconds: float = 0.3) -> None:
        """Draw a finger from one point to another."""
        ...

    def text(self, text: str) -> None:
        """Type into the field that has the focus."""
        ...

    def key(self, name: str) -> None:
        """Press one of KEYS."""
        ...

    def start(self, app: str) -> None:
        """Bring an app to the front, begun anew."""
        ...

    def wait(self, seconds: float) -> None:
        """Let time pass on the device."""
        ...

    def close(self) -> None:
        """Give the device back."""
        ...


def inside(device: Device, call: str, *points: tuple[int, int]) -> None:
    """Refuse points that are not on the screen."""
    width, height = device.size()
    for x, y in points:
        if not (0 <= x < width and 0 <= y < height):
            raise DeviceError(device.name, call, f"({x}, {y}) is not on the screen of {width} × {height} pixels")


def is_black(picture: Image.Image) -> bool:
    """Return True for a picture without light: a screen that is off, locked or protected."""
    return all(high <= 2 for _, high in picture.convert("RGB").getextrema())


def repeated(
    call: Callable[[], Result],
    errors: type[DeviceError] | tuple[type[DeviceError], ...],
    attempts: int = ATTEMPTS,
    pause: float = PAUSE,
) -> Result:
    """Call until it succeeds; raise the last of `attempts` errors of these kinds, and any other at once."""
    for attempt in range(attempts - 1):
        try:
            return call()
        except errors:
            time.sleep(pause * 2**attempt)
    return call()
