"""Finding a reward function, and knowing how to call it. In-process: nothing here runs untrusted code."""

import asyncio
import pickle
import sys
from pathlib import Path

import pytest

from whet.errors import UserError
from whet.rewards.function import read_source
from whet.rewards.loading import find_function, load_module
from whet.rewards.signature import bind
from whet.rewards.worker import answer

ROW = {"response": "4", "response_length": 1, "ground_truth": "4", "data_source": "sums", "level": 3}


def load(tmp_path: Path, text: str, declared: str | None = None, options: dict | None = None, name: str = "f"):
    """The bound function `f` of a file with this text."""
    file = tmp_path / "reward.py"
    file.write_text(text)
    source = read_source(f"{file}:{name}")
    module = load_module(source)
    declared = declared or getattr(module, "REWARD_TYPE", None)
    return bind(find_function(module, source), source, declared, options or {})


@pytest.fixture(autouse=True)
def _restore_imports():
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("text", "batch", "expected"),
    [
        ("def f(reward_inputs): return [r['response'] for r in reward_inputs]", True, ["4", "4"]),
        ("def f(reward_input): return reward_input['level']", False, 3),
        ("REWARD_TYPE = 'batch'\ndef f(rows): return len(rows)", True, 2),
        ("REWARD_TYPE = 'sequential'\ndef f(row): return row['level']", False, 3),
        ("REWARD_TYPE = 'sequential'\ndef f(reward_inputs): return reward_inputs['level']", False, 3),
        ("def f(predicts, ground_truths): return [predicts, ground_truths]", True, [["4", "4"], ["4", "4"]]),
        ("def f(predict, ground_truth, weight=2): return [predict, ground_truth, weight]", False, ["4", "4", 2]),
        ("def f(solution_str, ground_truth): return solution_str", False, "4"),
        ("def f(solution_strs, ground_truths): return solution_strs", True, ["4", "4"]),
        ("async def f(reward_input): return 7", False, 7),
        ("class F:\n    def __call__(self, reward_input): return 8\nf = F()", False, 8),
    ],
)
def test_each_signature_is_called_its_own_way(tmp_path, text, batch, expected):
    function = load(tmp_path, text)
    assert function.form.batch is batch
    assert function([ROW, ROW] if batch else [ROW]) == expected


def test_verl_signature_gets_source_and_every_column(tmp_path):
    text = (
        "def f(data_source, solution_str, ground_truth, extra_info=None, **kwargs):\n"
        "    return data_source, solution_str, ground_truth, extra_info, kwargs"
    )
    row = {**ROW, "extra_info": {"index": 5}}
    source, solution, truth, extra, options = load(tmp_path, text, options={"strict": True})([row])
    assert (source, solution, truth, options) == ("sums", "4", "4", {"strict": True})
    assert (extra["index"], extra["level"]) == (5, 3)


CHAT = [{"role": "user", "content": "2+2?"}]


@pytest.mark.parametrize(
    ("text", "prompt", "expected"),
    [
        ("def f(completions, **kwargs): return completions", "2+2?", ["4", "4"]),
        ("def f(completions, **kwargs): return [turns[0]['content'] for turns in completions]", CHAT, ["4", "4"]),
        ("def f(prompts, completions, level): return list(zip(prompts, level))", CHAT, [(CHAT, 3), (CHAT, 3)]),
        (
            "def f(completions, level, **columns): return [sorted(columns)] * 2",
            "",
            [["data_source", "ground_truth", "prompts"]] * 2,
        ),
        ("def f(completions, trainer_state=None, weight=1): return [None, weight]", "", [0.0, 5]),
        ("async def f(completions, **_): return tuple(completions)", "", ["4", "4"]),
        ("class F:\n    def __call__(self, completions): return 8\nf = F()", "", 8),
    ],
)
def test_functions_of_trl_are_called_as_trl_calls_them(tmp_path, text, prompt, expected):
    function = load(tmp_path, text, options={"weight": 5} if "weight" in text else {})
    assert function.form.batch
    row = {**ROW, "prompt": prompt}
    assert function([row, row]) == expected


def test_a_column_that_a_function_of_trl_misses_is_named(tmp_path):
    function = load(tmp_path, "def f(completions, solution, **_): return solution")
    with pytest.raises(TypeError, match="takes solution: no column of the data, which has ground_truth, data_source"):
        function([{**ROW, "prompt": ""}])


