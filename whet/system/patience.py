"""End of a process that torchrun started and that leaves it to another one to say why the job ends."""

from __future__ import annotations

import signal
import time
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SPEAK_SECONDS = 10.0  # for another process to say why the job ends


class Patience:
    """Of a process that ends badly but has nothing to say: if it were the first to end, torchrun would end the one that
    is about to speak. From the first one on, torchrun's signals are only remembered."""

    told = False  # by torchrun to end, as all are when another process has ended

    def __init__(self) -> None:
        for number in _SIGNALS:
            signal.signal(number, self._hear)

    def wait(self) -> None:
        """Until torchrun tells this process to end, or a while."""
        end = time.monotonic() + _SPEAK_SECONDS
        while not Patience.told and time.monotonic() < end:
            time.sleep(0.05)

    def lose(self) -> None:
        """End by a signal again."""
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)

    @staticmethod
    def _hear(number: int, frame: FrameType | None) -> None:
        Patience.told = True
