"""`whet eval` with an engine and with files: its numbers are those of validation, and the report holds them."""

from __future__ import annotations

import csv
import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from evals.conftest import read_lines
from whet_process import start, write_rows

from whet.cli import examples_folder, main
from whet.tracking import read_metrics

SHARED = Path(__file__).parents[3] / "shared" / "data"
CONFIG = f"config={examples_folder() / 'quickstart.yaml'}"
Run = Callable[..., str]


def metrics_of(folder: str | Path, dataset: str) -> dict[str, float]:
    """Means by name, from report.json."""
    report = json.loads((Path(folder) / "report.json").read_text())
    return {name: value["mean"] for name, value in report["datasets"][dataset]["metrics"].items()}


@pytest.fixture
def few(quickstart: Path, here: Path) -> str:
    """The argument that names a few rows to validate on."""
    rows = read_lines(quickstart / "test.jsonl")[:40]
    for number, row in enumerate(rows):
        row |= {"data_source": "even" if number % 2 == 0 else "odd", "digits": row["problem"].count(" ") - 2}
    write_rows(here / "few.jsonl", rows)
    return "data.val_files=few.jsonl"


def test_numbers_are_those_of_validation(whet: Run, here: Path, few: str) -> None:
    whet("train", CONFIG, few, "trainer.val_only=true", "trainer.device=cpu")
    (validated,) = read_metrics(here / "checkpoints/whet/quickstart/metrics.jsonl")
    out = whet("eval", CONFIG, few, "trainer.device=cpu")
    found = metrics_of("checkpoints/whet/quickstart/eval", "val")
    assert found["avg@4"] == pytest.approx(validated["val/avg@4"])
    assert found["pass@1"] == pytest.approx(validated["val/pass@1"])
    assert found["pass@4"] == pytest.approx(validated["val/pass@4"])
    assert found["reward"] == pytest.approx(validated["val/reward"])
    assert found["length"] == pytest.approx(validated["val/response_length_mean"])
    assert f"{100 * found['avg@4']:.1f} %" in out