def test_config_overrules_the_file_on_the_type(tmp_path):
    text = "REWARD_TYPE = 'sequential'\ndef f(rows): return len(rows)"
    assert load(tmp_path, text, declared="batch").form.batch


@pytest.mark.parametrize(
    ("text", "declared", "options", "words"),
    [
        ("def f(a, b): pass", None, {}, ["takes (a, b)", "f(reward_inputs, ...)", "solution_str"]),
        ("def f(rows): pass", None, {}, ["takes (rows)", "worker.reward.reward_type", "REWARD_TYPE"]),
        ("def f(): pass", None, {}, ["takes (nothing)"]),
        ("def f(completions, completion_ids): pass", None, {}, ["needs completion_ids, which no sample provides"]),
        ("def f(completions): pass", "sequential", {}, ["as a sequential function"]),
        ("def f(predicts, ground_truths): pass", "sequential", {}, ["as a sequential function"]),
        ("def f(reward_input): pass", "group", {}, ["'group' is not one of batch, sequential"]),
        ("def f(reward_input, url): pass", None, {}, ["reward_function_kwargs"]),
        ("def f(predict, ground_truth, url): pass", None, {}, ["needs url", "reward_function_kwargs.url"]),
        ("def f(reward_input, weight=1): pass", None, {"wieght": 2}, ["kwargs.wieght", "did you mean weight?"]),
        ("def f(predict, ground_truth): pass", None, {"predict": 2}, ["from the sample"]),
        ("f = 3", None, {}, ["is int, not a function"]),
        ("def compute(reward_input): pass", None, {}, ["no function f", "did you mean", "reward.py:compute?"]),
        ("from math import sin", None, {}, ["defines no function"]),
        ("x = 1\ndef f(:\n  pass", None, {}, ["reward.py:2", "SyntaxError"]),
        ("\nimport no_such_package", None, {}, ["reward.py:2", "No module named 'no_such_package'"]),
        ("import sys\nsys.exit(3)", None, {}, ["reward.py:2", "SystemExit"]),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, declared, options, words):
    with pytest.raises(UserError) as error:
        load(tmp_path, text, declared, options)
    for word in ["worker.reward.", *words]:
        assert word in str(error.value)


def test_nearest_function_is_offered(tmp_path):
    with pytest.raises(UserError, match=r"did you mean .*reward\.py:compute_score\?"):
        load(tmp_path, "def compute_score(reward_input): pass", name="compute_scores")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("nowhere", "no scorer of that name"),
        ("nowhere.py:f", "no file nowhere.py"),
        ("nowhere.py:a-b", "cannot be the name of a function"),
    ],
)
def test_bad_specs(spec, words):
    with pytest.raises(UserError, match=words):
        read_source(spec)


def test_function_defaults_to_main_and_path_is_resolved(tmp_path):
    (tmp_path / "reward.py").write_text("")
    source = read_source("reward.py", lambda value: tmp_path / value)
    assert (source.function, source.path) == ("main", str(tmp_path / "reward.py"))


def test_siblings_can_be_imported_but_do_not_hide_the_standard_library(tmp_path):
    (tmp_path / "whet_test_sibling.py").write_text("LEVEL = 3")
    (tmp_path / "colorsys.py").write_text("raise RuntimeError('wrong colorsys')")
    function = load(tmp_path, "import colorsys\nfrom whet_test_sibling import LEVEL\ndef f(reward_input): return LEVEL")
    assert function([ROW]) == 3


def test_the_file_may_define_dataclasses(tmp_path):
    text = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass Rule:\n    weight: float = 2.0\n"
        "def f(reward_input): return Rule().weight"
    )
    assert load(tmp_path, text)([ROW]) == 2.0


def test_annotations_of_the_file_stay_objects(tmp_path):
    function = load(tmp_path, "def f(reward_input: dict): return f.__annotations__['reward_input'] is dict")
    assert function([ROW]) is True


def test_async_function_leaves_no_loop_behind(tmp_path):
    load(tmp_path, "async def f(reward_input): return 7")([ROW])
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()


def test_a_batch_function_may_use_up_the_list_that_it_is_given(tmp_path):
    bound = load(tmp_path, "def f(reward_inputs): return [float(reward_inputs.pop()['level']) for _ in range(2)]")
    reply = answer(bound, pickle.dumps((b"seed", [ROW, ROW], 1.0)))
    assert [result["overall"] for result in reply.results] == [3.0, 3.0]
