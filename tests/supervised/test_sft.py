"""Whole runs of `whet sft`: the loss is the likelihood of what the assistant wrote, and a killed run loses nothing."""

from __future__ import annotations

import json
import math
import random
import re
import shlex
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from whet_process import QUICKSTARTS, outcome, run_folder, settled, start, write_rows

from whet.assets import vision
from whet.assets.questions import ask
from whet.assets.vision import SCHEMA
from whet.cli import main
from whet.config import check_files, load_config
from whet.config.checks.sft import check_sft
from whet.config.examples import examples_folder
from whet.config.views import sft_view
from whet.model.processor import load_processor
from whet.tracking import read_metrics

pytestmark = pytest.mark.early

GUIDE = (Path(__file__).parents[2] / "docs" / "sft.md").read_text()
EXAMPLES = Path(__file__).parents[2] / "examples" / "sft"
SMALL = (
    "trainer.device=cpu",
    "trainer.max_steps=6",
    "trainer.val_freq=2",
    "trainer.save_freq=2",
    "trainer.save_limit=-1",
    "sft.batch_size=4",
)
TURNS = [
    [("Sort these digits: 3 1 2", "Answer: 1 2 3")],
    [("Sort these digits: 9 4", "Answer: 4 9"), ("Begin with them: 5 0", "Answer: 0 5")],
    [("5 6", "5 6"), ("7 2", "2 7"), ("8 1 0", "0 1 8")],
]


