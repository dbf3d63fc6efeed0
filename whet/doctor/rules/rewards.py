"""Rules about rewards: groups that tie, functions that fail or are slow, rewards that fall or mislead."""

from __future__ import annotations

import math
from collections import deque

from whet.doctor.findings import Metrics
from whet.doctor.streak import Level, Streak

TIED_STEPS = 5


class Ties:
    """No sample has an advantage for several steps: all samples of each group score the same."""

    name = "ties"
    evidence: tuple[str, ...] = ("advantage/max", "advantage/min", "reward/overall", "batch/solve_all")

    def __init__(self) -> None:
        self._steps = 0

    def observe(self, metrics: Metrics) -> str | None:
        """Count steps in a row in which every advantage is 0."""
        if "advantage/max" in metrics:  # else the step trained on nothing, which batch/empty_steps counts
            tied = metrics["advantage/max"] == metrics["advantage/min"] == 0
            self._steps = self._steps + 1 if tied else 0
        return self._sentence(metrics) if self._steps >= TIED_STEPS else None

    def _sentence(self, metrics: Metrics) -> str:
        seen = (
            f"in {self._steps} steps in a row the samples of every prompt scored the same, so that no sample had an "
            f"advantage and nothing was learned (mean reward {metrics.get('reward/overall', math.nan):.3f}). "
        )
        if metrics.get("batch/solve_all", 0.0) >= 0.99:
            return seen + "Every prompt is solved: stop here, or train on harder data."
        return seen + (
            "Look at responses in samples/ and at their scores: the reward function may miss right answers, the prompt "
            "may not ask for the form that it reads, or the data is too hard for this model (easier rows, a larger "
            "worker.rollout.n, whet sft first)."
        )


FAILING_STEPS, FAILING_SHARE = 3, 0.05
FAILING_KINDS = ("raised", "timeout", "died", "bad_result")


class FailingRewards:
    """The reward function gives no score for many samples, step after step."""

    name = "failing_rewards"
    evidence: tuple[str, ...] = ("reward/failed", *(f"reward/{kind}" for kind in FAILING_KINDS))

    def __init__(self) -> None:
        self._streak = Streak(FAILING_STEPS)

    def observe(self, metrics: Metrics) -> str | None:
        """Count steps in a row in which more samples than a few have no score."""
        failed, samples = metrics.get("reward/failed"), _samples(metrics)
        if failed is None or not samples:
            return None
        if not self._streak.update(failed > FAILING_SHARE * samples):
            return None
        kind = max(FAILING_KINDS, key=lambda each: metrics.get(f"reward/{each}", 0.0))
        return (
            f"in {self._streak.steps} steps in a row the reward function failed for more than {FAILING_SHARE:.0%} of "
            f"the samples (now {failed:.0f} of about {samples:.0f}, most often: {kind}); they count as worthless. What "
            "it printed is in reward.log; give it more time (worker.reward.timeout), or let it return a score for "
            "every text."
        )


def _samples(metrics: Metrics) -> float:
    """Return the number of samples of a step, from its tokens and their mean lengths; 0 where it is not known."""
    lengths = metrics.get("prompt_length/mean", 0.0) + metrics.get("response_length/mean", 0.0)
    return metrics.get("perf/total_tokens", 0.0) / lengths if lengths else 0.0


SLOW_STEPS, SLOW_SHARE, SLOW_SECONDS = 5, 0.5, 1.0


class SlowRewards:
    """Most of the time of several steps is spent waiting for scores."""

    name = "slow_rewards"
    evidence: tuple[str, ...] = ("timing_s/reward", "timing_s/rollout", "timing_s/update", "timing_s/step")

    def __init__(self) -> None:
        self._streak = Streak(SLOW_STEPS)

    def observe(self, metrics: Metrics) -> str | None:
        """Count steps in a row in which rewards took longer than everything else."""
        waited, whole = metrics.get("timing_s/reward"), metrics.get("timing_s/step")
        if waited is None or whole is None or not self._streak.update(waited > max(SLOW_SECONDS, SLOW_SHARE * whole)):
            return None
        return (
            f"in {self._streak.steps} steps in a row more than {SLOW_SHARE:.0%} of the time was spent waiting for "
            f"rewards after the last sample was finished (now {waited:.1f} of {whole:.1f} seconds). Give them more "
            "processes (worker.reward.num_cpus), make the function faster or its time limit shorter "
            "(worker.reward.timeout), or let sampling go on meanwhile (trainer.max_staleness=1)."
        )


