"""Faults that the doctor names, and false alarms: short runs of the quickstart with one fault each, and clean runs.

Each fault is a key, a reward function or data that somebody could get wrong; the doctor names it if one of the rules
whose sentence says what is wrong, which are listed with it, finds something. Clean runs
are the examples of algorithms under seeds of their own; any finding about them is a false alarm.

    python bench/doctor.py [--faults] [--clean] [--only NAME ...] [--out results.jsonl] [--minutes 12]

With --out, runs whose results the file holds already are not made again, so that a pass can be made in parts of
--minutes each; results of other code (the doctor's, or of this benchmark) do not count. The last lines sum up what the
file holds.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import random
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent.absolute()
EXAMPLES = HERE.parent / "examples"
BASE = {"trainer.max_steps": 14, "trainer.val_freq": -1, "trainer.val_before_train": "false", "trainer.save_freq": -1}
MANY = {"trainer.max_steps": 32}
LR = "worker.actor.optim.lr"


def reward(name: str, **more: object) -> dict[str, object]:
    return {"worker.reward.reward_function": f"{HERE / 'doctor_rewards.py'}:{name}", **more}


KL = {"algorithm.disable_kl": "false", "algorithm.use_kl_loss": "true", "algorithm.kl_coef": 1e-6}
SMALL = {"data.rollout_batch_size": 8, "worker.actor.global_batch_size": 8}

# Name -> (keys, rules that name the fault).
FAULTS: dict[str, tuple[dict[str, object], set[str]]] = {
    "constant reward": (reward("constant"), {"ties", "answers"}),
    "reward reads another form": (reward("other_form"), {"answers", "ties"}),
    "wrong answer column": ({"data.answer_key": "problem"}, {"answers"}),
    "everything is solved": (reward("solved"), {"ties", "answers"}),
    "responses cut off": ({"data.max_response_length": 4}, {"cut"}),
    "learning rate too high": ({LR: 0.3}, {"collapsed", "gradients"}),
    "learning rate too low": ({LR: 1e-9} | MANY, {"flat"}),
    "reward is the wrong way round": (reward("reversed_") | MANY, {"opposed"}),
    "reward for short responses": (reward("short", **{LR: 3e-3}) | MANY, {"shortened", "empty"}),
    "reward for long responses": (
        reward("long", **{LR: 1e-2, "data.max_response_length": 96}) | SMALL | MANY,
        {"lengthened", "repetition", "cut"},
    ),
    "reward that can be exploited": (reward("any_answer", **{LR: 3e-3}) | MANY, {"exploited"}),
    "slow reward": (
        reward("slow") | {"data.rollout_batch_size": 8, "worker.actor.global_batch_size": 8},
        {"slow_rewards"},
    ),
    "reward raises": (reward("raises"), {"failing_rewards"}),
    "reward hangs": (
        reward("hangs", **{"worker.reward.timeout": 1}) | SMALL | {"trainer.max_steps": 5},
        {"failing_rewards", "slow_rewards"},
    ),
    "reward is not a number": (reward("not_a_number"), {"failing_rewards", "refused"}),
    "duplicate rows": ({"data.train_files": "DUPLICATES"}, {"duplicates"}),
    "validation rows in training": (
        {"data.train_files": "whet/quickstart@test", "trainer.val_before_train": "true"} | SMALL,
        {"leak"},
    ),
    "temperature near zero": ({"worker.rollout.temperature": 0.01}, {"alike", "ties"}),
    "KL without a hold": (KL | {LR: 3e-2}, {"kl", "collapsed", "gradients"}),
    "too many updates a batch": (
        {"worker.actor.ppo_epochs": 8, "worker.actor.global_batch_size": 4, LR: 1e-2},
        {"clipping", "collapsed", "gradients", "entropy"},
    ),
    "samples that are stale": ({"trainer.max_staleness": 6, LR: 1e-2} | SMALL | MANY, {"staleness"}),
    "sampler and learner differ": (
        {"worker.rollout.name": f"{HERE / 'doctor_engine.py'}:SPEC", "worker.actor.recompute_old_log_probs": "true"},
        {"drift"},
    ),
}
CLEAN = ["quickstart", "grpo", "rloo", "dr_grpo", "gspo", "cispo", "dapo", "reinforce_pp", "opo", "kl_cov"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--clean", action="store_true")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no run after as many")
    arguments = parser.parse_args()
    both = arguments.faults == arguments.clean
    wanted = [*(FAULTS if arguments.faults or both else []), *(_clean_runs() if arguments.clean or both else [])]
    wanted = [name for name in wanted if not arguments.only or name in arguments.only]
    done, end = _done(arguments.out), time.monotonic() + 60 * arguments.minutes
    with tempfile.TemporaryDirectory() as folder:
        for name in wanted:
            if name not in done and time.monotonic() < end:
                done[name] = _fault(Path(folder), name) if name in FAULTS else _clean(Path(folder), name)
                _say(arguments.out, done[name])
    _sum_up([done[name] for name in wanted if name in done], len(wanted))


def _fault(work: Path, name: str) -> dict[str, Any]:
    keys, expected = FAULTS[name]
    given = {**BASE, **keys}
    if given.get("data.train_files") == "DUPLICATES":
        given["data.train_files"] = _duplicates(work)
    found, seconds = _run(work / name.replace(" ", "_"), EXAMPLES / "quickstart.yaml", given)
    named = bool(expected & set(found))
    return {"fault": name, "named": named, "found": found, "expected": sorted(expected), "seconds": seconds}


def _clean_runs() -> list[str]:
    return [f"{name}-{seed}" for name in CLEAN for seed in (1, 2)]


def _clean(work: Path, label: str) -> dict[str, Any]:
    name, seed = label.rsplit("-", 1)
    config = EXAMPLES / ("quickstart.yaml" if name == "quickstart" else f"algorithms/{name}.yaml")
    keys = {**BASE, "trainer.max_steps": 32, "trainer.seed": seed, "trainer.val_freq": 16}
    found, seconds = _run(work / label, config, keys)
    return {"clean": label, "found": found, "seconds": seconds}


def _sum_up(records: list[dict[str, Any]], wanted: int) -> None:
    faults = [each for each in records if "fault" in each]
    clean = [each for each in records if "clean" in each]
    print(f"done: {len(records)} of {wanted} runs")
    print(f"named: {sum(each['named'] for each in faults)} of {len(faults)} faults")
    print(f"false alarms: {sum(bool(each['found']) for each in clean)} of {len(clean)} clean runs", flush=True)


def _done(out: Path | None) -> dict[str, dict[str, Any]]:
    """Return the results of this code that a file holds, by the name of their run."""
    if out is None or not out.exists():
        return {}
    records = [json.loads(line) for line in out.read_text().splitlines()]
    return {each.get("fault") or each["clean"]: each for each in records if each.pop("code") == _code()}


@cache
def _code() -> str:
    """Return a digest of the rules and of this benchmark."""
    files = [*(HERE.parent / "whet" / "doctor").rglob("*.py"), *HERE.glob("doctor*.py")]
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(files))).hexdigest()[:12]


def _duplicates(work: Path) -> Path:
    from whet.assets import builtin

    rows = (Path(builtin("whet/quickstart", say=print)) / "train.jsonl").read_text().splitlines()[:300] * 2
    random.Random(1).shuffle(rows)
    file = work / "duplicates.jsonl"
    file.write_text("\n".join(rows) + "\n")
    return file


def _run(folder: Path, config: Path, keys: dict[str, object]) -> tuple[list[str], float]:
    """Train and examine a run; return the rules that found something. A run may fail: then it found that itself."""
    from whet.cli import main as whet
    from whet.doctor.examine import examine_run
    from whet.plots.runs import find_runs

    given = [f"{name}={value}" for name, value in {**keys, "trainer.save_checkpoint_path": folder}.items()]
    begun, said = time.perf_counter(), io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        code = whet(["train", f"config={config}", *given])
    seconds = round(time.perf_counter() - begun, 1)
    if code:
        print(f"  the run ended with {code}: {said.getvalue().strip()[-300:]}", flush=True)
    if not (folder / "metrics.jsonl").exists():
        return ["refused"] if code == 2 else [], seconds  # by the checks before training, which say what is wrong
    found = [each for run in find_runs(folder) for each in examine_run(run.folder, run.metrics, run.settings)]
    return sorted({each.finding.rule for each in found}), seconds


def _say(out: Path | None, record: dict[str, Any]) -> None:
    print(json.dumps(record), flush=True)
    if out is not None:
        with out.open("a") as file:
            file.write(json.dumps({**record, "code": _code()}) + "\n")


if __name__ == "__main__":
    main()
