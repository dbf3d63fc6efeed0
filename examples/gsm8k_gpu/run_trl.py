"""The same recipe with TRL and vLLM in one process: from run.py's warmed-up model, for the minutes that were left.

    python run_trl.py --whet result/ --data gsm8k/ --out result_trl/ [--micro-batch 64] [--set KEY=VALUE ...]

--whet is the folder of a finished run.py. TRL trains from the same warm-up with the numbers of grpo.yaml, from the
start of this program to the moment at which whet's GRPO was stopped; the model it saves is evaluated by whet, as every
other. What differs: TRL does not leave out groups without signal, and pads instead of packing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    arguments, started = _arguments(), time.time()
    whet, out, data = (path.absolute() for path in (arguments.whet, arguments.out, arguments.data))
    out.mkdir(parents=True, exist_ok=True)
    results = json.loads((whet / "results.json").read_text())
    until = started + results["deadline_s"] - 60 * results["warm_up"]["minute"]
    keys = ["--set", *arguments.set] if arguments.set else []
    places = ["--model", str(whet / "warm_up" / "huggingface"), "--train", str(data / "train.jsonl"), "--out", str(out)]
    sizes = ["--until", str(until), "--micro-batch", str(arguments.micro_batch)]
    # In processes of their own: what vLLM holds on the device is gone before the evaluation.
    subprocess.run([sys.executable, str(HERE / "trl_grpo.py"), *places, *sizes, *keys], check=True)
    places = ["--model", str(out / "model"), "--data", str(data), "--out", str(out / "after")]
    subprocess.run([sys.executable, str(HERE / "evaluate.py"), *places, *keys], check=True)
    report(whet, out, started)


def report(whet: Path, out: Path, started: float) -> None:
    """results.json and the curve of both programs, on one time axis."""
    from curve import Point, read_csv, scored, write_csv, write_png
    from evaluate import gain, read_score

    ours = read_csv(whet / "curve.csv")
    warm, after, theirs = (read_score(folder) for folder in (whet / "after_warm_up", out / "after", whet / "after"))
    steps = json.loads((out / "steps.json").read_text())
    began = ours[1].minute  # when the warm-up's evaluation was done

    def minute(moment: float) -> float:
        return began + (moment - started) / 60

    points = ours[:2] + [Point(minute(moment), f"step {i}", reward) for i, (moment, reward) in enumerate(steps, 1)]
    points.append(scored(minute(time.time()), "end", after))
    results = {
        "accuracy": after.accuracy,
        "interval": after.interval,
        "correct": after.correct,
        "problems": after.problems,
        "steps": len(steps),
        "seconds": steps[-1][0] - started,
        "first_step_s": steps[0][0] - started,
        "gain_over_warm_up": gain(warm, after),
        "whet_minus_this": {"accuracy": theirs.accuracy - after.accuracy, "interval": gain(after, theirs)},
    }
    (out / "results.json").write_text(json.dumps(results, indent=1))
    write_csv(points, out / "curve.csv")
    write_png({"whet": ours, "TRL + vLLM": points}, out / "curve.png")
    print(json.dumps(results, indent=1))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--whet", type=Path, required=True, help="folder that run.py wrote")
    parser.add_argument("--data", type=Path, required=True, help="folder with train.jsonl and test.jsonl")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--micro-batch", type=int, default=64, help="samples a forward pass")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="keys over grpo.yaml, as for run.py")
    return parser.parse_args()


if __name__ == "__main__":
    main()
