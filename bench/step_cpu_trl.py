"""TRL's side of bench/step_cpu.py; runs in TRL's own virtual environment.

No vLLM, no reference model (beta 0), four micro-batches of 8. Gradient checkpointing is on, as TRL has it by default,
or off, which is faster where memory allows.
"""

import json
import resource
import sys
import time
from itertools import pairwise
from pathlib import Path

import torch
from datasets import Dataset
from step_cpu_reward import digit_share
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

model_path, data, out = sys.argv[1:4]
steps, prompts, samples, new_tokens = map(int, sys.argv[4:8])
checkpointing = sys.argv[8] == "default"
rows = [json.loads(line) for line in Path(data).read_text().splitlines()]
dataset = Dataset.from_list([{"prompt": [{"role": "user", "content": row["prompt"]}]} for row in rows])
moments: list[float] = []


class Clock(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        if not moments:
            moments.append(time.perf_counter())

    def on_step_end(self, args, state, control, **kwargs):
        moments.append(time.perf_counter())


def reward(completions, **kwargs):
    return [digit_share(turns[0]["content"]) for turns in completions]


trainer = GRPOTrainer(
    model=AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32),
    processing_class=AutoTokenizer.from_pretrained(model_path),
    reward_funcs=reward,
    train_dataset=dataset,
    args=GRPOConfig(
        output_dir=str(Path(out).parent / "trl"),
        per_device_train_batch_size=8,
        gradient_accumulation_steps=prompts * samples // 8,
        num_generations=samples,
        max_completion_length=new_tokens,
        max_steps=steps,
        learning_rate=1e-6,
        temperature=1.0,
        beta=0.0,
        use_vllm=False,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=checkpointing,
        shuffle_dataset=False,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    ),
    callbacks=[Clock()],
)
trainer.train()
seconds = [b - a for a, b in pairwise(moments)]
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
Path(out).write_text(json.dumps({"seconds": seconds, "peak_gb": peak}))
