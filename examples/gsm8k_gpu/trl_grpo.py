"""TRL's part of run_trl.py: GRPOTrainer with vLLM in the same process, by the numbers of grpo.yaml, until a moment.

    python trl_grpo.py --model FOLDER --train train.jsonl --out FOLDER --until SECONDS_SINCE_1970 [--set KEY=VALUE ...]

writes out/model and out/steps.json: when each step was logged, and the mean reward of its samples.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import time
from pathlib import Path
from typing import Any

import jinja2
import torch

os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")  # it would compile its kernels first

from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from whet.config import Config, load_config, resolve_path

HERE = Path(__file__).parent


def main() -> None:
    arguments = _arguments()
    out: Path = arguments.out
    config = load_config([f"config={HERE / 'grpo.yaml'}", *arguments.set])
    clock = Clock(arguments.until)
    trainer = GRPOTrainer(
        model=str(arguments.model),
        reward_funcs=reward_of(config),
        train_dataset=dataset_of(config, arguments.train),
        args=grpo_config(config, out, arguments.micro_batch),
        callbacks=[clock],
    )
    trainer.train()
    trainer.save_model(str(out / "model"))
    trainer.processing_class.save_pretrained(out / "model")
    (out / "steps.json").write_text(json.dumps(clock.logged))
    (out / "log.json").write_text(json.dumps(trainer.state.log_history))


class Clock(TrainerCallback):
    """Ends training at a moment, and notes when each step was logged."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self.logged: list[tuple[float, float]] = []  # moment, mean reward of the samples

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if time.time() >= self._deadline:
            control.should_training_stop = True

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        if logs and "reward" in logs:
            self.logged.append((time.time(), logs["reward"]))


def grpo_config(config: Config, out: Path, micro_batch: int) -> GRPOConfig:
    """TRL's settings for whet's config; fast ones where the config says nothing."""
    rollout, actor, cuda = config.worker.rollout, config.worker.actor, torch.cuda.is_available()
    samples = config.data.rollout_batch_size * rollout.n
    return GRPOConfig(
        output_dir=str(out / "trl"),
        max_steps=config.trainer.max_steps or 10000,
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=samples // micro_batch,
        num_generations=rollout.n,
        temperature=rollout.temperature,
        max_completion_length=config.data.max_response_length,
        beta=0.0,
        epsilon=actor.clip_ratio_low,
        epsilon_high=actor.clip_ratio_high,
        loss_type="dapo",  # every token of the step counts the same
        scale_rewards="group",
        learning_rate=actor.optim.lr,
        adam_beta1=actor.optim.betas[0],
        adam_beta2=actor.optim.betas[1],
        weight_decay=actor.optim.weight_decay,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=actor.optim.lr_warmup_steps or 0,
        max_grad_norm=actor.max_grad_norm,
        seed=config.data.seed,
        bf16=cuda,
        use_cpu=not cuda,
        gradient_checkpointing=False,
        use_vllm=cuda,
        vllm_mode="colocate",
        vllm_gpu_memory_utilization=0.3,
        vllm_max_model_length=config.data.max_prompt_length + config.data.max_response_length,
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )


def dataset_of(config: Config, file: Path) -> Dataset:
    """The problems as whet's prompts: the question in its template, as a user's turn."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    template = jinja2.Template(resolve_path(config, config.data.format_prompt or "").read_text())
    texts = [template.render(content=row[config.data.prompt_key]) for row in rows]
    return Dataset.from_list(
        [
            {"prompt": [{"role": "user", "content": text}], "answer": row[config.data.answer_key]}
            for text, row in zip(texts, rows)
        ]
    )


def reward_of(config: Config) -> Any:
    """The config's reward function in TRL's form."""
    path, _, name = (config.worker.reward.reward_function or "").partition(":")
    score = runpy.run_path(str(resolve_path(config, path)))[name]
    keywords = config.worker.reward.reward_function_kwargs

    def reward(completions: list[Any], answer: list[str], **columns: Any) -> list[float]:
        return [
            score({"response": turns[0]["content"], "ground_truth": truth}, **keywords)["overall"]
            for turns, truth in zip(completions, answer)
        ]

    return reward


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--until", type=float, required=True)
    parser.add_argument("--micro-batch", type=int, default=64, help="samples a forward pass")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="keys over grpo.yaml")
    return parser.parse_args()


if __name__ == "__main__":
    main()
