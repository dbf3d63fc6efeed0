"""Rules about the policy: entropy, KL, gradients and ratios out of bounds; one that does not move, or overfits."""

from __future__ import annotations

import math
from collections import deque
from itertools import pairwise
from statistics import median

from whet.doctor.findings import Metrics
from whet.doctor.streak import Level, Streak

ENTROPY_WINDOW, ENTROPY_SHARE, ENTROPY_SOLVED = 5, 0.1, 0.5


class EntropyCollapse:
    """The policy hardly varies its answers any more while most prompts are unsolved: nothing new is tried."""

    name = "entropy"
    evidence: tuple[str, ...] = ("actor/entropy", "batch/solve_all", "reward/overall")

    def __init__(self) -> None:
        self._entropy, self._solved = Level(ENTROPY_WINDOW), Level(ENTROPY_WINDOW)

    def observe(self, metrics: Metrics) -> str | None:
        """Compare the entropy of the latest steps with that of the first."""
        if "actor/entropy" in metrics and "batch/solve_all" in metrics:
            self._entropy.add(metrics["actor/entropy"])
            self._solved.add(metrics["batch/solve_all"])
        if not self._entropy.is_known:
            return None
        first, latest = self._entropy.first, self._entropy.latest
        if latest >= ENTROPY_SHARE * first or self._solved.latest >= ENTROPY_SOLVED:
            return None
        return (
            f"the entropy of the policy fell from {first:.3g} to {latest:.3g} nats a token (means over "
            f"{ENTROPY_WINDOW} steps) while only {self._solved.latest:.0%} of the prompts are solved by all samples: "
            "samples of a prompt are nearly the same, so that nothing new is tried. Lower worker.actor.optim.lr, raise "
            "worker.actor.clip_ratio_high (0.28) or worker.actor.entropy_coeff, or sample at a higher "
            "worker.rollout.temperature."
        )


KL_STEPS, KL_LIMIT = 3, 1.0  # nats a token; runs that learn stay below 0.2
KL_METRICS = ("actor/kl_loss", "actor/reward_kl")


class KlBlowUp:
    """The policy is far from the reference model for several steps."""

    name = "kl"
    evidence: tuple[str, ...] = (*KL_METRICS, "actor/kl_coef", "reward/overall")

    def __init__(self) -> None:
        self._streak = Streak(KL_STEPS)

    def observe(self, metrics: Metrics) -> str | None:
        """Count steps in a row with a KL above the limit."""
        name = next((each for each in KL_METRICS if each in metrics), None)
        if name is None:
            return None
        if not self._streak.update(not metrics[name] <= KL_LIMIT):  # NaN counts
            return None
        return (
            f"in {self._streak.steps} steps in a row the KL to the reference model was above {KL_LIMIT:g} nats a token "
            f"({name} {metrics[name]:.3g}; runs that learn stay below 0.2): the policy writes text that the reference "
            "model finds absurd. Look at responses in samples/; lower worker.actor.optim.lr or raise "
            "algorithm.kl_coef."
        )


GRADIENT_EARLIER, GRADIENT_RECENT, GRADIENT_NEEDED, GRADIENT_TIMES = 50, 5, 3, 10.0


class ExplodingGradients:
    """Several gradient norms of the latest steps are far above the usual one, or not finite."""

    name = "gradients"
    evidence: tuple[str, ...] = ("actor/grad_norm", "actor/grad_skipped", "actor/lr")

    def __init__(self) -> None:
        self._usual: deque[float] = deque(maxlen=GRADIENT_EARLIER)  # norms that were not large
        self._recent: deque[bool] = deque(maxlen=GRADIENT_RECENT)

    def observe(self, metrics: Metrics) -> str | None:
        """Compare a step's gradient norm with the median of earlier ones."""
        norm = metrics.get("actor/grad_norm")
        skipped = metrics.get("actor/grad_skipped", 0.0)
        if norm is None and not skipped:
            return None
        broken = bool(skipped) or norm is None or not math.isfinite(norm)
        usual = median(self._usual) if len(self._usual) >= GRADIENT_RECENT else math.inf
        large = broken or (norm is not None and norm > GRADIENT_TIMES * usual)
        self._recent.append(large)
        if not large and norm is not None:
            self._usual.append(norm)
        if sum(self._recent) < GRADIENT_NEEDED:
            return None
        seen = "not finite" if broken else f"{norm:.3g}"
        before = f"; the usual one of this run is {usual:.3g}" if math.isfinite(usual) else ""
        return (
            f"in {sum(self._recent)} of the last {len(self._recent)} steps the gradient was more than "
            f"{GRADIENT_TIMES:g} times the usual one, or not finite (actor/grad_norm {seen}{before}). Lower "
            "worker.actor.optim.lr, set worker.actor.max_grad_norm (1.0), warm up longer "
            "(worker.actor.optim.lr_warmup_ratio), and go on from a checkpoint before this step."
        )


CLIPPING_STEPS, CLIPPING_SHARE = 3, 0.5
CLIPPED = ("actor/pg_clipfrac_higher", "actor/pg_clipfrac_lower")


