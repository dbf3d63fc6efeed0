"""From arguments to a `Config`: defaults < `config=FILE` < `key=value`, every error named before anything runs.

The built-in quickstart is meant only by a command that says nothing of a task of its own. As soon as data, a model or a
reward is named, a run without `config=` starts from the defaults, so that nothing of the quickstart (its learning rate,
template, number of steps) is inherited unseen.
"""

from __future__ import annotations

import copy
import functools
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.config.keys import with_values
from whet.config.loading.arguments import is_config_file, read_arguments
from whet.config.loading.layer import Layer, fill_presets, fill_seeds, is_plain
from whet.config.loading.yaml_file import read_files
from whet.config.objectives import objective_layer
from whet.config.problems import Problem, raise_problems
from whet.config.schema import Config, all_keys
from whet.config.secrets import comes_from_environment
from whet.config.texts import name_problem, text_problem
from whet.config.values import Given, read_value, show
from whet.errors import UserError

if TYPE_CHECKING:
    from whet.config.loading.interpolation import Interpolated

TASK_KEYS = (
    "data.train_files",
    "data.val_files",
    "worker.actor.model.model_path",
    "worker.reward.reward_function",
    "worker.reward.combine",
    "worker.reward.url",
    "worker.reward.model.path",
    "worker.reward.judge.base_url",
    "worker.reward.judge.model_path",
)
DEFAULTS = "defaults"


@dataclass(frozen=True)
class Loaded:
    """A config, with everything that was wrong with what it was made of; keys of problems are at their defaults."""

    config: Config
    problems: list[Problem]
    start: Start

    def result(self) -> Config:
        """Return the config, or raise a `UserError` that lists all problems."""
        raise_problems(problem.sentence for problem in self.problems)
        return self.config


def load_config(argv: list[str], default_file: Path | None = None) -> Config:
    """Return the config that `["config=FILE", "key=value", ...]` spell; `FILE.yaml` alone is `config=FILE.yaml`.

    Without a file, `default_file` is read, unless data, a model or a reward is named.
    """
    return load(argv, default_file).result()


def load(argv: list[str], default_file: Path | None = None) -> Loaded:
    """Load a config with problems collected instead of raised."""
    files = [argument.removeprefix("config=") for argument in argv if _names_file(argument)]
    given = read_arguments([argument for argument in argv if not _names_file(argument)])
    problems = [Problem(sentence, hides_all=True) for sentence in _file_problems(files)]
    named = own_task(given)
    start = Start(built_in=not files and default_file is not None and not named, named=named if not files else ())
    source = default_file if start.built_in else None
    if files and not problems:
        source = Path(os.path.expanduser(files[0]))
    read = read_files(source) if source is not None else []
    return combine(read, [given], start=start, problems=problems)


def _names_file(argument: str) -> bool:
    return argument.startswith("config=") or is_config_file(argument)


def _file_problems(files: list[str]) -> list[str]:
    if len(files) > 1:
        return [
            f"config= is given {len(files)} times ({', '.join(map(show, files))}); keep one, "
            "whose `extends:` may name others"
        ]
    if files == [""]:
        return ["config=: has no value; name a YAML file"]
    problem = text_problem(files[0]) or name_problem(files[0]) if files else None
    return [f"config={show(files[0])}: {problem}"] if problem else []


def combine(
    read: list[tuple[Path, Layer]],
    given: list[Layer],
    extended: bool = False,
    start: Start | None = None,
    problems: list[Problem] | None = None,
) -> Loaded:
    """Merge files, then layers given otherwise, into a typed config; later ones win.

    `extended` says that open choices may name functions that are registered in this process.
    """
    start = start or Start()
    layers = [layer for _, layer in read] + given
    for layer in layers:
        fill_presets(layer)
        fill_seeds(layer)
    layers = [objective_layer(layers), *layers]
    merged = _merged(layers)
    found = problems or []
    for problem in (problem for layer in layers for problem in layer.problems):
        is_given = problem.guessed and any(_given_for(key, layers) for key in problem.keys)
        found.append(replace(problem, keys=()) if is_given else problem)
    interpolated = _interpolated(merged, layers)
    config = _typed(merged, interpolated, layers, extended, found)
    source = read[-1][0].absolute() if read else None
    config = replace(
        config,
        written=_from_environment(interpolated.unresolved, layers) if interpolated else {},
        source=source,
        folders=tuple(path.absolute().parent for path, _ in reversed(read)),
        origin=start.label(source),
    )
    return Loaded(config, found, start)


