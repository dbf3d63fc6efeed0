"""vLLM in the trainer's own process, which must then be an interpreter that has both."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_models import Tiny

from whet.rollout.engine import SamplingParams
from whet.types import Prompt

SCRIPT = """
import json, sys
from whet.model.load import load_model, load_tokenizer
from whet.model.names import folder_weights
from whet.rollout.engine import SamplingParams
from whet.rollout.engines.vllm.engine import VLLMEngine
from whet.rollout.engines.vllm.settings import Settings
from whet.types import Prompt

first, second, prompts = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
settings = Settings(mode="inline", max_model_len=160, max_num_seqs=16, enforce_eager=True)
engine = VLLMEngine(settings, load_model(first).config, load_tokenizer(first), frozenset({1}))
written = []
for version, path in enumerate((first, second)):
    engine.load_weights(lambda: folder_weights(load_model(path)), version)
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
    written.append([s.ids for s in engine.generate([Prompt(str(i), ids, "") for i, ids in enumerate(prompts)], params)])
    engine.release()
engine.close()
print(json.dumps(written))
"""


def test_inline_samples_are_those_of_the_weights(
    vllm_python: str, model_of: Callable[..., Tiny], prompts: list[Prompt]
) -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[4])}
    if subprocess.run(
        [vllm_python, "-c", "import whet.rollout.engines.vllm"], env=environment, capture_output=True
    ).returncode:
        pytest.skip(f"whet does not import in {vllm_python}: pip install omegaconf there, and what else is missing")
    models = [model_of("tied llama", seed) for seed in (0, 1)]
    arguments = [*(each.path for each in models), json.dumps([prompt.ids for prompt in prompts])]
    ended = subprocess.run(
        [vllm_python, "-c", SCRIPT, *arguments], env=environment, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
    expected = [[sample.ids for sample in each.engine().generate(prompts, params)] for each in models]
    assert json.loads(ended.stdout.splitlines()[-1]) == expected
