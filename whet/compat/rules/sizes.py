"""Rules of sizes: prompts of a step, micro-batches, lengths, how long a run lasts."""

from __future__ import annotations

from whet.compat.rules.rule import rule
from whet.compat.translation import Here, There

_ACTOR = "actor_rollout_ref.actor"
_ROLLOUT = "actor_rollout_ref.rollout"
_MOST = 1_000_000


def devices(there: There) -> int:
    """Return the devices that learn."""
    return max(1, there.count("trainer.nnodes", 1) * there.count("trainer.n_gpus_per_node", 8))


def longest(there: There) -> int:
    """Return the tokens of the longest sample."""
    return there.count("data.max_prompt_length", 512) + there.count("data.max_response_length", 512)


def divisor(size: int, whole: int) -> int:
    """Return the largest number up to `size` that divides `whole`; above a million none is looked for."""
    return next(each for each in range(max(1, min(size, whole, _MOST)), 0, -1) if whole % each == 0)


@rule("prompts")
def _prompts(there: There, here: Here) -> None:
    """Prompts of a step, and how many of them are drawn at a time."""
    prompts, source = there.count("data.train_batch_size", 1024), "data.train_batch_size"
    if prompts < 1:  # fully asynchronous training draws one prompt after the other
        prompts = there.count(f"{_ACTOR}.ppo_mini_batch_size", 256) * there.count("async_training.require_batches", 1)
        source = f"{_ACTOR}.ppo_mini_batch_size"
    drawn = there.count("data.gen_batch_size", 0)
    if drawn and "async_training.staleness_threshold" not in there and drawn != prompts:
        if there.on("algorithm.filter_groups.enable"):
            here.set("data.mini_rollout_batch_size", drawn, "data.gen_batch_size")
        else:
            prompts, source = drawn, "data.gen_batch_size"
            here.idle("data.train_batch_size", "gen_batch_size is the number of prompts that a step draws there")
    else:
        here.idle("data.gen_batch_size", "prompts are drawn as the engine has room here")
    here.set("data.rollout_batch_size", prompts, source)


