"""Engines are found by name without importing them, from a file, or registered; mistakes are sentences."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from whet.config import load_config
from whet.config.checks.train import check_config
from whet.config.schema.rollout import ENGINES
from whet.errors import UserError
from whet.rollout.spec import Capabilities, EngineSpec, engine_can, engine_spec, register_engine

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart.yaml"
SPEC = """
from whet.rollout.spec import Capabilities, EngineSpec
SPEC = EngineSpec(open=print, capabilities=Capabilities(shares_weights=True))
"""


@pytest.fixture(autouse=True)
def own_names() -> Iterator[None]:
    """Names registered by a test are gone after it."""
    yield
    ENGINES._registered.clear()


def _spec(**more) -> EngineSpec:
    return EngineSpec(open=lambda opening: None, capabilities=Capabilities(**more))


@pytest.mark.parametrize("name", ENGINES.names)
def test_a_spec_is_read_without_torch_and_without_its_engine(name: str) -> None:
    program = f"""
import sys
from whet.config import load_config
from whet.config.checks.engines import engine_problems
from whet.rollout.spec import engine_can
config = load_config(["worker.rollout.name={name}", "worker.rollout.mode=process"])
list(engine_problems(config)), engine_can(config)
heavy = [m for m in sys.modules if m in ("torch", "transformers", "PIL", "ray") or m.endswith(f".{name}.engine")]
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_folders_are_the_names() -> None:
    assert ENGINES.names == ("hf", "native", "openai", "sglang", "trtllm", "vllm")
    for name in ENGINES.names:
        assert isinstance(ENGINES.find(name), EngineSpec)


def test_a_registered_engine_is_a_choice_like_any_other() -> None:
    register_engine("mine", _spec(shares_weights=True))
    config = load_config([f"config={QUICKSTART}", "worker.rollout.name=mine"])
    check_config(config)
    assert engine_can(config).shares_weights
    with pytest.raises(UserError, match="is registered in this process, but ranks are others; name its file"):
        check_config(load_config([f"config={QUICKSTART}", "worker.rollout.name=mine", "trainer.n_gpus_per_node=2"]))


@pytest.mark.parametrize(
    ("name", "spec", "sentence"),
    [
        ("native", _spec(), "native cannot be registered: whet has one of that name"),
        ("a b", _spec(), "'a b' cannot be registered"),
        ("", _spec(), "'' cannot be registered"),
        (None, _spec(), "None cannot be registered"),
        ("mine", "path", "is registered with an EngineSpec, not with a str"),
        ("mine", EngineSpec, "is registered with an EngineSpec, not with a type"),
    ],
)
def test_what_cannot_be_registered_is_named(name, spec, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        register_engine(name, spec)


def test_a_file_is_found_beside_the_config_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(SPEC)
    (tmp_path / "run.yaml").write_text(f"extends: {QUICKSTART}\nworker: {{rollout: {{name: 'other.py:SPEC'}}}}\n")
    config = load_config([f"config={tmp_path / 'run.yaml'}"])
    check_config(config)
    assert engine_spec(config) is engine_spec(config)


@pytest.mark.parametrize(
    ("text", "named", "sentence"),
    [
        (SPEC, "e.py:NONE", r"e\.py defines no NONE"),
        (SPEC, "e.py:", r"e\.py defines no name behind the colon"),
        (SPEC, "no.py:SPEC", r"there is no file .*no\.py"),
        (SPEC, ":SPEC", r"worker\.rollout\.name=:SPEC"),
        ("SPEC = 3", "e.py:SPEC", "is of type int; it must be an EngineSpec"),
        ("SPEC = print", "e.py:SPEC", "it must be an EngineSpec"),
        ("1 / 0", "e.py:SPEC", "cannot be imported: ZeroDivisionError"),
        ("def (", "e.py:SPEC", "cannot be imported: SyntaxError"),
        ("import sys; sys.exit(3)", "e.py:SPEC", "cannot be imported: SystemExit"),
        ("import no_such_module", "e.py:SPEC", "no_such_module"),
        ("raise RuntimeError", "e.py:SPEC", "cannot be imported: RuntimeError"),
        (SPEC, "e.txt:SPEC", r"its name must end in \.py"),
        (SPEC, ".:SPEC", r"there is no file"),
    ],
)
def test_a_file_without_an_engine_is_a_sentence(tmp_path: Path, monkeypatch, text: str, named: str, sentence) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("e.py", "e.txt"):
        (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=sentence):
        check_config(load_config([f"config={QUICKSTART}", f"worker.rollout.name={named}"]))


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"natve is not one of hf, native, .*engine\.py:SPEC.*native\?"):
        load_config(["worker.rollout.name=natve"])


def test_keys_of_another_engine_are_refused_for_engines_from_outside(tmp_path: Path) -> None:
    (tmp_path / "e.py").write_text(SPEC)
    arguments = [f"config={QUICKSTART}", f"worker.rollout.name={tmp_path / 'e.py'}:SPEC", "worker.rollout.replicas=2"]
    with pytest.raises(UserError, match=r"replicas=2 is for vllm, but worker\.rollout\.name=.*e\.py:SPEC"):
        check_config(load_config(arguments))