class ClippedRatios:
    """The loss clips most tokens for several steps, so that they have no gradient."""

    name = "clipping"
    evidence: tuple[str, ...] = (*CLIPPED, "actor/ppo_kl", "actor/lr")

    def __init__(self) -> None:
        self._streak = Streak(CLIPPING_STEPS)

    def observe(self, metrics: Metrics) -> str | None:
        """Count steps in a row in which more than half of the tokens were clipped."""
        shares = [metrics[name] for name in CLIPPED if name in metrics]
        if not shares or not self._streak.update(max(shares) > CLIPPING_SHARE):
            return None
        return (
            f"in {self._streak.steps} steps in a row more than {CLIPPING_SHARE:.0%} of the tokens were clipped (now "
            f"{max(shares):.0%}) and taught nothing: the policy moves too far within a step. Lower "
            "worker.actor.optim.lr or worker.actor.ppo_epochs, make mini-batches larger "
            "(worker.actor.global_batch_size), or widen worker.actor.clip_ratio_low and clip_ratio_high."
        )


FLAT_WINDOW, FLAT_ERRORS = 15, 3.0  # steps at the start and now, and standard errors that count as a change


class FlatRun:
    """Since the start neither reward nor entropy has changed by more than noise, though samples have advantages."""

    name = "flat"
    evidence: tuple[str, ...] = ("actor/lr", "actor/entropy", "reward/overall", "actor/grad_norm")

    def __init__(self) -> None:
        self._first: list[tuple[float, float]] = []  # reward, entropy
        self._latest: deque[tuple[float, float]] = deque(maxlen=FLAT_WINDOW)
        self._moved = False  # once is enough: a run that has learned may rest

    def observe(self, metrics: Metrics) -> str | None:
        """Compare the latest steps with the first."""
        if self._moved or "actor/entropy" not in metrics or "reward/overall" not in metrics:
            return None
        if metrics.get("advantage/max", 1.0) == metrics.get("advantage/min", 0.0):
            return None  # rule `ties`: there is nothing to learn from
        point = metrics["reward/overall"], metrics["actor/entropy"]
        if len(self._first) < FLAT_WINDOW:
            self._first.append(point)
            return None
        self._latest.append(point)
        if len(self._latest) < FLAT_WINDOW:
            return None
        self._moved = any(_differ(before, now) for before, now in zip(zip(*self._first), zip(*self._latest)))
        if self._moved:
            return None
        (reward, entropy), (reward_now, entropy_now) = (
            [sum(values) / FLAT_WINDOW for values in zip(*points)] for points in (self._first, self._latest)
        )
        return (
            f"since the start of the run reward ({reward:.3f} → {reward_now:.3f}) and entropy ({entropy:.3f} → "
            f"{entropy_now:.3f}, means over {FLAT_WINDOW} steps) changed by no more than noise, though samples had "
            "advantages: the policy does not move. The usual reason is a learning rate that is too low for the batch: "
            f"raise worker.actor.optim.lr (now {metrics.get('actor/lr', float('nan')):.3g}) by ten times, and see that "
            "worker.actor.max_grad_norm does not cut every gradient."
        )


def _differ(before: tuple[float, ...], now: tuple[float, ...]) -> bool:
    """True if two means differ by more than their standard errors explain; NaN counts as a change."""
    error = (_variance(before) / len(before) + _variance(now) / len(now)) ** 0.5
    gap = abs(sum(now) / len(now) - sum(before) / len(before))
    return not gap <= FLAT_ERRORS * error


def _variance(values: tuple[float, ...]) -> float:
    mean = sum(values) / len(values)
    return float(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


FALLING_VALIDATIONS, FALL = 3, 0.05  # the share of its highest value that the validation reward must have lost


class FallingValidation:
    """The reward in validation falls from one to the next while that in training rises."""

    name = "overfit"
    evidence: tuple[str, ...] = ("val/reward", "reward/overall")

    def __init__(self) -> None:
        self._points: deque[tuple[float, float]] = deque(maxlen=FALLING_VALIDATIONS + 1)  # training, validation
        self._trained: list[float] = []
        self._highest = 0.0
        self._holds = False

    def observe(self, metrics: Metrics) -> str | None:
        """Take in the reward of a step, and at a validation compare the last ones."""
        if "reward/overall" in metrics:
            self._trained.append(metrics["reward/overall"])
        if "val/reward" in metrics and self._trained:
            self._points.append((sum(self._trained) / len(self._trained), metrics["val/reward"]))
            self._highest = max(self._highest, abs(metrics["val/reward"]))
            self._trained = []
            self._holds = self._falls()
        if not self._holds:
            return None
        (train, val), (train_now, val_now) = self._points[0], self._points[-1]
        return (
            f"in the last {FALLING_VALIDATIONS} validations the reward fell ({val:.3f} → {val_now:.3f}) while that in "
            f"training rose ({train:.3f} → {train_now:.3f}): the policy may overfit its prompts or exploit the reward "
            "function. Compare responses of training and validation in samples/; the best checkpoint is kept "
            "(trainer.keep_best), and more data, a KL term or fewer epochs help."
        )

    def _falls(self) -> bool:
        points = list(self._points)
        pairs = list(pairwise(points))
        return (
            len(pairs) == FALLING_VALIDATIONS
            and all(after[0] > before[0] and after[1] < before[1] for before, after in pairs)
            and points[0][1] - points[-1][1] > FALL * self._highest
        )
