"""A run as an object: metrics, samples, plots, checkpoints, and what can be done with it afterwards."""

from __future__ import annotations

import asyncio
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoModelForCausalLM

import whet
from whet.tracking.run_folder import read_metrics


def test_metrics_are_a_table_of_what_was_logged(run: whet.Run) -> None:
    logged = read_metrics(run.folder / "metrics.jsonl")
    assert run.metrics["step"] == [0, 1, 2]
    assert run.metrics.columns[0] == "step"
    assert run.metrics["reward/overall"] == [row.get("reward/overall") for row in logged]
    assert run.metrics[1]["actor/lr"] == 1e-3
    assert run.metrics.to_arrow().column("step").to_pylist() == [0, 1, 2]
    assert "reward/overall" in repr(run.metrics)
    assert "<table>" in run.metrics._repr_html_()
    assert len(run.metrics[1:]) == 2


def test_a_column_that_is_not_there_is_a_user_error(run: whet.Run) -> None:
    with pytest.raises(whet.UserError, match="did you mean reward/overall"):
        run.metrics["reward/overal"]


def test_the_closure_was_the_reward(run: whet.Run) -> None:
    samples = run.samples()
    assert len(samples) == 8 * 4
    for sample in samples:
        assert sample["failure"] is None
        assert sample["reward"] == 2.0 * sample["score/accuracy"]
        right = sample["response"].strip() == f"Answer: {sample['answer']}"
        assert sample["score/accuracy"] == float(right)


def test_the_cell_computed_the_advantages_in_this_process(run: whet.Run, cell: dict[str, Any]) -> None:
    assert cell["CALLS"][:2] == [32, 32]  # the original ran, not a copy
    rewards = [sample["reward"] for sample in run.samples(1)]
    mean = sum(rewards) / len(rewards)
    assert [s["advantage"] for s in run.samples(1)] == pytest.approx([r - mean for r in rewards], abs=1e-5)


def test_samples_of_a_step_and_of_validation(run: whet.Run) -> None:
    assert {sample["step"] for sample in run.samples(1)} == {1}
    assert len(run.samples(split="val")) == 8
    for arguments, said in (
        ({"step": 9}, "no train samples of step 9"),
        ({"step": "1"}, "a step is a number"),
        ({"split": "test"}, '"train" or "val"'),
    ):
        with pytest.raises(whet.UserError, match=said):
            run.samples(**arguments)


def test_plots_are_svg(run: whet.Run, tmp_path: Path) -> None:
    whole = run.plot()
    ElementTree.fromstring(whole._repr_svg_())
    one = run.plot("reward/overall")
    assert one.svg.count('stroke="#3b6ea8"') == 1
    assert one.save(tmp_path / "reward.svg").read_text() == one.svg
    with pytest.raises(whet.UserError, match=r"must end in \.svg or \.png"):
        one.save(tmp_path / "reward.gif")
    with pytest.raises(whet.UserError, match="did you mean reward/overall"):
        run.plot("reward/overal")


def test_checkpoints(run: whet.Run) -> None:
    assert [path.name for path in run.checkpoints] == ["global_step_1", "global_step_2"]
    assert run.last_checkpoint == run.folder / "global_step_2"
    assert run.best_checkpoint == run.folder / "global_step_2"  # the only one that was validated
    assert AutoModelForCausalLM.from_pretrained(run.model).num_parameters() > 100_000


def test_load_opens_a_run_by_its_folder(run: whet.Run, tmp_path: Path) -> None:
    again = whet.load(run.folder)
    assert again.best_checkpoint == run.best_checkpoint
    assert again.config == run.config
    assert "step 2" in repr(again)
    for folder, said in (
        (tmp_path / "nothing", "there is no folder"),
        (tmp_path, "holds no run"),
        (run.folder / "global_step_2", "did you mean"),
        (5, "got int"),
        ("a\0b", "null character"),
    ):
        with pytest.raises(whet.UserError, match=said):
            whet.load(folder)


def test_a_folder_without_steps_says_so(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("data: {}\n")
    run = whet.load(tmp_path)
    assert run.checkpoints == []
    assert run.best_checkpoint is None
    assert len(run.metrics) == 0
    for use in (run.plot, run.samples, lambda: run.model, lambda: run.generate("a"), run.evaluate):
        with pytest.raises(whet.UserError, match=r"no metrics|no train samples|no checkpoint"):
            use()


def test_a_run_is_repeated_from_its_own_config(run: whet.Run, tmp_path: Path) -> None:
    """Rows, template, reward, advantage and loss are files of the run folder, so that its config says it all."""
    again = whet.train(config=run.folder / "config.yaml", output=tmp_path / "again")
    first, second = (AutoModelForCausalLM.from_pretrained(each.model).state_dict() for each in (run, again))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_generate_samples_from_the_best_checkpoint_inside_an_event_loop(run: whet.Run, tmp_path: Path) -> None:
    async def notebook() -> whet.Table:
        return run.generate(["Sort these digits: 5 2 9", "Sort these digits: 1 0"], n=3, temperature=1.0)

    table = asyncio.run(notebook())
    assert table["index"] == [0, 1, 2, 0, 1, 2]
    assert table["prompt_text"][0].endswith('Begin with "Answer:"<|end|><|assistant|>')
    kept = run.generate([{"problem": "Sort these digits: 5 2 9"}], output=tmp_path / "kept.parquet")
    assert kept["response"] == pq.read_table(tmp_path / "kept.parquet")["response"].to_pylist()


def test_evaluate_scores_the_validation_data_of_the_run(run: whet.Run, rows: list[dict], tmp_path: Path) -> None:
    own = run.evaluate(temperature=0, output=tmp_path / "own")
    assert own.datasets == ["val"]
    right = [float(s["response"].strip() == f"Answer: {s['answer']}") for s in own.samples()]
    assert own.accuracy == pytest.approx(sum(right) / len(right))
    assert len(right) == 8
    other = run.evaluate(rows[:2], lambda response, answer: 1.0, temperature=0, output=tmp_path / "other")
    assert other.accuracy == 1.0
    assert {row["metric"] for row in other.metrics} >= {"avg@1"}
    assert "val" in other._repr_markdown_()
    with pytest.raises(whet.UserError, match="the data sets are val"):
        other.samples("gsm8k")
