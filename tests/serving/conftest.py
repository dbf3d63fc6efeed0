"""One model folder and one server for the tests of a worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from serving.serving import Server, make_model, running


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model that is served."""
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def other_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Other weights of the same model."""
    return make_model(tmp_path_factory.mktemp("other"), seed=1)


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    """A server with its default limits."""
    torch.set_num_threads(1)
    with running(folder) as started:
        yield started
