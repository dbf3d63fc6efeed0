"""whet's side of bench/gpu.py: sampling alone, whole GRPO steps, and the update alone."""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpu_part import Spec, StepMoments, profiled, run_part, timed
from gpu_shapes import PEAK_FLOPS, Shape
from gpu_workload import format_prompt, read_chats, reward_function

from whet.config import Config, load_config
from whet.model.load import end_ids, load_tokenizer
from whet.rollout.engine import SamplingParams
from whet.rollout.spec import Opening, open_engine
from whet.supervised.likelihood import NegativeLogLikelihood
from whet.tracking import read_metrics
from whet.training import parts
from whet.training.device import choose_placement
from whet.types import Prompt, Sample


def rollout(spec: Spec) -> dict[str, Any]:
    """Sample from the native engine and nothing else: fixed lengths, log-probs as always."""
    config = whet_config(spec)
    model = parts.load_weights(spec.model, config, choose_placement(config))
    tokenizer = load_tokenizer(spec.model)
    engine = open_engine(Opening(config, model, tokenizer, end_ids(spec.model, tokenizer)))
    prompts = [Prompt(str(i), row["ids"], "") for i, row in enumerate(read_chats(spec.workload, spec.prompts))]
    ready = time.time() - spec.started

    def sample(seed: int, new_tokens: int = spec.new_tokens) -> int:
        params = SamplingParams(n=spec.samples, max_tokens=new_tokens, ignore_eos=True, seed=seed)
        return sum(len(s.ids) for s in engine.generate(prompts, params))

    first, _ = timed(spec.device, lambda: sample(0))
    seconds, tokens = zip(*(timed(spec.device, lambda seed=seed: sample(seed)) for seed in range(1, spec.rounds + 1)))
    if spec.profile:
        profiled(spec, "decode", lambda: sample(99, min(64, spec.new_tokens)))
    lengths = [len(p.ids) for p in prompts for _ in range(spec.samples)]
    return {
        "ready_s": ready,
        "first_s": first,
        "rollout_s": seconds,
        "tokens": tokens[0],
        "floor_s": Shape.of(spec.model).decode_floor(lengths, spec.new_tokens),
        "new_tokens": spec.new_tokens,
    }


def steps(spec: Spec) -> dict[str, Any]:
    """`whet train`, as a user would run it."""
    from whet.cli import main

    moments, run = StepMoments(), Path(spec.work) / "run"
    empty = Path(spec.work) / "empty.yaml"
    empty.write_text("{}\n")
    code = main(["train", f"config={empty}", *_arguments(spec, run)])
    if code:
        raise SystemExit(code)
    lines = read_metrics(run / "metrics.jsonl")[spec.warm_up :]

    def median(name: str) -> float:
        return statistics.median(line[name] for line in lines)

    stages = sorted({name for line in lines for name in line if name.startswith("timing_s/")} - {"timing_s/step"})
    prompt, response = median("prompt_length/mean"), median("response_length/mean")
    flops = Shape.of(spec.model).training_flops([(prompt, [response] * spec.samples)] * spec.prompts)
    return moments.result(spec) | {
        "stages_s": {
            name.removeprefix("timing_s/"): statistics.median(line.get(name, 0.0) for line in lines) for name in stages
        },
        "tokens": median("perf/total_tokens"),
        "rollout_tokens_per_s": median("perf/rollout_tokens_per_s"),
        "response_length": response,
        "mfu": flops / median("timing_s/update") / PEAK_FLOPS,
        "log_prob_diff_mean": median("rollout/log_prob_diff_mean"),
        "log_prob_diff_max": max(line["rollout/log_prob_diff_max"] for line in lines),
    }


def update(spec: Spec) -> dict[str, Any]:
    """Forward, backward and optimizer step over responses of mixed lengths, through the learner that training uses."""
    config = whet_config(spec)
    model = parts.load_weights(spec.model, config, choose_placement(config))
    learner = parts.open_learner(config, model, total_steps=100)
    samples = made_up(spec)
    objective = NegativeLogLikelihood.of(samples, config)

    def once(step: int) -> None:
        learner.update(samples, objective, step, len(samples))

    first, _ = timed(spec.device, lambda: once(1))
    seconds = [timed(spec.device, lambda step=step: once(step))[0] for step in range(2, spec.rounds + 2)]
    if spec.profile:
        profiled(spec, "update", lambda: once(spec.rounds + 2))
    n = spec.samples
    groups = [(len(samples[i].prompt.ids), [len(s.ids) for s in samples[i : i + n]]) for i in range(0, len(samples), n)]
    packed = sum(prompt + sum(responses) for prompt, responses in groups)
    flops = Shape.of(spec.model).training_flops(groups)
    return {
        "first_s": first,
        "first_step_s": time.time() - spec.started - sum(seconds),
        "update_s": seconds,
        "tokens": packed,
        "mfu": flops / statistics.median(seconds) / PEAK_FLOPS,
    }


def made_up(spec: Spec) -> list[Sample]:
    """Responses of random tokens, 60 to 500 of them where the spec allows that many."""
    rng, most = random.Random(0), Shape.of(spec.model).vocab
    samples = []
    for i, row in enumerate(read_chats(spec.workload, spec.prompts)):
        prompt = Prompt(str(i), row["ids"], "")
        for index in range(spec.samples):
            length = rng.randint(max(1, spec.new_tokens // 8), spec.new_tokens)
            ids = [rng.randrange(3, most) for _ in range(length)]
            samples.append(Sample.written(prompt, ids, [0.0] * length, "stop", index=index))
    return samples


def whet_config(spec: Spec) -> Config:
    """For parts that open the engine or the learner themselves; whole steps choose their micro-batches by memory."""
    keys = {"worker.actor.micro_batch_tokens": str(spec.update_tokens)} | spec.keys
    return load_config(_arguments(replace(spec, keys=keys), Path(spec.work) / "run"))


def _arguments(spec: Spec, run: Path) -> list[str]:
    tiny = spec.device == "cpu"
    keys = {
        "data.train_files": Path(spec.workload) / "rows.jsonl",
        "data.format_prompt": format_prompt(tiny),
        "data.max_prompt_length": 512,
        "data.max_response_length": spec.new_tokens,
        "data.rollout_batch_size": spec.prompts,
        "data.shuffle": "false",
        "worker.actor.model.model_path": spec.model,
        "worker.actor.model.enable_gradient_checkpointing": "false",
        "worker.actor.global_batch_size": spec.prompts,
        "worker.rollout.n": spec.samples,
        "worker.rollout.max_num_seqs": spec.prompts * spec.samples,
        "worker.reward.reward_function": f"{reward_function(tiny)}:compute_score",
        "worker.reward.num_cpus": 1 if tiny else 4,
        "algorithm.disable_kl": "true",
        "trainer.device": spec.device,
        "trainer.max_steps": spec.steps,
        "trainer.val_before_train": "false",
        "trainer.save_checkpoint_path": run,
        "trainer.save_model_only": "true",
    }
    if tiny:
        keys["data.max_prompt_length"] = 48
    return [f"{name}={value}" for name, value in (keys | spec.keys).items()]


if __name__ == "__main__":
    run_part({"rollout": rollout, "steps": steps, "update": update})
