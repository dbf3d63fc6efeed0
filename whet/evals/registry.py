"""Data sets by name: where their rows are, which columns matter, how they are asked and how answers are scored.

A definition of the config changes a built-in one of its name, or is one of its own. Columns are given as alternatives,
because the same data set is published under several names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from whet.config import Config, nearest
from whet.config.values import show
from whet.errors import UserError
from whet.evals.extract import EXTRACTORS
from whet.evals.metrics import METRICS

PROMPTS = ("problem", "question", "prompt")
ANSWERS = ("answer", "reward_model.ground_truth", "ground_truth")
IMAGES = ("images", "image", "decoded_image")
VALIDATION = "val"  # what data.val_files are called in a report


@dataclass(frozen=True, slots=True)
class DataSet:
    """Definition of a data set; each field is a key of `eval.definitions.NAME`."""

    name: str
    title: str = ""
    files: str | None = None  # as data.val_files
    prompt_key: tuple[str, ...] = PROMPTS  # the first of these columns that rows have
    answer_key: tuple[str, ...] = ANSWERS
    image_key: tuple[str, ...] = IMAGES
    image_dir: str | None = None
    format_prompt: str | None = None  # None asks as the column stands
    score: str | None = None  # a metric of evals/metrics.py
    reward_function: str | None = None  # in its place: path.py:function
    reward_function_kwargs: dict[str, Any] = field(default_factory=dict)
    extract: tuple[str, ...] = ()  # extractors, in this order; () = what suits the score
    choices_key: str | None = None  # column with the texts of the choices
    kind_key: str | None = None  # column that says open or closed
    labels: tuple[str, ...] = ()  # every label there is
    tolerance: float = 0.0  # of numbers
    source_key: str = "data_source"  # column by which results are shown apart
    category_keys: tuple[str, ...] = ()  # further such columns
    where: dict[str, Any] = field(default_factory=dict)  # only rows with these values
    n: int | None = None  # samples a question
    answer_columns: tuple[str, ...] = ()  # columns that together are the answer, where no answer_key is there


MATH = "reward_function/math.py:compute_score_wo_format"
ASK_BOXED, ASK_CHOICE = "format_prompt/eval_boxed.jinja", "format_prompt/eval_choice.jinja"
ASK_SHORT, ASK_YES_NO = "format_prompt/eval_short.jinja", "format_prompt/eval_yes_no.jinja"
_AIME = DataSet("", format_prompt=ASK_BOXED, reward_function=MATH, extract=("boxed", "answer"), n=16)

BUILT_IN = {
    each.name: each
    for each in (
        DataSet(
            "gsm8k",
            "grade-school word problems",
            "openai/gsm8k:main@test",
            format_prompt="format_prompt/gsm8k.jinja",
            reward_function="reward_function/gsm8k.py:compute_score",
            reward_function_kwargs={"format_weight": 0.0},
            extract=("marked", "boxed", "number"),
        ),
        DataSet(
            "math500",
            "500 problems of MATH",
            "HuggingFaceH4/MATH-500@test",
            format_prompt=ASK_BOXED,
            reward_function=MATH,
            extract=("boxed", "answer"),
            category_keys=("subject", "level"),
        ),
        replace(_AIME, name="aime24", title="AIME 2024", files="HuggingFaceH4/aime_2024@train"),
        replace(_AIME, name="aime25", title="AIME 2025", files="math-ai/aime25@test"),
        DataSet(
            "livecodebench",
            "programming contests, hidden tests in the sandbox (code_generation_lite)",
            prompt_key=("question_content", "prompt"),
            format_prompt="format_prompt/eval_code.jinja",
            reward_function="code",
            reward_function_kwargs={"continuous": False},
            extract=("program",),
            category_keys=("difficulty", "platform"),
            answer_columns=("public_test_cases", "private_test_cases", "metadata"),
            n=4,
        ),
        DataSet(
            "geometry3k",
            "geometry with figures",
            "hiyouga/geometry3k@test",
            format_prompt=ASK_BOXED,
            reward_function="reward_function/geo3k.py:compute_score",
            reward_function_kwargs={"format_weight": 0.0},
            extract=("boxed", "answer"),
        ),
        DataSet(
            "mathvista",
            "mathematics with pictures (testmini), multiple choice",
            "AI4Math/MathVista@testmini",
            image_key=("decoded_image", "image"),
            format_prompt=ASK_CHOICE,
            score="choice",
            choices_key="choices",
            category_keys=("metadata.task", "metadata.context"),
            where={"question_type": "multi_choice"},
        ),
        DataSet(
            "mathverse",
            "diagrams in six versions of each problem (testmini), multiple choice",
            "AI4Math/MathVerse:testmini@testmini",
            format_prompt=ASK_CHOICE,
            score="choice",
            category_keys=("problem_version",),
            where={"question_type": "multi-choice"},
        ),
        DataSet(
            "mmstar",
            "questions that need their picture",
            "Lin-Chen/MMStar@val",
            format_prompt=ASK_CHOICE,
            score="choice",
            category_keys=("category",),
        ),
        DataSet(
            "pope",
            "objects that are, or are not, in a picture",
            "lmms-lab/POPE@test",
            format_prompt=ASK_YES_NO,
            score="yes_no",
            category_keys=("category",),
        ),
        DataSet(
            "vqa_rad",
            "radiology",
            "flaviagiammarino/vqa-rad@test",
            format_prompt=ASK_SHORT,
            score="medical_vqa",
        ),
        DataSet(
            "path_vqa",
            "pathology",
            "flaviagiammarino/path-vqa@test",
            format_prompt=ASK_SHORT,
            score="medical_vqa",
        ),
        DataSet(
            "slake",
            "radiology, English (test.json and the folder imgs of the data set)",
            image_key=("img_name", *IMAGES),
            format_prompt=ASK_SHORT,
            score="medical_vqa",
            kind_key="answer_type",
            category_keys=("modality", "content_type"),
            where={"q_lang": "en"},
        ),
    )
}
_LISTS = ("prompt_key", "answer_key", "image_key", "extract", "labels", "category_keys", "answer_columns")
_MAPPINGS = ("reward_function_kwargs", "where")
_KEYS = tuple(each.name for each in fields(DataSet) if each.name != "name")


def chosen(config: Config) -> list[DataSet]:
    """The data sets that a config names; `data.val_files` and its reward function where it names none."""
    if not config.eval.datasets:
        return [_validation(config)]
    return [_named(config, name) for name in config.eval.datasets]


def listing() -> str:
    """A line for each built-in data set."""
    lines = [f"  {each.name:<11} {each.files or 'files of your own':<36} {each.title}" for each in BUILT_IN.values()]
    return "\n".join(
        ["Data sets of eval.datasets; eval.definitions.NAME.files=FILE reads files in place of the hub:", *lines]
    )


def _validation(config: Config) -> DataSet:
    data, reward = config.data, config.worker.reward
    return DataSet(
        VALIDATION,
        "data.val_files",
        data.val_files,
        (data.prompt_key,),
        (data.answer_key,),
        (data.image_key,),
        data.image_dir,
        data.format_prompt,
        reward_function=reward.reward_function,
        reward_function_kwargs=reward.reward_function_kwargs,
        extract=("boxed", "answer", "marked", "stated", "text"),
    )


def _named(config: Config, name: str) -> DataSet:
    given = config.eval.definitions.get(name)
    if given is None and name not in BUILT_IN:
        known = [*BUILT_IN, *config.eval.definitions]
        near = nearest(name, known)
        hint = f"did you mean {near}?" if near else f"there are {', '.join(known)}; others go into eval.definitions"
        raise UserError(f"eval.datasets: there is no data set {name}; {hint}")
    base = BUILT_IN.get(name) or DataSet(name, format_prompt=config.data.format_prompt)
    changes = {key: _value(f"eval.definitions.{name}", key, value) for key, value in (given or {}).items()}
    if "score" in changes and "reward_function" not in changes:
        changes["reward_function"] = None
    if changes.get("reward_function"):
        changes["score"] = None
    found = replace(base, **changes)
    if found.files is None and config.eval.responses is None:
        raise UserError(f"eval.definitions.{name}.files is not set: name the files of this data set")
    if not found.score and not found.reward_function:
        reward = config.worker.reward
        found = replace(
            found, reward_function=reward.reward_function, reward_function_kwargs=reward.reward_function_kwargs
        )
    return found


def _value(place: str, key: str, value: Any) -> Any:
    """A value of a definition, in the type of its field."""
    where = f"{place}.{key}={show(value)}"
    if key not in _KEYS:
        near = nearest(key, _KEYS)
        hint = f"; did you mean {near}?" if near else f"; a data set has {', '.join(_KEYS)}"
        raise UserError(f"unknown key {place}.{key}{hint}")
    if key in _MAPPINGS:
        if not isinstance(value, Mapping):
            raise UserError(f"{where}: expected a mapping such as {{name: value}}")
        return dict(value)
    if key in _LISTS:
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list) or not all(isinstance(each, str) for each in items):
            raise UserError(f"{where}: expected a name or a list of them")
        if key == "extract" and (unknown := [each for each in items if each not in EXTRACTORS]):
            raise UserError(f"{where}: {unknown[0]} is not one of {', '.join(EXTRACTORS)}")
        return tuple(items)
    if key == "n":
        right = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    elif key == "tolerance":
        right = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")
    else:
        right = isinstance(value, str) or (value is None and key not in ("title", "source_key"))
    if not right:
        raise UserError(f"{where}: expected {'a number' if key in ('n', 'tolerance') else 'text'}")
    if key == "score" and value is not None and value not in METRICS:
        raise UserError(f"{where}: it is not one of {', '.join(METRICS)}; reward_function names a function")
    return value
