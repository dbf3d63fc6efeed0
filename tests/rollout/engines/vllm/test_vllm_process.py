"""The process that runs vLLM: it is named when it dies, and nothing outlives the trainer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from tiny_models import Tiny
from torch import Tensor

from whet.errors import UserError
from whet.model.names import folder_weights
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.vllm.engine import VLLMEngine
from whet.rollout.engines.vllm.settings import Settings
from whet.types import Prompt

psutil = pytest.importorskip("psutil")
PROMPT = Prompt("row 0", [5, 6, 7], "")


def members(group: int) -> list[int]:
    """Processes of a group that are alive."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


def _until_it_fails(work: Callable[[], object]) -> None:
    while True:
        work()


def test_a_killed_process_is_named_and_leaves_nothing(settings: Settings, model_of: Callable[..., Tiny]) -> None:
    tiny = model_of("qwen3")
    model = tiny.model()
    engine = VLLMEngine(settings, model.config, tiny.tokenizer, frozenset({1}))
    pid = engine.process.pid
    try:
        engine.load_weights(lambda: folder_weights(model), 0)
        threading.Timer(0.3, os.kill, (pid, signal.SIGKILL)).start()
        long = SamplingParams(n=16, max_tokens=150, ignore_eos=True)
        with pytest.raises(UserError, match=rf"runs vLLM \(pid {pid}\) was killed by SIGKILL.*last words"):
            _until_it_fails(lambda: engine.generate([PROMPT], long))
        with pytest.raises(UserError, match="was killed by SIGKILL"):
            engine.generate([PROMPT], long)
        with pytest.raises(UserError, match="was killed by SIGKILL"):
            engine.load_weights(lambda: folder_weights(model), 1)
    finally:
        engine.close()
    assert members(pid) == []


def test_weights_that_cannot_be_read_end_the_engine_with_their_own_error(
    settings: Settings, model_of: Callable[..., Tiny]
) -> None:
    tiny = model_of("qwen3")
    model = tiny.model()

    def broken() -> Iterator[tuple[str, Tensor]]:
        yield next(folder_weights(model))
        raise ZeroDivisionError("no weights today")

    engine = VLLMEngine(settings, model.config, tiny.tokenizer, frozenset({1}))
    try:
        with pytest.raises(RuntimeError, match="holds version None"):
            engine.generate([PROMPT], SamplingParams())
        with pytest.raises(ZeroDivisionError, match="no weights today"):
            engine.load_weights(broken, 0)
        with pytest.raises(RuntimeError, match="holds version None"):
            engine.generate([PROMPT], SamplingParams())
    finally:
        engine.close()
    assert members(engine.process.pid) == []


def test_a_model_that_vllm_cannot_run_is_reported_in_its_words(
    settings: Settings, model_of: Callable[..., Tiny]
) -> None:
    tiny = model_of("qwen3")
    with pytest.raises(UserError, match=r"(?s)runs vLLM .* ended with exit code 1: .*max_model_len") as raised:
        VLLMEngine(replace(settings, max_model_len=4096), tiny.model().config, tiny.tokenizer, frozenset({1}))
    pid = int(str(raised.value).split("(pid ")[1].split(")")[0])
    assert members(pid) == []


def test_a_model_split_over_two_workers_is_the_same_and_both_end(
    settings: Settings, model_of: Callable[..., Tiny]
) -> None:
    models = [model_of("tied llama", seed) for seed in (0, 1)]
    split = replace(settings, tensor_parallel_size=2)
    engine = VLLMEngine(split, models[0].model().config, models[0].tokenizer, frozenset({1}))
    try:
        greedy = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
        for version, tiny in enumerate(models):
            engine.load_weights(lambda tiny=tiny: folder_weights(tiny.model()), version)
            assert engine.generate([PROMPT], greedy)[0].ids == tiny.engine().generate([PROMPT], greedy)[0].ids
        assert len(members(engine.process.pid)) >= 3
        os.kill(engine.process.pid, signal.SIGKILL)
        with pytest.raises(UserError, match="was killed by SIGKILL"):
            engine.generate([PROMPT], greedy)
    finally:
        engine.close()
    assert members(engine.process.pid) == []


DYING_TRAINER = """
import os, signal, sys
from whet.model.load import load_model, load_tokenizer
from whet.rollout.engines.vllm.opening import open_vllm
from whet.rollout.engines.vllm.settings import Settings
path, python, mode = sys.argv[1:]
settings = Settings(python=python, mode=mode, max_model_len=160, enforce_eager=True)
engine = open_vllm(settings, load_model(path).config, load_tokenizer(path), frozenset({1}))
print(engine.process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("mode", ["process", "server"])
def test_a_trainer_that_is_killed_takes_vllm_with_it(
    settings: Settings, model_of: Callable[..., Tiny], mode: str
) -> None:
    command = [sys.executable, "-c", DYING_TRAINER, model_of("qwen3").path, settings.interpreter, mode]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    assert ended.returncode == -signal.SIGKILL
    group = int(ended.stdout.split()[-1])
    deadline = time.monotonic() + 15
    while members(group) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert members(group) == []
