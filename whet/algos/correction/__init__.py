"""Rollout correction: importance weights and rejection where the sampler's probabilities are not the learner's."""

from whet.algos.correction.correct import Correction, correct

__all__ = ["Correction", "correct"]
