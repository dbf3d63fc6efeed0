"""`whet data NAME`: rows in the hub's columns become rows in whet's and verl's, which scorers and loaders read."""

from __future__ import annotations

import base64
import hashlib
import json
import pickle
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from whet_process import write_rows

from whet.data.files import read_rows
from whet.prepare.registry import SETS
from whet.rewards.dispatch import name_for, score_row

SHARED = Path(__file__).parents[3] / "shared" / "data"
Run = Callable[..., str]

GSM8K = [
    {"question": "Tom has 2 boxes of 600 pens. How many?", "answer": "2*600=<<2*600=1200>>1200\n#### 1,200"},
    {"question": "How much are 3 at $4?", "answer": "12\n#### $12"},
    {"question": "What?", "answer": "nobody knows"},
    {"question": " ", "answer": "#### 1"},
]
MATH = [
    {"problem": "Half?", "solution": "So \\boxed{1} no, \\boxed{\\frac{1}{2}}.", "level": "Level 1", "type": "Algebra"},
    {"problem": "Nothing?", "solution": "There is no box.", "level": "Level 1", "type": "Algebra"},
]
GEO3K = [
    {"images": [b"\x89PNG1"], "problem": "<image>Find x.", "answer": "60"},
    {"images": [b"\x89PNG2"], "problem": "Find y.", "answer": "\\sqrt{2}"},
    {"images": [], "problem": "<image>Find z.", "answer": "1"},
    {"images": [b"\x89PNG3"], "problem": "<image><image>Find w.", "answer": "1"},
]
AIME = [
    {"id": 60, "problem": "Find n.", "solution": "...", "answer": "025", "url": "", "year": "2024"},
    {"id": 61, "problem": "Find m.", "solution": "...", "answer": "336^\\circ", "url": "", "year": "2024"},
    {"id": 62, "problem": "Find k.", "solution": "...", "answer": "1234", "url": "", "year": "2024"},
]


ASKED = (
    "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
    "$Answer (without quotes) where $Answer is the answer to the problem.\n\n{}\n\nRemember to put your answer on its "
    'own line after "Answer:".'
)


def _dapo(index: str, text: str, truth: str) -> dict[str, Any]:
    return {
        "data_source": "math_dapo",
        "prompt": [{"content": ASKED.format(text), "role": "user"}],
        "ability": "MATH",
        "reward_model": {"ground_truth": truth, "style": "rule-lighteval/MATH_v2"},
        "extra_info": {"index": index},
    }


DAPO = [_dapo("a", "1+1?", "2"), _dapo("b", "2+2?", "4"), _dapo("a", "1+1?", "2"), _dapo("a", "1+1?", "2")]
HH = [
    {"chosen": "\n\nHuman: Hi\n\nAssistant: Hello!", "rejected": "\n\nHuman: Hi\n\nAssistant: Go away."},
    {
        "chosen": "\n\nHuman: A\n\nAssistant: B\n\nHuman: C\n\nAssistant: D",
        "rejected": "\n\nHuman: A\n\nAssistant: B\n\nHuman: C\n\nAssistant: E",
    },
    {"chosen": "\n\nHuman: A\n\nAssistant: B", "rejected": "\n\nHuman: X\n\nAssistant: B2"},
    {"chosen": "\n\nHuman: A\n\nAssistant: B", "rejected": "\n\nHuman: A\n\nAssistant: B"},
]
SEARCH = [
    {"id": "train_0", "question": "who wrote it", "golden_answers": ["Ann", "Ann B."], "data_source": "nq"},
    {"id": "train_1", "question": "where?", "golden_answers": [], "data_source": "hotpotqa"},
]
OR1 = [
    {
        "data_source": "train-math-numinamath1.5_olympiads",
        "prompt": [{"role": "user", "content": "1+1? Box it."}],
        "ability": "math",
        "reward_model": {"ground_truth": '["2"]', "style": "rule"},
        "extra_info": {"index": 5, "model_difficulty": {"DeepSeek-R1-Distill-Qwen-7B": 3}},
    },
]
CODE = [
    {
        "data_source": "train-code-taco",
        "prompt": [{"role": "user", "content": "Print it."}],
        "ability": "code",
        "reward_model": {"ground_truth": json.dumps({"inputs": ["1"], "outputs": ["1"], "fn_name": None})},
        "extra_info": {"index": 6},
    },
    {
        "data_source": "train-code-taco",
        "prompt": [{"role": "user", "content": "Nothing to test."}],
        "ability": "code",
        "reward_model": {"ground_truth": json.dumps({"inputs": [], "outputs": []})},
        "extra_info": {"index": 7},
    },
]
LCB = [
    {
        "question_title": "A",
        "question_content": "Print the square.",
        "platform": "atcoder",
        "question_id": "abc1_a",
        "contest_id": "abc1",
        "contest_date": "2024-09-01T00:00:00",
        "starter_code": "",
        "difficulty": "easy",
        "public_test_cases": json.dumps([{"input": "3", "output": "9", "testtype": "stdin"}]),
        "private_test_cases": base64.b64encode(
            zlib.compress(pickle.dumps(json.dumps([{"input": "4", "output": "16", "testtype": "stdin"}])))
        ).decode(),
        "metadata": "{}",
    }
]


