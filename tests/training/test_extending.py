"""A user's own advantage and policy loss: the example runs, resumes exactly, and every mistake is named."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from whet_process import outcome, run_folder, start, train

import whet
from whet.algos import LossInputs, Signals, find_advantage, find_policy_loss, needs_of, preparation_of
from whet.algos.aggregate import Aggregator, Normaliser
from whet.config import Config, check_files, load_config
from whet.config.schema.actor import LOSSES, ActorConfig
from whet.config.schema.algorithm import ADVANTAGES, AlgorithmConfig
from whet.errors import UserError
from whet.training.extensions import load_extensions

EXAMPLE = Path(__file__).parents[2] / "examples" / "extending"
SMALL = ("trainer.val_freq=-1", "trainer.val_before_train=false", "trainer.save_freq=2", "trainer.max_steps=2")


@pytest.fixture(autouse=True)
def own_names() -> Iterator[None]:
    """Names registered by a test are gone after it."""
    before = {table: dict(table._registered) for table in (ADVANTAGES, LOSSES)}
    yield
    for table, entries in before.items():
        table._registered = entries


def _config(folder: Path, text: str, *argv: str) -> Config:
    (folder / "mine.py").write_text(textwrap.dedent(text))
    return load_config([f"algorithm.extensions=[{folder / 'mine.py'}]", *argv])


def _signals() -> Signals:
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    rewards = torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.0, 0.0]])
    return Signals(mask, rewards, torch.tensor([0, 0]), torch.zeros(2, 3))


def _inputs() -> LossInputs:
    log_probs = torch.full((2, 3), -1.0, requires_grad=True)
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    return LossInputs(log_probs, torch.full((2, 3), -1.0), torch.ones(2, 3), mask)


def test_the_example_trains_and_resumes_exactly(tmp_path: Path, few_rows: tuple[str, str]) -> None:
    arguments = (f"config={EXAMPLE / 'mine.yaml'}", *few_rows, *SMALL)
    code, text = train(tmp_path / "cut", *arguments)
    assert code == 0, text
    code, text = train(tmp_path / "cut", *arguments, "trainer.max_steps=4")
    assert code == 0, text
    code, text = train(tmp_path / "whole", *arguments, "trainer.max_steps=4")
    assert code == 0, text
    cut, whole = (outcome(run_folder(tmp_path / name, "extending"), 4) for name in ("cut", "whole"))
    assert cut == whole
    trained = [line for line in whole[2] if line["step"] > 0]
    assert all(0 < line["actor/influence"] <= 1 for line in trained)


def test_the_example_computes_what_it_says() -> None:
    config = load_config([f"config={EXAMPLE / 'mine.yaml'}"])
    check_files(config)
    load_extensions(config)
    load_extensions(config)  # a second run in the same process
    signals = _signals()
    signals.groups_B = torch.tensor([0, 0])
    advantages, _ = find_advantage("median")(signals, config.algorithm)
    torch.testing.assert_close(advantages, torch.tensor([[0.25, 0.25, 0.0], [-0.25, 0.0, 0.0]]))
    loss, metrics = find_policy_loss("fading")(
        _inputs(), config.worker.actor, Aggregator("token-mean", Normaliser(3, 2, 3))
    )
    assert float(loss) == pytest.approx(-1)
    assert float(metrics["influence"]) == pytest.approx(1)


def test_a_name_that_whet_does_not_have() -> None:
    with pytest.raises(AttributeError, match="no attribute 'advantages'"):
        whet.advantages  # noqa: B018


def test_what_a_function_needs_is_known(tmp_path: Path) -> None:
    text = """
        import whet
        @whet.advantage("mine", "ours", needs=("values", "baselines"))
        def mine(signals, config):
            return signals.rewards_BT, signals.rewards_BT
        def prepare(inputs, config):
            return {"chosen": inputs.mask_BT}
        @whet.policy_loss("mine", prepare=prepare)
        def loss(inputs, config, aggregate):
            return aggregate(-inputs.log_probs_BT * inputs.prepared["chosen"], inputs.mask_BT), {}
    """
    load_extensions(_config(tmp_path, text, "algorithm.adv_estimator=ours", "worker.actor.loss_type=mine"))
    assert needs_of("mine") == needs_of("ours") == ("values", "baselines")
    assert preparation_of("mine") is not None
    assert torch.equal(preparation_of("mine")(_inputs(), ActorConfig())["chosen"], _inputs().mask_BT)


def test_files_beside_it_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "a_neighbour_of_mine.py").write_text("FACTOR = 2.0\n")
    text = """
        import whet
        from a_neighbour_of_mine import FACTOR
        @whet.advantage("mine")
        def mine(signals, config):
            return FACTOR * signals.rewards_BT, signals.rewards_BT
    """
    load_extensions(_config(tmp_path, text, "algorithm.adv_estimator=mine"))
    assert float(find_advantage("mine")(_signals(), AlgorithmConfig())[0].max()) == 2


HEAD = "import torch, whet\n"
ADVANTAGE = HEAD + '@whet.advantage("mine")\ndef mine(signals, config):\n    return '
LOSS = HEAD + '@whet.policy_loss("mine")\ndef mine(inputs, config, aggregate):\n    return '


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nowhere_to_be_found", r"extensions=.*mine\.py, line 1: ModuleNotFoundError: No module named 'nowhere"),
        ("x = 1\ny = (", r"extensions=.*mine\.py, line 2: SyntaxError"),
        ("x = 1\nraise SystemExit(3)", r"extensions=.*mine\.py, line 2: SystemExit: 3"),
        (
            "x = 1",
            r"adv_estimator=mine: is not one of .*gae, .*mine\.py\] registers nothing of that name",
        ),
        (HEAD + '@whet.advantage("mien")\ndef f(a, b): ...', r"adv_estimator=mine: .*did you mean mien\?"),
        (HEAD + "@whet.advantage\ndef f(a, b): ...", r"line 2: a function is registered with its name in parenth"),
        (HEAD + "@whet.advantage()\ndef f(a, b): ...", r"line 2: a function is registered with its name in parenth"),
        (
            HEAD + '@whet.advantage("mine")\ndef f(a): ...',
            r"adv_estimator=mine \(.*\): must be a function of \(",
        ),
        (
            HEAD + '@whet.advantage("mine", needs=["vales"])\ndef f(a, b): ...',
            r"needs='vales': an advantage may need",
        ),
        (HEAD + '@whet.advantage("grpo")\ndef f(a, b): ...', r"line 2: the name grpo is taken by .*grpo\.py; choose"),
        (
            HEAD + '@whet.policy_loss("mine")\ndef f(a, b): ...',
            r"loss_type=mine \(.*\): must be a function of",
        ),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, text: str, message: str) -> None:
    config = _config(tmp_path, text, "algorithm.adv_estimator=mine")
    with pytest.raises(UserError, match=message):
        load_extensions(config)
    assert needs_of("grpo") == ()


def test_a_name_of_another_file_is_not_taken_over(tmp_path: Path) -> None:
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text(ADVANTAGE + "signals.mask_BT, signals.mask_BT")
    with pytest.raises(UserError, match=r"two\.py, line 2: the name mine is taken by .*one\.py"):
        load_extensions(load_config([f"algorithm.extensions=[{tmp_path / 'one.py'}, {tmp_path / 'two.py'}]"]))


def test_a_missing_file_is_named_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("")
    config = load_config([f"algorithm.extensions=[{tmp_path / 'mien.py'}, readme.md]"])
    with pytest.raises(UserError) as caught:
        check_files(config)
    assert "mien.py: there is no such file; did you mean" in str(caught.value)
    assert "algorithm.extensions=readme.md: expected a Python file" in str(caught.value)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("signals.mask_BT", r"must return two tensors, \(advantages, returns\), not a tensor of shape \(2, 3\)"),
        ("None", r"must return two tensors, \(advantages, returns\), not NoneType"),
        ("(signals.mask_BT,) * 3", r"\(advantages, returns\), not a tuple of 3"),
        ("signals.mask_BT, 1.0", r"its returns must be a tensor of shape \(2, 3\) \(B, T\), not float"),
        (
            "signals.rewards_BT.sum(dim=1), signals.mask_BT",
            r"its advantages must be .*\(2, 3\).*not a tensor",
        ),
        ("signals.mask_BT / 0, signals.mask_BT", r"its advantages must be finite: inf in row 0, token 0"),
        ("signals.mask_BT, signals.nothing", r"AttributeError: .*nothing.*mine\.py:4\)"),
    ],
)
def test_an_advantage_that_returns_nonsense(tmp_path: Path, result: str, message: str) -> None:
    load_extensions(_config(tmp_path, ADVANTAGE + result, "algorithm.adv_estimator=mine"))
    with pytest.raises(UserError, match=r"algorithm\.adv_estimator=mine \(.*mine\.py\): .*" + message):
        find_advantage("mine")(_signals(), AlgorithmConfig())


def test_what_an_advantage_says_outside_the_mask_does_not_matter(tmp_path: Path) -> None:
    text = ADVANTAGE + "signals.rewards_BT / signals.mask_BT, (1 / signals.mask_BT).double()"
    load_extensions(_config(tmp_path, text, "algorithm.adv_estimator=mine"))
    advantages, returns = find_advantage("mine")(_signals(), AlgorithmConfig())
    torch.testing.assert_close(advantages, _signals().rewards_BT)
    torch.testing.assert_close(returns, _signals().mask_BT)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (
            "aggregate(-inputs.log_probs_BT, inputs.mask_BT)",
            r"must return \(loss, metrics\), not a tensor of",
        ),
        ("-inputs.log_probs_BT, {}", r"its loss must be one number, as aggregate.*not a tensor of shape \(2, 3\)"),
        ("0.5, {}", r"its loss must be one number.*not float"),
        ("inputs.log_probs_BT.sum() * float('nan'), {}", r"its loss is nan"),
        ("inputs.advantages_BT.sum(), {}", r"its loss has no gradient; compute it from inputs\.log_probs_BT"),
        ("inputs.log_probs_BT.sum(), None", r"its metrics must be a dict of numbers, not NoneType"),
        ("inputs.log_probs_BT.sum(), {'a': inputs.mask_BT}", r"its metric 'a' must be a number, not a tensor of shape"),
        ("inputs.log_probs_BT @ inputs.mask_BT, {}", r"RuntimeError: .*mine\.py:4\)"),
    ],
)
def test_a_policy_loss_that_returns_nonsense(tmp_path: Path, result: str, message: str) -> None:
    load_extensions(_config(tmp_path, LOSS + result, "worker.actor.loss_type=mine"))
    with pytest.raises(UserError, match=r"worker\.actor\.loss_type=mine \(.*mine\.py\): .*" + message):
        find_policy_loss("mine")(_inputs(), ActorConfig(), Aggregator("token-mean", Normaliser(3, 2, 3)))


def test_the_command_line_names_the_mistake(tmp_path: Path, few_rows: tuple[str, str]) -> None:
    (tmp_path / "mine.py").write_text(ADVANTAGE + "signals.mask_BT.sum(dim=1), signals.mask_BT")
    mine = ("algorithm.extensions=[mine.py]", "algorithm.adv_estimator=mine")
    code, text = train(tmp_path, *few_rows, *mine, *SMALL)
    assert code == 2, text
    assert "whet: algorithm.adv_estimator=mine" in text
    assert "Traceback" not in text
    process = start(tmp_path, "train", *few_rows, "algorithm.adv_estimator=mine")
    assert process.wait() == 2
    assert "mine is not one of " in process.text()