def _merged(layers: list[Layer]) -> dict[str, Any]:
    """Return the tree of all keys."""
    tree = Config().to_dict()
    for layer in layers:
        tree = _over(tree, _nested(layer))
    return tree


def _interpolated(tree: dict[str, Any], layers: list[Layer]) -> Interpolated | None:
    """Return the tree as OmegaConf reads it; None where no value has anything that it would replace."""
    if all(is_plain(given.value) for layer in layers for given in layer.values()):
        return None
    from whet.config.loading.interpolation import Interpolated

    return Interpolated(tree)


def _over(base: Any, later: Any) -> Any:
    """Join mappings key by key; of anything else take the later one."""
    if not isinstance(base, dict) or not isinstance(later, dict):
        return later
    return base | {name: _over(base.get(name), item) for name, item in later.items()}


def _nested(layer: Layer) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name, given in list(layer.items()):
        try:
            _place(tree, name, given)
        except UserError as error:
            layer.refuse(error, name)
            del layer[name]
    return tree


def _place(tree: dict[str, Any], name: str, given: Given) -> None:
    *above, leaf = name.split(".")
    branch = tree
    for part in above:
        branch = branch.setdefault(part, {})
        if not isinstance(branch, dict):
            raise given.error(f"{part} has a value of its own, so nothing can be below it; keep one")
    if isinstance(branch.get(leaf), dict) and not isinstance(given.value, dict):
        raise given.error(f"{leaf} has values below it, so it can have none of its own; keep one")
    branch[leaf] = given.value


def _typed(
    tree: dict[str, Any],
    interpolated: Interpolated | None,
    layers: list[Layer],
    extended: bool,
    problems: list[Problem],
) -> Config:
    """Read every given key in its type; one that cannot be read is a problem, and stays at its default."""
    extended = extended or _given_for("algorithm.extensions", layers) is not None
    values = {}
    for name, key in all_keys().items():
        given = _given_for(name, layers)
        if given is None:
            continue
        try:
            value = interpolated.value(name, given) if interpolated else copy.deepcopy(_at(tree, name))
            values[name] = read_value(key, Given(given.name, value, given.place, given.value), extended)
        except UserError as error:
            exhausted = interpolated is not None and interpolated.exhausted
            problems.append(Problem(str(error), _affected(name), hides_all=exhausted))
            if exhausted:
                break
    return with_values(Config(), values)


def _affected(name: str) -> tuple[str, ...]:
    """Return the keys whose value is not known where this one's is not: a preset gives those of its whole section."""
    section, _, leaf = name.rpartition(".")
    return tuple(each for each in all_keys() if each.startswith(f"{section}.")) if leaf == "preset" else (name,)


def _given_for(name: str, layers: list[Layer]) -> Given | None:
    """Return what the user gave for a key, or for something below it; the last source wins."""
    is_mapping = all_keys()[name].kind == "dict"
    for layer in reversed(layers):
        if name in layer:
            return layer[name]
        if not is_mapping:
            continue
        below = next((given for target, given in layer.items() if target.startswith(f"{name}.")), None)
        if below is not None:
            return Given(name, below.value, below.place)
    return None


def _at(tree: dict[str, Any], name: str) -> Any:
    return functools.reduce(lambda branch, part: branch[part], name.split("."), tree)


def _from_environment(tree: Any, layers: list[Layer]) -> dict[str, Any]:
    """Return the keys with text that comes from the environment, each as it was written. Numbers are no secrets."""
    found = {}
    for name, key in all_keys().items():
        if key.kind in ("str", "list", "table", "dict") and _given_for(name, layers) is not None:
            raw = _at(tree, name)
            if comes_from_environment(raw, tree):
                found[name] = raw
    return found


@dataclass(frozen=True)
class Start:
    """What a config starts from where no file is named."""

    built_in: bool = False
    named: tuple[str, ...] = ()  # keys of a task of the user's own, which keep the quickstart out

    def label(self, source: Path | None) -> str:
        """Return what to call the start in messages."""
        if source is None:
            return DEFAULTS
        return f"built-in quickstart ({source})" if self.built_in else str(source)


def own_task(given: Layer) -> tuple[str, ...]:
    """Return the keys that name data, a model or a reward, misspelt ones included; one set to nothing names none."""
    named = {key for key, value in given.items() if value.value not in (None, "")}
    meant = {key for problem in given.problems for key in problem.keys}
    return tuple(key for key in TASK_KEYS if key in named | meant)