OPPOSED_WINDOW, OPPOSED_CHANGE = 5, 0.05
OPPOSED_ACCURACY = ("reward/accuracy", "reward/acc")


class OpposedScores:
    """What drives training and what people watch go opposite ways."""

    name = "opposed"
    evidence: tuple[str, ...] = ("reward/overall", *OPPOSED_ACCURACY)

    def __init__(self) -> None:
        self._reward, self._accuracy = Level(OPPOSED_WINDOW), Level(OPPOSED_WINDOW)

    def observe(self, metrics: Metrics) -> str | None:
        """Compare both scores of the latest steps with those of the first."""
        accuracy = next((metrics[name] for name in OPPOSED_ACCURACY if name in metrics), None)
        if accuracy is not None and "reward/overall" in metrics:
            self._reward.add(metrics["reward/overall"])
            self._accuracy.add(accuracy)
        if not self._reward.is_known:
            return None
        gained, lost = self._reward.latest - self._reward.first, self._accuracy.first - self._accuracy.latest
        if gained <= OPPOSED_CHANGE or lost <= OPPOSED_CHANGE:
            return None
        return (
            f"the reward rose from {self._reward.first:.3f} to {self._reward.latest:.3f} while the accuracy of these "
            f"samples fell from {self._accuracy.first:.3f} to {self._accuracy.latest:.3f} (means over {OPPOSED_WINDOW} "
            "steps): the policy is paid for something else than right answers. Look at the best samples in samples/ "
            "and at how worker.reward.reward_function makes overall of its scores (its sign, the weight of each part)."
        )


FALLEN_WINDOW, FALLEN_SHARE = 10, 0.5


class FallenReward:
    """The mean reward has lost half of what the run had gained."""

    name = "fallen"
    evidence: tuple[str, ...] = ("reward/overall", "actor/grad_norm", "actor/entropy", "actor/kl_loss")

    def __init__(self) -> None:
        self._latest: deque[float] = deque(maxlen=FALLEN_WINDOW)
        self._best: float | None = None
        self._first: float | None = None

    def observe(self, metrics: Metrics) -> str | None:
        """Compare the mean over the latest steps with the best such mean."""
        if "reward/overall" in metrics:
            self._latest.append(metrics["reward/overall"])
        if len(self._latest) < FALLEN_WINDOW:
            return None
        mean = sum(self._latest) / FALLEN_WINDOW
        self._first = mean if self._first is None else self._first
        self._best = mean if self._best is None else max(self._best, mean)
        gained, spread = self._best - self._first, max(self._latest) - min(self._latest)
        # A gain within the noise of single steps is none, and cannot be lost.
        if gained <= spread or self._best - mean <= FALLEN_SHARE * gained:
            return None
        return (
            f"the reward fell from its best of {self._best:.3f} to {mean:.3f} (means over {FALLEN_WINDOW} steps; "
            f"{self._first:.3f} at the start): what was learned is being lost. Go on from an earlier checkpoint "
            "(trainer.keep_best keeps the best one) with a lower worker.actor.optim.lr, or with a KL term."
        )


COLLAPSED_WINDOW, COLLAPSED_SHARE, COLLAPSED_LEAST = 5, 0.5, 0.02


class CollapsedReward:
    """The reward has lost half of what it was in the first steps."""

    name = "collapsed"
    evidence: tuple[str, ...] = ("reward/overall", "actor/lr", "actor/grad_norm", "actor/entropy")

    def __init__(self) -> None:
        self._reward = Level(COLLAPSED_WINDOW)
        self._start: float | None = None

    def observe(self, metrics: Metrics) -> str | None:
        """Compare the reward of the latest steps with that of the very first, before any update."""
        reward = metrics.get("reward/overall")
        if reward is None:
            return None
        self._start = reward if self._start is None else self._start
        self._reward.add(reward)
        start, latest = max(self._start, self._reward.first), self._reward.latest
        if not self._reward.is_known or start < COLLAPSED_LEAST or latest >= COLLAPSED_SHARE * start:
            return None
        return (
            f"the reward fell from {start:.3f} at the start to {latest:.3f} (mean over {COLLAPSED_WINDOW} steps): the "
            "run unlearns what the model could do. The usual reason is a learning rate that is too high for the batch: "
            f"lower worker.actor.optim.lr (now {metrics.get('actor/lr', float('nan')):.3g}) by ten times, or make the "
            "batch larger; else look whether good samples have positive advantages in samples/."
        )
