"""`PhoneTask`: a goal on a real device, whose app says nothing of rewards.

A row has `prompt`, the goal, and may have `app`, which is started first. An episode ends with `done()`. Rewards are 0: a
reward function may judge the conversation.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any

from phone.actions import GRAMMAR, Action
from phone.adb import AndroidDevice
from phone.device import Device, DeviceError
from phone.episode import PhoneEpisode

_IN_USE: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)  # by serial number: one episode at a time
WAIT = 50.0  # seconds for a device to be free, within worker.rollout.env_timeout


class PhoneTask(PhoneEpisode):
    """An episode on the Android device with a serial number."""

    def __init__(
        self,
        device: str,
        app: str | None = None,
        seconds: float = 10.0,
        turns: int = 20,
        coordinates: str = "pixels",
        settle: float = 1.0,
        longest: int | None = 784,
        replay: str | None = None,
    ) -> None:
        super().__init__(turns, coordinates, settle, longest, replay)
        self._serial, self._app, self._seconds = device, app, seconds
        self._held = False

    def open(self, prompt: Any) -> Device:
        """Wait for the device to be free, and start the row's app or the one that was named."""
        device = AndroidDevice(self._serial, self._seconds)
        if not _IN_USE[self._serial].acquire(timeout=WAIT):
            raise DeviceError(self._serial, "open", f"another episode has used the device for {WAIT:g} s")
        self._held = True
        app = prompt.extra.get("app") or self._app
        if app:
            device.start(str(app))
            device.wait(self._settle)
        return device

    def goal(self, prompt: Any) -> str:
        """Return the row's text, with the actions that there are."""
        said = [str(each.get("content")) for each in prompt.messages if each.get("role") == "user"]
        return f"{said[-1] if said else prompt.text}\nWrite one action: {GRAMMAR}."

    def judge(self, action: Action) -> tuple[float, str | None]:
        """End where the model says so."""
        return 0.0, "done" if action.name == "done" else None

    def close(self) -> None:
        """Let the next episode have the device."""
        try:
            super().close()
        finally:
            if self._held:
                self._held = False
                _IN_USE[self._serial].release()