def test_the_report(whet: Run, here: Path, few: str) -> None:
    define = "eval.definitions.mine={files: few.jsonl, prompt_key: problem, category_keys: [digits]}"
    whet("eval", CONFIG, few, define, "eval.datasets=[mine]", "eval.output=out", "eval.n=4")
    report = json.loads(Path("out/report.json").read_text())
    mine = report["datasets"]["mine"]
    assert mine["questions"] == 40
    assert mine["samples"] == 160
    by_source = mine["by"]["data_source"]
    assert {name: group["questions"] for name, group in by_source.items()} == {"even": 20, "odd": 20}
    whole = mine["metrics"]["avg@4"]
    halves = [group["metrics"]["avg@4"]["mean"] for group in by_source.values()]
    assert sum(halves) / 2 == pytest.approx(whole["mean"])
    assert whole["low"] <= whole["mean"] <= whole["high"]
    with open("out/scores.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    (row,) = [r for r in rows if r["metric"] == "avg@4" and not r["column"]]
    assert float(row["mean"]) == whole["mean"]
    text = Path("out/report.md").read_text()
    assert f"| mine | 40 | avg@4: {100 * whole['mean']:.1f} %" in text
    assert "### mine by data_source" in text
    assert "### mine by digits" in text
    for name in ("accuracy", "pass_at_k"):
        assert f"]({name}.svg)" in text
        ElementTree.parse(f"out/{name}.svg")
    samples = read_lines("out/mine/samples.jsonl")
    assert sum(each["correct"] for each in samples) / len(samples) == pytest.approx(whole["mean"])


def test_killed_it_goes_on_and_ends_with_the_same_numbers(whet: Run, here: Path, few: str) -> None:
    arguments = ("eval", CONFIG, few, "trainer.device=cpu", "worker.rollout.max_num_seqs=4")
    whet(*arguments, "eval.output=whole")
    process = start(here, *arguments, "eval.output=out")
    journal = here / "out/val/answers.jsonl"
    assert process.wait_for(lambda: journal.exists() and journal.read_bytes().count(b"\n") > 3)
    process.kill()
    assert not (here / "out/report.json").exists()
    out = whet(*arguments, "eval.output=out")
    assert re.search(r"val: [1-9]\d* of 40 are answered already", out)
    assert metrics_of("out", "val") == metrics_of("whole", "val")
    assert "model:" not in whet(*arguments, "eval.output=out")  # a third time nothing is sampled


def test_a_file_of_samples_scores_as_the_model_that_wrote_it(whet: Run, few: str) -> None:
    whet("generate", CONFIG, "generate.files=few.jsonl", "worker.rollout.n=4", "generate.output=samples.parquet")
    whet("eval", CONFIG, "eval.responses=samples.parquet", "eval.output=offline")
    offline = metrics_of("offline", "val")
    truth = {row["problem"]: row["answer"] for row in read_lines("few.jsonl")}
    import pyarrow.parquet as pq

    rows = pq.read_table("samples.parquet").to_pylist()
    right = [row["response"].removeprefix("Answer:").strip() == truth[row["problem"]] for row in rows]
    assert offline["avg@4"] == pytest.approx(sum(right) / len(right))
    assert "pass@4" in offline


def test_responses_by_list_and_by_prompt(whet: Run, here: Path) -> None:
    listed = [{"question": "1+1", "answer": "#### 2", "out": ["#### 2", "it is 3", "so 2", "2"]}]
    write_rows(here / "listed.jsonl", listed)
    apart = [{"question": "1+1", "answer": "#### 2", "out": text} for text in listed[0]["out"]]
    write_rows(here / "apart.jsonl", apart)
    for name in ("listed", "apart"):
        whet(
            "eval",
            "eval.datasets=[gsm8k]",
            f"eval.responses={name}.jsonl",
            "eval.response_key=out",
            f"eval.output={name}",
        )
        found = metrics_of(name, "gsm8k")
        assert found["avg@4"] == 0.75
        assert found["pass@2"] == 1
        assert found["maj@4"] == 1


def test_built_in_mathematics_scores_mathematics(whet: Run, here: Path) -> None:
    rows = [
        {"problem": "half?", "answer": r"\frac{1}{2}", "subject": "Algebra", "level": 1, "response": r"so \boxed{0.5}"},
        {"problem": "root?", "answer": r"\sqrt{2}", "subject": "Algebra", "level": 2, "response": r"\boxed{2^{1/2}}"},
        {"problem": "angle?", "answer": "90", "subject": "Geometry", "level": 1, "response": r"\boxed{45}"},
    ]
    write_rows(here / "r.jsonl", rows)
    whet("eval", "eval.datasets=[math500]", "eval.responses=r.jsonl", "eval.output=out")
    report = json.loads(Path("out/report.json").read_text())["datasets"]["math500"]
    assert report["metrics"]["avg@1"]["mean"] == pytest.approx(2 / 3)
    assert report["by"]["subject"]["Algebra"]["metrics"]["avg@1"]["mean"] == 1
    assert report["by"]["level"]["1"]["metrics"]["avg@1"]["mean"] == 0.5


def test_medical_vqa_and_labels(whet: Run, here: Path) -> None:
    vqa = [
        {"question": "q1", "answer": "yes", "response": "Yes, it is."},
        {"question": "q2", "answer": "no", "response": "Yes"},
        {"question": "q3", "answer": "left lung", "response": "the left lung"},
        {"question": "q4", "answer": "left lung", "response": "right lung"},
    ]
    write_rows(here / "vqa.jsonl", vqa)
    whet("eval", "eval.datasets=[vqa_rad]", "eval.responses=vqa.jsonl", "eval.output=vqa")
    found = metrics_of("vqa", "vqa_rad")
    assert (found["closed_accuracy"], found["open_exact_match"], found["open_recall"]) == (0.5, 0.5, 0.75)
    assert "### vqa_rad by kind" in Path("vqa/report.md").read_text()
    labels = [
        {"question": "q1", "answer": ["edema"], "response": "edema, mass"},
        {"question": "q2", "answer": ["mass", "nodule"], "response": "mass"},
    ]
    write_rows(here / "labels.jsonl", labels)
    define = "eval.definitions.cxr={score: labels, labels: [edema, mass, nodule]}"
    whet("eval", "eval.datasets=[cxr]", define, "eval.responses=labels.jsonl", "eval.output=cxr")
    found = metrics_of("cxr", "cxr")
    assert found["label_micro_f1"] == pytest.approx(2 * 2 / (3 + 3))
    assert found["label_macro_f1"] == pytest.approx((1 + 2 / 3 + 0) / 3)


@pytest.mark.parametrize(
    ("name", "file", "rows"),
    [("gsm8k", "gsm8k/test.jsonl", 1319), ("aime24", "aime/aime24.parquet", 30), ("aime25", "aime/aime25.parquet", 30)],
)
def test_built_in_data_sets_read_files(whet: Run, here: Path, name: str, file: str, rows: int) -> None:
    """The right answers score 1 and wrong ones 0, through the columns and the reward function of the definition."""
    if not (SHARED / file).exists():
        pytest.skip(f"{file} is not here")
    from whet.data.columns import MISSING, lookup
    from whet.data.files import read_rows

    found = read_rows(str(SHARED / file))
    assert len(found) == rows
    answered: list[dict[str, Any]] = []
    for number, row in enumerate(found):
        answer = next(
            value for key in ("answer", "reward_model.ground_truth") if (value := lookup(row, key)) is not MISSING
        )
        right = number % 4 != 0
        said = answer.split("####")[-1].strip() if right else "-12345"
        answered.append(row | {"uid": str(number), "response": rf"Therefore \boxed{{{said}}}"})
    write_rows(here / "answered.jsonl", answered)
    whet(
        "eval",
        f"eval.datasets=[{name}]",
        "eval.responses=answered.jsonl",
        "eval.output=out",
        "worker.reward.num_cpus=1",
    )
    assert metrics_of("out", name)["avg@1"] == pytest.approx(sum(n % 4 != 0 for n in range(rows)) / rows)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("eval.datasets=[gsm9k]",), "did you mean gsm8k"),
        (("eval.datasets=[gsm8k,gsm8k]",), "name each data set once"),
        (("eval.datasets=[slake]",), "eval.definitions.slake.files is not set"),
        (
            ("eval.datasets=[mine]", "eval.definitions.mine.files=few.jsonl", "eval.definitions.mine.promptkey=x"),
            "did you mean prompt_key",
        ),
        (("eval.datasets=[mine]", "eval.definitions.mine={files: few.jsonl, score: bleu}"), "it is not one of text"),
        (
            ("eval.datasets=[mine]", "eval.definitions.mine={files: few.jsonl, extract: [regex]}"),
            "regex is not one of boxed",
        ),
        (("eval.datasets=[mine]", "eval.definitions.mine={files: few.jsonl, prompt_key: q}"), "has no column q"),
        (("eval.datasets=[mine]", "eval.definitions.mine={files: none.jsonl}"), "eval.definitions.mine.files"),
        (
            ("eval.datasets=[mine]", "eval.definitions.mine={files: few.jsonl, where: {digits: 99}}"),
            "no row has digits=99",
        ),
        (("eval.n=4", "worker.rollout.val_override_config.temperature=0"), "the temperature is 0"),
        (("eval.via=api",), "eval.api.base_url is not set"),
        (("eval.via=api", "eval.api.base_url=localhost:8000"), "write it as http"),
        (("eval.responses=nowhere.jsonl",), "eval.responses: there is no file"),
        (("eval.responses=few.jsonl",), "name one by eval.response_key"),
        (("eval.dataset=[gsm8k]",), "did you mean eval.datasets"),
    ],
)
def test_mistakes_are_named(refused: Run, few: str, arguments: tuple[str, ...], message: str) -> None:
    prompt = (
        "eval.definitions.mine.prompt_key=problem"
        if "mine" in str(arguments) and "prompt_key" not in str(arguments)
        else "data.seed=1"
    )
    assert message in refused("eval", CONFIG, few, prompt, *arguments)


