"""Scoring with real worker processes and functions that misbehave in every way we could think of."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from whet.config.schema.reward import RewardConfig
from whet.errors import UserError
from whet.rewards.scorer import RewardScorer
from whet.types import Prompt, Sample

pytestmark = pytest.mark.early

NAUGHTY = """
import os, sys, time, threading, ctypes, signal, re, subprocess, random

def act(text):
    if text == "raise": raise ValueError("a bad sample")
    if text == "exit": sys.exit(3)
    if text == "interrupt": raise KeyboardInterrupt
    if text == "die": os._exit(3)
    if text == "segfault": ctypes.string_at(0)
    if text == "sleep": time.sleep(60)
    if text == "spin":
        while True:
            try: time.sleep(60)
            except BaseException: pass
    if text == "regex": re.match(r"(a+)+$", "a" * 40 + "b")
    if text == "recurse": return act(text)
    if text == "unpicklable": return threading.Lock()
    if text == "closes": os.closerange(3, 64)
    if text == "huge": return {"overall": 1, "essay": "x" * 10**7}
    if text == "print": print("noise" * 1000); sys.__stdout__.write("more"); os.write(1, b"raw")
    if text == "chdir": os.chdir("/")
    if text == "cwd": return float(os.getcwd() != "/")
    if text == "nan": return float("nan")
    if text == "random": return random.random()
    return {"overall": len(text), "accuracy": True}

def one(reward_input): return act(reward_input["response"])
def many(reward_inputs): return [act(row["response"]) for row in reward_inputs]
def leaves_out(reward_inputs): return [1.0 for row in reward_inputs if row["response"] not in ("skip", "4")]
def pid(reward_input): return os.getpid()
def texts(reward_input): return "good"
def columns(reward_input): return {"overall": 1, **reward_input}
def ordered(reward_input):
    time.sleep(0.02 * (int(reward_input["response"]) % 3))
    return int(reward_input["response"])
