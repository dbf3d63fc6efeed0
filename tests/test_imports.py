"""Imports point one way: cli → jobs → training → packages of a step → model → kernels, assets → config.

A package may import any package further down.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "whet"
GROUND = {"config", "types", "errors", "system"}
STEP = {"data", "rollout", "rewards", "algos", "learn"}  # each does one part of a training step
RUN = {"checkpoint", "tracking", "distributed", "doctor"}  # what any job that trains stands on
JOBS = {"supervised", "evals", "merge", "serving", "prepare", "resample"}  # beside training, for cli and api only
BELOW = {"model", "kernels", "assets", "sandbox", "chat", "envs", "tools"} | GROUND
# What each part of the package may import of it, besides itself.
MAY_IMPORT = {
    "types": set(),
    "errors": set(),
    "system": {"errors"},
    "config": {"errors", "system"},
    "assets": GROUND,
    "envs": {"chat"} | GROUND,
    "tools": {"chat", "envs", "sandbox"} | GROUND,
    "kernels": {"errors"},
    "sandbox": {"config", "errors", "system"},
    "chat": {"config", "errors"},
    "distributed": {"config", "errors", "system"},
    "checkpoint": {"errors"},
    "tracking": {"checkpoint"} | GROUND,
    "plots": {"tracking"} | GROUND,
    "doctor": {"checkpoint", "tracking"} | GROUND,
    "board": {"checkpoint", "doctor", "plots", "resample", "serving", "tracking"} | GROUND,
    "sweeps": {"plots"} | GROUND,
    "compat": GROUND,
    "model": {"kernels", "assets"} | GROUND,
    **dict.fromkeys(STEP, BELOW),
    "rewards": BELOW | {"sandbox"},
    "training": STEP | RUN | BELOW | {"plots"},
    **{job: STEP | RUN | BELOW | {"training", "plots"} for job in JOBS},
    "planning": STEP | RUN | BELOW | {"training"},
    "api": STEP | RUN | BELOW | JOBS | {"training", "plots", "board"},
    "cli": STEP | RUN | BELOW | JOBS | {"training", "plots", "sweeps", "planning", "compat", "board"},
    "__main__": {"cli"},
}


def _part(module: str) -> str:
    return module.split(".")[1] if "." in module else "whet"


def _module(file: Path) -> str:
    names = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


def _imports(file: Path) -> list[tuple[int, str]]:
    """Line and module of every import of whet in a file, wherever it stands (type checking, inside functions)."""
    module = _module(file)
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([node.module] if node.module else [])])
            found += [(node.lineno, f"{base}.{alias.name}" if base == "whet" else base) for alias in node.names]
    return [(line, name) for line, name in found if name.split(".")[0] == "whet"]


FILES = sorted(file for file in PACKAGE.rglob("*.py") if "projects" not in file.parts)  # texts of `whet new`


def test_every_part_of_the_package_has_its_place() -> None:
    assert {_part(_module(file)) for file in FILES} - {"whet"} == MAY_IMPORT.keys()


@pytest.mark.parametrize("part", sorted(MAY_IMPORT))
def test_imports_point_one_way(part: str) -> None:
    wrong = [
        f"{file.relative_to(PACKAGE.parent)}:{line} imports {name}"
        for file in FILES
        if _part(_module(file)) == part
        for line, name in _imports(file)
        if _part(name) not in {part, "__version__"} | MAY_IMPORT[part]
    ]
    assert not wrong, "\n".join(wrong)


def test_the_check_sees_imports_of_every_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path / "whet")
    file = tmp_path / "whet" / "learn" / "x.py"
    file.parent.mkdir(parents=True)
    file.write_text(
        "import whet.training.job\n"
        "from whet import cli\n"
        "from ..rewards import scorer\n"
        "from . import packing\n"
        "if TYPE_CHECKING:\n    from whet.data.loader import PromptLoader\n"
        "def f():\n    import whet.rollout.engines.hf as hf\n"
        "import torch\n"
    )
    assert [_part(name) for _, name in sorted(_imports(file))] == [
        "training",
        "cli",
        "rewards",
        "learn",
        "data",
        "rollout",
    ]
