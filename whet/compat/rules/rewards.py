"""Rules of rewards, checkpoints and the rest of the trainer."""

from __future__ import annotations

from whet.compat.rules.rule import rule
from whet.compat.rules.sizes import devices
from whet.compat.translation import Here, There

_FUNCTION = "custom_reward_function"
_MANAGERS = ("naive", "batch", "prime", "dapo")
_REWARD_MODEL = {
    "model.path": "path",
    "model.trust_remote_code": "trust_remote_code",
    "model.fsdp_config.param_offload": "offload",
    "max_length": "max_length",
}
_BUFFERS = ("reward_model.reward_kwargs.overlong_buffer_cfg", "reward_model.overlong_buffer")


@rule("reward")
def _reward(there: There, here: Here) -> None:
    """A function of the user's, or a scorer by the row's data_source."""
    path, name = there.get(f"{_FUNCTION}.path"), there.get(f"{_FUNCTION}.name", "compute_score")
    if path:
        here.set("worker.reward.reward_function", f"{path}:{name}", f"{_FUNCTION}.path", f"{_FUNCTION}.name")
        options = there.below(f"{_FUNCTION}.reward_kwargs")
        if options:
            keys = [f"{_FUNCTION}.reward_kwargs.{each}" for each in options]
            here.set("worker.reward.reward_function_kwargs", options, *keys)
    else:
        here.idle(f"{_FUNCTION}.name", "counts only with a path")
    here.set("data.answer_key", "reward_model.ground_truth", "data.reward_fn_key", given=False)
    key = "reward_manager.name" if there.is_given("reward_manager.name") else "reward_model.reward_manager"
    manager = there.get(key, "naive")
    if manager in _MANAGERS:
        if path or manager in ("dapo",):
            here.set("worker.reward.manager", manager, key)
        else:
            here.idle(key, "each row's data_source chooses a scorer")
    elif manager not in ("rate_limited", "gdpo", "visual"):
        here.refuse(key, f"managers are {', '.join(_MANAGERS)} here; set custom_reward_function for a reward of yours")
    else:
        here.idle(key, "rewards are scored by processes of their own here")


@rule("reward_or1")
def _reward_or1(there: There, here: Here) -> None:
    """Skywork-OR1 has one scorer of math and code; rows name theirs by data_source."""
    here.set("data.answer_key", "reward_model.ground_truth", "reward_model.reward_manager", given=False)
    manager = there.get("reward_model.reward_manager", "naive")
    if manager not in ("naive", "prime", "yr"):
        here.refuse("reward_model.reward_manager", "Skywork-OR1 has naive, prime and yr")
    here.idle("reward_model.reward_manager", "each row's data_source chooses a scorer of math or code")


@rule("reward_fn_key")
def _reward_fn_key(there: There, here: Here) -> None:
    if there.get("data.reward_fn_key", "data_source") != "data_source":
        here.refuse("data.reward_fn_key", "the column that chooses a scorer is data_source here; rename it in the data")


@rule("overlong")
def _overlong(there: There, here: Here) -> None:
    """DAPO's penalty of long responses, in its newer or older place."""
    for section in _BUFFERS:
        if not there.on(f"{section}.enable"):
            continue
        for name in ("enable", "len", "penalty_factor"):
            value = there.get(f"{section}.{name}")
            if value is not None:
                here.set(f"worker.reward.overlong_buffer.{name}", value, f"{section}.{name}")
        here.idle(f"{section}.log", "the penalty is always logged")
        here.note("the penalty of long responses counts in validation too there, and in training only here")
    longest, key = there.get("data.max_response_length"), "reward_model.reward_kwargs.max_resp_len"
    counts = any(there.on(f"{section}.enable") for section in _BUFFERS)
    if counts and there.get(key, longest) != longest:
        here.refuse(key, "the penalty is measured against data.max_response_length; set both alike")


@rule("sandbox")
def _sandbox(there: There, here: Here) -> None:
    for key in ("reward_model.sandbox_fusion.url", "sandbox_fusion.url"):
        if there.get(key):
            here.set("sandbox.url", there.get(key), key)


@rule("reward_model")
def _reward_model(there: There, here: Here) -> None:
    """A model that scores responses; one copy of it runs in the process that drives the devices."""
    if not there.on("reward_model.enable"):
        for name in _REWARD_MODEL:
            here.idle(f"reward_model.{name}", "counts only with reward_model.enable=True")
        return
    if there.get(f"{_FUNCTION}.path"):
        here.refuse(
            f"{_FUNCTION}.path",
            "a function beside a reward model asks that model there; set worker.reward.judge, or keep one of them",
        )
    for name, ours in _REWARD_MODEL.items():
        key = f"reward_model.{name}"
        value = there.values.get(key)
        if value not in (None, "") and (name == "model.path" or there.is_given(key)):
            here.set(f"worker.reward.model.{ours}", value, key)
    if devices(there) > 1:
        here.set("worker.reward.model.device", "cuda:0", "reward_model.enable")
        here.note(
            "reward_model: sharded over all devices there; here one copy on cuda:0, see worker.reward.model.device"
        )


@rule("resume")
def _resume(there: There, here: Here) -> None:
    mode, path = there.text("trainer.resume_mode", "auto"), there.get("trainer.resume_from_path")
    here.set("trainer.find_last_checkpoint", mode == "auto", "trainer.resume_mode")
    if mode == "resume_path" and path:
        here.set("trainer.load_checkpoint_path", path, "trainer.resume_from_path")
    else:
        here.idle("trainer.resume_from_path", "counts only with resume_mode=resume_path")


@rule("save_contents")
def _save_contents(there: There, here: Here) -> None:
    for key in (
        "actor_rollout_ref.actor.checkpoint.save_contents",
        "checkpoint.save_contents",
        "trainer.checkpoint.save_contents",
    ):
        contents = there.get(key)
        if isinstance(contents, list) and "optimizer" not in contents and there.is_given(key):
            here.set("trainer.save_model_only", True, key)
        elif contents is not None:
            here.idle(key, "checkpoints hold everything that resuming needs")
