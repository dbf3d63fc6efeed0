"""Programs of responses are graded in worker processes by the run's sandbox, which leaves nothing behind."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from patience import eventually

from whet.config.schema.reward import RewardConfig
from whet.config.schema.sandbox import SandboxConfig
from whet.errors import UserError
from whet.rewards.programs.grading import ATTEMPTS, LostError, SandboxGrader
from whet.rewards.programs.tests import read_tests
from whet.rewards.scorer import RewardScorer
from whet.sandbox.limits import Limits, Result
from whet.types import Prompt, Sample

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sandbox needs Linux")
STDIN = {"inputs": ["1 2\n", "5 5\n"], "outputs": ["3\n", "10\n"]}
CALL = {"inputs": ["1\n2", "5\n5"], "outputs": ["3", "10"], "fn_name": "add"}
ASSERT = {"assert_case": ["assert add(1, 2) == 3", "assert add(5, 5) == 10"]}
CHECK = {"test_code": "def check(f):\n    assert f(1, 2) == 3", "entry_point": "add"}
ADD = "def add(a, b):\n    return a + b\n"
READ = "print(sum(map(int, input().split())))"
HOSTILE = [
    "import os\nprint('all tests passed')\nos._exit(0)",
    "import sys, builtins\nbuiltins.AssertionError = type('E', (), {})\nprint('3')\nsys.exit(0)",
    "class Yes:\n    def __eq__(self, other): return True\ndef add(a, b): return Yes()\nprint(1)",
]


def sample(program: str, truth: object, source: str = "codecontests") -> Sample:
    prompt = Prompt(f"row of {source}", [1], "question", truth, {"data_source": source})
    return Sample.written(prompt, [1], [0.0], "stop", text=f"```python\n{program}\n```")


def descendants(pid: int) -> set[int]:
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError):
                continue
            found.add((int(entry.name), parent))
    below, grown = {pid}, True
    while grown:
        more = {child for child, parent in found if parent in below} - below
        below |= more
        grown = bool(more)
    return below - {pid}


def scratch_folders() -> set[str]:
    return {str(path) for base in ("/dev/shm", "/tmp") for path in Path(base).glob("whet-reward-*")}


@linux
@pytest.mark.parametrize("layers", ["namespaces", "landlock"])
def test_programs_are_scored_in_the_workers_and_leave_nothing(layers):
    truths = (STDIN, CALL, ASSERT, CHECK)
    right = [sample(READ, STDIN), *(sample(ADD, truth) for truth in truths[1:])]
    wrong = [sample("print(3)", STDIN), sample("def add(a, b): return 3", CALL)]
    hostile = [sample(program, truth) for program in HOSTILE for truth in truths]
    before, folders = descendants(os.getpid()), scratch_folders()
    config, sandbox = RewardConfig(num_cpus=1, timeout=60.0), SandboxConfig(timeout=5.0, layers=layers)
    try:
        with RewardScorer("", config, sandbox=sandbox) as scorer:
            scorer.check([each.prompt for each in right])
            counts = scorer.score([*right, *wrong, *hostile])
            during = descendants(os.getpid()) - before
    except UserError as error:
        pytest.skip(f"this machine has no {layers}: {error}")
    assert counts["reward/failed"] == 0
    assert [each.scores["overall"] for each in right] == [1.0] * 4
    assert [each.scores["overall"] for each in wrong] == [0.5, 0.5]
    # The second one prints 3 and exits, which passes the one test of standard output that asks for a 3.
    paid = [each.scores["overall"] for each in hostile]
    assert paid == [0.0] * 4 + [0.5, 0.0, 0.0, 0.0] + [0.0] * 4
    assert len(during) >= 3, "keeper, worker and the sandbox's processes"
    assert eventually(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in during))
    assert scratch_folders() <= folders


@linux
def test_limits_of_the_config_reach_programs_and_tests_share_the_time_of_a_sample():
    endless = sample("while True: pass", {"inputs": ["1"] * 30, "outputs": ["1"] * 30})
    hog = sample("x = bytearray(10**9); print(1)", {"inputs": ["1"], "outputs": ["1"]})
    config, sandbox = RewardConfig(num_cpus=1, timeout=4.0), SandboxConfig(timeout=0.5, memory_mb=64)
    with RewardScorer("code", config, sandbox=sandbox) as scorer:
        counts = scorer.score([endless, hog])
    assert counts["reward/failed"] == 0
    assert endless.scores["overall"] == hog.scores["overall"] == 0.0


@linux
def test_a_function_of_the_user_runs_programs_in_the_same_sandbox(tmp_path):
    text = "from whet.rewards.programs.opened import sandbox\n"
    text += (
        "def main(response, answer):\n    return sandbox().limits.memory_mb + float(sandbox().run(response).stdout)\n"
    )
    (tmp_path / "mine.py").write_text(text)
    scored = Sample.written(Prompt("a", [1], "q", ""), [1], [0.0], "stop", text="print(0.5)")
    with RewardScorer(f"{tmp_path}/mine.py", RewardConfig(num_cpus=1), sandbox=SandboxConfig(memory_mb=99)) as scorer:
        scorer.score([scored])
    assert scored.scores["overall"] == 99.5


@pytest.mark.parametrize(("spec", "named"), [("code", r"sandbox.url=http://127.0.0.1:9"), ("", "sandbox.url")])
def test_a_sandbox_that_cannot_be_had_is_an_error_before_work(spec, named, monkeypatch):
    monkeypatch.setattr("whet.sandbox.remote._PAUSE", 0.0)
    sandbox = SandboxConfig(url="http://127.0.0.1:9")
    with (
        RewardScorer(spec, RewardConfig(num_cpus=1), sandbox=sandbox) as scorer,
        pytest.raises(UserError, match=named),
    ):
        scorer.check([sample(ADD, STDIN).prompt])


def test_other_scorers_need_no_sandbox():
    prompt = Prompt("a", [1], "q", "4", {"data_source": "openai/gsm8k"})
    with RewardScorer("", RewardConfig(num_cpus=1), sandbox=SandboxConfig(url="http://127.0.0.1:9")) as scorer:
        scorer.check([prompt])


class Unlucky:
    """A sandbox that loses its process a few times before it runs a program."""

    limits = Limits()

    def __init__(self, times: int) -> None:
        self.times = times

    def run(self, program: str, stdin: str, limits: Limits) -> Result:
        self.times -= 1
        return Result("lost" if self.times >= 0 else "ok", None, "3", "", 0.0)


def test_a_lost_process_is_tried_again_and_never_a_verdict():
    tests = read_tests({"inputs": ["1"], "outputs": ["3"]})
    assert SandboxGrader(Unlucky(ATTEMPTS - 1)).grade("", tests, None, None)[0].passed
    with pytest.raises(LostError):
        SandboxGrader(Unlucky(ATTEMPTS)).grade("", tests, None, None)


def test_tests_without_time_left_have_failed():
    (verdict,) = SandboxGrader(Unlucky(0), lambda: 0.0).grade(
        "", read_tests({"inputs": ["1"], "outputs": ["3"]}), 1, 64
    )
    assert (verdict.passed, verdict.status) == (False, "timeout")