def test_nothing_to_evaluate(refused: Run) -> None:
    assert "eval.datasets is not set, nor data.val_files" in refused(
        "eval", "worker.actor.model.model_path=whet/quickstart"
    )


def test_the_list_of_data_sets(whet: Run) -> None:
    assert all(name in whet("eval", "--list") for name in ("gsm8k", "math500", "aime24", "aime25", "vqa_rad"))


def test_a_reward_function_that_fails_on_every_answer(here: Path, few: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("judge.py").write_text("def main(reward_input): raise ConnectionError('the judge does not answer')")
    whole, broken = (
        "{files: few.jsonl, prompt_key: problem}",
        "{files: few.jsonl, prompt_key: problem, reward_function: judge.py}",
    )
    define = f"eval.definitions={{broken: {broken}, whole: {whole}}}"
    arguments = [CONFIG, few, define, "eval.datasets=[broken, whole]", "eval.output=out", "eval.n=1"]
    assert main(["eval", *arguments]) == 1
    text = "".join(capsys.readouterr())
    assert "broken: worker.reward.reward_function=judge.py failed on all 40 samples (40 raised)" in text
    assert "ConnectionError: the judge does not answer" in text.split("failed on all 40 samples")[1]
    assert set(json.loads(Path("out/report.json").read_text())["datasets"]) == {"broken", "whole"}


def test_without_a_reward_data_sources_choose_scorers(whet: Run, refused: Run, here: Path) -> None:
    rows = [
        {"problem": "2+2", "answer": "4", "data_source": "openai/gsm8k", "response": "#### 4"},
        {"problem": "2+3", "answer": "5", "data_source": "math_dapo", "response": "Answer: 6"},
    ]
    Path("said.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    common = ("eval", "eval.responses=said.jsonl", "eval.output=out", "data.prompt_key=problem")
    whet(*common)
    assert metrics_of("out", "val")["avg@1"] == 0.5
    rows[1]["data_source"] = "nobody's"
    Path("said.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert 'no scorer is for data_source="nobody\'s"' in refused(
        *common[:-1], "data.prompt_key=problem", "eval.output=b"
    )