def sft(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run `whet sft` with small sizes to its end: exit code and output."""
    process = start(folder, "sft", *SMALL, *arguments)
    return process.wait(), process.text()


def sft_folder(folder: Path) -> Path:
    return run_folder(folder, "sft")


def chats(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Rows with chats of one to three rounds."""
    chance = random.Random(seed)
    rows = []
    for _ in range(count):
        turns = [{"role": "system", "content": "Sort."}] if chance.random() < 0.5 else []
        for asked, said in chance.choice(TURNS):
            turns += [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]
        rows.append({"messages": turns})
    return rows


@pytest.fixture(scope="module")
def chat_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, str]:
    """Arguments that name training and validation rows of chats."""
    folder = tmp_path_factory.mktemp("chats")
    train, val = write_rows(folder / "train.jsonl", chats(11)), write_rows(folder / "val.jsonl", chats(5, seed=1))
    return f"data.train_files={train}", f"data.val_files={val}", "data.max_prompt_length=128"


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, quickstart: Path, chat_files: tuple[str, ...]) -> Path:
    """The run folder of a run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("alone")
    code, text = sft(folder, *chat_files)
    assert code == 0, text
    assert "warning" not in text
    assert "finished after 6 of 6 steps" in text
    return sft_folder(folder)


def losses(model: Any, tokenizer: Any, rows: list[dict[str, Any]]) -> torch.Tensor:
    """Cross-entropies of the assistant's tokens, one chat at a time by transformers alone; for the quickstart's
    template, where a turn is `<|role|>content<|end|>`."""
    found = []
    for row in rows:
        ids, labels = [], []
        for turn in row["messages"]:
            head = tokenizer.convert_tokens_to_ids([f"<|{turn['role']}|>"])
            said = tokenizer(turn["content"] + "<|end|>")["input_ids"]
            ids += head + said
            labels += [-100] + (said if turn["role"] == "assistant" else [-100] * len(said))
        logits = model(torch.tensor([ids])).logits[0, :-1]
        targets = torch.tensor(labels[1:])
        found.append(F.cross_entropy(logits, targets, reduction="none")[targets != -100])
    return torch.cat(found)


@torch.no_grad()
def test_validation_loss_is_that_of_transformers(alone, quickstart, chat_files):
    rows = [json.loads(line) for line in Path(chat_files[1].partition("=")[2]).read_text().splitlines()]
    said = {line["step"]: line["val/loss"] for line in settled(alone / "metrics.jsonl") if "val/loss" in line}
    assert sorted(said) == [0, 2, 4, 6]
    for step, loss in said.items():
        folder = alone / f"global_step_{step}" / "actor" / "huggingface" if step else quickstart / "model"
        model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
        assert loss == pytest.approx(float(losses(model, tokenizer, rows).mean()), rel=1e-5)
    assert said[6] < said[0]
    tracker = json.loads((alone / "checkpoint_tracker.json").read_text())
    assert tracker["best_global_step"] == min((step for step in said if step), key=lambda step: (said[step], -step))


def test_one_update_is_that_of_torch(tmp_path, quickstart, chat_files):
    """All rows in one batch: AdamW on the mean over all tokens of the assistant's."""
    keys = ("sft.batch_size=11", "trainer.max_steps=1", "worker.actor.optim.lr_warmup_ratio=0")
    code, text = sft(tmp_path, *chat_files, *keys, "worker.actor.optim.lr_scheduler_type=constant")
    assert code == 0, text
    rows = [json.loads(line) for line in Path(chat_files[0].partition("=")[2]).read_text().splitlines()]
    folder = quickstart / "model"
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    loss = losses(model, tokenizer, rows).mean()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01).step()
    (line,) = [line for line in settled(sft_folder(tmp_path) / "metrics.jsonl") if line["step"] == 1]
    assert line["actor/loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert line["actor/grad_norm"] == pytest.approx(norm.item(), rel=1e-4)
    ours = AutoModelForCausalLM.from_pretrained(sft_folder(tmp_path) / "global_step_1" / "actor" / "huggingface")
    for (name, mine), theirs in zip(ours.named_parameters(), model.parameters()):
        far = (mine - theirs).abs()
        # AdamW's first step is lr times the sign of the gradient, which rounding decides where there is none.
        assert (far > 1e-6).float().mean() < 2e-3, name


@pytest.mark.parametrize("mode", ["token", "seq"])
def test_loss_does_not_depend_on_micro_batches(tmp_path, chat_files, mode):
    cuts = {
        "as it comes": (),
        "one by one": (
            "worker.actor.dynamic_batching=false",
            "worker.actor.micro_batch_size_per_device_for_update=1",
            "worker.actor.micro_batch_size_per_device_for_experience=1",
        ),
    }
    runs = []
    for name, keys in cuts.items():
        code, text = sft(tmp_path / name, *chat_files, *keys, f"worker.actor.loss_avg_mode={mode}")
        assert code == 0, text
        runs.append(settled(sft_folder(tmp_path / name) / "metrics.jsonl"))
    for one, other in zip(*runs, strict=True):
        assert one.keys() == other.keys()
        for name, value in one.items():
            assert other[name] == pytest.approx(value, rel=2e-3, abs=1e-5), name


def test_metrics_are_those_of_the_guide(alone):
    for line in read_metrics(alone / "metrics.jsonl"):
        for name, value in line.items():
            assert name == "step" or f"`{name}`" in GUIDE, name
            assert value is not None
            assert math.isfinite(value)


@pytest.mark.parametrize("kills", [3, pytest.param(25, marks=pytest.mark.slow)])
def test_killed_at_random_moments(tmp_path, chat_files, alone, kills):
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    run, deaths = sft_folder(tmp_path), 0

    def lines() -> int:
        return (run / "metrics.jsonl").read_bytes().count(b"\n") if (run / "metrics.jsonl").exists() else 0

    for attempt in range(kills):
        process, wanted = start(tmp_path, "sft", *SMALL, *chat_files), lines() + chance.randint(1, 3)
        if attempt == 0:  # at least one that has something to go on from
            wanted = 4
        process.wait_for(lambda wanted=wanted: lines() >= wanted)
        process.process.join(chance.uniform(0, 0.05))
        if process.process.exitcode is not None:
            break
        process.kill()
        deaths += 1
    code, text = sft(tmp_path, *chat_files)
    assert code == 0, text
    assert deaths
    assert "continuing from" in text
    assert outcome(run, 6) == outcome(alone, 6), f"seed {seed}"


def test_epochs_and_prompts_with_responses(tmp_path, few_rows):
    """The example's own columns, templates and schedule."""
    code, text = sft(tmp_path, *few_rows, "trainer.max_steps=null", "trainer.total_epochs=2")
    assert code == 0, text
    steps = [line for line in settled(sft_folder(tmp_path) / "metrics.jsonl") if line["step"]]
    assert [line["train/epoch"] for line in steps] == [0, 0, 1, 1]  # 10 rows, 4 an update
    assert steps[-1]["actor/lr"] < steps[1]["actor/lr"]


def test_training_with_rewards_starts_from_it_and_not_in_its_folder(tmp_path, alone, capsys):
    model = f"worker.actor.model.model_path={alone}/global_step_6/actor/huggingface"
    keys = ["trainer.device=cpu", "trainer.max_steps=1", "trainer.quiet=true", "data.rollout_batch_size=4"]
    keys += ["worker.actor.global_batch_size=4", "data.val_files=''", "trainer.val_freq=-1"]
    assert main(["train", QUICKSTARTS["train"], model, *keys, f"trainer.save_checkpoint_path={tmp_path / 'rl'}"]) == 0
    capsys.readouterr()
    assert main(["train", QUICKSTARTS["train"], *keys, f"trainer.save_checkpoint_path={alone}"]) == 2
    error = capsys.readouterr().err
    assert "global_step_6 is a checkpoint of `whet sft`, which `whet train` cannot continue" in error
    assert main(["sft", "trainer.device=cpu", f"trainer.save_checkpoint_path={tmp_path / 'rl'}"]) == 2
    assert "is a checkpoint of `whet train`" in capsys.readouterr().err


def test_adapters_are_saved_and_merge(tmp_path, chat_files, quickstart, capsys):
    lora = ("worker.actor.model.lora.rank=4", "worker.actor.optim.lr=1e-2")
    code, text = sft(tmp_path, *chat_files, *lora)
    assert code == 0, text
    run = sft_folder(tmp_path)
    said = [line["val/loss"] for line in settled(run / "metrics.jsonl") if "val/loss" in line]
    assert said[-1] < said[0]
    assert main(["merge", str(run / "global_step_6"), str(tmp_path / "merged"), str(quickstart / "model")]) == 0
    rows = [json.loads(line) for line in Path(chat_files[1].partition("=")[2]).read_text().splitlines()]
    model, tokenizer = (each.from_pretrained(tmp_path / "merged") for each in (AutoModelForCausalLM, AutoTokenizer))
    with torch.no_grad():
        assert float(losses(model, tokenizer, rows).mean()) == pytest.approx(said[-1], rel=1e-4)


@pytest.mark.slow
def test_two_ranks_learn_as_one_process_does(tmp_path, chat_files):
    pytest.importorskip("ray")
    for devices in (2, 1):  # the second goes on where the first stopped
        steps = f"trainer.max_steps={6 if devices == 1 else 4}"
        plain = "worker.actor.optim.lr_scheduler_type=constant"  # which does not ask how many steps there will be
        code, text = sft(tmp_path / "two", *chat_files, steps, plain, f"trainer.n_gpus_per_node={devices}")
        assert code == 0, text
    code, text = sft(tmp_path / "one", *chat_files, plain)
    assert code == 0, text
    ours, theirs = (settled(sft_folder(tmp_path / name) / "metrics.jsonl") for name in ("two", "one"))
    for mine, line in zip(ours, theirs, strict=True):
        assert mine.keys() == line.keys()
        for name, value in line.items():
            assert mine[name] == pytest.approx(value, rel=1e-3, abs=1e-4), name


@pytest.mark.slow
def test_images_are_learned_from(tmp_path):
    chance = random.Random(0)
    rows = [vision.row("count", ask("count", chance)) for _ in range(6)]
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), tmp_path / "rows.parquet")
    model = "worker.actor.model.model_path=whet/vision"
    files = [f"data.{name}_files={tmp_path / 'rows.parquet'}" for name in ("train", "val")]
    keys = ["data.max_prompt_length=400", "data.min_pixels=null", "data.format_prompt=null"]
    code, text = sft(tmp_path, *files, *keys, model, "trainer.max_steps=2")
    assert code == 0, text
    before, after = (settled(sft_folder(tmp_path) / "metrics.jsonl")[i]["val/loss"] for i in (0, -1))
    assert after < before
    saved = sft_folder(tmp_path) / "global_step_2" / "actor" / "huggingface"
    assert load_processor(str(saved), AutoConfig.from_pretrained(saved), AutoTokenizer.from_pretrained(saved))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["sft.batchsize=4"], "did you mean sft.batch_size?"),
        (["sft.batch_size=100"], "sft.batch_size=100 is more than the 11 rows"),
        (["sft.train_on=first"], "sft.train_on=first"),
        (["sft.format_response=nowhere.jinja"], "sft.format_response"),
        (["data.train_files=''"], "data.train_files is not set"),
        (["data.val_files=''"], "data.val_files is not set, but trainer.val_freq=2 validates"),
        (["worker.actor.optim.strategy=adamw_bf16", "worker.actor.fsdp.torch_dtype=fp32"], "trains bf16 weights"),
    ],
)
def test_mistakes_are_said_before_work(tmp_path, chat_files, capsys, arguments, expected):
    keys = [*SMALL, *chat_files, *arguments, f"trainer.save_checkpoint_path={tmp_path / 'run'}"]
    assert main(["sft", QUICKSTARTS["sft"], *keys]) == 2
    said = capsys.readouterr()
    assert expected in said.err
    assert "Traceback" not in said.err
    assert "model:" not in said.out
    assert not (tmp_path / "run").exists()


