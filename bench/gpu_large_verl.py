"""verl's side of gpu_large.py: GRPO with vLLM on one GPU; the shape, lengths and end tokens are the same.

    python bench/gpu_large_verl.py step-7b --work /dev/shm/verl --out verl.json
    python bench/gpu_large_verl.py tiny --work /tmp/verl      # without a GPU: all files, and verl's config composed

Written for verl 0.9.1 with vLLM 0.24.0 and transformers 5.9.0, which may lie on PYTHONPATH. Random weights, a tokenizer
of made-up words and the prompts are written to --work; verl's log goes to verl.log there, the metrics of its steps to
steps.jsonl. Weights, gradients and AdamW's moments are in bf16, as for TRL: verl's default, fp32, does not fit on one
GPU. Activations are kept unless --checkpointing says otherwise; samples are packed and attended to by torch's
FlashAttention (verl_plugins.py), log-probs computed without whole logits.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from gpu import DeviceMemory
from gpu_large import WORKLOADS
from gpu_large_trl import made_rows, write_model
from process_tree import adopt_orphans, end_all
from rollout_tail import ends_of
from transformers import GenerationConfig

STAGES = ("gen", "old_log_prob", "adv", "update_actor", "update_weights")  # verl's timing_s/*


def write_folder(name: str, work: Path, steps: int) -> None:
    """Write the model with its end tokens, the prompts of all steps, and the file that verl's processes import."""
    workload = WORKLOADS[name]
    vocabulary = write_model(workload, work / "model", "cpu" if _on_cpu(name) else "cuda")
    torch.cuda.empty_cache()
    ends = sorted(ends_of(vocabulary, workload.mean))
    GenerationConfig(eos_token_id=ends, pad_token_id=0).save_pretrained(work / "model")  # vLLM reads ends there
    write_prompts(work / "prompts.parquet", [row["prompt"] for row in made_rows(workload, vocabulary, steps)])
    (work / "plugins").mkdir(exist_ok=True)
    shutil.copy(Path(__file__).with_name("verl_plugins.py"), work / "plugins")


def write_prompts(file: Path, prompts: list[str]) -> None:
    """Write one row for each prompt, with the columns that verl reads."""
    import pyarrow as pa
    from pyarrow import parquet

    rows = [
        {
            "data_source": "made",
            "prompt": [{"role": "user", "content": prompt}],
            "ability": "none",
            "reward_model": {"style": "rule", "ground_truth": ""},
            "extra_info": {"index": i},
        }
        for i, prompt in enumerate(prompts)
    ]
    parquet.write_table(pa.Table.from_pylist(rows), file)


def overrides(arguments: argparse.Namespace) -> list[str]:
    """verl's defaults but for the workload and what would slow it down here."""
    workload, work = WORKLOADS[arguments.workload], arguments.work.resolve()
    model, actor, rollout = (f"actor_rollout_ref.{part}" for part in ("model", "actor", "rollout"))
    values: dict[str, Any] = {
        "algorithm.adv_estimator": "grpo",
        "data.train_files": work / "prompts.parquet",
        "data.val_files": work / "prompts.parquet",
        "data.train_batch_size": workload.prompts,
        "data.max_prompt_length": workload.prompt_tokens[1],
        "data.max_response_length": workload.max_tokens,
        "data.shuffle": False,
        "data.dataloader_num_workers": 0,
        f"{model}.path": work / "model",
        f"{model}.external_lib": "verl_plugins",
        f"+{model}.override_config.attn_implementation": "torch_varlen",
        f"{model}.use_remove_padding": True,
        f"{model}.enable_gradient_checkpointing": arguments.checkpointing,
        f"{model}.use_fused_kernels": arguments.fused != "none",
        f"{model}.fused_kernel_options.impl_backend": "torch" if arguments.fused == "none" else arguments.fused,
        f"{actor}.fsdp_config.model_dtype": "bf16",
        f"{actor}.fsdp_config.param_offload": arguments.offload,
        f"{actor}.fsdp_config.optimizer_offload": arguments.offload,
        f"{actor}.optim.lr": 1e-6,
        f"{actor}.optim.override_optimizer_config": "{fused:true}",
        f"{actor}.ppo_mini_batch_size": workload.prompts,
        f"{actor}.use_dynamic_bsz": True,
        f"{actor}.ppo_max_token_len_per_gpu": arguments.tokens,
        f"{rollout}.name": "vllm",
        f"{rollout}.n": workload.samples,
        f"{rollout}.tensor_model_parallel_size": 1,
        f"{rollout}.gpu_memory_utilization": arguments.memory,
        f"{rollout}.max_num_seqs": min(512, workload.prompts * workload.samples),
        f"{rollout}.max_model_len": workload.prompt_tokens[1] + workload.max_tokens,
        f"{rollout}.log_prob_max_token_len_per_gpu": arguments.log_prob_tokens,
        f"{rollout}.agent.num_workers": 4,  # each imports torch and transformers anew
        "reward.num_workers": 2,
        "reward.custom_reward_function.path": "pkg://verl_plugins",
        "+ray_kwargs.ray_init.address": "local",  # never a cluster that someone else has started
        "+ray_kwargs.ray_init.include_dashboard": False,
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 2,
        "trainer.n_gpus_per_node": 1,
        "trainer.logger": "[console,file]",
        "trainer.val_before_train": False,
        "trainer.total_epochs": 1,
        "trainer.total_training_steps": arguments.steps,
        "trainer.resume_mode": "disable",
        "trainer.default_local_dir": work / "out",
    }
    return [f"{key}={value}" for key, value in values.items()] + arguments.set


