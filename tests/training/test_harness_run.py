"""Training with a harness: a program that calls the policy over HTTP, as a function and as a command line."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from whet_process import SMALL, run_folder, settled, start, train

from whet.config.examples import examples_folder
from whet.tracking import read_metrics

AGENT = '''
import json, os, sys, urllib.request

def ask(base_url, api_key, messages, **more):
    body = json.dumps({"model": "policy", "messages": messages, **more}).encode()
    headers = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(f"{base_url}/chat/completions", body, headers)) as answer:
        return json.load(answer)["choices"][0]["message"]

def run(base_url, api_key, row):
    """Ask twice; the reward is the share of digits in their places."""
    messages = [{"role": "user", "content": row["problem"]}]
    for _ in range(2):
        said = ask(base_url, api_key, messages, max_tokens=16)
        messages += [said, {"role": "user", "content": "again"}]
    digits = sorted(row["problem"].split(":")[1].split())
    right = sum(a == b for a, b in zip(said["content"].replace("Answer:", "").split(), digits))
    return {"reward": right / 10, "right": right}

async def run_async(base_url, api_key, row):
    return run(base_url, api_key, row)["reward"]

def some(base_url, api_key, row):
    said = ask(base_url, api_key, [{"role": "user", "content": row["problem"]}], max_tokens=8)["content"]
    if len(said) % 3 == 0:
        raise ValueError("three again")
    return len(said) / 10

def lazy(base_url, api_key, row):
    return 1.0

if __name__ == "__main__":
    if len(sys.argv) > 1:
        import time
        with open(sys.argv[1], "a") as file:
            file.write(f"{os.getpid()} ")
        time.sleep(60)
    given = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"], json.loads(os.environ["WHET_ROW"])
    print("this is no reward")
    print(json.dumps(run(*given)))
'''
SHORT = (
    "worker.reward.reward_function=null",
    "data.max_response_length=60",
    "data.max_prompt_length=96",
    "worker.rollout.agent_timeout=60",
    "trainer.max_steps=2",
    "trainer.val_before_train=false",
    "trainer.val_freq=-1",
)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("agent") / "agent.py"
    file.write_text(AGENT)
    return file


def run_of(folder: Path, rows: tuple[str, str], *more: str) -> Path:
    code, text = train(folder, *rows, *SHORT, *more)
    assert code == 0, text
    return run_folder(folder)


@pytest.fixture(scope="module")
def by_function(tmp_path_factory: pytest.TempPathFactory, few_rows: tuple[str, str], agent: Path) -> Path:
    """The run folder of two steps with a function."""
    return run_of(tmp_path_factory.mktemp("function"), few_rows, f"worker.rollout.agent={agent}:run")


def test_metrics_and_samples_tell_of_turns_and_rewards(by_function: Path) -> None:
    last = read_metrics(by_function / "metrics.jsonl")[-1]
    assert last["turns/mean"] == 2
    assert last["env/branches"] == 1
    assert last["env/failed"] == 0
    assert last["env/end_done"] == 1
    rows = pq.read_table(by_function / "samples" / "train_000002.parquet").to_pylist()
    assert len(rows) == 16
    for row in rows:
        assert row["turns"] == 2
        assert row["reward"] == pytest.approx(row["info/right"] / 10)
        assert "again" in row["response"]


def test_a_command_line_trains_as_the_function_does(
    by_function: Path, tmp_path: Path, few_rows: tuple[str, str], agent: Path
) -> None:
    run = run_of(tmp_path, few_rows, f"worker.rollout.agent_command={sys.executable} {agent}")
    names = ("reward/overall", "env/right", "actor/loss", "actor/grad_norm")
    first, second = (read_metrics(each / "metrics.jsonl") for each in (by_function, run))
    same = [{name: step[name] for name in names if name in step} for step in first]
    assert same == [{name: step[name] for name in names if name in step} for step in second]
    assert len(same[0]) >= 3


def test_harnesses_that_fail_cost_their_samples_and_are_counted(
    tmp_path: Path, few_rows: tuple[str, str], agent: Path
) -> None:
    code, text = train(tmp_path, *few_rows, *SHORT, "trainer.max_steps=1", f"worker.rollout.agent={agent}:some")
    assert code == 0, text
    (metrics,) = settled(run_folder(tmp_path) / "metrics.jsonl")
    assert 0 < metrics["env/failed"] < 16
    assert metrics["env/failed"] == metrics["env/failed_raised"]
    said = " ".join(text.split())
    assert "agent.py:some: agent raised ValueError: three again" in said
    assert "so the sample scores worker.reward.fallback=0" in said


def test_a_run_whose_harness_never_calls_stops(tmp_path: Path, few_rows: tuple[str, str], agent: Path) -> None:
    code, text = train(tmp_path, *few_rows, *SHORT, f"worker.rollout.agent={agent}:lazy")
    assert code == 1, text
    assert "failed in all 16 episodes (16 bad result), so none has a score" in text
    assert "agent ended without having called the model" in " ".join(text.split())
    assert "Traceback" not in text


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_commands_of_a_killed_run_are_gone(tmp_path: Path, few_rows: tuple[str, str], agent: Path) -> None:
    pids = tmp_path / "pids"
    command = f"worker.rollout.agent_command={sys.executable} {agent} {pids}"
    process = start(tmp_path, "train", *SMALL, *few_rows, *SHORT, command)
    assert process.wait_for(lambda: pids.exists() and len(pids.read_text().split()) == 16)
    started = [int(pid) for pid in pids.read_text().split()]
    assert all(map(alive, started))
    process.kill()
    end = time.monotonic() + 20
    while any(map(alive, started)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(alive, started))


def test_the_example_trains(tmp_path: Path) -> None:
    small = ("data.rollout_batch_size=4", "worker.rollout.n=2", "worker.actor.global_batch_size=4")
    steps = ("trainer.max_steps=1", "trainer.val_before_train=false", "trainer.val_freq=-1", "trainer.save_freq=-1")
    config = f"config={examples_folder() / 'agents/harness/config.yaml'}"
    process = start(tmp_path, "train", config, "trainer.device=cpu", *small, *steps)
    assert process.wait() == 0, process.text()
    (file,) = tmp_path.rglob("metrics.jsonl")
    (metrics,) = settled(file)
    assert metrics["env/failed"] == 0
    assert metrics["turns/mean"] > 1
    assert metrics["env/branches"] == 1


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("worker.rollout.agent=nowhere.py:run", "worker.rollout.agent=nowhere.py: there is no such file"),
        ("worker.rollout.agent={agent}:ran", "defines no ran"),
        ("worker.rollout.agent={agent}:ask_nobody", "defines no ask_nobody"),
        ("worker.rollout.agent={agent}:sys", "expected a function, found a module"),
        ("worker.rollout.agent=run", "expected path.py:NAME or package.module:NAME"),
        ("worker.rollout.agent_command=no-such-program 3", "there is no program no-such-program"),
        ("worker.rollout.agent_command='python \"x'", "cannot be read as a command line"),
        ("worker.rollout.agent_timeout=0", "must be above 0"),
    ],
)
def test_bad_settings_are_named_before_any_work(
    tmp_path: Path, few_rows: tuple[str, str], agent: Path, argument: str, said: str
) -> None:
    code, text = train(tmp_path, *few_rows, *SHORT, argument.format(agent=agent))
    assert code == 2, text
    assert said in " ".join(text.split())
    assert "Traceback" not in text


def test_a_harness_and_an_environment_exclude_each_other(
    tmp_path: Path, few_rows: tuple[str, str], agent: Path
) -> None:
    both = (f"worker.rollout.agent={agent}:run", "worker.rollout.env=single_turn")
    code, text = train(tmp_path, *few_rows, *SHORT, *both)
    assert code == 2, text
    assert "worker.rollout.agent and worker.rollout.env are both set" in " ".join(text.split())