@rule("micro_batches")
def _micro_batches(there: There, here: Here) -> None:
    """Micro-batches, which are memory only: sizes that do not fit are changed rather than refused."""
    _part(there, here, _ACTOR, "actor", 16384)
    _part(there, here, "critic", "critic", 32768)
    key = f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu"
    size = there.count(key, 0)
    if not size and there.count(f"{_ROLLOUT}.log_prob_micro_batch_size", 0):
        key = f"{_ROLLOUT}.log_prob_micro_batch_size"
        size = max(1, there.count(key) // devices(there))
    if size:
        samples = there.count("data.train_batch_size", 1024) * there.count(f"{_ROLLOUT}.n", 1)
        fits = size if here.value("worker.actor.dynamic_batching", True) else divisor(size, max(1, samples))
        here.set("worker.actor.micro_batch_size_per_device_for_experience", fits, key)
    elif not here.value("worker.actor.dynamic_batching", True):
        samples = there.count("data.train_batch_size", 1024) * there.count(f"{_ROLLOUT}.n", 1)
        here.set("worker.actor.micro_batch_size_per_device_for_experience", divisor(16, max(1, samples)), key)


def _part(there: There, here: Here, section: str, part: str, budget: int) -> None:
    to, sequence = f"worker.{part}", max(1, there.count(f"{section}.ulysses_sequence_parallel_size", 1))
    if f"{section}.ppo_mini_batch_size" not in there:
        return
    dynamic = there.on(f"{section}.use_dynamic_bsz")
    here.set(f"{to}.dynamic_batching", dynamic, f"{section}.use_dynamic_bsz")
    samples = max(1, there.count(f"{section}.ppo_mini_batch_size", 256) * there.count(f"{_ROLLOUT}.n", 1))
    key = f"{section}.ppo_micro_batch_size_per_gpu"
    size = there.count(key, 0)
    if not size:
        key = f"{section}.ppo_micro_batch_size"
        size = max(1, there.count(key, 0) * sequence // devices(there)) if there.count(key, 0) else 0
    if size or not dynamic:
        size = size or 4
        here.set(f"{to}.micro_batch_size_per_device_for_update", size if dynamic else divisor(size, samples), key)
    tokens = f"{section}.ppo_max_token_len_per_gpu"
    if not dynamic:
        here.idle(tokens, "counts only with use_dynamic_bsz=True")
    elif there.is_given(tokens):
        wanted = there.count(tokens, budget) * sequence
        here.set(f"{to}.micro_batch_tokens", max(wanted, longest(there)), tokens)
    if part == "critic" and not dynamic:
        whole = there.count("data.train_batch_size", 1024) * there.count(f"{_ROLLOUT}.n", 1)
        forward = there.count("critic.forward_micro_batch_size_per_gpu", 0) or 16
        here.set(
            f"{to}.micro_batch_size_per_device_for_experience",
            divisor(forward, max(1, whole)),
            "critic.forward_micro_batch_size_per_gpu",
        )


@rule("critic_batch")
def _critic_batch(there: There, here: Here) -> None:
    here.set(
        "worker.critic.global_batch_size", there.count("critic.ppo_mini_batch_size", 256), "critic.ppo_mini_batch_size"
    )


@rule("critic_batch_of_samples")
def _critic_batch_of_samples(there: There, here: Here) -> None:
    """Skywork-OR1's critic counts samples, not prompts."""
    samples, n = there.count("critic.ppo_mini_batch_size", 256), max(1, there.count(f"{_ROLLOUT}.n", 1))
    prompts = divisor(max(1, samples // n), max(1, there.count("data.train_batch_size", 1024)))
    here.set("worker.critic.global_batch_size", prompts, "critic.ppo_mini_batch_size")
    if n > 1:
        here.note("critic.ppo_mini_batch_size counts samples there; whet's critic takes the same number as prompts x n")


@rule("lengths")
def _lengths(there: There, here: Here) -> None:
    """Lengths of the rollout follow those of the data; set apart from them they would be ignored here."""
    for name, ours in (("prompt_length", "max_prompt_length"), ("response_length", "max_response_length")):
        own, wanted = there.get(f"{_ROLLOUT}.{name}"), there.get(f"data.{ours}")
        if there.is_given(f"{_ROLLOUT}.{name}") and own != wanted and own is not None:
            here.set(f"data.{ours}", own, f"{_ROLLOUT}.{name}")


@rule("length")
def _length(there: There, here: Here) -> None:
    """Epochs and steps: both are ceilings in verl, and steps replace epochs here."""
    epochs = there.count("trainer.total_epochs", 0)
    if epochs:
        here.set("trainer.total_epochs", epochs, "trainer.total_epochs")
    steps = there.count("trainer.total_training_steps", 0)
    if steps > 0:
        here.set("trainer.max_steps", steps, "trainer.total_training_steps")
        if there.is_given("trainer.total_epochs"):
            here.note(
                f"trainer.total_training_steps={steps} is a ceiling there: the run ends after {epochs} epochs if that "
                "comes first; here it is the number of steps"
            )
    prompts = there.count("rollout.total_rollout_steps", 0)
    if prompts and "async_training.staleness_threshold" in there:
        size = here.value("data.rollout_batch_size") or 1
        here.set("trainer.max_steps", max(1, prompts // size), "rollout.total_rollout_steps")


@rule("pixels")
def _pixels(there: There, here: Here) -> None:
    """Images keep their size there unless it is extreme; whet's own default enlarges small ones."""
    square = (2 * there.count("data.image_patch_size", 14)) ** 2
    here.set("data.min_pixels", 4 * square, "data.image_patch_size", given=False)
    here.set("data.max_pixels", 16384 * square, "data.image_patch_size", given=False)
