"""Metrics and samples of a run: its folder, the console, and other trackers."""

from whet.tracking.run_folder import read_metrics
from whet.tracking.tracker import Tracker

__all__ = ["Tracker", "read_metrics"]
