"""`trainer.placement.*`: which devices sample and which learn."""

from __future__ import annotations

from dataclasses import dataclass

from whet.config.keys import key

PRESETS: dict[str, dict[str, None]] = {"colocated": {"rollout": None, "learn": None}}


@dataclass(frozen=True)
class PlacementConfig:
    """All devices do both, or some sample while others learn."""

    preset: str = key("colocated", "colocated: every device samples and learns in turn", choices=tuple(PRESETS))
    rollout: int | None = key(None, "devices that only sample; with placement.learn, all devices of the run", least=1)
    learn: int | None = key(None, "devices that only learn", least=1)
