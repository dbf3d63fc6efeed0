"""Preparation of jobs: arguments become a config, and Python objects become files beside it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from whet.api.data import data_files
from whet.api.inputs import Inputs
from whet.api.run import Run
from whet.api.settings import ConfigLike, new_folder, read_settings
from whet.config import Config, nearest, with_values
from whet.config.examples import examples_folder
from whet.config.files import is_template_text
from whet.errors import UserError
from whet.rewards.registry import SCORERS

MODEL = "worker.actor.model.model_path"
REWARD = "worker.reward.reward_function"
ENV = "worker.rollout.env"
AGENT = "worker.rollout.agent"
_ROWS = "rows given in Python"  # stands in the config until their file has a name


@dataclass(slots=True)
class Call:
    """A job that is ready to be checked and started."""

    config: Config
    inputs: Inputs
    folder: Path


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments that every job takes."""

    model: Any = None
    data: Mapping[str, Any] | None = None  # config key -> the caller's data
    reward: Any = None
    config: ConfigLike = None
    overrides: Mapping[str, Any] | None = None
    keys: Mapping[str, Any] | None = None
    env: Any = None
    agent: Any = None


def prepare(job: str, given: Arguments, folder: Path | None = None) -> Call:
    """Read the arguments of a job, which writes to `folder` or to one that the config names or that is new.

    Nothing is written yet: `Inputs.written` does that once the config is checked.
    """
    data = {key: value for key, value in (given.data or {}).items() if value is not None}
    names = {key: "data" if len(data) == 1 and job == "evaluate" else _parameter(key) for key in data}
    arguments: dict[str, Any] = {key: (names[key], _ROWS) for key in data}
    if given.model is not None:
        arguments[MODEL] = ("model", model_name(given.model))
    if given.reward is not None:
        arguments[REWARD] = ("reward", reward_name(given.reward))
    if given.env is not None:
        arguments[ENV] = ("env", env_name(given.env))
    if given.agent is not None:
        arguments[AGENT] = ("agent", agent_name(given.agent))
    config = read_settings(job, given.config, given.overrides, given.keys or {}, arguments)
    if "\0" in (config.trainer.save_checkpoint_path or ""):
        raise UserError("output: a path cannot contain a null character")
    folder = folder or new_folder(config, job)
    inputs = Inputs(folder)
    values: dict[str, Any] = {"trainer.save_checkpoint_path": str(folder)}
    values |= {key: data_files(value, names[key], inputs) for key, value in data.items()}
    values |= _kept_template(config, inputs)
    if callable(given.reward):
        values[REWARD] = reward_spec(given.reward, inputs)
    if callable(given.env):
        values[ENV] = object_spec("env", given.env, inputs)
    if callable(given.agent):
        values[AGENT] = object_spec("agent", given.agent, inputs)
    values |= _kept_registered(config, inputs)
    return Call(with_values(config, values), inputs, folder)


def of_run(given: Arguments, run: Run, changes: Mapping[str, Any]) -> Arguments:
    """Return the arguments of a job that samples from a run: its config, with its best checkpoint, on one device."""
    checkpoint = run.best_checkpoint
    if checkpoint is None:
        raise UserError(f"{run.folder} has no checkpoint yet, so there is no trained model")
    if given.config is not None:
        raise UserError("config cannot be given with a Run, whose config is used; change keys of it by keywords")
    own = {
        "trainer.load_checkpoint_path": str(checkpoint),
        "trainer.save_checkpoint_path": None,
        "trainer.project_name": "whet",
        "trainer.experiment_name": "demo",
        "trainer.n_gpus_per_node": 1,
        "trainer.nnodes": 1,
        **changes,
    }
    return replace(given, model=None, config=with_values(run.config, own))


def require(job: str, config: ConfigLike, **parameters: Any) -> None:
    """Raise a `UserError` for arguments that are missing where no config could hold them."""
    missing = [name for name, value in parameters.items() if value is None]
    if missing and config is None:
        usage = ", ".join(f"{name}=..." for name in parameters)
        raise UserError(f"{' and '.join(missing)} must be given: whet.{job}({usage})")


def model_name(model: Any) -> str:
    """Return the folder or hub id that `model` means; a run stands for the model of its best checkpoint."""
    if isinstance(model, Run):
        return str(model.model)
    if isinstance(model, os.PathLike):
        model = os.fspath(model)
    if not isinstance(model, str):
        advice = "; save it with save_pretrained and name the folder" if hasattr(type(model), "save_pretrained") else ""
        raise UserError(f"model: expected a model folder, a hub id or a Run, got {type(model).__name__}{advice}")
    if not model.strip():
        raise UserError("model is empty; name a model folder or a hub id")
    return model


