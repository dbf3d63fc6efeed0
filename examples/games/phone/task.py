"""`PhoneTask`: a goal on a real device, whose app says nothing of rewards.

A row has `prompt`, the goal, and may have `app`, which is started first. An episode ends with `done()`. Rewards are 0:
a reward function may judge the conversation.
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


class PhoneTask(PhoneEpisode):
    """An episode on the Android device with a serial number.

    `seconds` is the limit of one call. `patience` is how long to wait for the device while another episode has it; with
    the calls that follow it should be less than `worker.rollout.env_timeout`.
    """

    def __init__(
        self,
        device: str,
        app: str | None = None,
        seconds: float = 10.0,
        patience: float = 20.0,
        turns: int = 20,
        coordinates: str = "pixels",
        settle: float = 1.0,
        longest: int | None = 784,
        replay: str | None = None,
    ) -> None:
        super().__init__(turns, coordinates, settle, longest, replay)
        self._serial, self._app, self._seconds, self._patience = device, app, seconds, patience
        self._held = False

    def open(self, prompt: Any) -> Device:
        """Wait for the device to be free, and start the row's app or the one that was named."""
        device = AndroidDevice(self._serial, self._seconds)
        if not _IN_USE[self._serial].acquire(timeout=self._patience):
            raise DeviceError(self._serial, "open", f"another episode has had the device for {self._patience:g} s")
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
