"""Confined executions per second of a tiny program, for each kind of confinement.

    python bench/sandbox.py                      # two workers, the best of five rounds
    python bench/sandbox.py --workers 4 --rounds 9 --runs 400

Prints a line of JSON for each kind: executions per second (best and median round), milliseconds of processor time for
an execution (the pool's side, the zygotes and the programs together), the same for grading by stdin and by tests, and,
to compare with, how often the same machine forks an empty interpreter and starts a new one at that moment.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from whet.errors import UserError
from whet.sandbox import Sandbox, grade_stdin, grade_tests

TINY = "print(1)"
_TICKS = os.sysconf("SC_CLK_TCK")
_FORKS = """
import os, sys, time
began = time.monotonic()
for _ in range(int(sys.argv[1])):
    pid = os.fork()
    if pid == 0: os._exit(0)
    os.waitpid(pid, 0)
print(int(sys.argv[1]) / (time.monotonic() - began))
"""


def rate(work: Callable[[], object], runs: int, workers: int) -> float:
    """Calls per second with so many threads."""
    with ThreadPoolExecutor(workers) as threads:
        began = time.monotonic()
        for done in [threads.submit(work) for _ in range(runs)]:
            done.result()
        return runs / (time.monotonic() - began)


def processor_seconds(sandbox: Sandbox) -> float:
    """Processor time of this process, the idle zygotes and all that they have waited for."""
    total = time.process_time()
    for worker in sandbox._free:
        with open(f"/proc/{worker.pid}/stat") as file:
            total += sum(map(int, file.read().rpartition(")")[2].split()[11:15])) / _TICKS
    return total


def forks(runs: int, workers: int) -> float:
    """Forks of an empty interpreter per second, by so many processes at once."""
    command = [sys.executable, "-I", "-S", "-c", _FORKS, str(runs)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(workers)]
    return sum(float(each.communicate()[0]) for each in running)


def starts(runs: int, workers: int) -> float:
    """New interpreters per second."""
    return rate(lambda: subprocess.run([sys.executable, "-I", "-S", "-c", TINY], capture_output=True), runs, workers)


def measure(layers: str, workers: int, rounds: int, runs: int) -> dict[str, object]:
    """Figures of one kind of confinement."""
    with Sandbox(workers, layers) as sandbox:
        rate(lambda: sandbox.run(TINY), 4 * workers, workers)
        before = processor_seconds(sandbox)
        rates = [rate(lambda: sandbox.run(TINY), runs, workers) for _ in range(rounds)]
        each = (processor_seconds(sandbox) - before) / (rounds * runs)
        stdin = rate(lambda: grade_stdin(sandbox, "print(int(input()) + 1)", [("1", "2")]), runs // 2, workers)
        tests = rate(lambda: grade_tests(sandbox, "def f(x): return x", ["assert f(1) == 1"]), runs // 4, workers)
    return {
        "layers": layers,
        "best": round(max(rates)),
        "median": round(statistics.median(rates)),
        "cpu_ms": round(1000 * each, 2),
        "graded_by_stdin": round(stdin),
        "graded_by_tests": round(tests),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=300)
    options = parser.parse_args()
    for layers in ("namespaces", "landlock"):
        try:
            found = measure(layers, options.workers, options.rounds, options.runs)
        except UserError as error:
            found = {"layers": layers, "unavailable": str(error)}
        print(json.dumps(found), flush=True)
    bare = max(forks(options.runs, options.workers) for _ in range(options.rounds))
    print(json.dumps({"bare_forks": round(bare), "new_interpreters": round(starts(40, options.workers))}))


if __name__ == "__main__":
    main()
