"""Runs with environments and harnesses, killed at random moments: the same bits in the end, and no process left."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from whet_process import SMALL, outcome, run_folder, start, train

AGENTS = '''
import json, os, subprocess, sys, urllib.request
HERE = os.path.dirname(os.path.abspath(__file__))

def sleeper():
    """A process that leaves its session, as environments with a browser or a game do."""
    child = subprocess.Popen(["sleep", "300"], start_new_session=True)
    with open(os.path.join(HERE, "pids"), "a") as file:
        file.write(f"{os.getpid()} {child.pid}\\n")
    return child

def score(problem, said):
    return sum(a == b for a, b in zip(said.replace("Answer:", "").split(), sorted(problem.split(":")[1].split()))) / 10

class Env:
    def reset(self, prompt):
        self.problem, self.turns, self.child = prompt.extra["problem"], 0, sleeper()

    def step(self, action):
        self.turns += 1
        return "again", score(self.problem, action), self.turns == 2, {}

    def close(self):
        self.child.kill()
        self.child.wait()

if sys.argv[1:] == ["serve"]:
    from mcp.server import MCPServer

    server = MCPServer("tests")

    @server.tool()
    def score_of(problem: str, said: str) -> float:
        return score(problem, said)

    child = sleeper()
    server.run("stdio")
    child.kill()
elif __name__ == "__main__":
    row, child = json.loads(os.environ["WHET_ROW"]), sleeper()
    messages = [{"role": "user", "content": row["problem"]}]
    for _ in range(2):
        body = json.dumps({"model": "policy", "messages": messages, "max_tokens": 16}).encode()
        headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
        request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
        said = json.load(urllib.request.urlopen(request))["choices"][0]["message"]
        messages += [said, {"role": "user", "content": "again"}]
    child.kill()
    print(score(row["problem"], said["content"]))
'''
SHORT = (
    "worker.reward.reward_function=null",
    "data.max_response_length=60",
    "data.max_prompt_length=96",
    "worker.rollout.max_turn_tokens=16",
    "trainer.val_before_train=false",
    "trainer.val_freq=-1",
    "trainer.save_freq=1",
    "worker.rollout.n=2",
)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def left(file: Path, own: int) -> list[int]:
    """Processes of a killed run that are still there after a while."""
    pids = [int(pid) for pid in file.read_text().split() if int(pid) != own] if file.exists() else []
    end = time.monotonic() + 20
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    return [pid for pid in pids if alive(pid)]


def comparable(run: Path, step: int) -> tuple[Any, Any, list[dict[str, Any]]]:
    """Weights, optimizer and metrics; how sampler and learner round differently depends on when turns came."""
    weights, optimizer, metrics = outcome(run, step)
    return weights, optimizer, [{k: v for k, v in m.items() if not k.startswith("rollout/log_prob")} for m in metrics]


def prompts(run: Path) -> list[list[str]]:
    """Prompts of each step, in their order."""
    files = sorted((run / "samples").glob("train_*.parquet"))
    return [[row["prompt"] for row in pq.read_table(file).to_pylist()] for file in files]


@pytest.mark.parametrize(
    ("kind", "steps", "kills"),
    [
        ("env", 2, 2),
        ("agent", 2, 1),
        pytest.param("env", 6, 15, marks=pytest.mark.slow),
        pytest.param("agent", 6, 15, marks=pytest.mark.slow),
        pytest.param("tool", 4, 4, marks=pytest.mark.slow),
    ],
)
def test_killed_at_random_moments(tmp_path: Path, few_rows: tuple[str, str], kind: str, steps: int, kills: int) -> None:
    file = tmp_path / "agents.py"
    file.write_text(AGENTS)
    which = {
        "env": [f"worker.rollout.env={file}:Env"],
        "agent": [f"worker.rollout.agent_command={sys.executable} {file}"],
        "tool": [f"worker.rollout.tools=['mcp:{sys.executable} {file} serve']", "worker.rollout.tool_format=hermes"],
    }[kind]
    given = (*few_rows, *SHORT, f"trainer.max_steps={steps}", *which)
    code, text = train(tmp_path / "alone", *given)
    assert code == 0, text
    seed = random.randrange(1 << 30)
    chance, deaths, pids = random.Random(seed), 0, tmp_path / "pids"
    run = run_folder(tmp_path / "killed")
    for _ in range(kills):
        pids.unlink(missing_ok=True)
        process = start(tmp_path / "killed", "train", *SMALL, *given)
        if chance.random() < 0.8:  # once some episodes play, else while it starts
            # Long before the end, which a busy machine would miss; a server starts once in a run.
            wanted = 1 if kind == "tool" else chance.randint(1, 20 if steps > 2 else 4)
            process.wait_for(lambda wanted=wanted: pids.exists() and pids.read_text().count("\n") >= wanted)
        process.process.join(chance.uniform(0, 0.3))
        if process.process.exitcode is not None:
            break
        process.kill()
        deaths += 1
        assert not left(pids, process.process.pid), f"seed {seed}"
    code, text = train(tmp_path / "killed", *given)
    assert code == 0, text
    assert deaths or steps == 2, f"seed {seed}"  # a short run may be over before its kill
    alone = run_folder(tmp_path / "alone")
    assert prompts(run) == prompts(alone), f"seed {seed}"
    assert comparable(run, steps) == comparable(alone, steps), f"seed {seed}"
