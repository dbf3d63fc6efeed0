"""Captured commands of the four systems, and what makes them small: paths and sizes, appended to their arguments."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

CAPTURED: list[dict[str, Any]] = json.loads(Path(__file__).with_name("captured.json").read_text())
TEXT, VISION = "whet/quickstart", "whet/vision"
_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
_PIXELS = ["data.min_pixels=784", "data.max_pixels=50176"]


def label(command: dict[str, Any]) -> str:
    """Return a short name of a command."""
    return f"{command['system']}-{Path(command['script']).stem}"


def sees(command: dict[str, Any]) -> bool:
    """Return True if a command trains a model that sees."""
    return any("-VL-" in argument or "vl-" in argument for argument in command["args"])


def write_data(folder: Path) -> None:
    """Write rows in the forms of verl (with and without images), EasyR1 and of supervised training."""
    picture = io.BytesIO()
    Image.new("RGB", (56, 56), (200, 30, 30)).save(picture, "PNG")
    rows, seen, easy, chats = [], [], [], []
    for i in range(12):
        question, answer = f"{i} + {i + 1} =", str(2 * i + 1)
        row = {
            "data_source": "openai/gsm8k",
            "prompt": [{"role": "user", "content": question}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": answer},
            "extra_info": {"index": i, "question": question, "answer": f"#### {answer}"},
        }
        rows.append(row | {"answer": answer})
        chat = [{"role": "user", "content": f"<image>{question}"}]
        seen.append(
            row | {"data_source": "hiyouga/geometry3k", "prompt": chat, "images": [{"bytes": picture.getvalue()}]}
        )
        easy.append({"problem": question, "prompt": question, "answer": answer})
        chats.append({"messages": [*row["prompt"], {"role": "assistant", "content": answer}]})
    for name, table in {"verl": rows, "images": seen, "easy": easy, "chats": chats}.items():
        pq.write_table(pa.Table.from_pylist(table), folder / f"{name}.parquet")


def small(command: dict[str, Any], folder: Path) -> list[str]:
    """Return the arguments of a command with those appended that make it run here for two steps."""
    module, arguments = command["module"], command["args"]
    if "main_generation" in module:
        return [*arguments, *_generation(folder)]
    if "sft" in module:
        return [*arguments, *_supervised(arguments, folder)]
    if command["system"] in ("easyr1", "vppo"):
        return [*(each for each in arguments if each != "trainer.total_epochs="), *_dotlist(command, folder)]
    return [*arguments, *_hydra(command, folder)]


def _generation(folder: Path) -> list[str]:
    return [
        f"data.path={folder}/verl.parquet",
        f"data.output_path={folder}/out.parquet",
        "data.n_samples=2",
        f"model.path={TEXT}",
        "rollout.prompt_length=64",
        "rollout.response_length=8",
        "trainer.n_gpus_per_node=1",
    ]


def _supervised(arguments: list[str], folder: Path) -> list[str]:
    chats = any("multiturn.enable=true" in each for each in arguments)
    file = f"{folder}/{'chats' if chats else 'verl'}.parquet"
    # One command names a column of plain questions.
    plain = ["data.prompt_key=answer"] if "data.prompt_key=prompt" in arguments else []
    return [
        f"data.train_files={file}",
        f"data.val_files={file}",
        f"model.partial_pretrain={TEXT}",
        f"trainer.default_local_dir={folder}/run",
        "trainer.total_training_steps=2",
        "data.train_batch_size=4",
        "data.max_length=128",
        "trainer.logger=[console]",
        "ulysses_sequence_parallel_size=1",
        *plain,
    ]


def _dotlist(command: dict[str, Any], folder: Path) -> list[str]:
    if sees(command):
        files = ["data.train_files=whet/shapes@count_test", "data.val_files=whet/shapes@count_blank", *_PIXELS]
        files.append(f"worker.actor.model.model_path={VISION}")
    else:
        files = [f"data.{name}_files={folder}/easy.parquet" for name in ("train", "val")]
        files.append(f"worker.actor.model.model_path={TEXT}")
    template = [f"data.format_prompt={folder}/plain.jinja"]
    (folder / "plain.jinja").write_text("{{ content }}")
    reward = []
    if any("dapo.py" in each for each in command["args"]):
        sizes = '{"max_response_length":16,"overlong_buffer_length":4,"overlong_penalty_factor":1.0}'
        reward = [f"worker.reward.reward_function_kwargs={sizes}", "data.mini_rollout_batch_size=2"]
    return [
        *files,
        *template,
        *reward,
        "data.max_prompt_length=128",
        "data.max_response_length=16",
        "data.rollout_batch_size=4",
        "data.val_batch_size=4",
        "worker.actor.global_batch_size=2",
        "worker.actor.ulysses_size=1",
        "worker.rollout.n=2",
        'worker.rollout.val_override_config={"n":1,"temperature":0.6}',
        "worker.rollout.max_num_batched_tokens=512",
        "trainer.n_gpus_per_node=1",
        "trainer.max_steps=2",
        "trainer.max_try_make_batch=2",
        "trainer.logger=[console]",
        f"trainer.save_checkpoint_path={folder}/run",
    ]


def _hydra(command: dict[str, Any], folder: Path) -> list[str]:
    given = {each.partition("=")[0].lstrip("+") for each in command["args"]}
    file = f"{folder}/{'images' if sees(command) else 'verl'}.parquet"
    made = [
        f"data.train_files={file}",
        f"data.val_files={file}",
        "data.train_batch_size=4",
        "data.max_prompt_length=64",
        "data.max_response_length=16",
        f"actor_rollout_ref.model.path={VISION if sees(command) else TEXT}",
        f"critic.model.path={TEXT}",
        f"{_ACTOR}.ppo_mini_batch_size=2",
        "trainer.n_gpus_per_node=1",
        "trainer.nnodes=1",
        "trainer.total_training_steps=2",
        "trainer.logger=[console]",
        f"trainer.default_local_dir={folder}/run",
    ]
    sizes = {
        f"{_ROLLOUT}.n": 2,
        f"{_ROLLOUT}.n_val": 1,
        f"{_ROLLOUT}.val_kwargs.n": 1,
        f"{_ROLLOUT}.max_num_batched_tokens": 512,
        f"{_ACTOR}.ulysses_sequence_parallel_size": 1,
        "critic.ulysses_sequence_parallel_size": 1,
        f"{_ACTOR}.megatron.tensor_model_parallel_size": 1,
        "actor_rollout_ref.model.override_config.max_position_embeddings": 256,
        "reward_model.reward_kwargs.overlong_buffer_cfg.len": 8,
        "reward_model.reward_kwargs.max_resp_len": 16,
        "actor_rollout_ref.model.lora_rank": 4,
    }
    return made + [f"++{key}={value}" for key, value in sizes.items() if key in given]
