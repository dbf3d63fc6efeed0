"""`trainer.stages`: the config of each part of a run, made and judged before the run starts.

    trainer:
      stages:
        - {steps: 200, overrides: {data.max_response_length: 8192}}
        - until: {metric: response_length/clip_ratio, below: 0.05, patience: 3}
          overrides: {data.max_response_length: 16384, worker.rollout.n: 8}
        - {steps: 100, overrides: {data.max_response_length: 32768}}

An override holds for its own stage only; what no stage names is what the config says.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from whet.config.keys import Key, with_values
from whet.config.loading.layer import Layer, record_tree
from whet.config.problems import ConfigError, hint, raise_problems, sentences_of
from whet.config.schema import Config, all_keys
from whet.config.values import Given, read_value, show
from whet.errors import UserError

# What may change between two steps of a run: neither weights, nor data, nor processes have to be made anew for it.
CHANGEABLE = (
    "data.max_response_length",
    "data.rollout_batch_size",
    "data.mini_rollout_batch_size",
    "algorithm.kl_coef",
    "algorithm.kl_target",
    "algorithm.kl_horizon",
    "algorithm.online_filtering",
    "algorithm.filter_*",
    "algorithm.use_pf_ppo",
    "algorithm.pf_ppo.*",
    "algorithm.norm_adv_by_std",
    "trainer.max_try_make_batch",
    "trainer.rejection_sample*",
    "worker.reward.overlong_buffer.*",
    "worker.rollout.n",
    "worker.rollout.temperature",
    "worker.rollout.top_p",
    "worker.rollout.top_k",
    "worker.rollout.min_p",
    "worker.rollout.val_override_config.*",
    "worker.actor.global_batch_size",
    "worker.actor.micro_batch_size_per_device_for_*",
    "worker.actor.micro_batch_tokens",
    "worker.actor.max_grad_norm",
    "worker.actor.clip_ratio_*",
    "worker.actor.loss_avg_mode",
    "worker.actor.ppo_epochs",
    "worker.actor.entropy_coeff",
    "worker.actor.adaptive_entropy.*",
    "worker.actor.optim.lr",
    "worker.critic.global_batch_size",
    "worker.critic.micro_batch_size_per_device_for_*",
    "worker.critic.optim.lr",
)
_STEPS = Key("steps", "int", False, 1, "steps of the stage", least=1)
_PATIENCE = Key("patience", "int", False, 1, "steps in a row that must meet it", least=1)
_BOUND = Key("above or below", "float", False, 0.0, "where the metric must be")


@dataclass(frozen=True, slots=True)
class Until:
    """A stage ends once a metric has been beyond a bound `patience` times in a row."""

    metric: str
    bound: float
    above: bool
    patience: int

    def is_met_by(self, value: float) -> bool:
        """Return True if this value counts towards the end of the stage."""
        return value > self.bound if self.above else value < self.bound


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of the run with a config of its own; it ends after `steps` or when `until` is met, the first of both."""

    config: Config
    steps: int | None
    until: Until | None


def read_stages(config: Config) -> list[Stage]:
    """The stages in their order, [] when there are none; the error of one names it as trainer.stages[i]."""
    stages = []
    for i, given in enumerate(config.trainer.stages):
        place = f"trainer.stages[{i}]"
        try:
            stages.append(_read_stage(config, given))
        except UserError as error:
            raise ConfigError([f"{place}: {sentence}" for sentence in sentences_of(error)]) from error
        if stages[-1].steps is None and stages[-1].until is None:
            raise UserError(f"{place}: says neither steps nor until, so it would have no end")
    return stages


def _read_stage(config: Config, given: dict[str, Any]) -> Stage:
    _only(given, ("steps", "until", "overrides"), "a stage")
    steps = read_value(_STEPS, Given("steps", given["steps"])) if "steps" in given else None
    until = _read_until(given["until"]) if "until" in given else None
    overrides = given.get("overrides") or {}
    if not isinstance(overrides, dict):
        raise UserError("overrides: expected keys with their values, such as {data.max_response_length: 16384}")
    return Stage(_overridden(config, overrides), steps, until)


def _read_until(given: Any) -> Until:
    if not isinstance(given, dict):
        raise UserError(f"until={show(given)}: expected a mapping such as {{metric: reward/overall, above: 0.8}}")
    _only(given, ("metric", "above", "below", "patience"), "until")
    if not isinstance(given.get("metric"), str):
        raise UserError("until: name a metric, such as {metric: reward/overall, above: 0.8}")
    sides = [side for side in ("above", "below") if side in given]
    if len(sides) != 1:
        raise UserError("until: set either above or below")
    bound = read_value(_BOUND, Given(f"until.{sides[0]}", given[sides[0]]))
    patience = read_value(_PATIENCE, Given("until.patience", given.get("patience", 1)))
    return Until(given["metric"], bound, sides == ["above"], patience)


def _overridden(config: Config, overrides: dict[str, Any]) -> Config:
    layer = Layer()
    record_tree("", overrides, lambda name: "", layer)
    raise_problems(problem.sentence for problem in layer.problems)
    values = {}
    for name, given in layer.items():
        if not any(fnmatchcase(name, pattern) for pattern in CHANGEABLE):
            raise given.error(
                "cannot change during a run; a stage may set lengths, batch sizes, sampling, filters, clipping, "
                "coefficients and the learning rate (docs/recipes.md lists them)"
            )
        key = all_keys().get(name)  # None below a key that is a mapping
        values[name] = given.value if key is None else read_value(key, given)
    return with_values(config, values)


def _only(given: dict[str, Any], known: tuple[str, ...], what: str) -> None:
    for name in given:
        if name not in known:
            parts = ", ".join(known)
            raise UserError(f"{name} is no part of {what}{hint(name, known) or f'; it has {parts}'}")