def prepared(whet: Run, name: str, rows: list[dict[str, Any]], split: str, *options: str) -> list[dict[str, Any]]:
    write_rows(Path("hub.jsonl"), rows)
    whet("data", name, "--from", "hub.jsonl", "--split", split, "--format", "jsonl", "--output", "out", *options)
    return read_rows(f"out/{split}.jsonl")


def test_gsm8k(whet: Run) -> None:
    rows = prepared(whet, "gsm8k", GSM8K, "train")
    assert [row["answer"] for row in rows] == ["1200", "12"]
    assert rows[0]["prompt"] == GSM8K[0]["question"]
    assert [row["index"] for row in rows] == [0, 1]
    card = Path("out/README.md").read_text()
    for reason in ("1 × solution without a number after ####", "1 × empty question"):
        assert reason in card
    assert "| train | `train.jsonl` | 4 | 2 | 2 |" in card
    assert hashlib.sha256(Path("out/train.jsonl").read_bytes()).hexdigest() in card
    assert hashlib.sha256(Path("hub.jsonl").read_bytes()).hexdigest() in card
    (row,) = prepared(whet, "gsm8k", GSM8K[:1], "test", "--schema", "verl")
    assert {*row} == {"data_source", "prompt", "ability", "reward_model", "extra_info"}
    assert row["reward_model"] == {"style": "rule", "ground_truth": "1200"}
    assert row["prompt"][0]["content"].startswith(GSM8K[0]["question"])
    assert "####" in row["prompt"][0]["content"]
    assert score_row({**row, "response": "#### 1200", "ground_truth": "1200"}, {})["overall"] == 1.0


def test_math_and_aime(whet: Run) -> None:
    (row,) = prepared(whet, "math", MATH, "train")
    assert row["answer"] == "\\frac{1}{2}"
    assert name_for(row["data_source"]) == "math"
    rows = prepared(whet, "aime", AIME, "aime24")
    assert [row["answer"] for row in rows] == ["25", "336"]
    assert name_for(rows[0]["data_source"]) == "math_dapo"
    assert "1 × answer that is no integer" in Path("out/aime.README.md").read_text()
    assert Path("out/README.md").read_text().startswith("# math,")


def test_files_of_other_data_are_not_overwritten(whet: Run, refused: Run) -> None:
    write_rows(Path("hub.jsonl"), AIME)
    command = ("data", "aime", "--from", "hub.jsonl", "--split", "aime24", "--format", "jsonl", "--output", "out")
    whet(*command)
    whet(*command, "--limit", "1")  # the same data set once more
    readme, rows = Path("out/README.md"), Path("out/aime24.jsonl")
    readme.write_text("# mine\n")
    assert "out/aime24.jsonl exists and is not of these data" in refused(*command)
    assert len(read_rows(str(rows))) == 1
    rows.unlink()
    whet(*command)
    assert readme.read_text() == "# mine\n"
    assert "| aime24 |" in Path("out/aime.README.md").read_text()


