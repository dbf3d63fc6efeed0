"""`AndroidDevice`: an Android phone or emulator, driven by the program `adb`.

Each call starts `adb -s SERIAL ...` and ends it when its time is over; `adb` itself speaks to its server, which it
starts where there is none (`ANDROID_ADB_SERVER_ADDRESS` and `ANDROID_ADB_SERVER_PORT` say where else it runs).
Commands run in the device's shell: every word of theirs is quoted for it.
"""

from __future__ import annotations

import io
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Sequence

from PIL import Image

from phone.device import ATTEMPTS, KEYS, PAUSE, PRINTABLE, DeviceError, Unreachable, inside, is_black, repeated
from whet.errors import UserError

SERIAL = re.compile(r"[\w.:\[\]-]+", re.ASCII)
APP = re.compile(r"[A-Za-z][\w.]*(/[A-Za-z.][\w.$]*)?", re.ASCII)  # package, or package/activity
SIZE = re.compile(rb"(Physical|Override) size: (\d+)x(\d+)")
CODES = {name: f"KEYCODE_{code}" for name, code in zip(KEYS, ("BACK", "HOME", "ENTER", "DEL", "MENU", "APP_SWITCH"))}
# What adb says when it has not reached the device.
LOST = re.compile(r"not found|offline|no devices|unauthorized|cannot connect|connection refused")
BROKEN = re.compile(r"closed|protocol fault|connection reset")  # in the middle of the call


class _Unsure(DeviceError):  # noqa: N818
    """No answer, or half of one: the device may have taken the call."""


class _Spoiled(DeviceError):  # noqa: N818
    """A screenshot that shows nothing."""


def find_adb() -> str:
    """Return the path of `adb`: of the one on the PATH, else of the one that comes with adbutils."""
    found = shutil.which("adb")
    if found is None:
        try:
            import adbutils
        except ImportError:
            raise UserError("adb was not found: install Android's platform tools, or adbutils by pip") from None
        found = adbutils.adb_path()
    return found


class AndroidDevice:
    """A device by its serial number, as `adb devices` lists it.

    `seconds` is the time limit of one call to adb. Calls that did not reach the device are repeated `attempts` times,
    and so are screenshots that came late, or black, or broken; an input that came late is not, since it may have been
    taken.
    """

    def __init__(
        self,
        serial: str,
        seconds: float = 10.0,
        attempts: int = ATTEMPTS,
        pause: float = PAUSE,
        adb: str | None = None,
    ) -> None:
        if not SERIAL.fullmatch(serial):
            raise UserError(f"{serial!r} is no serial number of a device: `adb devices` lists them")
        self.name, self._adb = serial, adb or find_adb()
        self._seconds, self._attempts, self._pause = seconds, attempts, pause
        self._size: tuple[int, int] | None = None

    def size(self) -> tuple[int, int]:
        """Return width and height as the last screenshot had them; before the first one as the device says."""
        if self._size is None:
            said = self._repeated("size", ("wm", "size"), Unreachable, _Unsure)
            found = {kind: (int(width), int(height)) for kind, width, height in SIZE.findall(said)}
            if not found:
                raise DeviceError(self.name, "size", f"wm size said {said[:80]!r}")
            self._size = found.get(b"Override") or found[b"Physical"]
        return self._size

    def screenshot(self) -> Image.Image:
        """Return the screen, which is not black; its size is the screen's from now on, turned or not."""
        picture = repeated(self._screenshot, (Unreachable, _Unsure, _Spoiled), self._attempts, self._pause)
        self._size = picture.size
        return picture

    def tap(self, x: int, y: int) -> None:
        """Touch a point."""
        inside(self, "tap", (x, y))
        self._input("tap", "tap", str(x), str(y))

    def swipe(self, x: int, y: int, to_x: int, to_y: int, seconds: float = 0.3) -> None:
        """Draw a finger from one point to another."""
        inside(self, "swipe", (x, y), (to_x, to_y))
        self._input("swipe", "swipe", *map(str, (x, y, to_x, to_y, round(seconds * 1000))))

    def text(self, text: str) -> None:
        """Type printable ASCII, which is what `input text` knows."""
        if not PRINTABLE.fullmatch(text):
            raise DeviceError(self.name, "text", f"{text[:40]!r} has characters that `input text` cannot type")
        # `%s` stands for a space; one that is meant as it stands is typed in two parts.
        for part in text.replace("%s", "%\0s").split("\0"):
            self._input("text", "text", part.replace(" ", "%s"))

    def key(self, name: str) -> None:
        """Press a key."""
        if name not in CODES:
            raise DeviceError(self.name, "key", f"there is no key {name[:40]!r}: choose from {', '.join(KEYS)}")
        self._input("key", "keyevent", CODES[name])

    def start(self, app: str) -> None:
        """Stop the app and start it again: `package`, or `package/activity`."""
        if not APP.fullmatch(app):
            raise UserError(f"{app!r} is no app: expected a package, or package/activity")
        package, _, activity = app.partition("/")
        self._repeated("start", ("am", "force-stop", package), Unreachable)
        begin = ("am", "start", "-n", app) if activity else ("monkey", "-p", package, "1")
        said = self._repeated("start", begin, Unreachable)
        if b"Error" in said or b"No activities found" in said:
            raise DeviceError(self.name, "start", f"{app} was not started: {said.decode(errors='replace')[:200]}")

    def wait(self, seconds: float) -> None:
        """Sleep: the device's time is ours."""
        time.sleep(seconds)

    def close(self) -> None:
        """Leave the device as it is."""

    def _input(self, call: str, *words: str) -> None:
        self._repeated(call, ("input", *words), Unreachable)

    def _repeated(self, call: str, words: Sequence[str], *errors: type[DeviceError]) -> bytes:
        return repeated(lambda: self._run(call, "shell", words), errors, self._attempts, self._pause)

    def _screenshot(self) -> Image.Image:
        content = self._run("screenshot", "exec-out", ("screencap", "-p"))
        try:
            picture = Image.open(io.BytesIO(content))
            picture.load()
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            shown = content[:60].decode("ascii", "replace") or "nothing"
            raise _Spoiled(self.name, "screenshot", f"{len(content)} bytes that are no picture: {shown}") from error
        picture = picture.convert("RGB")
        if is_black(picture):
            raise _Spoiled(self.name, "screenshot", "the picture is black: is the screen on and unlocked?")
        return picture

    def _run(self, call: str, kind: str, words: Sequence[str]) -> bytes:
        """Run a command in the device's shell and return what it printed."""
        command = [self._adb, "-s", self.name, kind, shlex.join(words)]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=self._seconds)
        except subprocess.TimeoutExpired:
            raise _Unsure(self.name, call, f"no answer within {self._seconds:g} s") from None
        except OSError as error:
            raise DeviceError(self.name, call, f"{self._adb} cannot be run ({error.strerror})") from error
        if done.returncode == 0:
            return done.stdout
        said = (done.stderr or done.stdout).decode(errors="replace").strip()[-300:] or "nothing was said"
        lost, broken = LOST.search(said.lower()), BROKEN.search(said.lower())
        raised = Unreachable if lost else _Unsure if broken else DeviceError
        raise raised(self.name, call, f"adb ended with code {done.returncode}: {said}")
