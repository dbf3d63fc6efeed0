"""`whet generate`: prompts in, samples out, in a file that appears when it is complete.

Until then finished prompts stand in a journal beside it, from which the same command goes on after a kill.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from transformers.utils import logging as transformers_logging

from whet.assets import resolve_data
from whet.checkpoint.durable import replacing
from whet.config import Config, run_folder, summary_lines
from whet.data.dataset import PromptDataset
from whet.data.files import read_tables, with_answers
from whet.errors import UserError
from whet.evals.progress import progress
from whet.evals.sampling import Policy, open_policy, sample_all
from whet.rollout.engine import SamplingParams
from whet.tracking.console import Console
from whet.tracking.journal import Journal
from whet.tracking.run_folder import clean
from whet.training.parts import resolver
from whet.training.rollouts import sampling_params
from whet.types import Prompt, Sample

OWN = ("uid", "index", "prompt_text", "response", "finish", "response_length", "token_ids", "token_log_probs")
EPISODE = ("end", "turns", "turn_rewards", "env_reward", "env_info", "failure")


def generate(config: Config) -> None:
    """Sample as the config says, from the beginning or from where an earlier process was stopped."""
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    console, output = Console(config.trainer.quiet), _output(config)
    console.notes(summary_lines(config, "generate"))
    part = output.with_name(f"{output.name}.part")
    if output.exists() and not part.exists():
        raise UserError(f"generate.output={output} is there already: remove it, or name another file")
    opened = open_policy(config, console)
    dataset, data = _open_dataset(config, opened, console)
    params = sampling_params(config.worker.rollout, config.data.max_response_length)
    with ExitStack() as stack:
        journal = stack.enter_context(Journal(part, _about(config, opened, dataset, data, params)))
        rows = [row for row, uid in enumerate(dataset.uids) if uid not in journal]
        if len(rows) < len(dataset):
            console.note(f"{len(dataset) - len(rows)} of {len(dataset)} prompts are done already, in {part}")
        if rows:
            _sample(config, console, stack, opened, dataset, rows, params, journal)
        with replacing(output) as side:
            _write(side, output.suffix, (each for uid in dataset.uids for each in journal[uid]))
        part.unlink()
    for log in output.parent.glob(f"{glob.escape(part.name)}*.log"):  # one of each process of the engine
        log.unlink()
    console.note(f"{len(dataset)} prompts, {len(dataset) * params.n} samples: {output}")


def _sample(
    config: Config,
    console: Console,
    stack: ExitStack,
    opened: Policy,
    dataset: PromptDataset,
    rows: list[int],
    params: SamplingParams,
    journal: Journal,
) -> None:
    environments = opened.open_environments(console, stack)
    engine = opened.open_engine(console, stack, Path(f"{journal.path}.log"))
    with progress(console, "generate", len(rows) * params.n) as advance:

        def done(prompt: Prompt, samples: list[Sample]) -> None:
            journal.add(prompt.uid, _records(config, prompt, samples, opened.texts(samples)))
            advance(len(samples))

        sample_all(config, engine, dataset, rows, params, done, environments)


def _output(config: Config) -> Path:
    named = config.generate.output
    output = Path(os.path.expanduser(named)) if named else run_folder(config) / "generations.jsonl"
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"generate.output={output}: its folder cannot be made ({error.strerror})") from error
    if not os.access(output.parent, os.W_OK | os.X_OK):
        raise UserError(f"generate.output={output}: {output.parent} cannot be written to")
    return output


def _open_dataset(config: Config, opened: Policy, console: Console) -> tuple[PromptDataset, str]:
    """The prompts, and a name of what the files hold."""
    files, resolve = resolve_data(config.generate.files, console.note), resolver(config)
    tables = read_tables(files, "generate.files", resolve)
    dataset = PromptDataset(
        [with_answers(table, config.data.answer_key) for table in tables],
        config.data,
        opened.tokenizer,
        "generate.files",
        resolve,
        opened.processor,
        config.worker.rollout.limit_images,
    )
    console.note(f"data: {dataset.summary()}")
    return dataset, digest([[table.name, table.rows] for table in tables])


def _about(config: Config, opened: Policy, dataset: PromptDataset, data: str, params: SamplingParams) -> dict[str, Any]:
    """Settings that must not change between two processes that write one file."""
    return {
        "model": opened.name,
        "weights": opened.weights,
        "engine": config.worker.rollout.name,
        "prompts": len(dataset),
        "data": data,
        "first prompt": dataset[0].text,  # as templates make it
        "token_ids": config.generate.token_ids,
        **environment_of(config),
        **{name: list(value) if isinstance(value, tuple) else value for name, value in asdict(params).items()},
    }


def environment_of(config: Config) -> dict[str, Any]:
    """Return the settings of episodes; {} without an environment."""
    rollout = config.worker.rollout
    if not rollout.plays_episodes:
        return {}
    names = ("env", "env_args", "max_turns", "max_turn_tokens")
    return {name: getattr(rollout, name) for name in names}


def digest(value: Any) -> str:
    """A short name of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=_named).encode()).hexdigest()[:16]


def _named(value: Any) -> str:
    return hashlib.sha256(value).hexdigest() if isinstance(value, bytes) else str(value)


def _records(config: Config, prompt: Prompt, samples: list[Sample], texts: list[str]) -> list[dict[str, Any]]:
    """A row of the file for each sample: the columns of its row, and ours, which win where names are alike."""
    columns = {name: _plain(value) for name, value in prompt.extra.items() if value is not None}
    return [
        columns
        | {
            "uid": prompt.uid,
            "index": sample.index,
            "prompt_text": prompt.text,
            "response": text,
            "finish": sample.finish,
            "response_length": len(sample.ids),
        }
        | (_episode(sample) if sample.end is not None else {})
        | ({"token_ids": sample.ids, "token_log_probs": sample.log_probs} if config.generate.token_ids else {})
        for sample, text in zip(samples, texts)
    ]


def _episode(sample: Sample) -> dict[str, Any]:
    """Return what is known of an episode: why it ended, the rewards of its turns, and what its environment reported."""
    return {
        "end": clean(str(sample.end)),
        "turns": sample.turns,
        "turn_rewards": sample.turn_rewards,
        "env_reward": sum(sample.turn_rewards),
        "env_info": {clean(name): value for name, value in sample.info.items()},
        "failure": sample.failure,
    }


def _plain(value: Any) -> Any:
    """A column as JSON holds it."""
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return clean(value)
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _write(path: Path, suffix: str, rows: Iterator[dict[str, Any]]) -> None:
    if suffix == ".jsonl":
        with path.open("w", encoding="utf-8") as file:
            for row in rows:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        return
    whole = list(rows)
    names = list(dict.fromkeys(name for row in whole for name in row))
    names.sort(key=lambda name: name in (*OWN, *EPISODE))
    pq.write_table(pa.table({name: _column(name, whole) for name in names}), path, compression="zstd")


def _column(name: str, rows: list[dict[str, Any]]) -> pa.Array:
    """A column of Parquet; values that have no type in common are written as JSON."""
    values = [row.get(name) for row in rows]
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([value if value is None else json.dumps(value, ensure_ascii=False) for value in values])
