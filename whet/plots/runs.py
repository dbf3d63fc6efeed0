"""Run folders as data of plots; runs that differ in their seed alone put together."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from whet.errors import UserError
from whet.plots.curves import Arm, RunData
from whet.tracking.run_folder import read_metrics

# Keys that name a run or its place, and say nothing about what it computes.
_NAMES = ("trainer.experiment_name", "trainer.project_name", "trainer.save_checkpoint_path")


def read_run(folder: str | Path) -> RunData:
    """Read a run folder; a `UserError` if it is none, or has no metrics yet."""
    path = Path(folder).expanduser()
    file = path / "metrics.jsonl"
    if not path.is_dir():
        raise UserError(f"{path}: there is no such run folder")
    if not file.is_file():
        inside = sorted(each.parent.name for each in path.glob("*/metrics.jsonl"))
        hint = f"; it holds the runs {', '.join(inside[:8])}" if inside else ""
        raise UserError(f"{path} is not a run folder, or has not logged a step yet: it has no metrics.jsonl{hint}")
    try:
        metrics = read_metrics(file)
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror or error}") from error
    if not metrics:
        raise UserError(f"{path} has no metrics yet")
    return RunData(path, metrics, read_settings(path / "config.yaml"))


def read_settings(file: Path) -> dict[str, Any]:
    """Read a run's config as it stands, also one whose keys have changed since; {} if there is none."""
    try:
        state = file.stat()
        return dict(_parsed(file, state.st_mtime_ns, state.st_size))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: cannot be read: {(str(error).splitlines() or ['?'])[0]}") from error


@functools.lru_cache(maxsize=256)
def _parsed(file: Path, changed: int, size: int) -> dict[str, Any]:
    """Return the leaves of a config; parsed once for each state of its file."""
    import yaml

    from whet.config.loading.yaml_file import LOADER, check_yaml

    text = file.read_text(encoding="utf-8")
    check_yaml(text, str(file))
    try:
        tree = yaml.load(text, Loader=LOADER)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    return _flat(tree) if isinstance(tree, dict) else {}


def find_runs(folder: str | Path) -> list[RunData]:
    """Read a run, or every run in a folder of runs."""
    path = Path(folder).expanduser()
    if path.is_dir() and not (path / "metrics.jsonl").is_file():
        inside = sorted(each.parent for each in path.glob("*/metrics.jsonl"))
        if inside:
            return [read_run(each) for each in inside]
    return [read_run(path)]


def as_arms(runs: Sequence[RunData]) -> list[Arm]:
    """Put runs together that differ in their seed alone, and name each arm by what sets it apart."""
    together: dict[str, list[RunData]] = defaultdict(list)
    for run in runs:
        key = repr(sorted((k, v) for k, v in run.settings.items() if not _is_incidental(k))) if run.settings else ""
        together[key or str(run.folder)].append(run)
    groups = list(together.values())
    differing = differences([group[0] for group in groups])
    arms: list[Arm] = []
    for group in groups:
        name = group[0].name
        values = [f"{key.rpartition('.')[2]}={values[groups.index(group)]}" for key, values in differing.items()]
        if len(group) > 1 or name in (arm.name for arm in arms):
            name = ", ".join(values) if 0 < len(values) <= 3 else f"{name} ({group[0].folder.name})"
        arms.append(Arm(f"{name} (n={len(group)})" if len(group) > 1 else name, group))
    return arms


def differences(runs: Sequence[RunData]) -> dict[str, list[Any]]:
    """Return the keys whose values differ between runs, with the value of each run; None where it has none."""
    keys = dict.fromkeys(key for run in runs for key in run.settings)
    found = {key: [run.settings.get(key) for run in runs] for key in keys if not _is_incidental(key)}
    return {key: values for key, values in found.items() if any(value != values[0] for value in values)}


def _is_incidental(key: str) -> bool:
    return key in _NAMES or key.rpartition(".")[2] == "seed"


def _flat(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Return the leaves of a nested mapping by their dotted keys."""
    if not isinstance(tree, dict):
        return {prefix.rstrip("."): tree}
    return {k: v for name, value in tree.items() for k, v in _flat(value, f"{prefix}{name}.").items()}
