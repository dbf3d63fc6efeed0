"""Training and sampling on one GPU: whet, whet with vLLM, vLLM alone, and TRL with vLLM, on the same prompts.

Each part runs in a process of its own, so that none sees another's memory or CUDA state, and writes a JSON result; the
table says what they came to. GSM8K questions (--data train.jsonl, else word problems made here) through the chat
template of SmolLM2-135M, 64 prompts x 8 samples of up to 512 tokens, bf16; and a Qwen3 of 1.7 billion random weights.

    python bench/gpu.py --out results [--data gsm8k/train.jsonl] [--only whet-rollout-135m ...] [--profile]
    python bench/gpu.py --tiny --out results            # whet's parts with a tiny model on a CPU, to try the script

vLLM and TRL need not be installed beside whet: --peer-site names a folder of packages that only they see. Results of
several runs make one table with --merge results.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpu_part import Spec, write_spec
from gpu_shapes import write_bf16
from gpu_table import table
from gpu_workload import write_workload

HERE = Path(__file__).parent
QUICK = {"prompts": 4, "samples": 2, "new_tokens": 8, "steps": 4, "rounds": 1, "update_tokens": 64}


@dataclass(frozen=True, slots=True)
class Part:
    """Which program does what with which model."""

    program: str  # gpu_{program}.py
    kind: str
    model: str
    usual: bool = True  # whether it runs without being asked for by name


PARTS = {
    "whet-rollout-135m": Part("whet", "rollout", "135m"),
    "vllm-rollout-135m": Part("vllm", "rollout", "135m"),
    "whet-steps-135m": Part("whet", "steps", "135m"),
    "whet-vllm-steps-135m": Part("whet_vllm", "steps", "135m"),
    "trl-steps-135m": Part("trl", "steps", "135m"),
    "trl-uncorrected-135m": Part("trl", "steps", "135m", usual=False),
    "whet-update-135m": Part("whet", "update", "135m", usual=False),
    "whet-rollout-1.7b": Part("whet", "rollout", "1.7b"),
    "vllm-rollout-1.7b": Part("vllm", "rollout", "1.7b"),
    "whet-update-1.7b": Part("whet", "update", "1.7b"),
    "whet-vllm-switch-1.7b": Part("whet_vllm", "switch", "1.7b"),
}


def main() -> None:
    arguments = _arguments()
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {}
    for file in arguments.merge:
        results |= json.loads(file.read_text())
    if arguments.work is not None:
        arguments.work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=arguments.work) as folder:
        work = Path(folder)
        names = _chosen(arguments)
        models = _models(arguments, work, {PARTS[name].model for name in names}) if names else {}
        for name in names:
            print(f"== {name}", flush=True)
            results[name] = _run_part(name, models[PARTS[name].model], work, arguments)
            (out / "results.json").write_text(json.dumps(results, indent=1))  # whatever happens to the next part
    text = table({name: results[name] for name in PARTS if name in results})
    (out / "table.md").write_text(text)
    (out / "results.json").write_text(json.dumps(results, indent=1))
    print(text)


def _chosen(arguments: argparse.Namespace) -> list[str]:
    if arguments.only is None:
        return [name for name, part in PARTS.items() if part.usual and (part.program == "whet" or not arguments.tiny)]
    unknown = set(arguments.only) - set(PARTS)
    if unknown:
        sys.exit(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    return [name for name in PARTS if name in arguments.only]


def _models(arguments: argparse.Namespace, work: Path, wanted: set[str]) -> dict[str, str]:
    """Model folders in bf16, and the prompts beside them."""
    from whet.assets import resolve_model

    source = resolve_model("whet/quickstart" if arguments.tiny else arguments.model, print)
    models = {"135m": str(source) if arguments.tiny else str(work / "model")}
    if not arguments.tiny:
        write_bf16(source, work / "model")
    if "1.7b" in wanted:
        models["1.7b"] = str(work / "random")
        script = [sys.executable, str(HERE / "gpu_shapes.py"), models["1.7b"], "--tokenizer", str(source)]
        subprocess.run([*script, *(["--tiny"] if arguments.tiny else [])], check=True)  # the GPU's memory is its own
    write_workload(work / "workload", str(source), arguments.data, 64 * arguments.steps, arguments.tiny)
    return models


def _run_part(name: str, model: str, work: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    part = PARTS[name]
    spec = Spec(
        model=model,
        workload=str(work / "workload"),
        work=str(work / name),
        device="cpu" if arguments.tiny else "cuda",
        started=0.0,
        steps=arguments.steps,
        correction=name != "trl-uncorrected-135m",
        profile=arguments.profile,
        keys=dict(
            pair.split("=", 1)
            for pair in [*arguments.set, *(arguments.vllm_set if part.program == "whet_vllm" else [])]
        ),
    )
    if arguments.tiny:
        spec = replace(spec, **QUICK)
    result: dict[str, Any] = {}
    for micro_batch in (64, 32, 16) if part.program == "trl" else (64,):
        result = _run_process(name, replace(spec, micro_batch=micro_batch), work, arguments)
        if "out of memory" not in result.get("error", "").lower():
            break
    for report in Path(spec.work).glob("profile_*.txt"):
        (arguments.out / f"{name}_{report.name}").write_text(report.read_text())
    return result


def _run_process(name: str, spec: Spec, work: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run a part to its end; its result, or an error with the last lines that it printed."""
    part, result = PARTS[name], work / f"{name}.json"
    Path(spec.work).mkdir(parents=True, exist_ok=True)
    write_spec(replace(spec, started=time.time()), work / f"{name}.spec.json")
    environment = os.environ | {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
    paths = [str(HERE.parent), environment.get("PYTHONPATH", "")]
    if part.program != "whet":
        environment["VLLM_USE_FLASHINFER_SAMPLER"] = "0"
        paths += [arguments.peer_site or ""]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    script = str(HERE / f"gpu_{part.program}.py")
    command = [sys.executable, script, part.kind, str(work / f"{name}.spec.json"), str(result)]
    log = arguments.out / f"{name}.log"
    with log.open("w") as lines, DeviceMemory() as memory:
        process = subprocess.Popen(
            command, env=environment, stdout=lines, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code: int | str = process.wait(arguments.timeout)
        except subprocess.TimeoutExpired:
            code = f"no result after {arguments.timeout} s"
        finally:
            end_session(process)  # what it started too: the next part wants the device for itself
    for engine in Path(spec.work).glob("run/rollout*.log"):  # what vLLM said
        (arguments.out / f"{name}_{engine.name}").write_text(engine.read_text()[-100_000:])
    if code or not result.exists():
        tail = log.read_text()[-2000:]
        print(f"{name} failed ({code}):\n{tail}", flush=True)
        out_of_memory = "out of memory; " if "out of memory" in log.read_text().lower() else ""
        return {"error": f"{out_of_memory}{code}: {tail[-300:]}"}
    return json.loads(result.read_text()) | memory.result()


def end_session(process: subprocess.Popen[bytes]) -> None:
    """End a process that has a session of its own, and whatever is left in it."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, kind)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)


class DeviceMemory:
    """The most memory that was in use on the whole device while entered, looked at five times a second."""

    def __enter__(self) -> DeviceMemory:
        self._most = 0.0
        query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--loop-ms=200"]
        try:
            self._process = subprocess.Popen(query, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        except OSError:  # no such program, no such number
            self._process = None
            return self
        threading.Thread(target=self._read, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def _read(self) -> None:
        assert self._process is not None
        for line in self._process.stdout or ():
            if line.strip().isdigit():
                self._most = max(self._most, float(line) / 1024)  # MiB

    def result(self) -> dict[str, float]:
        return {"device_peak_gib": self._most} if self._most else {}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "gpu")
    parser.add_argument("--data", type=Path, help="jsonl with the columns question and answer")
    parser.add_argument("--model", default="whet/smollm2", help="the small model")
    parser.add_argument("--only", nargs="+", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--steps", type=int, default=7, help="GRPO steps, the first two of which do not count")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="further keys of whet's config")
    parser.add_argument("--vllm-set", nargs="*", default=[], metavar="KEY=VALUE", help="the same, with vLLM only")
    parser.add_argument("--peer-site", help="folder of packages for vLLM and TRL")
    parser.add_argument("--profile", action="store_true", help="print the kernels of a decode and of an update")
    parser.add_argument("--tiny", action="store_true", help="whet's parts, tiny, on a CPU")
    parser.add_argument("--timeout", type=float, default=580.0, help="seconds that a part may take")
    parser.add_argument("--work", type=Path, help="where models and runs are written meanwhile")
    parser.add_argument("--merge", nargs="*", type=Path, default=[], help="earlier results for the table")
    return parser.parse_args()


if __name__ == "__main__":
    main()
