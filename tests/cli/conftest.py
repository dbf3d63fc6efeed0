"""One tiny run whose model the commands take."""

from __future__ import annotations

from pathlib import Path

import pytest
from whet_process import run_folder, train


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory, few_rows: tuple[str, str]) -> Path:
    """A run folder with checkpoints of steps 1 and 2, validated before training and after step 2."""
    folder = tmp_path_factory.mktemp("finished")
    code, text = train(folder, *few_rows, "trainer.max_steps=2", "trainer.save_freq=1", "trainer.val_freq=2")
    assert code == 0, text
    return run_folder(folder)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in another folder than the run was started in, without a network."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return folder