def reward_name(reward: Any) -> str:
    """Return what the config says for a reward: `path.py:function`, a shipped one by its name, or a function's name."""
    if callable(reward):
        from whet.api.callables import name_of

        return f"function.py:{name_of(reward)}"  # replaced by its file once there is one
    if not isinstance(reward, str | os.PathLike):
        raise UserError(f"reward: expected a function, path.py:function or a name, got {type(reward).__name__}")
    name = str(os.fspath(reward))
    if not name.strip():
        raise UserError("reward is empty; give a function, path.py:function, or a name")
    if ".py" in name or ":" in name or os.sep in name:
        return name
    known = shipped_rewards()
    if name not in known and name in SCORERS.names:
        return name
    if name not in known:
        names = sorted({*known, *SCORERS.names})
        near = nearest(name, names)
        hint = f"did you mean {near}?" if near else f"there are {', '.join(names)}"
        raise UserError(f"reward={name!r}: no reward of that name comes with whet; {hint} (or give path.py:function)")
    return known[name]


def shipped_rewards() -> dict[str, str]:
    """Return the reward functions that come with whet, by name."""
    files = sorted((examples_folder() / "reward_function").glob("*.py"))
    return {
        file.stem: f"{file}:compute_score" for file in files if "def compute_score(" in file.read_text(encoding="utf-8")
    }


def reward_spec(function: Callable[..., Any], inputs: Inputs) -> str:
    """Return `path:function` for a function, of its own file or of the file that it is pickled to."""
    from whet.api.callables import in_file, name_of, pickled

    spec = in_file(function)
    if spec is not None:
        return spec
    name = name_of(function)
    return f"{inputs.add('reward', '.pickle', pickled(function, f'reward: the function {name}'))}:{name}"


def env_name(env: Any) -> str:
    """Return what the config says for an environment: the name as given, or a class's name."""
    if isinstance(env, str):
        if not env.strip():
            raise UserError("env is empty; give a class, path.py:Class, or a name")
        return env
    if not callable(env):
        raise UserError(f"env: expected a class with reset and step, or its name, got {type(env).__name__}")
    from whet.api.callables import name_of

    return f"environment.py:{name_of(env)}"  # replaced by its file once there is one


def agent_name(agent: Any) -> str:
    """Return what the config says for a harness: the name as given, or a function's name."""
    if isinstance(agent, str):
        if not agent.strip():
            raise UserError("agent is empty; give a function, or path.py:function")
        return agent
    if not callable(agent):
        raise UserError(
            f"agent: expected a function that takes base_url, api_key and row, or path.py:function, "
            f"got {type(agent).__name__}"
        )
    from whet.api.callables import name_of

    return f"agent.py:{name_of(agent)}"  # replaced by its file once there is one


def object_spec(parameter: str, given: Callable[..., Any], inputs: Inputs) -> str:
    """Return `path:name` for an environment or a harness, of its own file or of the file that it is pickled to."""
    from whet.api.callables import in_file, name_of, pickled

    spec = in_file(given)
    if spec is not None:
        return spec
    name = name_of(given)
    return f"{inputs.add(parameter, '.pickle', pickled(given, f'{parameter}: {name}'))}:{name}"


@contextmanager
def surroundings() -> Iterator[None]:
    """Put back what a job changes of the process: the verbosity of transformers and the number of threads."""
    import torch
    from transformers.utils import logging

    verbosity, bars, threads = logging.get_verbosity(), logging.is_progress_bar_enabled(), torch.get_num_threads()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
        torch.set_num_threads(threads)


def _kept_template(config: Config, inputs: Inputs) -> dict[str, Any]:
    """Return the file that a prompt template is written to which was given as text."""
    text = config.data.format_prompt
    if text is None or not is_template_text(text):
        return {}
    return {"data.format_prompt": str(inputs.add("prompt", ".jinja", text.encode()))}


def _kept_registered(config: Config, inputs: Inputs) -> dict[str, Any]:
    """Return the file of the advantage and the loss that this process has registered, for ranks and later processes."""
    if "whet.algos.registry" not in sys.modules:
        return {}
    from whet.training.extensions import note_written, registered_here

    found = registered_here(config)
    if not found:
        return {}
    from whet.api.callables import pickled

    label = " and ".join(f"the registered function {name}" for name in found)
    path = inputs.add("registered", ".pickle", pickled(found, label))
    note_written(path, found)
    return {"algorithm.extensions": [*config.algorithm.extensions, str(path)]}


def _parameter(key: str) -> str:
    return {"data.train_files": "data", "data.val_files": "val_data"}[key]
