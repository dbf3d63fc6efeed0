"""Rules of sampling: the engine, validation, agents."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from whet.compat.rules.rule import rule
from whet.compat.rules.sizes import longest
from whet.compat.translation import Here, There

_ROLLOUT = "actor_rollout_ref.rollout"
_KNOWN = ("vllm", "sglang", "hf", "trtllm", "vllm_omni")


def choose_engine(there: There, here: Here, section: str) -> str:
    """Set whet's engine for another system's: vLLM where it is installed, else the native one."""
    name = there.text(f"{section}.name", "vllm")
    if name not in _KNOWN:
        here.note(f"{section}.name={name}: no engine that is known; whet samples with its native engine")
    if name == "vllm" and find_spec("vllm") is not None:
        here.set("worker.rollout.name", "vllm", f"{section}.name")
        return "vllm"
    here.set("worker.rollout.name", "native", f"{section}.name")
    if there.is_given(f"{section}.name"):
        here.note(
            f"{section}.name={name}: whet samples with its native engine, on the learner's weights"
            + (" (vLLM is not installed)" if name == "vllm" else "")
            + "; worker.rollout.name chooses another"
        )
    return "native"


def engine_size(there: There, key: str) -> int:
    """Return the devices that an engine is split over; scripts that take it as an argument may hold any text."""
    value = there.values.get(key)
    return value if isinstance(value, int) and value > 0 else 1


@rule("engine")
def _engine(there: There, here: Here) -> None:
    name = choose_engine(there, here, _ROLLOUT)
    size = engine_size(there, f"{_ROLLOUT}.tensor_model_parallel_size")
    per_node = there.count("trainer.n_gpus_per_node", 8)
    if name == "vllm" and size > 1 and per_node % size == 0:
        here.set("worker.rollout.tensor_parallel_size", size, f"{_ROLLOUT}.tensor_model_parallel_size")
    else:
        here.idle(f"{_ROLLOUT}.tensor_model_parallel_size", "splits vLLM; whet's sampler follows the learner")
    if name == "vllm" and there.is_given(f"{_ROLLOUT}.dtype"):
        here.set("worker.rollout.dtype", there.get(f"{_ROLLOUT}.dtype"), f"{_ROLLOUT}.dtype")
    else:
        here.idle(f"{_ROLLOUT}.dtype", "the sampler has the learner's weights")
    longest_model = there.count(f"{_ROLLOUT}.max_model_len", 0)
    if longest_model >= longest(there):
        here.set("worker.rollout.max_model_len", longest_model, f"{_ROLLOUT}.max_model_len")
    else:
        here.idle(f"{_ROLLOUT}.max_model_len", "prompt + response")


@rule("validation")
def _validation(there: There, here: Here) -> None:
    """Validation samples greedily where verl is told nothing."""
    made: dict[str, Any] = {}
    keys = []
    for name, default in (("n", 1), ("temperature", 0), ("top_p", 1.0), ("top_k", -1)):
        key = f"{_ROLLOUT}.val_kwargs.{name}"
        made[name] = there.get(key, default)
        keys.append(key)
    if made["temperature"] == 0 and made["n"] != 1:
        here.note(f"{_ROLLOUT}.val_kwargs: greedy samples of a prompt are all the same; n=1 says as much")
        made["n"] = 1
    made["top_k"] = made["top_k"] if isinstance(made["top_k"], int) and made["top_k"] > 0 else -1
    here.set("worker.rollout.val_override_config", made, *keys)


@rule("validation_or1")
def _validation_or1(there: There, here: Here) -> None:
    """Skywork-OR1 validates at temperatures 0.6 and 1.0, whatever val_temperature says; here at 0.6."""
    n = max(1, there.count(f"{_ROLLOUT}.n_val", 1))
    here.set("worker.rollout.val_override_config", {"n": n, "temperature": 0.6}, f"{_ROLLOUT}.n_val")
    here.idle(f"{_ROLLOUT}.val_temperature", "Skywork-OR1 validates at 0.6 and 1.0 whatever is set; here it is 0.6")
    here.note("Skywork-OR1 validates at temperatures 0.6 and 1.0; whet validates at 0.6")


_LOOPS = {"SingleTurnAgentLoop": "single_turn_agent", "ToolAgentLoop": "tool_agent"}  # verl's own, by their classes
_OWN_LOOPS = (
    "loops of yours are environments here (worker.rollout.env) or programs that call the policy over HTTP "
    "(worker.rollout.agent)"
)


@rule("agents")
def _agents(there: There, here: Here) -> None:
    """Tools make an agent there; multi_turn.enable alone chooses nothing."""
    turns, tools = f"{_ROLLOUT}.multi_turn", "worker.rollout.tools"
    files = [
        f"{turns}.tool_config_path",
        f"{turns}.function_tool_path",
        "data.tool_config_path",
        "data.function_tool_path",
    ]
    loop = _loop(there, here)
    named = [key for key in files if there.get(key)]
    user = f"{turns}.interaction_config_path"
    if there.get(user):
        here.set("worker.rollout.interaction", str(there.get(user)), user)
    if not named and not there.get(user):
        if loop not in ("", *_LOOPS.values()):
            here.refuse(f"{_ROLLOUT}.agent.default_agent_loop", f"there is no loop {loop} here: {_OWN_LOOPS}")
        for name in ("enable", "max_assistant_turns", "max_user_turns", "format"):
            here.idle(f"{turns}.{name}", "without tools there is one turn")
        return
    if not here.has(tools):
        here.refuse(named[0], "agents with tools are not in this version yet")
        return
    functions = [key for key in named if key.endswith("function_tool_path")]
    if functions:
        here.refuse(functions[0], "name the functions: worker.rollout.tools=[path.py:function]")
        return
    if named:
        given = dict.fromkeys(str(there.get(key)) for key in named)  # the data's are copies of the rollout's
        here.set(tools, list(given), named[0])
    _limits(there, here, turns)
    if there.is_given(f"{turns}.format") and here.has("worker.rollout.tool_format"):
        here.set("worker.rollout.tool_format", there.get(f"{turns}.format"), f"{turns}.format")


def _loop(there: There, here: Here) -> str:
    """Return the name of the loop that verl would run by default; "" for a class of the user's, which is refused."""
    key = f"{_ROLLOUT}.agent.agent_loop_config_path"
    loop = there.text(f"{_ROLLOUT}.agent.default_agent_loop", "single_turn_agent")
    if not there.get(key):
        return loop
    from omegaconf import OmegaConf

    path = str(there.get(key))
    try:
        entries: Any = OmegaConf.to_container(OmegaConf.load(path))
        targets = {str(entry["name"]): str(entry["_target_"]) for entry in entries}
    except Exception as error:  # a file of the user's: unreadable, no YAML, or of another form
        here.refuse(key, f"{path} is no list of {{name, _target_}}: {type(error).__name__}: {str(error)[:200]}")
        return ""
    target = targets.get(loop)
    if target is None:  # the file only adds loops, which rows may ask for
        here.idle(key, f"{loop} is run, and {', '.join(targets)} are not: {_OWN_LOOPS}")
        return loop
    known = _LOOPS.get(target.rpartition(".")[2]) if target.startswith("verl.") else None
    if known is None:
        here.refuse(key, f"{loop} is {target}, a class written for verl's workers: {_OWN_LOOPS}")
        return ""
    here.idle(key, f"{loop} is verl's own {known}, which is chosen by its tools here")
    return known


def _limits(there: There, here: Here, turns: str) -> None:
    """Limits of an episode and of results. There a limit on the user's turns is checked after each of the policy's."""
    policy, user = (f"{turns}.{name}" for name in ("max_assistant_turns", "max_user_turns"))
    limits = {policy: there.count(policy, 0), user: there.count(user, -1) + 1}
    given = {key: limit for key, limit in limits.items() if limit > 0}
    if given:
        key = min(given, key=lambda name: given[name])
        here.set("worker.rollout.max_turns", given[key], key)
    for name in ("max_parallel_calls", "max_tool_response_length", "tool_response_truncate_side"):
        value = there.get(f"{turns}.{name}")
        if value is not None:
            here.set(f"worker.rollout.{name}", value, f"{turns}.{name}")
