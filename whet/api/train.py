"""`whet.train`: reinforcement learning from Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from whet.api.names import documented
from whet.api.prepare import Arguments, prepare, require, surroundings
from whet.api.run import Run
from whet.api.settings import ConfigLike
from whet.system.launch import refuse_command


@documented("train")
def train(
    model: str | Path | Run | None = None,
    data: Any = None,
    reward: Callable[..., Any] | str | None = None,
    *,
    env: Callable[..., Any] | str | None = None,
    agent: Callable[..., Any] | str | None = None,
    val_data: Any = None,
    config: ConfigLike = None,
    overrides: Mapping[str, Any] | None = None,
    **keys: Any,
) -> Run:
    """Train a model with reinforcement learning and return the run.

    `model` is a model folder, a hub id or a `Run`. `data` is a path, a list of dicts, a `datasets.Dataset` or a pandas
    frame. `reward` is a function such as `def reward(response, answer) -> float`, `"path.py:function"`, or the name of
    one that comes with whet; it runs in worker processes with a timeout. `env` is a class with `reset` and `step`, or
    its name as in `worker.rollout.env`: then the policy plays episodes, and `reward` may be left out. `agent` is a
    function that calls the policy over HTTP, given `base_url`, `api_key` and `row`, or `"path.py:function"`; it returns
    the reward. `config` is a YAML file or a dict, over which keywords and `overrides` (full config keys) win; without
    it a run starts from the defaults.

    Without `output` each call makes a folder of its own under checkpoints/. With the `output` of an earlier call the
    run resumes from its last checkpoint. Ctrl-C finishes the step, saves it, and raises KeyboardInterrupt.
    Bad input raises `whet.UserError`.
    """
    refuse_command("train")
    require(
        "train", config, model=model, data=data, **({} if env is not None or agent is not None else {"reward": reward})
    )
    given = {"data.train_files": data, "data.val_files": val_data}
    call = prepare("train", Arguments(model, given, reward, config, overrides, keys, env, agent))
    from whet.config import check_config, check_files

    check_config(call.config)
    with call.inputs.written():
        check_files(call.config)
        from whet.training.job import train as run

        with surroundings():
            finished = run(call.config)
    if not finished:
        raise KeyboardInterrupt(f"the step is saved; whet.train(..., output={str(call.folder)!r}) resumes from it")
    return Run(call.folder)