def test_geo3k_keeps_images_as_they_are(whet: Run) -> None:
    pq.write_table(pa.Table.from_pylist(GEO3K), "train.parquet")
    whet("data", "geo3k", "--from", "train.parquet", "--output", "out", "--schema", "verl")
    rows = read_rows("out/train.parquet")
    assert [row["images"] for row in rows] == [[b"\x89PNG1"], [b"\x89PNG2"]]
    assert [row["prompt"][0]["content"][:13] for row in rows] == ["<image>Find x", "<image>Find y"]
    assert name_for(rows[0]["data_source"]) == "geo3k"


def test_dapo_keeps_one_of_each_problem(whet: Run) -> None:
    rows = prepared(whet, "dapo17k", DAPO, "train", "--schema", "verl")
    assert [row["reward_model"]["ground_truth"] for row in rows] == ["2", "4"]
    assert rows[0]["prompt"] == DAPO[0]["prompt"]
    assert "2 × duplicate" in Path("out/README.md").read_text()
    assert name_for(rows[0]["data_source"]) == "math_dapo"


def test_dapo_in_whets_schema_is_the_problem_alone(whet: Run) -> None:
    other = [{"role": "user", "content": "3+3? End with Answer:"}]
    several = _dapo("d", "First.\n\nSecond?", "8")
    rows = prepared(whet, "dapo17k", [*DAPO, _dapo("c", "", "6") | {"prompt": other}, several], "train")
    assert [row["prompt"] for row in rows] == ["1+1?", "2+2?", other, "First.\n\nSecond?"]


def test_hh_rlhf_both_layouts(whet: Run) -> None:
    rows = prepared(whet, "hh_rlhf", HH, "train")
    assert [row["answer"] for row in rows] == ["Hello!", "D"]
    assert rows[1]["prompt"] == [
        {"role": "user", "content": "A"},
        {"role": "assistant", "content": "B"},
        {"role": "user", "content": "C"},
    ]
    assert rows[1]["rejected"] == "E"
    divided = [{"prompt": "\n\nHuman: Hi\n\nAssistant:", "response": "x", "chosen": " Hello!", "rejected": " No."}]
    (row,) = prepared(whet, "hh_rlhf", divided, "test", "--schema", "verl")
    assert row["prompt"] == [{"role": "user", "content": "Hi"}]
    assert row["reward_model"] == {"style": "model", "ground_truth": "Hello!"}


def test_search(whet: Run) -> None:
    (row,) = prepared(whet, "search", SEARCH, "train", "--schema", "verl")
    assert row["data_source"] == "searchR1_nq"
    assert row["reward_model"]["ground_truth"] == {"target": ["Ann", "Ann B."]}
    truth = row["reward_model"]["ground_truth"]
    said = {**row, "response": "<answer>ann b</answer>", "ground_truth": truth}
    assert score_row(said, {})["overall"] == 1.0
    plain = [{"question": "who?", "answer": "Ann"}]
    (row,) = prepared(whet, "search", plain, "test", "--data-source", "hotpotqa")
    assert row["data_source"] == "searchR1_hotpotqa"
    assert row["answer"] == {"target": ["Ann"]}


def test_or1(whet: Run) -> None:
    (row,) = prepared(whet, "or1", OR1, "math", "--schema", "verl")
    assert row["reward_model"]["ground_truth"] == ["2"]
    assert row["extra_info"]["model_difficulty"] == {"DeepSeek-R1-Distill-Qwen-7B": 3}
    assert name_for(row["data_source"]) == "math"
    (row,) = prepared(whet, "or1", CODE, "code", "--schema", "verl")
    assert row["reward_model"]["ground_truth"] == {"inputs": ["1"], "outputs": ["1"]}
    assert name_for(row["data_source"]) == "code"
    assert "1 × program without tests" in Path("out/README.md").read_text()
    whet("data", "or1", "--from", "hub.jsonl", "--split", "code", "--format", "pkl", "--schema", "verl")
    assert pickle.loads(Path("data/or1/code.pkl").read_bytes()) == [row]


def test_livecodebench_keeps_private_tests_packed(whet: Run) -> None:
    (row,) = prepared(whet, "livecodebench", LCB, "test")
    assert json.loads(row["answer"])["private_test_cases"] == LCB[0]["private_test_cases"]
    assert name_for(row["data_source"]) == "code"
    assert row["difficulty"] == "easy"