def test_shows_what_is_learned(chat_files, capsys):
    assert main(["sft", "--show", "2", QUICKSTARTS["sft"], *SMALL, *chat_files]) == 0
    text = capsys.readouterr().out
    assert text.count("── train.jsonl:") == 2
    assert "<|assistant|>⟦" in text
    assert "<|end|>⟧" in text


def test_help_is_short(capsys):
    assert main(["sft", "--help"]) == 0
    assert 5 < len(capsys.readouterr().out.splitlines()) < 40


@pytest.mark.slow
def test_commands_of_the_guide(tmp_path, quickstart):
    commands = [line for block in re.findall(r"```sh\n(.*?)```", GUIDE, flags=re.DOTALL) for line in block.splitlines()]
    assert len(commands) == 3
    for command in commands:
        name, *arguments = shlex.split(command.replace("config=examples", f"config={examples_folder()}"))[1:]
        cut = ["trainer.max_steps=2", "trainer.val_freq=-1", "data.rollout_batch_size=32"] if name == "train" else []
        process = start(tmp_path, name, *arguments, *cut, "trainer.device=cpu")
        assert process.wait() == 0, process.text()
        if name == "train":  # what was learned is where training with rewards begins
            assert settled(run_folder(tmp_path) / "metrics.jsonl")[0]["val/accuracy"] > 0.9
    said = settled(sft_folder(tmp_path) / "metrics.jsonl")
    assert said[0]["val/loss"] == pytest.approx(0.29, abs=0.02)
    assert said[-1]["val/loss"] < 0.03


def test_rows_of_the_guide_are_read(tmp_path, quickstart):
    rows = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", GUIDE, flags=re.DOTALL)]
    file = write_rows(tmp_path / "rows.jsonl", rows)
    keys = ["data.val_files=''", "trainer.val_freq=-1", "sft.batch_size=2", "trainer.max_steps=1"]
    keys += [
        "data.prompt_key=prompt",
        "data.format_prompt=null",
        "sft.response_key=response",
        "sft.format_response=null",
    ]
    code, text = sft(tmp_path, f"data.train_files={file}", *keys)
    assert code == 0, text


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_examples_load(example, tmp_path):
    (tmp_path / "rows.jsonl").write_text("{}")
    files = [f"data.{name}_files={tmp_path / 'rows.jsonl'}" for name in ("train", "val")]
    config = sft_view(load_config([f"config={example}", *files]))
    check_sft(config)
    check_files(config)
