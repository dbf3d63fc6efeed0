"""One model folder and one server for the tests of a worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from serving.serving import Server, running, served
from tiny_models import MakeTiny


@pytest.fixture(scope="session")
def folder(tiny: MakeTiny) -> Path:
    """The model that is served."""
    return served(tiny)


@pytest.fixture(scope="session")
def other_folder(tiny: MakeTiny) -> Path:
    """Other weights of the same model."""
    return served(tiny, seed=1)


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    """A server with its default limits."""
    torch.set_num_threads(1)
    with running(folder) as started:
        yield started
