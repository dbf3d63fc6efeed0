"""Checks of `whet chat`, before any file is opened or weight is loaded."""

from __future__ import annotations

from whet.config.checks.generate import one_device
from whet.config.checks.required import model_set
from whet.config.checks.run import Check
from whet.config.checks.sampling import SAMPLING_CHECKS

CHAT_CHECKS: tuple[Check, ...] = (one_device, model_set, *SAMPLING_CHECKS)