"""


@pytest.fixture
def reward_file(tmp_path):
    file = tmp_path / "reward.py"
    file.write_text(NAUGHTY)
    return file


@pytest.fixture
def scorer_of(reward_file):
    """Builds scorers over NAUGHTY and closes them; `.warnings` collects what they warn."""
    built = []

    def build(function: str, output: Path | None = None, **changes) -> RewardScorer:
        warnings: list[str] = []
        config = RewardConfig(**{"timeout": 1.5, "fallback": -1.0, **changes})
        scorer = RewardScorer(f"{reward_file}:{function}", config, warn=warnings.append, output=output)
        scorer.warnings = warnings
        built.append(scorer)
        return scorer

    yield build
    for scorer in built:
        scorer.close()


def samples(*texts: str, answer="4", extra=None) -> list[Sample]:
    """One sample per text."""
    return [
        Sample.written(
            Prompt(f"rows.jsonl:{i}", [1], "2+2=", answer, extra or {}), [5, 6], [0.0, 0.0], "stop", text=text
        )
        for i, text in enumerate(texts)
    ]


def metrics(**counts: float) -> dict[str, float]:
    """The metrics with these counts and zeros elsewhere."""
    names = ("raised", "timeout", "died", "bad_result")
    return {"reward/failed": sum(counts.values()), **{f"reward/{name}": counts.get(name, 0) for name in names}}


@pytest.mark.parametrize("function", ["one", "many"])
def test_bad_samples_cost_only_themselves(scorer_of, function):
    bad = {
        "raise": "raised",
        "exit": "raised",
        "interrupt": "raised",
        "recurse": "raised",
        "die": "died",
        "segfault": "died",
        "sleep": "timeout",
        "regex": "timeout",
        "unpicklable": "bad result",
        "nan": "bad result",
    }
    batch = samples("ab", *bad, "abc", "huge")
    scorer = scorer_of(function)
    assert scorer.score(batch) == metrics(raised=4, died=2, timeout=2, bad_result=2)
    assert [sample.failure for sample in batch] == [None, *bad.values(), None, None]
    assert [sample.reward for sample in batch] == [2.0, *[-1.0] * len(bad), 3.0, 1.0]
    assert batch[0].scores == {"overall": 2.0, "accuracy": 1.0}
    assert batch[1].scores == {"overall": -1.0}
    assert scorer.score(samples("a", "bb")) == metrics()
    text = "\n".join(scorer.warnings)
    assert 'raise ValueError("a bad sample")' in text
    assert "rows.jsonl:1" in text
    assert "SIGSEGV" in text
    assert "exited with code 3" in text
    assert "in act" in text  # where it hung
    assert "worker.py" not in text


def test_code_that_swallows_everything_and_closes_our_pipe(scorer_of):
    batch = samples("spin", "closes", "ab")
    assert scorer_of("one").score(batch) == metrics(timeout=1, died=1)
    assert batch[2].reward == 2.0


def test_each_cause_is_reported_once(scorer_of):
    scorer = scorer_of("one")
    scorer.score(samples("raise", "raise", "exit"))
    scorer.score(samples("raise", "exit"))
    assert len(scorer.warnings) == 2
    assert all(str(scorer._spec) in warning for warning in scorer.warnings)


def test_timeouts_take_their_time_and_no_more(scorer_of):
    scorer = scorer_of("one", timeout=0.5)
    scorer.score(samples("warm", "up"))
    start = time.monotonic()
    scorer.score(samples("sleep", "sleep", "sleep", "sleep", "ab"))
    assert 1.0 <= time.monotonic() - start < 30.0  # two rounds of two workers; not the two minutes that were slept


def test_results_keep_their_order_and_progress_counts(scorer_of):
    batch = samples(*map(str, range(30)))
    seen = []
    scorer_of("ordered", num_cpus=3).score(batch, seen.append)
    assert [sample.reward for sample in batch] == list(range(30))
    assert seen == [1] * 30


def test_random_rewards_do_not_depend_on_the_workers(scorer_of):
    runs = []
    for workers in (1, 3):
        batch = samples(*["random"] * 8)
        scorer_of("one", num_cpus=workers).score(batch)
        runs.append([sample.reward for sample in batch])
    assert runs[0] == runs[1]
    assert len(set(runs[0])) == 8


def test_batch_function_is_called_once_and_one_by_one_only_on_failure(scorer_of):
    seen = []
    scorer = scorer_of("many")
    scorer.score(samples("a", "bb", "ccc"), seen.append)
    assert seen == [3]
    scorer.score(samples("a", "raise", "ccc"), seen.append)
    assert seen == [3, 1, 1, 1]
    assert "one by one" in scorer.warnings[0]


def test_a_sample_left_out_of_the_results_fails_alone(scorer_of):
    batch = samples("a", "b", "skip")
    assert scorer_of("leaves_out").score(batch) == metrics(bad_result=1)
    assert [sample.reward for sample in batch] == [1.0, 1.0, -1.0]


def test_every_column_is_passed_and_cannot_hide_the_response(scorer_of):
    batch = samples("7", extra={"level": 3, "response": 99, "ground_truth": 98, "note": "x"}, answer=5)
    scorer_of("columns").score(batch)
    assert batch[0].scores == {"overall": 1.0, "level": 3.0, "response_length": 2.0, "ground_truth": 5.0}


def test_prints_go_to_the_output_file_only(scorer_of, tmp_path, capfd):
    output = tmp_path / "prints.log"
    for scorer in (scorer_of("one", output=output), scorer_of("one")):
        assert scorer.score(samples("print")) == metrics()
        scorer.close()
    assert "noisenoise" in output.read_text()
    assert output.read_text().endswith("raw")
    assert capfd.readouterr() == ("", "")


def test_working_folder_is_restored(scorer_of):
    batch = samples("chdir", "cwd")
    scorer_of("one", num_cpus=1).score(batch)
    assert batch[1].reward == 1.0


def test_workers_are_kept_between_steps_and_editing_the_file_changes_nothing(scorer_of, reward_file):
    scorer = scorer_of("pid", num_cpus=1)
    first, second = samples("a"), samples("a")
    scorer.score(first)
    reward_file.write_text("this is no python")
    scorer.score(second)
    assert first[0].reward == second[0].reward != os.getpid()
    worker = scorer._pool._workers[0]
    os.kill(worker.pid, 9)
    os.waitid(os.P_PID, worker.process.pid, os.WEXITED | os.WNOWAIT)
    assert scorer.score(second) == metrics()
    assert second[0].reward != first[0].reward


def test_the_function_in_the_docs_works(scorer_of, reward_file):
    docs = Path(__file__).parents[2] / "docs" / "rewards.md"
    reward_file.write_text(docs.read_text().split("```python\n")[1].split("```")[0])
    batch = samples(" 4", "5")
    scorer_of("compute_score", reward_function_kwargs={"format_weight": 0.2}).score(batch)
    assert [sample.scores for sample in batch] == [{"overall": 1.0, "accuracy": 1.0}, {"overall": 0.0, "accuracy": 0.0}]


def test_no_samples(scorer_of):
    assert scorer_of("one").score([]) == metrics()


def test_a_file_that_stops_importing_fails_samples_not_the_step(scorer_of, reward_file, tmp_path):
    sibling = tmp_path / "fragile_sibling.py"
    sibling.write_text("")
    reward_file.write_text("import fragile_sibling, os\ndef one(reward_input): os._exit(1)")
    scorer = scorer_of("one")
    scorer.check([])
    sibling.write_text("1/0")
    assert scorer.score(samples("a", "b", "c", "d")) == metrics(died=4)
    assert "ZeroDivisionError" in "\n".join(scorer.warnings)


def test_check_accepts_what_works_and_starts_one_worker(scorer_of):
    scorer = scorer_of("many")
    scorer.check([sample.prompt for sample in samples("", "")])
    assert not scorer.warnings
    assert len(scorer._pool._workers) == 1


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("leaves_out", "2 samples went in and 0 results came back"),
        ("texts", "must be a number, not str; it returned 'good'"),
        ("act", r"takes \(text\)"),
        ("absent", "has no function absent"),
    ],
)
def test_check_refuses(scorer_of, function, words):
    with pytest.raises(UserError, match=words):
        scorer_of(function).check([sample.prompt for sample in samples("", "")])


@pytest.mark.parametrize("answer", ["raise", "sleep", "die"])
def test_check_warns_and_goes_on_when_the_function_fails(scorer_of, answer):
    scorer = scorer_of("one")
    scorer.check([sample.prompt for sample in samples("", answer=answer)])
    assert "dry run" in scorer.warnings[0]


def test_check_refuses_a_file_that_ends_the_process(scorer_of, reward_file):
    reward_file.write_text("import os\nos._exit(4)")
    with pytest.raises(UserError, match="could not be imported: the worker process exited with code 4"):
        scorer_of("one").check([])


def test_calls_of_several_callers_share_the_workers_and_each_gets_its_own(scorer_of):
    scorer = scorer_of("ordered", num_cpus=3)
    batches = [samples(*(str(4 * i + j) for j in range(4))) for i in range(6)]

    async def score_all() -> list[dict[str, float]]:
        return await asyncio.gather(*(scorer.score_async(batch) for batch in batches))

    counts = asyncio.run(score_all())
    assert [sample.reward for batch in batches for sample in batch] == list(range(24))
    assert all(count["reward/failed"] == 0 for count in counts)
    assert len(scorer._pool._workers) <= 3


@pytest.mark.parametrize("function", ["one", "many"])
def test_the_async_form_fails_as_the_other_does(scorer_of, function):
    texts = ["good", "raise", "die", "sleep", "nan", "better"]
    at_once, one_by_one = (samples(*texts) for _ in range(2))
    counts = asyncio.run(scorer_of(function, timeout=1.0).score_async(at_once))
    assert counts == scorer_of(function, timeout=1.0).score(one_by_one)
    assert [s.failure for s in at_once] == [s.failure for s in one_by_one]
    assert [s.scores for s in at_once] == [s.scores for s in one_by_one]


def test_a_cancelled_caller_costs_nobody_else(scorer_of):
    scorer = scorer_of("one", num_cpus=2, timeout=30.0)

    async def cancel_one() -> None:
        hangs = asyncio.create_task(scorer.score_async(samples("sleep", "good")))
        await asyncio.sleep(0.5)
        others = samples(*["fine"] * 4)
        scored = asyncio.create_task(scorer.score_async(others))
        hangs.cancel()
        await scored
        assert [sample.reward for sample in others] == [4.0] * 4
        with pytest.raises(asyncio.CancelledError):
            await hangs

    begin = time.monotonic()
    asyncio.run(cancel_one())
    (last,) = samples("still works")
    scorer.score([last])
    assert last.reward == len("still works")
    assert time.monotonic() - begin < 20


def test_closing_ends_what_is_being_scored(scorer_of):
    scorer = scorer_of("one", timeout=60.0)

    async def close_meanwhile() -> None:
        hangs = asyncio.create_task(scorer.score_async(samples("sleep")))
        await asyncio.sleep(0.3)
        await asyncio.to_thread(scorer.close)
        with pytest.raises(RuntimeError, match="reward workers"):
            await hangs

    begin = time.monotonic()
    asyncio.run(close_meanwhile())
    assert time.monotonic() - begin < 20
