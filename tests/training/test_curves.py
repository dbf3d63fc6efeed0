"""curves.svg of a run folder: what `whet plot` would write, and never a reason for a run to stop."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from whet.cli.dispatch import main
from whet.tracking.run_folder import RunFolder, append_metrics
from whet.training.curves import Curves


def test_the_picture_is_drawn_at_validations_and_is_that_of_whet_plot(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run") as folder:
        folder.write_config("trainer:\n  experiment_name: mine\n")
        curves = Curves(folder, "mine", pytest.fail)
        for step in (1, 2):
            append_metrics(folder.metrics, step, {"reward/overall": step / 2})
            curves.logged(validated=False)
        assert not folder.curves.exists()
        append_metrics(folder.metrics, 3, {"reward/overall": 0.9, "val/reward": 0.8})
        curves.logged(validated=True)
        drawn = folder.curves.read_text()
        ET.fromstring(drawn)
        assert not list(folder.path.glob(".curves*"))
        folder.curves.unlink()
    assert main(["plot", str(folder.path)]) == 0
    assert folder.curves.read_text() == drawn


def test_the_last_steps_are_drawn_at_the_end(tmp_path: Path) -> None:
    with RunFolder(tmp_path) as folder:
        curves = Curves(folder, "mine", pytest.fail)
        curves.draw()  # nothing was logged
        assert not folder.curves.exists()
        append_metrics(folder.metrics, 1, {"reward/overall": 0.5})
        curves.logged(validated=False)
        curves.draw()
        assert "reward" in folder.curves.read_text()


def test_a_picture_that_cannot_be_written_is_reported_once(tmp_path: Path) -> None:
    warnings: list[str] = []
    with RunFolder(tmp_path) as folder:
        folder.curves.mkdir()
        append_metrics(folder.metrics, 1, {"reward/overall": 0.5})
        curves = Curves(folder, "mine", warnings.append)
        for _ in range(3):
            curves.logged(validated=True)
    assert len(warnings) == 1
    assert "curves.svg" in warnings[0]