def test_parquet_holds_what_json_lines_hold(whet: Run) -> None:
    write_rows(Path("hub.jsonl"), OR1 + CODE)  # truths of different kinds in one column
    for kind in ("jsonl", "parquet", "pkl", "json"):
        whet("data", "or1", "--from", "hub.jsonl", "--split", "code", "--format", kind, "--output", "out")
    lines, table = read_rows("out/code.jsonl"), read_rows("out/code.parquet")
    assert read_rows("out/code.pkl") == read_rows("out/code.json") == lines
    assert [json.loads(row["answer"]) for row in table] == [row["answer"] for row in lines]


def test_order_limit_and_seed(whet: Run) -> None:
    rows = [{"question": f"{n}?", "answer": f"#### {n}"} for n in range(50)]
    plain = prepared(whet, "gsm8k", rows, "train", "--limit", "5")
    assert [row["answer"] for row in plain] == ["0", "1", "2", "3", "4"]
    assert "45 × beyond --limit 5" in Path("out/README.md").read_text()
    one = prepared(whet, "gsm8k", rows, "train", "--limit", "5", "--shuffle", "--seed", "3")
    assert one == prepared(whet, "gsm8k", rows, "train", "--limit", "5", "--shuffle", "--seed", "3")
    assert one != prepared(whet, "gsm8k", rows, "train", "--limit", "5", "--shuffle", "--seed", "4")


def test_a_folder_of_splits(whet: Run) -> None:
    Path("hub").mkdir()
    write_rows(Path("hub/train.jsonl"), GSM8K[:2])
    write_rows(Path("hub/test.jsonl"), GSM8K[:1])
    assert "test.parquet: 1 rows" in whet("data", "gsm8k", "--from", "hub")
    assert len(read_rows("data/gsm8k/train.parquet")) == 2


def test_mistakes_are_sentences(refused: Run) -> None:
    write_rows(Path("mine.jsonl"), [{"text": "x"}])
    write_rows(Path("odd.jsonl"), GSM8K[2:])
    assert "did you mean gsm8k" in refused("data", "gsm8", "--from", "mine.jsonl")
    assert "say which it is with --split" in refused("data", "gsm8k", "--from", "mine.jsonl")
    said = refused("data", "gsm8k", "--from", "mine.jsonl", "--split", "train")
    assert "mine.jsonl:1: has no column question; its columns: text" in said
    assert "no row of the split" in refused("data", "gsm8k", "--from", "odd.jsonl", "--split", "train")
    assert "there is no such file" in refused("data", "gsm8k", "--from", "none")
    assert "did you mean test" in refused("data", "gsm8k", "--from", "mine.jsonl", "--split", "tset")
    assert "--schema" in refused("data", "gsm8k", "--schema", "trl")
    assert "--limit" in refused("data", "gsm8k", "--from", "mine.jsonl", "--limit", "0")
    assert "takes the name of a data set" in refused("data")


def test_every_data_set_is_listed(whet: Run) -> None:
    out = whet("data", "--list")
    assert {"gsm8k", "math", "geo3k", "aime", "dapo17k", "hh_rlhf", "search", "or1", "livecodebench"} == {*SETS.names}
    assert all(name in out for name in SETS.names)


@pytest.mark.skipif(not (SHARED / "gsm8k").is_dir(), reason="the files of GSM8K and AIME are not on this machine")
def test_the_published_files(whet: Run) -> None:
    whet("data", "gsm8k", "--from", str(SHARED / "gsm8k"), "--schema", "verl")
    train, test = read_rows("data/gsm8k/train.parquet"), read_rows("data/gsm8k/test.parquet")
    assert (len(train), len(test)) == (7473, 1319)
    assert test[0]["reward_model"]["ground_truth"] == "18"
    whet("data", "aime", "--from", str(SHARED / "aime"), "--format", "jsonl")
    for name in ("aime24", "aime25"):
        rows = read_rows(f"data/aime/{name}.jsonl")
        assert len(rows) == 30
        assert all(row["answer"] == str(int(row["answer"])) for row in rows)
