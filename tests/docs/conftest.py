"""A folder in which the commands of the documentation find what their pages speak of."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from docs.pages import ROOT
from whet_process import run_folder, train

from whet.assets.project import KINDS, write_project

# Names that pages use for something of the reader's.
PLACEHOLDERS = {
    "MODEL": "whet/quickstart",
    "org/model": "whet/quickstart",
    "the/base": "whet/quickstart",
    "RUN": "checkpoints/whet/quickstart",
    "FOLDER": "checkpoints/whet/lr_sweep",
    "WORD": "warmup",
    "COMMAND": "train",
    "NAME": "train",
    "DIR": "new_folder",
    "/opt/vllm/bin/python": sys.executable,
}
CHAT = {"messages": [{"role": "user", "content": "2 + 3?"}, {"role": "assistant", "content": "5"}]}
ANSWERED = {"problem": "Sort these digits: 3 1 2", "answer": "1 2 3", "response": "Answer: 1 2 3", "index": 0}
VERL = {
    "prompt": [{"role": "user", "content": "2 + 3?"}],
    "reward_model": {"ground_truth": "5"},
    "data_source": "gsm8k",
}
FILES = {
    "my.yaml": "extends: examples/quickstart.yaml\ntrainer: {experiment_name: of_my_own}\n",
    "whet.yaml": "extends: examples/quickstart.yaml\n",
    "my_env.py": "class Guess:\n    def __init__(self, high=7): ...\n    def reset(self, prompt): ...\n"
    "    def step(self, action): return None, 0.0, True, {}\n",
    "agent.py": "async def run(base_url, api_key, row): return 0.0\n",
    "tools.py": 'def weather(city: str) -> str:\n    """Return the weather of a city."""\n    return "sunny"\n',
    "my_agent.py": "print(0.0)\n",
    "run.yaml": "extends: examples/quickstart.yaml\n",
    "chats.jsonl": json.dumps(CHAT) + "\n",
    "held_out.jsonl": json.dumps(CHAT) + "\n",
    "aime24.jsonl": json.dumps(ANSWERED) + "\n",
    "train.jsonl": json.dumps(VERL) + "\n",
    "samples.jsonl": json.dumps(ANSWERED) + "\n",
    "scores.json": "{}",
    "program.py": "print(6 * 7)\n",
    "input.txt": "",
    "token.txt": "0123456789abcdef0123456789abcdef\n",
}
COPIES = ("mine", "other", "lora", "rates/lr=1e-2", "lr_sweep/lr=3e-4,seed=0", "lr_sweep/lr=3e-4,seed=1")


@pytest.fixture(scope="session")
def finished(quickstart: Path, few_rows: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with a checkpoint of step 50, as the quickstart leaves one."""
    folder = tmp_path_factory.mktemp("finished")
    code, text = train(folder, *few_rows, "trainer.max_steps=1", "trainer.save_freq=1", "trainer.val_freq=1")
    assert code == 0, text
    return run_folder(folder)


@pytest.fixture(scope="session")
def reader(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a reader who has followed the pages so far: a clone with runs and files of their own."""
    folder = tmp_path_factory.mktemp("reader")
    for name in ("examples", "bench", "tools"):
        (folder / name).symlink_to(ROOT / name)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    runs = folder / "checkpoints" / "whet"
    for name in ("quickstart", *COPIES):
        shutil.copytree(finished, runs / name)
    for name, step in (("quickstart", 50), ("mine", 50), ("sft", 62), ("count_grpo", 200)):
        shutil.copytree(finished / "global_step_1", runs / name / f"global_step_{step}")
    shutil.copytree(finished, runs / "first")
    (runs / "first" / "schedule").mkdir()
    return folder


@pytest.fixture(scope="session")
def projects(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What `whet new` writes, of each kind, with the run that its README.md goes on to use."""
    folder = tmp_path_factory.mktemp("projects")
    for kind in KINDS:
        write_project(folder / kind, kind)
        shutil.copytree(finished, folder / kind / "run")
    return {kind: folder / kind for kind in KINDS}
