"""The four systems: their entry points, the job of whet behind each, and where its defaults and rows are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from whet.compat.compose import Composed, Trees, compose_hydra
from whet.compat.keys.row import Table
from whet.config.problems import hint
from whet.errors import UserError

_NEWER = ("verl_newer", "verl_added", "verl_older")
_PPO = {
    "ppo_trainer": "verl_main_ppo",
    "ppo_megatron_trainer": "verl_megatron",
    "gsm8k_multiturn_grpo": "verl_gsm8k_multiturn_grpo",
    "gsm8k_multiturn_grpo_server": "verl_gsm8k_multiturn_grpo_server",
    "gsm8k_multiturn_megatron_grpo": "verl_gsm8k_multiturn_megatron_grpo",
    "geo3k_multiturn_grpo": "verl_geo3k_multiturn_grpo",
    "geo3k_multiturn_megatron_grpo": "verl_geo3k_multiturn_megatron_grpo",
    "transfer_queue_ppo_trainer": "verl_transfer_queue",
    "dapo_trainer": "verl_dapo",
}


@dataclass(frozen=True)
class Entry:
    """One main of a system."""

    modules: tuple[str, ...]
    job: str  # of whet: train, sft, generate, eval, merge
    compose: Callable[[list[str], Path], Composed] | None = None  # None: the arguments are no config
    table: str = ""  # name of the rows in compat/keys
    rules: tuple[str, ...] = ()  # that always apply, after those of the rows

    def rows(self) -> Table:
        """Return the table of its keys."""
        from whet.compat.keys.tables import TABLES

        return TABLES[self.table]


@dataclass(frozen=True)
class System:
    """A system whose commands are understood."""

    name: str
    title: str
    entries: tuple[Entry, ...]

    def entry(self, module: str) -> Entry | None:
        """Return the main that a module or the path of a Python file names; None for anything else."""
        wanted = module.removesuffix(".py").replace("/", ".").lstrip(".")
        return next((entry for entry in self.entries if any(_is(wanted, known) for known in entry.modules)), None)


def _is(wanted: str, known: str) -> bool:
    return wanted == known or wanted.endswith(f".{known}")


def _hydra(
    default: str, names: dict[str, str] | None = None, newer: tuple[str, ...] = (), *places: str
) -> Callable[[list[str], Path], Composed]:
    trees = Trees(default, names or {}, newer, places or ("verl/trainer",))
    return lambda arguments, folder: compose_hydra(trees, arguments, folder)


def _folders(name: str) -> tuple[str, str]:
    """Return where a checkout has an experimental main: recipes moved into the package."""
    return f"verl/experimental/{name}", f"recipe/{name}"


def _dotlist(name: str, path: str) -> Callable[[list[str], Path], Composed]:
    def compose(arguments: list[str], folder: Path) -> Composed:
        from whet.compat.dotlist import compose_dotlist

        return compose_dotlist(f"{name}_main", f"{name}_config", path, arguments, folder)

    return compose


_MERGE = Entry(
    (
        "verl.model_merger",
        "scripts.model_merger",
        "verl.scripts.model_merger",
        "scripts.legacy_model_merger",
        "verl.model_merger.__main__",
    ),
    "merge",
)
_OLD_SFT = "verl.trainer.fsdp_sft_trainer"
SYSTEMS = {
    system.name: system
    for system in (
        System(
            "verl",
            "verl",
            (
                Entry(
                    ("verl.trainer.main_ppo", "verl.trainer.main_ppo_sync"),
                    "train",
                    _hydra("verl_main_ppo", _PPO, _NEWER),
                    "verl",
                ),
                Entry(
                    ("verl.experimental.transfer_queue.main_ppo", "recipe.transfer_queue.main_ppo"),
                    "train",
                    _hydra("verl_transfer_queue", _PPO, _NEWER, *_folders("transfer_queue")),
                    "verl",
                ),
                Entry(
                    ("recipe.dapo.main_dapo", "recipe.dapo.src.main_dapo"),
                    "train",
                    _hydra("verl_dapo", _PPO, _NEWER, "recipe/dapo", "recipe/dapo/src"),
                    "verl",
                ),
                Entry(  # DAPO's trainer again, whose own file sets the losses of clip-cov and kl-cov
                    ("recipe.entropy.main_entropy",),
                    "train",
                    _hydra("verl_dapo", {**_PPO, "entropy_trainer": "verl_dapo"}, _NEWER, "recipe/entropy"),
                    "verl",
                ),
                Entry(
                    (
                        "verl.experimental.one_step_off_policy.main_ppo",
                        "recipe.one_step_off_policy.main_ppo",
                        "recipe.one_step_off_policy.async_main_ppo",
                    ),
                    "train",
                    _hydra(
                        "verl_one_step_off",
                        {
                            **_PPO,
                            "one_step_off_ppo_trainer": "verl_one_step_off",
                            "one_step_off_ppo_megatron_trainer": "verl_one_step_off_megatron",
                        },
                        _NEWER,
                        *_folders("one_step_off_policy"),
                    ),
                    "verl",
                    ("one_step_off",),
                ),
                Entry(
                    (
                        "verl.experimental.fully_async_policy.fully_async_main",
                        "recipe.fully_async_policy.fully_async_main",
                    ),
                    "train",
                    _hydra(
                        "verl_fully_async",
                        {
                            **_PPO,
                            "fully_async_ppo_trainer": "verl_fully_async",
                            "fully_async_ppo_megatron_trainer": "verl_fully_async_megatron",
                        },
                        _NEWER,
                        *_folders("fully_async_policy"),
                    ),
                    "verl",
                ),
                Entry(
                    (_OLD_SFT,),
                    "sft",
                    _hydra("verl_fsdp_sft", {"sft_trainer": "verl_fsdp_sft"}, ("verl_older",)),
                    "sft",
                ),
                Entry(
                    ("verl.trainer.sft_trainer", "verl.trainer.sft_trainer_ray"),
                    "sft",
                    _hydra(
                        "verl_sft", {"sft_trainer_engine": "verl_sft", "sft_trainer": "verl_sft"}, ("verl_sft_newer",)
                    ),
                    "sft",
                ),
                Entry(
                    ("verl.trainer.main_generation",),
                    "generate",
                    _hydra("verl_generation", {"generation": "verl_generation"}, ("verl_older",)),
                    "generation",
                ),
                Entry(
                    ("verl.trainer.main_eval",),
                    "eval",
                    _hydra("verl_eval", {"evaluation": "verl_eval"}, ("verl_older",)),
                    "eval",
                ),
                _MERGE,
            ),
        ),
        System(
            "easyr1",
            "EasyR1",
            (Entry(("verl.trainer.main",), "train", _dotlist("easyr1", "examples/config.yaml"), "easyr1"), _MERGE),
        ),
        System(
            "vppo",
            "VPPO-RL",
            (Entry(("verl.trainer.main",), "train", _dotlist("vppo", "examples/configs/config.yaml"), "vppo"), _MERGE),
        ),
        System(
            "or1",
            "Skywork-OR1",
            (
                Entry(
                    ("verl.trainer.main_ppo",),
                    "train",
                    _hydra("or1_main_ppo", {"ppo_trainer": "or1_main_ppo", "ppo_megatron_trainer": "or1_megatron"}),
                    "or1",
                    ("fp32_weights",),
                ),
                Entry(
                    (_OLD_SFT,),
                    "sft",
                    _hydra("or1_fsdp_sft", {"sft_trainer": "or1_fsdp_sft"}),
                    "sft",
                    ("cosine_sft", "torchrun_devices"),
                ),
                Entry(
                    ("verl.trainer.main_generation",),
                    "generate",
                    _hydra("or1_generation", {"generation": "or1_generation"}),
                    "generation",
                ),
                Entry(("verl.trainer.main_eval",), "eval", _hydra("or1_eval", {"evaluation": "or1_eval"}), "eval"),
                _MERGE,
            ),
        ),
    )
}


def system_of(name: str) -> System:
    """Return a system by its name, or raise a `UserError` that lists them."""
    if name not in SYSTEMS:
        raise UserError(f"{name!r}: is not one of {', '.join(SYSTEMS)}{hint(name, SYSTEMS)}")
    return SYSTEMS[name]