def start(arguments: argparse.Namespace) -> subprocess.Popen[bytes]:
    """Start verl with its output in verl.log; without a GPU it prints its whole config and ends."""
    work = arguments.work.resolve()
    command = [sys.executable, "-m", "verl.trainer.main_ppo", *overrides(arguments)]
    if _on_cpu(arguments.workload):
        command += ["--cfg", "job", "--resolve"]
    paths = [os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    settings = {
        "PYTHONPATH": os.pathsep.join([*paths, str(work / "plugins")]),
        "VLLM_USE_FLASHINFER_SAMPLER": "0",
        "VERL_FILE_LOGGER_PATH": str(work / "steps.jsonl"),
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(work / "huggingface"),
        "RAY_USAGE_STATS_ENABLED": "0",
        "HYDRA_FULL_ERROR": "1",
        "PYTHONUNBUFFERED": "1",
    }
    (work / "steps.jsonl").unlink(missing_ok=True)
    with (work / "verl.log").open("wb") as log:
        return subprocess.Popen(
            command, cwd=work, env=os.environ | settings, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )


def wait(verl: subprocess.Popen[bytes], arguments: argparse.Namespace, deadline: float) -> str:
    """Wait until verl has taken its steps, ends by itself, or has no time left; the reason."""
    samples = samples_of(arguments.workload)
    while True:
        time.sleep(0.5)
        if verl.poll() is not None:
            return f"verl ended with exit code {verl.returncode}"
        if len(read_steps(arguments.work, samples)) >= arguments.steps:
            return "all steps taken"
        if time.time() > deadline:
            return f"the limit of {arguments.limit:.0f} s was reached"


def read_steps(work: Path, samples: int) -> list[dict[str, Any]]:
    """Seconds and sizes of the steps of so many samples that verl has logged so far, the first included."""
    file, steps = work / "steps.jsonl", []
    for line in file.read_text().split("\n")[:-1] if file.exists() else []:
        entry = json.loads(line)
        data = entry["data"]
        steps.append(
            {
                "step": entry["step"],
                "seconds": data["timing_s/step"],
                **{stage: data.get(f"timing_s/{stage}") for stage in STAGES},
                "tokens": round(data["response_length/mean"] * samples),
                "mean_length": data["response_length/mean"],
                "cut": data["response_length/clip_ratio"],
                "packed_tokens": data["perf/total_num_tokens"],
                "mfu": data.get("perf/mfu/actor"),
                "prob_diff": data.get("training/rollout_probs_diff_mean"),
                "torch_peak_gib": data.get("actor/perf/max_memory_allocated_gb"),
                "reserved_peak_gib": data.get("actor/perf/max_memory_reserved_gb"),
            }
        )
    return steps


def samples_of(name: str) -> int:
    """Samples of a step."""
    return WORKLOADS[name].prompts * WORKLOADS[name].samples


def _on_cpu(name: str) -> bool:
    return WORKLOADS[name].keys.get("trainer.device") == "cpu"


def main() -> None:
    arguments, began = _arguments(), time.time()
    arguments.work.mkdir(parents=True, exist_ok=True)
    if not arguments.keep:
        write_folder(arguments.workload, arguments.work, arguments.steps)
    if arguments.files:
        return
    adopt_orphans()
    written = time.time()
    with DeviceMemory() as memory:
        verl = start(arguments)
        try:
            ended = wait(verl, arguments, began + arguments.limit)
        finally:
            end_all(verl)
    steps = read_steps(arguments.work, samples_of(arguments.workload))
    result = {
        "workload": arguments.workload,
        "settings": {key: str(value) for key, value in vars(arguments).items()},
        "ended": ended,
        "write_s": written - began,
        "verl_s": time.time() - written,
        "steps": steps,
        "step_s": [step["seconds"] for step in steps[1:]],
        "tokens": [step["tokens"] for step in steps[1:]],
        **memory.result(),
    }
    failed = not steps and not (_on_cpu(arguments.workload) and verl.returncode == 0)
    if failed:
        print((arguments.work / "verl.log").read_text(errors="replace")[-6000:], flush=True)
    print(json.dumps(result), flush=True)
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(result, indent=1))
    sys.exit(1 if failed else 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--work", type=Path, required=True, help="a folder for weights, prompts and what verl writes")
    parser.add_argument("--steps", type=int, default=4, help="the first does not count")
    parser.add_argument("--limit", type=float, default=480, help="seconds after which verl is ended")
    parser.add_argument("--memory", type=float, default=0.4, help="vLLM's gpu_memory_utilization")
    parser.add_argument("--tokens", type=int, default=4096, help="tokens of a forward and backward pass")
    parser.add_argument("--log-prob-tokens", type=int, default=16384, help="tokens of a pass for log-probs")
    parser.add_argument("--checkpointing", action="store_true", help="recompute activations")
    parser.add_argument("--fused", choices=("torch", "triton", "none"), default="torch", help="log-probs by")
    parser.add_argument("--offload", action="store_true", help="weights and moments go to the host while vLLM samples")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="further keys of verl's config")
    parser.add_argument("--keep", action="store_true", help="take the model and prompts that --work holds already")
    parser.add_argument("--files", action="store_true", help="write the model and prompts, start nothing")
    parser.add_argument("--out", type=Path, help="a file for the result as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    main()
