"""Where metrics and samples go: the run folder, the console, and the trackers people know."""

from whet.tracking.run_folder import read_metrics
from whet.tracking.tracker import Tracker

__all__ = ["Tracker", "read_metrics"]
