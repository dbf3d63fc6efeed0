"""The reward functions for mathematics and pictures in examples/, loaded as a run loads them."""

from pathlib import Path

import pytest

from whet.rewards.function import read_source
from whet.rewards.loading import add_import_folder, find_function, load_module

FOLDER = Path(__file__).parents[2] / "examples" / "reward_function"
add_import_folder(str(FOLDER))


def load(spec):
    source = read_source(spec, lambda file: FOLDER / file)
    return find_function(load_module(source), source)


@pytest.mark.parametrize(
    ("said", "truth"),
    [
        ("\\frac{1}{2}", "0.5"),
        ("\\dfrac12", "1/2"),
        ("9 \\sqrt { 2 }", "9\\sqrt{2}"),
        ("\\sqrt[3]{8}", "2"),
        ("1,234", "1234"),
        ("$x = 42$", "42"),
        ("42^\\circ", "42"),
        ("12.50", "12.5"),
        ("20\\%", "20"),
        ("5 \\text{ cm}", "5"),
        ("6\\pi", "6 \\cdot \\pi"),
        ("(x+1)^2", "x^2+2x+1"),
        ("xy", "yx"),
        ("(1, \\frac{2}{4})", "(1, 0.5)"),
        ("(B)", "B"),
        ("b", "B"),
        ("B. 12 metres", "B"),
        ("\\text{Paris}", "paris"),
        ("2(3+4)", "14"),
        ("-\\frac{3}{4}", "-0.75"),
    ],
)
def test_answers_that_mean_the_same(said, truth):
    from answers import same_answer

    assert same_answer(said, truth)


@pytest.mark.parametrize(
    ("said", "truth"),
    [
        (None, "1"),
        ("", "1"),
        ("12.7", "9\\sqrt{2}"),
        ("(1, 2]", "(1, 2)"),
        ("1, 2", "1"),
        ("C", "B"),
        ("x+1", "x+2"),
        ("__import__('os')", "1"),
        ("9**9**9**9", "1"),
        ("(" * 200 + ")" * 200, "1"),
        ("1" * 400, "1"),
        ("\\unknown{3}", "3"),
        ("London", "Paris"),
        ("1/0", "1"),
    ],
)
def test_answers_that_do_not(said, truth):
    from answers import same_answer

    assert not same_answer(said, truth)


def test_last_box_counts_with_the_braces_in_it():
    from answers import last_boxed

    assert last_boxed("\\boxed{1} and \\boxed{\\frac{1}{2}}.") == "\\frac{1}{2}"
    assert last_boxed("\\boxed{never closed") is None
    assert last_boxed("nothing") is None


def test_math_pays_for_answer_and_form_or_for_the_answer_alone():
    both = "<think>\n2 + 2\n</think> It is \\boxed{4}."
    cases = [both, "\\boxed{4}", "<think></think>\\boxed{5}", "4"]
    inputs = [{"response": case, "ground_truth": "4"} for case in cases]
    scores = load("math.py:compute_score")(inputs)
    assert [score["overall"] for score in scores] == pytest.approx([1.0, 0.9, 0.1, 0.0])
    plain = load("math.py:compute_score_wo_format")(inputs)
    assert [score["overall"] for score in plain] == [1.0, 1.0, 0.0, 0.0]
    assert [score["format"] for score in plain] == [1.0, 0.0, 1.0, 0.0]


def test_r1v_halves_the_reward_between_answer_and_form():
    score = load("r1v.py:compute_score")
    right = {"response": "<think>a\nb</think>\n<answer>3</answer>", "ground_truth": "<answer> 3 </answer>"}
    assert score(right) == {"overall": 1.0, "format": 1.0, "accuracy": 1.0}
    assert score({"response": "3", "ground_truth": "3"})["overall"] == 0.5
    assert score({"response": "<think></think><answer>4</answer>", "ground_truth": "3"})["overall"] == 0.5
    assert score({"response": "<answer>4</answer>", "ground_truth": "3"})["overall"] == 0.0


def test_geo3k_rounds_as_the_truth_does_and_further_only_on_request():
    compute = load("geo3k.py:compute_score")

    def accuracy(said, truth, **settings):
        (score,) = compute([{"response": f"\\boxed{{{said}}}", "ground_truth": truth}], **settings)
        return score["accuracy"]

    assert accuracy("12.73", "12.7") == 1.0
    assert accuracy("12.76", "12.7") == 0.0
    assert accuracy("12.7", "9 \\sqrt { 2 }") == 0.0
    assert accuracy("12.7", "9 \\sqrt { 2 }", tolerance=0.005) == 1.0
    assert accuracy("9\\sqrt{2}", "9 \\sqrt { 2 }") == 1.0


def test_dapo_counts_the_last_answer_line_and_long_responses():
    compute = load("dapo.py:compute_score")
    inputs = [
        {"response": "Answer: 3\nNo.\nAnswer: $4$", "ground_truth": "4", "response_length": 80},
        {"response": "Answer: 4" + " " * 400, "ground_truth": "4", "response_length": 90},
        {"response": "answer : \\boxed{4}", "ground_truth": "4", "response_length": 100},
    ]
    scores = compute(inputs, max_response_length=100, overlong_buffer_length=20, overlong_penalty_factor=0.5)
    assert [score["accuracy"] for score in scores] == [1.0, -1.0, 1.0]
    assert [score["accuracy_normalized"] for score in scores] == [1.0, 0.0, 1.0]
    assert [score["overlong"] for score in scores] == [0.0, -0.5, -1.0]
    assert [score["overall"] for score in scores] == [1.0, -1.25, 0.5]
    with pytest.raises(ValueError, match="max_response_length"):
        compute(inputs, overlong_buffer_length=20)


def test_shapes_wants_the_form_and_the_answer():
    compute = load("shapes.py:compute_score")
    cases = {
        "Answer: 3": ("3", 1.0),
        "Answer: 4": ("3", 0.1),
        "3": ("3", 0.0),
        "The red shape is at the top left.": ("top left", 1.0),
        "The red shape is at the top left": ("top left", 0.0),
    }
    scores = compute([{"response": said, "ground_truth": truth} for said, (truth, _) in cases.items()])
    assert [score["overall"] for score in scores] == pytest.approx([paid for _, paid in cases.values()])
